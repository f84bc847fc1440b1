"""Several paths to one peer, against the exhaustive search of small graphs."""

import math
from collections.abc import Iterator
from itertools import combinations, pairwise, product
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.overlay.disjoint import (
    CANDIDATES_MAX,
    JOINT_PATHS_MAX,
    disjoint_pair,
    joint_availability,
    k_shortest_paths,
    paths_for_availability,
)
from anabranch.overlay.paths import Path, path_cost, shortest_paths

PEERS = "abcdefg"
Graph = dict[str, dict[str, float]]
HOPS = st.tuples(st.sampled_from(PEERS), st.sampled_from(PEERS)).filter(lambda pair: pair[0] != pair[1])
COSTS = st.integers(0, 6).map(lambda cost: cost / 4)
"""Quarters add up exactly, and ties are frequent."""


def graph_of(links: dict[tuple[str, str], float]) -> Graph:
    graph: Graph = {}
    for (here, there), cost in links.items():
        graph.setdefault(here, {})[there] = cost
    return graph


def two_way(links: dict[tuple[str, str], tuple[float, float]]) -> dict[tuple[str, str], float]:
    hops = {}
    for (here, there), (cost, back) in links.items():
        hops[here, there], hops[there, here] = cost, back
    return hops


ONE_WAY = st.dictionaries(HOPS, COSTS, max_size=24)
TWO_WAY = st.dictionaries(HOPS, st.tuples(COSTS, COSTS), min_size=4, max_size=14).map(two_way)
LINKS = st.one_of(TWO_WAY, ONE_WAY)
LEAVES = st.sets(st.sampled_from(PEERS), max_size=2)


def every_path(graph: Graph, path: Path, target: str, leaves: set[str]) -> Iterator[Path]:
    if path[-1] == target:
        yield path
    elif len(path) == 1 or path[-1] not in leaves:
        for peer in graph.get(path[-1], {}):
            if peer not in path:
                yield from every_path(graph, (*path, peer), target, leaves)


def rank(graph: Graph, path: Path) -> tuple[float, int, Path]:
    cost = path_cost(graph, path)
    assert cost is not None
    return cost, len(path), path[::-1]


def links_of(path: Path) -> set[tuple[str, ...]]:
    return {tuple(sorted(hop)) for hop in pairwise(path)}


def share_no_peer(one: Path, other: Path) -> bool:
    return not set(one[1:-1]) & set(other[1:-1])


def share_no_link(one: Path, other: Path) -> bool:
    return not links_of(one) & links_of(other)


@given(LINKS, LEAVES, st.integers(0, 40))
def test_the_k_shortest_paths_are_the_first_of_all_simple_paths(
    links: dict[tuple[str, str], float], leaves: set[str], k: int
) -> None:
    graph = graph_of(links)
    expected = sorted(every_path(graph, ("a",), "g", leaves), key=lambda path: rank(graph, path))[:k]
    found = k_shortest_paths(graph, "a", "g", lambda peer: peer not in leaves, k)
    assert found == expected
    if found:
        assert found[0] == shortest_paths(graph, "a", lambda peer: peer not in leaves)["g"]


@given(LINKS, LEAVES)
def test_no_disjoint_pair_is_cheaper_and_peers_are_shared_only_where_they_must(
    links: dict[tuple[str, str], float], leaves: set[str]
) -> None:
    graph = graph_of(links)
    paths = list(every_path(graph, ("a",), "g", leaves))
    found = disjoint_pair(graph, "a", "g", lambda peer: peer not in leaves)
    for apart in (share_no_peer, share_no_link):
        sums = [
            (rank(graph, one)[0] + rank(graph, other)[0], len(one) + len(other))
            for one, other in combinations(paths, 2)
            if apart(one, other)
        ]
        if sums:
            assert found is not None
            one, other = found
            assert one in paths
            assert other in paths
            assert apart(one, other)
            assert share_no_link(one, other)
            assert rank(graph, one)[:2] <= rank(graph, other)[:2]
            assert (rank(graph, one)[0] + rank(graph, other)[0], len(one) + len(other)) == min(sums)
            return
    assert found is None


@given(LINKS, st.randoms(use_true_random=False))
def test_the_choice_does_not_depend_on_the_order_of_the_graph(
    links: dict[tuple[str, str], float], rng: Random
) -> None:
    shuffled = list(links.items())
    rng.shuffle(shuffled)
    one, other = graph_of(links), graph_of(dict(shuffled))
    assert disjoint_pair(one, "a", "g", lambda _: True) == disjoint_pair(other, "a", "g", lambda _: True)
    assert k_shortest_paths(one, "a", "g", lambda _: True, 9) == k_shortest_paths(
        other, "a", "g", lambda _: True, 9
    )


def test_a_cheapest_path_that_blocks_every_other_is_given_up_for_the_pair() -> None:
    graph = graph_of(
        two_way(
            {
                ("a", "b"): (1, 1),
                ("b", "c"): (1, 1),
                ("c", "g"): (1, 1),
                ("a", "c"): (3, 3),
                ("b", "g"): (4, 4),
            }
        )
    )
    assert disjoint_pair(graph, "a", "g", lambda _: True) == (("a", "c", "g"), ("a", "b", "g"))


