"""`anabranch.testing.Mesh`, as users' tests use it."""

import doctest

import pytest

import anabranch.testing
from anabranch.overlay.errors import UsageError
from anabranch.testing import Mesh, MeshMessage


def test_the_example_of_the_docstring_is_true() -> None:
    result = doctest.testmod(anabranch.testing)
    assert result.attempted > 5
    assert result.failed == 0


def test_peers_join_those_that_are_there_and_clients_attach_to_one() -> None:
    mesh = Mesh("a", "b", "c")
    mesh.add_peer("edge", joins=["c"])
    mesh.add_peer("phone", client=True)
    mesh.settle()
    assert mesh.links("b")[:2] == ["a", "c"]
    assert "edge" not in mesh.links("a")
    assert len(mesh.links("phone")) == 1
    assert mesh.path("a", "edge") == ("a", "c", "edge")
    assert mesh.peers == ["a", "b", "c", "edge", "phone"]


def test_an_inbox_tells_what_arrived_and_complains_about_what_did_not() -> None:
    mesh = Mesh("a", "b", delay=0.02)
    inbox = mesh.subscribe("b", "t/*")
    mesh.settle()
    mesh.publish("a", "t/1", {"n": 1}, deadline=0.5)
    mesh.publish("a", "t/2", b"raw", deadline=0.001)
    mesh.run_for(0.1)
    inbox.assert_payloads({"n": 1}, b"raw")
    first, second = inbox.messages
    assert (first.topic, first.origin, first.path, first.late) == ("t/1", "a", ("a", "b"), False)
    assert second.late
    assert first.age == pytest.approx(0.02, abs=0.002)
    assert first.arrived_at - first.put_at == pytest.approx(0.02)
    with pytest.raises(AssertionError, match=r"b got .* for 't/\*', expected \['other'\]"):
        inbox.assert_payloads("other")
    inbox.clear()
    assert len(inbox) == 0


def test_a_callback_may_answer() -> None:
    mesh = Mesh("asker", "answerer")

    def answer(message: MeshMessage) -> None:
        mesh.publish("answerer", "answer", message.payload)

    answers = mesh.subscribe("asker", "answer")
    mesh.subscribe("answerer", "question", answer)
    mesh.settle()
    mesh.publish("asker", "question", 42)
    mesh.run_until(lambda: len(answers) == 1, within=1.0)
    answers.assert_payloads(42)


def test_faults_do_what_their_names_say() -> None:
    mesh = Mesh("a", "b", "c", seed=3)
    inbox = mesh.subscribe("c", "t")
    mesh.settle()
    mesh.fail("a", "c")
    mesh.run_for(2.0)
    assert mesh.path("a", "c") == ("a", "b", "c")
    mesh.restore("a", "c")
    mesh.run_until(lambda: mesh.path("a", "c") == ("a", "c"), within=20.0)
    mesh.partition(["a"], ["b", "c"])
    mesh.run_for(2.0)
    assert mesh.path("a", "c") == ()
    mesh.heal()
    mesh.settle()
    mesh.pause("c")
    mesh.publish("a", "t", "waits")
    mesh.run_for(0.2)
    assert inbox.payloads == []
    mesh.resume("c")
    mesh.run_for(0.2)
    inbox.assert_payloads("waits")
    mesh.crash("c")
    mesh.run_for(2.0)
    assert mesh.links("a") == ["b"]
    mesh.restart("c")
    mesh.settle()
    mesh.link("a", "c", delay=0.2, loss=0.0)
    mesh.link("b", "c", delay=0.2)
    mesh.run_for(0.1)
    mesh.publish("a", "t", "slow")
    mesh.run_for(0.15)
    inbox.assert_payloads("waits")
    mesh.run_for(0.1)
    inbox.assert_payloads("waits", "slow")
    mesh.leave("b")
    mesh.run_for(0.5)
    assert mesh.links("a") == ["c"]


def test_loss_is_named_with_the_first_message_that_is_missing() -> None:
    mesh = Mesh("a", "b")
    mesh.subscribe("b", "t")
    mesh.settle()
    mesh.publish("a", "t", 1)
    mesh.run_for(0.5)
    mesh.assert_nothing_lost()
    mesh.fail("a", "b")
    mesh.publish("a", "t", 2)
    mesh.run_for(0.5)
    with pytest.raises(AssertionError, match=r"1 messages did not arrive; the first: 't' number 1 of a"):
        mesh.assert_nothing_lost()


def test_a_mesh_that_cannot_settle_says_who_is_apart() -> None:
    mesh = Mesh("a", "b")
    mesh.partition(["a"])
    mesh.run_for(3.0)
    with pytest.raises(AssertionError, match="don't reach each other: a, b"):
        mesh.settle(within=1.0)
    with pytest.raises(AssertionError, match="does not hold 1"):
        mesh.run_until(lambda: False, within=1.0)


def test_counters_are_those_of_the_peers_asked_for() -> None:
    mesh = Mesh("a", "b", "c")
    mesh.subscribe("b", "t")
    mesh.settle()
    mesh.publish("a", "t", *range(5))
    mesh.run_for(0.5)
    assert mesh.counters("a")["published"] == 5
    assert mesh.counters("b")["delivered"] == 5
    assert mesh.counters()["published"] == 5


def test_unknown_peers_are_refused_by_name() -> None:
    mesh = Mesh("a")
    for call in (
        lambda: mesh.fail("a", "z"),
        lambda: mesh.path("a", "z"),
        lambda: mesh.counters("z"),
        lambda: mesh.publish("z", "t", 1),
    ):
        with pytest.raises(UsageError, match="no peer 'z'"):
            call()
    with pytest.raises(UsageError, match="'a' exists already"):
        mesh.add_peer("a")
