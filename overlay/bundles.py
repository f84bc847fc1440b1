"""A bundle on its way out of this peer, as queues hold it."""

import msgspec

from anabranch.overlay.codec import Frame


class Queued:
    """How many bytes of one publisher wait in the queues of links, each copy counted, and how many may."""

    __slots__ = ("bytes", "bytes_max")

    def __init__(self, bytes_max: int) -> None:
        self.bytes = 0
        self.bytes_max = bytes_max


class OutBundle(msgspec.Struct):
    """A bundle on its way out over one link."""

    sequence: int
    """Per origin."""
    started_at: float
    """When, on our clock, its elapsed time was zero."""
    deadline_us: int
    tail: bytes
    body: list[Frame]
    """The body and the large payloads, passed on untouched."""
    size: int
    messages: int
    """0 when unknown: a relay does not look."""
    flags: int = 0
    resent: int = 0
    """How often it was sent again."""
    owner: Queued | None = None
    """Told while it waits, if its publisher has a limit."""
