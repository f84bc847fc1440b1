"""The network between simulated peers: conditions per direction of a pair, partitions. Moves no frames."""

import random
from collections.abc import Iterable, Sequence

import msgspec

from anabranch.overlay.errors import UsageError

REORDER_EXTRA_S = 0.005
"""A frame picked for reordering is held back by up to twice its delay plus this, so that others pass it."""


class Conditions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one direction between two peers does to frames."""

    delay_s: float = 0.01
    """One way."""
    jitter_s: float = 0.0
    """Each frame takes up to this much longer, evenly distributed; frames still keep their order."""
    loss: float = 0.0
    """Share of frames that vanish."""
    loss_after_loss: float | None = None
    """Share of frames that vanish after one that did, when losses come in bursts (Gilbert's model); `loss`
    stays the share of all frames. None: each frame is lost on its own."""
    reorder: float = 0.0
    """Share of frames that are held back, so that later ones overtake them."""
    rate_bytes_s: float | None = None
    """What the wire carries at most; the rest waits in the sender's link queue."""
    blackhole: bool = False
    """Nothing arrives, and nobody is told."""

    def __post_init__(self) -> None:
        for name in ("delay_s", "jitter_s"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise UsageError(f"{name} = {getattr(self, name)}: must be a time of 0 s or more")
        for name in ("loss", "reorder"):
            if not 0 <= getattr(self, name) <= 1:
                raise UsageError(f"{name} = {getattr(self, name)}: must be a share from 0 to 1")
        if self.loss_after_loss is not None and not 0 <= self.loss_after_loss < 1:
            raise UsageError(
                f"loss_after_loss = {self.loss_after_loss}: must be a share of at least 0 and below 1"
            )
        if self.rate_bytes_s is not None and not self.rate_bytes_s > 0:
            raise UsageError(
                f"rate_bytes_s = {self.rate_bytes_s}: must be positive; leave it out for no limit"
            )

    def replace(self, **changes: object) -> "Conditions":
        """A copy with other values, checked again."""
        unknown = sorted(set(changes) - set(self.__struct_fields__))
        if unknown:
            raise UsageError(f"unknown condition {unknown[0]!r}: one of {', '.join(self.__struct_fields__)}")
        return msgspec.structs.replace(self, **changes)

    @property
    def is_plain(self) -> bool:
        """Whether a frame takes exactly the delay, whatever else is on the wire."""
        return not (
            self.jitter_s or self.loss or self.reorder or self.blackhole or self.rate_bytes_s is not None
        )

    def is_lost(self, rng: random.Random, after_loss: bool) -> bool:
        """Whether the next frame vanishes, given what happened to the one before it."""
        loss, again = self.loss, self.loss_after_loss
        if again is not None and loss < 1:
            loss = again if after_loss else min(1.0, loss * (1 - again) / (1 - loss))
        return rng.random() < loss

    def travel_s(self, rng: random.Random) -> float:
        """How long a frame is under way now."""
        return self.delay_s + (rng.random() * self.jitter_s if self.jitter_s else 0.0)

    def held_back_s(self, rng: random.Random) -> float:
        """How much longer a reordered frame takes."""
        return rng.random() * (2 * self.delay_s + REORDER_EXTRA_S)


class Network:
    """Who reaches whom, and how. By default everybody reaches everybody."""

    def __init__(self, default: Conditions) -> None:
        self.default = default
        self._pairs: dict[tuple[str, str], Conditions] = {}
        self._side: dict[str, int] = {}
        self._cut: dict[Conditions, Conditions] = {}

    def get(self, source: str, target: str) -> Conditions:
        """What frames from source to target meet at present, partitions included."""
        conditions = self._pairs.get((source, target), self.default)
        if self._side and self._side.get(source, -1) != self._side.get(target, -1):
            cut = self._cut.get(conditions)
            if cut is None:
                cut = self._cut[conditions] = conditions.replace(blackhole=True)
            return cut
        return conditions

    def configured(self, source: str, target: str) -> Conditions:
        """What was set for this direction, whether or not a partition lies between."""
        return self._pairs.get((source, target), self.default)

    def set(self, source: str, target: str, conditions: Conditions | None) -> None:
        """Change one direction; None returns it to the default."""
        if conditions is None:
            self._pairs.pop((source, target), None)
        else:
            self._pairs[source, target] = conditions

    def partition(self, groups: Sequence[Iterable[str]]) -> None:
        """Only peers of one group reach each other; peers in no group form one of their own."""
        side: dict[str, int] = {}
        for number, group in enumerate(groups):
            for name in group:
                if name in side:
                    raise UsageError(f"partition: peer {name!r} is in two groups; each peer belongs to one")
                side[name] = number
        self._side = side

    def heal(self) -> None:
        """End the partition."""
        self._side = {}
