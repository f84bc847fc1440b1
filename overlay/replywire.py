"""Requests, reports and prompts as they travel: the bodies of bundles with a flag of their own.

A request goes out along a forwarding tree. Reports come back: to the peer that it came from, or straight to
the publisher. Prompts are for the next peer only. Sites are named by their place in the request's list, and
sets of sites are bit masks over it.
"""

from collections.abc import Iterable
from functools import lru_cache

import msgspec

from anabranch.overlay.asking import Expectation, Protocol, RequestKey, is_expectation
from anabranch.overlay.codec import Frame
from anabranch.overlay.errors import DropReason, PeerError
from anabranch.overlay.headers import EPOCH_MAX, Record
from anabranch.overlay.identifiers import is_peer_name

SITES_MAX = 16_384
"""Sites that one request may ask: a mask is 2 KiB then."""
AUDIENCES_CACHED = 64
AUDIENCE_CACHED_MAX_BYTES = 64 * 1024
"""Requests to the same sites again are the rule; larger lists are read each time."""
NUMBER_MAX = 2**53
COUNT_MAX = 2**32
"""Above what one part may hold: many of them still add up to what can be encoded."""
_BROKEN = (msgspec.MsgspecError, ValueError, TypeError, OverflowError, RecursionError, MemoryError)


class Audience(msgspec.Struct, frozen=True):
    """The sites that a request asks. Shared: nobody changes it."""

    names: tuple[str, ...]
    places: dict[str, int]
    """By name, the place in the list."""

    def mask_of(self, names: Iterable[str]) -> int:
        """These sites, as a set; names that are not asked are left out."""
        places = self.places
        mask = 0
        for name in names:
            if (place := places.get(name)) is not None:
                mask |= 1 << place
        return mask


NOBODY = Audience((), {})


class Request(msgspec.Struct, array_like=True, tag="q"):
    """A publication that asks for replies."""

    origin: str
    epoch: int
    number: int
    """Per origin and epoch."""
    topic: str
    payload: msgspec.Raw
    sites: msgspec.Raw
    """The names of all that are asked, sorted: see `audience`."""
    protocol: Protocol
    merge: str
    expects: list[Expectation]
    """Every one of them holds for each reply."""
    within_us: int
    open_from: int
    """All requests of this origin with smaller numbers are over."""
    attempt: int = 0
    """0 along the tree; later ones ask for an answer straight to the publisher."""
    reply_to: str = ""
    """Where out-of-band replies go."""
    records: list[Record] = []
    """What the publisher tells about itself that repliers must know."""
    to: str = ""
    """For which of these sites it is, as an expression; each checks again. Empty for all of them."""
    known: list[int] = []
    """By site, which version of its interests the publisher knows; one that has others tells them."""

    @property
    def key(self) -> RequestKey:
        """Its name."""
        return RequestKey(self.origin, self.epoch, self.number)

    @property
    def audience(self) -> Audience:
        """Who is asked; PeerError when that makes no sense."""
        encoded = bytes(self.sites)
        return _known_audience(encoded) if len(encoded) <= AUDIENCE_CACHED_MAX_BYTES else _audience(encoded)


class Merged(msgspec.Struct, array_like=True):
    """Replies of some sites, merged."""

    mask: bytes
    answered: int
    declined: int
    state: msgspec.Raw
    """Of the merge; nil when nobody answered with a value."""


class Report(msgspec.Struct, array_like=True, tag="r"):
    """What a peer brings towards the publisher of one request."""

    origin: str
    epoch: int
    number: int
    entries: list[tuple[int, int, bool, msgspec.Raw, bytes]] = []
    """(site, subscriber, answered, value, proof): single replies; not answered means declined."""
    ended: list[tuple[int, int, bytes]] = []
    """(site, subscribers, proof): all that this site has to say was said."""
    merged: list[Merged] = []
    lost: list[tuple[bytes, str, str]] = []
    """(sites, where, why): whose replies may have been lost, or cannot come this way."""
    done: bytes = b""
    """Sites that the sender of this hop brings no more."""
    checked: bool = False
    """It answers a check: what is done and did not arrive got lost."""
    back: list[str] = []
    """What is left of the way, for peers that keep no state; the publisher last."""
    poll: int = 0
    """It answers this poll: nothing in it is final."""
    outstanding: int = 0
    """With a poll: replies that are still to come, at least."""
    records: list[Record] = []
    """What repliers tell about themselves that the publisher must know first."""

    @property
    def key(self) -> RequestKey:
        """The request that it belongs to."""
        return RequestKey(self.origin, self.epoch, self.number)


