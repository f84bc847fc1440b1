"""Faults of a mesh, drawn from its seed: peers die, stand still, are parted, and mostly come back."""

import random
from collections.abc import Callable

from anabranch.transport.simulator import Simulator


class Faults:
    """A base of random meshes."""

    reset_share = 0.5
    """Of crashes: how many end connections at once, as the death of a process does."""

    def __init__(self, sim: Simulator, rng: random.Random, names: list[str]) -> None:
        self.sim = sim
        self.rng = rng
        self.names = names

    def crash(self) -> None:
        """A peer dies, and may come back."""
        name = self.rng.choice(self.names)
        if self.sim.peer(name).is_running:
            self.sim.crash(name, reset=self.rng.random() < self.reset_share)
            self.later(lambda: self.revive(name))

    def pause(self) -> None:
        """A peer stands still for a moment or long enough to be given up."""
        name = self.rng.choice(self.names)
        if self.sim.peer(name).is_running:
            self.sim.pause(name)
            self.later(lambda: self.revive(name))

    def partition(self) -> None:
        """The network falls in two."""
        self.sim.partition(self.rng.sample(self.names, self.rng.randint(1, len(self.names) - 1)))
        self.later(self.sim.heal)

    def later(self, call: Callable[[], None]) -> None:
        """Within some seconds, often within those in which nobody noticed yet."""

        def act() -> None:
            call()
            self.changed()

        self.sim.at(self.sim.now + self.rng.choice((0.05, 0.5, 1.5, 4.0)) * self.rng.uniform(0.5, 1.5), act)

    def revive(self, name: str) -> None:
        """Bring a peer back, whatever it is in."""
        state = self.sim.peer(name).state.value
        if state == "crashed":
            self.sim.restart(name)
        elif state == "paused":
            self.sim.resume(name)

    def changed(self) -> None:
        """Something is different from now on."""
