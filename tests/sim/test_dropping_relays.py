"""Members that relay, answer probes, acknowledge every bundle, and keep what they should pass on (threat 14).

What each test shows of a peer without the defence was tried: the defence is taken out where a test says so.
"""

import os

import pytest
from support_byzantine import Byzantine, mesh

from anabranch.overlay.doubting import AROUND_FIRST_S, Doubting
from anabranch.overlay.taking import Taking
from anabranch.transport.simulator import Simulator

SEEDS = int(os.environ.get("BYZANTINE_SEEDS", "2"))


def seconds_to_confirm(sim: Simulator, origin: str, count: int, limit_s: float) -> list[float]:
    """Puts acknowledged messages one after the other; how long each took."""
    taken_s = []
    for _ in range(count):
        put_at = sim.now
        publisher = sim.acknowledge(origin, "t", b"vital")
        number = publisher.stream.next_sequence
        settled = sim.run_until_true(lambda: publisher.settled == number, limit_s, every_s=0.005)  # noqa: B023
        assert settled, f"message {number} is not confirmed"
        assert not publisher.missing
        taken_s.append(sim.now - put_at)
        sim.run_for(0.05)
    return taken_s


@pytest.mark.parametrize("cheat", ["drop", "delay"])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_acknowledged_messages_find_the_way_around_a_relay_that_keeps_them(seed: int, cheat: str) -> None:
    sim = mesh(seed)
    inbox = sim.subscribe("x", "t")
    sim.run_for(1)
    byzantine = Byzantine(sim, "m", seed, 1.0, (cheat,))
    taken_s = seconds_to_confirm(sim, "a", 60, 20)
    assert max(taken_s) < 3
    assert max(taken_s[5:]) < 0.2, "once it is known, nothing waits any more"
    assert byzantine.done[cheat] > 5
    assert sim.peers["a"].node.counters["doubted_relays"] == 1
    assert inbox.count == 60


@pytest.mark.parametrize(("owner", "name"), [(Doubting, "ways"), (Taking, "_ways_back")])
def test_without_other_ways_the_same_relay_stops_them(
    monkeypatch: pytest.MonkeyPatch, owner: type, name: str
) -> None:
    """So the test above can fail. Other ways for messages, or for confirmations, are not enough alone."""
    monkeypatch.setattr(owner, name, lambda *_: ())
    sim = mesh(0)
    sim.subscribe("x", "t")
    sim.run_for(1)
    Byzantine(sim, "m", 0, 1.0, ("drop",))
    with pytest.raises(AssertionError):
        assert max(seconds_to_confirm(sim, "a", 10, 20)[5:]) < 0.2


def test_a_relay_that_keeps_some_of_it_is_found_out_as_well() -> None:
    sim = mesh(3)
    inbox = sim.subscribe("x", "t")
    sim.run_for(1)
    Byzantine(sim, "m", 3, 0.4, ("drop",))
    taken_s = seconds_to_confirm(sim, "a", 100, 20)
    assert sim.peers["a"].node.counters["doubted_relays"] >= 1
    assert sum(taken > 0.2 for taken in taken_s) < 20, "without doubts it is about half of them"
    assert inbox.count == 100


def test_a_relay_that_mends_its_ways_is_used_again() -> None:
    sim = mesh(4)
    sim.subscribe("x", "t")
    sim.run_for(1)
    byzantine = Byzantine(sim, "m", 4, 1.0, ("drop",))
    seconds_to_confirm(sim, "a", 10, 20)
    byzantine.is_on = False
    assert min(seconds_to_confirm(sim, "a", 5, 20)) > 0.05, "still over n"
    sim.run_for(AROUND_FIRST_S)
    assert max(seconds_to_confirm(sim, "a", 5, 20)) < 0.04


def test_a_receiver_that_confirms_nothing_spoils_nobody_elses_ways() -> None:
    """x takes everything and confirms nothing; y is reached by way of m as ever."""
    sim = mesh(5)
    sim.subscribe("x", "to nobody")
    sim.subscribe("y", "t")
    sim.run_for(1)
    Byzantine(sim, "x", 5, 1.0, ("drop",))
    for _ in range(20):
        sim.acknowledge("a", "to nobody", b"vital")
        sim.run_for(1)
    assert sim.peers["a"].node.counters["resent_end_to_end"] > 20
    assert max(seconds_to_confirm(sim, "a", 5, 20)) < 0.04


def test_copies_over_disjoint_paths_lose_nothing_to_a_relay_that_drops() -> None:
    """Best effort, where an availability is asked for; the rest is lost, so the relay does drop."""
    sim = mesh(6)
    inboxes = {topic: sim.subscribe("x", topic) for topic in ("plain", "safe")}
    sim.run_for(1)
    Byzantine(sim, "m", 6, 1.0, ("drop",))
    sim.flow("a", "plain", rate=100, stop=sim.now + 2)
    sim.flow("a", "safe", rate=100, stop=sim.now + 2, availability=0.99999)
    sim.run_for(3)
    assert inboxes["plain"].count == 0
    assert inboxes["safe"].count >= 200
