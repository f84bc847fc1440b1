"""The mesh as announced: links count when both ends tell of them, changes when they could move a route."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.overlay.headers import LinkEntry
from anabranch.overlay.topology import HOP_COST_S, Topology


def entry(neighbour: str, delay_ms: float = 10.0, client: bool = False) -> LinkEntry:
    return LinkEntry(neighbour, int(delay_ms * 1000), 500, 10_000, 990_000, client)


@pytest.fixture
def topology() -> Topology:
    return Topology(0.10, 0.003)


def test_a_link_is_used_once_both_ends_tell_of_it(topology: Topology) -> None:
    topology.set_links("b", [entry("c", 10)])
    assert topology.graph()["b"] == {}
    topology.set_links("c", [entry("b", 30)])
    assert topology.graph()["b"] == {"c": pytest.approx(0.010 + HOP_COST_S)}
    assert topology.graph()["c"] == {"b": pytest.approx(0.030 + HOP_COST_S)}
    topology.set_links("c", [])
    assert topology.graph()["b"] == {}


def test_own_links_need_no_confirmation(topology: Topology) -> None:
    topology.set_own("a", [entry("b")])
    assert list(topology.graph()["a"]) == ["b"]


def test_a_light_client_announces_nothing_and_is_reached_through_its_peer(topology: Topology) -> None:
    topology.set_links("b", [entry("leaf", client=True)])
    assert list(topology.graph()["b"]) == ["leaf"]
    assert topology.is_client("leaf")
    assert not topology.may_relay("leaf")
    assert topology.may_relay("b")


def test_who_announces_links_is_no_light_client_whatever_others_say(topology: Topology) -> None:
    topology.set_links("b", [entry("c", client=True)])
    topology.set_links("c", [])
    assert topology.graph()["b"] == {}


def test_only_changes_that_could_move_a_route_count(topology: Topology) -> None:
    assert topology.set_links("b", [entry("c", 100)])
    version = topology.version
    assert not topology.set_links("b", [entry("c", 105)])
    assert topology.version == version
    assert topology.set_links("b", [entry("c", 120)])
    assert topology.set_links("b", [entry("c", 120, client=True)])
    assert topology.set_links("b", [entry("c", 120, client=True), entry("d")])
    assert topology.set_links("b", [])
    assert topology.version == version + 4


def test_small_steps_in_one_direction_are_noticed_in_the_end(topology: Topology) -> None:
    """Each step is below the threshold; together they are not."""
    topology.set_links("b", [entry("c", 100)])
    version = topology.version
    for delay_ms in range(102, 202, 2):
        topology.set_links("b", [entry("c", delay_ms)])
    assert topology.version > version


def test_what_was_announced_can_be_read_and_forgotten(topology: Topology) -> None:
    topology.set_links("b", [entry("c", 100), entry("b")])
    (edge,) = topology.announced("b").values()
    assert (edge.delay_s, edge.jitter_s, edge.loss, edge.availability) == (0.1, 0.0005, 0.01, 0.99)
    assert topology.peers() == ["b"]
    assert topology.remove("b")
    assert not topology.remove("b")
    assert topology.peers() == []
    assert topology.announced("b") == {}
    assert topology.graph() == {}


NAMES = "abcdef"
ENTRIES = st.dictionaries(
    st.sampled_from(NAMES), st.tuples(st.integers(0, 50), st.booleans()), max_size=5
).map(lambda links: [entry(peer, delay_ms, client) for peer, (delay_ms, client) in links.items()])
CHANGES = st.lists(
    st.tuples(st.sampled_from(["links", "links", "own", "remove", "look"]), st.sampled_from(NAMES), ENTRIES),
    max_size=30,
)


def apply(topology: Topology, what: str, peer: str, entries: list[LinkEntry]) -> None:
    if what == "links":
        topology.set_links(peer, entries)
    elif what == "own":
        topology.set_own(peer, entries)
    elif what == "remove":
        topology.remove(peer)


def rebuilt(topology: Topology) -> dict[str, dict[str, float]]:
    """The whole graph, from what every peer announces now."""
    announced = {peer: topology.announced(peer) for peer in topology.peers()}
    return {
        peer: {
            neighbour: edge.delay_s + HOP_COST_S
            for neighbour, edge in edges.items()
            if peer == topology._own
            or (edge.client and neighbour not in announced)
            or peer in announced.get(neighbour, {})
        }
        for peer, edges in announced.items()
    }


@given(CHANGES)
def test_after_any_changes_the_graph_is_the_one_that_a_new_start_would_build(
    changes: list[tuple[str, str, list[LinkEntry]]],
) -> None:
    topology = Topology(0.10, 0.003)
    version, expected = topology.version, rebuilt(topology)
    assert topology.graph() == expected
    for what, peer, entries in changes:
        apply(topology, what, peer, entries)
        if topology.version != version:
            version, expected = topology.version, rebuilt(topology)
        assert topology.graph() == expected, "small changes wait for one that counts"


@given(CHANGES)
def test_it_does_not_matter_when_the_graph_is_looked_at(
    changes: list[tuple[str, str, list[LinkEntry]]],
) -> None:
    topology = Topology(0.0, 0.0)
    for what, peer, entries in changes:
        apply(topology, what, peer, entries)
        if what == "look":
            assert topology.graph() == rebuilt(topology)
        assert set(topology._stale) <= {*topology.peers(), *topology._graph}
    topology.set_links("z", [])
    assert topology.graph() == rebuilt(topology)
    assert sum(map(len, topology._named_by.values())) == sum(
        len(topology.announced(peer)) for peer in topology.peers()
    )


def test_a_graph_that_was_given_out_stays_as_it_was(topology: Topology) -> None:
    topology.set_own("a", [entry("b", 10)])
    before = topology.graph()
    topology.set_own("a", [entry("b", 90), entry("c", 10)])
    assert before == {"a": {"b": pytest.approx(0.010 + HOP_COST_S)}}
    assert list(topology.graph()["a"]) == ["b", "c"]
