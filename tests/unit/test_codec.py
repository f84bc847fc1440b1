"""Bytes to structs and back; what does not decode is a PeerError, whatever it is."""

from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support_frames import CONTROLS, ENTRIES, GOOD_TAILS, PAYLOADS, SUBTREES, TAILS, U16, U32, U64, VALUES

from anabranch.overlay import codec
from anabranch.overlay.errors import DropReason, PeerError, UsageError
from anabranch.overlay.headers import (
    BUNDLE_HEADER,
    MICROSECONDS_MAX,
    WIRE_VERSION,
    Kind,
    LinkEntry,
    Record,
    RolesBody,
    Run,
    Subtree,
    Tail,
)

DECODERS = [
    codec.decode_probe,
    codec.decode_echo,
    codec.decode_tail,
    codec.decode_links,
    codec.decode_interests,
    codec.decode_roles,
    codec.decode_sites,
    codec.decode_value,
    lambda frame: codec.decode_subtree(msgspec.Raw(frame)),
    lambda frame: codec.decode_runs([frame, b"large"]),
    lambda frame: codec.decode_runs([b"\x90", frame]),
    *(lambda frame, kind=kind: codec.decode_control(kind, frame) for kind in range(14)),
]
DEEP = b"\x91" * 5000 + b"\x90"


def refusal(decode: Callable[[bytes], object], frame: bytes) -> DropReason | None:
    try:
        decode(frame)
    except PeerError as error:
        return error.reason
    return None


def as_read(tail: Tail) -> tuple[object, ...]:
    branches = [(peer, bytes(raw)) for peer, raw in tail.branches]
    return tail.origin, tail.epoch, tail.generation, tail.via, tail.deliver, branches, tail.destinations


@given(CONTROLS)
def test_control_messages_come_back_as_they_were(message: tuple[Kind, codec.Control]) -> None:
    frame = codec.encode_control(*message)
    assert frame[:2] == bytes((WIRE_VERSION, message[0]))
    assert codec.decode_control(frame[1], frame) == message[1]
    assert codec.decode_control(frame[1], memoryview(frame)) == message[1]


@given(U32, U64, U32)
def test_probes_and_echoes_come_back_as_they_were(sequence: int, clock_us: int, held_us: int) -> None:
    assert codec.decode_probe(codec.encode_probe(sequence, clock_us)) == (sequence, clock_us)
    assert codec.decode_echo(codec.encode_echo(sequence, clock_us, held_us)) == (sequence, clock_us, held_us)


def test_times_beyond_the_wire_saturate() -> None:
    assert codec.decode_echo(codec.encode_echo(1, 2, MICROSECONDS_MAX + 5))[2] == MICROSECONDS_MAX
    header = codec.encode_bundle_header(0, 1, 2, MICROSECONDS_MAX + 5, 0, b"")
    assert header == codec.encode_bundle_header(0, 1, 2, MICROSECONDS_MAX, 0, b"")


@given(U16, U64, U64, U32, U32, TAILS | GOOD_TAILS)
def test_a_bundle_header_and_its_tail_come_back_as_they_were(
    flags: int, hop: int, sequence: int, elapsed_us: int, deadline_us: int, tail: Tail
) -> None:
    encoded = codec.encode_tail(tail)
    frame = codec.encode_bundle_header(flags, hop, sequence, elapsed_us, deadline_us, encoded, 7, 5)
    fields = BUNDLE_HEADER.unpack_from(frame)
    fixed = (WIRE_VERSION, Kind.BUNDLE, flags, len(encoded), hop, sequence, elapsed_us, deadline_us)
    assert fields == (*fixed, 7, 5)
    assert as_read(codec.decode_tail(frame[BUNDLE_HEADER.size :])) == as_read(tail)


@given(SUBTREES)
def test_a_subtree_is_passed_on_byte_by_byte(raw: msgspec.Raw) -> None:
    subtree = codec.decode_subtree(raw)
    assert bytes(codec.encode_subtree(subtree.deliver, subtree.branches)) == bytes(raw)
    assert isinstance(subtree, Subtree)


@given(VALUES | st.binary())
def test_a_payload_arrives_as_the_value_that_was_put(value: object) -> None:
    payload, size = codec.encode_payload(value)
    assert size == len(payload if isinstance(payload, bytes) else bytes(memoryview(payload)))  # type: ignore[arg-type]
    (run,) = codec.decode_runs([codec.encode_runs([Run("a", 1, 0, [payload])])])
    assert run.payloads == [value]


@given(st.lists(PAYLOADS, min_size=1, max_size=5), st.data())
def test_large_payloads_are_put_in_their_places(payloads: list[object], data: st.DataObject) -> None:
    large = data.draw(st.lists(st.integers(0, len(payloads) - 1), unique=True))
    plain = codec.decode_runs([codec.encode_runs([Run("a", 1, 0, payloads)])])[0].payloads
    frames: list[codec.Frame] = []
    named = []
    sent = list(payloads)
    for index in large:
        is_value = isinstance(sent[index], msgspec.Raw)
        frames.append(memoryview(sent[index]))  # type: ignore[arg-type]
        named.append((index, len(frames), is_value))
        sent[index] = None
    body = codec.encode_runs([Run("a", 1, 0, sent, named)])
    (run,) = codec.decode_runs([body, *frames])
    assert run.payloads == plain


