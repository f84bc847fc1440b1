"""Fuzz target: frames and events made from the input go into a node with open sessions; nothing may raise.

`python tests/fuzz/fuzz_receive.py -atheris_runs=10000000` runs it under atheris (the extra `[fuzz]`).
`fuzz_one` needs no atheris; a failure names the inputs that lead to it, for `replay`.
"""

import random
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

if __name__ == "__main__":
    import atheris

    with atheris.instrument_imports(include=["anabranch"]):
        import anabranch.overlay.node  # noqa: F401 - imported for its instrumentation

from anabranch.overlay.actions import SendBundle
from anabranch.overlay.codec import (
    Frame,
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
from anabranch.overlay.config import Config
from anabranch.overlay.headers import (
    Bye,
    Congestion,
    Digest,
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
    Tail,
    Want,
)
from anabranch.overlay.identifiers import LinkId, PeerId
from anabranch.overlay.node import Node
from anabranch.overlay.queues import LinkQueue

CONFIG = Config(
    neighbours_target=2,
    links_max=6,
    links_opening_max=6,
    records_max=10,
    record_body_max_bytes=300,
    patterns_max=4,
    streams_max=4,
    held_runs_max=4,
    cache_max=8,
    subscriptions_max=6,
    payload_max_bytes=4096,
    bundle_max_bytes=2048,
    inline_max_bytes=64,
    record_refresh_s=20.0,
    record_lifetime_s=50.0,
    orphan_grace_s=5.0,
)
"""Small tables, so that every limit is reached within a few inputs."""
CORPUS = Path(__file__).parent / "corpus"
EXECUTIONS_PER_NODE = 300
EVENTS_MAX = 4
"""Events taken from one input."""
PEERS = ("b", "c", "leaf", "")
"""Neighbours by link: two peers, a light client, and one that never said hello."""
NAMES = ("b", "c", "d", "me", "leaf", "e", "x" * 64, "a b")
TOPICS = ("a", "a/b", "a/c/d", "b", "*", "")
INTEGERS = (0, 1, 2, 3, -1, 2**32, 2**62, 2**63 - 1, 2**63, 2**64 - 1, -(2**63), 17, 255, 256, 1000, 10**6)
PAUSES_S = (0.0, 0.001, 0.02, 0.11, 0.3, 0.7, 1.1, 60.0)


def fuzz_one(data: bytes) -> None:
    """Take one input. Raises what the node raises, or AssertionError when an invariant does not hold."""
    global _world
    if _world.executions >= EXECUTIONS_PER_NODE:
        _world.check_bounds()
        _world = World(is_recording=not _world.node.recording)
    _world.executions += 1
    _world.inputs.append(data)
    try:
        _world.live_through(Reader(data))
    except BaseException as error:
        inputs = [entry.hex() for entry in _world.inputs]
        error.add_note(f"replay({inputs!r}, is_recording={_world.node.recording})")
        _world = World()
        raise


def replay(inputs: Iterable[str], is_recording: bool = False) -> None:
    """Repeat a failure from the inputs that its note names."""
    world = World(is_recording)
    for entry in inputs:
        world.executions += 1
        world.live_through(Reader(bytes.fromhex(entry)))


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

    def names(self) -> list[str]:
        """Some peers."""
        return [self.pick(NAMES) for _ in range(self.byte() % 4)]


class World:
    """A node with open sessions, and time."""

    def __init__(self, is_recording: bool = False) -> None:
        self.executions = 0
        self.inputs: list[bytes] = []
        self.now = 1000.0
        self.counter = self.hop = 0
        self.node = Node(PeerId("me"), CONFIG, epoch=100, rng=random.Random(1), seeds=("tcp://seed:1",))
        self.queue = LinkQueue(1 << 40, retains=False)
        self.sender = ""
        """Who is on the link that a message is being made for."""
        self.links = [LinkId(0)] * len(PEERS)
        self.last_link = 0
        self.node.recording = is_recording
        self.node.start(self.now)
        self.node.subscribe("a/**", self.now)
        self.outlet = self.node.open_publisher("a", self.now)
        for which in range(len(PEERS)):
            self.open(which)
        self.node.take_actions()

    def open(self, which: int) -> None:
        """Open a link again, with its hello."""
        self.last_link += 1
        link = self.links[which] = LinkId(self.last_link)
        self.node.link_opened(link, self.now, "tcp://seed:1" if which == 1 else None)
        if PEERS[which]:
            role = "client" if PEERS[which] == "leaf" else "peer"
            self.node.receive(
                link, [encode_control(Kind.HELLO, Hello(PEERS[which], 1, role, which))], self.now
            )

    def live_through(self, reader: Reader) -> None:
        """Everything that the input holds, and the checks after it."""
        events = 0
        size = len(reader.data)
        while reader.at < size and events < EVENTS_MAX:
            events += 1
            kind = reader.byte()
            if kind < 232:
                self.receive(reader, kind)
            elif kind < 240:
                self.now += PAUSES_S[kind & 7]
                self.node.handle_timeout(self.now)
            else:
                self.act(reader, kind)
        if not self.executions & 3:
            self.node.check_invariants()
        for action in self.node.take_actions():
            if type(action) is SendBundle:
                self.queue.put_bundle(action.bundle)
                self.queue.peek(self.now)
                self.queue.advance()

    def receive(self, reader: Reader, kind: int) -> None:
        """A message on one of the links, well-formed or not."""
        which = kind & 3
        self.sender = PEERS[which]
        make = MAKERS[(kind >> 2) % len(MAKERS)]
        frames = make(reader, self)
        changes = reader.byte()
        if changes >= 128:
            frames = mutated(frames, reader, changes & 3)
        self.node.receive(self.links[which], frames, self.now)
        if self.node.links.get(self.links[which]) is None:
            self.open(which)

    def act(self, reader: Reader, kind: int) -> None:
        """Something that the shell or the application does."""
        node, now = self.node, self.now
        which = reader.byte() & 3
        match kind & 7:
            case 0:
                node.link_closed(self.links[which], now)
                self.open(which)
            case 1:
                payload, size = encode_payload(bytes(reader.byte()))
                if node.express(self.outlet, payload, now) is None:
                    node.publish(self.outlet, payload, size, now)
                    node.flush(now)
            case 2:
                node.unsubscribe(node.subscribe(("a", "b", "*", "**")[which], now), now)
            case 3:
                node.link_backlog(self.links[which], reader.byte() / 1000)
            case 4:
                node.application_backlog(("b", "me") if which else ("me",), reader.byte() / 1000, now)
            case 5:
                node.found([reader.take().decode("latin-1"), "tcp://10.0.0.1:1"], now)
            case 6:
                node.set_attributes({"region": which}, now)
            case _:
                node.dial_failed("tcp://seed:1", now)

    def next(self) -> int:
        """A number that was not used before: sequences of records and of hops."""
        self.counter += 1
        return self.counter

    def check_bounds(self) -> None:
        """Every table within its bound."""
        node = self.node
        streams = node._delivering.streams
        assert len(streams) <= CONFIG.streams_max
        assert all(len(stream.held) <= CONFIG.held_runs_max for stream in streams._streams.values())
        assert len(node._delivering._forwarding.plans) <= CONFIG.cache_max
        assert len(node.matching._subscriptions) <= CONFIG.cache_max
        assert len(node.links) <= CONFIG.links_max + CONFIG.links_opening_max


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


# Messages, well-formed whatever they claim


def _noise(reader: Reader, _: World) -> list[Frame]:
    return [reader.take() for _ in range(1 + reader.byte() % 3)]


def _any_kind(reader: Reader, _: World) -> list[Frame]:
    return [bytes((1, reader.byte() & 15)) + reader.take()]


def _hello(reader: Reader, _: World) -> list[Frame]:
    hello = Hello(
        reader.pick(NAMES), reader.integer(), reader.pick(("peer", "client", "king")), reader.integer()
    )
    return [encode_control(Kind.HELLO, hello)]


def _record(reader: Reader, world: World) -> Record:
    kind = 1 + reader.byte() % 5
    body: object
    if kind == RecordKind.LINKS:
        body = [LinkEntry(name, reader.integer(), 0, 0, 10**6, name == "leaf") for name in reader.names()]
    elif kind == RecordKind.INTERESTS:
        body = [reader.pick(TOPICS) for _ in range(reader.byte() % 8)]
    elif kind == RecordKind.ROLES:
        body = RolesBody("peer", [f"tcp://{name}:{reader.byte()}" for name in reader.names()])
    elif kind == RecordKind.SITES:
        body = {"region": reader.integer()}
    else:
        body = None
    encoded = reader.take() if body is None else encode_body(body)
    sequence = world.next() if reader.byte() < 200 else reader.integer()
    return Record(reader.pick(NAMES), reader.integer(), kind, sequence, encoded, b"", reader.byte() * 16)


def _records(reader: Reader, world: World) -> list[Frame]:
    return [encode_control(Kind.RECORDS, Records([_record(reader, world) for _ in range(reader.byte() % 4)]))]


def _digest(reader: Reader, _: World) -> list[Frame]:
    entries = [(name, reader.byte() % 6, reader.integer(), reader.integer()) for name in reader.names()]
    return [encode_control(Kind.DIGEST, Digest(entries, reader.byte() < 128))]


def _want(reader: Reader, _: World) -> list[Frame]:
    return [encode_control(Kind.WANT, Want([(name, reader.byte() % 6) for name in reader.names()]))]


def _probe(reader: Reader, _: World) -> list[Frame]:
    return [encode_probe(reader.byte(), reader.byte())]


def _echo(reader: Reader, world: World) -> list[Frame]:
    link = world.node.links.get(world.links[reader.byte() & 3])
    under_way = list(link.probes) if link is not None else []
    return [encode_echo(under_way[-1] if under_way else 1, 0, reader.byte())]


def _farewell(reader: Reader, _: World) -> list[Frame]:
    return [encode_control(Kind.BYE, Bye("x")) if reader.byte() < 128 else encode_control(Kind.WHO)]


def _inspection(reader: Reader, _: World) -> list[Frame]:
    if reader.byte() < 128:
        return [encode_control(Kind.INSPECT, Inspect(reader.integer()))]
    return [encode_control(Kind.REPORT, Report(reader.integer(), reader.take()))]


def _congestion(reader: Reader, _: World) -> list[Frame]:
    notice = Congestion(reader.pick(NAMES), reader.pick(NAMES), reader.integer(), reader.names())
    return [encode_control(Kind.CONGESTION, notice)]


def _bundle(reader: Reader, world: World) -> list[Frame]:
    origin = reader.pick(NAMES)
    via = [origin, *reader.names(), world.sender]
    leaf = encode_subtree(True, [(name, encode_subtree(True, [])) for name in reader.names()])
    branches = [(name, leaf) for name in reader.names()]
    destinations = reader.names() if reader.byte() >= 200 else []
    tail = Tail(
        origin, reader.byte() & 3, reader.byte() & 3, via, reader.byte() < 200, branches, destinations
    )
    return _with_body(reader, world, tail)


def _likely_bundle(reader: Reader, world: World) -> list[Frame]:
    sender = world.sender
    shape = reader.byte()
    via = [sender] if sender == "leaf" or shape & 1 else ["d", sender]
    branches = [("c", encode_subtree(True, []))] if sender == "b" and shape & 2 else []
    destinations = ["b", "c", "me"] if sender == "leaf" and shape & 4 else []
    tail = Tail(via[0], 1, shape >> 3 & 3, via, True, branches, destinations)
    return _with_body(reader, world, tail)


def _with_body(reader: Reader, world: World, tail: Tail) -> list[Frame]:
    runs = []
    frames: list[Frame] = []
    for _ in range(1 + reader.byte() % 3):
        payloads: list[object] = [reader.byte()] * (reader.byte() % 4 + 1)
        large = []
        if reader.byte() >= 200:
            frames.append(memoryview(reader.take()))
            large = [(reader.byte() & 3, len(frames), reader.byte() < 128)]
        runs.append(Run(reader.pick(TOPICS), reader.byte() & 3, reader.integer(), payloads, large))
    hop = world.hop = world.next() if reader.byte() < 230 else world.hop
    header = encode_bundle_header(0, hop, hop, reader.byte() * 1000, reader.byte(), encode_tail(tail))
    body = encode_runs(runs)
    return [header, body, *frames] if frames or reader.byte() < 64 else [header + body]


MAKERS: tuple[Callable[[Reader, World], list[Frame]], ...] = (
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
)
_world = World()


def main() -> None:
    """Run under atheris; new inputs go to a temporary directory unless one is given."""
    with tempfile.TemporaryDirectory() as scratch:
        arguments = [sys.argv[0], "-max_len=96", *sys.argv[1:]]
        if not any(not argument.startswith("-") for argument in sys.argv[1:]):
            arguments += [scratch, str(CORPUS)]
        atheris.Setup(arguments, fuzz_one)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
