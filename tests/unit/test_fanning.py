"""Copies around an end of which several links are bad: each of its links, simple paths, and no flapping."""

import sys
from itertools import pairwise, permutations
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from anabranch.overlay.alternatives import Alternatives
from anabranch.overlay.config import Config
from anabranch.overlay.headers import LinkEntry
from anabranch.overlay.paths import path_cost
from anabranch.overlay.qos import Demand

sys.path.insert(0, str(Path(__file__).parent))
from support_routes import World

URGENT = Demand(deadline_s=0.050)
PEERS = "abcdef"
GRAPHS = st.dictionaries(
    st.tuples(st.sampled_from(PEERS), st.sampled_from(PEERS)).filter(lambda pair: pair[0] != pair[1]),
    st.integers(1, 50),
    max_size=20,
).map(lambda hops: {a: {b: hops[a, b] / 1000 for b in PEERS if (a, b) in hops} for a in PEERS})
MESH = {("a", n): 10 for n in "bcd"} | {(n, "g"): 10 + i for i, n in enumerate("bcd")}


def cheapest(graph: dict[str, dict[str, float]], over: tuple[str, str]) -> float | None:
    """By trying every simple path from a to f over one hop."""
    inner = "bcde"
    paths = [("a", *part, "f") for size in range(5) for part in permutations(inner, size)]
    costs = [path_cost(graph, path) for path in paths if over in pairwise(path)]
    return min((cost for cost in costs if cost is not None), default=None)


@given(GRAPHS)
def test_each_link_of_an_end_gets_its_shortest_simple_path(graph: dict[str, dict[str, float]]) -> None:
    alternatives = Alternatives(graph, "a", lambda _: True)
    for found, ends in (
        (alternatives.around_source("f"), [("a", n) for n in "bcdef"]),
        (alternatives.around_target("f"), [(n, "f") for n in "abcde"]),
    ):
        costs = [path_cost(graph, path) for path in found]
        assert all(len(set(path)) == len(path) for path in found)
        assert costs == sorted(costs, key=lambda cost: cost or 0.0)
        for hop in ends:
            through = [path for path in found if hop in (path[:2], path[-2:])]
            wanted = cheapest(graph, hop)
            best = min((path_cost(graph, path) or 0.0 for path in through), default=None)
            assert (best is None) == (wanted is None)
            if wanted is not None and best is not None:
                assert abs(best - wanted) < 1e-9


def lossy(world: World, end: str, losses: dict[str, float]) -> None:
    """Both ends of these links announce them with these losses."""
    for here in (end, *losses):
        entries = []
        for pair, delay_ms in MESH.items():
            if here in pair:
                there = pair[here == pair[0]]
                loss = losses.get(there if here == end else here, 0.0) if end in pair else 0.0
                entries.append(LinkEntry(there, delay_ms * 1000, 0, int(loss * 1e6), 10**6, False))
        world.topology.set_links(here, entries)


def paths_of(world: World) -> list[str]:
    world.routes.route(("g",), URGENT)
    return ["".join(path) for path in world.routes.chosen()["g", URGENT].paths]


def drawn(**settings: object) -> World:
    world = World(Config(**settings))  # type: ignore[arg-type]
    world.draw(MESH)
    return world


def test_copies_fan_out_around_a_receiver_with_several_bad_links() -> None:
    world = drawn()
    assert paths_of(world) == ["abg"]
    lossy(world, "g", {"b": 0.1})
    assert paths_of(world) == ["abg", "acg"]
    lossy(world, "g", {"b": 0.1, "c": 0.1})
    assert sorted(paths_of(world)) == ["abg", "acg", "adg"]
    assert paths_of(world)[0] == "abg"


def test_copies_fan_out_around_a_publisher_whose_links_fall_silent() -> None:
    world = drawn()
    world.routes.set_quiet(frozenset("b"))
    assert paths_of(world) == ["abg", "acg"]
    world.routes.set_quiet(frozenset("bc"))
    assert sorted(paths_of(world)) == ["abg", "acg", "adg"]
    world.routes.set_quiet(frozenset())
    assert paths_of(world) == ["abg"]


def test_a_copy_leaves_a_link_that_dies_for_one_that_is_alive() -> None:
    world = drawn()
    lossy(world, "g", {"b": 0.1})
    assert paths_of(world) == ["abg", "acg"]
    lossy(world, "g", {"b": 0.1, "c": 1.0})
    assert paths_of(world) == ["abg", "adg", "acg"]


def test_with_no_path_in_time_alive_copies_take_longer_ones() -> None:
    world = World(Config())
    mesh = MESH | {("a", "e"): 40, ("e", "g"): 40}
    world.draw(mesh)
    for name in "bcd":
        ends = (("a", 0), ("g", 10**6))
        world.topology.set_links(name, [LinkEntry(n, 10_000, 0, loss, 10**6, False) for n, loss in ends])
    assert paths_of(world)[:2] == ["abg", "aeg"]


def test_a_healthy_path_has_no_copies_however_bad_other_links_of_its_ends_are() -> None:
    world = drawn()
    lossy(world, "g", {"c": 0.5, "d": 0.5})
    assert paths_of(world) == ["abg"]


def test_a_fan_ends_only_when_its_links_are_clearly_better() -> None:
    world = drawn()
    lossy(world, "g", {"b": 0.1, "c": 0.1})
    assert len(paths_of(world)) == 3
    for loss, count in ((0.04, 3), (0.06, 3), (0.03, 3), (0.01, 2), (0.04, 2), (0.06, 3)):
        lossy(world, "g", {"b": 0.1, "c": loss})
        assert len(paths_of(world)) == count, loss


def test_a_fan_is_no_wider_than_the_setting() -> None:
    world = drawn(paths_max=2)
    lossy(world, "g", {"b": 0.1, "c": 0.1})
    assert len(paths_of(world)) == 2
