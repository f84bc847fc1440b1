"""Several paths to one peer: the next best ones, pairs that share nothing, and how likely one of them is up.

Functions of the graph they are given, as in `paths.py`. Costs are compared in whole nanoseconds, so that
equal costs are equal however they were added up: ties are decided by fewer hops, then by names.
"""

import heapq
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import islice, pairwise, starmap

import msgspec

from anabranch.overlay.paths import HOP_STEPS, Graph, Hop, Path, link_of, shortest_paths, weight_of

JOINT_PATHS_MAX = 8
"""The effort for a joint availability doubles with each path."""
CANDIDATES_MAX = 8
"""Shortest paths that `paths_for_availability` looks at."""

_LEAST_GAIN = 1e-12

Risks = dict[Hop, tuple[tuple[Hop, float], ...]]
"""By link (names in order): what it shares with other links, by a name that is no link's, and how available
that is."""

_NONE: Risks = {}
_Relays = Callable[[str], bool]
_Availability = Callable[[str, str], float]


def k_shortest_paths(graph: Graph, source: str, target: str, may_relay: _Relays, k: int) -> list[Path]:
    """Up to k paths without loops, the cheapest first (Yen, with Lawler's rule against repeated work).

    The first is the one that `shortest_paths` finds.
    """
    guide = _guide(graph, source, target, may_relay)
    return [] if guide is None else list(islice(_ascending(graph, source, may_relay, guide), k))


def disjoint_pair(graph: Graph, source: str, target: str, may_relay: _Relays) -> tuple[Path, Path] | None:
    """The pair with the least sum of costs that shares no peer but the ends; the cheaper path is the first.

    Where there is none, the cheapest pair that shares no link, in whatever direction; None where there is
    none either.
    """
    guide = _guide(graph, source, target, may_relay)
    return None if guide is None else _pair(graph, source, may_relay, guide)


def joint_availability(
    paths: Sequence[Path],
    availability: _Availability,
    risks: Mapping[Hop, Sequence[tuple[Hop, float]]] = _NONE,
) -> float:
    """The probability that at least one of at most eight paths is wholly up; 0 for no path.

    Links fail independently and as a whole: one that several paths use counts once, and where they use it in
    both directions, as the worse of the two. What links share, by `risks`, counts once for all of them.
    """
    assert len(paths) <= JOINT_PATHS_MAX
    links: dict[Hop, float] = {}
    for path in paths:
        for here, there in pairwise(path):
            link = link_of(here, there)
            links[link] = min(availability(here, there), links.get(link, 1.0))
            links.update(risks.get(link, ()))
    links_of = [
        frozenset(
            each
            for link in starmap(link_of, pairwise(path))
            for each in (link, *map(_name, risks.get(link, ())))
        )
        for path in paths
    ]

    def all_up_at_least_once(index: int, used: frozenset[Hop], product: float) -> float:
        """Inclusion and exclusion over the sets that extend `used` by paths from the index on."""
        total = 0.0
        for later in range(index, len(links_of)):
            up = product
            for link in links_of[later] - used:
                up *= links[link]
            total += up - all_up_at_least_once(later + 1, used | links_of[later], up)
        return total

    return min(1.0, max(0.0, all_up_at_least_once(0, frozenset(), 1.0)))


def paths_for_availability(
    graph: Graph,
    source: str,
    target: str,
    may_relay: _Relays,
    availability: _Availability,
    target_availability: float,
    paths_max: int,
    cost_max: float | None,
    risks: Mapping[Hop, Sequence[tuple[Hop, float]]] = _NONE,
    further: Sequence[Path] = (),
) -> tuple[list[Path], float]:
    """As many paths as the wanted availability needs, the cheapest first, and the availability they give.

    That may be less than was wanted: the caller has to look. No path costs more than `cost_max` seconds.
    Greedy among the shortest paths, the disjoint pair and the `further` ones; the cheapest path alone where
    it is enough.
    """
    paths_max = min(paths_max, JOINT_PATHS_MAX)
    guide = _guide(graph, source, target, may_relay)
    if guide is None or paths_max < 1:
        return [], 0.0
    most = None if cost_max is None else _nanoseconds(cost_max) * HOP_STEPS + HOP_STEPS - 1
    walks = _ascending(graph, source, may_relay, guide, most)
    candidates = list(islice(walks, 1))
    joint = joint_availability(candidates, availability, risks)
    if not candidates or joint >= target_availability:
        return candidates, joint
    candidates += islice(walks, CANDIDATES_MAX - 1)
    pair: list[Path] = []
    if paths_max > 1:
        pair = list(_pair(graph, source, may_relay, guide) or ())
        if most is not None:
            pair = [path for path in pair if _weight_of(graph, path) <= most]
    for path in (*pair, *further):
        if path not in candidates and (most is None or _weight_of(graph, path) <= most):
            candidates.append(path)
    starts = [[], pair] if len(pair) > 1 else [[]]
    if further and risks:
        starts.append(candidates[:1])
    results = [
        _extended(start, candidates, availability, target_availability, paths_max, risks) for start in starts
    ]

    def merit(result: tuple[list[Path], float]) -> tuple[bool, float, int]:
        paths, joint = result
        enough = joint >= target_availability
        return not enough, len(paths) if enough else -joint, sum(_weight_of(graph, path) for path in paths)

    paths, joint = min(results, key=merit)
    return sorted(paths, key=lambda path: (_weight_of(graph, path), path[::-1])), joint


