"""Which paths serve a receiver: budgets, two paths, an availability, and copies only in trouble."""

import sys
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.overlay.choosing import AVAILABILITY_BELIEVED
from anabranch.overlay.config import Config
from anabranch.overlay.headers import LinkEntry
from anabranch.overlay.paths import path_cost
from anabranch.overlay.qos import Demand, Variant

sys.path.insert(0, str(Path(__file__).parent))
from support_routes import PEERS, Links, World, walk

DIAMOND: Links = {("a", "b"): 10, ("b", "d"): 10, ("a", "c"): 15, ("c", "d"): 15}
URGENT = Demand(deadline_s=0.050)
LINKS = st.dictionaries(
    st.tuples(st.sampled_from(PEERS), st.sampled_from(PEERS)).filter(lambda pair: pair[0] < pair[1]),
    st.integers(1, 60),
    max_size=14,
)


def world_of(variant: str, links: Links, **settings: object) -> World:
    world = World(Config(variant=Variant(variant), **settings))  # type: ignore[arg-type]
    world.draw(links)
    return world


def paths_of(world: World, demand: Demand, destination: str = "d") -> list[str]:
    world.routes.route((destination,), demand)
    choice = world.routes.chosen().get((destination, demand))
    return ["".join(path) for path in choice.paths] if choice is not None else []


def test_budgets_share_the_margin_of_the_deadline_evenly_over_the_links() -> None:
    world = world_of("bp+qos", DIAMOND)
    assert paths_of(world, URGENT) == ["abd"]
    budgets = dict(world.routes.chosen()["d", URGENT].budgets)
    margin = 0.050 - 2 * 0.0105
    assert budgets == {
        ("a", "b"): pytest.approx(0.0105 + margin / 2),
        ("b", "d"): pytest.approx(0.0105 + margin / 2),
    }


def test_a_violated_budget_reroutes_although_the_gain_is_below_the_threshold() -> None:
    links = DIAMOND | {("a", "b"): 26}  # 26 + 10 against 15 + 15: a gain of a sixth, below the fifth
    for variant, expected in (("bp", ["abd"]), ("bp+qos", ["acd"]), ("adaptive", ["acd"])):
        world = world_of(variant, DIAMOND)
        assert paths_of(world, URGENT) == ["abd"]
        world.draw(links)
        assert paths_of(world, URGENT) == expected, variant
        assert world.routes.switches == (expected == ["acd"])
        assert paths_of(world, Demand()) == ["acd"], "a new flow takes the best path"


def test_a_publisher_can_have_another_variant_than_its_peer() -> None:
    world = world_of("bp", DIAMOND)
    assert paths_of(world, URGENT) == ["abd"]
    assert paths_of(world, Demand(variant=Variant.BP_QOS_MP)) == ["abd", "acd"]
    assert paths_of(world, Demand(variant=Variant.DP)) == []
    assert paths_of(world, Demand(variant=Variant.DP), "b") == ["ab"]
    assert paths_of(world, Demand()) == ["abd"]


def test_a_violated_budget_does_not_wait_for_the_search_interval() -> None:
    for variant, expected in (("bp", "abd"), ("bp+qos", "acd")):
        world = world_of(variant, DIAMOND, search_interval_s=30.0)
        paths_of(world, URGENT)
        world.draw(DIAMOND | {("e", "f"): 1})
        assert paths_of(world, URGENT) == ["abd"]
        world.draw(DIAMOND | {("a", "b"): 100})
        assert paths_of(world, URGENT) == [expected], variant


def test_a_working_path_is_not_left_for_one_that_just_fell_silent() -> None:
    """Its delay looks good, because nothing comes any more that could say otherwise."""
    for variant, expected in (("bp", "abd"), ("bp+qos", "acd"), ("adaptive", "acd")):
        world = world_of(variant, {("a", "c"): 15, ("c", "d"): 15})
        assert paths_of(world, URGENT) == ["acd"]
        world.routes.set_quiet(frozenset("b"))
        world.draw(DIAMOND | {("a", "b"): 1})
        assert paths_of(world, URGENT)[0] == expected, variant
        world.routes.set_quiet(frozenset())
        assert paths_of(world, URGENT) == ["abd"], "it speaks again"


def test_a_violated_budget_without_anything_better_changes_nothing() -> None:
    world = world_of("bp+qos", {("a", "b"): 10, ("b", "d"): 10})
    paths_of(world, URGENT)
    world.draw({("a", "b"): 90, ("b", "d"): 10})
    assert paths_of(world, URGENT) == ["abd"]
    assert world.routes.switches == 0


def test_two_paths_are_disjoint_and_survive_one_another() -> None:
    world = world_of("bp+qos+mp", DIAMOND | {("a", "d"): 12, ("b", "c"): 1})
    assert paths_of(world, URGENT) == ["ad", "abd"]
    route = world.routes.route(("d",), URGENT)
    assert walk(route) == ["d", "d"], "each path asks for a delivery"
    world.draw(DIAMOND | {("b", "c"): 1})
    assert paths_of(world, URGENT) == ["abd", "acd"]


def test_two_paths_share_a_link_where_only_that_keeps_the_deadline() -> None:
    links = {("a", "b"): 5, ("b", "d"): 30, ("b", "c"): 5, ("c", "d"): 30, ("a", "e"): 40, ("d", "e"): 40}
    world = world_of("bp+qos+mp", links)
    assert paths_of(world, URGENT) == ["abd", "abcd"]
    assert paths_of(world, Demand()) == ["abd", "aed"], "without a deadline they are disjoint"


def test_one_path_remains_one_path() -> None:
    world = world_of("bp+qos+mp", {("a", "b"): 5, ("b", "d"): 5})
    assert paths_of(world, URGENT) == ["abd"]
    world.draw({})
    assert paths_of(world, URGENT) == []
    assert world.routes.route(("d",), URGENT).unreached == ("d",)


