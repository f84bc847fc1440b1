"""The receiving side of guarantees: puts streams in order, hands them over, and confirms what was taken.

A message is confirmed when it is in the queues of its subscriptions, for a durable one when it was accepted
there; never before. What finds no room is not taken: its publisher sends it again later.
"""

from collections.abc import Sequence

import msgspec

from anabranch.overlay.actions import Action, AssuredDelivery, DeliverAssured
from anabranch.overlay.assured import (
    PROGRESS_MAX,
    AssuredRun,
    Progress,
    Start,
    State,
    StreamKey,
    decode_assured,
)
from anabranch.overlay.codec import Frame, encode_body
from anabranch.overlay.config import Config
from anabranch.overlay.counters import Counters
from anabranch.overlay.durables import Durables, OwnDurable
from anabranch.overlay.errors import DropReason
from anabranch.overlay.headers import Flag
from anabranch.overlay.identifiers import SubscriptionId
from anabranch.overlay.identity import Identity
from anabranch.overlay.intakes import Held, Intake
from anabranch.overlay.matching import Matching
from anabranch.overlay.posting import Posting
from anabranch.overlay.qos import BEST_EFFORT
from anabranch.overlay.routes import Route
from anabranch.overlay.selections import Selections
from anabranch.overlay.sessions import TimerKey
from anabranch.overlay.timers import Timers

CONFIRM_EVERY_S = 0.02
"""Confirmations to one peer are this far apart; what came in between shares one."""
CONFIRM_DEADLINE_US = 1_000_000
"""Lets confirmations overtake bulk in the queues on their way."""
ORIGINS_MAX = 4096
REPEATED_S = 30.0
"""After something came again, confirmations take further ways for so long."""
WAYS_BACK_MAX = 4
_CONFIRMS = int(Flag.CONFIRMS)

IntakeKey = tuple[str, StreamKey, str]
"""(origin, stream, consumer)."""


class Arrivals(msgspec.Struct):
    """The ways by which the messages of one origin come."""

    last: tuple[str, ...] = ()
    others: list[tuple[str, ...]] = []
    """Of those that came again: our confirmations may not have got there."""
    repeated_until: float = 0.0


