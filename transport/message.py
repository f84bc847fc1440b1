"""What an application receives."""

from collections.abc import Mapping

import msgspec

from anabranch.overlay.actions import DeliveredRun, SelectedDelivery


class Message(msgspec.Struct, gc=False, frozen=True):
    """One publication, as it arrived."""

    payload: object
    """What was put: bytes as bytes, values as values."""
    sequence: int
    """Position among the messages of its publisher, from 0. A jump is a loss."""
    _run: DeliveredRun

    @property
    def topic(self) -> str:
        """The topic it was published to."""
        return self._run.topic

    @property
    def origin(self) -> str:
        """The peer that published it."""
        return self._run.origin

    @property
    def publisher(self) -> int:
        """Which of the origin's publishers, numbered by it."""
        return self._run.publisher

    @property
    def path(self) -> tuple[str, ...]:
        """The peers it passed, the origin first, this peer last."""
        return self._run.path

    @property
    def age(self) -> float:
        """Seconds from `put` to its arrival at this peer, by the clocks of the peers on the way."""
        return self._run.age_s

    @property
    def attributes(self) -> Mapping[str, object]:
        """What it was published with; sets as frozensets."""
        run = self._run
        return dict(run.selected.attributes) if isinstance(run, SelectedDelivery) else {}

    @property
    def to(self) -> str:
        """The sites it was published to, as an expression; empty when that was not said."""
        run = self._run
        return run.selected.to.text if isinstance(run, SelectedDelivery) and run.selected.to else ""

    @property
    def late(self) -> bool:
        """Whether it missed the deadline that its publisher set."""
        return 0 < self._run.deadline_s < self._run.age_s

    def __repr__(self) -> str:
        shown = repr(self.payload)
        shown = shown if len(shown) <= 60 else shown[:57] + "..."
        return f"Message({self.topic!r}, {shown}, origin={self.origin!r}, sequence={self.sequence})"
