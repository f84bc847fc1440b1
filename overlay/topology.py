"""The mesh as its peers describe it: who has a link to whom, and how good it is."""

from collections.abc import Iterable, Mapping

import msgspec

from anabranch.overlay.estimators import LOSES_MOST, differs, loss_level
from anabranch.overlay.headers import LinkEntry
from anabranch.overlay.paths import Hop, link_of

HOP_COST_S = 0.0005
"""Added to each link's delay: a relay costs a copy and a turn of its loop, so a detour must be worth it."""


class Edge(msgspec.Struct, frozen=True):
    """One direction of a link, as announced by the peer it leaves from."""

    delay_s: float
    jitter_s: float
    loss: float
    availability: float
    client: bool


Edges = Mapping[str, Edge]
"""By the neighbour that each leads to."""


def edges_of(entries: Iterable[LinkEntry]) -> Edges:
    """What a peer says about its links, by neighbour."""
    return {
        entry.neighbour: Edge(
            entry.delay_us / 1e6,
            entry.jitter_us / 1e6,
            entry.loss_ppm / 1e6,
            entry.availability_ppm / 1e6,
            entry.client,
        )
        for entry in entries
    }


class Topology:
    """Announced links by peer. `version` grows whenever a route might change."""

    def __init__(self, change_ratio: float, change_s: float) -> None:
        self.version = 0
        self._announced: dict[str, Edges] = {}
        self._counted: dict[str, Edges] = {}
        """What routes were last told of: many small steps add up against it."""
        self._change_ratio = change_ratio
        self._change_s = change_s
        self._graph: dict[str, dict[str, float]] = {}
        self._named_by: dict[str, dict[str, None]] = {}
        """Who announces a link to this peer: their rows of the graph depend on what it announces itself."""
        self._stale: dict[str, None] = {}
        """Rows of the graph to be made anew when routes are next told of a change."""
        self._graph_version = 0
        self._dead: frozenset[Hop] = frozenset()
        self._dead_version = 0
        self._own = ""

    def peers(self) -> list[str]:
        """Every peer that announced links."""
        return list(self._announced)

    def announced(self, origin: str) -> Edges:
        """What a peer says about its own links."""
        return self._announced.get(origin, {})

    def dead_links(self) -> frozenset[Hop]:
        """Links (names in order) that lose most of what they are given, or all, by what either end says."""
        if self._dead_version != self.version:
            self._dead_version = self.version
            self._dead = frozenset(
                link_of(peer, neighbour)
                for peer, edges in self._announced.items()
                for neighbour, edge in edges.items()
                if loss_level(edge.loss) >= LOSES_MOST
            )
        return self._dead

    def set_links(self, origin: str, entries: Iterable[LinkEntry]) -> bool:
        """Take a peer's own description of its links; whether a route might change by it."""
        return self.set_edges(origin, edges_of(entries))

    def set_edges(self, origin: str, fresh: Edges) -> bool:
        """The same by neighbour. They are kept as they are: nobody may change them any more."""
        if origin in fresh:
            fresh = {neighbour: edge for neighbour, edge in fresh.items() if neighbour != origin}
        counted = self._counted.get(origin)
        if counted is fresh and self._announced.get(origin) is fresh:
            return False
        self._announce(origin, fresh)
        if counted is not None and not self._matters(counted, fresh):
            return False
        self._counted[origin] = fresh
        self.version += 1
        return True

    def set_own(self, peer: str, entries: list[LinkEntry]) -> bool:
        """Take our own links: no second end has to confirm them."""
        if peer != self._own:
            if self._own in self._announced:
                self._stale[self._own] = None
            self._own = peer
        return self.set_links(peer, entries)

    def remove(self, origin: str) -> bool:
        """Forget a peer's links; whether there were any."""
        self._counted.pop(origin, None)
        if origin not in self._announced:
            return False
        self._announce(origin, None)
        self.version += 1
        return True

    def is_client(self, peer: str) -> bool:
        """Whether a peer is known only as somebody's light client."""
        return peer not in self._announced

    def may_relay(self, peer: str) -> bool:
        """Whether a route may pass this peer."""
        return peer in self._announced

    def graph(self) -> dict[str, dict[str, float]]:
        """Usable links with their cost: announced from both ends, or own, or towards a light client.

        Changes make a new graph, which shares the rows that stayed: what was returned once stays as it was.
        """
        if self._graph_version != self.version:
            self._graph_version = self.version
            graph = self._graph.copy()
            for peer in self._stale:
                if peer in self._announced:
                    graph[peer] = self._row(peer)
                else:
                    graph.pop(peer, None)
            self._graph = graph
            self._stale = {}
        return self._graph

    def _row(self, peer: str) -> dict[str, float]:
        announced = self._announced
        return {
            neighbour: edge.delay_s + HOP_COST_S
            for neighbour, edge in announced[peer].items()
            if peer == self._own
            or (edge.client and neighbour not in announced)
            or peer in announced.get(neighbour, ())
        }

    def _announce(self, origin: str, fresh: Edges | None) -> None:
        """Replace what a peer announces, or forget it with None, and note which rows depend on it."""
        known = self._announced.get(origin)
        old, new = known or {}, fresh or {}
        if (known is None) != (fresh is None):
            self._stale.update(self._named_by.get(origin, {}))
        changed = []
        for neighbour in old:
            if neighbour not in new:
                named_by = self._named_by[neighbour]
                del named_by[origin]
                if not named_by:
                    del self._named_by[neighbour]
                changed.append(neighbour)
        for neighbour in new:
            if neighbour not in old:
                self._named_by.setdefault(neighbour, {})[origin] = None
                changed.append(neighbour)
        self._stale.update((peer, None) for peer in changed if peer in self._announced)
        if fresh is not None:
            self._announced[origin] = fresh
            self._stale[origin] = None
        else:
            del self._announced[origin]
            self._stale.pop(origin, None)
            if origin in self._graph:
                self._stale[origin] = None

    def _matters(self, old: Edges, fresh: Edges) -> bool:
        if old.keys() != fresh.keys():
            return True
        return any(
            edge.client != old[neighbour].client
            or loss_level(edge.loss) != loss_level(old[neighbour].loss)
            or differs(old[neighbour].delay_s, edge.delay_s, self._change_ratio, self._change_s)
            for neighbour, edge in fresh.items()
        )
