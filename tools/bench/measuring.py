"""How messages are counted and timed inside the processes of a bench, alike for every system."""

import time
from collections.abc import Callable
from typing import Any

from anabranch.tools.bench.jobs import BenchError, Job, Parent, cpu_seconds, resident_bytes

QUIET_S = 1.0
"""A receiver that missed messages gives up when none came for this long."""
SAMPLES = 10
"""Memory is looked at this often over a run with a fixed number of messages."""


class Meter:
    """Counts at the receiver: the rate between the first and the last message after the warm-up.

    The hot loop counts by itself and calls `mark` only when its count reaches `next_mark`, which `mark` also
    returns, so that looking at the clock costs the measured system next to nothing.
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        self._opened_at = 0.0
        self._start: tuple[int, float] | None = None
        self._last: tuple[int, float] = (0, 0.0)
        self._quiet_count = -1
        self._quiet_since = 0.0
        self.next_mark = 1
        self.memory = MemorySamples(job.messages)

    def mark(self, count: int, size: int) -> int:
        """Note that the message number `count` is here, with its size; returns when to call again."""
        now = time.perf_counter()
        if size != self._job.size:
            raise BenchError(f"message {count} has {size} bytes instead of {self._job.size}")
        if count == 1:
            self._opened_at = now
        if self._start is None and now - self._opened_at >= self._job.warmup_s:
            self._start = (count, now)
        self._last = (count, now)
        self.memory.look(count)
        self.next_mark = count + self._job.burst
        return self.next_mark

    def drained(self, count: int, expected: int | None) -> bool:
        """Whether everything arrived, or nothing more will. To be asked several times a second."""
        now = time.perf_counter()
        if count != self._quiet_count:
            self._quiet_count, self._quiet_since = count, now
        if expected is None:
            return False
        return count >= expected or now - self._quiet_since > QUIET_S

    def wait_drained(self, parent: Parent, count: Callable[[], int]) -> None:
        """Blocks until `drained`, for receivers that work in another thread."""
        while not self.drained(count(), parent.expected):
            time.sleep(0.05)

    def result(self, count: int) -> dict[str, Any]:
        """What a receiver reports at its end."""
        first, started = self._start or (0, 0.0)
        last, ended = self._last
        if self._start is None or last <= first:
            raise BenchError(
                f"only {count} messages of {self._job.size} bytes arrived, too few after the warm-up: "
                "measure longer with --seconds"
            )
        return {
            "messages_per_second": (last - first) / (ended - started),
            "received": count,
            "memory": self.memory.samples,
        }


class MemorySamples:
    """Resident memory after each tenth of a run; nothing for a run without a fixed number of messages."""

    def __init__(self, messages: int) -> None:
        self._step = max(1, messages // SAMPLES)
        self._next = self._step if messages else 0
        self.samples: list[dict[str, int]] = []

    def look(self, count: int) -> None:
        """To be called with the number of messages so far, now and then."""
        if self._next and count >= self._next:
            self.samples.append({"messages": count, "rss_bytes": resident_bytes()})
            self._next = count - count % self._step + self._step


class Pace:
    """How long and how fast a sender sends; what that cost it.

    `more` is asked before each burst and says how many messages to send next, 0 at the end.
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        self._begun_at = time.perf_counter()
        self._warm_until = self._begun_at + job.warmup_s
        self._end = self._warm_until + job.seconds
        self._warm_sent = -1
        self._warm_cpu = 0.0
        self._warm_at = 0.0
        self.sent = 0
        self.memory = MemorySamples(job.messages)

    def more(self) -> int:
        """The number of messages in the next burst; they count as sent."""
        now = time.perf_counter()
        if self._warm_sent < 0 and now >= self._warm_until:
            self._warm_sent, self._warm_cpu, self._warm_at = self.sent, cpu_seconds(), now
        self.memory.look(self.sent)
        if self._job.messages:
            burst = min(self._job.burst, self._job.messages - self.sent)
        else:
            burst = self._job.burst if now < self._end else 0
        self.sent += burst
        return burst

    def pause_s(self) -> float:
        """How long to wait before the next burst to keep to the job's rate."""
        if not self._job.rate:
            return 0.0
        return max(0.0, self._begun_at + self.sent / self._job.rate - time.perf_counter())

    def result(self) -> dict[str, Any]:
        """What a sender reports when it has sent everything."""
        measured = self.sent - self._warm_sent if self._warm_sent >= 0 else 0
        return {
            "sent": self.sent,
            "measured": measured,
            "cpu_s": cpu_seconds() - self._warm_cpu if measured else 0.0,
            "elapsed_s": time.perf_counter() - self._warm_at if measured else 0.0,
            "memory": self.memory.samples,
        }


def send_blocking(job: Job, put: Callable[[bytes], object]) -> dict[str, Any]:
    """Send by calling `put` for each message; returns the sender's result."""
    pace = Pace(job)
    payload = job.payload()
    while burst := pace.more():
        for _ in range(burst):
            put(payload)
    return pace.result()


class RoundTrips:
    """Times of round trips, one at a time, after the warm-up."""

    def __init__(self, job: Job) -> None:
        now = time.perf_counter_ns()
        self._warm_until = now + int(job.warmup_s * 1e9)
        self._end = self._warm_until + int(job.seconds * 1e9)
        self._taken_ns: list[int] = []

    def note(self, begun_ns: int, ended_ns: int) -> bool:
        """Note one round trip by its clock readings; False when it is time to stop."""
        if begun_ns >= self._warm_until:
            self._taken_ns.append(ended_ns - begun_ns)
        return ended_ns < self._end

    def result(self) -> dict[str, Any]:
        """What the pinging side reports at its end."""
        if not self._taken_ns:
            raise BenchError("no round trip was completed after the warm-up: measure longer with --seconds")
        ordered = sorted(self._taken_ns)
        return {
            "p50_us": percentile(ordered, 0.50) / 1000,
            "p99_us": percentile(ordered, 0.99) / 1000,
            "round_trips": len(ordered),
        }


class Harvests:
    """Requests to `job.subscribers` repliers, one at a time: `job.messages` of them after the warm-up."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._warm_until = time.perf_counter_ns() + int(job.warmup_s * 1e9)
        self._begun_ns = 0
        self._taken_ns: list[int] = []
        self._replies = 0
        self._complete = 0

    def go_on(self) -> bool:
        """Whether to ask once more; the time runs from here."""
        self._begun_ns = time.perf_counter_ns()
        return len(self._taken_ns) < self._job.messages

    def note(self, replies: int) -> None:
        """All of them came that will."""
        ended_ns = time.perf_counter_ns()
        if self._begun_ns >= self._warm_until:
            self._taken_ns.append(ended_ns - self._begun_ns)
            self._replies += replies
            self._complete += replies == self._job.subscribers

    def result(self) -> dict[str, Any]:
        """What the asking side reports at its end."""
        ordered = sorted(self._taken_ns)
        asked = len(ordered)
        return {
            "runs": asked,
            "complete_runs": self._complete,
            "delivered": round(self._replies / (asked * self._job.subscribers), 6),
            "p50_ms": round(percentile(ordered, 0.50) / 1e6, 3),
            "p99_ms": round(percentile(ordered, 0.99) / 1e6, 3),
        }


def percentile(ordered: list[int], share: float) -> float:
    """The value below which `share` of the ordered values lie (nearest rank)."""
    return float(ordered[min(len(ordered) - 1, int(len(ordered) * share))])
