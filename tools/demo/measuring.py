"""What one subscription receives: how much, how late, what is missing, over which path."""

import math
from collections import deque

from anabranch.tools.demo.messages import FlowView
from anabranch.tools.testbed.histogram import Histogram

RECENT_S = 2.0
"""What the live table shows is about the last two seconds."""
_RECENT_MAX = 4096


class FlowMeter:
    """Counts and times of the messages of one publisher at one subscriber."""

    def __init__(self, topic: str, deadline_s: float) -> None:
        self._topic = topic
        self._deadline_s = deadline_s
        self._path: tuple[str, ...] = ()
        self._received = 0
        self._next_sequence = 0
        self._missed = 0
        self._disordered = 0
        self._late = 0
        self._told_late = 0
        self._reroutes = 0
        self._last_at: float | None = None
        self._longest_gap_s = 0.0
        self._latency = Histogram()
        self._age = Histogram()
        self._recent: deque[tuple[float, float]] = deque(maxlen=_RECENT_MAX)

    def add(
        self, sequence: int, path: tuple[str, ...], *, sent_at: float, now: float, age_s: float, late: bool
    ) -> bool:
        """A message is here; whether it took another path than the one before."""
        latency = now - sent_at
        self._received += 1
        if sequence >= self._next_sequence:
            self._missed += sequence - self._next_sequence
            self._next_sequence = sequence + 1
        else:
            self._disordered += 1
        self._late += latency > self._deadline_s
        self._told_late += late
        self._latency.add(latency)
        self._age.add(age_s)
        self._recent.append((now, latency))
        if self._last_at is not None:
            self._longest_gap_s = max(self._longest_gap_s, now - self._last_at)
        self._last_at = now
        if path == self._path:
            return False
        self._reroutes += bool(self._path)
        self._path = path
        return True

    def view(self, now: float) -> FlowView:
        """All of it, as it stands."""
        while self._recent and self._recent[0][0] < now - RECENT_S:
            self._recent.popleft()
        last_second = sum(1 for at, _ in self._recent if at >= now - 1.0)
        recent = sorted(latency for _, latency in self._recent)
        return FlowView(
            topic=self._topic,
            path=self._path,
            received=self._received,
            missed=self._missed,
            disordered=self._disordered,
            late=self._late,
            told_late=self._told_late,
            reroutes=self._reroutes,
            longest_gap_ms=round(self._longest_gap_s * 1e3, 1),
            rate=float(last_second),
            recent_p50_ms=_ms(_quantile(recent, 0.50)),
            recent_p99_ms=_ms(_quantile(recent, 0.99)),
            p50_ms=_ms(self._latency.quantile(0.50)),
            p99_ms=_ms(self._latency.quantile(0.99)),
            age_p50_ms=_ms(self._age.quantile(0.50)),
            age_p99_ms=_ms(self._age.quantile(0.99)),
        )


def _quantile(ordered: list[float], share: float) -> float | None:
    return ordered[max(0, math.ceil(len(ordered) * share) - 1)] if ordered else None


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1e3, 2)
