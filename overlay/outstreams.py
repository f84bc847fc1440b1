"""A publisher with a guarantee: what was put and is not settled, and how far each of its receivers is.

Holds state; `assuring` decides what to send and when.
"""

from collections.abc import Iterator
from math import inf

import msgspec

from anabranch.overlay.actions import Failure
from anabranch.overlay.assured import StreamKey
from anabranch.overlay.paths import Path
from anabranch.overlay.qos import Demand, Unconfirmed
from anabranch.overlay.selections import Selected

MESSAGE_BYTES = 256
"""Counted for each message beside its payload."""
RTO_FIRST_S = 0.5
RTO_LEAST_S = 0.15
RTO_MAX_S = 2.0
QUERY_FIRST_S = 2.0
QUERY_MAX_S = 15.0
WINDOW_MAX = 4096
"""Messages under way to one receiver."""
WINDOW_LEAST = 32
FLIGHT_MAX_BYTES = 2 * 1024 * 1024


class Kept(msgspec.Struct, gc=False):
    """A message that may have to be sent (again)."""

    payload: object
    size: int
    put_at: float
    selected: Selected | None = None
    """Whom it is for, if the topic alone does not decide that."""


class Receiver:
    """One consumer at one peer. `resolved` <= `arrived` <= `sent` <= `high`."""

    __slots__ = (
        "arrived",
        "asked",
        "attempts",
        "consumer",
        "delay_s",
        "epoch",
        "gap_sent_at",
        "high",
        "is_active",
        "last_at",
        "needs_start",
        "peer",
        "resolved",
        "sent",
        "tried",
        "waits_for",
        "waits_until",
        "ways",
        "window",
    )

    def __init__(self, peer: str, consumer: str, start: int, now: float) -> None:
        self.peer = peer
        self.consumer = consumer
        self.epoch = 0
        """Of its last confirmation."""
        self.resolved = start
        """All before it were confirmed, or will not be asked for any more."""
        self.arrived = start
        """All before it are there."""
        self.sent = start
        """The next to be sent."""
        self.high = start
        """After the last that was ever sent."""
        self.needs_start = True
        """It may know nothing of this stream."""
        self.is_active = True
        """Its application reads now, as far as we know."""
        self.last_at = now
        """When it was last sent something new, or made progress."""
        self.attempts = 0
        """Times that it was sent the same again, without progress."""
        self.asked = 0
        """Times that it was asked how far it is, without progress."""
        self.gap_sent_at = -inf
        self.delay_s = 0.0
        """From put to confirmation, averaged."""
        self.window = WINDOW_MAX
        self.waits_until = 0.0
        self.ways: tuple[Path, ...] = ()
        """What it was sent last took these, as far as we know."""
        self.tried: set[str] = set()
        """Relays that what it was sent took in vain, since it last made progress."""
        self.waits_for = Unconfirmed.SILENT
        """Why it did not confirm, as far as we know."""

    def due(self) -> float:
        """When to send it something again, or to ask."""
        if not self.is_active:
            return inf
        if self.arrived < self.sent:
            rto_s: float = max(RTO_LEAST_S, 2 * self.delay_s + 0.1) if self.delay_s else RTO_FIRST_S
            return max(self.waits_until, self.last_at + min(rto_s * float(2**self.attempts), RTO_MAX_S))
        if self.resolved < self.arrived:
            return self.last_at + min(QUERY_FIRST_S * float(2**self.asked), QUERY_MAX_S)
        return inf

    def back_to(self, sequence: int) -> None:
        """Send from here on again."""
        self.arrived = self.sent = max(self.resolved, sequence)

    def skip_to(self, sequence: int) -> None:
        """What lies before will not be asked for any more."""
        self.resolved = max(self.resolved, sequence)
        if self.arrived < self.resolved:
            self.arrived = self.resolved
            self.needs_start = True
        self.sent = max(self.sent, self.arrived)
        self.high = max(self.high, self.sent)


