"""Shortest paths over measured links. Functions of the graph they are given."""

import heapq
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from math import inf

Graph = Mapping[str, Mapping[str, float]]
"""peer -> neighbour -> cost in seconds."""

Path = tuple[str, ...]
"""Peers, both ends included."""

Hop = tuple[str, str]
"""(from, to): one direction of a link; twice the same peer for the applications on it."""

HOP_STEPS = 1 << 16
"""Weights of links are nanoseconds times this, plus one: cost first, then hops, in one exact number."""


def shortest_paths(graph: Graph, source: str, may_relay: Callable[[str], bool]) -> dict[str, Path]:
    """The cheapest path from the source to every peer it reaches, both ends included.

    Peers that may not relay are reached but never passed. Equal costs are decided by fewer hops, then by
    name, so that every run and every process chooses alike.
    """
    done: dict[str, Path] = {}
    heap: list[tuple[float, int, str, str]] = [(0.0, 0, source, "")]
    best: dict[str, float] = {source: 0.0}
    while heap:
        cost, hops, peer, parent = heapq.heappop(heap)
        if peer in done:
            continue
        done[peer] = (*done[parent], peer) if parent else (peer,)
        if parent and not may_relay(peer):
            continue
        hops += 1
        for neighbour, link_cost in graph.get(peer, {}).items():
            total = cost + link_cost
            if neighbour not in done and total <= best.get(neighbour, inf):
                best[neighbour] = total
                heapq.heappush(heap, (total, hops, neighbour, peer))
    return done


def path_cost(graph: Graph, path: Path) -> float | None:
    """The cost of a path, or None when one of its links is gone."""
    total = 0.0
    for here, there in pairwise(path):
        cost = graph.get(here, {}).get(there)
        if cost is None:
            return None
        total += cost
    return total


def hops_of(paths: Iterable[Path]) -> frozenset[Hop]:
    """Every hop of these paths, and the applications at their ends."""
    hops: set[Hop] = set()
    for path in paths:
        hops.update(pairwise(path))
        hops.add((path[-1], path[-1]))
    return frozenset(hops)


def link_of(here: str, there: str) -> Hop:
    """A link whatever the direction: its ends in the order of their names."""
    return (here, there) if here < there else (there, here)


def weight_of(cost: float) -> int:
    """The exact weight of a link that costs so many seconds."""
    return (int(cost * 1e9 + 0.5) if cost > 0 else 0) * HOP_STEPS + 1
