"""Fuzz target: frames and events made from the input go into a node with open sessions; nothing may raise.

`python tests/fuzz/fuzz_receive.py -atheris_runs=10000000` runs it under atheris (the extra `[fuzz]`).
`fuzz_one` needs no atheris; a failure names the inputs that lead to it, for `replay`.
"""

import contextlib
import random
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

if __name__ == "__main__":
    import atheris

    with atheris.instrument_imports(include=["anabranch"]):
        import anabranch.overlay.node  # noqa: F401 - imported for its instrumentation

from fuzz_messages import MAKERS, MERGES, OWN_STREAM, Reader, mutated

from anabranch.overlay.actions import DeliverAssured, DeliverRequest, SendBundle
from anabranch.overlay.codec import encode_control, encode_payload
from anabranch.overlay.config import Config
from anabranch.overlay.errors import UsageError
from anabranch.overlay.headers import Hello, Kind
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
    harvests_max=4,
    harvest_max_bytes=2000,
    unconfirmed_max_bytes=2000,
    held_max_bytes=2000,
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
        acknowledged = self.node.open_publisher("a/b", self.now)
        self.stream = self.node.acknowledge(acknowledged, self.now)
        assert acknowledged.publisher == OWN_STREAM[0]
        self.request = 0
        """The number of the last request."""
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
                self.send(action)
            elif type(action) is DeliverAssured:
                self.node.hand(action.run, self.executions & 3, self.now)
            elif type(action) is DeliverRequest and self.executions & 1:
                run = action.run
                with contextlib.suppress(UsageError):  # not of the type that was asked for
                    self.node.reply(run.key, run.subscriber, run.payloads[0], self.now)

    def send(self, action: SendBundle) -> None:
        """Into the link's queue and out of it again, as a socket that takes everything would."""
        queue = self.node.queue(action.link) or self.queue
        if queue.put_bundle(action.bundle) and queue.peek(self.now) is not None:
            queue.advance()

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
        match kind & 15:
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
            case 7:
                node.dial_failed("tcp://seed:1", now)
            case 8:
                node.publish_assured(self.stream, bytes(reader.byte()), 10, now)
                node.flush(now)
            case 9:
                merge = reader.pick(MERGES)
                with contextlib.suppress(UsageError):
                    self.request = node.request("a/b", which, now, merge=merge, within_s=2.0)
            case 10:
                node.close_request(self.request, now)
            case 11:
                node.snapshot(self.request, 0.1, now)
            case _:
                node.unsubscribe(node.subscribe("a/b", now, where="load > 1"), now)

    def next(self) -> int:
        """A number that was not used before: sequences of records and of hops."""
        self.counter += 1
        return self.counter

    def probes(self, which: int) -> list[int]:
        """Those under way on a link."""
        link = self.node.links.get(self.links[which])
        return list(link.probes) if link is not None else []

    def check_bounds(self) -> None:
        """Every table within its bound."""
        node = self.node
        streams = node._delivering.streams
        assert len(streams) <= CONFIG.streams_max
        assert all(len(stream.held) <= CONFIG.held_runs_max for stream in streams._streams.values())
        assert len(node._delivering._forwarding.plans) <= CONFIG.cache_max
        assert len(node.matching._subscriptions) <= CONFIG.cache_max
        assert len(node.links) <= CONFIG.links_max + CONFIG.links_opening_max


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
