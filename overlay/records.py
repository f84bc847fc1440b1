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
    """Of the probe; counts from 1 on each connection."""
    rtt_us: int | None
    """None: no echo in time, the probe counts as lost."""
    delay_us: int
    jitter_us: int
    loss: float
    availability: float
    connection: int = 0
    """Number of the connection at this peer: a link that comes back has another one."""
    waited_us: int = 0
    """How long a lost probe was waited for; 0 for one that came back."""


class LinkRecord(LogRecord, tag="link", kw_only=True):
    """A link changed its state."""

    neighbour: str
    state: str
    cause: str
    connection: int = 0
    """Number of the connection at this peer."""


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
    origin_epoch: int = 0
    """Which start of the origin: sequences begin anew with each."""
    deadline_us: int = 0
    """From put to arrival, as the publisher asked; 0 when it did not."""
    has_copies: bool = False
    """Whether it also came over other paths."""
    repeated: int = 0
    """Messages of this stream that arrived a second time since the record before, and were dropped."""


class ControlRecord(LogRecord, tag="control", kw_only=True):
    """Counters since the peer started: control and data traffic, drops."""

    counters: dict[str, int]
    variant: str = ""
    """How this peer chooses paths."""
