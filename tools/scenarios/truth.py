"""What the simulated network really did over time: which paths there were, whatever the peers believed.

Filled by `simulating.py` whenever something happens; asked by `measuring.py` afterwards. Delays only: jitter
and rate limits are left out.
"""

from bisect import bisect_right
from collections.abc import Collection, Mapping
from heapq import heappop, heappush
from itertools import pairwise
from math import inf

from anabranch.tools.scenarios.schema import Pair

Path = tuple[str, ...]


class Truth:
    """The network as a list of states, each of which lasts until the next."""

    def __init__(self, relays: Collection[str]) -> None:
        self._relays = frozenset(relays)
        self._times: list[float] = []
        self._up: list[dict[Pair, float]] = []
        self._dark: list[frozenset[Pair]] = []
        self._lasting: dict[tuple[int, str], dict[str, float]] = {}

    def note(self, now: float, up: Mapping[Pair, float], dark: Collection[Pair]) -> None:
        """From now on these directions carry messages, with their delays, and these swallow them."""
        if self._times and self._times[-1] == now:
            self._times.pop()
            self._up.pop()
            self._dark.pop()
        self._times.append(now)
        self._up.append(dict(up))
        self._dark.append(frozenset(dark))

    def best_s(self, origin: str, target: str, put: float) -> tuple[float | None, float]:
        """The quickest path of links that are up until a message put then has passed them.

        Its delay, None without such a path; and the last time of a put for which the same is true.
        """
        state = bisect_right(self._times, put) - 1
        end = self._times[state + 1] if state + 1 < len(self._times) else inf
        lasting = self._lasting.get((state, origin))
        if lasting is None:
            lasting = self._lasting[state, origin] = self._search(origin, put, state, lasts=True)
        found = lasting.get(target)
        if found is None:
            return None, end
        if put + found < end:
            return found, end - found
        return self._search(origin, put, state, lasts=False).get(target), put

    def direct_s(self, origin: str, target: str, put: float) -> float | None:
        """The delay of the direct link when a message was put; None while it was down or if there is none."""
        return self._up[bisect_right(self._times, put) - 1].get((origin, target))

    def outages(self) -> list[tuple[float, float, frozenset[Pair]]]:
        """(begin, end, directions) of links that went dark at the same time; the end is that of the first."""
        found = []
        for state in range(1, len(self._times)):
            ways = self._dark[state] - self._dark[state - 1]
            if ways:
                end = next((t for t, dark in self._after(state) if not ways <= dark), inf)
                found.append((self._times[state], end, ways))
        return found

    def _after(self, state: int) -> list[tuple[float, frozenset[Pair]]]:
        return list(zip(self._times[state + 1 :], self._dark[state + 1 :], strict=True))

    def _search(self, origin: str, put: float, state: int, *, lasts: bool) -> dict[str, float]:
        """Delays to all that can be reached; with `lasts`, as if this state never ended."""
        found: dict[str, float] = {}
        heap = [(put, origin)]
        while heap:
            now, peer = heappop(heap)
            if peer in found:
                continue
            found[peer] = now - put
            if peer != origin and peer not in self._relays:
                continue
            here = state if lasts else bisect_right(self._times, now) - 1
            for (source, target), delay in self._up[here].items():
                if source != peer or target in found:
                    continue
                last = state if lasts else bisect_right(self._times, now + delay) - 1
                if all((source, target) in self._up[each] for each in range(state, last + 1)):
                    heappush(heap, (now + delay, target))
        return found


def reroute_s(
    paths: list[tuple[float, Path]], in_use: Path, at: float, end: float, ways: frozenset[Pair]
) -> tuple[bool, float | None]:
    """Whether an outage hit the path in use, and the time until a message came over one without it.

    `paths` are those that messages came over and since when; None when the link was back before that.
    """
    if not _passes(in_use, ways):
        return False, None
    for since, path in paths:
        if at < since < end and not _passes(path, ways):
            return True, since - at
    return True, None


def _passes(path: Path, ways: frozenset[Pair]) -> bool:
    return any(hop in ways for hop in pairwise(path))
