"""Searches that share their work find what plain searches find."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from anabranch.overlay.alternatives import FAN_MAX, Alternatives
from anabranch.overlay.paths import Path, link_of, path_cost, shortest_paths

PEERS = "abcdefg"
HOPS = st.tuples(st.sampled_from(PEERS), st.sampled_from(PEERS)).filter(lambda hop: hop[0] != hop[1])
GRAPHS = st.dictionaries(HOPS, st.integers(0, 50), max_size=25).map(
    lambda hops: {a: {b: hops[a, b] / 1000 for b in PEERS if (a, b) in hops} for a in PEERS}
)


@given(
    GRAPHS,
    st.sets(HOPS.map(lambda hop: link_of(*hop))),
    st.sets(st.sampled_from(PEERS[1:-1])),
    st.sets(st.sampled_from(PEERS)),
)
def test_the_path_that_stays_clear_is_the_shortest_of_what_is_left(
    graph: dict[str, dict[str, float]], links: set[tuple[str, str]], peers: set[str], silent: set[str]
) -> None:
    left = {
        here: {
            there: cost
            for there, cost in row.items()
            if there not in peers and link_of(here, there) not in links
        }
        for here, row in graph.items()
        if here not in peers
    }
    alternatives = Alternatives(graph, "a", lambda peer: peer not in silent)
    for target in PEERS[1:]:
        if target in peers:
            continue
        wanted = shortest_paths(left, "a", lambda peer: peer not in silent).get(target, ())
        found = alternatives.clear_of(target, links, peers)
        assert _merit(left, found) == _merit(left, wanted)
        assert len(set(found)) == len(found)
        assert not silent.intersection(found[1:-1])


def _merit(graph: dict[str, dict[str, float]], path: Path) -> tuple[int, int]:
    cost = path_cost(graph, path)
    assert cost is not None, "every hop of it is there"
    return round(cost * 1e9), len(path)


def test_of_very_many_links_the_shortest_are_fanned_over_and_the_direct_one() -> None:
    others = [f"n{number:03}" for number in range(100)]
    graph: dict[str, dict[str, float]] = {"s": {"t": 1.0}, "t": {}}
    for number, name in enumerate(others):
        graph["s"][name] = (1 + number) / 1000
        graph[name] = {"t": 0.001}
    alternatives = Alternatives(graph, "s", lambda _: True)
    nearest = [("s", name, "t") for name in others[:FAN_MAX]]
    assert alternatives.around_source("t") == [*nearest, ("s", "t")]
    assert alternatives.around_target("t") == nearest
    assert all(hop[0] in graph for path in nearest for hop in pairwise(path))
