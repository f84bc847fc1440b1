"""Publishers as the core sees them: what they put and did not send yet, and whom that reaches."""

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


class Reach(msgspec.Struct, frozen=True):
    """Whom the publications of a topic reach, as long as the stamp holds."""

    stamp: tuple[int, int, int, int]
    subscriptions: tuple[SubscriptionId, ...]
    route: Route | None
    """None when no other peer wants them."""
    only: tuple[str, bytes] | None
    """The next peer and its tail, when all publications go there and nowhere else."""


class Outlet:
    """The core's side of one publisher. A shell may append to `payloads` directly while a payload is smaller
    than `room`, and takes its size and MESSAGE_BYTES off; the first of a turn goes through `Node.publish`."""

    __slots__ = (
        "deadline_us",
        "demand",
        "flows",
        "is_restricted",
        "large",
        "next_sequence",
        "pause_until",
        "payloads",
        "publisher",
        "queued",
        "reach",
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


class Flow(msgspec.Struct):
    """One set of receivers that a publisher selected: a stream of its own."""

    publisher: int
    next_sequence: int = 0
