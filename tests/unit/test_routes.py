"""Routes: the best path, kept until another is clearly better; one tree that reaches every receiver once."""

import sys
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.overlay.choosing import SWITCH_LEAST_S
from anabranch.overlay.codec import decode_tail
from anabranch.overlay.config import Config
from anabranch.overlay.headers import LinkEntry
from anabranch.overlay.paths import path_cost, shortest_paths
from anabranch.overlay.qos import Variant

sys.path.insert(0, str(Path(__file__).parent))
from support_routes import PEERS, Links, World, walk

LINKS = st.dictionaries(
    st.tuples(st.sampled_from(PEERS), st.sampled_from(PEERS)).filter(lambda pair: pair[0] < pair[1]),
    st.integers(1, 60),
    max_size=14,
)
"""Two-way links with their delay in milliseconds."""
DESTINATIONS = st.sets(st.sampled_from(PEERS[1:] + "z")).map(lambda peers: tuple(sorted(peers)))


@given(LINKS, DESTINATIONS, st.sampled_from(["", "g", "fg"]))
def test_following_the_tails_hop_by_hop_delivers_once_to_each_reachable_receiver_and_to_nobody_else(
    links: Links, destinations: tuple[str, ...], clients: str
) -> None:
    world = World()
    world.draw(links, clients)
    reachable = set(shortest_paths(world.topology.graph(), "a", lambda peer: peer not in clients))
    route = world.routes.route(destinations)
    assert walk(route) == sorted(reachable & set(destinations))
    assert route.reached == len(reachable & set(destinations))
    assert route.unreached == tuple(peer for peer in destinations if peer not in reachable)
    assert world.routes.reachable() == reachable - {"a"}


@given(st.lists(LINKS, min_size=1, max_size=5), DESTINATIONS)
def test_the_chosen_path_works_and_is_never_worse_than_the_threshold_allows(
    meshes: list[Links], destinations: tuple[str, ...]
) -> None:
    world = World()
    for links in meshes:
        world.draw(links)
        route = world.routes.route(destinations)
        graph = world.topology.graph()
        best = shortest_paths(graph, "a", lambda _: True)
        for peer in destinations:
            path = world.routes.path(peer)
            assert bool(path) == (peer in best)
            if path:
                cost, least = path_cost(graph, path), path_cost(graph, best[peer])
                assert cost is not None
                assert least is not None
                gain = cost - least
                assert gain < SWITCH_LEAST_S or gain < world.config.switch_threshold * cost + 1e-9
        assert walk(route) == sorted(set(destinations) & set(best))


def test_a_path_is_left_only_for_a_clear_gain() -> None:
    world = World()
    world.draw({("a", "b"): 50, ("b", "d"): 50, ("a", "c"): 60, ("c", "d"): 60})
    assert world.routes.path("d") == ("a", "b", "d")
    world.draw({("a", "b"): 50, ("b", "d"): 50, ("a", "c"): 45, ("c", "d"): 45})
    assert world.routes.path("d") == ("a", "b", "d"), "10 % faster is not enough"
    assert world.routes.switches == 0
    world.draw({("a", "b"): 50, ("b", "d"): 50, ("a", "c"): 35, ("c", "d"): 35})
    assert world.routes.path("d") == ("a", "c", "d")
    assert world.routes.switches == 1
    assert world.causes() == [("d", "abd", "new"), ("d", "acd", "faster")]


def test_less_than_a_millisecond_never_moves_a_path() -> None:
    world = World(Config(spread_change_s=0.0, spread_change_ratio=0.0))
    world.topology.set_own("a", [LinkEntry(peer, 0, 0, 0, 10**6) for peer in "bc"])
    for delay_b, delay_c in ((0, 900), (900, 0)):
        world.topology.set_links("b", [LinkEntry(peer, delay_b, 0, 0, 10**6) for peer in "ad"])
        world.topology.set_links("c", [LinkEntry(peer, delay_c, 0, 0, 10**6) for peer in "ad"])
        world.topology.set_links("d", [LinkEntry(peer, 0, 0, 0, 10**6) for peer in "bc"])
        assert world.routes.path("d") == ("a", "b", "d")


def test_a_broken_path_is_left_at_once_and_a_lost_receiver_is_told() -> None:
    world = World()
    world.draw({("a", "b"): 10, ("b", "d"): 10, ("a", "c"): 50, ("c", "d"): 50})
    world.routes.route(("d",))
    world.draw({("a", "b"): 10, ("a", "c"): 50, ("c", "d"): 50})
    assert walk(world.routes.route(("d",))) == ["d"]
    world.draw({("a", "b"): 10})
    route = world.routes.route(("d",))
    assert (route.branches, route.unreached) == ((), ("d",))
    assert world.routes.path("d") == ()
    assert world.causes() == [("d", "abd", "new"), ("d", "acd", "broken"), ("d", "", "unreachable")]


