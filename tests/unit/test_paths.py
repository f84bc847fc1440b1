"""Shortest paths, against the exhaustive search of small graphs."""

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from anabranch.overlay.paths import path_cost, shortest_paths

PEERS = "abcdef"
LINKS = st.dictionaries(
    st.tuples(st.sampled_from(PEERS), st.sampled_from(PEERS)).filter(lambda pair: pair[0] != pair[1]),
    st.integers(0, 4).map(lambda cost: cost / 4),  # quarters add up exactly, and ties are frequent
    max_size=18,
)
Graph = dict[str, dict[str, float]]


def graph_of(links: dict[tuple[str, str], float]) -> Graph:
    graph: Graph = {}
    for (here, there), cost in links.items():
        graph.setdefault(here, {})[there] = cost
    return graph


def every_path(graph: Graph, path: tuple[str, ...], leaves: set[str]) -> Iterator[tuple[str, ...]]:
    yield path
    if len(path) > 1 and path[-1] in leaves:
        return
    for peer in graph.get(path[-1], {}):
        if peer not in path:
            yield from every_path(graph, (*path, peer), leaves)


@given(LINKS, st.sets(st.sampled_from(PEERS), max_size=3))
def test_no_simple_path_is_better_and_every_reachable_peer_is_found(
    links: dict[tuple[str, str], float], leaves: set[str]
) -> None:
    graph = graph_of(links)
    best: dict[str, tuple[float, int]] = {}
    for path in every_path(graph, ("a",), leaves):
        cost = path_cost(graph, path)
        assert cost is not None
        best[path[-1]] = min(best.get(path[-1], (9e9, 0)), (cost, len(path)))
    found = shortest_paths(graph, "a", lambda peer: peer not in leaves)
    assert {peer: (path_cost(graph, path), len(path)) for peer, path in found.items()} == best
    for peer, path in found.items():
        assert (path[0], path[-1]) == ("a", peer)
        assert not set(path[1:-1]) & leaves


@given(LINKS, st.randoms(use_true_random=False))
def test_the_choice_does_not_depend_on_the_order_of_the_graph(
    links: dict[tuple[str, str], float], rng
) -> None:  # type: ignore[no-untyped-def]
    shuffled = list(links.items())
    rng.shuffle(shuffled)
    assert shortest_paths(graph_of(links), "a", lambda _: True) == shortest_paths(
        graph_of(dict(shuffled)), "a", lambda _: True
    )


def test_equal_costs_are_decided_by_fewer_hops_then_by_name() -> None:
    graph = {"a": {"b": 1.0, "c": 1.0, "d": 2.0}, "c": {"d": 1.0, "e": 1.0}, "b": {"d": 1.0, "e": 1.0}}
    found = shortest_paths(graph, "a", lambda _: True)
    assert found["d"] == ("a", "d")
    assert found["e"] == ("a", "b", "e")


def test_a_light_client_is_reached_and_may_itself_send_but_is_never_passed() -> None:
    graph = {"a": {"leaf": 1.0, "b": 9.0}, "leaf": {"b": 1.0}, "b": {}}
    assert shortest_paths(graph, "a", lambda peer: peer != "leaf")["b"] == ("a", "b")
    assert shortest_paths(graph, "leaf", lambda peer: peer != "leaf")["b"] == ("leaf", "b")


def test_a_peer_alone_reaches_itself() -> None:
    assert shortest_paths({}, "a", lambda _: True) == {"a": ("a",)}


def test_a_path_with_a_missing_link_has_no_cost() -> None:
    graph = {"a": {"b": 1.0}, "b": {"c": 2.0}}
    assert path_cost(graph, ("a", "b", "c")) == 3.0
    assert path_cost(graph, ("a", "c")) is None
    assert path_cost(graph, ("a", "b", "c", "a")) is None
    assert path_cost(graph, ("a",)) == 0.0
