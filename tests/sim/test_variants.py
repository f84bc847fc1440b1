"""Direct path and best path: who reroutes, when a better path is worth it, and that paths don't flap."""

import pytest

from anabranch.overlay.config import Config
from anabranch.overlay.qos import Variant
from anabranch.transport.simulator import Conditions, SimSubscription, Simulator


def triangle(variant: Variant, direct_s: float, leg_s: float, **changes: object) -> Simulator:
    """a and c with a direct link, and b between them."""
    sim = Simulator(5)
    config = Config(neighbours_target=0, variant=variant).replace(**changes)
    sim.connect("a", "c", Conditions(delay_s=direct_s))
    sim.connect("a", "b", Conditions(delay_s=leg_s))
    sim.connect("b", "c", Conditions(delay_s=leg_s))
    for number, name in enumerate("abc"):
        sim.add_peer(name, config=config, seeds="abc"[:number])
    assert sim.run_until_true(sim.is_settled, 5)
    return sim


def flow(sim: Simulator, seconds: float, rate: float = 100.0) -> SimSubscription:
    """A flow from a to c, which starts when c's subscription is known."""
    inbox = sim.subscribe("c", "t")
    sim.run_for(3)
    sim.flow("a", "t", rate=rate, stop=sim.now + seconds)
    sim.run_for(seconds + 1)
    return inbox


def paths(inbox: SimSubscription) -> list[tuple[str, ...]]:
    return list(dict.fromkeys(m.path for m in inbox.messages))


def test_dp_keeps_to_the_direct_link_however_slow() -> None:
    inbox = flow(triangle(Variant.DP, direct_s=0.1, leg_s=0.01), 2)
    assert paths(inbox) == [("a", "c")]


def test_bp_takes_the_detour_that_is_faster() -> None:
    inbox = flow(triangle(Variant.BP, direct_s=0.1, leg_s=0.01), 2)
    assert paths(inbox) == [("a", "b", "c")]


@pytest.mark.parametrize(
    ("variant", "lost_most_s"), [(Variant.DP, 10.5), (Variant.BP, 1.0)], ids=["dp", "bp"]
)
def test_a_failed_link_costs_dp_all_of_it_and_bp_the_time_to_notice(
    variant: Variant, lost_most_s: float
) -> None:
    sim = triangle(variant, direct_s=0.01, leg_s=0.01)
    begin = sim.now + 3
    sim.at(begin + 2, lambda: sim.change("a", "c", blackhole=True))
    sim.at(begin + 9, lambda: sim.change("a", "c", blackhole=False))
    inbox = flow(sim, 14)
    lost_s = (1400 - inbox.count) / 100
    assert lost_s <= lost_most_s
    assert lost_s >= (7 if variant is Variant.DP else 0.3)
    assert inbox.messages[-1].path == ("a", "c")


def test_bp_leaves_a_working_path_only_for_a_gain_past_the_threshold() -> None:
    """The direct link of 30 ms stays while the detour costs 26 ms, and is left when it costs 16 ms."""
    sim = triangle(Variant.BP, direct_s=0.03, leg_s=0.05)
    inbox = sim.subscribe("c", "t")
    sim.run_for(2)
    sim.flow("a", "t", rate=50)
    sim.run_for(2)
    for name in "ac":
        sim.change(name, "b", delay_s=0.013)
    sim.run_for(6)
    assert paths(inbox) == [("a", "c")]
    assert sim.peer("a").node.routes.switches == 0
    for name in "ac":
        sim.change(name, "b", delay_s=0.008)
    sim.run_for(6)
    assert paths(inbox) == [("a", "c"), ("a", "b", "c")]
    assert sim.peer("a").node.routes.switches == 1


def test_the_threshold_is_a_setting() -> None:
    """A detour of half the delay is not enough for a peer that wants 60 %."""
    sim = triangle(Variant.BP, direct_s=0.03, leg_s=0.05, switch_threshold=0.6)
    inbox = sim.subscribe("c", "t")
    sim.run_for(2)
    sim.flow("a", "t", rate=50)
    sim.run_for(2)
    for name in "ac":
        sim.change(name, "b", delay_s=0.008)
    sim.run_for(6)
    assert paths(inbox) == [("a", "c")]


def test_two_paths_of_nearly_the_same_delay_do_not_flap_under_jitter() -> None:
    sim = triangle(Variant.BP, direct_s=0.02, leg_s=0.0095)
    for a, b in ("ab", "bc", "ac"):
        sim.change(a, b, jitter_s=0.006)
    inbox = flow(sim, 60, rate=20)
    received = next(iter(inbox.received.values()))
    assert inbox.count == 1200
    assert received.switches <= 1


def test_a_degraded_link_moves_the_flow_once_there_and_once_back() -> None:
    sim = triangle(Variant.BP, direct_s=0.01, leg_s=0.012)
    begin = sim.now + 3
    sim.at(begin + 5, lambda: sim.change("a", "c", delay_s=0.1))
    sim.at(begin + 15, lambda: sim.change("a", "c", delay_s=0.01))
    inbox = flow(sim, 30)
    assert [path for _, path in next(iter(inbox.received.values())).paths] == [
        ("a", "c"),
        ("a", "b", "c"),
        ("a", "c"),
    ]
    assert inbox.count == 3000


def test_rerouting_keeps_the_order_and_repeats_nothing() -> None:
    """The old path is slower than the new one: messages of the new one wait for those still under way."""
    sim = triangle(Variant.BP, direct_s=0.01, leg_s=0.03)
    begin = sim.now + 3
    sim.at(begin + 2, lambda: sim.change("a", "c", delay_s=0.15))
    inbox = flow(sim, 8, rate=200)
    sequences = [m.sequence for m in inbox.messages]
    assert sequences == list(range(1600))
    assert len(paths(inbox)) == 2
