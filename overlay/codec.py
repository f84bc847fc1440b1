"""Bytes to structs and back. Whatever a peer sent, the only exception that leaves here is PeerError."""

from collections.abc import Sequence
from functools import lru_cache
from typing import TypeVar

import msgspec

from anabranch.overlay.errors import DropReason, PeerError, UsageError
from anabranch.overlay.headers import (
    ACK_HEADER,
    BUNDLE_HEADER,
    ECHO_HEADER,
    MICROSECONDS_MAX,
    PROBE_HEADER,
    WIRE_VERSION,
    Bye,
    Congestion,
    Digest,
    Hello,
    Inspect,
    Kind,
    LinkEntry,
    Question,
    Record,
    Records,
    Report,
    RolesBody,
    Run,
    SelectedRun,
    Subtree,
    Tail,
    Want,
)

T = TypeVar("T")
Frame = bytes | memoryview
"""A frame as the shell hands it over: bytes; all but the first may be anything with a length and a buffer."""

_encoder = msgspec.msgpack.Encoder()
_decoders: dict[type, msgspec.msgpack.Decoder[object]] = {
    kind: msgspec.msgpack.Decoder(kind)
    for kind in (
        *(Tail, Subtree, Hello, Records, Digest, Want, Bye, Inspect, Report, Congestion, RolesBody),
        Question,
    )
}
_runs_decoder = msgspec.msgpack.Decoder(list[Run])
_value_decoder = msgspec.msgpack.Decoder()
_links_decoder = msgspec.msgpack.Decoder(list[LinkEntry])
_interests_decoder = msgspec.msgpack.Decoder(list[str | tuple[str, str]])
_selected_decoder = msgspec.msgpack.Decoder(list[SelectedRun])
_lists_decoder = msgspec.msgpack.Decoder(list[bytes])
_BROKEN = (msgspec.MsgspecError, ValueError, TypeError, OverflowError, RecursionError, MemoryError)
_CONTROL_KINDS: dict[Kind, type] = {
    Kind.HELLO: Hello,
    Kind.RECORDS: Records,
    Kind.DIGEST: Digest,
    Kind.WANT: Want,
    Kind.BYE: Bye,
    Kind.INSPECT: Inspect,
    Kind.REPORT: Report,
    Kind.CONGESTION: Congestion,
    Kind.QUESTION: Question,
}
_RECORDS_PREFIX = bytes((WIRE_VERSION, Kind.RECORDS))
KNOWN_FRAMES_MAX, KNOWN_FRAME_MAX_BYTES = 512, 2048
"""Batches of records that are remembered, and how large one may be for that."""
_SIGNING_DOMAIN = "anabranch-record-v1"
_HELLO_DOMAIN = "anabranch-hello-v1"
_QUESTION_DOMAIN = "anabranch-question-v1"

Control = Hello | Records | Digest | Want | Bye | Inspect | Report | Congestion | Question


def encode_control(kind: Kind, message: Control | None = None) -> bytes:
    """A control message as its single frame."""
    prefix = bytes((WIRE_VERSION, kind))
    return prefix if message is None else prefix + _encoder.encode(message)


def decode_control(kind: int, frame: Frame) -> Control:
    """The struct behind a control frame whose kind byte was read already."""
    struct_type = _CONTROL_KINDS.get(kind)  # type: ignore[call-overload]  # any int may be looked up
    if struct_type is None:
        raise PeerError(DropReason.VERSION, f"kind {kind}")
    return _decode(struct_type, memoryview(frame)[2:])  # type: ignore[no-any-return]


def encode_records(records: Sequence[Record]) -> bytes:
    """A batch of records as its frame."""
    return _RECORDS_PREFIX + _encoder.encode((records,))


def decode_records(frame: Frame) -> tuple[Sequence[Record], bytes | None]:
    """A batch of records, and the frame where it is just what `encode_records` makes of them.

    A small one that came already, from another neighbour or to another peer of this process, is not read
    again: the records are shared, and nobody may change them.
    """
    if len(frame) <= KNOWN_FRAME_MAX_BYTES:
        return _known_records(bytes(frame))
    return _decode(Records, memoryview(frame)[2:]).records, None


