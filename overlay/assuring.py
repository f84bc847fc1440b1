"""The publishing side of guarantees: who must confirm, what is sent, sent again, and given up.

A receiver is a peer that wanted the topic when a message was put, or a durable subscription there.
"""

from collections.abc import Iterable
from math import inf

from anabranch.overlay.actions import Action, KeepProgress, Settled
from anabranch.overlay.assured import Progress, State, StreamKey
from anabranch.overlay.audiences import Audiences
from anabranch.overlay.config import Config
from anabranch.overlay.consigning import LOOK_EVERY_S, Consigning
from anabranch.overlay.counters import Counters
from anabranch.overlay.doubting import Doubting, relays_of
from anabranch.overlay.errors import DropReason
from anabranch.overlay.identity import Identity
from anabranch.overlay.outstreams import FLIGHT_MAX_BYTES, WINDOW_LEAST, WINDOW_MAX, Kept, OutStream, Receiver
from anabranch.overlay.qos import Demand, Unconfirmed
from anabranch.overlay.selections import Selected
from anabranch.overlay.sessions import TimerKey
from anabranch.overlay.timers import Timers

TELL_STORE_EVERY_S = 0.25
SELECTIONS_MAX = 256
"""Sets of receivers that one publisher remembers; a forgotten one begins a new stream."""
GRACE_S = 0.25
"""A confirmation may come so much later than the deadline of its message."""


