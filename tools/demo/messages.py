"""What the demonstration and its peer processes tell each other, as JSON lines."""

import msgspec


class Open(msgspec.Struct, frozen=True, kw_only=True, tag="open"):
    """Become this peer."""

    name: str
    join: list[str]
    log_dir: str
    publish: dict[str, int]
    """Topics, and how many peers will subscribe to each."""
    subscribe: list[str]
    rate: float
    deadline_s: float


class Publish(msgspec.Struct, frozen=True, kw_only=True, tag="publish"):
    """Start to publish."""

    at: float
    """`time.monotonic`, the same clock in all processes of a machine."""


class Hush(msgspec.Struct, frozen=True, tag="hush"):
    """Publish no more. Answered by a status."""


class Finish(msgspec.Struct, frozen=True, tag="finish"):
    """Tell a last status and leave the mesh."""


Order = Open | Publish | Hush | Finish


class Ready(msgspec.Struct, frozen=True, kw_only=True, tag="ready"):
    """The peer listens."""

    address: str


class Matched(msgspec.Struct, frozen=True, kw_only=True, tag="matched"):
    """All subscribers of a topic are known to its publisher."""

    topic: str


class LinkSeen(msgspec.Struct, frozen=True, kw_only=True, tag="link"):
    """A link of this peer changed its state: up, suspect or down."""

    at: float
    neighbour: str
    state: str


class PathSeen(msgspec.Struct, frozen=True, kw_only=True, tag="path"):
    """A message arrived on another path than the one before."""

    at: float
    topic: str
    path: tuple[str, ...]


class LinkView(msgspec.Struct, frozen=True, kw_only=True):
    """A link as its peer sees it; the names of `Peer.report()`."""

    peer: str
    state: str
    delay_ms: float
    jitter_ms: float
    loss: float


class FlowView(msgspec.Struct, frozen=True, kw_only=True):
    """What a subscription got; durations in ms, None without messages."""

    topic: str
    path: tuple[str, ...]
    received: int
    missed: int
    """Gaps in the sequence so far."""
    disordered: int
    late: int
    """Measured to be later than the deadline."""
    told_late: int
    """Marked as late by the mesh."""
    reroutes: int
    longest_gap_ms: float
    rate: float
    recent_p50_ms: float | None
    recent_p99_ms: float | None
    p50_ms: float | None
    p99_ms: float | None
    age_p50_ms: float | None
    """The same by the mesh's own reckoning (`message.age`)."""
    age_p99_ms: float | None


class Status(msgspec.Struct, frozen=True, kw_only=True, tag="status"):
    """How things stand at one peer."""

    at: float
    links: list[LinkView]
    flows: list[FlowView]
    published: dict[str, int]
    counters: dict[str, int]
    hushed: bool
    final: bool


Event = Ready | Matched | LinkSeen | PathSeen | Status
