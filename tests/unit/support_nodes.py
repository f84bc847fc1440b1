"""Nodes under test, with a clock and neighbours: what happens to them goes in, what they want comes out."""

import random
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from anabranch.overlay.actions import Action, CloseLink, Deliver, DeliveredRun, SendBundle, SendControl
from anabranch.overlay.codec import (
    Control,
    Frame,
    decode_control,
    encode_body,
    encode_bundle_header,
    encode_control,
    encode_echo,
    encode_payload,
    encode_runs,
    encode_subtree,
    encode_tail,
)
from anabranch.overlay.config import Config
from anabranch.overlay.headers import Hello, Kind, LinkEntry, Record, RecordKind, Records, Run, Tail
from anabranch.overlay.identifiers import LinkId, PeerId, SubscriptionId
from anabranch.overlay.node import Node
from anabranch.overlay.outlets import Outlet
from anabranch.overlay.queues import LinkQueue

T = TypeVar("T")
EPOCH = 100
Answering = Sequence[LinkId] | Mapping[LinkId, float]
"""Links that echo probes, or links with the round trip that this takes."""


class Driver:
    """Runs one node. `take(Kind)` gives (and forgets) the actions since the last look; invariants are checked
    after every input."""

    def __init__(
        self,
        name: str = "me",
        config: Config | None = None,
        *,
        epoch: int = EPOCH,
        now: float = 1000.0,
        seeds: Sequence[str] = (),
        addresses: Sequence[str] = (),
        seed: int = 1,
        **parts: object,
    ) -> None:
        self.now = now
        self.node = Node(
            PeerId.parse(name),
            config or Config(neighbours_target=0),
            epoch=epoch,
            rng=random.Random(seed),
            seeds=seeds,
            addresses=addresses,
            **parts,  # type: ignore[arg-type]
        )
        self.actions: list[Action] = []
        self._links = 0
        self._hops: dict[LinkId, int] = {}
        self.node.start(now)
        self._settle()

    # What happens

    def opened(self, address: str | None = None) -> LinkId:
        """A connection without a hello."""
        self._links += 1
        link = LinkId(self._links)
        self.node.link_opened(link, self.now, address)
        self._settle()
        return link

    def neighbour(
        self, name: str, *, epoch: int = 1, role: str = "peer", address: str | None = None, instance: int = 7
    ) -> LinkId:
        """A connection whose hello is complete."""
        link = self.opened(address)
        self.control(link, Kind.HELLO, Hello(name, epoch, role, instance))
        return link

    def closed(self, link: LinkId) -> None:
        """The connection is gone."""
        self.node.link_closed(link, self.now)
        self._settle()

    def frames(self, link: LinkId, *frames: Frame) -> None:
        """A message arrived, whatever it is."""
        self.node.receive(link, list(frames), self.now)
        self._settle()

    def control(self, link: LinkId, kind: Kind, message: Control | None = None) -> None:
        """A control message arrived."""
        self.frames(link, encode_control(kind, message))

    def records(self, link: LinkId, *records: Record) -> None:
        """Records arrived."""
        self.control(link, Kind.RECORDS, Records(list(records)))

    def bundle(
        self,
        link: LinkId,
        tail: Tail,
        runs: Sequence[Run],
        *large: Frame,
        hop: int | None = None,
        elapsed_us: int = 0,
        deadline_us: int = 0,
    ) -> None:
        """A bundle arrived; hops count by themselves."""
        if hop is None:
            hop = self._hops[link] = self._hops.get(link, -1) + 1
        header = encode_bundle_header(0, hop, hop, elapsed_us, deadline_us, encode_tail(tail))
        self.frames(link, header, encode_runs(list(runs)), *large)

    def subscribe(self, pattern: str) -> SubscriptionId:
        """The application subscribes."""
        subscription = self.node.subscribe(pattern, self.now)
        self._settle()
        return subscription

    def put(self, outlet: Outlet, payload: object) -> None:
        """The application publishes; nothing leaves before `flush`."""
        self.node.publish(outlet, *encode_payload(payload), self.now)

    def flush(self) -> None:
        """The turn of the loop ends."""
        self.node.flush(self.now)
        self._settle()

    def until(self, time: float, answering: Answering = ()) -> None:
        """Time passes, every timer on time; these links echo each probe, at once or after a round trip."""
        round_trips = answering if isinstance(answering, Mapping) else dict.fromkeys(answering, 0.0)
        echoes = self._echoes(round_trips)
        while True:
            timer = self.node.next_timeout()
            due = min(
                [at for at in (timer, echoes[0][0] if echoes else None) if at is not None], default=time + 1
            )
            if due > time:
                break
            self.now = max(self.now, due)
            if echoes and echoes[0][0] <= due:
                _, link, sequence = echoes.pop(0)
                self.frames(link, encode_echo(sequence, 10**15, 0))
            else:
                self.node.handle_timeout(self.now)
                self._settle()
            echoes = self._echoes(round_trips)
        self.now = time

    def after(self, seconds: float, answering: Answering = ()) -> None:
        """Some time passes."""
        self.until(self.now + seconds, answering)

    # What came of it

    def take(self, kind: type[T]) -> list[T]:
        """The actions of this kind since the last look; all others are forgotten too."""
        found: list[T] = [action for action in self.actions if isinstance(action, kind)]
        self.actions = []
        return found

    def told(self, link: LinkId, kind: Kind) -> list[Control]:
        """The control messages of this kind that were sent to a link, decoded; nothing is forgotten."""
        return [
            decode_control(kind, action.frame)
            for action in self.actions
            if isinstance(action, SendControl) and action.link == link and action.frame[1] == kind
        ]

    def delivered(self) -> list[object]:
        """The payloads delivered since the last look, each once per run."""
        return [payload for action in self.take(Deliver) for payload in action.run.payloads]

    def drops(self) -> dict[str, int]:
        """What was dropped so far, by reason."""
        return {
            name.removeprefix("dropped."): n
            for name, n in self.node.counters.items()
            if name.startswith("dropped.")
        }

    def _settle(self) -> None:
        self.actions += self.node.take_actions()
        self.node.check_invariants()

    def _echoes(self, round_trips: Mapping[LinkId, float]) -> list[tuple[float, LinkId, int]]:
        """(when, link, sequence) of the echoes to come."""
        links = [(self.node.links.get(link), round_trip) for link, round_trip in round_trips.items()]
        return sorted(
            (sent_at + round_trip, link.id, sequence)
            for link, round_trip in links
            if link is not None
            for sequence, sent_at in link.probes.items()
        )


