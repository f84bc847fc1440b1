"""Who this node is, and the randomness it was given."""

from typing import Protocol

import msgspec


class Rng(Protocol):
    """The part of `random.Random` that the core uses; always given, never made here."""

    def uniform(self, a: float, b: float, /) -> float:
        """A number between the two."""

    def randrange(self, stop: int, /) -> int:
        """A whole number below."""


class Identity(msgspec.Struct):
    """This peer's name and incarnation. The epoch moves only when the mesh remembers a later one of us."""

    peer: str
    epoch: int
    """µs; larger for every start of the same peer."""
    instance: int
    """Random per node."""
