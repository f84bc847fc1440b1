"""The simulated network does what its conditions say."""

import pytest

from anabranch.overlay.config import Config
from anabranch.overlay.errors import UsageError
from anabranch.transport.simulator import Conditions, SimSubscription, Simulator

FIXED = Config(neighbours_target=0, recovery=False)


def pair(seed: int = 1, **conditions: object) -> tuple[Simulator, SimSubscription]:
    """Two peers that know each other over a good link, which then gets these conditions from a to b."""
    sim = Simulator(seed)
    sim.add_peer("a", config=FIXED)
    sim.add_peer("b", config=FIXED, seeds=["a"])
    inbox = sim.subscribe("b", "t")
    assert sim.run_until_true(sim.is_settled, 5)
    sim.set_conditions("a", "b", Conditions().replace(**conditions))
    return sim, inbox


def publish_steadily(sim: Simulator, messages: int, rate: float = 100.0, size: int = 64) -> None:
    """A flow of so many messages, and time for the last one."""
    sim.flow("a", "t", rate=rate, size=size, stop=sim.now + (messages - 0.5) / rate)
    sim.run_for(messages / rate + 2.0)


def test_a_message_takes_exactly_the_delay_of_its_link() -> None:
    sim, inbox = pair(delay_s=0.035)
    publish_steadily(sim, 20)
    assert [round(m.time - m.published_at, 9) for m in inbox.messages] == [0.035] * 20


def test_jitter_delays_by_up_to_its_value_and_keeps_the_order() -> None:
    sim, inbox = pair(jitter_s=0.03)
    publish_steadily(sim, 300)
    took = [m.time - m.published_at for m in inbox.messages]
    assert [m.sequence for m in inbox.messages] == list(range(300))
    assert 0.01 <= min(took) < 0.02
    assert 0.03 < max(took) <= 0.04 + 1e-9


def test_loss_takes_its_share_of_the_messages() -> None:
    sim, inbox = pair(loss=0.3)
    publish_steadily(sim, 1000)
    assert 0.25 < 1 - inbox.count / 1000 < 0.35


def test_without_loss_nothing_is_lost() -> None:
    sim, inbox = pair()
    publish_steadily(sim, 500)
    assert inbox.count == 500
    assert sim.ledger.missing(0, sim.now) == []


def test_reordered_frames_are_overtaken_and_the_application_never_sees_it() -> None:
    sim, inbox = pair(reorder=0.2)
    publish_steadily(sim, 500)
    sequences = [m.sequence for m in inbox.messages]
    assert sequences == sorted(sequences)
    assert sim.counters(["b"])["dropped.out_of_order"] > 0
    assert inbox.count < 500


def test_a_rate_limit_stretches_a_burst() -> None:
    sim, inbox = pair(rate_bytes_s=100_000)
    for number in range(10):
        sim.publish("a", "t", number.to_bytes(1, "big") * 10_000)
    sim.run_for(5)
    assert inbox.count == 10
    assert 0.9 < inbox.messages[-1].time - inbox.messages[-1].published_at < 1.2


def test_a_blackhole_swallows_one_direction_and_is_noticed_by_silence_alone() -> None:
    sim, inbox = pair(blackhole=True)
    sim.publish("a", "t", b"lost")
    sim.run_for(0.5)
    assert "b" in sim.peer("a").node.links.by_peer
    sim.run_for(3)
    assert "b" not in sim.peer("a").node.links.by_peer
    assert inbox.count == 0


def test_conditions_may_differ_by_direction() -> None:
    sim, there = pair(delay_s=0.1)
    back = sim.subscribe("a", "r")
    sim.run_for(1)
    sim.publish("a", "t", b"x")
    sim.publish("b", "r", b"y")
    sim.run_for(1)
    assert there.messages[0].time - there.messages[0].published_at == pytest.approx(0.1)
    assert back.messages[0].time - back.messages[0].published_at == pytest.approx(0.01)


def test_only_peers_of_one_side_of_a_partition_reach_each_other() -> None:
    sim = Simulator(3)
    for number, name in enumerate("abcd"):
        sim.add_peer(name, config=FIXED, seeds="abcd"[:number])
    inboxes = {name: sim.subscribe(name, "t") for name in "abcd"}
    assert sim.run_until_true(sim.is_settled, 5)
    sim.partition("ab")
    sim.run_for(2)
    sim.publish("a", "t", b"left")
    sim.publish("d", "t", b"right")
    sim.run_for(1)
    got = {name: [m.payload for m in inbox.messages] for name, inbox in inboxes.items()}
    assert got == {"a": [b"left"], "b": [b"left"], "c": [b"right"], "d": [b"right"]}
    sim.heal()
    assert sim.run_until_true(sim.is_settled, 15)
    sim.publish("a", "t", b"all")
    sim.run_for(1)
    assert all(inbox.messages[-1].payload == b"all" for inbox in inboxes.values())


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"loss": 1.5}, "loss = 1.5"),
        ({"delay_s": -1}, "delay_s = -1"),
        ({"rate_bytes_s": 0}, "rate_bytes_s = 0"),
        ({"dely_s": 1}, "unknown condition 'dely_s'"),
    ],
)
def test_impossible_conditions_are_refused_by_name(changes: dict[str, object], named: str) -> None:
    with pytest.raises(UsageError, match=named):
        Conditions().replace(**changes)


def test_a_peer_in_two_groups_or_in_none_that_exists_is_refused() -> None:
    sim, _ = pair()
    with pytest.raises(UsageError, match="'a' is in two groups"):
        sim.partition("a", "ab")
    with pytest.raises(UsageError, match="no peer 'z'"):
        sim.partition("z")