def record(
    origin: str,
    kind: RecordKind,
    body: object,
    *,
    epoch: int = 1,
    sequence: int = 1,
    age_ms: int = 0,
    signature: bytes = b"",
) -> Record:
    """A record as its origin would make it."""
    return Record(origin, epoch, int(kind), sequence, encode_body(body), signature, age_ms)


def links_record(origin: str, *neighbours: str, delay_ms: float = 10.0, **fields: Any) -> Record:
    """A peer's announcement of its links."""
    entries = [LinkEntry(neighbour, int(delay_ms * 1000), 0, 0, 10**6) for neighbour in neighbours]
    return record(origin, RecordKind.LINKS, entries, **fields)


def wants_record(origin: str, *patterns: str, **fields: Any) -> Record:
    """A peer's announcement of its interests."""
    return record(origin, RecordKind.INTERESTS, list(patterns), **fields)


def run(*payloads: object, first: int = 0, topic: str = "a", publisher: int = 1) -> Run:
    """Publications of one publisher."""
    return Run(topic, publisher, first, list(payloads))


def tail(
    *via: str,
    deliver: bool = True,
    to: "Sequence[tuple[str, msgspec.Raw]]" = (),
    generation: int = 1,
    epoch: int = 1,
    destinations: Sequence[str] = (),
) -> Tail:
    """The tail of a bundle that passed these peers, its origin first."""
    return Tail(via[0], epoch, generation, list(via), deliver, list(to), list(destinations))


