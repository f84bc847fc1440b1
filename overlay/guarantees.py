"""The commands for publishers and subscriptions with a guarantee. A base of `Commands`."""

from collections.abc import Iterable, Mapping

from anabranch.overlay.actions import Action, AssuredDelivery
from anabranch.overlay.assured import StreamKey, is_consumer_name
from anabranch.overlay.config import Config
from anabranch.overlay.durables import DURABLES_MAX, OwnDurable, PositionKey
from anabranch.overlay.duties import Duties
from anabranch.overlay.errors import UsageError
from anabranch.overlay.identifiers import SubscriptionId
from anabranch.overlay.outlets import Outlet
from anabranch.overlay.outstreams import Kept, OutStream
from anabranch.overlay.parts import Parts


class GuaranteeCommands:
    """Each takes `now`; a shell takes the actions afterwards."""

    config: Config
    _parts: Parts
    _duties: Duties
    _actions: list[Action]

    def acknowledge(self, outlet: Outlet, now: float) -> OutStream:
        """Let a publisher that was just opened be acknowledged."""
        del now
        return self._parts.assuring.open(outlet.publisher, outlet.topic, outlet.demand)

    def persist(
        self,
        key: StreamKey,
        topic: str,
        next_sequence: int,
        floor: int,
        consumers: Iterable[tuple[str, str, int]],
        now: float,
    ) -> OutStream:
        """Go on with a stream of the store; `consumers` are (peer, name, next message to be confirmed)."""
        stream = self._parts.assuring.open_persistent(key, topic, next_sequence, floor, consumers, now)
        self._emit(self._parts.assuring.look_again(now), now)
        return stream

    def know_consumers(self, consumers: Iterable[tuple[str, str, str]]) -> None:
        """Durable subscriptions of other peers that the store knows: (peer, name, pattern)."""
        self._parts.audiences.know(consumers)

    def refresh_receivers(self, stream: OutStream, now: float) -> None:
        """Look who must confirm what is put now."""
        self._actions += self._parts.audiences.refresh(stream, now)

    def close_stream(self, stream: OutStream, now: float) -> None:
        """Nothing more is put; what is unsettled is still seen to."""
        self.flush(now)
        self._parts.assuring.close(stream)

    def publish_assured(self, stream: OutStream, payload: object, size: int, now: float) -> int:
        """Take one publication of an acknowledged publisher; its sequence."""
        sequence, actions = self._parts.assuring.publish(stream, payload, size, now)
        self._actions += actions
        return sequence

    def select_assured(
        self,
        stream: OutStream,
        payload: object,
        size: int,
        attributes: Mapping[str, object] | None,
        to: str | None,
        now: float,
    ) -> tuple[OutStream, int]:
        """The same for one with attributes or for selected sites: its stream, its sequence there.

        Those that it is for now must confirm it. Each set of receivers is a stream of its own.
        """
        parts = self._parts
        selected = parts.selections.selected(attributes, to)
        peers = parts.matching.selected_peers(stream.topic, selected)
        chosen = parts.assuring.selection(stream, peers)
        if chosen is None:
            chosen = parts.assuring.select(stream, peers, parts.publishing.new_flow().publisher)
        sequence, actions = parts.assuring.publish(chosen, payload, size, now, selected)
        self._actions += actions
        return chosen, sequence

    def stored(self, stream: OutStream, first: int, messages: list[Kept], now: float) -> None:
        """The store holds these messages of a persistent publisher; they leave with a flush."""
        self._actions += self._parts.assuring.stored(stream, first, messages, now)

    def loaded(
        self, stream: OutStream, first: int, messages: list[tuple[int, Kept]], end: int, now: float
    ) -> None:
        """The answer to `Load`: the store has nothing but these from `first` to `end`."""
        self._emit(self._parts.assuring.loaded(stream, first, messages, end, now), now)

    def expired(self, stream: OutStream, first: int, now: float) -> None:
        """The store keeps nothing before this any more."""
        self._emit(self._parts.assuring.expired(stream, first, now), now)

    def hand(self, run: AssuredDelivery, room: int, now: float) -> int:
        """The shell carries out a `DeliverAssured`: how many messages of the run it may queue."""
        count, actions = self._parts.taking.hand(run, room, now)
        self._emit(actions, now)
        return count

    def has_room(self, run: AssuredDelivery, now: float) -> None:
        """The subscriptions of a run that was cut short have room again."""
        self._emit(self._parts.taking.has_room(run.intake, now), now)

    def accepted(self, run: AssuredDelivery, until: int, now: float) -> None:
        """The application accepted messages of a durable subscription, and the store holds that."""
        self._emit(self._parts.taking.accepted(run, until, now), now)

    # Durable subscriptions

    def know_durables(self, durables: Mapping[str, tuple[str, bool]]) -> None:
        """What the store knows of our own: names with (pattern, whether it was forgotten). Before `start`."""
        own = self._parts.durables.own
        for name, (pattern, is_forgotten) in durables.items():
            own[name] = OwnDurable(name, pattern, {}, is_forgotten=is_forgotten)

    def open_durable(
        self,
        name: str,
        pattern: str,
        subscription: SubscriptionId,
        positions: dict[PositionKey, int],
        now: float,
    ) -> None:
        """A subscription that was just made is durable under this name, and stands at these positions."""
        own = self._parts.durables.own
        if not is_consumer_name(name):
            raise UsageError(
                f"durable = {name!r}: use 1 to 64 letters, digits, '.', '_' or '-', starting with a letter "
                "or digit"
            )
        known = own.get(name)
        if known is not None and known.subscription is not None:
            raise UsageError(f"durable = {name!r}: it is open already; one reader at a time")
        if known is None and len(own) >= DURABLES_MAX:
            raise UsageError(f"{len(own)} durable subscriptions: {DURABLES_MAX} at most; forget some")
        own[name] = OwnDurable(name, pattern, positions, subscription)
        self._tell_durables(now)

    def close_durable(self, name: str, now: float) -> None:
        """Its application stops reading; messages wait for it."""
        own = self._parts.durables.own.get(name)
        if own is not None and own.subscription is not None:
            own.subscription = None
            self._parts.taking.close_consumer(name)
            self._tell_durables(now)

    def forget_durable(self, name: str, now: float) -> None:
        """It will not come back: publishers keep nothing more for it."""
        own = self._parts.durables.own.get(name)
        if own is None:
            return
        self._parts.taking.close_consumer(name)
        own.subscription = None
        own.is_forgotten = True
        own.positions = {}
        self._tell_durables(now)

    # Inside

    def _tell_durables(self, now: float) -> None:
        parts = self._parts
        parts.durables.plain = parts.plain_patterns()
        parts.durables.changed()
        self._actions += parts.telling.durables_now(now)
        self._emit(parts.assuring.look_again(now), now)

    def _emit(self, actions: list[Action], now: float) -> None:
        self._actions += actions
        if self._parts.taking.for_ourselves:
            self._actions += self._duties.confirm_ourselves(now)

    def flush(self, now: float) -> None:
        """Send what was published."""
        raise NotImplementedError
