"""Persistent publishers and durable subscriptions in virtual time: anybody crashes at any moment, by seed."""

import os
import random

import pytest

from anabranch.overlay.config import Config
from anabranch.transport.simulator import Conditions, Simulator

SEEDS = int(os.environ.get("GUARANTEE_SEEDS", "20"))
BLOCK = 10
TOPICS = ("t/1", "t/2")


def all_there(sim: Simulator, durables: dict) -> bool:
    for peer in sim.peers.values():
        if peer.store is None:
            continue
        for topic, payloads in peer.store.accepted.items():
            key = (peer.name, peer.store.streams[topic].key)
            for durable in durables.values():
                if len(durable.messages.get(key, ())) < len(payloads):
                    return False
    return True


def run_seed(seed: int) -> Simulator:
    """`SimDurable.take` raises at the first message that is repeated after acceptance or out of turn."""
    rng = random.Random(f"persistent/{seed}")
    sim = Simulator(seed, check_every=5, default=Conditions(delay_s=rng.uniform(0.001, 0.02)))
    names = [f"p{number}" for number in range(rng.randint(3, 5))]
    for number, name in enumerate(names):
        seeds = rng.sample(names[:number], min(number, 2))
        sim.add_peer(name, config=Config(recovery=rng.random() < 0.7), seeds=seeds)
    assert sim.run_until_true(sim.is_settled, 10)
    for name in names:
        sim.peer(name).disk()
    durables = {
        name: sim.subscribe_durably(name, "t/*", "keeper", accept_every=rng.choice((1, 3)))
        for name in rng.sample(names, 2)
    }
    assert sim.run_until_true(sim.is_settled, 10)
    begin = sim.now

    def put(turn: int) -> None:
        name = rng.choice(names[:2])
        if sim.peer(name).is_running:
            count = rng.choice((1, 5, 60))
            sim.persist(name, rng.choice(TOPICS), *(f"{turn}/{each}".encode() for each in range(count)))

    def fault() -> None:
        name, other = rng.sample(names, 2)
        kind = rng.choice(("crash", "crash", "hole", "loss", "full"))
        if kind == "crash" and sim.peer(name).is_running:
            sim.crash(name, reset=rng.random() < 0.5)
            sim.at(sim.now + rng.choice((0.1, 1, 3)), lambda: sim.restart(name))
        elif kind in ("hole", "loss"):
            bad = {"blackhole": True} if kind == "hole" else {"loss": 0.3}
            sim.change(name, other, **bad)
            sim.at(sim.now + rng.choice((0.5, 3)), lambda: sim.set_conditions(name, other, None))
            sim.at(sim.now + 3, lambda: sim.set_conditions(other, name, None))
        elif kind == "full":
            for durable in durables.values():
                durable.room = rng.randint(0, 10)
                sim.at(sim.now + 1, lambda durable=durable: setattr(durable, "room", 2**30))

    for turn in range(60):
        sim.at(begin + rng.uniform(0, 8), lambda turn=turn: put(turn))
    for _ in range(rng.randint(4, 10)):
        sim.at(begin + rng.uniform(0.1, 8), fault)
    sim.run_until(begin + 13)
    for durable in durables.values():
        durable.room = 2**30
    assert sim.run_until_true(lambda: all_there(sim, durables), 60, every_s=0.5), f"seed {seed}: lost"
    for peer in sim.peers.values():
        for topic, payloads in (peer.store.accepted if peer.store else {}).items():
            key = (peer.name, peer.store.streams[topic].key)
            for durable in durables.values():
                seen = durable.messages[key]
                assert [seen[number] for number in range(len(seen))] == payloads, f"seed {seed}: order"
    return sim


@pytest.mark.parametrize("first", range(0, SEEDS, BLOCK))
def test_every_message_on_the_disk_arrives_in_order_and_never_after_acceptance(first: int) -> None:
    delivered = 0
    for seed in range(first, first + BLOCK):
        delivered += run_seed(seed).counters()["delivered"]
    assert delivered > 1000


def test_messages_wait_for_a_subscriber_that_is_away_and_go_when_all_have_them() -> None:
    sim = Simulator(2, default=Conditions(delay_s=0.01))
    for name, seeds in (("a", ()), ("b", ("a",)), ("c", ("b",))):
        sim.add_peer(name, config=Config(neighbours_target=0), seeds=seeds)
    durable = sim.subscribe_durably("c", "t/*", "keeper")
    assert sim.run_until_true(sim.is_settled, 10)
    sim.crash("c")
    for number in range(300):
        store = sim.persist("a", "t/1", number)
        sim.run_for(0.01)
    sim.crash("a", reset=True)
    sim.run_for(300)  # long enough for everybody to forget everything that is not on a disk
    assert store.kept == 300
    sim.restart("a")
    sim.restart("c")
    assert sim.run_until_true(lambda: store.kept == 0, 20)
    ((_, seen),) = durable.messages.items()
    assert list(seen.values()) == list(range(300))
    assert durable.again == 0