@pytest.mark.parametrize(
    "named", [(1, 1, False), (-1, 1, False), (0, 0, False), (0, 2, False), (0, -1, False)]
)
def test_a_large_payload_that_is_not_there_is_malformed(named: tuple[int, int, bool]) -> None:
    body = codec.encode_runs([Run("a", 1, 0, [None], [named])])
    with pytest.raises(PeerError, match="malformed"):
        codec.decode_runs([body, b"large"])


@pytest.mark.parametrize("is_value", [False, True])
def test_no_frame_may_be_unpacked_more_than_once(is_value: bool) -> None:
    """Otherwise a message of some megabytes that names its one frame a million times fills the memory."""
    frame = memoryview(codec.encode_body(b"x" * 1000))
    body = codec.encode_runs([Run("a", 1, 0, [None] * 100, [(index, 1, is_value) for index in range(100)])])
    with pytest.raises(PeerError, match="malformed"):
        codec.decode_runs([body, frame])


def test_mutable_payloads_are_frozen_when_they_are_put() -> None:
    buffer = bytearray(b"before")
    payload, size = codec.encode_payload(buffer)
    value = ["before"]
    encoded, _ = codec.encode_payload(value)
    buffer[:] = b"after!"
    value[0] = "after"
    assert (payload, size) == (b"before", 6)
    assert codec.decode_value(bytes(memoryview(encoded))) == ["before"]  # type: ignore[arg-type]
    assert codec.encode_payload(memoryview(b"view")) == (b"view", 4)


@pytest.mark.parametrize("value", [object(), 2**64, {1: object()}, lambda: None, [{}] * 3 + [print]])
def test_what_cannot_travel_is_the_callers_mistake(value: object) -> None:
    with pytest.raises(UsageError, match=type(value).__name__):
        codec.encode_payload(value)


def test_what_contains_itself_is_the_callers_mistake() -> None:
    loop: list[object] = []
    loop.append(loop)
    with pytest.raises(UsageError, match="list"):
        codec.encode_payload(loop)


@given(st.sampled_from(DECODERS), st.binary(max_size=60))
def test_bytes_decode_or_are_refused(decode: Callable[[bytes], object], frame: bytes) -> None:
    assert refusal(decode, frame) in (None, DropReason.MALFORMED, DropReason.VERSION)


@pytest.mark.parametrize("decode", DECODERS)
@pytest.mark.parametrize(
    "frame",
    [
        DEEP,
        b"\x01\x05" + DEEP,
        b"\x81" * 5000,
        b"\xdd\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff",
        b"\xc6\xff\xff\xff\xff",
        b"\x81\x80\x01",
        b"\x91\xd6\xff\xff\xff\xff\xff",
        b"\xc7\x0c\xff\xff\xff\xff\xff\x7f\xff\xff\xff\xff\xff\xff\xff",
    ],
)
def test_nesting_counts_and_keys_that_only_an_attacker_sends(
    decode: Callable[[bytes], object], frame: bytes
) -> None:
    assert refusal(decode, frame) in (None, DropReason.MALFORMED, DropReason.VERSION)


@given(CONTROLS, st.data())
def test_a_truncated_control_message_is_malformed(
    message: tuple[Kind, codec.Control], data: st.DataObject
) -> None:
    frame = codec.encode_control(*message)
    cut = data.draw(st.integers(2, len(frame) - 1))
    with pytest.raises(PeerError, match="malformed"):
        codec.decode_control(frame[1], frame[:cut])


def test_an_unknown_kind_is_another_version() -> None:
    with pytest.raises(PeerError) as caught:
        codec.decode_control(77, b"\x01\x4d")
    assert caught.value.reason is DropReason.VERSION


@given(
    st.lists(ENTRIES, max_size=4),
    st.lists(st.text(max_size=5), max_size=4),
    st.dictionaries(st.text(), VALUES, max_size=3),
)
def test_bodies_of_records_come_back_as_they_were(
    entries: list[LinkEntry], texts: list[str], attributes: dict[str, object]
) -> None:
    assert codec.decode_links(codec.encode_body(entries)) == entries
    assert codec.decode_interests(codec.encode_body(texts)) == texts
    roles = RolesBody("peer", texts)
    assert codec.decode_roles(codec.encode_body(roles)) == roles
    assert codec.decode_sites(codec.encode_body(attributes)) == attributes


@pytest.mark.parametrize("value", [[], 1, {1: 2}, None])
def test_sites_are_a_map_of_names(value: object) -> None:
    with pytest.raises(PeerError, match="malformed"):
        codec.decode_sites(codec.encode_body(value))


def test_a_signature_covers_everything_but_the_age() -> None:
    plain = Record("p", 1, 2, 3, b"body", b"", 0)
    parts = {codec.signed_part(plain)}
    for change in ({"origin": "q"}, {"epoch": 9}, {"kind": 9}, {"sequence": 9}, {"body": b"other"}):
        parts.add(codec.signed_part(msgspec.structs.replace(plain, **change)))
    assert len(parts) == 6
    assert codec.signed_part(msgspec.structs.replace(plain, age_ms=9, signature=b"s")) in parts