def _extended(
    start: list[Path],
    candidates: list[Path],
    availability: _Availability,
    target_availability: float,
    paths_max: int,
    risks: Mapping[Hop, Sequence[tuple[Hop, float]]],
) -> tuple[list[Path], float]:
    """The start and the candidates that add most, until they are enough, or none adds anything.

    Where several candidates would be enough, the first of them is taken.
    """
    chosen, joint = list(start), joint_availability(start, availability, risks)
    while joint < target_availability and len(chosen) < paths_max:
        best: Path | None = None
        best_joint = joint + _LEAST_GAIN
        for path in candidates:
            if path in chosen:
                continue
            with_it = joint_availability([*chosen, path], availability, risks)
            if with_it > best_joint:
                best, best_joint = path, with_it
                if with_it >= target_availability:
                    break
        if best is None:
            break
        chosen.append(best)
        joint = best_joint
    return chosen, joint


class _Guide(msgspec.Struct, frozen=True):
    """What is left to the target, from everywhere near enough to matter; steers the searches towards it."""

    target: str
    left: dict[str, int]
    """Weight to the target. Peers not in here are at least as far as the source."""
    whole: int
    """The source's own."""
    gates: frozenset[str]
    """Peers from which a last hop leads to the target."""


def _guide(graph: Graph, source: str, target: str, may_relay: _Relays) -> _Guide | None:
    """Dijkstra backwards from the target, as far as the source; None when it is not reached."""
    back: dict[str, list[Hop]] = {}
    for here, links in graph.items():
        for there in links:
            if there in back:
                back[there].append((here, there))
            else:
                back[there] = [(here, there)]
    left: dict[str, int] = {}
    heap = [(0, target)]
    while heap:
        weight, peer = heapq.heappop(heap)
        if peer in left:
            continue
        left[peer] = weight
        if peer == source:
            gates = (here for here, _ in back.get(target, ()))
            usable = frozenset(gate for gate in gates if gate == source or may_relay(gate))
            return _Guide(target, left, weight, usable)
        if peer != target and not may_relay(peer):
            continue
        for here, there in back.get(peer, ()):
            if here not in left:
                heapq.heappush(heap, (weight + weight_of(graph[here][there]), here))
    return None


def _ascending(
    graph: Graph, source: str, may_relay: _Relays, guide: _Guide, most: int | None = None
) -> Iterator[Path]:
    """Every path without loops up to a weight, the cheapest first; each is searched for when asked for."""
    taken: dict[Path, set[str]] = {}
    """The next peers of the paths told so far, by what comes before them."""
    heap: list[tuple[int, Path, Path, int]] = []

    def deviate(start: Path, weight: int, at: int) -> None:
        rest = _cheapest(graph, start, weight, taken.get(start, ()), may_relay, guide, most)
        if rest is not None:
            path = start[:-1] + rest
            heapq.heappush(heap, (_weight_of(graph, path), path[::-1], path, at))

    deviate((source,), 0, 0)
    while heap:
        _, _, path, deviated_at = heapq.heappop(heap)
        yield path
        weight = 0
        for at, (here, there) in enumerate(pairwise(path)):
            if at >= deviated_at:
                taken.setdefault(path[: at + 1], set()).add(there)
                deviate(path[: at + 1], weight, at)
            weight += weight_of(graph[here][there])