def test_where_all_ways_pass_one_peer_the_pair_shares_it_but_no_link() -> None:
    graph = {"a": {"b": 1.0, "c": 2.0}, "b": {"d": 1.0}, "c": {"d": 1.0}, "d": {"e": 1.0, "f": 2.0}}
    graph |= {"e": {"g": 1.0}, "f": {"g": 1.0}}
    assert disjoint_pair(graph, "a", "g", lambda _: True) == (
        ("a", "b", "d", "e", "g"),
        ("a", "c", "d", "f", "g"),
    )


def test_ends_that_are_the_same_or_unknown() -> None:
    graph = {"a": {"b": 1.0}, "b": {"a": 1.0}}
    assert k_shortest_paths(graph, "a", "a", lambda _: True, 3) == [("a",)]
    assert disjoint_pair(graph, "a", "a", lambda _: True) is None
    assert k_shortest_paths(graph, "a", "x", lambda _: True, 3) == []
    assert k_shortest_paths(graph, "x", "a", lambda _: True, 3) == []
    assert disjoint_pair(graph, "a", "x", lambda _: True) is None
    assert joint_availability([], lambda *_: 1.0) == 0.0
    assert joint_availability([("a",)], lambda *_: 0.5) == 1.0


SHARES = st.integers(0, 8).map(lambda eighths: eighths / 8)


@given(TWO_WAY, st.data())
def test_the_joint_availability_is_that_of_all_states_of_all_links(
    links: dict[tuple[str, str], float], data: st.DataObject
) -> None:
    graph = graph_of(links)
    paths = list(every_path(graph, ("a",), "g", set()))
    chosen = data.draw(st.lists(st.sampled_from(paths), max_size=4)) if paths else []
    up = {hop: data.draw(SHARES) for path in chosen for hop in pairwise(path)}
    worse = {tuple(sorted(hop)): 1.0 for hop in up}
    for hop, share in up.items():
        worse[tuple(sorted(hop))] = min(share, worse[tuple(sorted(hop))])
    expected = 0.0
    for states in product((True, False), repeat=len(worse)):
        alive = {link for link, is_up in zip(worse, states, strict=True) if is_up}
        if any(links_of(path) <= alive for path in chosen):
            expected += math.prod(
                share if is_up else 1 - share for share, is_up in zip(worse.values(), states, strict=True)
            )
    found = joint_availability(chosen, lambda here, there: up[here, there])
    assert found == pytest.approx(expected, abs=1e-9)


def test_more_paths_than_the_effort_allows_are_our_own_mistake() -> None:
    with pytest.raises(AssertionError):
        joint_availability([("a", "b")] * (JOINT_PATHS_MAX + 1), lambda *_: 1.0)


@given(
    TWO_WAY,
    st.fixed_dictionaries(dict.fromkeys(PEERS, SHARES)),
    st.sampled_from([0.3, 0.9, 0.99, 1.0]),
    st.integers(1, 4),
    st.none() | COSTS,
)
def test_what_is_chosen_keeps_its_limits_and_more_is_taken_only_when_needed(
    links: dict[tuple[str, str], float],
    shares: dict[str, float],
    wanted: float,
    paths_max: int,
    cost_max: float | None,
) -> None:
    graph = graph_of(links)

    def availability(here: str, there: str) -> float:
        return min(shares[here], shares[there]) / 4 + 0.75

    everything = [
        path
        for path in every_path(graph, ("a",), "g", set())
        if cost_max is None or rank(graph, path)[0] <= cost_max
    ]
    everything.sort(key=lambda path: rank(graph, path))
    paths, reached = paths_for_availability(
        graph, "a", "g", lambda _: True, availability, wanted, paths_max, cost_max
    )
    assert paths == sorted(set(paths), key=lambda path: rank(graph, path))
    assert set(paths) <= set(everything)
    assert bool(paths) == bool(everything)
    assert len(paths) <= paths_max
    assert reached == pytest.approx(joint_availability(paths, availability))
    if not paths:
        return
    alone = [joint_availability([path], availability) for path in everything[:CANDIDATES_MAX]]
    if reached >= wanted:
        assert (len(paths) == 1) == (max(alone) >= wanted)
    else:
        assert reached >= max(alone) - 1e-9
        pair = disjoint_pair(graph, "a", "g", lambda _: True)
        if paths_max > 1 and pair and set(pair) <= set(everything):
            assert reached >= joint_availability(pair, availability) - 1e-9


def test_a_second_path_is_added_for_availability_and_left_out_when_it_would_be_late() -> None:
    graph = {"a": {"b": 0.01, "c": 0.05}, "b": {"g": 0.01, "c": 0.01}, "c": {"g": 0.05}}
    fast, slow = ("a", "b", "g"), ("a", "c", "g")

    def choose(wanted: float, cost_max: float | None = None) -> tuple[list[Path], float]:
        return paths_for_availability(graph, "a", "g", lambda _: True, lambda *_: 0.9, wanted, 3, cost_max)

    assert choose(0.8) == ([fast], pytest.approx(0.81))
    assert choose(0.95) == ([fast, slow], pytest.approx(1 - 0.19**2))
    assert choose(0.95, cost_max=0.1) == ([fast, slow], pytest.approx(1 - 0.19**2))
    assert choose(0.95, cost_max=0.06) == ([fast], pytest.approx(0.81))
    assert choose(0.95, cost_max=0.01) == ([], 0.0)
