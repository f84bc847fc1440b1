"""Routes of publications that start at this peer: the forwarding tree to a set of receivers, encoded once.

Which paths serve a receiver is decided by `choosing`; this keeps the decisions, and the trees made of them,
until the topology changes.
"""

from collections.abc import Mapping

import msgspec

from anabranch.overlay.choosing import Choice, Choosing
from anabranch.overlay.codec import encode_tail
from anabranch.overlay.config import Config
from anabranch.overlay.headers import Tail
from anabranch.overlay.identity import Identity
from anabranch.overlay.paths import Hop, Path, hops_of, path_cost, shortest_paths
from anabranch.overlay.profiles import Beliefs
from anabranch.overlay.qos import BEST_EFFORT, Demand
from anabranch.overlay.topology import Topology
from anabranch.overlay.trees import Tree, encode_tree, join_paths

Asked = tuple[str, Demand]
"""A receiver, and what is asked of the paths to it."""

HEARSAY_MAX = 3
"""Ways that are tried at a time to a peer which only hearsay reaches."""


class PathChange(msgspec.Struct, frozen=True):
    """The paths to a receiver were chosen, left, or lost."""

    destination: str
    path: Path
    """Empty when there is none."""
    copies: tuple[Path, ...]
    """Further paths that every message takes too."""
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
    availability: float = 0.0
    """The least that is estimated for any of the receivers; 0 when one is not reached or nothing is known."""
    receivers: tuple[str, ...] = ()
    """Who shall deliver what takes it."""


