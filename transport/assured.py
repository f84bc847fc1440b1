"""Publishers with a guarantee: `put` gives a receipt, which tells who confirmed."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from anabranch.overlay.bundles import Queued
from anabranch.overlay.codec import encode_payload
from anabranch.overlay.config import TopicRule
from anabranch.overlay.errors import DropReason, LimitError, UsageError
from anabranch.overlay.outlets import Outlet
from anabranch.overlay.patterns import check_topic, matches
from anabranch.overlay.qos import Demand, Guarantee, Overflow
from anabranch.overlay.rates import Rate
from anabranch.transport.confirmations import Confirmations, Outcome, Receipt
from anabranch.transport.limited import LimitedPublisher
from anabranch.transport.publisher import Publisher

if TYPE_CHECKING:
    from anabranch.transport.peer import Peer
    from anabranch.transport.persistence import Persistence
    from anabranch.transport.shell import Shell
    from anabranch.transport.store import Store

BREATHE_EVERY = 64
"""After so many puts without a pause the event loop gets its turn."""


class AssuredPublisher(Publisher):
    """Publishes to one topic with a guarantee. Made by `Peer.publisher(..., guarantee=...)`."""

    __slots__ = ("_asked_from", "_confirmations", "_put_count", "_rate", "_receivers", "_seen_names")

    def __init__(
        self,
        peer: "Peer",
        shell: "Shell",
        outlet: Outlet,
        overflow: Overflow,
        confirmations: Confirmations,
        rate: Rate | None,
    ) -> None:
        super().__init__(peer, shell, outlet, overflow)
        self._rate = rate
        self._confirmations = confirmations
        self._put_count = 0
        self._asked_from = confirmations.stream.next_sequence
        self._receivers: dict[str, None] = {}
        self._seen_names: tuple[str, ...] = ()

    @property
    def receivers(self) -> tuple[str, ...]:
        """The peers that must confirm what is put now; also those away that have durable subscriptions."""
        self._gate.check()
        stream = self._confirmations.stream
        self._shell.node.refresh_receivers(stream, time.monotonic())
        self._shell.turn()
        return stream.names

    async def put(
        self, payload: object, *, attributes: Mapping[str, object] | None = None, to: str | None = None
    ) -> Receipt:
        """Publish; the receipt tells who confirmed. Whom it is for, the topic alone decides.

        Acknowledged: returns when the message has been taken. With `unconfirmed_max_bytes` unconfirmed it
        waits, or raises LimitError if the overflow policy is not `block`.
        """
        refuse_selection(self.topic, attributes, to)
        payload, size = self._checked(payload)
        await self._admit()
        config = self._shell.node.config
        stream = self._confirmations.stream
        while stream.kept_bytes >= config.unconfirmed_max_bytes:
            if self._overflow is not Overflow.BLOCK:
                raise LimitError(
                    f"{stream.kept_bytes} B of {self.topic!r} are unconfirmed: "
                    f"unconfirmed_max_bytes = {config.unconfirmed_max_bytes}; wait for confirmations"
                )
            await self._confirmations.changed()
            self._gate.check()
        receipt = Receipt(self._confirmations)
        sequence = self._shell.node.publish_assured(stream, payload, size, time.monotonic())
        self._confirmations.register(receipt, sequence)
        self._note_receivers()
        self._shell.published(self._outlet, False)
        self._put_count += 1
        if self._put_count % BREATHE_EVERY == 0:
            await asyncio.sleep(0)
        return receipt

    def put_nowait(
        self, payload: object, *, attributes: Mapping[str, object] | None = None, to: str | None = None
    ) -> bool:
        """Publish without waiting; False, and not taken, with `unconfirmed_max_bytes` unconfirmed."""
        refuse_selection(self.topic, attributes, to)
        payload, size = self._checked(payload)
        stream = self._confirmations.stream
        if self._rate is not None and self._rate.take(time.monotonic()):
            self._shell.node.counters.drop(DropReason.RATE)
            return False
        if stream.kept_bytes >= self._shell.node.config.unconfirmed_max_bytes:
            return False
        self._shell.node.publish_assured(stream, payload, size, time.monotonic())
        self._note_receivers()
        self._shell.published(self._outlet, False)
        return True

    async def confirmed(self, timeout: float | None = None) -> Outcome:
        """Wait until everything put so far is settled; who confirmed all that was put since the last call.

        After `timeout` seconds it tells how it stands.
        """
        confirmations = self._confirmations
        end = confirmations.stream.next_sequence
        await confirmations.wait(end, timeout)
        missing = confirmations.failed_since(self._asked_from)
        for peer, reason in confirmations.outstanding(end - 1).items():
            missing.setdefault(peer, reason)
        outcome = Outcome(tuple(name for name in self._receivers if name not in missing), missing)
        self._asked_from = min(end, confirmations.floor)
        self._receivers = dict.fromkeys(self._seen_names)
        return outcome

    def close(self) -> None:
        """What was put is still seen to until it is settled or the peer closes; further puts raise."""
        if not self._closed and not self._gate.shut:
            self._shell.node.close_stream(self._confirmations.stream, time.monotonic())
        super().close()

    async def _admit(self) -> None:
        """Until the rate allows a message; LimitError if the overflow policy is not to wait."""
        while self._rate is not None and (wait_s := self._rate.take(time.monotonic())):
            if self._overflow is not Overflow.BLOCK:
                self._shell.node.counters.drop(DropReason.RATE)
                raise LimitError(f"{self.topic!r} is published to faster than its rate_max: slow down")
            await asyncio.sleep(wait_s)

    def _checked(self, payload: object) -> tuple[object, int]:
        encoded, size = encode_payload(payload)
        self._check(size)
        return encoded, size

    def _note_receivers(self) -> None:
        names = self._confirmations.stream.names
        if names is not self._seen_names:
            self._seen_names = names
            self._receivers.update(dict.fromkeys(names))


def refuse_selection(topic: str, attributes: Mapping[str, object] | None, to: str | None) -> None:
    """UsageError when a publisher with a guarantee is asked to select its receivers."""
    if attributes is not None or to is not None:
        raise UsageError(
            f"publisher of {topic!r}: attributes and to go with guarantee='best_effort' only; "
            "take another publisher for what is for selected receivers"
        )


class PersistentPublisher(AssuredPublisher):
    """Publishes to one topic; every message is in the peer's store before `put` returns."""

    __slots__ = ("_store",)

    def __init__(
        self,
        peer: "Peer",
        shell: "Shell",
        outlet: Outlet,
        overflow: Overflow,
        confirmations: Confirmations,
        rate: Rate | None,
        store: "Store",
    ) -> None:
        super().__init__(peer, shell, outlet, overflow, confirmations, rate)
        self._store = store

    async def put(
        self, payload: object, *, attributes: Mapping[str, object] | None = None, to: str | None = None
    ) -> Receipt:
        """Write a message to the store, for good, and publish it.

        Puts that run at the same time share one write to the disk. When the store is full it waits for
        confirmations, or raises LimitError if the overflow policy is not `block`. StoreError: it could not be
        written, and is not published.
        """
        refuse_selection(self.topic, attributes, to)
        payload, size = self._checked(payload)
        await self._admit()
        store = self._store
        while not store.has_room(size):
            if self._overflow is not Overflow.BLOCK:
                raise LimitError(
                    f"the store holds {store.bytes} B: store_max_bytes = {store.bytes_max}; "
                    "let durable subscriptions catch up, forget those that will not come back, or raise it"
                )
            await store.wait_for_room()
            self._gate.check()
        receipt = Receipt(self._confirmations)
        await store.append(self._confirmations.stream.key, payload, size, receipt)
        self._note_receivers()
        return receipt

    def put_nowait(
        self, payload: object, *, attributes: Mapping[str, object] | None = None, to: str | None = None
    ) -> bool:
        """Not with this guarantee: writing takes time."""
        del payload, attributes, to
        raise UsageError(f"put_nowait for {self.topic!r}: a persistent message is written first; await put()")


