"""The variants of routing: who reroutes, when and why, what that costs, and that paths don't flap."""

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


def flow(sim: Simulator, seconds: float, rate: float = 100.0, deadline_s: float = 0.0) -> SimSubscription:
    """A flow from a to c, which starts when c's subscription is known."""
    inbox = sim.subscribe("c", "t")
    sim.run_for(3)
    sim.flow("a", "t", rate=rate, stop=sim.now + seconds, deadline_s=deadline_s)
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


LOST_S = {
    Variant.DP: (7.0, 10.5),
    Variant.BP: (0.3, 1.0),
    Variant.BP_QOS: (0.3, 1.0),
    Variant.BP_QOS_MP: (0.0, 0.0),
    Variant.ADAPTIVE: (0.1, 0.5),
}
"""What a link that fails for 7 s costs a flow: at least and at most."""


@pytest.mark.parametrize("variant", LOST_S)
def test_a_failed_link_costs_what_the_variant_needs_to_notice(variant: Variant) -> None:
    sim = triangle(variant, direct_s=0.01, leg_s=0.01, recovery=False)
    begin = sim.now + 3
    sim.at(begin + 2, lambda: sim.change("a", "c", blackhole=True))
    sim.at(begin + 9, lambda: sim.change("a", "c", blackhole=False))
    inbox = flow(sim, 14, deadline_s=0.05)
    lost_s = (1400 - inbox.count) / 100
    least_s, most_s = LOST_S[variant]
    assert least_s <= lost_s <= most_s
    assert inbox.messages[-1].path == ("a", "c")


def test_adaptive_sends_copies_only_around_the_failure() -> None:
    """Two paths cost three hops for each message, all the time; trouble lasts for some seconds only."""
    sent = {}
    for variant in (Variant.BP_QOS, Variant.BP_QOS_MP, Variant.ADAPTIVE):
        sim = triangle(variant, direct_s=0.01, leg_s=0.01)
        begin = sim.now + 3
        sim.at(begin + 2, lambda sim=sim: sim.change("a", "c", blackhole=True))  # type: ignore[misc]
        sim.at(begin + 4, lambda sim=sim: sim.change("a", "c", blackhole=False))  # type: ignore[misc]
        flow(sim, 60, deadline_s=0.05)
        sent[variant] = sim.data_bytes()
    assert sent[Variant.BP_QOS_MP] > 2.5 * sent[Variant.BP_QOS]
    assert sent[Variant.ADAPTIVE] < 1.25 * sent[Variant.BP_QOS]


@pytest.mark.parametrize("variant", [Variant.BP_QOS, Variant.BP_QOS_MP, Variant.ADAPTIVE])
def test_a_link_that_gets_slower_than_its_budget_is_left_at_once(variant: Variant) -> None:
    sim = triangle(variant, direct_s=0.012, leg_s=0.015)
    begin = sim.now + 3
    sim.at(begin + 5, lambda: sim.change("a", "c", delay_s=0.1))
    inbox = flow(sim, 15, deadline_s=0.05)
    late = [m for m in inbox.messages if m.time - m.published_at > 0.05]
    assert inbox.count == 1500
    assert len(late) <= (0 if variant is Variant.BP_QOS_MP else 110)
    assert all(m.time < begin + 6.3 for m in late)
    switches = sim.peer("a").node.routes.switches
    assert switches <= 1, "one cause, one switch"


def test_copies_are_told_apart_from_losses() -> None:
    sim = triangle(Variant.BP_QOS_MP, direct_s=0.01, leg_s=0.02)
    inbox = flow(sim, 5)
    assert inbox.count == 500
    counters = sim.counters(["c"])
    assert counters["dropped.duplicate"] == 500
    assert counters.get("lost", 0) == 0


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


def test_a_link_that_goes_silent_far_away_is_told_before_it_is_given_up() -> None:
    """a - b - d is the path; b's link to d dies. Only b can notice, and c is the way around."""
    lost_s = {}
    for variant in (Variant.BP_QOS, Variant.ADAPTIVE):
        sim = Simulator(5)
        config = Config(neighbours_target=0, variant=variant, recovery=False)
        for here, there, delay_s in (
            ("a", "b", 0.01),
            ("b", "d", 0.01),
            ("a", "c", 0.015),
            ("c", "d", 0.015),
        ):
            sim.connect(here, there, Conditions(delay_s=delay_s))
        for name, seeds in (("a", ""), ("b", "a"), ("c", "a"), ("d", "bc")):
            sim.add_peer(name, config=config, seeds=seeds)
        assert sim.run_until_true(sim.is_settled, 5)
        inbox = sim.subscribe("d", "t")
        sim.run_for(3)
        sim.flow("a", "t", rate=100, stop=sim.now + 6, deadline_s=0.05)
        sim.at(sim.now + 2, lambda sim=sim: sim.change("b", "d", blackhole=True))  # type: ignore[misc]
        sim.run_for(7)
        assert inbox.messages[0].path == ("a", "b", "d")
        assert inbox.messages[-1].path == ("a", "c", "d")
        lost_s[variant] = (600 - inbox.count) / 100
    assert 0.8 < lost_s[Variant.BP_QOS] < 1.3
    assert 0.1 < lost_s[Variant.ADAPTIVE] < 0.5
