"""The bodies of bundles with a guarantee: runs that ask for confirmation, and what confirms them.

The header's flags say which of the two it is (`Flag.ASSURED`, `Flag.CONFIRMS`). Relays look at neither.
"""

import enum
from collections.abc import Sequence

import msgspec

from anabranch.overlay.attributes import Plain
from anabranch.overlay.codec import Frame, encode_body, fill_large
from anabranch.overlay.errors import DropReason, PeerError, UsageError
from anabranch.overlay.headers import Run
from anabranch.overlay.identifiers import is_peer_name
from anabranch.overlay.patterns import check_topic

SEQUENCE_MAX = 2**62
RUNS_MAX = 4096
PROGRESS_MAX = 4096


class StreamKey(msgspec.Struct, frozen=True, array_like=True):
    """A publisher with a guarantee. Unlike others it keeps its name when its peer's epoch moves."""

    publisher: int
    incarnation: int
    """Of the peer, when the publisher was opened; of the store, for a persistent one."""
    durable: bool
    """Whether it is kept in a store."""


class Start(msgspec.Struct, frozen=True, array_like=True):
    """Where a consumer that knows nothing of a stream, or lags behind what is kept, shall begin."""

    peer: str
    consumer: str
    sequence: int


class AssuredRun(msgspec.Struct, array_like=True):
    """Consecutive messages of one stream. Without messages it only asks how far the consumers are."""

    stream: StreamKey
    run: Run
    starts: list[Start] = []
    attributes: dict[str, Plain] = {}
    """Of all its messages: what filters look at."""
    to: str = ""
    """The sites that they are for; empty for all."""
    floor: int = 0
    """All before it are settled for each consumer that this is sent to."""


class State(enum.IntEnum):
    """What a receiver says of a stream beside numbers."""

    FINE = 0
    UNKNOWN = 1
    """It never heard of the stream, or forgot it: where to begin?"""
    NOBODY = 2
    """Nobody there wants it any more."""
    BUSY = 3
    """Its application has no room: later."""
    AGAIN = 4
    """It has room again: send what was refused."""


class Progress(msgspec.Struct, array_like=True):
    """How far one consumer at the sender of this got with one stream of its receiver."""

    stream: StreamKey
    consumer: str
    """Name of a durable subscription; empty for all others of the peer together."""
    state: int
    arrived: int
    """All before it are there, in order."""
    confirmed: int
    """All before it are in the application's queues; for a durable subscription: accepted, for good."""
    gap_end: int = 0
    """Later messages from here on are there; what lies between is missing."""
    refused: list[tuple[int, int]] = []
    """Of what counts as confirmed: from where until where (excluded) they were not for this site any more."""


_runs_decoder = msgspec.msgpack.Decoder(list[AssuredRun])
_progress_decoder = msgspec.msgpack.Decoder(list[Progress])
_BROKEN = (msgspec.MsgspecError, ValueError, TypeError, OverflowError, RecursionError, MemoryError)


def encode_assured(runs: list[AssuredRun], inline_max: int) -> list[Frame]:
    """Body frames; payloads above `inline_max` bytes become frames of their own."""
    frames: list[Frame] = []
    for each in runs:
        run = each.run
        run.large = []
        for index, payload in enumerate(run.payloads):
            if len(memoryview(payload)) > inline_max:  # type: ignore[arg-type]  # bytes or encoded
                is_value = type(payload) is msgspec.Raw
                frames.append(memoryview(payload) if is_value else payload)  # type: ignore[arg-type]
                run.large.append((index, len(frames), is_value))
                run.payloads[index] = None
    return [encode_body(runs), *frames]


def decode_assured(frames: Sequence[Frame]) -> list[AssuredRun]:
    """The runs of a bundle; PeerError unless every one is sound."""
    try:
        runs = _runs_decoder.decode(frames[0])
    except _BROKEN as error:
        raise PeerError(DropReason.MALFORMED, f"assured body: {error}") from None
    if len(runs) > RUNS_MAX:
        raise PeerError(DropReason.MALFORMED, "too many runs")
    fill_large([each.run for each in runs], frames)
    for each in runs:
        run = each.run
        _check_stream(each.stream)
        if not 0 <= run.first_sequence < SEQUENCE_MAX or run.publisher != each.stream.publisher:
            raise PeerError(DropReason.MALFORMED, "assured run")
        try:
            check_topic(run.topic)
        except UsageError:
            raise PeerError(DropReason.MALFORMED, "topic") from None
        if any(not 0 <= start.sequence < SEQUENCE_MAX for start in each.starts):
            raise PeerError(DropReason.MALFORMED, "start of a stream")
    return runs


def decode_progress(frames: Sequence[Frame]) -> list[Progress]:
    """What a receiver confirms; PeerError unless it makes sense in itself."""
    try:
        found = _progress_decoder.decode(frames[0])
    except _BROKEN as error:
        raise PeerError(DropReason.MALFORMED, f"confirmation: {error}") from None
    if len(frames) != 1 or len(found) > PROGRESS_MAX:
        raise PeerError(DropReason.MALFORMED, "confirmation")
    for each in found:
        _check_stream(each.stream)
        if each.consumer and not is_consumer_name(each.consumer):
            raise PeerError(DropReason.MALFORMED, "name of a durable subscription")
        if not 0 <= each.confirmed <= each.arrived < SEQUENCE_MAX or not 0 <= each.gap_end < SEQUENCE_MAX:
            raise PeerError(DropReason.MALFORMED, "confirmation out of range")
        if any(not 0 <= first < end <= each.confirmed for first, end in each.refused):
            raise PeerError(DropReason.MALFORMED, "refusal out of range")
    return found


def is_consumer_name(text: str) -> bool:
    """Whether a text can name a durable subscription: as for peers."""
    return is_peer_name(text)


def _check_stream(stream: StreamKey) -> None:
    if not 0 <= stream.publisher < SEQUENCE_MAX or not 0 <= stream.incarnation < 2**63:
        raise PeerError(DropReason.MALFORMED, "stream")