class Prompt(msgspec.Struct, array_like=True, tag="p"):
    """Asks the next peer about one request."""

    origin: str
    epoch: int
    number: int
    what: str
    """`check` that it knows it, `poll` for what it has, or `close` it."""
    mask: bytes = b""
    """The sites in question."""
    token: int = 0
    wait_us: int = 0

    @property
    def key(self) -> RequestKey:
        """The request that it belongs to."""
        return RequestKey(self.origin, self.epoch, self.number)


Item = Request | Report | Prompt

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[Item])
_names_decoder = msgspec.msgpack.Decoder(tuple[str, ...])


def encode_items(items: list[Item]) -> bytes:
    """The body of a bundle."""
    return _encoder.encode(items)


def decode_items(body: Frame) -> list[Item]:
    """The other way; PeerError for what makes no sense."""
    try:
        items = _decoder.decode(body)
    except _BROKEN as error:
        raise PeerError(DropReason.MALFORMED, f"replies: {error}") from None
    for item in items:
        if not (0 < item.number < NUMBER_MAX and 0 <= item.epoch < EPOCH_MAX and is_peer_name(item.origin)):
            raise PeerError(DropReason.MALFORMED, "request's name")
        if isinstance(item, Request):
            _check_request(item)
        elif isinstance(item, Report):
            _check_report(item)
    return items


def encode_value(value: object) -> msgspec.Raw:
    """Any value that msgpack can carry."""
    return msgspec.Raw(_encoder.encode(value))


def version_of(record: Record | None) -> int:
    """A record's version in 32 bits, epochs included; 0 for none."""
    return (record.epoch + record.sequence * 0x9E37_79B1) & 0xFFFF_FFFF if record is not None else 0


def mask_bytes(mask: int) -> bytes:
    """A set of sites as it travels."""
    return mask.to_bytes((mask.bit_length() + 7) // 8, "little")


def mask_of(text: bytes) -> int:
    """The other way."""
    return int.from_bytes(text[: SITES_MAX // 8], "little")


def bits(mask: int) -> list[int]:
    """The sites of a set."""
    found = []
    while mask:
        low = mask & -mask
        found.append(low.bit_length() - 1)
        mask ^= low
    return found


def _check_report(report: Report) -> None:
    counts = [report.outstanding]
    for merged in report.merged:
        counts += (merged.answered, merged.declined)
    if not all(0 <= count < COUNT_MAX for count in counts) or not all(map(is_peer_name, report.back)):
        raise PeerError(DropReason.MALFORMED, "report")


def _audience(encoded: bytes) -> Audience:
    try:
        names = _names_decoder.decode(encoded)
    except _BROKEN as error:
        raise PeerError(DropReason.MALFORMED, f"sites: {error}") from None
    places = {name: place for place, name in enumerate(names)}
    if not 0 < len(names) <= SITES_MAX or len(places) != len(names) or not all(map(is_peer_name, names)):
        raise PeerError(DropReason.MALFORMED, "sites")
    return Audience(names, places)


_known_audience = lru_cache(AUDIENCES_CACHED)(_audience)


def _check_request(request: Request) -> None:
    if (
        not 0 < request.within_us < 2**32
        or not 0 <= request.attempt < NUMBER_MAX
        or not 0 < request.open_from <= request.number
        or not all(map(is_expectation, request.expects))
        or len(request.known) > len(request.audience.names)
    ):
        raise PeerError(DropReason.MALFORMED, "request")
