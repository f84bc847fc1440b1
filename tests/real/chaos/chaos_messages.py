"""What the chaos test and its peer processes say to each other, and what is in a publication."""

import struct
import zlib

import msgspec

TOPIC = "chaos"
"""Every peer publishes on `chaos/NAME`, and wants `chaos/*`."""
_HEAD = struct.Struct("<IIdI")
"""Incarnation, number, when it was put (the machine's monotonic clock), checksum of the filling."""


class Open(msgspec.Struct, kw_only=True):
    """The first order: be this peer."""

    name: str
    incarnation: int
    listen: str
    join: list[str]
    neighbours_target: int
    rate: float
    payload_bytes: int
    log_dir: str


class Order(msgspec.Struct):
    """Every later one: `hush` (publish no more), `tell` (send a report), `finish` (end in order)."""

    what: str


class Gap(msgspec.Struct, array_like=True):
    """Publications that never came: the first missing, the next that came, and when its neighbours came."""

    first: int
    next: int
    since: float
    until: float


class FlowReport(msgspec.Struct):
    """One incarnation of one publisher, as a subscriber heard it."""

    source: str
    incarnation: int
    first: int
    last: int
    received: int
    last_at: float
    last_put_at: float
    gaps: list[Gap]
    silences: list[tuple[float, float]]
    """Longer than `SILENCE_S`: from when to when."""
    paths: list[tuple[float, tuple[str, ...]]]
    """Each with when its first publication came."""


class Report(msgspec.Struct, tag=True):
    """The answer to `tell`."""

    at: float
    flows: list[FlowReport]
    published: int
    counters: dict[str, int]
    links: dict[str, str]


class Ready(msgspec.Struct, tag=True):
    """The peer is open."""


class Violation(msgspec.Struct, tag=True):
    """Something was delivered that must never be; told at once, for this process may be killed next."""

    text: str


Event = Ready | Report | Violation

SILENCE_S = 0.15


def pack(incarnation: int, number: int, put_at: float, filling: bytes, checksum: int) -> bytes:
    """A payload."""
    return _HEAD.pack(incarnation, number, put_at, checksum) + filling


def unpack(payload: bytes) -> tuple[int, int, float, bool]:
    """(incarnation, number, when it was put, whether it is whole)."""
    incarnation, number, put_at, checksum = _HEAD.unpack_from(payload)
    return incarnation, number, put_at, zlib.crc32(memoryview(payload)[_HEAD.size :]) == checksum
