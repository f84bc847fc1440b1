"""Simulated peers crash, return, stand still and leave; the others go on, nothing is delivered wrongly."""

import pytest

from anabranch.overlay.config import Config
from anabranch.overlay.errors import UsageError
from anabranch.transport.simulator import Simulator

FIXED = Config(neighbours_target=0)


def triangle(seed: int = 1, config: Config = FIXED) -> Simulator:
    """Three peers, each linked to both others, who know each other."""
    sim = Simulator(seed)
    for number, name in enumerate("abc"):
        sim.add_peer(name, config=config, seeds="abc"[:number])
    assert sim.run_until_true(sim.is_settled, 5)
    return sim


def neighbours(sim: Simulator, name: str) -> set[str]:
    return set(sim.peer(name).node.links.by_peer)


def test_a_silent_crash_is_noticed_by_silence_and_a_reset_at_once() -> None:
    sim = triangle()
    sim.crash("c")
    sim.run_for(0.5)
    assert neighbours(sim, "a") == {"b", "c"}
    sim.run_for(1.5)
    assert neighbours(sim, "a") == {"b"}
    other = triangle()
    other.crash("c", reset=True)
    other.run_for(0.05)
    assert neighbours(other, "a") == {"b"}


def test_what_a_crashed_peer_had_is_gone_and_its_application_subscribes_again() -> None:
    sim = triangle()
    inbox = sim.subscribe("c", "t")
    sim.run_for(1)
    sim.publish("a", "t", 1)
    sim.run_for(1)
    sim.crash("c")
    sim.publish("a", "t", 2)
    sim.run_for(2)
    sim.restart("c")
    assert sim.run_until_true(sim.is_settled, 10)
    sim.publish("a", "t", 3)
    sim.run_for(1)
    assert [m.payload for m in inbox.messages] == [1, 3]
    assert sim.ledger.missing(0, sim.now) == []  # nobody subscribed when 2 was put


def test_a_restarted_peer_is_not_mistaken_for_its_former_self() -> None:
    """Its sequences begin again at 0: by the epoch they are news, not repetitions."""
    sim = triangle()
    inbox = sim.subscribe("b", "t")
    sim.run_for(1)
    sim.publish("a", "t", *range(50))
    sim.run_for(1)
    before = sim.peer("a").node.identity.epoch
    sim.crash("a", reset=True)
    sim.restart("a")
    assert sim.run_until_true(sim.is_settled, 10)
    sim.publish("a", "t", *range(100, 110))
    sim.run_for(1)
    assert [m.payload for m in inbox.messages] == [*range(50), *range(100, 110)]
    assert [m.sequence for m in inbox.messages][-10:] == list(range(10))
    assert sim.peer("a").node.identity.epoch > before
    assert sim.counters(["b"]).get("dropped.duplicate", 0) == 0
    assert all(link.epoch > before for link in [sim.peer("b").node.links.by_peer["a"]])


def test_records_of_the_former_self_do_not_outlive_a_restart() -> None:
    sim = triangle()
    gone = sim.subscribe("c", "old/topic")
    sim.run_for(1)
    sim.unsubscribe(gone)
    sim.subscribe("c", "new/topic")
    sim.crash("c")
    sim.restart("c")
    assert sim.run_until_true(sim.is_settled, 10)
    for name in "ab":
        assert sim.peer(name).node.interests.patterns_of("c") == {"new/topic"}


def test_a_peer_that_returns_with_an_older_clock_still_gets_its_say() -> None:
    """The mesh remembers a later epoch of that name: the peer outbids it instead of staying unheard."""
    sim = triangle()
    sim.peer("c").node.identity.epoch += 10**12
    sim.peer("c").node.subscribe("late", sim.peer("c").clock(sim.now))
    sim.run_for(1)
    sim.crash("c", reset=True)
    sim.restart("c")
    inbox = sim.subscribe("c", "t")
    assert sim.run_until_true(sim.is_settled, 15)
    sim.publish("a", "t", b"heard")
    sim.run_for(1)
    assert [m.payload for m in inbox.messages] == [b"heard"]


def test_a_paused_peer_reads_what_waited_when_it_goes_on() -> None:
    sim = triangle()
    inbox = sim.subscribe("c", "t")
    sim.run_for(1)
    sim.pause("c")
    sim.publish("a", "t", 1, 2)
    sim.run_for(0.3)
    assert inbox.count == 0
    sim.resume("c")
    sim.run_for(0.5)
    assert [m.payload for m in inbox.messages] == [1, 2]
    assert neighbours(sim, "c") == {"a", "b"}


def test_a_long_pause_makes_the_others_give_up_and_take_back() -> None:
    sim = triangle()
    sim.pause("c")
    sim.run_for(4)
    assert neighbours(sim, "a") == {"b"}
    sim.resume("c")
    assert sim.run_until_true(sim.is_settled, 15)
    assert "c" in neighbours(sim, "a") | neighbours(sim, "b")


def test_one_peer_that_stands_still_does_not_slow_the_others() -> None:
    sim = triangle()
    inbox = sim.subscribe("b", "t")
    sim.subscribe("c", "t")
    sim.run_for(1)
    sim.pause("c")
    begin = sim.now
    sim.flow("a", "t", rate=200, size=1000, stop=begin + 2)
    sim.run_for(3)
    assert inbox.count == 400
    assert max(m.time - m.published_at for m in inbox.messages) < 0.02


def test_a_peer_that_leaves_in_order_is_forgotten_at_once() -> None:
    sim = triangle()
    sim.subscribe("c", "t")
    sim.run_for(1)
    sim.leave("c")
    sim.run_for(0.1)
    for name in "ab":
        assert neighbours(sim, name) == {"a", "b"} - {name}
        assert sim.peer(name).node.destinations("t") == ()


def test_faults_that_make_no_sense_are_refused() -> None:
    sim = triangle()
    with pytest.raises(UsageError, match="'b' is running: only a crashed one"):
        sim.restart("b")
    with pytest.raises(UsageError, match="'b' is running: only a paused one"):
        sim.resume("b")
    sim.crash("b")
    with pytest.raises(UsageError, match="'b' crashed already"):
        sim.crash("b")
    with pytest.raises(UsageError, match="its application can do nothing"):
        sim.publish("b", "t", 1)
    with pytest.raises(UsageError, match="no peer 'z'"):
        sim.crash("z")
