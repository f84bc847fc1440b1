"""The mesh as announced: links count when both ends tell of them, changes when they could move a route."""

import pytest

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