def _cheapest(
    graph: Graph,
    start: Path,
    weight: int,
    taken: Collection[str],
    may_relay: _Relays,
    guide: _Guide,
    most: int | None,
) -> Path | None:
    """The cheapest way on from the end of `start`, not by a next peer that is taken, nor back to the start.

    Dijkstra on what a path weighs so far and at least to the target, which looks at few peers besides those
    of the path itself.
    """
    target, left, whole = guide.target, guide.left, guide.whole
    first = start[-1]
    closed = set(start[:-1])
    if first == target:
        return (first,)
    if not any(gate not in closed and (gate != first or target not in taken) for gate in guide.gates):
        return None
    parents: dict[str, str] = {}
    heap = [(weight + left.get(first, whole), weight, first, "")]
    while heap:
        total, weight, peer, parent = heapq.heappop(heap)
        if most is not None and total > most:
            return None
        if peer in parents:
            continue
        parents[peer] = parent
        if peer == target:
            return _traced(parents, target)
        if parent and not may_relay(peer):
            continue
        for neighbour, cost in graph.get(peer, {}).items():
            if neighbour in parents or neighbour in closed or (peer == first and neighbour in taken):
                continue
            further = weight + weight_of(cost)
            heapq.heappush(heap, (further + left.get(neighbour, whole), further, neighbour, peer))
    return None


def _traced(parents: Mapping[str, str], target: str) -> Path:
    path = [target]
    while parents[path[-1]]:
        path.append(parents[path[-1]])
    return tuple(reversed(path))


def _pair(graph: Graph, source: str, may_relay: _Relays, guide: _Guide) -> tuple[Path, Path] | None:
    target = guide.target
    if source == target or len(guide.gates) < 2 or len(graph.get(source, ())) < 2:
        return None
    first = next(_ascending(graph, source, may_relay, guide))
    for share_peers in (False, True):
        hops = _augmenting(graph, first, may_relay, guide, share_peers)
        if hops is not None:
            return _untangled(graph, first, hops)
    return None


def _augmenting(
    graph: Graph, first: Path, may_relay: _Relays, guide: _Guide, share_peers: bool
) -> list[Hop] | None:
    """The cheapest second way, which may undo hops of the first path (Suurballe; Bhandari's split peers).

    Weights are reduced by what is left to the target: none is negative then, and undoing a hop costs nothing.
    A peer of the first path, unless it may be shared, is two: `(peer, False)`, where the second way arrives
    and can only undo the hop that leads there, and `(peer, True)`, where it may leave.
    """
    target, left, whole = guide.target, guide.left, guide.whole
    source = first[0]
    before = {there: here for here, there in pairwise(first)}
    split = frozenset() if share_peers else frozenset(first[1:-1])
    parents: dict[tuple[str, bool], tuple[str, bool]] = {}
    nowhere = ("", True)
    heap = [(0, 0, (source, True), nowhere)]
    while heap:
        weight, steps, place, parent = heapq.heappop(heap)
        if place in parents:
            continue
        parents[place] = parent
        peer, leaves = place
        if peer == target:
            return _hops_to(parents, place)
        if peer in before and (share_peers or not leaves):
            heapq.heappush(heap, (weight, steps + 1, (before[peer], True), place))
        if not leaves:
            continue
        if peer in split:
            heapq.heappush(heap, (weight, steps + 1, (peer, False), place))
        if peer != source and not may_relay(peer):
            continue
        here_left = left.get(peer, whole)
        for neighbour, cost in graph.get(peer, {}).items():
            if before.get(neighbour) == peer or before.get(peer) == neighbour or neighbour == source:
                continue
            there = (neighbour, neighbour not in split)
            if there not in parents:
                further = weight + weight_of(cost) + left.get(neighbour, whole) - here_left
                heapq.heappush(heap, (further, steps + 1, there, place))
    return None


def _hops_to(parents: Mapping[tuple[str, bool], tuple[str, bool]], place: tuple[str, bool]) -> list[Hop]:
    hops = []
    while parents[place][0]:
        parent = parents[place]
        if parent[0] != place[0]:
            hops.append((parent[0], place[0]))
        place = parent
    return hops


def _untangled(graph: Graph, first: Path, hops: list[Hop]) -> tuple[Path, Path]:
    """Two paths out of the first path and the way that undoes some of its hops.

    Where they meet at a peer, the first of the two goes on as is cheapest.
    """
    joined = dict.fromkeys(pairwise(first))
    for here, there in hops:
        if (there, here) in joined:
            del joined[there, here]
        else:
            joined[here, there] = None
    both: dict[str, dict[str, float]] = {}
    for here, there in joined:
        both.setdefault(here, {})[there] = graph[here][there]
    cheaper = shortest_paths(both, first[0], lambda _: True)[first[-1]]
    for here, there in pairwise(cheaper):
        del both[here][there]
    other = [first[0]]
    while other[-1] != first[-1]:
        other.append(next(iter(both[other[-1]])))
    return cheaper, tuple(other)


def _name(risk: tuple[Hop, float]) -> Hop:
    return risk[0]


def _nanoseconds(cost: float) -> int:
    return int(cost * 1e9 + 0.5) if cost > 0 else 0


def _weight_of(graph: Graph, path: Path) -> int:
    return sum(weight_of(graph[here][there]) for here, there in pairwise(path))
