"""Relays that acknowledge what they take and do not pass it on: end-to-end confirmations tell of them.

Remembers by receiver whom to go around and for how long, and finds ways past them. Called by `assuring` and
`consigning` with what was confirmed, and what was not.
"""

from collections.abc import Iterable, Sequence

import msgspec

from anabranch.overlay.config import Config
from anabranch.overlay.counters import Counters
from anabranch.overlay.paths import Path, shortest_paths
from anabranch.overlay.routes import Routes
from anabranch.security.signing import Verifier

MISSES_MAX = 3
"""So often a message is sent again, without a success between: once or twice may be a link that failed."""
AROUND_FIRST_S = 30.0
AROUND_MAX_S = 600.0
"""For how long a doubted relay is gone around; twice as long each time it fails again."""
RECEIVERS_MAX = 4096


class Doubt(msgspec.Struct):
    """What speaks against one relay on the way to one receiver."""

    misses: int = 0
    until: float = 0.0
    around_s: float = AROUND_FIRST_S


class Doubting:
    """Doubts by receiver: one that never confirms anything spoils no ways but its own."""

    def __init__(self, config: Config, routes: Routes, counters: Counters, verifier: Verifier) -> None:
        self._config = config
        self._routes = routes
        self._counters = counters
        self._verifier = verifier
        self._doubts: dict[str, dict[str, Doubt]] = {}
        self._found: dict[tuple[str, frozenset[str], int], tuple[Path, ...]] = {}
        self._found_at = -1
        """The version of the topology that these ways were found in."""

    def missed(self, receiver: str, relays: Iterable[str], attempts: int, now: float) -> None:
        """A message that took these relays was confirmed only when it was sent again, so many times."""
        doubts = self._doubts.get(receiver)
        if doubts is None:
            if len(self._doubts) >= RECEIVERS_MAX:
                del self._doubts[next(iter(self._doubts))]
            doubts = self._doubts[receiver] = {}
        for relay in relays:
            doubt = doubts.setdefault(relay, Doubt())
            doubt.misses += attempts
            if doubt.misses >= MISSES_MAX and doubt.until <= now:
                doubt.misses = MISSES_MAX - 1  # the next time, once is enough
                doubt.until = now + doubt.around_s
                self._counters.add("doubted_relays")
                self._verifier.refuse(
                    relay,
                    f"what it passes on does not get to {receiver!r}; gone around for {doubt.around_s:.0f} s",
                )
                doubt.around_s = min(2 * doubt.around_s, AROUND_MAX_S)

    def proven(self, receiver: str, relays: Iterable[str]) -> None:
        """A message that took these relays, and no other way, was confirmed."""
        doubts = self._doubts.get(receiver)
        if doubts:
            for relay in relays:
                doubts.pop(relay, None)
            if not doubts:
                del self._doubts[receiver]

    def around(self, receiver: str, now: float) -> frozenset[str]:
        """Whom to go around on the way to this receiver."""
        doubts = self._doubts.get(receiver)
        if not doubts:
            return frozenset()
        return frozenset(relay for relay, doubt in doubts.items() if doubt.until > now)

    def ways(self, receiver: str, avoided: frozenset[str], count: int) -> tuple[Path, ...]:
        """Up to so many ways to a receiver that pass none of these relays, no two of them the same relay."""
        version = self._routes.topology.version
        if version != self._found_at or len(self._found) >= self._config.cache_max:
            self._found_at = version
            self._found.clear()
        key = (receiver, avoided, min(count, self._config.paths_max))
        found = self._found.get(key)
        if found is None:
            found = self._found[key] = self._search(*key)
        return found

    def _search(self, receiver: str, avoided: frozenset[str], count: int) -> tuple[Path, ...]:
        topology = self._routes.topology
        taken = set(avoided)
        found: list[Path] = []
        while len(found) < count:
            paths = shortest_paths(
                topology.graph(), self._routes.me, lambda name: name not in taken and topology.may_relay(name)
            )
            path = paths.get(receiver)
            if path is None or path in found:
                break
            found.append(path)
            taken.update(path[1:-1])
        return tuple(found)


def relays_of(ways: Sequence[Path]) -> set[str]:
    """Whoever passes something on there."""
    return {relay for path in ways for relay in path[1:-1]}
