"""A bundle on its way out of this peer, as queues hold it."""

import msgspec

from anabranch.overlay.codec import Frame


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
