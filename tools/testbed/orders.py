"""What the testbed and its peer processes tell each other, as JSON lines, and the notes of peers."""

from typing import Any

import msgspec


class FlowOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Publish at a steady rate."""

    number: int
    topic: str
    rate_per_s: float
    size_bytes: int
    deadline_s: float
    start_s: float
    stop_s: float


class SubscriptionOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Want a pattern."""

    number: int
    pattern: str
    start_s: float
    stop_s: float | None


class Prepare(msgspec.Struct, frozen=True, kw_only=True, tag="prepare"):
    """All that a peer needs to know; answered by `Prepared`."""

    name: str
    listen: str
    join: list[str]
    advertise: list[str]
    config: dict[str, Any]
    notes: str
    """File for what it puts and gets."""
    log_dir: str | None
    incarnation: int
    flows: list[FlowOrder]
    subscriptions: list[SubscriptionOrder]


class Begin(msgspec.Struct, frozen=True, kw_only=True, tag="begin"):
    """Open the peer at this time (`time.monotonic`), which is the scenario's time 0."""

    at: float
    join: list[str]


class Leave(msgspec.Struct, frozen=True, tag="leave"):
    """Close in order."""


Order = Prepare | Begin | Leave


class Prepared(msgspec.Struct, frozen=True, tag="prepared"):
    """Everything is loaded."""

    address: str


class Ended(msgspec.Struct, frozen=True, kw_only=True, tag="ended"):
    """The peer is closed: what it sent, for the summary."""

    counters: dict[str, int]


class Traffic(msgspec.Struct, frozen=True, kw_only=True, tag="traffic"):
    """What the peer sent so far, once a second."""

    at: float
    counters: dict[str, int]


Event = Prepared | Traffic | Ended


class PutNote(msgspec.Struct, frozen=True, array_like=True, tag="p"):
    """A message was put."""

    flow: int
    incarnation: int
    sequence: int
    at: float


class GotNote(msgspec.Struct, frozen=True, array_like=True, tag="g"):
    """A message arrived."""

    subscription: int
    incarnation: int
    """Of the subscriber."""
    flow: int
    flow_incarnation: int
    sequence: int
    at: float
    path: tuple[str, ...]


class SpanNote(msgspec.Struct, frozen=True, array_like=True, tag="s"):
    """A subscription begins, or ends."""

    subscription: int
    begins: bool
    at: float


Note = PutNote | GotNote | SpanNote
