"""What an application receives."""

from collections.abc import Generator, Mapping
from typing import Protocol

import msgspec

from anabranch.overlay.actions import AssuredDelivery, DeliveredRequest, DeliveredRun, SelectedDelivery
from anabranch.overlay.errors import UsageError
from anabranch.overlay.selections import Selected


class Answering(Protocol):
    """Who takes the answers of an application."""

    def reply(self, run: DeliveredRun, value: object) -> bool:
        """An answer."""

    def decline(self, run: DeliveredRun) -> bool:
        """None will come."""


class Answered:
    """Whether an answer was still wanted; may be awaited, with the same outcome."""

    __slots__ = ("wanted",)

    def __init__(self, wanted: bool) -> None:
        self.wanted = wanted

    def __bool__(self) -> bool:
        return self.wanted

    def __await__(self) -> Generator[None, None, bool]:
        yield from ()
        return self.wanted


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
        return dict(selected.attributes) if (selected := _selected(run)) is not None else {}

    @property
    def to(self) -> str:
        """The sites it was published to, as an expression; empty when that was not said."""
        run = self._run
        if isinstance(run, DeliveredRequest):
            return run.to
        selected = _selected(run)
        return selected.to.text if selected is not None and selected.to is not None else ""

    @property
    def late(self) -> bool:
        """Whether it missed the deadline that its publisher set."""
        return 0 < self._run.deadline_s < self._run.age_s

    def reply(self, value: object = None) -> "Answered":
        """Answer a request; once per subscriber. It is done when this returns; `await` it or not.

        False when its publisher no longer waits. UsageError when it is no request, was answered before, or
        asks for values of another type.
        """
        return Answered(replying_of(self._run).reply(self._run, value))

    def decline(self) -> "Answered":
        """Tell the publisher that there will be no answer from this subscriber, so that it need not wait."""
        return Answered(replying_of(self._run).decline(self._run))

    @property
    def wants_reply(self) -> bool:
        """Whether it is a request."""
        return isinstance(self._run, DeliveredRequest)

    def __repr__(self) -> str:
        shown = repr(self.payload)
        shown = shown if len(shown) <= 60 else shown[:57] + "..."
        return f"Message({self.topic!r}, {shown}, origin={self.origin!r}, sequence={self.sequence})"


def replying_of(run: DeliveredRun) -> Answering:
    """Who takes the answer to a message; UsageError when it asks for none."""
    if not isinstance(run, DeliveredRequest):
        raise UsageError(f"message on {run.topic!r} asks for no reply: its publisher used put, not request")
    return run.replying  # type: ignore[return-value]


def _selected(run: DeliveredRun) -> Selected | None:
    """Whom it was for, if not the topic alone decided that."""
    return run.selected if isinstance(run, SelectedDelivery | AssuredDelivery) else None
