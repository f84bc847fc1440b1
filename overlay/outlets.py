"""Publishers as the core sees them: what they put and did not send yet, and whom that reaches."""

from collections.abc import Iterator
from itertools import repeat
from operator import length_hint

import msgspec

from anabranch.overlay.advertisements import restricted_id
from anabranch.overlay.bundles import Queued
from anabranch.overlay.headers import MICROSECONDS_MAX
from anabranch.overlay.identifiers import SubscriptionId
from anabranch.overlay.qos import Demand
from anabranch.overlay.routes import Route

MESSAGE_BYTES = 512
"""Counted per message beside its payload: what its objects take at the receiver, and so many as stay in a
cache make a full bundle."""
_NO_PLACES: Iterator[None] = repeat(None, 0)


class Reach(msgspec.Struct, frozen=True):
    """Whom the publications of a topic reach, as long as the stamp holds."""

    stamp: tuple[int, int, int, int]
    subscriptions: tuple[SubscriptionId, ...]
    route: Route | None
    """None when no other peer wants them."""
    only: tuple[str, bytes] | None
    """The next peer and its tail, when all publications go there and nowhere else."""


class Outlet:
    """The core's side of one publisher. The first of a turn goes through `Node.publish`; after it a shell may
    append to `payloads` directly: a payload of up to `fits` bytes for each step of `places`; any other after
    `settle`, while it is smaller than `room`, of which it takes its size and MESSAGE_BYTES off."""

    __slots__ = (
        "deadline_us",
        "demand",
        "fits",
        "flows",
        "is_restricted",
        "large",
        "next_sequence",
        "pause_until",
        "payloads",
        "places",
        "publisher",
        "queued",
        "reach",
        "reserved",
        "room",
        "room_first",
        "started_at",
        "topic",
    )

    def __init__(self, topic: str, publisher: int, demand: Demand) -> None:
        self.topic = topic
        self.is_restricted = restricted_id(topic) is not None
        """It shares no bundle with others: it may be refused on its way."""
        self.publisher = publisher
        self.demand = demand
        self.deadline_us = min(int(demand.deadline_s * 1e6), MICROSECONDS_MAX)
        self.next_sequence = 0
        self.payloads: list[object] = []
        self.room = 0
        """Bytes until the bundle is full; 0 or less also before the first message of a turn."""
        self.room_first = 0
        """What it was with the first message."""
        self.places = _NO_PLACES
        """Each step takes `fits` and MESSAGE_BYTES of the room: cheaper than an account of each message."""
        self.fits = -1
        self.reserved = 0
        """How many places there were."""
        self.large: list[int] = []
        """Indexes of payloads that travel as frames of their own."""
        self.started_at = 0.0
        self.pause_until = 0.0
        """Some link on its route does not keep up: a publisher that can wait waits until then."""
        self.reach: Reach | None = None
        self.flows: dict[tuple[str, ...], Flow] = {}
        """The sets of receivers that its publications selected, the last one used last."""
        self.queued: Queued | None = None
        """What waits in queues, if there is a limit to it."""

    @property
    def held_bytes(self) -> int:
        """What its bundle holds, as `room` counts it."""
        return self.room_first - self.room + self._placed_bytes()

    def reserve(self, size: int) -> None:
        """Make places for payloads of about this size in all the room there is."""
        self.fits = size = (size + 63) & ~63
        self.reserved = max(0, self.room // (size + MESSAGE_BYTES))
        self.places = repeat(None, self.reserved)

    def settle(self) -> None:
        """Take what the places took off the room, and the places away."""
        if self.reserved:
            self.room -= self._placed_bytes()
            self.reserved, self.fits, self.places = 0, -1, _NO_PLACES

    def seal(self) -> None:
        """Take nothing more before a look at whether it may."""
        self.settle()
        self.room = 0

    def empty(self) -> list[object]:
        """Take what it holds: the next one is the first of a turn."""
        payloads, self.payloads = self.payloads, []
        self.seal()
        return payloads

    def _placed_bytes(self) -> int:
        return (self.reserved - length_hint(self.places)) * (self.fits + MESSAGE_BYTES)


class Flow(msgspec.Struct):
    """One set of receivers that a publisher selected: a stream of its own."""

    publisher: int
    next_sequence: int = 0
