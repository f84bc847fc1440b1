"""The schema of the logs: one struct per kind, the same names as the columns that analysis reads.

Times are integers in µs (`ts`: wall clock, set by the writer's clock offset), shares are fractions.
"""

import msgspec


class LogRecord(msgspec.Struct, tag_field="kind", kw_only=True):
    """What every log record carries."""

    ts: int
    """µs; the node's clock when made, wall clock (since 1970) once written."""
    peer: str
    epoch: int


class ProbeRecord(LogRecord, tag="probe", kw_only=True):
    """The outcome of one probe."""

    neighbour: str
    seq: int
    rtt_us: int | None
    """None: no echo in time, the probe counts as lost."""
    delay_us: int
    jitter_us: int
    loss: float
    availability: float


class LinkRecord(LogRecord, tag="link", kw_only=True):
    """A link changed its state."""

    neighbour: str
    state: str
    cause: str


class RouteRecord(LogRecord, tag="route", kw_only=True):
    """The path to a receiver changed."""

    destination: str
    path: list[str]
    """Empty: no path."""
    copies: list[list[str]]
    """Further paths that every message takes too."""
    cost_us: int
    cause: str


class DeliveryRecord(LogRecord, tag="delivery", kw_only=True):
    """A run of consecutive messages was delivered here."""

    topic: str
    origin: str
    publisher: int
    seq: int
    """Of the first message of the run."""
    count: int
    age_us: int
    late: bool
    path: list[str]


class ReplyRecord(LogRecord, tag="reply", kw_only=True):
    """A request of this peer has ended."""

    topic: str
    number: int
    protocol: str
    merge: str
    asked: int
    """Sites."""
    answered: int
    declined: int
    missing: list[str]
    complete: bool
    duration_us: int


class ControlRecord(LogRecord, tag="control", kw_only=True):
    """Counters since the peer started: control and data traffic, drops."""

    counters: dict[str, int]
