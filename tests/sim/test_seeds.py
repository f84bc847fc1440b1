"""Random meshes under random faults: the promises always hold, and after healing everything arrives.

A failure prints its seed; `run_seed(17)` repeats it exactly.
"""

import os
import random

import pytest
from support_faults import Faults

from anabranch.overlay.config import Config
from anabranch.overlay.qos import Role
from anabranch.transport.simulator import Conditions, Missing, Simulator

SEEDS = int(os.environ.get("SIMULATION_SEEDS", "200"))
BLOCK = 10
FAULTS_S = 10.0
REFRESH_S = 5.0
CHECK_EVERY = 5
"""Invariants are checked after every n-th event; which peer that hits is as good as random."""
NOTICE_S = 2.0
"""After the last fault, until links that died unnoticed are noticed."""
CONVERGENCE_S = 20.0
"""Until everything arrives: a dial that just failed waits up to 6.25 s, then 3 s for a hello that got lost
with its link; a record that got lost is repeated within 5 s and takes as long again on its way."""

TOPICS = ("a/x", "a/y", "b/x", "b/y/z", "c")
PATTERNS = ("a/*", "b/**", "**", "a/x", "*/x", "c", "b/y/*")


class RandomMesh(Faults):
    """One random mesh, its faults and its traffic, all drawn from the seed."""

    def __init__(self, seed: int) -> None:
        rng = random.Random(f"mesh/{seed}")
        default = Conditions(delay_s=rng.uniform(0.001, 0.03))
        sim = Simulator(seed, check_every=CHECK_EVERY, default=default)
        self.peers = [f"p{number}" for number in range(rng.randint(4, 8))]
        self.clients = [f"c{number}" for number in range(rng.choice((0, 0, 1, 2)))]
        super().__init__(sim, rng, self.peers + self.clients)
        target = rng.choice((0, 2, 4))
        for number, name in enumerate(self.peers):
            seeds = rng.sample(self.peers[:number], min(number, rng.randint(1, 2)))
            config = _config(neighbours_target=target)
            sim.add_peer(name, config=config, seeds=seeds, clock_offset_s=self.offset())
        for name in self.clients:
            seeds = rng.sample(self.peers, 3)
            sim.add_peer(name, config=_config(role=Role.CLIENT), seeds=seeds, clock_offset_s=self.offset())
        for a in self.names:
            for b in self.names:
                if a != b and rng.random() < 0.3:
                    sim.set_conditions(a, b, self.bad_conditions())
        for name in self.names:
            for pattern in rng.sample(PATTERNS, rng.randint(0, 2)):
                sim.subscribe(name, pattern)
        for name in rng.sample(self.names, 3):
            sim.flow(
                name, rng.choice(TOPICS), rate=rng.choice((2, 10, 30)), start=rng.random(), stop=FAULTS_S
            )
        for _ in range(rng.randint(4, 12)):
            sim.at(rng.uniform(0.5, FAULTS_S - 1.0), self.fault)

    def offset(self) -> float:
        """Clocks agree on nothing."""
        return self.rng.choice((0.0, 1000.0, self.rng.uniform(0, 1e6)))

    def bad_conditions(self) -> Conditions:
        """A network nobody would want."""
        rng = self.rng
        return Conditions(
            delay_s=rng.uniform(0.001, 0.08),
            jitter_s=rng.choice((0.0, 0.002, 0.05)),
            loss=rng.choice((0.0, 0.0, 0.01, 0.2)),
            reorder=rng.choice((0.0, 0.0, 0.05)),
            rate_bytes_s=rng.choice((None, None, 20_000.0)),
        )

    def fault(self) -> None:
        """Something goes wrong, mostly for a while."""
        kinds = (self.crash, self.partition, self.pause, self.blackhole, self.worsen, self.change_mind)
        self.rng.choice(kinds)()

    def blackhole(self) -> None:
        """One direction or both carry nothing."""
        a, b = self.rng.sample(self.names, 2)
        self.sim.set_conditions(a, b, Conditions(blackhole=True))
        if self.rng.random() < 0.7:
            self.sim.set_conditions(b, a, Conditions(blackhole=True))

    def worsen(self) -> None:
        """One direction changes."""
        a, b = self.rng.sample(self.names, 2)
        self.sim.set_conditions(a, b, self.bad_conditions())

    def change_mind(self) -> None:
        """An application subscribes, or cancels."""
        mine = [s for s in self.sim.ledger.subscriptions if s.is_active and self.sim.peer(s.peer).is_running]
        if mine and self.rng.random() < 0.5:
            self.sim.unsubscribe(self.rng.choice(mine))
            return
        name = self.rng.choice(self.names)
        if self.sim.peer(name).is_running:
            self.sim.subscribe(name, self.rng.choice(PATTERNS))

    def heal(self) -> None:
        """Everything works again."""
        self.sim.heal()
        for name in self.names:
            self.revive(name)
        for a in self.names:
            for b in self.names:
                self.sim.set_conditions(a, b, None)


def _config(**changes: object) -> Config:
    return Config(record_refresh_s=REFRESH_S, record_lifetime_s=17.0, orphan_grace_s=6.0).replace(**changes)


def run_seed(seed: int) -> Simulator:
    """The whole story of one seed; AssertionError where the mesh fails."""
    mesh = RandomMesh(seed)
    sim = mesh.sim
    sim.run_until(FAULTS_S)
    mesh.heal()
    sim.run_for(NOTICE_S)
    limit = FAULTS_S + CONVERGENCE_S
    missing = None
    while missing is None or (missing and sim.now < limit):
        settled = sim.run_until_true(sim.is_settled, limit - sim.now, every_s=0.2)
        assert settled, f"seed {seed}: {CONVERGENCE_S} s after the last fault, peers don't know of each other"
        missing = _publish_everywhere(mesh)
    assert not missing, f"seed {seed}: {len(missing)} messages missing, the first: {missing[:3]}"
    return sim


def _publish_everywhere(mesh: RandomMesh) -> list[Missing]:
    """Everybody publishes everything; what did not arrive."""
    sim = mesh.sim
    begin = sim.now
    for turn in range(5):
        for name in mesh.names:
            for topic in TOPICS:
                sim.publish(name, topic, {"turn": turn, "from": name}, b"plain")
        sim.run_for(0.2)
    end = sim.now
    sim.run_for(1.0)
    return sim.ledger.missing(begin, end)


@pytest.mark.parametrize("first", range(0, SEEDS, BLOCK))
def test_promises_hold_under_faults_and_everything_arrives_after_healing(first: int) -> None:
    for seed in range(first, min(first + BLOCK, SEEDS)):
        sim = run_seed(seed)
        assert sim.ledger.delivered_count > 0 or not sim.ledger.subscriptions
