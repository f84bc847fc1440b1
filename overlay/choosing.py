"""Which paths serve a receiver, by variant and by what its publisher asks for. Called by `routes`."""

from itertools import combinations, pairwise
from math import inf

import msgspec

from anabranch.overlay.alternatives import Alternatives
from anabranch.overlay.config import Config
from anabranch.overlay.disjoint import (
    JOINT_PATHS_MAX,
    disjoint_pair,
    joint_availability,
    k_shortest_paths,
    paths_for_availability,
)
from anabranch.overlay.estimators import LOSES_MOST, LOSSY, answer_due_s, loss_level
from anabranch.overlay.paths import Graph, Hop, Path, link_of, path_cost
from anabranch.overlay.profiles import Beliefs
from anabranch.overlay.qos import Demand, Variant
from anabranch.overlay.topology import Topology

SWITCH_LEAST_S = 0.001
"""A gain below a millisecond never moves a path: on one machine delays are all noise."""
CANDIDATES = 8
"""Shortest paths looked at when no two disjoint ones keep the deadline."""
AVAILABILITY_BELIEVED = 0.999
"""A link that has not failed yet is taken for no better than this: so disjoint paths are worth something."""
BESET_LINKS = 2
"""An end with so many bad links is beset: `adaptive` then sends copies over each of its links."""
SLACK_ENTER, SLACK_CLEAR = 0.10, 0.20
"""`adaptive` sends copies where this share of the deadline is all that is left, until that much is."""


class Choice(msgspec.Struct, frozen=True):
    """The paths to one receiver. Each message takes all of them."""

    paths: tuple[Path, ...]
    """The first is the one that is judged; the others carry copies."""
    budgets: tuple[tuple[Hop, float], ...]
    """What each link of the first path may take before the deadline is in danger (Harmony, section 2.2)."""
    availability: float
    """Estimated share of time in which at least one of the paths works."""
    is_troubled: bool = False
    """Copies travel because the first path is in trouble."""
    is_fanned: bool = False
    """They fan out around an end of which several links are bad."""


