"""A scenario laid out: every peer by name, who dials whom, what the network does between any two of them.

Pure functions of the file, a variant and a seed. The simulator builds its mesh from this; so can a testbed.
"""

import random
from collections.abc import Iterable
from fnmatch import fnmatchcase
from functools import cached_property
from itertools import combinations

import msgspec

from anabranch.overlay.config import Config
from anabranch.overlay.errors import UsageError
from anabranch.overlay.qos import Role
from anabranch.tools.scenarios.schema import ConditionKeys, Pair, Peer, Scenario
from anabranch.tools.scenarios.settings import make_config
from anabranch.transport.simulator import Conditions

ALL_PAIRS_MAX_PEERS = 64


class Place(msgspec.Struct, frozen=True):
    """One peer of the mesh."""

    name: str
    role: Role
    clock_offset_s: float
    dials: tuple[str, ...]
    """Peers it joins at the start."""


class Layout:
    """The mesh of one run. A random mesh is drawn from the seed, alike for all variants."""

    def __init__(self, scenario: Scenario, seed: int) -> None:
        self.scenario = scenario
        self.default = to_conditions(scenario.network, Conditions())
        """Between peers that no [[links]] entry names."""
        self._tables = dict(_named(scenario.peers))
        self.names = list(self._tables)
        self.links = self._draw_links(seed)
        """(who dials, who is dialled), each pair once."""
        self.conditions = self._listed_conditions()
        """By direction, for the links that the file names."""
        dials: dict[str, list[str]] = {name: [] for name in self.names}
        for source, target in self.links:
            dials[source].append(target)
        self.places = [
            Place(name, Role(peer.role), peer.clock_offset_s, tuple(dials[name]))
            for name, peer in self._tables.items()
        ]

    @property
    def mesh(self) -> str:
        """How peers find each other, with the default resolved."""
        return self.scenario.network.mesh or ("links" if self.scenario.links else "full")

    @property
    def relays(self) -> list[str]:
        """The peers that pass messages on: all but light clients."""
        return [place.name for place in self.places if place.role is Role.PEER]

    @cached_property
    def possible_ways(self) -> list[Pair]:
        """Both directions of every link that the mesh may have.

        A mesh that looks for neighbours itself may link any two peers; past a size only `join` counts.
        """
        pairs = list(self.links)
        if self.mesh == "join" and len(self.relays) <= ALL_PAIRS_MAX_PEERS:
            pairs += combinations(self.relays, 2)
        return list(dict.fromkeys(way for a, b in pairs for way in ((a, b), (b, a))))

    def config(self, name: str, variant: str) -> Config:
        """The settings of a peer under a variant of the scenario."""
        fixed = {} if self.mesh == "join" else {"neighbours_target": 0}
        peer = self._tables[name]
        return make_config(self.scenario, variant, fixed, peer.config, Role(peer.role), f"peer {name!r}")

    def is_peer(self, name: str) -> bool:
        """Whether exactly this peer exists."""
        return name in self._tables

    def table(self, name: str) -> Peer:
        """The table of the file that describes a peer."""
        return self._tables[name]

    def peers(self, pattern: str) -> list[str]:
        """The peers that a name or a pattern of names means; empty when it means nobody."""
        if pattern in self._tables:
            return [pattern]
        return [name for name in self.names if fnmatchcase(name, pattern)]

    def ways(self, between: Pair, direction: str) -> tuple[Pair, ...]:
        """The directions (source, target) that a `between` and a `direction` of the file mean."""
        firsts, seconds = set(self.peers(between[0])), set(self.peers(between[1]))
        there = [
            way
            for a, b in self._pairs(between)
            for way in ((a, b), (b, a))
            if way[0] in firsts and way[1] in seconds
        ]
        back = [(target, source) for source, target in there]
        chosen = {"there": there, "back": back, "both": there + back}[direction]
        return tuple(dict.fromkeys(chosen))

    def _pairs(self, between: Pair) -> Iterable[Pair]:
        named = between[0] in self._tables and between[1] in self._tables
        return [between] if named else self.links

    def _draw_links(self, seed: int) -> list[Pair]:
        scenario = self.scenario
        relays = [name for name, peer in self._tables.items() if peer.role == "peer"]
        pairs: list[Pair] = []
        if self.mesh == "links":
            pairs = [link.between for link in scenario.links]
        elif self.mesh == "full":
            pairs = [(b, a) for number, b in enumerate(relays) for a in relays[:number]]
        elif self.mesh == "random":
            rng = random.Random(f"{seed}/mesh")  # noqa: S311 - must be repeatable
            half = (scenario.network.links_per_peer + 1) // 2
            for number, name in enumerate(relays):
                pairs += [(name, other) for other in rng.sample(relays[:number], min(number, half))]
        pairs += [(name, other) for name, peer in self._tables.items() for other in peer.join]
        return list({frozenset(pair): pair for pair in reversed(pairs)}.values())[::-1]

    def _listed_conditions(self) -> dict[Pair, Conditions]:
        found: dict[Pair, Conditions] = {}
        for link in self.scenario.links:
            a, b = link.between
            there = to_conditions(link, self.default)
            found[a, b] = there
            found[b, a] = to_conditions(link.back, there) if link.back else there
        return found


def to_conditions(keys: ConditionKeys, base: Conditions) -> Conditions:
    """The conditions that a table of the file makes of others: keys that it leaves out stay."""
    changes: dict[str, object] = {}
    if keys.delay_ms is not None:
        changes["delay_s"] = keys.delay_ms / 1e3
    if keys.jitter_ms is not None:
        changes["jitter_s"] = keys.jitter_ms / 1e3
    for name in ("loss", "loss_after_loss", "reorder", "rate_bytes_s"):
        if getattr(keys, name) is not None:
            changes[name] = getattr(keys, name)
    return base.replace(**changes)


def _named(peers: list[Peer]) -> Iterable[tuple[str, Peer]]:
    seen: set[str] = set()
    for peer in peers:
        numbers = [""] if peer.count is None else [str(number) for number in range(1, peer.count + 1)]
        for number in numbers:
            name = peer.name + number
            if name in seen:
                raise UsageError(f"peer {name!r} is described twice: names are unique")
            seen.add(name)
            yield name, peer