class Taking:
    """Every stream with a guarantee that is heard here, for each of its consumers."""

    def __init__(
        self,
        identity: Identity,
        config: Config,
        matching: Matching,
        selections: Selections,
        durables: Durables,
        posting: Posting,
        counters: Counters,
        timers: Timers[TimerKey],
    ) -> None:
        self.for_ourselves: list[Progress] = []
        """Confirmations for publishers of this very peer."""
        self._identity = identity
        self._config = config
        self._matching = matching
        self._selections = selections
        self._durables = durables
        self._posting = posting
        self._counters = counters
        self._timers = timers
        self._intakes: dict[IntakeKey, Intake] = {}
        self._held_bytes = 0
        self._due: dict[str, dict[tuple[StreamKey, str], Progress | Intake]] = {}
        self._told_at: dict[str, float] = {}
        self._arrivals: dict[str, Arrivals] = {}
        self.forgotten: dict[str, None] | None = None
        """Origins of streams that were forgotten, if anybody wants to know: who takes note clears it."""

    def receive(
        self,
        origin: str,
        path: tuple[str, ...],
        body: Sequence[Frame],
        started_at: float,
        deadline_us: int,
        now: float,
        may_begin: bool = True,
    ) -> list[Action]:
        """A bundle with a guarantee arrived; PeerError if it is broken.

        `may_begin`: whether it is late enough to begin a stream that is not known.
        """
        return self.take(origin, path, decode_assured(body), started_at, deadline_us, now, may_begin)

    def take(
        self,
        origin: str,
        path: tuple[str, ...],
        runs: Sequence[AssuredRun],
        started_at: float,
        deadline_us: int,
        now: float,
        may_begin: bool = True,
    ) -> list[Action]:
        """Take runs that arrived, or that this very peer publishes."""
        actions: list[Action] = []
        read = self._selections.read
        checked = [read(each.attributes, each.to) if each.attributes or each.to else None for each in runs]
        for each, selected in zip(runs, checked, strict=True):
            run = each.run
            may_be_filtered = selected is not None or not run.payloads
            consumers = self._consumers(run.topic, each.stream.durable, may_be_filtered)
            starts = each.starts if may_begin else ()
            addressed = {start.consumer: start for start in starts if start.peer == self._identity.peer}
            if not consumers and not addressed:
                self._counters.drop(DropReason.NO_SUBSCRIBER, len(run.payloads))
                addressed = {"": Start(self._identity.peer, "", 0)}
            for name in addressed:
                if name not in consumers:
                    self._say(origin, each.stream, name, State.NOBODY, now)
            for name, (subscriptions, durable) in consumers.items():
                intake = self._intake(origin, each.stream, name, durable, addressed.get(name), run.topic)
                if intake is None:
                    self._say(origin, each.stream, name, State.UNKNOWN, now)
                    continue
                delivery = AssuredDelivery(
                    run.topic,
                    origin,
                    run.publisher,
                    run.first_sequence,
                    run.payloads,
                    max(0.0, now - started_at),
                    now,
                    deadline_us / 1e6,
                    path,
                    intake=intake,
                    selected=selected,
                )
                intake.settled(each.floor)
                if not self._offer(intake, delivery, subscriptions, actions, now):
                    self._note(intake, now)
        return actions + self._confirm(origin, now)

    def hand(self, run: AssuredDelivery, room: int, now: float) -> tuple[int, list[Action]]:
        """The shell is about to queue a run: how many of its messages it may, with room for so many."""
        intake = run.intake
        if run.first_sequence != intake.handed or intake.is_closed:
            return 0, []  # an earlier one found no room, or its subscription is gone
        if run.selected is not None and not self._matching.selected_subscriptions(run.topic, run.selected):
            return 0, self._refuse(intake, run, now)
        count = min(room, len(run.payloads))
        intake.handed += count
        intake.is_busy = count < len(run.payloads)
        if intake.is_busy:
            intake.has_room_again = False
            self._held_bytes -= intake.start_over()
            self._counters.add("refused_busy", len(run.payloads) - count)
        if not intake.is_durable:
            intake.confirmed = intake.handed
        self._counters["delivered"] += count
        self._note(intake, now)
        return count, self._confirm(intake.origin, now)

    def has_room(self, intake: Intake, now: float) -> list[Action]:
        """The application that had none has room again: let the publisher know."""
        if not intake.is_busy or intake.is_closed:
            return []
        intake.is_busy = False
        intake.has_room_again = True
        self._note(intake, now)
        return self._confirm(intake.origin, now)

    def accepted(self, run: AssuredDelivery, until: int, now: float) -> list[Action]:
        """The application accepted a durable stream up to here (excluded), and the store holds that."""
        intake = run.intake
        if until > intake.confirmed:
            intake.confirmed = until
            own = self._durables.own.get(intake.consumer)
            if own is not None:
                own.positions[intake.origin, intake.stream] = until
        if intake.is_closed:
            return []
        self._note(intake, now)
        return self._confirm(intake.origin, now)

    def close_consumer(self, consumer: str) -> None:
        """A durable subscription was closed: what it did not accept comes again when it is opened."""
        for key, intake in list(self._intakes.items()):
            if key[2] == consumer:
                intake.is_closed = True
                self._held_bytes -= intake.start_over()
                del self._intakes[key]

    def fire(self, now: float) -> list[Action]:
        """Send the confirmations that are due."""
        actions: list[Action] = []
        for origin in list(self._due):
            actions += self._confirm(origin, now)
        return actions

    # Inside

    def _refuse(self, intake: Intake, run: AssuredDelivery, now: float) -> list[Action]:
        """This site is no longer one that a run is for: it is not handed over, and its publisher told so."""
        if not intake.refuse(run.first_sequence + len(run.payloads)):
            self._held_bytes -= intake.start_over()
            return []
        self._counters.drop(DropReason.NOT_SELECTED, len(run.payloads))
        self._note(intake, now)
        return self._confirm(intake.origin, now)

    def _consumers(
        self, topic: str, durable: bool, may_be_filtered: bool
    ) -> dict[str, tuple[tuple[SubscriptionId, ...], OwnDurable | None]]:
        """Who here takes a topic: all plain subscriptions as one, each durable one by itself."""
        matching = self._matching
        plain = matching.possible_subscriptions(topic) if may_be_filtered else matching.subscriptions(topic)
        if not durable:
            return {"": (plain, None)} if plain else {}
        own = self._durables.open_for(topic)
        named = {each.subscription for each in own}
        plain = tuple(each for each in plain if each not in named)
        found: dict[str, tuple[tuple[SubscriptionId, ...], OwnDurable | None]] = {}
        if plain:
            found[""] = (plain, None)
        for each in own:
            assert each.subscription is not None
            found[each.name] = ((each.subscription,), each)
        return found

    def _intake(
        self,
        origin: str,
        stream: StreamKey,
        consumer: str,
        durable: OwnDurable | None,
        start: Start | None,
        topic: str,
    ) -> Intake | None:
        key = (origin, stream, consumer)
        intake = self._intakes.get(key)
        if intake is not None:
            if start is not None and start.sequence > intake.expected:
                self._held_bytes -= intake.skip_to(start.sequence)
            return intake
        position = durable.positions.get((origin, stream)) if durable is not None else None
        if start is None and position is None:
            return None
        if not self._make_room(durable is not None):
            self._counters.drop(DropReason.TABLE_FULL)
            return None
        first = max(position or 0, start.sequence if start is not None else 0)
        intake = self._intakes[key] = Intake(origin, stream, consumer, topic, first)
        return intake

    def _make_room(self, for_durable: bool) -> bool:
        if len(self._intakes) < self._config.streams_max:
            return True
        for key, intake in self._intakes.items():
            if not intake.is_durable:
                intake.is_closed = True
                self._held_bytes -= intake.start_over()
                del self._intakes[key]
                if self.forgotten is not None:
                    self.forgotten[key[0]] = None
                return True
        return not for_durable

    def _offer(
        self,
        intake: Intake,
        run: AssuredDelivery,
        subscriptions: tuple[SubscriptionId, ...],
        actions: list[Action],
        now: float,
    ) -> bool:
        """Take a run in its order; whether something can be handed over now, which will be confirmed then."""
        count = len(run.payloads)
        if not count:
            return False
        if run.first_sequence > intake.expected:
            size = sum(map(_size, run.payloads))
            if self._held_bytes + size <= self._config.held_max_bytes and intake.hold(run, size):
                self._held_bytes += size
            return False
        ready: Held | None = run
        delivers = False
        self._note_way(run.origin, run.path, run.first_sequence + count <= intake.expected, now)
        while ready is not None:
            assert isinstance(ready, AssuredDelivery)
            delivers |= self._pass_on(intake, ready, subscriptions, actions)
            ready, freed = intake.release()
            self._held_bytes -= freed
        return delivers

    def _pass_on(
        self,
        intake: Intake,
        run: AssuredDelivery,
        subscriptions: tuple[SubscriptionId, ...],
        actions: list[Action],
    ) -> bool:
        """Deliver what of a run is new; whether anything is."""
        skip = intake.expected - run.first_sequence
        if skip:
            self._counters.drop(DropReason.DUPLICATE, min(skip, len(run.payloads)))
            if skip >= len(run.payloads):
                return False
            run = msgspec.structs.replace(run, payloads=run.payloads[skip:], first_sequence=intake.expected)
        intake.expected += len(run.payloads)
        if run.selected is not None:
            subscriptions = self._matching.selected_subscriptions(run.topic, run.selected)
        actions.append(DeliverAssured(subscriptions, run))
        return True

    def _note(self, intake: Intake, now: float) -> None:
        self._due.setdefault(intake.origin, {})[intake.stream, intake.consumer] = intake
        self._arm(intake.origin, now)

    def _say(self, origin: str, stream: StreamKey, consumer: str, state: State, now: float) -> None:
        self._due.setdefault(origin, {})[stream, consumer] = Progress(stream, consumer, int(state), 0, 0)
        self._arm(origin, now)

    def _arm(self, origin: str, now: float) -> None:
        self._timers.set_earliest(("confirm", 0), max(now, self._told_at.get(origin, 0.0) + CONFIRM_EVERY_S))

    def _confirm(self, origin: str, now: float) -> list[Action]:
        """Tell a publisher's peer how far we are, unless it heard just now."""
        due = self._due.get(origin)
        if not due:
            return []
        if now < self._told_at.get(origin, -1e9) + CONFIRM_EVERY_S:
            self._arm(origin, now)
            return []
        del self._due[origin]
        self._told_at.pop(origin, None)
        if len(self._told_at) >= ORIGINS_MAX:
            del self._told_at[next(iter(self._told_at))]
        self._told_at[origin] = now
        told = [each.progress() if isinstance(each, Intake) else each for each in due.values()]
        if origin == self._identity.peer:
            self.for_ourselves += told
            return []
        self._counters.add("confirmations")
        routes = [self._posting.route((origin,)), *self._ways_back(origin, now)]
        actions: list[Action] = []
        for at in range(0, len(told), PROGRESS_MAX):
            body = [encode_body(told[at : at + PROGRESS_MAX])]
            for route in routes:
                actions += self._posting.post(route, body, _CONFIRMS, 0, now, CONFIRM_DEADLINE_US)
        return actions

    def _note_way(self, origin: str, path: tuple[str, ...], is_repeated: bool, now: float) -> None:
        """The way that something came is open, and so may be the same way back."""
        arrivals = self._arrivals.get(origin)
        if arrivals is None:
            if len(self._arrivals) >= ORIGINS_MAX:
                del self._arrivals[next(iter(self._arrivals))]
            arrivals = self._arrivals[origin] = Arrivals()
        if is_repeated:
            arrivals.repeated_until = now + REPEATED_S
            arrivals.others = [path, *(each for each in arrivals.others if each != path)][:WAYS_BACK_MAX]
        else:
            arrivals.last = path

    def _ways_back(self, origin: str, now: float) -> list[Route]:
        """Beside the usual one: some relay may keep what takes that."""
        arrivals = self._arrivals.get(origin)
        if arrivals is None:
            return []
        if arrivals.repeated_until <= now:
            arrivals.others = []
        usual = self._posting.ways(origin, BEST_EFFORT)
        ways = dict.fromkeys(path[::-1] for path in (arrivals.last, *arrivals.others))
        return [self._posting.along((way,)) for way in ways if len(way) > 1 and way not in usual]


def _size(payload: object) -> int:
    return len(payload) if isinstance(payload, bytes) else 256
