"""What neighbours may say, made from the inputs of the fuzz target: well-formed whatever it claims."""

from collections.abc import Callable
from typing import Protocol

import msgspec

from anabranch.overlay.asking import Protocol as Way
from anabranch.overlay.assured import AssuredRun, Progress, Start, StreamKey, encode_assured
from anabranch.overlay.attributes import Plain
from anabranch.overlay.codec import (
    Frame,
    encode_ack,
    encode_body,
    encode_bundle_header,
    encode_control,
    encode_echo,
    encode_probe,
    encode_runs,
    encode_subtree,
    encode_tail,
)
from anabranch.overlay.durables import DurableEntry
from anabranch.overlay.headers import (
    Bye,
    Congestion,
    Digest,
    Flag,
    Hello,
    Inspect,
    Kind,
    LinkEntry,
    Record,
    RecordKind,
    Records,
    Report,
    RolesBody,
    Run,
    SelectedRun,
    Tail,
    Want,
)
from anabranch.overlay.replywire import Item, Merged, Prompt, Request, encode_items
from anabranch.overlay.replywire import Report as Answers

NAMES = ("b", "c", "d", "me", "leaf", "e", "x" * 64, "a b")
TOPICS = ("a", "a/b", "a/c/d", "b", "*", "")
INTEGERS = (0, 1, 2, 3, -1, 2**32, 2**62, 2**63 - 1, 2**63, 2**64 - 1, -(2**63), 17, 255, 256, 1000, 10**6)
EXPRESSIONS = ("", "region = 1", "region > 0 and load < 3", "not region in {1, 2}", "(", "x" * 70)
MERGES = ("", "histogram", "count", "sum", "min", "max", "mean", "top:2", "distinct", "collect", "nonsense")
VALUES = (
    None,
    True,
    1,
    -1,
    2**63,
    1.5,
    "a",
    b"b",
    [],
    [1, 2],
    {},
    {"a": 1},
    {b"\xc0": 2},
    [None, [1.5, "z"]],
)


KINDS = (1, 2, 3, 4, 5, 17)
"""Records that may come; credentials mean nothing in an open mesh."""
OWN_STREAM = (2, 100, False)
"""The acknowledged publisher of the node that hears all this."""


class Sender(Protocol):
    """What the makers know of the world."""

    sender: str
    hop: int

    def next(self) -> int:
        """A number that was not used before: sequences of records and of hops."""

    def probes(self, which: int) -> list[int]:
        """Those under way on a link."""


class Reader:
    """Numbers and bytes out of the input; zeros when it ends."""

    __slots__ = ("at", "data")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def byte(self) -> int:
        """The next byte."""
        at = self.at
        self.at = at + 1
        return self.data[at] if at < len(self.data) else 0

    def take(self) -> bytes:
        """Some bytes; the first says how many."""
        length = self.byte()
        at = self.at
        self.at = at + length
        return self.data[at : at + length]

    def pick(self, choices: tuple[str, ...]) -> str:
        """One of these."""
        return choices[self.byte() % len(choices)]

    def integer(self) -> int:
        """Small, or one of those where something wraps."""
        value = self.byte()
        return value if value < 200 else INTEGERS[value % len(INTEGERS)]

    def flag(self) -> bool:
        """True or false."""
        return bool(self.byte() & 1)

    def value(self) -> object:
        """What an application may have put."""
        value = self.byte()
        return value if value >= 128 else VALUES[value % len(VALUES)]

    def names(self) -> list[str]:
        """Some peers."""
        return [self.pick(NAMES) for _ in range(self.byte() % 4)]


def mutated(frames: list[Frame], reader: Reader, changes: int) -> list[Frame]:
    """Bytes changed, cut off or put in, frames dropped or repeated."""
    frames = list(frames)
    for _ in range(changes + 1):
        if not frames:
            break
        at = reader.byte() % len(frames)
        frame = bytes(frames[at])
        where = reader.byte() % (len(frame) + 1)
        how = reader.byte()
        if how < 160:
            frames[at] = frame[:where] + bytes((how + reader.byte() & 255,)) + frame[where + 1 :]
        elif how < 192:
            frames[at] = frame[:where]
        elif how < 232:
            frames[at] = frame[:where] + reader.take() + frame[where:]
        elif how < 244:
            del frames[at]
        else:
            frames.append(frame)
    return frames


def _noise(reader: Reader, _: Sender) -> list[Frame]:
    return [reader.take() for _ in range(1 + reader.byte() % 3)]


def _any_kind(reader: Reader, _: Sender) -> list[Frame]:
    return [bytes((1, reader.byte() & 15)) + reader.take()]


def _hello(reader: Reader, _: Sender) -> list[Frame]:
    hello = Hello(
        reader.pick(NAMES), reader.integer(), reader.pick(("peer", "client", "king")), reader.integer()
    )
    return [encode_control(Kind.HELLO, hello)]