class Choosing:
    """Decides about one receiver at a time, from the topology as it is now."""

    def __init__(self, me: str, config: Config, topology: Topology) -> None:
        self._me = me
        self._variant = config.variant
        self._threshold = config.switch_threshold
        self._paths_max = config.paths_max
        self._ack_delay_s = config.ack_delay_s if config.recovery else inf
        self._topology = topology
        self._ways: tuple[Graph, Alternatives] | None = None
        self.beliefs = Beliefs()
        """What a profile says about links."""
        self.quiet: frozenset[str] = frozenset()
        """Neighbours that are silent for longer than they should be, but not long enough to be avoided."""

    def choose(
        self, destination: str, demand: Demand, current: Choice | None, best: Path, may_improve: bool
    ) -> tuple[Choice | None, str]:
        """The choice for a receiver and why it changed; no cause when it stays as it is.

        `best` is the shortest path, empty when there is none; `may_improve` whether a working path may be
        left for a faster one.
        """
        variant = self._variant_of(demand)
        if variant is Variant.DP:
            is_linked = destination in self._topology.graph().get(self._me, {})
            best = (self._me, destination) if is_linked else ()
        if not best:
            return None, "unreachable" if current is not None else ""
        first, cause = self._first(demand, current, best, may_improve)
        if variant is Variant.DP:
            paths: tuple[Path, ...] = (first,)
        elif demand.availability > 0:
            paths = self._enough(destination, demand, current, first, cause)
        elif variant is Variant.BP_QOS_MP:
            paths = self._pair(destination, demand, current, first, cause)
        else:
            return self._adapt(demand, current, first, cause)
        if current is not None and paths == current.paths:
            return current, ""
        return self._chosen(paths, demand), cause or "copies"

    def _variant_of(self, demand: Demand) -> Variant:
        return demand.variant or self._variant

    def _first(
        self, demand: Demand, current: Choice | None, best: Path, may_improve: bool
    ) -> tuple[Path, str]:
        if current is None:
            return best, "new"
        graph = self._topology.graph()
        path = current.paths[0]
        cost = path_cost(graph, path)
        if cost is None:
            copies = [copy for copy in current.paths[1:] if path_cost(graph, copy) is not None]
            alive = [copy for copy in copies if not self._is_dead(copy)]
            return (alive[0] if alive and self._is_steady(demand, alive[0], best) else best), "broken"
        best_cost = path_cost(graph, best)
        assert best_cost is not None
        gain = cost - best_cost
        if best == path or gain < SWITCH_LEAST_S:
            return path, ""
        if self._variant_of(demand).has_budgets:
            if self._is_bad(best, LOSSY):
                return path, ""  # its delay is news of the past
            if _is_violated(graph, current, demand, cost):
                return best, "budget"
        if may_improve and gain >= self._threshold * cost:
            return best, "faster"
        return path, ""

    def _is_steady(self, demand: Demand, path: Path, best: Path) -> bool:
        """Whether a copy's path, which carries the messages already, is good enough to go on with."""
        graph = self._topology.graph()
        cost, best_cost = path_cost(graph, path), path_cost(graph, best)
        if cost is None or best_cost is None or 0 < demand.deadline_s < cost:
            return False
        return cost - best_cost < max(SWITCH_LEAST_S, self._threshold * cost)

    def _adapt(
        self, demand: Demand, current: Choice | None, first: Path, cause: str
    ) -> tuple[Choice | None, str]:
        """One path; a second one beside it while it is in trouble, for the adaptive variant."""
        was = current if current is not None and current.is_troubled and current.paths[0] == first else None
        is_adaptive = self._variant_of(demand) is Variant.ADAPTIVE
        is_troubled = is_adaptive and self._is_in_trouble(first, demand, was is not None)
        level = self._bad_level(first, demand) - (was is not None and was.is_fanned)
        beset = tuple(self._is_beset(end, level) for end in (first[0], first[-1])) if is_troubled else ()
        is_fanned = any(beset)
        is_as_it_was = is_troubled == (was is not None) and is_fanned == (was is not None and was.is_fanned)
        if current is not None and not cause and is_as_it_was:
            alive = [path_cost(self._topology.graph(), path) is not None for path in current.paths]
            alive += [not self._is_dead(path) for path in current.paths[1:]]
            if (all(alive) and len(alive) > 1) or not is_troubled:
                return current, ""
        paths: tuple[Path, ...] = (first,)
        if is_troubled and (beside := self._beside(first)):
            paths = (first, beside)
        if is_fanned:
            paths = self._fanned(paths, demand, *beset)
        if current is not None and paths == current.paths and is_as_it_was:
            return current, ""
        cause = cause or ("fanned" if is_fanned else "trouble" if is_troubled else "healthy")
        return self._chosen(paths, demand, is_troubled, is_fanned), cause

    def _is_beset(self, end: str, level: int) -> bool:
        """Whether several links of a peer are bad, in whatever direction."""
        announced = self._topology.announced
        bad = 0
        for neighbour, edge in announced(end).items():
            back = announced(neighbour).get(end)
            is_bad = loss_level(edge.loss) >= level or (back is not None and loss_level(back.loss) >= level)
            bad += is_bad or (end == self._me and neighbour in self.quiet)
        return bad >= BESET_LINKS

    def _fanned(
        self, paths: tuple[Path, ...], demand: Demand, at_source: bool, at_target: bool
    ) -> tuple[Path, ...]:
        """These paths, and those over further links of the ends that are beset: sound ones first.

        Those that take too long only where none in time is alive; dead ones last.
        """
        graph, alternatives, target = self._topology.graph(), self._alternatives(), paths[0][-1]
        more: list[Path] = []
        if at_source:
            more += alternatives.around_source(target)
        if at_target:
            more += alternatives.around_target(target)
        limit = demand.deadline_s or float("inf")
        timely = [path for path in more if (path_cost(graph, path) or 0.0) <= limit]
        if any(not self._is_dead(path) for path in timely):
            more = timely
        more.sort(key=lambda path: (self._is_dead(path), self._is_bad(path, LOSSY)))
        return tuple(dict.fromkeys((*paths, *more)))[: min(self._paths_max, JOINT_PATHS_MAX)]

    def _is_in_trouble(self, path: Path, demand: Demand, was: bool) -> bool:
        if self._is_bad(path, self._bad_level(path, demand) - was):
            return True
        cost = path_cost(self._topology.graph(), path)
        slack = SLACK_CLEAR if was else SLACK_ENTER
        return (
            bool(demand.deadline_s)
            and cost is not None
            and demand.deadline_s - cost < slack * demand.deadline_s
        )

    def _bad_level(self, path: Path, demand: Demand) -> int:
        """From which loss on a link of this path is bad: where what it loses is there in time when it is sent
        again, only one that loses most."""
        if not demand.deadline_s:
            return LOSES_MOST if self._ack_delay_s < inf else LOSSY
        cost = path_cost(self._topology.graph(), path) or 0.0
        edges = [self._topology.announced(here).get(there) for here, there in pairwise(path)]
        repair_s = max(
            (
                answer_due_s(self._ack_delay_s, edge.delay_s, edge.jitter_s) + edge.delay_s
                for edge in edges
                if edge is not None
            ),
            default=inf,
        )
        return LOSES_MOST if cost + repair_s <= demand.deadline_s else LOSSY

    def _is_bad(self, path: Path, level: int) -> bool:
        """Whether its first link is silent, or any loses so much."""
        if path[1] in self.quiet:
            return True
        announced = self._topology.announced
        for here, there in pairwise(path):
            edge = announced(here).get(there)
            if edge is not None and loss_level(edge.loss) >= level:
                return True
        return False

    def _is_dead(self, path: Path) -> bool:
        """Whether hardly anything comes through, as far as is known here."""
        dead = self._topology.dead_links()
        return path[1] in self.quiet or any(link_of(*hop) in dead for hop in pairwise(path))

    def _beside(self, path: Path) -> Path:
        """The shortest path that shares no peer, or else no link, with this one; empty when there is none.

        One that may fail of the same cause, by a profile, comes after all others, and a dead one after those.
        """
        used = frozenset(link_of(*hop) for hop in pairwise(path))
        mates = self.beliefs.mates(path)
        dead = self._topology.dead_links() | {link_of(self._me, peer) for peer in self.quiet}
        for links in dict.fromkeys((used | mates | dead, used | dead, used | mates, used)):
            for peers in (path[1:-1], ()):
                if found := self._alternatives().clear_of(path[-1], links, peers):
                    return found
        return ()

    def _alternatives(self) -> Alternatives:
        """The other ways in the graph as it is now."""
        graph = self._topology.graph()
        if self._ways is None or self._ways[0] is not graph:
            self._ways = graph, Alternatives(graph, self._me, self._topology.may_relay)
        return self._ways[1]

    def _pair(
        self, destination: str, demand: Demand, current: Choice | None, first: Path, cause: str
    ) -> tuple[Path, ...]:
        """Two paths that are likeliest to have one alive, within the deadline where that can be."""
        graph = self._topology.graph()
        if current is not None and not cause and len(current.paths) > 1:
            costs = [path_cost(graph, path) for path in current.paths]
            if all(cost is not None and not 0 < demand.deadline_s < cost for cost in costs):
                return current.paths
        pair = disjoint_pair(graph, self._me, destination, self._topology.may_relay)
        limit = demand.deadline_s or float("inf")
        if pair is not None and self.beliefs.share_fate(*pair):
            apart = [(first, other) for other in self._aside(first) if path_cost(graph, other) is not None]
            kept = [couple for couple in apart if (path_cost(graph, couple[1]) or 0.0) <= limit]
            pair = max((pair, *kept), key=self._joint)
        if pair is not None and all((path_cost(graph, path) or 0.0) <= limit for path in pair):
            return pair
        near = k_shortest_paths(graph, self._me, destination, self._topology.may_relay, CANDIDATES)
        timely = [path for path in near if (path_cost(graph, path) or 0.0) <= limit]
        couples = list(combinations(timely, 2))
        if couples:
            return max(couples, key=self._joint)
        if pair is None:
            return (first,)
        others = sorted(
            (path for path in pair if path != first), key=lambda path: path_cost(graph, path) or 0.0
        )
        return (first, *others[:1])

    def _enough(
        self, destination: str, demand: Demand, current: Choice | None, first: Path, cause: str
    ) -> tuple[Path, ...]:
        """As many paths as the demanded availability needs."""
        graph = self._topology.graph()
        if (
            current is not None
            and not cause
            and all(path_cost(graph, path) is not None for path in current.paths)
        ):
            reached = self._joint(current.paths)
            if reached >= demand.availability:
                return current.paths
        paths, _ = paths_for_availability(
            graph,
            self._me,
            destination,
            self._topology.may_relay,
            self._availability,
            demand.availability,
            self._paths_max,
            demand.deadline_s or None,
            self.beliefs.risks,
            self._aside(first),
        )
        return tuple(paths) or (first,)

    def _aside(self, path: Path) -> list[Path]:
        """The shortest paths that don't share the fate of this one, and that are in no group at all."""
        found: list[Path] = []
        if self.beliefs.risks:
            for links in (self.beliefs.mates(path), self.beliefs.suspects()):
                for peers in (path[1:-1], ()):
                    way = self._alternatives().clear_of(path[-1], links, peers)
                    if way and way != path and way not in found:
                        found.append(way)
        return found

    def _chosen(
        self,
        paths: tuple[Path, ...],
        demand: Demand,
        is_troubled: bool = False,
        is_fanned: bool = False,
    ) -> Choice:
        graph = self._topology.graph()
        budgets: tuple[tuple[Hop, float], ...] = ()
        if demand.deadline_s and self._variant_of(demand).has_budgets:
            hops = list(pairwise(paths[0]))
            costs = [graph[here][there] for here, there in hops]
            share = (demand.deadline_s - sum(costs)) / len(hops)
            budgets = tuple((hop, cost + share) for hop, cost in zip(hops, costs, strict=True))
        return Choice(paths, budgets, self._joint(paths), is_troubled, is_fanned)

    def _joint(self, paths: tuple[Path, ...]) -> float:
        return joint_availability(paths, self._availability, self.beliefs.risks)

    def _availability(self, here: str, there: str) -> float:
        edge = self._topology.announced(here).get(there)
        if edge is None:
            return 0.0
        alone = self.beliefs.alone(here, there)
        return min(edge.availability, AVAILABILITY_BELIEVED if alone is None else alone)


def _is_violated(graph: Graph, choice: Choice, demand: Demand, cost: float) -> bool:
    """Whether a link of the first path takes more than its share of the deadline allows."""
    if not demand.deadline_s:
        return False
    if cost > demand.deadline_s:
        return True
    return any(graph.get(here, {}).get(there, 0.0) > budget for (here, there), budget in choice.budgets)
