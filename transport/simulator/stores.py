"""Stores, persistent publishers, durable subscriptions of simulated peers. What was committed survives."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from anabranch.overlay.actions import (
    Action,
    AssuredDelivery,
    DeliverAssured,
    ForgetConsumer,
    KeepConsumer,
    KeepProgress,
    Load,
)
from anabranch.overlay.assured import StreamKey
from anabranch.overlay.codec import encode_payload
from anabranch.overlay.durables import PositionKey
from anabranch.overlay.identifiers import SubscriptionId
from anabranch.overlay.outstreams import Kept, OutStream
from anabranch.overlay.patterns import matches
from anabranch.transport.simulator.ledger import BrokenPromiseError

if TYPE_CHECKING:
    from anabranch.transport.simulator.shell import Shell

COMMIT_S = 0.004
"""From asking to having it on the disk."""
NUMBER_BASE = 2**32


class SimStream(msgspec.Struct):
    """A topic's messages."""

    key: StreamKey
    topic: str
    rows: dict[int, tuple[object, int, float]]
    next_sequence: int = 0
    first: int = 0


class SimDurable:
    """A durable subscription: accepts every `accept_every`-th message, and with it those before."""

    def __init__(self, name: str, pattern: str, accept_every: int) -> None:
        self.name = name
        self.pattern = pattern
        self.positions: dict[PositionKey, int] = {}
        self.room = 2**30
        self.messages: dict[PositionKey, dict[int, object]] = {}
        """What came, by stream and sequence."""
        self.again = 0
        """Messages that came again, not accepted before."""
        self._accept_every = accept_every
        self._at: dict[PositionKey, int] = {}

    def start(self) -> None:
        """Its process starts."""
        self._at = {}

    def take(self, peer: "Shell", run: AssuredDelivery, time: float) -> None:
        """A run was handed over; BrokenPromiseError if it must not come."""
        key = (run.origin, run.intake.stream)
        for sequence, payload in enumerate(run.payloads, run.first_sequence):
            seen = self.messages.setdefault(key, {})
            what = f"{peer.name} {self.name!r} got number {sequence} of {run.topic!r} of {run.origin}"
            if sequence < self.positions.get(key, 0):
                raise BrokenPromiseError(f"{what}: it was accepted before")
            expected = self._at.get(key)
            if (expected is not None and sequence != expected) or (expected is None and sequence > len(seen)):
                raise BrokenPromiseError(f"{what}: not in its turn")
            self.again += sequence in seen
            if seen.setdefault(sequence, payload) != payload:
                raise BrokenPromiseError(f"{what}: it was another message before")
            self._at[key] = sequence + 1
        accepted = (run.first_sequence + len(run.payloads)) // self._accept_every * self._accept_every
        if accepted > self.positions.get(key, 0):
            peer.later(time + COMMIT_S, lambda at: self._accept(peer, run, accepted, at))

    def _accept(self, peer: "Shell", run: AssuredDelivery, until: int, time: float) -> None:
        self.positions[run.origin, run.intake.stream] = until
        peer.node.accepted(run, until, peer.clock(time))