def _record(reader: Reader, world: Sender) -> Record:
    kind = KINDS[reader.byte() % len(KINDS)]
    body: object
    if kind == RecordKind.LINKS:
        body = [LinkEntry(name, reader.integer(), 0, 0, 10**6, name == "leaf") for name in reader.names()]
    elif kind == RecordKind.INTERESTS:
        body = [reader.pick(TOPICS) for _ in range(reader.byte() % 8)]
    elif kind == RecordKind.ROLES:
        body = RolesBody("peer", [f"tcp://{name}:{reader.byte()}" for name in reader.names()])
    elif kind == RecordKind.SITES:
        body = {"region": reader.integer()}
    elif kind == RecordKind.DURABLES:
        body = [
            DurableEntry(name, reader.pick(TOPICS), reader.flag(), reader.flag(), reader.flag())
            for name in reader.names()
        ]
    else:
        body = None
    encoded = reader.take() if body is None else encode_body(body)
    sequence = world.next() if reader.byte() < 200 else reader.integer()
    return Record(reader.pick(NAMES), reader.integer(), kind, sequence, encoded, b"", reader.byte() * 16)


def _records(reader: Reader, world: Sender) -> list[Frame]:
    return [encode_control(Kind.RECORDS, Records([_record(reader, world) for _ in range(reader.byte() % 4)]))]


def _digest(reader: Reader, _: Sender) -> list[Frame]:
    entries = [(name, reader.byte() % 6, reader.integer(), reader.integer()) for name in reader.names()]
    return [encode_control(Kind.DIGEST, Digest(entries, reader.byte() < 128))]


def _want(reader: Reader, _: Sender) -> list[Frame]:
    return [encode_control(Kind.WANT, Want([(name, reader.byte() % 6) for name in reader.names()]))]


def _probe(reader: Reader, _: Sender) -> list[Frame]:
    return [encode_probe(reader.byte(), reader.byte())]


def _echo(reader: Reader, world: Sender) -> list[Frame]:
    under_way = world.probes(reader.byte() & 3)
    return [encode_echo(under_way[-1] if under_way else 1, 0, reader.byte())]


def _farewell(reader: Reader, _: Sender) -> list[Frame]:
    return [encode_control(Kind.BYE, Bye("x")) if reader.byte() < 128 else encode_control(Kind.WHO)]


def _inspection(reader: Reader, _: Sender) -> list[Frame]:
    if reader.byte() < 128:
        return [encode_control(Kind.INSPECT, Inspect(reader.integer()))]
    return [encode_control(Kind.REPORT, Report(reader.integer(), reader.take()))]


def _congestion(reader: Reader, _: Sender) -> list[Frame]:
    notice = Congestion(reader.pick(NAMES), reader.pick(NAMES), reader.integer(), reader.names())
    return [encode_control(Kind.CONGESTION, notice)]


def _bundle(reader: Reader, world: Sender) -> list[Frame]:
    origin = reader.pick(NAMES)
    via = [origin, *reader.names(), world.sender]
    leaf = encode_subtree(True, [(name, encode_subtree(True, [])) for name in reader.names()])
    branches = [(name, leaf) for name in reader.names()]
    destinations = reader.names() if reader.byte() >= 200 else []
    tail = Tail(
        origin, reader.byte() & 3, reader.byte() & 3, via, reader.byte() < 200, branches, destinations
    )
    return _with_body(reader, world, tail)


def _likely_bundle(reader: Reader, world: Sender) -> list[Frame]:
    sender = world.sender
    shape = reader.byte()
    via = [sender] if sender == "leaf" or shape & 1 else ["d", sender]
    branches = [("c", encode_subtree(True, []))] if sender == "b" and shape & 2 else []
    destinations = ["b", "c", "me"] if sender == "leaf" and shape & 4 else []
    tail = Tail(via[0], 1, shape >> 3 & 3, via, True, branches, destinations)
    return _with_body(reader, world, tail)


def _with_body(reader: Reader, world: Sender, tail: Tail) -> list[Frame]:
    runs = []
    frames: list[Frame] = []
    for _ in range(1 + reader.byte() % 3):
        payloads: list[object] = [reader.byte()] * (reader.byte() % 4 + 1)
        large = []
        if reader.byte() >= 200:
            frames.append(memoryview(reader.take()))
            large = [(reader.byte() & 3, len(frames), reader.byte() < 128)]
        runs.append(Run(reader.pick(TOPICS), reader.byte() & 3, reader.integer(), payloads, large))
    body = encode_runs(runs)
    header = _header(0, reader, world, tail)
    return [header, body, *frames] if frames or reader.byte() < 64 else [header + body]


def _header(flags: int, reader: Reader, world: Sender, tail: Tail) -> bytes:
    hop = world.hop = world.next() if reader.byte() < 230 else world.hop
    return encode_bundle_header(
        flags, hop, hop, reader.byte() * 1000, reader.byte(), encode_tail(tail), reader.byte(), reader.byte()
    )


def _ack(reader: Reader, _: Sender) -> list[Frame]:
    return [encode_ack(reader.integer() & 2**64 - 1, reader.integer() & 2**64 - 1)]


def _short_tail(reader: Reader, world: Sender) -> Tail:
    """For us, and at times for the peer behind us too."""
    branches = [("c", encode_subtree(True, []))] if world.sender == "b" and reader.flag() else []
    return Tail(world.sender, 1, 0, [world.sender], reader.byte() < 224, branches)


