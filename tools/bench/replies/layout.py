"""Who is linked to whom and who replies in each scenario: after figure 4 of Cugola et al.

Fifty peers in a tree that follows the network's delays; the first is the publisher's.
"""

import random
from collections.abc import Sequence
from math import hypot

import msgspec

from anabranch.overlay.errors import UsageError

SCENARIOS = ("1x1", "10x1", "1x10", "10x10", "1x50", "10x50")
"""Repliers on each peer, times peers."""
PEERS = 50
STAR = 10
"""Repliers next to the publisher, for comparisons with other systems."""
CHILDREN_MAX = 4
NEARNESS = 0.5
"""How much the last hop counts beside the whole path when a peer chooses whom to hang on to."""
FAR_HOPS = 5
"""The single replier of the paper is near by delay and this far by hops."""
SECONDS_PER_UNIT = 0.1
LOAD_TOPICS = 20
"""A load message goes to one of so many topics; each peer wants one of them, so one in twenty gets it."""


class Plan(msgspec.Struct, frozen=True):
    """A tree of peers."""

    names: list[str]
    """The publisher's peer first."""
    parents: list[int]
    """By peer, whom it dials; -1 for the first."""

    def depth(self, peer: int) -> int:
        """Hops to the publisher's peer."""
        hops = 0
        while self.parents[peer] >= 0:
            peer = self.parents[peer]
            hops += 1
        return hops

    def repliers(self, scenario: str) -> dict[int, int]:
        """By peer, how many repliers it has."""
        each, peers = (int(part) for part in scenario.split("x"))
        if peers == 1:
            return {self._far(): each}
        step = len(self.names) // peers
        if step == 1:
            return dict.fromkeys(range(len(self.names))[:peers], each)
        return dict.fromkeys(range(step - 1, step * peers, step), each)

    def children(self, peer: int) -> int:
        """How many dial it."""
        return self.parents.count(peer)

    def _far(self) -> int:
        depths = [self.depth(peer) for peer in range(len(self.names))]
        return depths.index(min(FAR_HOPS, max(depths)))


def topic_of(scenario: str) -> str:
    """What the repliers of a scenario want."""
    return f"bench/{scenario}"


def load_topic(number: int) -> str:
    """One of the topics of the load."""
    return f"load/{number % LOAD_TOPICS}"


def star(repliers: int) -> Plan:
    """Each replier on a peer of its own, linked to the publisher's."""
    return Plan(["asker", *(f"replier-{number}" for number in range(repliers))], [-1] + [0] * repliers)


def tree(names: list[str], delays_s: list[list[float]]) -> Plan:
    """Peers in the order of their round trips; each hangs on to the one that makes its path shortest.

    `delays_s`: one way, by place in `names`.
    """
    round_trip = [[delays_s[a][b] + delays_s[b][a] for b in range(len(names))] for a in range(len(names))]
    order = sorted(range(1, len(names)), key=lambda peer: (round_trip[0][peer], peer))
    parents, path, taken = [-1] * len(names), {0: 0.0}, [0] * len(names)
    for peer in order:
        _, parent = min(
            (path[other] + (1 + NEARNESS) * round_trip[other][peer], other)
            for other in path
            if taken[other] < CHILDREN_MAX
        )
        parents[peer] = parent
        taken[parent] += 1
        path[peer] = path[parent] + round_trip[parent][peer]
    places = [0, *order]
    return Plan(
        [names[place] for place in places],
        [-1 if parents[place] < 0 else places.index(parents[place]) for place in places],
    )


def made_up(seed: int = 1) -> tuple[list[str], list[list[float]]]:
    """Fifty places on a plane, for a tree where no recorded network is given."""
    rng = random.Random(seed)  # noqa: S311 - must be repeatable
    places = [(rng.random(), rng.random()) for _ in range(PEERS)]
    delays = [[hypot(a - c, b - d) * SECONDS_PER_UNIT for c, d in places] for a, b in places]
    return [f"peer-{number:02}" for number in range(PEERS)], delays


def chosen(option: str, text: str, known: Sequence[str]) -> list[str]:
    """`1x1,10x50` to names that are known; each once, in the order given."""
    found = [part.strip() for part in text.split(",")]
    for each in found:
        if each not in known:
            raise UsageError(
                f"{option} {text!r}: {each!r} is none of {', '.join(known)}; name some of them, separated by "
                "commas"
            )
    return list(dict.fromkeys(found))