@lru_cache(KNOWN_FRAMES_MAX)
def _known_records(frame: bytes) -> tuple[Sequence[Record], bytes | None]:
    records = tuple(_decode(Records, memoryview(frame)[2:]).records)
    return records, frame if encode_records(records) == frame else None


def encode_probe(sequence: int, clock_us: int) -> bytes:
    """A probe; the neighbour echoes its fields."""
    return PROBE_HEADER.pack(WIRE_VERSION, Kind.PROBE, sequence, clock_us)


def decode_probe(frame: Frame) -> tuple[int, int]:
    """(sequence, clock µs) of a probe."""
    if len(frame) != PROBE_HEADER.size:
        raise PeerError(DropReason.MALFORMED, "probe")
    _, _, sequence, clock_us = PROBE_HEADER.unpack(frame)
    return sequence, clock_us


def encode_echo(sequence: int, clock_us: int, held_us: int) -> bytes:
    """The answer to a probe."""
    return ECHO_HEADER.pack(WIRE_VERSION, Kind.ECHO, sequence, clock_us, min(held_us, MICROSECONDS_MAX))


def decode_echo(frame: Frame) -> tuple[int, int, int]:
    """(sequence, clock µs, held µs) of an echo."""
    if len(frame) != ECHO_HEADER.size:
        raise PeerError(DropReason.MALFORMED, "echo")
    _, _, sequence, clock_us, held_us = ECHO_HEADER.unpack(frame)
    return sequence, clock_us, held_us


def encode_ack(arrived_to: int, arrived_bits: int) -> bytes:
    """What arrived on a link."""
    return ACK_HEADER.pack(WIRE_VERSION, Kind.ACK, arrived_to, arrived_bits)


def decode_ack(frame: Frame) -> tuple[int, int]:
    """(hop sequence after the highest that arrived, bits for those before it)."""
    if len(frame) != ACK_HEADER.size:
        raise PeerError(DropReason.MALFORMED, "ack")
    _, _, arrived_to, arrived_bits = ACK_HEADER.unpack(frame)
    return arrived_to, arrived_bits


def encode_bundle_header(
    flags: int,
    hop_sequence: int,
    bundle_sequence: int,
    elapsed_us: int,
    deadline_us: int,
    tail: bytes,
    arrived_to: int = 0,
    arrived_bits: int = 0,
) -> bytes:
    """The first frame of a bundle; the last two acknowledge the other direction."""
    return (
        BUNDLE_HEADER.pack(
            WIRE_VERSION,
            Kind.BUNDLE,
            flags,
            len(tail),
            hop_sequence,
            bundle_sequence,
            elapsed_us if elapsed_us < MICROSECONDS_MAX else MICROSECONDS_MAX,
            deadline_us,
            arrived_to,
            arrived_bits,
        )
        + tail
    )


def encode_tail(tail: Tail) -> bytes:
    """A tail as it follows the fixed header."""
    return _encoder.encode(tail)


def encode_subtree(deliver: bool, branches: Sequence[tuple[str, msgspec.Raw]]) -> msgspec.Raw:
    """What is left of a route at a next peer."""
    return msgspec.Raw(_encoder.encode((deliver, branches)))


def decode_tail(tail: Frame) -> Tail:
    """The tail of a bundle's first frame."""
    return _decode(Tail, tail)


def decode_subtree(raw: msgspec.Raw) -> Subtree:
    """The next peer's part of a route."""
    return _decode(Subtree, bytes(raw))


def encode_runs(runs: Sequence[Run]) -> bytes:
    """A bundle's body."""
    return _encoder.encode(runs)


def encode_runs_into(runs: Sequence[Run], buffer: bytearray) -> None:
    """The same, over what the buffer held; it takes the size of the body."""
    _encoder.encode_into(runs, buffer)


def decode_runs(frames: Sequence[Frame]) -> list[Run]:
    """The body of a bundle (its frames from the second on), large payloads put in their places."""
    try:
        runs = _runs_decoder.decode(frames[0])
    except _BROKEN as error:
        raise PeerError(DropReason.MALFORMED, f"body: {error}") from None
    if len(frames) == 1 and len(runs) == 1 and not runs[0].large:
        return runs
    fill_large(runs, frames)
    return runs


