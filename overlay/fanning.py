"""Paths that fan out around one end: over each of its links, where several of them are bad.

Pure functions of the graph. Which ends are beset, and for how long, is decided by `choosing`.
"""

from collections.abc import Callable

from anabranch.overlay.paths import Graph, Path, path_cost, shortest_paths

_Relays = Callable[[str], bool]


def around_target(graph: Graph, source: str, target: str, may_relay: _Relays) -> list[Path]:
    """The shortest path into the target over each of its neighbours, the cheapest first."""
    reached = shortest_paths(graph, source, lambda peer: peer != target and may_relay(peer))
    reached[source] = (source,)
    found = [
        (*path, target)
        for peer, path in reached.items()
        if peer != target and target in graph.get(peer, {}) and (peer == source or may_relay(peer))
    ]
    return _by_cost(graph, found)


def around_source(graph: Graph, source: str, target: str, may_relay: _Relays) -> list[Path]:
    """The shortest path to the target over each neighbour of the source, the cheapest first."""
    back: dict[str, dict[str, float]] = {}
    for here, links in graph.items():
        for there, cost in links.items():
            back.setdefault(there, {})[here] = cost
    reached = shortest_paths(back, target, lambda peer: peer != source and may_relay(peer))
    reached[target] = (target,)
    found = [
        (source, *reached[peer][::-1])
        for peer in graph.get(source, {})
        if peer in reached and (peer == target or may_relay(peer))
    ]
    return _by_cost(graph, found)


def _by_cost(graph: Graph, paths: list[Path]) -> list[Path]:
    return sorted(paths, key=lambda path: (path_cost(graph, path) or 0.0, len(path), path))
