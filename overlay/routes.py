"""Which paths publications take: chosen per receiver, joined into one source-routed forwarding tree.

Reads the topology, keeps the chosen path of each receiver so that a small gain does not make it flap
(Harmony, section 2.1), and caches the encoded tree per set of receivers.
"""

from collections.abc import Mapping

import msgspec

from anabranch.overlay.codec import encode_subtree, encode_tail
from anabranch.overlay.config import Config
from anabranch.overlay.headers import Tail
from anabranch.overlay.identity import Identity
from anabranch.overlay.paths import Hop, hops_of, path_cost, shortest_paths
from anabranch.overlay.qos import Variant
from anabranch.overlay.topology import Topology

SWITCH_LEAST_S = 0.001
"""A gain below a millisecond never moves a path: on one machine delays are all noise."""

Path = tuple[str, ...]


class PathChange(msgspec.Struct, frozen=True):
    """The path to a receiver was chosen, left, or lost."""

    destination: str
    path: Path
    """Empty when there is none."""
    cost_s: float
    cause: str


class Route(msgspec.Struct, frozen=True):
    """The forwarding tree to a set of receivers."""

    generation: int
    branches: tuple[tuple[str, bytes], ...]
    """Next peers, each with the tail for it."""
    reached: int
    unreached: tuple[str, ...]
    hops: frozenset[Hop] | None = frozenset()
    """Every hop of the tree; None when it is chosen by the peer that a light client is attached to."""