class Assuring:
    """All publishers of this peer that have a guarantee."""

    def __init__(
        self,
        identity: Identity,
        config: Config,
        audiences: Audiences,
        consigning: Consigning,
        doubting: Doubting,
        counters: Counters,
        timers: Timers[TimerKey],
    ) -> None:
        self._identity = identity
        self._config = config
        self._audiences = audiences
        self._consigning = consigning
        self._doubting = doubting
        self._counters = counters
        self._timers = timers
        self._streams: dict[StreamKey, OutStream] = {}
        self._unsent: dict[StreamKey, OutStream] = {}
        self._told_store_at = -inf
        self._looked: tuple[int, ...] = ()

    # Commands

    def open(self, publisher: int, topic: str, demand: Demand) -> OutStream:
        """A publisher whose messages are acknowledged."""
        key = StreamKey(publisher, self._identity.epoch, False)
        limit_s = demand.deadline_s + GRACE_S if demand.deadline_s else self._config.confirm_limit_s
        stream = self._streams[key] = OutStream(key, topic, demand, limit_s)
        return stream

    def open_persistent(
        self,
        key: StreamKey,
        topic: str,
        next_sequence: int,
        floor: int,
        consumers: Iterable[tuple[str, str, int]],
        now: float,
    ) -> OutStream:
        """A stream that the store keeps; `consumers` are (peer, name, next message to be confirmed)."""
        stream = self._streams.get(key)
        if stream is None:
            stream = OutStream(key, topic, Demand(), self._config.confirm_limit_s, next_sequence)
            self._streams[key] = stream
            stream.floor = stream.told_floor = floor
            for peer, name, confirmed in consumers:
                receiver = Receiver(peer, name, max(floor, confirmed), now)
                receiver.is_active = False
                stream.receivers[peer, name] = receiver
        return stream

    def selection(self, stream: OutStream, peers: tuple[str, ...]) -> OutStream | None:
        """The stream of what a publisher puts for these peers alone, if it did before."""
        found = stream.selections.pop(peers, None)
        if found is not None:
            stream.selections[peers] = found
        return found

    def select(self, stream: OutStream, peers: tuple[str, ...], publisher: int) -> OutStream:
        """A stream for what a publisher puts for these peers alone."""
        key = StreamKey(publisher, self._identity.epoch, False)
        made = self._streams[key] = OutStream(key, stream.topic, stream.demand, stream.limit_s)
        made.only = peers
        stream.selections[peers] = made
        if len(stream.selections) > SELECTIONS_MAX:
            self.close(stream.selections.pop(next(iter(stream.selections))))
        return made

    def close(self, stream: OutStream) -> None:
        """No more is put; what is unsettled is still seen to."""
        for each in stream.selections.values():
            self.close(each)
        stream.is_closed = True
        if not stream.key.durable and stream.floor == stream.next_sequence:
            self._streams.pop(stream.key, None)

    def publish(
        self, stream: OutStream, payload: object, size: int, now: float, selected: Selected | None = None
    ) -> tuple[int, list[Action]]:
        """Take a message; it leaves with the next flush. Its sequence."""
        actions = self._audiences.refresh(stream, now)
        sequence = stream.next_sequence
        stream.next_sequence = sequence + 1
        stream.keep(sequence, Kept(payload, size, now, selected))
        self._counters["published"] += 1
        self._unsent[stream.key] = stream
        return sequence, actions

    def stored(self, stream: OutStream, first: int, messages: list[Kept], now: float) -> list[Action]:
        """Messages of a persistent stream are in the store."""
        actions = self._audiences.refresh(stream, now)
        stream.next_sequence = first + len(messages)
        self._counters["published"] += len(messages)
        if stream.kept_bytes > 2 * FLIGHT_MAX_BYTES:
            stream.drop_unneeded()
        lives = any(
            first - r.sent < WINDOW_MAX and r.is_active and r.waits_until <= now
            for r in stream.receivers.values()
        )
        if lives and stream.kept_bytes <= 2 * FLIGHT_MAX_BYTES:
            for sequence, message in enumerate(messages, first):
                stream.keep(sequence, message)
        self._unsent[stream.key] = stream
        return actions

    def loaded(
        self, stream: OutStream, first: int, messages: list[tuple[int, Kept]], end: int, now: float
    ) -> list[Action]:
        """The store gave messages from `first` on; it has no others before `end`."""
        stream.is_loading = False
        expected = first
        for sequence, message in messages:
            if sequence > expected:
                self._skip_damaged(stream, expected, sequence)
            stream.keep(sequence, message)
            expected = sequence + 1
        if end > expected:
            self._skip_damaged(stream, expected, end)
        return self._consigning.send(stream, now) + self._settle(stream, now)

    def expired(self, stream: OutStream, first: int, now: float) -> list[Action]:
        """The store keeps nothing before this any more."""
        for receiver in stream.receivers.values():
            stream.fail(receiver, min(first, stream.next_sequence), Unconfirmed.EXPIRED)
        return self._settle(stream, now)

    @property
    def has_unsent(self) -> bool:
        """Whether `flush` has something to send."""
        return bool(self._unsent)

    def flush(self, now: float) -> list[Action]:
        """Send what was put."""
        unsent, self._unsent = self._unsent, {}
        actions: list[Action] = []
        for stream in unsent.values():
            actions += self._consigning.send(stream, now)
            if not stream.receivers:
                self._counters.add("published_unwanted", stream.next_sequence - stream.floor)
            actions += self._settle(stream, now)
        return actions

    # Inputs

    def progress(self, peer: str, epoch: int, told: Iterable[Progress], now: float) -> list[Action]:
        """A receiver told how far it is."""
        touched: dict[StreamKey, OutStream] = {}
        actions: list[Action] = []
        for each in told:
            stream = self._streams.get(each.stream)
            receiver = stream.receivers.get((peer, each.consumer)) if stream is not None else None
            if stream is None or receiver is None or epoch < receiver.epoch:
                continue
            if each.arrived > (stream.next_sequence if stream.key.durable else receiver.high):
                self._counters.drop(DropReason.MALFORMED)
                continue
            if epoch > receiver.epoch:
                if receiver.epoch:
                    receiver.back_to(0)
                receiver.epoch = epoch
            touched[stream.key] = stream
            actions += self._advance(stream, receiver, each, now)
        for stream in touched.values():
            actions += self._consigning.send(stream, now)
            actions += self._settle(stream, now)
        return actions

    def look_again(self, now: float) -> list[Action]:
        """Interests or durable subscriptions may have changed."""
        self._looked = self._audiences.stamp()
        actions = self._audiences.heard()
        for stream in list(self._streams.values()):
            if stream.stamp != self._looked:
                actions += self._audiences.refresh(stream, now)
                actions += self._consigning.send(stream, now)
                actions += self._settle(stream, now)
        return actions

    @property
    def is_stale(self) -> bool:
        """Whether `look_again` has something to do."""
        return (bool(self._streams) or self._audiences.keeps) and self._looked != self._audiences.stamp()

    def fire(self, now: float) -> list[Action]:
        """Send again, ask, give up: whatever is due."""
        actions: list[Action] = []
        due = inf
        for stream in list(self._streams.values()):
            self._give_up(stream, now)
            for receiver in list(stream.receivers.values()):
                if receiver.due() <= now:
                    actions += self._consigning.again(stream, receiver, now)
            actions += self._consigning.send(stream, now)
            actions += self._settle(stream, now)
            due = min(due, self._due(stream))
        actions += self._tell_store(now)
        if due < inf:
            self._timers.set_earliest(("assure", 0), max(due, now + 0.01))
        return actions

    # What receivers tell

    def _advance(self, stream: OutStream, receiver: Receiver, told: Progress, now: float) -> list[Action]:
        if told.state == State.UNKNOWN:
            receiver.back_to(0)
            receiver.needs_start = True
            receiver.last_at = now
            return []
        if told.state == State.NOBODY:
            if not receiver.consumer:
                stream.fail(receiver, receiver.high, Unconfirmed.NO_SUBSCRIBER)
                receiver.needs_start = True
            else:
                receiver.back_to(0)
                receiver.waits_until = now + 4 * LOOK_EVERY_S
            return []
        if told.arrived >= receiver.resolved:
            receiver.needs_start = False
        receiver.waits_until = 0.0
        if told.arrived > receiver.arrived:
            if receiver.attempts:
                self._doubting.missed(receiver.peer, sorted(receiver.tried), receiver.attempts, now)
                receiver.tried.clear()
            elif len(receiver.ways) == 1:
                self._doubting.proven(receiver.peer, relays_of(receiver.ways))
            newest = stream.kept.get(told.arrived - 1)
            if newest is not None and not receiver.attempts:
                sample = now - newest.put_at
                receiver.delay_s = (
                    sample if not receiver.delay_s else 0.875 * receiver.delay_s + 0.125 * sample
                )
                receiver.delay_s = min(receiver.delay_s, 1.0)
            receiver.arrived = told.arrived
            receiver.sent = max(receiver.sent, told.arrived)
            receiver.high = max(receiver.high, told.arrived)
            receiver.attempts = 0
            receiver.window = min(receiver.window * 2, WINDOW_MAX)
            receiver.last_at = now
        elif told.arrived < receiver.arrived and told.state == State.BUSY:
            receiver.back_to(told.arrived)
        for first, end in told.refused:
            self._confirm(receiver, first, now)
            stream.fail(receiver, end, Unconfirmed.NOT_SELECTED)
        self._confirm(receiver, told.confirmed, now)
        receiver.waits_for = Unconfirmed.SILENT
        if told.state == State.BUSY:
            receiver.back_to(told.arrived)
            receiver.window = max(WINDOW_LEAST, receiver.window // 2)
            receiver.waits_for = Unconfirmed.BUSY
            receiver.waits_until = now + LOOK_EVERY_S
            return []
        if told.state == State.AGAIN:
            receiver.back_to(told.arrived)
        if told.gap_end > receiver.arrived and now - receiver.gap_sent_at > max(0.05, receiver.delay_s):
            receiver.gap_sent_at = now
            end = min(told.gap_end, receiver.high)
            self._counters.add("resent_end_to_end", max(0, end - receiver.arrived))
            return self._consigning.post(stream, receiver.arrived, end, [receiver], now, True)
        return []

    def _confirm(self, receiver: Receiver, until: int, now: float) -> None:
        if until > receiver.resolved:
            self._counters.add("confirmed", until - receiver.resolved)
            receiver.resolved = until
            receiver.asked = 0
            receiver.last_at = now

    # What is settled

    def _give_up(self, stream: OutStream, now: float) -> None:
        """What was put too long ago is not sent again, but for durable subscriptions: the store decides."""
        for receiver in stream.receivers.values():
            if not receiver.consumer:
                end = receiver.resolved
                while (
                    message := stream.kept.get(end)
                ) is not None and message.put_at + stream.limit_s <= now:
                    end += 1
                stream.fail(receiver, end, receiver.waits_for)

    def _skip_damaged(self, stream: OutStream, first: int, end: int) -> None:
        for receiver in stream.receivers.values():
            if receiver.resolved <= first:
                if receiver.resolved < first:
                    continue  # it is asked for what lies before first; this is met again
                stream.fail(receiver, end, Unconfirmed.DAMAGED)

    def _settle(self, stream: OutStream, now: float) -> list[Action]:
        """Tell the shell of what is settled since the last time."""
        floor = stream.new_floor()
        if floor == stream.floor and not stream.failures:
            self._consigning.arm(self._due(stream))
            return []
        failures, stream.failures = stream.failures, []
        for failure in failures:
            self._counters.add(f"unconfirmed.{failure.reason.value}", failure.end - failure.first)
        stream.floor = floor
        stream.drop_before(
            min((r.arrived for r in stream.receivers.values() if r.is_active), default=stream.next_sequence)
            if stream.key.durable
            else floor
        )
        if stream.key.durable and floor > stream.told_floor:
            self._consigning.arm(max(now, self._told_store_at + TELL_STORE_EVERY_S))
        self._consigning.arm(self._due(stream))
        if stream.is_closed and not stream.key.durable and floor == stream.next_sequence:
            self._streams.pop(stream.key, None)
        return [Settled(stream.key, floor, failures)]

    def _tell_store(self, now: float) -> list[Action]:
        if now < self._told_store_at + TELL_STORE_EVERY_S:
            return []
        actions: list[Action] = []
        for stream in self._streams.values():
            if stream.key.durable and stream.floor > stream.told_floor:
                stream.told_floor = stream.floor
                confirmed = [
                    (receiver.peer, receiver.consumer, receiver.resolved)
                    for receiver in stream.receivers.values()
                    if receiver.consumer
                ]
                actions.append(KeepProgress(stream.key, confirmed, stream.floor))
                self._told_store_at = now
        return actions

    def _due(self, stream: OutStream) -> float:
        due = min((receiver.due() for receiver in stream.receivers.values()), default=inf)
        for receiver in stream.receivers.values():
            if not receiver.consumer and (oldest := stream.kept.get(receiver.resolved)) is not None:
                due = min(due, oldest.put_at + stream.limit_s)
        if stream.key.durable and stream.floor > stream.told_floor:
            due = min(due, self._told_store_at + TELL_STORE_EVERY_S)
        return due
