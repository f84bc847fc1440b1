"""Members in numbers that dial in and pass nothing on: four for each honest one (threats 14 and 15).

The scenarios are those of GossipSub's evaluation: cold boot, covert flash, eclipse of one.
"""

import pytest
from support_byzantine import Byzantine

from anabranch.overlay import sessions
from anabranch.overlay.config import Config
from anabranch.transport.simulator import Conditions, Simulator

HONEST = 5
SYBILS = 4 * HONEST
RING = {f"h{number}": (f"h{number - 1}",) if number else () for number in range(HONEST)}
"""Each honest peer joins the one before it: whom its operator knows."""


def honest_mesh(seed: int, config: Config | None = None) -> Simulator:
    sim = Simulator(seed, secured=True, default=Conditions(delay_s=0.01))
    for name, seeds in RING.items():
        sim.add_peer(name, seeds=seeds, config=config or Config())
    assert sim.run_until_true(sim.is_settled, 10)
    return sim


def add_sybils(sim: Simulator, targets: list[str], count: int = SYBILS) -> list[str]:
    """They dial these peers, and their links are the quickest."""
    names = [f"s{number:02d}" for number in range(count)]
    for name in names:
        for target in targets:
            sim.connect(name, target, Conditions(delay_s=0.002))
        sim.add_peer(name, seeds=targets, config=Config(neighbours_target=0))
    return names
