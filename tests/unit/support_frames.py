"""Hypothesis strategies for everything that travels on a link: well-formed, and well-formed but hostile."""

from hypothesis import strategies as st

from anabranch.overlay.codec import (
    encode_body,
    encode_bundle_header,
    encode_control,
    encode_echo,
    encode_payload,
    encode_probe,
    encode_runs,
    encode_subtree,
    encode_tail,
)
from anabranch.overlay.headers import (
    Bye,
    Congestion,
    Digest,
    Hello,
    Inspect,
    Kind,
    LinkEntry,
    Record,
    Records,
    Report,
    RolesBody,
    Run,
    Tail,
    Want,
)

U16, U32, U64 = (st.integers(0, 2**bits - 1) for bits in (16, 32, 64))
INTS = (
    st.integers(-3, 3)
    | st.sampled_from([2**62, 2**63 - 1, 2**63, 2**64 - 1, -(2**63)])
    | st.integers(-(2**63), 2**64 - 1)
)
"""Whatever the wire can carry as a whole number."""

NAMES = st.sampled_from(["me", "b", "c", "d", "x" * 64])
ODD_NAMES = NAMES | st.sampled_from(["", "-", "x" * 65, "a b", "ä"]) | st.text(max_size=5)
TOPICS = st.sampled_from(["a", "a/b", "c/d/e"])
ODD_TOPICS = TOPICS | st.sampled_from(["", "/", "a/*", "**", "a//b", "x" * 300]) | st.text(max_size=5)
SCALARS = (
    st.none()
    | st.booleans()
    | INTS
    | st.floats(allow_nan=False)
    | st.text(max_size=5)
    | st.binary(max_size=5)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)

ENTRIES = st.builds(LinkEntry, ODD_NAMES, INTS, INTS, INTS, INTS, st.booleans())
SANE_ENTRIES = st.builds(
    LinkEntry,
    NAMES,
    st.integers(0, 10**6),
    st.integers(0, 10**6),
    st.integers(0, 10**6),
    st.integers(0, 10**6),
    st.booleans(),
)
ADDRESSES = st.sampled_from(["tcp://10.0.0.2:1", "ipc:///x", "tcp://*:1", "nonsense"]) | st.text(max_size=8)
BODIES = st.one_of(
    st.lists(ENTRIES, max_size=3).map(encode_body),
    st.lists(SANE_ENTRIES, max_size=3).map(encode_body),
    st.lists(ODD_TOPICS, max_size=3).map(encode_body),
    st.builds(RolesBody, st.text(max_size=5), st.lists(ADDRESSES, max_size=3)).map(encode_body),
    st.dictionaries(st.text(max_size=3), VALUES, max_size=2).map(encode_body),
    st.binary(max_size=12),
)
RECORDS = st.builds(
    Record,
    origin=ODD_NAMES,
    epoch=INTS,
    kind=st.integers(0, 5) | INTS,
    sequence=INTS,
    body=BODIES,
    signature=st.just(b"") | st.binary(max_size=3),
    age_ms=st.just(0) | INTS,
)
CONTROLS = st.one_of(
    st.tuples(
        st.just(Kind.HELLO),
        st.builds(Hello, ODD_NAMES, INTS, st.sampled_from(["peer", "client", "king"]), INTS),
    ),
    st.tuples(st.just(Kind.RECORDS), st.builds(Records, st.lists(RECORDS, max_size=3))),
    st.tuples(
        st.just(Kind.DIGEST),
        st.builds(Digest, st.lists(st.tuples(ODD_NAMES, INTS, INTS, INTS), max_size=3), st.booleans()),
    ),
    st.tuples(st.just(Kind.WANT), st.builds(Want, st.lists(st.tuples(ODD_NAMES, INTS), max_size=3))),
    st.tuples(st.just(Kind.BYE), st.builds(Bye, st.text(max_size=5))),
    st.tuples(
        st.just(Kind.CONGESTION),
        st.builds(Congestion, ODD_NAMES, ODD_NAMES, INTS, st.lists(ODD_NAMES, max_size=3)),
    ),
    st.tuples(st.just(Kind.INSPECT), st.builds(Inspect, INTS)),
    st.tuples(st.just(Kind.REPORT), st.builds(Report, INTS, st.binary(max_size=5))),
)