def demand_of(deadline: float | None, availability: float | None) -> Demand:
    """What a publisher asks of paths, checked."""
    if deadline is not None and not 0 < deadline < 4000:
        raise UsageError(f"deadline = {deadline}: seconds, above 0 and below 4000")
    if availability is not None and not 0 < availability < 1:
        raise UsageError(f"availability = {availability}: a share above 0 and below 1, such as 0.9999")
    return Demand(deadline or 0.0, availability or 0.0)


def guarantee_of(value: str | Guarantee) -> Guarantee:
    """A guarantee as people name it."""
    try:
        return Guarantee(value)
    except ValueError:
        raise UsageError(f"guarantee = {value!r}: one of {', '.join(Guarantee)}") from None


class Terms(NamedTuple):
    """What holds for one publisher beside its demand on paths."""

    guarantee: Guarantee
    rate: Rate | None
    queued: Queued | None


def terms_of(
    rules: Sequence[TopicRule],
    topic: str,
    guarantee: str | Guarantee | None,
    rate_max: float | None,
    queued_max_bytes: int | None,
) -> Terms:
    """What holds for a publisher: what it asked for, else the first rule that matches."""
    check_topic(topic)
    if rate_max is not None and not 0 < rate_max < 1e9:
        raise UsageError(f"rate_max = {rate_max}: messages per second, above 0")
    if queued_max_bytes is not None and queued_max_bytes < 1:
        raise UsageError(f"queued_max_bytes = {queued_max_bytes}: at least 1")
    rule = next((each for each in rules if matches(each.pattern, topic)), TopicRule(pattern="**"))
    promise = guarantee_of(guarantee) if guarantee is not None else rule.guarantee
    is_plain = promise is Guarantee.BEST_EFFORT
    if queued_max_bytes is not None and not is_plain:
        raise UsageError(
            f"queued_max_bytes for {topic!r}: for best effort alone; with guarantee = {promise.value!r} "
            "set unconfirmed_max_bytes or store_max_bytes in the configuration"
        )
    rate = rate_max or rule.rate_max
    most = queued_max_bytes or (rule.queued_max_bytes if is_plain else 0)
    return Terms(promise, Rate(rate, time.monotonic()) if rate else None, Queued(most) if most else None)


async def open_publisher(
    peer: "Peer",
    shell: "Shell",
    outlet: Outlet,
    overflow: Overflow,
    terms: Terms,
    persistence: "Persistence | None",
) -> Publisher:
    """The publisher for an outlet that was just opened."""
    guarantee, rate, queued = terms
    if guarantee is Guarantee.PERSISTENT:
        assert persistence is not None
        kept = await persistence.stream(outlet)
        confirmations = shell.assurances.confirmations(kept)
        return PersistentPublisher(peer, shell, outlet, overflow, confirmations, rate, persistence.store)
    if guarantee is Guarantee.BEST_EFFORT:
        if rate is not None or queued is not None:
            outlet.queued = queued
            return LimitedPublisher(peer, shell, outlet, overflow, rate, queued)
        return Publisher(peer, shell, outlet, overflow)
    stream = shell.node.acknowledge(outlet, time.monotonic())
    return AssuredPublisher(peer, shell, outlet, overflow, shell.assurances.confirmations(stream), rate)