def test_the_direct_variant_uses_the_own_link_or_nothing() -> None:
    world = World(Config(variant=Variant.DP))
    world.draw({("a", "b"): 50, ("a", "c"): 1, ("c", "b"): 1, ("c", "d"): 1})
    assert world.routes.path("b") == ("a", "b")
    assert world.routes.route(("b", "d")).unreached == ("d",)


def test_where_a_search_interval_is_set_paths_improve_only_then_but_repair_at_once() -> None:
    world = World(Config(search_interval_s=30.0))
    world.draw({("a", "b"): 50, ("b", "d"): 50})
    assert world.routes.path("d") == ("a", "b", "d")
    world.draw({("a", "b"): 50, ("b", "d"): 50, ("a", "c"): 5})
    world.routes.path("d")
    better = {("a", "b"): 50, ("b", "d"): 50, ("a", "c"): 5, ("c", "d"): 5}
    world.draw(better)
    assert world.routes.path("d") == ("a", "b", "d")
    world.routes.search()
    assert world.routes.path("d") == ("a", "c", "d")
    world.draw({("a", "b"): 50, ("b", "d"): 50, ("a", "c"): 5})
    assert world.routes.path("d") == ("a", "b", "d")


def test_a_route_keeps_its_generation_while_its_tree_stays_and_gets_a_new_one_when_not() -> None:
    world = World()
    mesh = {("a", "b"): 10, ("b", "d"): 10, ("a", "c"): 50, ("c", "d"): 50}
    world.draw(mesh)
    before = world.routes.route(("d",))
    assert world.routes.route(("d",)) is before
    world.draw({**mesh, ("c", "e"): 10})
    assert world.routes.route(("d",)) is before
    world.draw({("a", "c"): 50, ("c", "d"): 50})
    after = world.routes.route(("d",))
    assert after.generation > before.generation
    assert after.branches != before.branches
    generations = {world.routes.route(peers).generation for peers in (("d",), ("c",), ("c", "d"))}
    assert len(generations) == 3, "two routes of one generation would share a bundle"


def test_shared_hops_are_travelled_once() -> None:
    world = World()
    world.draw({("a", "b"): 10, ("b", "c"): 10, ("b", "d"): 10, ("d", "e"): 10})
    route = world.routes.route(("b", "c", "e"))
    assert [peer for peer, _ in route.branches] == ["b"]
    assert walk(route) == ["b", "c", "e"]
    assert route.hops == {("a", "b"), ("b", "c"), ("b", "d"), ("d", "e"), ("b", "b"), ("c", "c"), ("e", "e")}


def test_the_tail_says_who_publishes() -> None:
    world = World()
    world.draw({("a", "b"): 10})
    ((_, tail),) = world.routes.route(("b",)).branches
    read = decode_tail(tail)
    assert (read.origin, read.epoch, read.via, read.deliver) == ("a", 5, ["a"], True)
    world.identity.epoch = 6
    world.routes.forget()
    ((_, tail),) = world.routes.route(("b",)).branches
    assert decode_tail(tail).epoch == 6


def test_a_light_client_leaves_the_routing_to_its_peer() -> None:
    world = World()
    route = world.routes.attached_route(("x", "y"), "b")
    assert world.routes.attached_route(("x", "y"), "b") is route
    ((peer, tail),) = route.branches
    read = decode_tail(tail)
    assert (peer, read.deliver, read.branches, read.destinations) == ("b", False, [], ["x", "y"])
    assert world.routes.attached_route(("x", "y"), "c").generation != route.generation
    assert route.hops is None


def test_more_receivers_than_the_cache_holds_are_all_reached() -> None:
    world = World(Config(cache_max=2))
    world.draw({("a", peer): 10 for peer in "bcdefg"})
    everyone = tuple("bcdefg")
    assert world.routes.route(everyone).unreached == ()
    for peer in everyone:
        assert world.routes.route((peer,)).unreached == ()
    assert world.routes.route(("b", "g")).unreached == ()
    assert [world.routes.path(peer) for peer in everyone] == [("a", peer) for peer in everyone]


def test_caches_and_notes_of_changes_are_bounded() -> None:
    config = Config(cache_max=3)
    world = World(config)
    for turn in range(20):
        links = {("a", peer): 10 for peer in "bcdefg"} if turn % 2 else {}
        world.draw(links)
        for peer in "bcdefg":
            world.routes.route((peer,))
            world.routes.attached_route((peer,), "b")
    assert len(world.routes._routes) <= 3
    assert len(world.routes._stale) <= 3
    assert len(world.routes.take_changes()) <= 3
    assert world.routes.take_changes() == []


def test_routes_are_values() -> None:
    world = World()
    world.draw({("a", "b"): 10})
    with pytest.raises(AttributeError):
        world.routes.route(("b",)).generation = 9  # type: ignore[misc]
    assert isinstance(world.routes.route(("b",)), msgspec.Struct)