class Routes:
    """The routes of publications that start at this peer."""

    def __init__(self, identity: Identity, config: Config, topology: Topology) -> None:
        self._identity = identity
        self._me = identity.peer
        self._config = config
        self.topology = topology
        self._seen_version = -1
        self.searches = 0
        """A route holds as long as this and the topology's version do."""
        self._may_improve = True
        self._generation = 0
        self._best: dict[str, Path] = {}
        self._chosen: dict[str, Path] = {}
        self._checked: set[str] = set()
        self._routes: dict[Path, Route] = {}
        self._stale: dict[Path, Route] = {}
        self._changes: list[PathChange] = []
        self.switches = 0
        """How often a working path was left for a better one."""

    def route(self, destinations: tuple[str, ...]) -> Route:
        """The tree to these peers (this peer not among them), with what is known now."""
        self._refresh()
        route = self._routes.get(destinations)
        if route is None:
            if len(self._routes) >= self._config.cache_max:
                del self._routes[next(iter(self._routes))]
            route = self._routes[destinations] = self._build(destinations)
        return route

    def attached_route(self, destinations: tuple[str, ...], peer: str) -> Route:
        """The route of a light client: everything goes to the peer it is attached to, which routes it on."""
        key = (peer, *destinations)
        route = self._routes.get(key)
        if route is None:
            if len(self._routes) >= self._config.cache_max:
                del self._routes[next(iter(self._routes))]
            self._generation += 1
            tail = Tail(
                self._me, self._identity.epoch, self._generation, [self._me], False, [], list(destinations)
            )
            route = Route(self._generation, ((peer, encode_tail(tail)),), len(destinations), (), None)
            self._routes[key] = route
        return route

    def forget(self) -> None:
        """Drop every encoded route: who we are has changed."""
        self._routes = {}
        self._stale = {}
        self.searches += 1

    def path(self, destination: str) -> Path:
        """The path to one peer; empty when there is none."""
        self._refresh()
        return self._choose(destination)

    def chosen(self) -> Mapping[str, Path]:
        """The path in use for each receiver."""
        return self._chosen

    def reachable(self) -> set[str]:
        """Every peer that some path reaches."""
        self._refresh()
        return set(self._best)

    def search(self) -> None:
        """Allow improvements now; called on the search interval where one is configured."""
        self._may_improve = True
        self._seen_version = -1
        self.searches += 1

    @property
    def has_changes(self) -> bool:
        """Whether `take_changes` has something."""
        return bool(self._changes)

    def take_changes(self) -> list[PathChange]:
        """Path changes since the last call."""
        changes, self._changes = self._changes, []
        return changes

    def _refresh(self) -> None:
        if self._seen_version == self.topology.version:
            return
        self._seen_version = self.topology.version
        self._best = shortest_paths(self.topology.graph(), self._me, self.topology.may_relay)
        self._best.pop(self._me, None)
        self._checked.clear()
        self._stale.update(self._routes)
        self._routes = {}
        while len(self._stale) > self._config.cache_max:
            del self._stale[next(iter(self._stale))]
        if self._chosen:
            for destination in list(self._chosen):
                self._choose(destination)
            if self._config.search_interval_s > 0:
                self._may_improve = False

    def _build(self, destinations: tuple[str, ...]) -> Route:
        chosen = [(peer, self._choose(peer)) for peer in destinations]
        unreached = tuple(peer for peer, path in chosen if not path)
        paths = [path for _, path in chosen if path]
        tree = _join(paths)
        previous = self._stale.pop(destinations, None)
        if previous is not None:
            same = self._encode(tree, previous.generation)
            if same == previous.branches and unreached == previous.unreached:
                return previous
        self._generation += 1
        branches = self._encode(tree, self._generation)
        return Route(self._generation, branches, len(paths), unreached, hops_of(paths))

    def _encode(self, tree: "_Tree", generation: int) -> tuple[tuple[str, bytes], ...]:
        branches = []
        for peer, (deliver, children) in tree.items():
            below = [(name, _encode_subtree(*child)) for name, child in children.items()]
            tail = Tail(self._me, self._identity.epoch, generation, [self._me], deliver, below)
            branches.append((peer, encode_tail(tail)))
        return tuple(branches)

    def _choose(self, destination: str) -> Path:
        if destination in self._checked:
            return self._chosen.get(destination, ())
        self._checked.add(destination)
        graph = self.topology.graph()
        best = self._best.get(destination, ())
        if self._config.variant is Variant.DP:
            best = (self._me, destination) if destination in graph.get(self._me, {}) else ()
        current = self._chosen.get(destination, ())
        current_cost = path_cost(graph, current) if current else None
        best_cost = path_cost(graph, best) if best else None
        if current_cost is not None and best_cost is not None:
            gain = current_cost - best_cost
            enough = gain >= SWITCH_LEAST_S and gain >= self._config.switch_threshold * current_cost
            if best == current or not enough or not self._may_improve:
                return current
            self.switches += 1
            return self._set(destination, best, best_cost, "faster")
        if best_cost is None:
            if current:
                self._set(destination, (), 0.0, "unreachable")
            return ()
        return self._set(destination, best, best_cost, "broken" if current else "new")

    def _set(self, destination: str, path: Path, cost_s: float, cause: str) -> Path:
        if path:
            self._chosen[destination] = path
            while len(self._chosen) > self._config.cache_max:
                oldest = next(iter(self._chosen))
                del self._chosen[oldest]
                self._checked.discard(oldest)
        else:
            self._chosen.pop(destination, None)
        self._changes.append(PathChange(destination, path, cost_s, cause))
        del self._changes[: -self._config.cache_max]
        return path


_Tree = dict[str, "tuple[bool, _Tree]"]


def _join(paths: list[Path]) -> _Tree:
    """One tree out of paths that start at the same peer; a peer is asked to deliver once."""
    root: _Tree = {}
    for path in paths:
        level = root
        for peer in path[1:-1]:
            deliver, below = level.get(peer, (False, {}))
            level[peer] = (deliver, below)
            level = below
        _, below = level.get(path[-1], (False, {}))
        level[path[-1]] = (True, below)
    return root


def _encode_subtree(deliver: bool, children: _Tree) -> msgspec.Raw:
    return encode_subtree(deliver, [(name, _encode_subtree(*child)) for name, child in children.items()])