PAYLOADS = (st.binary(max_size=8) | VALUES).map(lambda value: encode_payload(value)[0])
RUNS = st.builds(
    Run,
    topic=ODD_TOPICS,
    publisher=st.integers(1, 3) | INTS,
    first_sequence=st.integers(0, 9) | INTS,
    payloads=st.lists(PAYLOADS, max_size=4),
    large=st.lists(st.tuples(st.integers(-1, 4), st.integers(-1, 3), st.booleans()), max_size=2),
)
SUBTREES = st.recursive(
    st.builds(encode_subtree, st.booleans(), st.just([])),
    lambda inner: st.builds(encode_subtree, st.booleans(), st.lists(st.tuples(ODD_NAMES, inner), max_size=2)),
    max_leaves=4,
)
TAILS = st.builds(
    Tail,
    origin=NAMES,
    epoch=INTS,
    generation=st.integers(0, 3) | INTS,
    via=st.lists(ODD_NAMES, max_size=3),
    deliver=st.booleans(),
    branches=st.lists(st.tuples(ODD_NAMES, SUBTREES), max_size=2),
    destinations=st.just([]) | st.lists(ODD_NAMES, max_size=3),
)
GOOD_TAILS = st.builds(
    Tail,
    origin=st.just("b"),
    epoch=st.just(1),
    generation=st.integers(1, 3),
    via=st.just(["b"]),
    deliver=st.booleans(),
    branches=st.lists(st.tuples(st.sampled_from(["c", "d"]), SUBTREES), max_size=2),
)


@st.composite
def bundles(draw: st.DrawFn) -> list[bytes]:
    """The frames of a bundle that decodes, whatever it claims."""
    header = encode_bundle_header(
        draw(U16),
        draw(st.integers(0, 40) | U64),
        draw(U64),
        draw(U32),
        draw(U32),
        encode_tail(draw(TAILS | GOOD_TAILS)),
    )
    body = encode_runs(draw(st.lists(RUNS, max_size=3)))
    if draw(st.booleans()):
        return [header + body]
    return [header, body, *draw(st.lists(st.binary(max_size=6), max_size=2))]


WELL_FORMED = st.one_of(
    bundles(),
    CONTROLS.map(lambda pair: [encode_control(*pair)]),
    st.just([encode_control(Kind.WHO)]),
    st.builds(encode_probe, U32, U64).map(lambda frame: [frame]),
    st.builds(encode_echo, st.integers(0, 9) | U32, U64, U32).map(lambda frame: [frame]),
)


@st.composite
def mutated(draw: st.DrawFn) -> list[bytes]:
    """Well-formed frames with bytes flipped, cut off, put in, or frames missing and repeated."""
    frames = list(draw(WELL_FORMED))
    for _ in range(draw(st.integers(1, 3))):
        if not frames:
            break
        at = draw(st.integers(0, len(frames) - 1))
        frame = frames[at]
        where = draw(st.integers(0, len(frame)))
        match draw(st.sampled_from(["cut", "flip", "insert", "drop", "repeat"])):
            case "cut":
                frames[at] = frame[:where]
            case "flip":
                frames[at] = frame[:where] + draw(st.binary(min_size=1, max_size=1)) + frame[where + 1 :]
            case "insert":
                frames[at] = frame[:where] + draw(st.binary(max_size=4)) + frame[where:]
            case "drop":
                del frames[at]
            case "repeat":
                frames.insert(at, frame)
    return frames


GARBAGE = st.lists(st.binary(max_size=40), max_size=3) | st.builds(
    lambda kind, rest: [bytes((1, kind)) + rest], st.integers(0, 13), st.binary(max_size=40)
)
ANYTHING = st.one_of(WELL_FORMED, mutated(), GARBAGE)
