"""This peer as a site: its application's answers to requests, once per subscriber.

Told by the application and by requests that arrive; puts what is to be said into the outgoing reports.
"""

import msgspec

from anabranch.overlay.actions import Action, DeliveredRequest, DeliverRequest, SendAside
from anabranch.overlay.asking import Protocol, refusal
from anabranch.overlay.codec import decode_value
from anabranch.overlay.config import Config
from anabranch.overlay.counters import Counters
from anabranch.overlay.coverage import Part
from anabranch.overlay.errors import DropReason, UsageError
from anabranch.overlay.headers import Record, RecordKind
from anabranch.overlay.identifiers import SubscriptionId
from anabranch.overlay.identity import Identity
from anabranch.overlay.matching import Matching
from anabranch.overlay.merging import Merge, merge_all
from anabranch.overlay.recordbook import RecordBook
from anabranch.overlay.replywire import (
    Merged,
    Report,
    Request,
    encode_items,
    encode_value,
    mask_bytes,
    version_of,
)
from anabranch.overlay.reporting import Reporting
from anabranch.overlay.selections import Selections
from anabranch.overlay.tending import DECLINED, Tended, Tending


class Siting:
    """Answers of our own subscribers."""

    def __init__(
        self,
        identity: Identity,
        config: Config,
        book: RecordBook,
        matching: Matching,
        selections: Selections,
        tending: Tending,
        reporting: Reporting,
        counters: Counters,
    ) -> None:
        self._payload_max = config.payload_max_bytes
        self._identity = identity
        self._book = book
        self._matching = matching
        self._selections = selections
        self._tending = tending
        self._reporting = reporting
        self._counters = counters

    def subscribers(self, request: Request) -> tuple[SubscriptionId, ...]:
        """Who here is asked, by what this site is now."""
        if not request.to:
            return self._matching.subscriptions(request.topic)
        selected = self._selections.read({}, request.to)
        found = self._matching.selected_subscriptions(request.topic, selected)
        if not found:
            self._counters.drop(DropReason.NOT_SELECTED)
        return found

    def admit(self, state: Tended, subscriptions: tuple[SubscriptionId, ...]) -> None:
        """The request reached our application: these subscribers are to answer."""
        state.subscriptions = list(subscriptions)
        state.own = [None] * len(subscriptions)
        state.unanswered = len(subscriptions)
        if not subscriptions:  # nobody wants it any more
            self._end(state)

    def deliveries(
        self, state: Tended, payload: object, path: tuple[str, ...], age_s: float, now: float
    ) -> list[Action]:
        """The request, for each of these subscribers."""
        request = state.request
        return [
            DeliverRequest(
                subscription,
                DeliveredRequest(
                    request.topic,
                    request.origin,
                    0,
                    request.number,
                    [payload],
                    age_s,
                    now,
                    0.0,
                    path,
                    request.epoch,
                    key=state.key,
                    subscriber=subscriber,
                    expects=request.expects,
                    to=request.to,
                ),
            )
            for subscriber, subscription in enumerate(state.subscriptions)
        ]

    def answer(self, state: Tended, subscriber: int, value: msgspec.Raw) -> None:
        """A subscriber answered, or DECLINED."""
        if not self._tending.hold(state, len(value)):
            self._counters.add("replies_unheld")
        state.own[subscriber] = value
        state.unanswered -= 1
        self._counters.add("replies_declined" if value is DECLINED else "replies_sent")
        is_last = not state.unanswered
        if state.merge is None:
            self._say(state, [subscriber], is_last)
        elif is_last:
            self._say_merged(state)
        if is_last:
            state.settle(state.own_bit)

    def checked(self, state: Tended, value: object) -> msgspec.Raw:
        """A reply as it travels; UsageError when it must not."""
        for wanted in state.request.expects:
            why = refusal(wanted, value)
            if why:
                raise UsageError(f"reply {value!r} to {state.request.topic!r}: {why} by {state.key.origin}")
        try:
            raw = encode_value(value)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise UsageError(f"reply of type {type(value).__name__} cannot be encoded: {error}") from None
        if len(raw) > self._payload_max:
            raise UsageError(f"reply of {len(raw)} B: payload_max_bytes = {self._payload_max}")
        return raw

    def say_again(self, state: Tended) -> None:
        """The publisher lacks what we said: say it straight."""
        if state.merge is not None and state.unanswered:
            return
        if state.merge is not None and state.own:
            merged = own_part(state, self._identity.peer, state.merge)
            if merged is not None:
                self._reporting.merged("", state.key, merged)
                return
        answered = [each for each, answer in enumerate(state.own) if answer is not None]
        self._say(state, answered, not state.unanswered)

    def partial(self, state: Tended) -> Part | None:
        """What our subscribers answered so far, merged, for a poll."""
        if state.merge is None or state.is_finished or not state.own_bit:
            return None
        merged = own_part(state, self._identity.peer, state.merge)
        return None if merged is None else Part(state.own_bit, merged.answered, merged.declined, merged.state)

    def withdraw(self, state: Tended) -> None:
        """The request is over: later answers are discarded."""
        if state.unanswered:
            self._counters.add("requests_unanswered", state.unanswered)

    def unsubscribed(self, subscription: SubscriptionId) -> list[Tended]:
        """A subscription is gone: what it did not answer, it declines. The requests concerned."""
        concerned = []
        for state in self._tending:
            if subscription in state.subscriptions:
                subscriber = state.subscriptions.index(subscription)
                if state.own[subscriber] is None:
                    self.answer(state, subscriber, DECLINED)
                    concerned.append(state)
        return concerned

    # Inside

    def _end(self, state: Tended) -> None:
        self._say(state, [], True)
        state.settle(state.own_bit)

    def _say(self, state: Tended, subscribers: list[int], is_last: bool) -> None:
        key = state.key
        site = state.index[self._identity.peer]
        nothing, vouching = encode_value(None), self._reporting.vouching
        entries = []
        for subscriber in subscribers:
            value = state.own[subscriber]
            assert value is not None
            answered = value is not DECLINED
            entries.append(vouching.entry(key, site, subscriber, answered, value if answered else nothing))
        ended = [vouching.ended(key, site, len(state.own))] if is_last else []
        if not state.request.protocol.is_repaired and key.origin != self._identity.peer:
            if vouching.is_secured and state.request.protocol is not Protocol.PUBLISH:
                self._counters.add("replies_unsent", len(entries))
                return  # they would leave the secured mesh
            report = Report(*key, entries, ended)
            report.records = self._news(state)
            frame = encode_items([report])
            self._reporting.aside(SendAside(state.request.protocol, state.request.reply_to, frame))
            return
        to = "" if state.is_straight else state.parent
        for entry in entries:
            self._reporting.entry(to, key, entry)
        for each in ended:
            self._reporting.ended(to, key, each)
        self._accompany(state, to)

    def _say_merged(self, state: Tended) -> None:
        assert state.merge is not None
        merged = own_part(state, self._identity.peer, state.merge)
        if merged is None:  # the merge cannot lift some value: the publisher gets them as they are
            self._say(state, list(range(len(state.own))), True)
            return
        to = "" if state.is_straight else state.parent
        part = Part(state.own_bit, merged.answered, merged.declined, merged.state)
        if state.is_holding and not state.is_straight and state.coverage.offer(part):
            state.records.update((record.origin, record) for record in self._news(state))
            return
        self._reporting.merged(to, state.key, merged)
        self._accompany(state, to)

    def _accompany(self, state: Tended, to: str) -> None:
        if to or state.is_straight:
            for record in self._news(state):
                self._reporting.record(to, state.key, record)
        if to and state.back:
            self._reporting.way_back(to, state.key, state.back)

    def _news(self, state: Tended) -> list[Record]:
        """Our interests, if the publisher did not know them when it asked: what was wanted before a reply is
        in effect when the reply arrives."""
        record = self._book.get(self._identity.peer, int(RecordKind.INTERESTS))
        site = state.index[self._identity.peer]
        known = state.request.known
        if record is None or (site < len(known) and known[site] == version_of(record)):
            return []
        return [record]


def own_part(state: Tended, me: str, merge: Merge) -> Merged | None:
    """The answers of our own subscribers so far, merged; None when some cannot be."""
    values = [
        (subscriber, answer)
        for subscriber, answer in enumerate(state.own)
        if answer is not None and answer is not DECLINED
    ]
    declined = sum(answer is DECLINED for answer in state.own)
    try:
        states = [merge.lift(decode_value(memoryview(value)), me, subscriber) for subscriber, value in values]
        encoded = encode_value(merge_all(merge, states))
    except Exception:  # noqa: BLE001 - the application's own function may raise anything
        return None
    return Merged(mask_bytes(1 << state.index[me]), len(values), declined, encoded)
