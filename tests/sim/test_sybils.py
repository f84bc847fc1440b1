"""Members in numbers that dial in and pass nothing on: four for each honest one (threats 14 and 15).

The scenarios are those of GossipSub's evaluation: cold boot, covert flash, eclipse of one.
"""

from functools import partial

import pytest
from support_byzantine import Byzantine

from anabranch.overlay import sessions
from anabranch.overlay.config import Config
from anabranch.transport.simulator import Conditions, Simulator
from anabranch.transport.simulator.assurances import SimPublisher

CALM = Config(neighbours_target=0, probe_interval_s=1.0, suspect_after_s=2.0, down_after_s=4.0)
HONEST = {f"h{number}": (f"h{number - 1}",) if number else () for number in range(3)}
"""Each honest peer joins the one before it: whom its operator knows."""
SYBILS = 4 * len(HONEST)


def honest_mesh(seed: int) -> Simulator:
    sim = Simulator(seed, secured=True, check_every=100, default=Conditions(delay_s=0.01))
    for name, seeds in HONEST.items():
        sim.add_peer(name, seeds=seeds, config=CALM)
        sim.subscribe(name, "from/**")
    assert sim.run_until_true(sim.is_settled, 10)
    return sim


def add_sybils(sim: Simulator, targets: list[str], count: int) -> list[str]:
    """They dial these peers, and their links are the quickest."""
    names = [f"s{number:02d}" for number in range(count)]
    for name in names:
        for target in targets:
            sim.connect(name, target, Conditions(delay_s=0.002))
        sim.add_peer(name, seeds=targets, config=CALM)
    return names


def all_drop(sim: Simulator, sybils: list[str]) -> list[Byzantine]:
    return [Byzantine(sim, name, 1, 1.0, ("drop",)) for name in sybils]


def put_and_count(sim: Simulator, seconds: int) -> tuple[int, int]:
    """Honest peers put ten acknowledged messages a second each; how many were put, and confirmed by all."""
    publishers: dict[str, SimPublisher] = {}

    def put(name: str) -> None:
        publishers[name] = sim.acknowledge(name, f"from/{name}", b"vital")

    for number in range(10 * seconds):
        for name in HONEST:
            sim.at(sim.now + number / 10, partial(put, name))
    sim.run_for(seconds)
    sim.run_until_true(lambda: all(len(each.receivers) == each.settled for each in publishers.values()), 25)
    put_in_all = sum(len(publisher.receivers) for publisher in publishers.values())
    return put_in_all, sum(each.settled - len(each.missing) for each in publishers.values())


def test_cold_boot_four_sybils_for_each_honest_peer_stop_nothing() -> None:
    """They are there from the start, on all the shortest paths."""
    sim = honest_mesh(1)
    all_drop(sim, add_sybils(sim, list(HONEST), SYBILS))
    sim.run_for(5)
    put, confirmed = put_and_count(sim, 3)
    assert put == 3 * 10 * len(HONEST)
    assert confirmed == put
    assert sim.counters()["doubted_relays"] > SYBILS


def test_covert_flash_sybils_that_turn_at_once_stop_nothing() -> None:
    sim = honest_mesh(2)
    turncoats = all_drop(sim, add_sybils(sim, list(HONEST), SYBILS))
    for each in turncoats:
        each.is_on = False
    sim.run_for(3)
    put, confirmed = put_and_count(sim, 1)
    assert confirmed == put
    assert sim.counters()["forwarded"] > 0, "they are trusted with it"
    for each in turncoats:
        each.is_on = True
    put, confirmed = put_and_count(sim, 3)
    assert confirmed == put
    assert sim.counters()["doubted_relays"] > SYBILS


@pytest.mark.parametrize("is_defended", [True, False])
def test_eclipse_of_one_leaves_it_the_links_that_it_dials(
    monkeypatch: pytest.MonkeyPatch, is_defended: bool
) -> None:
    """Sybils take every place at the victim while the peer that it joins is away.

    Without places of its own (the whole table for whoever dials) it stays alone with them.
    """
    if not is_defended:
        monkeypatch.setattr(sessions, "OWN_PART", 1_000_000)
    sim = honest_mesh(3)
    sim.crash("h1")
    sim.add_peer("victim", seeds=("h1",), config=CALM.replace(links_max=8))
    all_drop(sim, add_sybils(sim, ["victim"], 8))
    assert sim.run_until_true(lambda: len(sim.peers["victim"].node.links.by_peer) >= 7, 20)
    sim.run_for(3)
    refused = sim.peers["victim"].node.counters.get("dropped.table_full", 0)
    assert bool(refused) is is_defended
    sim.restart("h1")
    sim.subscribe("h1", "t")
    sim.run_for(8)
    publisher = sim.acknowledge("victim", "t", b"vital")
    sim.run_for(3)
    assert ("h1" in sim.peers["victim"].node.links.by_peer) is is_defended
    assert (publisher.receivers == [("h1",)] and publisher.settled == 1) is is_defended


@pytest.mark.parametrize("own", [2, 0])
def test_whoever_dials_a_peer_in_numbers_does_not_choose_its_neighbours(own: int) -> None:
    """The victim joins nobody. With `neighbours_own_target` 0 it has none but those that dialled it."""
    sim = honest_mesh(4)
    sim.add_peer("victim", config=CALM.replace(neighbours_target=4, neighbours_own_target=own))
    sybils = add_sybils(sim, ["victim", "h0"], 6)
    all_drop(sim, sybils)
    sim.run_for(10)
    chosen = set(sim.peers["victim"].node.links.by_peer) - set(sybils)
    assert len(chosen) == own
    assert chosen <= set(HONEST)