def decode_selected(frames: Sequence[Frame]) -> list[SelectedRun]:
    """The same for a bundle whose runs say whom they are for."""
    try:
        runs = _selected_decoder.decode(frames[0])
    except _BROKEN as error:
        raise PeerError(DropReason.MALFORMED, f"body: {error}") from None
    fill_large(runs, frames)
    return runs


def fill_large(runs: Sequence[Run], frames: Sequence[Frame]) -> None:
    """Put the large payloads, which travelled as frames of their own, into their places."""
    unused = set(range(1, len(frames)))
    for run in runs:
        for index, frame_number, is_value in run.large:
            if not 0 <= index < len(run.payloads) or frame_number not in unused:
                raise PeerError(DropReason.MALFORMED, "large payload out of range, or named twice")
            unused.remove(frame_number)
            frame = frames[frame_number]
            run.payloads[index] = decode_value(frame) if is_value else bytes(frame)


def encode_payload(payload: object) -> tuple[object, int]:
    """What `put` was given in a form that a run can carry, and its size.

    Bytes pass as they are; anything else is encoded here and now, so that a value that cannot travel is
    the caller's error and later changes of a mutable value don't reach the wire.
    """
    if isinstance(payload, bytes):
        return payload, len(payload)
    if isinstance(payload, bytearray | memoryview):
        frozen = bytes(payload)
        return frozen, len(frozen)
    try:
        encoded = _encoder.encode(payload)
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        raise UsageError(
            f"payload of type {type(payload).__name__} cannot be encoded ({error}): "
            "use bytes, or None, bool, int, float, str, list, dict, dataclass or msgspec.Struct of such"
        ) from None
    return msgspec.Raw(encoded), len(encoded)


def decode_value(frame: Frame) -> object:
    """A payload that was encoded by `encode_payload`."""
    try:
        return _value_decoder.decode(frame)
    except _BROKEN as error:
        raise PeerError(DropReason.MALFORMED, f"payload: {error}") from None


def signed_part(record: Record) -> bytes:
    """The bytes a record's signature covers: everything but the age, under a domain of its own."""
    return _encoder.encode(
        (_SIGNING_DOMAIN, record.origin, record.epoch, record.kind, record.sequence, record.body)
    )


def question_part(question: Question) -> bytes:
    """The bytes a question's signature covers: everything but how far it may still go."""
    return _encoder.encode(
        (_QUESTION_DOMAIN, question.origin, question.epoch, question.token, question.letter)
    )


def hello_part(hello: Hello, binding: bytes, dialled: bool) -> bytes:
    """The bytes a hello's proof covers: all it says, which end says it, and on which connection."""
    return _encoder.encode(
        (_HELLO_DOMAIN, dialled, binding, hello.peer, hello.epoch, hello.role, hello.instance)
    )


def encode_body(body: object) -> bytes:
    """The body of a record."""
    return _encoder.encode(body)


def decode_links(body: bytes) -> list[LinkEntry]:
    """The body of a LINKS record."""
    try:
        return _links_decoder.decode(body)
    except _BROKEN as error:
        raise PeerError(DropReason.MALFORMED, f"links: {error}") from None


def decode_interests(body: bytes) -> list[str | tuple[str, str]]:
    """The body of an INTERESTS record: patterns, alone or each with a filter."""
    try:
        return _interests_decoder.decode(body)
    except _BROKEN as error:
        raise PeerError(DropReason.MALFORMED, f"interests: {error}") from None


def decode_roles(body: bytes) -> RolesBody:
    """The body of a ROLES record."""
    return _decode(RolesBody, body)


def decode_revocations(body: bytes) -> list[bytes]:
    """The body of a REVOCATIONS record: lists as the authorities signed them."""
    try:
        return _lists_decoder.decode(body)
    except _BROKEN as error:
        raise PeerError(DropReason.MALFORMED, f"revocations: {error}") from None


def decode_sites(body: bytes) -> dict[str, object]:
    """The body of a SITES record: attribute names and values."""
    value = decode_value(body)
    if not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
        raise PeerError(DropReason.MALFORMED, "sites: not a map of names")
    return value


def _decode(struct_type: type[T], frame: Frame) -> T:
    try:
        return _decoders[struct_type].decode(frame)  # type: ignore[return-value]  # keyed by its own type
    except _BROKEN as error:
        raise PeerError(DropReason.MALFORMED, f"{struct_type.__name__}: {error}") from None