class OutStream:
    """One stream on its way out. Made by `Assuring`; the shell looks at `kept_bytes` and `receivers`."""

    def __init__(
        self, key: StreamKey, topic: str, demand: Demand, limit_s: float, next_sequence: int = 0
    ) -> None:
        self.key = key
        self.topic = topic
        self.only: tuple[str, ...] | None = None
        """The peers that its messages were selected for; None: whoever wants the topic."""
        self.selections: dict[tuple[str, ...], OutStream] = {}
        """Streams of the same publisher for selected peers, the last one used last."""
        self.demand = demand
        self.deadline_us = min(int(demand.deadline_s * 1e6), 2**32 - 1)
        self.limit_s = limit_s
        """How long after its put a message is sent again at most."""
        self.next_sequence = next_sequence
        self.floor = next_sequence
        """All before it are settled."""
        self.receivers: dict[tuple[str, str], Receiver] = {}
        self.names: tuple[str, ...] = ()
        """Peers that a message put now is for."""
        self.kept: dict[int, Kept] = {}
        self.kept_bytes = 0
        self.failures: list[Failure] = []
        self.stamp: tuple[int, ...] = ()
        self.is_loading = False
        self.is_closed = False
        self.told_floor = next_sequence
        """What the store knows."""

    def keep(self, sequence: int, message: Kept) -> None:
        """Remember a message."""
        if sequence not in self.kept:
            self.kept[sequence] = message
            self.kept_bytes += message.size + MESSAGE_BYTES

    def drop_before(self, sequence: int) -> None:
        """Forget what is settled. Messages lie in the order of their sequence unless they were loaded."""
        if self.key.durable:
            gone = [each for each in self.kept if each < sequence]
        else:
            gone = []
            for each in self.kept:
                if each >= sequence:
                    break
                gone.append(each)
        for each in gone:
            self.kept_bytes -= self.kept.pop(each).size + MESSAGE_BYTES

    def drop_unneeded(self) -> None:
        """Keep only what is under way to somebody; the rest can be read from the store again."""
        flights = [(r.arrived, r.sent) for r in self.receivers.values() if r.arrived < r.sent]
        gone = [each for each in self.kept if not any(arrived <= each < sent for arrived, sent in flights)]
        for each in gone:
            self.kept_bytes -= self.kept.pop(each).size + MESSAGE_BYTES

    def fail(self, receiver: Receiver, end: int, reason: Unconfirmed) -> None:
        """Give up asking a receiver for what lies before `end`."""
        if end > receiver.resolved:
            self.failures.append(Failure(receiver.peer, receiver.consumer, receiver.resolved, end, reason))
            receiver.skip_to(end)

    def allowed(self, receiver: Receiver) -> int:
        """Up to where (excluded) a receiver may be sent messages that are at hand."""
        last = min(receiver.arrived + receiver.window, self.next_sequence)
        sequence = receiver.sent
        room = FLIGHT_MAX_BYTES
        if sequence > receiver.arrived:
            room -= sum(self._sizes(receiver.arrived, sequence))
        while sequence < last and room > 0:
            message = self.kept.get(sequence)
            if message is None:
                break
            room -= message.size + MESSAGE_BYTES
            sequence += 1
        return sequence

    def new_floor(self) -> int:
        """All before it are settled."""
        return min((r.resolved for r in self.receivers.values()), default=self.next_sequence)

    def outstanding(self, sequence: int) -> dict[str, Unconfirmed]:
        """The peers that have not confirmed a message yet, and what keeps them."""
        return {
            receiver.peer: receiver.waits_for
            if receiver.attempts or receiver.waits_for is not Unconfirmed.SILENT
            else Unconfirmed.OUTSTANDING
            for receiver in self.receivers.values()
            if receiver.resolved <= sequence
        }

    def _sizes(self, first: int, end: int) -> Iterator[int]:
        kept = self.kept
        for sequence in range(first, end):
            message = kept.get(sequence)
            if message is not None:
                yield message.size + MESSAGE_BYTES