@given(LINKS, st.sampled_from([Demand(), URGENT]))
def test_the_pair_is_made_of_whole_loopless_different_paths(links: Links, demand: Demand) -> None:
    world = world_of("bp+qos+mp", links)
    world.routes.route(tuple(PEERS[1:]), demand)
    graph = world.topology.graph()
    for (destination, _), choice in world.routes.chosen().items():
        assert 1 <= len(choice.paths) <= 2
        assert len(set(choice.paths)) == len(choice.paths)
        for path in choice.paths:
            assert (path[0], path[-1]) == ("a", destination)
            assert path_cost(graph, path) is not None


def test_as_many_paths_as_an_availability_needs() -> None:
    links = DIAMOND | {("a", "d"): 12, ("a", "e"): 20, ("d", "e"): 20}
    world = world_of("adaptive", links)
    one = AVAILABILITY_BELIEVED
    two = 1 - (1 - one) * (1 - one**2)
    assert paths_of(world, Demand(availability=0.99)) == ["ad"]
    wanted = Demand(availability=0.999_99)
    assert paths_of(world, wanted) == ["ad", "abd"]
    assert world.routes.route(("d",), wanted).availability == pytest.approx(two)
    assert len(paths_of(world, Demand(availability=0.999_999_99))) == 3


def test_an_availability_out_of_reach_gets_what_there_is_and_the_estimate_says_so() -> None:
    world = world_of("adaptive", {("a", "b"): 5, ("b", "d"): 5})
    wanted = Demand(availability=0.9999)
    assert paths_of(world, wanted) == ["abd"]
    assert world.routes.route(("d",), wanted).availability == pytest.approx(AVAILABILITY_BELIEVED**2)


def test_an_unreliable_link_is_left_for_a_path_that_is_good_enough() -> None:
    world = world_of("adaptive", DIAMOND | {("a", "d"): 12})
    wanted = Demand(availability=0.998)
    assert paths_of(world, wanted) == ["ad"]
    shaky = [
        msgspec.structs.replace(LinkEntry(peer, delay, 0, 0, 10**6), availability_ppm=share)
        for peer, delay, share in (("b", 10_000, 10**6), ("c", 15_000, 10**6), ("d", 20_000, 900_000))
    ]
    world.topology.set_own("a", shaky)
    assert paths_of(world, wanted) == ["abd"]
    assert len(paths_of(world, Demand(availability=0.9989))) == 2


def test_copies_travel_only_while_the_first_hop_is_quiet() -> None:
    world = world_of("adaptive", DIAMOND)
    healthy = world.routes.route(("d",), URGENT)
    assert walk(healthy) == ["d"]
    world.routes.set_quiet(frozenset("b"))
    assert paths_of(world, URGENT) == ["abd", "acd"]
    assert walk(world.routes.route(("d",), URGENT)) == ["d", "d"]
    world.routes.set_quiet(frozenset("c"))
    assert paths_of(world, URGENT) == ["abd"], "the quiet link is not on the path in use"
    assert [cause for _, _, cause in world.causes()] == ["new", "trouble", "healthy"]
    assert world.routes.switches == 0


@pytest.mark.parametrize(
    ("deadline_s", "recovery", "copies_from"),
    [(0.05, True, 60_000), (0.4, True, 700_000), (0.0, True, 700_000), (0.0, False, 60_000)],
)
def test_copies_for_a_lossy_link_only_where_a_repair_would_come_too_late(
    deadline_s: float, recovery: bool, copies_from: int
) -> None:
    world = world_of("adaptive", DIAMOND, recovery=recovery)
    demand = Demand(deadline_s=deadline_s)
    for loss_ppm in (10_000, 60_000, 200_000, 700_000):
        to_d = LinkEntry("d", 10_000, 0, loss_ppm, 10**6)
        world.topology.set_links("b", [LinkEntry("a", 10_000, 0, 0, 10**6), to_d])
        assert paths_of(world, demand) == (["abd", "acd"] if loss_ppm >= copies_from else ["abd"])


def test_a_short_slack_doubles_with_thresholds_apart() -> None:
    world = world_of("adaptive", DIAMOND)
    demand = Demand(deadline_s=0.030)
    assert paths_of(world, demand) == ["abd"]
    world.draw(DIAMOND | {("b", "d"): 17})  # 28 ms of 30: less than a tenth is left
    assert paths_of(world, demand) == ["abd", "acd"]
    world.draw(DIAMOND | {("b", "d"): 14})  # 25 ms: a sixth, more than a tenth but less than a fifth
    assert paths_of(world, demand) == ["abd", "acd"], "entered at a tenth, cleared at a fifth"
    world.draw(DIAMOND)
    assert paths_of(world, demand) == ["abd"]


def test_the_copy_stays_clear_of_the_first_path() -> None:
    world = world_of("adaptive", DIAMOND | {("b", "c"): 1, ("a", "e"): 30, ("d", "e"): 30})
    world.routes.set_quiet(frozenset("b"))
    first, copy = paths_of(world, URGENT)
    assert first == "abd"
    assert not set(pairwise(first)) & set(pairwise(copy))
    assert copy == "acd"


def test_when_the_first_path_breaks_its_copy_goes_on() -> None:
    world = world_of("adaptive", DIAMOND)
    paths_of(world, URGENT)
    world.routes.set_quiet(frozenset("b"))
    paths_of(world, URGENT)
    world.draw({link: delay for link, delay in DIAMOND.items() if "b" not in link})
    assert paths_of(world, URGENT) == ["acd"]
    assert world.causes()[-1] == ("d", "acd", "broken")
