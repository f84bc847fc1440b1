"""From a changed link to the new route: how long the core takes, in a mesh that it is told of by records.

One process, no sockets: the same topology and routes that a peer holds.
"""

import random
import time
from itertools import pairwise

from anabranch.overlay.config import Config
from anabranch.overlay.errors import UsageError
from anabranch.overlay.headers import LinkEntry
from anabranch.overlay.identity import Identity
from anabranch.overlay.routes import Routes
from anabranch.overlay.topology import Topology
from anabranch.tools.bench.jobs import BenchError
from anabranch.tools.bench.measuring import percentile
from anabranch.tools.bench.scenarios import Row

PEERS_MAX = 5000
LINKS_MAX = 64
DESTINATIONS = 20
CHANGES = ("delay", "down", "up", "quiet")
DELAY_LEAST_US, DELAY_MOST_US = 1_000, 100_000
LEAST_SAMPLES = 20
"""Measured of each change, however little time was given."""


def parse_peers(text: str, links: int) -> list[int]:
    """`200,1000` to sizes of meshes; each once, in the order given."""
    sizes = []
    for part in text.split(","):
        try:
            size = int(part)
        except ValueError:
            size = 0
        if not links < size <= PEERS_MAX:
            raise UsageError(
                f"--peers {text!r}: {part.strip()!r} is not a number of peers; give whole numbers above the "
                f"links of each ({links}) and up to {PEERS_MAX}, separated by commas, such as 200,1000"
            )
        sizes.append(size)
    return list(dict.fromkeys(sizes))


def parse_links(links: int) -> int:
    """The links of each peer, if there can be as many and they pair up."""
    if not 2 <= links <= LINKS_MAX or links % 2:
        raise UsageError(f"--links {links}: must be an even number from 2 to {LINKS_MAX}")
    return links


def routing(peers: int, links: int, seconds: float, seed: int = 1) -> list[Row]:
    """One row for each kind of change; they take turns for so many seconds in all."""
    mesh = Mesh(peers, links, random.Random(seed))  # noqa: S311 - must be repeatable
    samples: dict[str, list[int]] = {change: [] for change in CHANGES}
    ends_at = time.perf_counter() + seconds
    while time.perf_counter() < ends_at or len(samples[CHANGES[-1]]) < LEAST_SAMPLES:
        for change in CHANGES:
            samples[change].append(mesh.timed(change))
    return [
        {
            "peers": peers,
            "links": links,
            "destinations": len(mesh.destinations),
            "change": change,
            "samples": len(taken),
            "p50_ms": round(percentile(sorted(taken), 0.5) / 1e6, 3),
            "p99_ms": round(percentile(sorted(taken), 0.99) / 1e6, 3),
        }
        for change, taken in samples.items()
    ]


class Mesh:
    """A random mesh as its first peer knows it, and that peer's route to some of the others."""

    def __init__(self, peers: int, links: int, rng: random.Random) -> None:
        self._rng = rng
        names = [f"peer-{number:04}" for number in range(peers)]
        self._me = names[0]
        self._announced: dict[str, dict[str, LinkEntry]] = {name: {} for name in names}
        for _ in range(links // 2):
            ring = rng.sample(names, peers)
            for here, there in pairwise([*ring, ring[0]]):
                self._set(here, there)
                self._set(there, here)
        config = Config()
        self._topology = Topology(config.spread_change_ratio, config.spread_change_s)
        self._routes = Routes(Identity(self._me, 1, 1), config, self._topology)
        self.destinations = tuple(sorted(rng.sample(names[1:], min(DESTINATIONS, peers - 1))))
        self._down: tuple[LinkEntry, LinkEntry] | None = None
        for name in names:
            self._tell(name, list(self._announced[name].values()))
        self._route()

    def timed(self, change: str) -> int:
        """Nanoseconds from a record with this change to the route that follows it.

        The link is one of the route. It goes down with the first end's record, and is up again, the same one,
        with the second end's; the other end's record of each is not timed. When a neighbour on the route
        falls quiet, what goes over it gets copies on paths beside it; nobody tells of that.
        """
        if change == "up":
            assert self._down is not None, "a link goes down before it comes up"
            (to_one, to_other), self._down = self._down, None
            one, other = to_one.neighbour, to_other.neighbour
            self._announced[other][one] = to_one
            self._apply(other)
            self._announced[one][other] = to_other
            return self._apply(one)
        if change == "quiet":
            return self._fall_quiet()
        one, other = self._link_in_use()
        if change == "delay":
            self._set(one, other)
            return self._apply(one)
        self._down = (self._announced[other].pop(one), self._announced[one].pop(other))
        taken_ns = self._apply(one)
        self._apply(other)
        return taken_ns

    def _fall_quiet(self) -> int:
        neighbour = self._routes.path(self._rng.choice(self.destinations))[1]
        begun_ns = time.perf_counter_ns()
        self._routes.set_quiet(frozenset((neighbour,)))
        self._route()
        took_ns = time.perf_counter_ns() - begun_ns
        self._routes.set_quiet(frozenset())
        self._route()
        return took_ns

    def _apply(self, peer: str) -> int:
        entries = list(self._announced[peer].values())
        begun_ns = time.perf_counter_ns()
        self._tell(peer, entries)
        self._route()
        return time.perf_counter_ns() - begun_ns

    def _tell(self, peer: str, entries: list[LinkEntry]) -> None:
        if peer == self._me:
            self._topology.set_own(peer, entries)
        else:
            self._topology.set_links(peer, entries)

    def _route(self) -> None:
        route = self._routes.route(self.destinations)
        if route.unreached:
            raise BenchError(f"no route to {', '.join(route.unreached)}, although the mesh holds together")

    def _link_in_use(self) -> tuple[str, str]:
        path = self._routes.path(self._rng.choice(self.destinations))
        return self._rng.choice(list(pairwise(path)))

    def _set(self, here: str, there: str) -> None:
        delay_us = self._rng.randint(DELAY_LEAST_US, DELAY_MOST_US)
        self._announced[here][there] = LinkEntry(there, delay_us, 0, 0, 1_000_000)
