"""Messages with a guarantee on their way out: to whom, how many at a time, and over which paths.

What is sent again takes another path too. Called by `assuring`, which decides when.
"""

from math import inf

import msgspec

from anabranch.overlay.actions import Action, Load
from anabranch.overlay.assured import AssuredRun, Start, encode_assured
from anabranch.overlay.codec import decode_value
from anabranch.overlay.config import Config
from anabranch.overlay.counters import Counters
from anabranch.overlay.doubting import Doubting, relays_of
from anabranch.overlay.headers import Flag, Run
from anabranch.overlay.identity import Identity
from anabranch.overlay.outstreams import (
    FLIGHT_MAX_BYTES,
    MESSAGE_BYTES,
    WINDOW_LEAST,
    OutStream,
    Receiver,
)
from anabranch.overlay.paths import Path
from anabranch.overlay.posting import Posting
from anabranch.overlay.qos import Demand, Unconfirmed
from anabranch.overlay.routes import Route
from anabranch.overlay.selections import Selected
from anabranch.overlay.sessions import TimerKey
from anabranch.overlay.taking import Taking
from anabranch.overlay.timers import Timers

ANOTHER_PATH = 0.99999
"""The availability asked for when a message is sent again: no single path is taken for that good."""
ATTEMPT_WAYS = 4
"""What was sent in vain goes so many new ways at once, where there are any."""
BUNDLE_BYTES = 256 * 1024
LOOK_EVERY_S = 0.25
"""How often a receiver that cannot be reached, or has no room, is tried again."""
_ASSURED = int(Flag.ASSURED)


