"""Acknowledged publishers with attributes and for selected sites: who must confirm, and who gets nothing."""

import os
import random
from functools import partial

import pytest

from anabranch.overlay.config import Config
from anabranch.overlay.qos import Role, Unconfirmed
from anabranch.transport.simulator import Conditions, Simulator
from anabranch.transport.simulator.assurances import SimPublisher

SEEDS = int(os.environ.get("GUARANTEE_SEEDS", "4"))
FIXED = Config(neighbours_target=0)


def star(leaves: str = "bcd", **conditions: object) -> Simulator:
    """`a` in the middle."""
    sim = Simulator(1, default=Conditions(delay_s=0.005).replace(**conditions))
    sim.add_peer("a", config=FIXED)
    for name in leaves:
        sim.add_peer(name, config=FIXED, seeds=["a"])
    assert sim.run_until_true(sim.is_settled, 10)
    return sim


def test_those_who_match_when_it_is_put_must_confirm_and_nobody_else_gets_it() -> None:
    sim = star()
    inboxes = {name: sim.subscribe(name, "t") for name in "bcd"}
    for name, load in (("b", 0.9), ("c", 0.8), ("d", 0.1)):
        sim.set_attributes(name, {"load": load})
    sim.run_for(1)
    before = sim.bundles_sent()
    both = sim.acknowledge("a", "t", b"1", to="load > 0.5")
    sim.run_for(0.5)
    assert both.receivers == [("b", "c")]
    assert (both.settled, both.confirmed(0), both.missing) == (1, ("b", "c"), {})
    assert sim.bundles_sent() - before == 4, "two messages, two confirmations"
    assert sim.acknowledge("a", "t", b"2", to="load > 0.7 and load < 1") is both, "the same set, one stream"
    one = sim.acknowledge("a", "t", b"3", to="load < 0.5")
    sim.run_for(0.5)
    assert (both.settled, one.settled, one.confirmed(0)) == (2, 1, ("d",))
    got = {name: [message.payload for message in inbox.messages] for name, inbox in inboxes.items()}
    assert got == {"b": [b"1", b"2"], "c": [b"1", b"2"], "d": [b"3"]}


def test_filters_of_subscriptions_decide_who_must_confirm() -> None:
    sim = star()
    high = sim.subscribe("b", "t", where="level > 3")
    sim.subscribe("c", "t", where="level > 30")
    whole = sim.subscribe("d", "t")
    sim.run_for(1)
    some = sim.acknowledge("a", "t", b"1", attributes={"level": 5})
    plain = sim.acknowledge("a", "t", b"2")
    sim.run_for(0.5)
    assert (some.receivers, plain.receivers) == ([("b", "d")], [("d",)])
    assert (some.settled, plain.settled) == (1, 1)
    assert not some.missing
    assert [message.payload for message in high.messages] == [b"1"]
    assert {message.payload for message in whole.messages} == {b"1", b"2"}


def test_a_site_that_became_another_does_not_deliver_and_is_named() -> None:
    sim = star()
    inbox, other = sim.subscribe("b", "t"), sim.subscribe("c", "t")
    for name in "bc":
        sim.set_attributes(name, {"on": True})
    sim.run_for(1)
    stream = sim.acknowledge("a", "t", b"1", to="on")
    sim.run_for(0.5)
    sim.acknowledge("a", "t", b"2", to="on")
    sim.set_attributes("b", {"on": False})
    sim.run_for(0.001)
    sim.acknowledge("a", "t", b"3", to="on or not on")
    sim.run_for(0.5)
    assert stream.settled == 3
    assert stream.missing == {1: {"b": Unconfirmed.NOT_SELECTED}}
    assert stream.confirmed(1) == ("c",)
    assert [message.payload for message in inbox.messages] == [b"1", b"3"]
    assert [message.payload for message in other.messages] == [b"1", b"2", b"3"]
    assert sim.counters(["b"])["dropped.not_selected"] == 1


def test_a_publisher_among_the_selected_confirms_to_itself() -> None:
    sim = star("b")
    inbox = sim.subscribe("a", "t")
    sim.set_attributes("a", {"on": True})
    stream = sim.acknowledge("a", "t", b"1", to="on")
    sim.run_for(0.2)
    assert (stream.settled, stream.confirmed(0)) == (1, ("a",))
    assert len(inbox.messages) == 1