class SimStore:
    """The disk of one peer."""

    def __init__(self, incarnation: int) -> None:
        self.streams: dict[str, SimStream] = {}
        self.durables: dict[str, SimDurable] = {}
        self.accepted: dict[str, list[object]] = {}
        """By topic: every message that is on the disk, as `put` told the application."""
        self._incarnation = incarnation
        self._consumers: dict[tuple[str, str], str] = {}
        self._confirmed: dict[tuple[str, str, StreamKey], int] = {}
        self._open: dict[StreamKey, OutStream] = {}
        self._reading: dict[SubscriptionId, SimDurable] = {}

    @property
    def kept(self) -> int:
        """Messages in it."""
        return sum(len(stream.rows) for stream in self.streams.values())

    def start(self, peer: "Shell", time: float) -> None:
        """The process starts: go on where its former self was."""
        node, local = peer.node, peer.clock(time)
        node.know_durables({name: (each.pattern, False) for name, each in self.durables.items()})
        node.know_consumers((p, n, pattern) for (p, n), pattern in self._consumers.items())
        self._open, self._reading = {}, {}
        for stream in self.streams.values():
            if stream.next_sequence > stream.first:
                self._resume(peer, stream, local)
        for each in self.durables.values():
            self._read(peer, each, local)

    def subscribe(self, peer: "Shell", durable: SimDurable, time: float) -> None:
        """Make a durable subscription."""
        self.durables[durable.name] = durable
        self._read(peer, durable, peer.clock(time))

    def put(self, peer: "Shell", topic: str, payloads: Iterable[object], time: float) -> None:
        """Write messages, then publish them; those of a process that dies before are never accepted."""
        messages = list(payloads)
        peer.later(time + COMMIT_S, lambda at: self._commit(peer, topic, messages, at))

    def act(self, peer: "Shell", action: Action, time: float) -> bool:
        """Carry out what the node asks of a store; False if it is something else."""
        if isinstance(action, DeliverAssured):
            return self._deliver(peer, action, time)
        if isinstance(action, Load):
            peer.later(time + COMMIT_S, lambda at: self._load(peer, action, at))
        elif isinstance(action, KeepConsumer):
            self._consumers[action.peer, action.name] = action.pattern
        elif isinstance(action, ForgetConsumer):
            self._consumers.pop((action.peer, action.name), None)
        elif isinstance(action, KeepProgress):
            for name, consumer, confirmed in action.confirmed:
                self._confirmed[name, consumer, action.stream] = confirmed
            stream = next(each for each in self.streams.values() if each.key == action.stream)
            stream.first = max(stream.first, action.floor)
            stream.rows = {at: row for at, row in stream.rows.items() if at >= action.floor}
        else:
            return False
        return True

    # Inside

    def _read(self, peer: "Shell", durable: SimDurable, local: float) -> None:
        durable.start()
        number = peer.node.subscribe(durable.pattern, local, (durable.name, dict(durable.positions)))
        self._reading[number] = durable

    def _resume(self, peer: "Shell", stream: SimStream, local: float) -> OutStream:
        known = self._open.get(stream.key)
        if known is None:
            consumers = [
                (name, consumer, self._confirmed.get((name, consumer, stream.key), stream.first))
                for (name, consumer), pattern in self._consumers.items()
                if matches(pattern, stream.topic)
            ]
            known = self._open[stream.key] = peer.node.persist(
                stream.key, stream.topic, stream.next_sequence, stream.first, consumers, local
            )
        return known

    def _commit(self, peer: "Shell", topic: str, payloads: list[object], time: float) -> None:
        stream = self.streams.get(topic)
        if stream is None:
            key = StreamKey(NUMBER_BASE + len(self.streams), self._incarnation, True)
            stream = self.streams[topic] = SimStream(key, topic, {})
        local = peer.clock(time)
        opened = self._resume(peer, stream, local)
        first, kept = stream.next_sequence, []
        for payload in payloads:
            encoded, size = encode_payload(payload)
            stream.rows[stream.next_sequence] = (encoded, size, time)
            stream.next_sequence += 1
            kept.append(Kept(encoded, size, local))
        self.accepted.setdefault(topic, []).extend(payloads)
        peer.node.stored(opened, first, kept, local)
        peer.node.flush(local)

    def _load(self, peer: "Shell", action: Load, time: float) -> None:
        stream = next(each for each in self.streams.values() if each.key == action.stream)
        found: list[tuple[int, Kept]] = []
        at = action.first
        while at in stream.rows and len(found) < 50:
            payload, size, put_at = stream.rows[at]
            found.append((at, Kept(payload, size, peer.clock(time) - (time - put_at))))
            at += 1
        peer.node.loaded(self._open[action.stream], action.first, found, at, peer.clock(time))

    def _deliver(self, peer: "Shell", action: DeliverAssured, time: float) -> bool:
        durable = self._reading.get(action.subscriptions[0]) if len(action.subscriptions) == 1 else None
        if durable is None or not action.run.intake.is_durable:
            return False
        count = peer.node.hand(action.run, durable.room, peer.clock(time))
        if count:
            run = msgspec.structs.replace(action.run, payloads=action.run.payloads[:count])
            durable.room -= count
            durable.take(peer, run, time)
        return True