def below(deliver: bool, *branches: "tuple[str, msgspec.Raw]") -> msgspec.Raw:
    """What is left of a route at a next peer."""
    return encode_subtree(deliver, branches)


def on_the_wire(action: SendBundle, now: float) -> list[Frame]:
    """The frames of a bundle as the first on its link."""
    queue = LinkQueue(2**40, retains=False)
    queue.put_bundle(action.bundle)
    frames = queue.peek(now)
    assert frames is not None
    return list(frames)


class Mesh:
    """Several nodes joined by perfect links: what they tell each other arrives at once."""

    def __init__(self, *drivers: Driver) -> None:
        self.drivers = {driver.node.peer: driver for driver in drivers}
        self.inbox: dict[str, list[DeliveredRun]] = {name: [] for name in self.drivers}
        self._ends: dict[tuple[str, LinkId], tuple[str, LinkId]] = {}
        self._queues: dict[tuple[str, LinkId], LinkQueue] = {}

    def connect(self, dialling: str, accepting: str) -> None:
        """One dials the other; everything that follows from it happens."""
        here = (dialling, self.drivers[dialling].opened(f"tcp://{accepting}:1"))
        there = (accepting, self.drivers[accepting].opened())
        for end, other in ((here, there), (there, here)):
            self._ends[end] = other
            self._queues[end] = LinkQueue(2**40, retains=False)
        self.settle()

    def cut(self, a: str, b: str) -> None:
        """The connections between two peers are gone."""
        for end, other in list(self._ends.items()):
            if (end[0], other[0]) == (a, b):
                self._disconnect(end)
        self.settle()

    def settle(self) -> None:
        """Let everything arrive that is under way."""
        busy = True
        while busy:
            busy = False
            for name, driver in self.drivers.items():
                for action in driver.take(object):
                    busy |= self._act(name, action, driver.now)

    def after(self, seconds: float) -> None:
        """Time passes everywhere, in small steps."""
        end = next(iter(self.drivers.values())).now + seconds
        while (now := next(iter(self.drivers.values())).now) < end:
            for driver in self.drivers.values():
                driver.until(min(end, now + 0.05))
            self.settle()

    def publish(self, name: str, topic: str, *payloads: object) -> None:
        """An application puts some messages in one turn, through a publisher of its own."""
        driver = self.drivers[name]
        outlet = driver.node.open_publisher(topic, driver.now)
        for payload in payloads:
            driver.put(outlet, payload)
        driver.flush()
        self.settle()

    def received(self, name: str) -> list[object]:
        """The payloads delivered at a peer since the last look."""
        runs, self.inbox[name] = self.inbox[name], []
        return [payload for run in runs for payload in run.payloads]

    def _act(self, name: str, action: object, now: float) -> bool:
        if isinstance(action, Deliver):
            self.inbox[name].append(action.run)
        elif isinstance(action, SendControl | SendBundle | CloseLink):
            end = (name, action.link)
            if end not in self._ends:
                return False
            if isinstance(action, CloseLink):
                self._disconnect(end)
                return True
            queue = self._queues[end]
            if isinstance(action, SendControl):
                assert queue.put_control(action.frame)
            else:
                assert queue.put_bundle(action.bundle)
            frames = queue.peek(now)
            queue.advance()
            assert frames is not None
            other, link = self._ends[end]
            self.drivers[other].frames(link, *frames)
            return True
        return False

    def _disconnect(self, end: tuple[str, LinkId]) -> None:
        other = self._ends.pop(end)
        self._ends.pop(other, None)
        for name, link in (end, other):
            self.drivers[name].closed(link)