def _selected(reader: Reader, world: Sender) -> list[Frame]:
    tail = _short_tail(reader, world)
    runs = [
        SelectedRun(
            reader.pick(TOPICS),
            reader.byte() & 3,
            reader.integer(),
            [reader.value()],
            attributes={name: reader.value() for name in reader.names()},  # type: ignore[misc]
            to=reader.pick(EXPRESSIONS),
        )
        for _ in range(1 + reader.byte() % 2)
    ]
    return [_header(Flag.SELECTED, reader, world, tail) + encode_runs(runs)]


def _stream(reader: Reader) -> StreamKey:
    return StreamKey(reader.byte() & 3, reader.byte() & 127, reader.flag())


def _assured(reader: Reader, world: Sender) -> list[Frame]:
    tail = _short_tail(reader, world)
    runs = []
    for _ in range(1 + reader.byte() % 2):
        stream = _stream(reader)
        payloads: list[object] = [b"x" * reader.byte() for _ in range(reader.byte() % 3)]
        run = Run(reader.pick(TOPICS), stream.publisher, reader.integer(), payloads)
        starts = [Start(name, "d", reader.byte()) for name in reader.names()]
        attributes: dict[str, Plain] = {name: reader.value() for name in reader.names()}  # type: ignore[misc]
        runs.append(AssuredRun(stream, run, starts, attributes, reader.pick(EXPRESSIONS), reader.integer()))
    return [_header(Flag.ASSURED, reader, world, tail), *encode_assured(runs, 64)]


def _confirms(reader: Reader, world: Sender) -> list[Frame]:
    tail = _short_tail(reader, world)
    found = []
    for _ in range(1 + reader.byte() % 2):
        stream = StreamKey(*OWN_STREAM) if reader.flag() else _stream(reader)
        consumer, state, arrived = reader.pick(("", "d", "*")), reader.byte() % 7, reader.integer()
        confirmed = min(arrived, reader.byte())
        refused = [(reader.byte() >> 4, reader.byte() >> 2) for _ in range(reader.byte() % 3)]
        found.append(Progress(stream, consumer, state, arrived, confirmed, reader.integer(), refused))
    return [_header(Flag.CONFIRMS, reader, world, tail) + encode_body(found)]


def _replies(reader: Reader, world: Sender) -> list[Frame]:
    tail = _short_tail(reader, world)
    items: list[Item] = [_item(reader, world) for _ in range(1 + reader.byte() % 2)]
    asks = any(isinstance(item, Request) for item in items)
    flags = (Flag.REQUEST if asks else Flag.REPLY) | (Flag.STATELESS if reader.flag() else 0)
    return [_header(flags, reader, world, tail) + encode_items(items)]


def _item(reader: Reader, world: Sender) -> Item:
    what = reader.byte() % 3
    own = reader.flag()
    number = 1 + reader.byte() % 4
    if what == 0:
        names = {"me", *reader.names()} if reader.byte() < 224 else set(reader.names())
        return Request(
            world.sender,
            1,
            number,
            reader.pick(TOPICS),
            _raw(reader),
            msgspec.Raw(encode_body(sorted(names))),
            tuple(Way)[reader.byte() % len(Way)],
            reader.pick(MERGES),
            [["scalar"]] if reader.flag() else [],
            max(1, reader.byte() * 1000),
            1 + reader.byte() % number,
            reader.byte() & 1,
            to=reader.pick(EXPRESSIONS),
        )
    origin, epoch = ("me", 100) if own else (reader.pick(NAMES), 1)
    mask = bytes((reader.byte(),))
    if what == 1:
        words = ("check", "poll", "close", "sing")
        return Prompt(origin, epoch, number, reader.pick(words), mask, reader.byte() & 3, reader.integer())
    answers = Answers(origin, epoch, number, done=mask, checked=reader.flag(), poll=reader.byte() & 1)
    shape = reader.byte()
    if shape & 1:
        answers.entries = [(reader.integer(), reader.byte() & 1, reader.flag(), _raw(reader), b"")]
    if shape & 2:
        answers.ended = [(reader.byte() & 7, reader.byte() & 3, b"")]
    if shape & 4:
        answers.merged = [Merged(bytes((reader.byte(),)), reader.integer(), reader.byte() & 3, _raw(reader))]
    if shape & 8:
        answers.lost = [(bytes((reader.byte(),)), reader.pick(NAMES), "x")]
    if shape & 16:
        answers.back = reader.names()
    if shape & 32:
        answers.records = [_record(reader, world)]
    answers.outstanding = reader.byte() & 1
    return answers


def _raw(reader: Reader) -> msgspec.Raw:
    return msgspec.Raw(encode_body(reader.value()))


MAKERS: tuple[Callable[[Reader, Sender], list[Frame]], ...] = (
    _likely_bundle,
    _bundle,
    _records,
    _digest,
    _want,
    _probe,
    _echo,
    _congestion,
    _any_kind,
    _noise,
    _hello,
    _inspection,
    _farewell,
    _ack,
    _selected,
    _assured,
    _confirms,
    _replies,
)
