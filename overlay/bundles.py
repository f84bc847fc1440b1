"""A bundle on its way out of this peer, as queues hold it."""

import struct
from collections.abc import Sequence

import msgspec

from anabranch.overlay.codec import Frame
from anabranch.overlay.errors import DropReason, PeerError

_LENGTH = struct.Struct(">I")


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
    origin: str = ""
    """Whose it is; empty when it is our own. Origins share a link fairly."""


def joined(seal: bytes, body: Sequence[Frame]) -> list[Frame]:
    """A body with its seal, as it travels in a secured mesh."""
    return [b"".join((_LENGTH.pack(len(seal)), seal, body[0])), *body[1:]]


def parted(body: Sequence[Frame]) -> tuple[bytes, list[Frame]]:
    """The seal, and what it is for."""
    head = memoryview(body[0])
    if len(head) < _LENGTH.size:
        raise PeerError(DropReason.MALFORMED, "seal")
    begin = _LENGTH.size + _LENGTH.unpack_from(head)[0]
    if begin > len(head):
        raise PeerError(DropReason.MALFORMED, "seal")
    return bytes(head[_LENGTH.size : begin]), [head[begin:], *body[1:]]