def test_a_selected_peer_that_leaves_before_it_confirms_is_named() -> None:
    sim = star()
    inbox = sim.subscribe("b", "t")
    sim.set_attributes("b", {"on": True})
    sim.run_for(1)
    sim.change("a", "b", blackhole=True)
    stream = sim.acknowledge("a", "t", b"1", to="on")
    sim.run_for(0.1)
    sim.unsubscribe(inbox)
    sim.change("a", "b", blackhole=False)
    sim.run_for(20)
    assert stream.settled == 1
    assert stream.missing[0]["b"] in (Unconfirmed.LEFT, Unconfirmed.NO_SUBSCRIBER)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_under_faults_what_is_confirmed_arrived_and_what_is_refused_did_not(seed: int) -> None:
    """Sites that change all the time, losses, a crash; the simulator checks each confirmation."""
    rng = random.Random(f"acknowledged selections/{seed}")
    sim = Simulator(seed, default=Conditions(delay_s=0.01, jitter_s=0.005))
    names = [f"p{number}" for number in range(6)]
    for number, name in enumerate(names):
        sim.add_peer(name, config=Config(confirm_limit_s=8.0), seeds=names[:number][-2:])
    history: dict[str, list[tuple[float, bool]]] = {name: [] for name in names}

    def become(name: str) -> None:
        if sim.peer(name).is_running:
            history[name].append((sim.now, rng.random() < 0.6))
            sim.set_attributes(name, {"on": history[name][-1][1]})

    for name in names:
        become(name)
    inboxes = {name: sim.subscribe(name, "t") for name in names}
    assert sim.run_until_true(sim.is_settled, 20)
    sim.run_for(1)
    begin = sim.now
    where: dict[int, tuple[SimPublisher, int]] = {}

    def put(number: int) -> None:
        stream = sim.acknowledge("p0", "t", number, to="on")
        where[number] = stream, len(stream.receivers) - 1

    for number in range(60):
        sim.at(begin + rng.random() * 6, partial(put, number))
        sim.at(begin + rng.random() * 6, partial(become, rng.choice(names)))
    for _ in range(3):
        a, b = rng.sample(names, 2)
        at = begin + rng.random() * 4
        sim.at(at, partial(sim.change, a, b, loss=0.4))
        sim.at(at + 1.5, partial(sim.change, a, b, loss=0.0))
    if seed % 2:
        victim, at = rng.choice(names[1:]), begin + 1 + rng.random() * 3
        sim.at(at, partial(sim.crash, victim))
        sim.at(at + 1.5, partial(sim.restart, victim))
    sim.run_for(30)
    got = set()
    for name, inbox in inboxes.items():
        for message in inbox.messages:
            assert [on for since, on in history[name] if since <= message.time][-1], (
                f"seed {seed}: {name} was off"
            )
            got.add((message.payload, name))
        assert len(inbox.messages) == sum(name == each for _, each in got), f"seed {seed}: something twice"
    for number, (stream, sequence) in where.items():
        assert stream.settled > sequence, f"seed {seed}: nothing is left open"
        for name in stream.receivers[sequence]:
            reason = stream.missing.get(sequence, {}).get(name)
            if reason is None:
                assert (number, name) in got, f"seed {seed}: {name} confirmed {number}"
            elif reason is Unconfirmed.NOT_SELECTED:
                assert (number, name) not in got, f"seed {seed}: {name} refused {number}"
        assert {name for payload, name in got if payload == number} <= set(stream.receivers[sequence])
    assert len(got) > 60
    if not seed % 2:
        assert all(
            reason is Unconfirmed.NOT_SELECTED
            for stream, _ in where.values()
            for missing in stream.missing.values()
            for reason in missing.values()
        ), f"seed {seed}: losses alone leave nothing unconfirmed"


def test_light_clients_publish_to_selected_sites_and_are_selected() -> None:
    sim = star("bc")
    client = Config(role=Role.CLIENT)
    for name, seed in (("x", "b"), ("y", "c")):
        sim.add_peer(name, config=client, seeds=[seed])
    inbox = sim.subscribe("y", "t", where="level > 1")
    sim.set_attributes("y", {"on": True})
    sim.subscribe("c", "t")
    assert sim.run_until_true(sim.is_settled, 10)
    sim.run_for(1)
    stream = sim.acknowledge("x", "t", b"1", attributes={"level": 2}, to="on")
    sim.acknowledge("x", "t", b"2", attributes={"level": 1}, to="on")
    sim.run_for(1)
    assert (stream.receivers, stream.settled, stream.missing) == ([("y",)], 1, {})
    assert [message.payload for message in inbox.messages] == [b"1"]


def test_refusals_that_get_lost_are_told_again() -> None:
    """Every second message finds a site that has just changed, over links that lose a third of all."""
    sim = star("b")
    inbox = sim.subscribe("b", "t")
    sim.set_attributes("b", {"on": True})
    sim.run_for(1)
    sim.change("a", "b", loss=0.3)
    stream = sim.acknowledge("a", "t", 0, to="on")
    for number in range(1, 60):
        sim.acknowledge("a", "t", number, to="on or n = 0")
        sim.set_attributes("b", {"on": number % 2 == 0, "n": 0 if number % 4 == 0 else 1})
        sim.run_for(0.02)
    sim.change("a", "b", loss=0.0)
    sim.run_for(30)
    streams = [each for each in sim.peer("a").assured.values() if each.receivers]
    assert all(each.settled == len(each.receivers) for each in streams)
    refused = [reason for each in streams for missing in each.missing.values() for reason in missing.values()]
    confirmed = sum(bool(each.confirmed(number)) for each in streams for number in range(each.settled))
    assert set(refused) == {Unconfirmed.NOT_SELECTED}
    assert len(refused) == sim.counters(["b"])["dropped.not_selected"] > 3
    assert confirmed == len(inbox.messages)
    assert stream in streams