class Routes:
    """The routes of publications that start at this peer."""

    def __init__(self, identity: Identity, config: Config, topology: Topology) -> None:
        self._identity = identity
        self.me = self._me = identity.peer
        self._config = config
        self.topology = topology
        self._choosing = Choosing(identity.peer, config, topology)
        self._seen_version = -1
        self.searches = 0
        """A route holds as long as this and the topology's version do."""
        self._may_improve = True
        self._generation = 0
        self._best: dict[str, Path] = {}
        self._chosen: dict[Asked, Choice] = {}
        self._checked: set[Asked] = set()
        self._routes: dict[tuple[Path, Demand], Route] = {}
        self._stale: dict[tuple[Path, Demand], Route] = {}
        self._along: dict[tuple[Path, ...], Route] = {}
        self._changes: list[PathChange] = []
        self.switches = 0
        """How often a working path was left for a better one."""

    def believe(self, beliefs: Beliefs) -> None:
        """From now on count with what a profile says about links."""
        self._choosing.beliefs = beliefs
        self.search()

    def route(self, destinations: tuple[str, ...], demand: Demand = BEST_EFFORT) -> Route:
        """The tree to these peers (this peer not among them), with what is known now."""
        self._refresh()
        key = (destinations, demand)
        route = self._routes.get(key)
        if route is None:
            if len(self._routes) >= self._config.cache_max:
                del self._routes[next(iter(self._routes))]
            route = self._routes[key] = self._build(destinations, demand)
        return route

    def along(self, paths: tuple[Path, ...]) -> Route:
        """The tree of just these paths, which start here; a path over a link that is gone is left out."""
        self._refresh()
        route = self._along.get(paths)
        if route is None:
            if len(self._along) >= self._config.cache_max:
                del self._along[next(iter(self._along))]
            graph = self.topology.graph()
            whole = [path for path in paths if path_cost(graph, path) is not None]
            receivers = tuple(dict.fromkeys(path[-1] for path in whole))
            unreached = tuple(sorted({path[-1] for path in paths} - set(receivers)))
            self._generation += 1
            branches = self._encode(join_paths(whole), self._generation, max(1, len(whole)))
            route = self._along[paths] = Route(
                self._generation, branches, len(receivers), unreached, hops_of(whole), receivers=receivers
            )
        return route

    def paths(self, destination: str, demand: Demand) -> tuple[Path, ...]:
        """The paths that messages to a peer take now; none when there is none."""
        self._refresh()
        choice = self._choose(destination, demand)
        return choice.paths if choice is not None else ()

    def attached_route(self, destinations: tuple[str, ...], peer: str) -> Route:
        """The route of a light client: everything goes to the peer it is attached to, which routes it on."""
        key = ((peer, *destinations), BEST_EFFORT)
        route = self._routes.get(key)
        if route is None:
            if len(self._routes) >= self._config.cache_max:
                del self._routes[next(iter(self._routes))]
            self._generation += 1
            tail = Tail(
                self._me, self._identity.epoch, self._generation, [self._me], False, [], list(destinations)
            )
            branches = ((peer, encode_tail(tail)),)
            route = Route(
                self._generation, branches, len(destinations), (), None, receivers=tuple(destinations)
            )
            self._routes[key] = route
        return route

    def hearsay(self, destination: str) -> Route | None:
        """Ways to a peer that no path reaches, over links that one of their ends has announced: what the
        other end announced may be late or lost. None when nobody has said so. Not remembered."""
        self._refresh()
        said, announced = self.topology.announced(destination), self.topology.announced
        near = [
            peer
            for peer in sorted(self._best)
            if peer != self._me
            and self.topology.may_relay(peer)
            and (peer in said or destination in announced(peer))
        ]
        ways = sorted(((*self.path(peer), destination) for peer in near), key=len)[:HEARSAY_MAX]
        if not ways:
            return None
        self._generation += 1
        branches = self._encode(join_paths(ways), self._generation, len(ways))
        return Route(self._generation, branches, 1, (), hops_of(ways), receivers=(destination,))

    def forget(self) -> None:
        """Drop every encoded route: who we are has changed."""
        self._routes = {}
        self._stale = {}
        self._along = {}
        self.searches += 1

    def path(self, destination: str) -> Path:
        """The path to one peer for publications that ask for nothing; empty when there is none."""
        self._refresh()
        choice = self._choose(destination, BEST_EFFORT)
        return choice.paths[0] if choice is not None else ()

    def chosen(self) -> Mapping[Asked, Choice]:
        """The paths in use, by receiver and demand."""
        return self._chosen

    def reachable(self) -> set[str]:
        """Every peer that some path reaches."""
        self._refresh()
        return set(self._best)

    def search(self) -> None:
        """Allow improvements now; called on the search interval where one is configured."""
        self._may_improve = True
        self._look_again()

    def set_quiet(self, neighbours: frozenset[str]) -> None:
        """Which neighbours are silent for longer than they should be: paths over them are in trouble."""
        if neighbours != self._choosing.quiet:
            self._choosing.quiet = neighbours
            self._look_again()

    @property
    def has_changes(self) -> bool:
        """Whether `take_changes` has something."""
        return bool(self._changes)

    def take_changes(self) -> list[PathChange]:
        """Path changes since the last call."""
        changes, self._changes = self._changes, []
        return changes

    def _look_again(self) -> None:
        self._seen_version = -1
        self.searches += 1

    def _refresh(self) -> None:
        if self._seen_version == self.topology.version:
            return
        self._seen_version = self.topology.version
        self._best = shortest_paths(self.topology.graph(), self._me, self.topology.may_relay)
        self._best.pop(self._me, None)
        self._checked.clear()
        self._stale.update(self._routes)
        self._routes = {}
        self._along = {}
        while len(self._stale) > self._config.cache_max:
            del self._stale[next(iter(self._stale))]
        if self._chosen:
            for destination, demand in list(self._chosen):
                self._choose(destination, demand)
            if self._config.search_interval_s > 0:
                self._may_improve = False

    def _build(self, destinations: tuple[str, ...], demand: Demand) -> Route:
        chosen = [(peer, self._choose(peer, demand)) for peer in destinations]
        unreached = tuple(peer for peer, choice in chosen if choice is None)
        choices = [choice for _, choice in chosen if choice is not None]
        paths = [path for choice in choices for path in choice.paths]
        copies = max((len(choice.paths) for choice in choices), default=1)
        tree = join_paths(paths)
        previous = self._stale.pop((destinations, demand), None)
        if previous is not None:
            same = self._encode(tree, previous.generation, copies)
            if same == previous.branches and unreached == previous.unreached:
                return previous
        self._generation += 1
        branches = self._encode(tree, self._generation, copies)
        availability = 0.0 if unreached else min((choice.availability for choice in choices), default=0.0)
        receivers = tuple(peer for peer, choice in chosen if choice is not None)
        return Route(
            self._generation, branches, len(choices), unreached, hops_of(paths), availability, receivers
        )

    def _encode(self, tree: Tree, generation: int, copies: int) -> tuple[tuple[str, bytes], ...]:
        return encode_tree(tree, self._me, self._identity.epoch, generation, [self._me], copies)

    def _choose(self, destination: str, demand: Demand) -> Choice | None:
        asked = (destination, demand)
        current = self._chosen.get(asked)
        if asked in self._checked:
            return current
        self._checked.add(asked)
        best = self._best.get(destination, ())
        choice, cause = self._choosing.choose(destination, demand, current, best, self._may_improve)
        if cause:
            self._set(asked, choice, cause)
        return choice

    def _set(self, asked: Asked, choice: Choice | None, cause: str) -> None:
        destination, _ = asked
        if choice is None:
            del self._chosen[asked]
            change = PathChange(destination, (), (), 0.0, cause)
        else:
            self._chosen[asked] = choice
            while len(self._chosen) > self._config.cache_max:
                oldest = next(iter(self._chosen))
                del self._chosen[oldest]
                self._checked.discard(oldest)
            cost_s = path_cost(self.topology.graph(), choice.paths[0]) or 0.0
            change = PathChange(destination, choice.paths[0], choice.paths[1:], cost_s, cause)
            if cause in ("faster", "budget"):
                self.switches += 1
        self._changes.append(change)
        del self._changes[: -self._config.cache_max]
