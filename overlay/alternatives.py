"""Other ways than the shortest path, to many receivers of one source, in a graph that stays as it is.

What the searches have in common is done once: what is left to the source from everywhere steers each of them.
Weights are exact numbers: cost first, then hops.
"""

import heapq
from collections.abc import Callable, Collection, Iterator
from functools import cached_property

from anabranch.overlay.paths import Graph, Hop, Path, link_of, path_cost, shortest_paths, weight_of

FAN_MAX = 16
"""Links of an end over which a fan is looked for: those that look shortest."""

_Relays = Callable[[str], bool]


class Alternatives:
    """Paths from one source. Made anew for each graph."""

    def __init__(self, graph: Graph, source: str, may_relay: _Relays) -> None:
        self._graph = graph
        self._source = source
        self._may_relay = may_relay
        self._trees: dict[str, dict[str, Path]] = {}
        """Shortest paths that leave the source over a neighbour, by that neighbour."""

    def clear_of(self, target: str, links: Collection[Hop], peers: Collection[str]) -> Path:
        """The shortest path over none of these links (`link_of`), by none of these peers; empty without one.

        Searched from the target backwards.
        """
        near, into, source = self._near, self._into, self._source
        if target not in near:
            return ()
        nexts: dict[str, str] = {}
        heap = [(near[target], 0, target, "")]
        while heap:
            _, weight, peer, then = heapq.heappop(heap)
            if peer in nexts:
                continue
            nexts[peer] = then
            if peer == source:
                return tuple(_walk(nexts, source))
            if then and not self._may_relay(peer):
                continue
            for before, cost in into.get(peer, ()):
                if before in nexts or before in peers or before not in near or link_of(before, peer) in links:
                    continue
                whole = weight + weight_of(cost)
                heapq.heappush(heap, (whole + near[before], whole, before, peer))
        return ()

    def around_source(self, target: str) -> list[Path]:
        """The shortest path to the target over each neighbour of the source, the cheapest first."""
        links = self._graph.get(self._source, {})
        nearest = sorted(links, key=lambda neighbour: (links[neighbour], neighbour))[:FAN_MAX]
        if target in links and target not in nearest:
            nearest.append(target)
        found = [
            (self._source, *path) for neighbour in nearest if (path := self._tree(neighbour).get(target))
        ]
        return self._by_cost(found)

    def around_target(self, target: str) -> list[Path]:
        """The shortest path into the target over each of its neighbours, the cheapest first."""
        near = self._near
        last = [
            (near[peer] + weight_of(cost), peer)
            for peer, cost in self._into.get(target, ())
            if peer in near and (peer == self._source or self._may_relay(peer))
        ]
        found = [
            (*path, target)
            for _, peer in sorted(last)[:FAN_MAX]
            if (path := self.clear_of(peer, (), (target,)))
        ]
        return self._by_cost(found)

    # Inside

    @cached_property
    def _near(self) -> dict[str, int]:
        """What everything weighs from the source."""
        near: dict[str, int] = {}
        least = {self._source: 0}
        heap = [(0, self._source)]
        while heap:
            weight, peer = heapq.heappop(heap)
            if peer in near:
                continue
            near[peer] = weight
            if peer != self._source and not self._may_relay(peer):
                continue
            for neighbour, cost in self._graph.get(peer, {}).items():
                further = weight + weight_of(cost)
                if further < least.get(neighbour, further + 1):
                    least[neighbour] = further
                    heapq.heappush(heap, (further, neighbour))
        return near

    @cached_property
    def _into(self) -> dict[str, list[tuple[str, float]]]:
        """The links that lead to each peer, with their costs."""
        into: dict[str, list[tuple[str, float]]] = {peer: [] for peer in self._graph}
        for here, links in self._graph.items():
            for there, cost in links.items():
                if there in into:
                    into[there].append((here, cost))
                else:
                    into[there] = [(here, cost)]
        return into

    def _tree(self, neighbour: str) -> dict[str, Path]:
        tree = self._trees.get(neighbour)
        if tree is None:
            if self._may_relay(neighbour):
                tree = shortest_paths(
                    self._graph, neighbour, lambda peer: peer != self._source and self._may_relay(peer)
                )
            else:
                tree = {neighbour: (neighbour,)}
            self._trees[neighbour] = tree
        return tree

    def _by_cost(self, paths: list[Path]) -> list[Path]:
        return sorted(paths, key=lambda path: (path_cost(self._graph, path) or 0.0, len(path), path))


def _walk(nexts: dict[str, str], source: str) -> Iterator[str]:
    peer = source
    while peer:
        yield peer
        peer = nexts[peer]