class Consigning:
    """Makes bundles of messages that must be confirmed."""

    def __init__(
        self,
        identity: Identity,
        config: Config,
        posting: Posting,
        taking: Taking,
        doubting: Doubting,
        counters: Counters,
        timers: Timers[TimerKey],
    ) -> None:
        self._identity = identity
        self._config = config
        self._posting = posting
        self._taking = taking
        self._doubting = doubting
        self._counters = counters
        self._timers = timers

    def arm(self, due: float) -> None:
        """Look at all streams again by then."""
        if due < inf:
            self._timers.set_earliest(("assure", 0), due)

    def send(self, stream: OutStream, now: float) -> list[Action]:
        """What receivers have not been sent yet and may be."""
        groups: dict[tuple[int, int, str], list[Receiver]] = {}
        for receiver in stream.receivers.values():
            if receiver.sent >= stream.next_sequence or not receiver.is_active:
                continue
            if receiver.waits_until > now:
                self.arm(receiver.waits_until)
                continue
            last = stream.allowed(receiver)
            if last > receiver.sent:
                alone = receiver.peer if self._doubting.around(receiver.peer, now) else ""
                groups.setdefault((receiver.sent, last, alone), []).append(receiver)
        actions: list[Action] = []
        for (first, last, _), receivers in groups.items():
            for receiver in receivers:
                if receiver.arrived == receiver.sent:
                    receiver.last_at = now
                receiver.sent = last
                receiver.high = max(receiver.high, last)
            actions += self.post(stream, first, last, receivers, now, False)
        if stream.key.durable and not stream.is_loading:
            actions += self._load(stream, now)
        return actions

    def _load(self, stream: OutStream, now: float) -> list[Action]:
        """Ask the store for what a receiver needs next and is not at hand."""
        for receiver in stream.receivers.values():
            if not receiver.is_active or receiver.waits_until > now:
                continue
            first = receiver.sent
            if first >= stream.next_sequence or first in stream.kept:
                continue
            if first - receiver.arrived >= receiver.window:
                continue
            stream.drop_unneeded()
            if stream.kept_bytes > 4 * FLIGHT_MAX_BYTES:
                return []
            stream.is_loading = True
            return [Load(stream.key, first, FLIGHT_MAX_BYTES // 2)]
        return []

    def again(self, stream: OutStream, receiver: Receiver, now: float) -> list[Action]:
        """A receiver was silent for too long: send the same again, or ask how far it is."""
        receiver.last_at = now
        if receiver.arrived >= receiver.sent:
            receiver.asked += 1
            is_again = receiver.asked > 1
            return self.post(stream, receiver.arrived, receiver.arrived, [receiver], now, is_again)
        oldest = stream.kept.get(receiver.arrived)
        if (
            not stream.key.durable
            and stream.deadline_us
            and oldest is not None
            and now > oldest.put_at + stream.demand.deadline_s
        ):
            return []  # too late for it; its confirmation may still be under way
        receiver.attempts += 1
        receiver.tried |= relays_of(receiver.ways)
        receiver.window = max(WINDOW_LEAST, min(receiver.window, receiver.sent - receiver.arrived) // 2)
        receiver.sent = receiver.arrived
        last = stream.allowed(receiver)
        if last == receiver.sent:
            return []  # it is read from the store first
        receiver.sent = last
        self._counters.add("resent_end_to_end", last - receiver.arrived)
        return self.post(stream, receiver.arrived, last, [receiver], now, True)

    def post(
        self,
        stream: OutStream,
        first: int,
        last: int,
        receivers: list[Receiver],
        now: float,
        again: bool,
    ) -> list[Action]:
        """Bundles with these messages to these receivers; without messages they are only asked."""
        me = self._identity.peer
        others = tuple(sorted({receiver.peer for receiver in receivers if receiver.peer != me}))
        route = self._route(stream, receivers, others, now, again) if others else None
        for receiver in receivers:
            if route is not None and receiver.peer in route.unreached:
                receiver.waits_for = Unconfirmed.UNREACHED
                receiver.waits_until = now + LOOK_EVERY_S
                receiver.sent = receiver.arrived
                self.arm(receiver.waits_until)
            self.arm(receiver.due())
        starts = [Start(r.peer, r.consumer, r.resolved) for r in receivers if r.needs_start]
        actions: list[Action] = []
        sequence = first
        floor = min(receiver.resolved for receiver in receivers)
        while True:
            payloads: list[object] = []
            size, begin = 0, sequence
            selected = stream.kept[begin].selected if begin in stream.kept else None
            while sequence < last and size < BUNDLE_BYTES and (message := stream.kept.get(sequence)):
                if message.selected is not selected and not _is_same(message.selected, selected):
                    break
                payloads.append(message.payload)
                size += message.size + MESSAGE_BYTES
                sequence += 1
            started_at = stream.kept[begin].put_at if payloads else now
            attributes, to = selected.wire if payloads and selected is not None else ({}, "")
            run = Run(stream.topic, stream.key.publisher, begin, payloads)
            assured = AssuredRun(stream.key, run, starts, attributes, to, floor)
            if any(receiver.peer == me for receiver in receivers):
                actions += self._take_ourselves(stream, assured, started_at, now)
            if route is not None:
                body = encode_assured([assured], self._config.inline_max_bytes)
                actions += self._posting.post(
                    route, body, _ASSURED, len(payloads), started_at, stream.deadline_us
                )
            if sequence >= last or not payloads:
                return actions

    def _route(
        self, stream: OutStream, receivers: list[Receiver], others: tuple[str, ...], now: float, again: bool
    ) -> Route:
        """The usual ways; past whoever did not pass things on, if there is another way."""
        demand = stream.demand
        if again:
            demand = Demand(demand.deadline_s, max(demand.availability, ANOTHER_PATH))
        if len(others) == 1:
            ways = self._around(others[0], receivers, now)
            if ways:
                for receiver in receivers:
                    receiver.ways = ways
                return self._posting.along(ways)
        for receiver in receivers:
            receiver.ways = self._posting.ways(receiver.peer, demand)
        return self._posting.route(others, demand)

    def _around(self, peer: str, receivers: list[Receiver], now: float) -> tuple[Path, ...]:
        """Ways past relays that are doubted, and past those that were tried in vain more than once."""
        avoided = set(self._doubting.around(peer, now))
        attempts = max(receiver.attempts for receiver in receivers)
        if attempts > 1:
            avoided.update(*(receiver.tried for receiver in receivers))
        if not avoided:
            return ()
        ways = self._doubting.ways(peer, frozenset(avoided), ATTEMPT_WAYS if attempts else 1)
        if not ways:  # all were tried: from the beginning
            for receiver in receivers:
                receiver.tried.clear()
        return ways

    def _take_ourselves(
        self, stream: OutStream, assured: AssuredRun, started_at: float, now: float
    ) -> list[Action]:
        run = assured.run
        values = [decode_value(memoryview(p)) if type(p) is msgspec.Raw else p for p in run.payloads]
        own = Run(run.topic, run.publisher, run.first_sequence, values)
        me = self._identity.peer
        runs = [msgspec.structs.replace(assured, run=own)]
        return self._taking.take(me, (me,), runs, started_at, stream.deadline_us, now)


def _is_same(one: Selected | None, other: Selected | None) -> bool:
    return one is not None and other is not None and one.wire == other.wire
