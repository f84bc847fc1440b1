"""Publishers with a guarantee: `put` gives a receipt, which tells who confirmed."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from anabranch.overlay.assured import StreamKey
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

ASKED_MAX = 512
"""Sets of receivers that `confirmed` tells of, but for those unsettled: of more, the oldest are left out."""
BREATHE_EVERY = 64
"""After so many puts without a pause the event loop gets its turn."""


class AssuredPublisher(Publisher):
    """Publishes to one topic with a guarantee. Made by `Peer.publisher(..., guarantee=...)`."""

    __slots__ = (
        "_asked",
        "_confirmations",
        "_put_count",
        "_rate",
        "_receivers",
        "_seen_names",
    )

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
        self._asked: dict[StreamKey, tuple[Confirmations, int]] = {}
        """What was put since `confirmed` was called: a stream for each set of receivers, and its first."""
        self._ask_for(confirmations, confirmations.stream.next_sequence)
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
        """Publish; the receipt tells who confirmed.

        With `attributes` and `to` (see `Publisher.put`) those must confirm whom it is for when it is put. A
        site that has become another by the time it arrives does not deliver it: `not_selected`.

        Acknowledged: returns when the message has been taken. With `unconfirmed_max_bytes` unconfirmed it
        waits, or raises LimitError if the overflow policy is not `block`.
        """
        payload, size = self._checked(payload)
        await self._admit()
        config = self._shell.node.config
        while (unconfirmed := self._unconfirmed_bytes()) >= config.unconfirmed_max_bytes:
            if self._overflow is not Overflow.BLOCK:
                raise LimitError(
                    f"{unconfirmed} B of {self.topic!r} are unconfirmed: "
                    f"unconfirmed_max_bytes = {config.unconfirmed_max_bytes}; wait for confirmations"
                )
            await self._some_confirmed()
            self._gate.check()
        confirmations, sequence = self._take(payload, size, attributes, to)
        receipt = Receipt(confirmations)
        confirmations.register(receipt, sequence)
        self._shell.published(self._outlet, False)
        self._put_count += 1
        if self._put_count % BREATHE_EVERY == 0:
            await asyncio.sleep(0)
        return receipt

    def put_nowait(
        self, payload: object, *, attributes: Mapping[str, object] | None = None, to: str | None = None
    ) -> bool:
        """Publish without waiting; False, and not taken, with `unconfirmed_max_bytes` unconfirmed."""
        payload, size = self._checked(payload)
        if self._rate is not None and self._rate.take(time.monotonic()):
            self._shell.node.counters.drop(DropReason.RATE)
            return False
        if self._unconfirmed_bytes() >= self._shell.node.config.unconfirmed_max_bytes:
            return False
        self._take(payload, size, attributes, to)
        self._shell.published(self._outlet, False)
        return True

    async def confirmed(self, timeout: float | None = None) -> Outcome:
        """Wait until everything put so far is settled; who confirmed all that was put since the last call.

        After `timeout` seconds it tells how it stands.
        """
        asked = [(*each, each[0].stream.next_sequence) for each in self._asked.values()]
        receivers, self._receivers, self._seen_names = self._receivers, {}, ()
        try:
            async with asyncio.timeout(timeout):
                for confirmations, _, end in asked:
                    await confirmations.wait(end, None)
        except TimeoutError:
            pass
        missing: dict[str, str] = {}
        for confirmations, first, end in asked:
            missing.update(confirmations.failed_since(first))
            for peer, reason in confirmations.outstanding(end - 1).items():
                missing.setdefault(peer, reason)
            self._asked.pop(confirmations.stream.key, None)
            if not confirmations.is_done or confirmations is self._confirmations:
                self._ask_for(confirmations, min(end, confirmations.floor))
            if confirmations.floor < end:
                self._receivers.update(dict.fromkeys(confirmations.stream.names))
        return Outcome(tuple(name for name in receivers if name not in missing), missing)

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

    def _take(
        self, payload: object, size: int, attributes: Mapping[str, object] | None, to: str | None
    ) -> tuple[Confirmations, int]:
        """Publish; where its receipt belongs, and its sequence there."""
        node, now = self._shell.node, time.monotonic()
        main = self._confirmations
        if attributes is None and to is None:
            sequence = node.publish_assured(main.stream, payload, size, now)
            self._note_receivers(main)
            return main, sequence
        stream, sequence = node.select_assured(main.stream, payload, size, attributes, to, now)
        confirmations = self._shell.assurances.confirmations(stream)
        if stream.key not in self._asked:
            self._ask_for(confirmations, sequence)
        self._note_receivers(confirmations)
        return confirmations, sequence

    def _ask_for(self, confirmations: Confirmations, first: int) -> None:
        self._asked[confirmations.stream.key] = (confirmations, first)
        if len(self._asked) > ASKED_MAX:
            over = next((key for key, (each, _) in self._asked.items() if each.is_over), None)
            if over is not None:
                del self._asked[over]

    def _unconfirmed_bytes(self) -> int:
        main = self._confirmations.stream
        return main.kept_bytes + sum(each.kept_bytes for each in main.selections.values())

    async def _some_confirmed(self) -> None:
        """Until something of what was put is settled."""
        every = self._shell.assurances.confirmations
        main = self._confirmations.stream
        waiting = [asyncio.ensure_future(every(each).changed()) for each in (main, *main.selections.values())]
        try:
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waiting:
                each.cancel()
        for each in done:
            each.result()

    def _note_receivers(self, confirmations: Confirmations) -> None:
        names = confirmations.stream.names
        if names is not self._seen_names:
            self._seen_names = names
            self._receivers.update(dict.fromkeys(names))


def refuse_selection(topic: str, attributes: Mapping[str, object] | None, to: str | None) -> None:
    """UsageError when a persistent publisher is asked to select its receivers."""
    advice = "put with 'acknowledged' or 'best_effort', or give what only some shall keep a topic of its own"
    if to is not None:
        raise UsageError(
            f"publisher of {topic!r}: to does not go with guarantee='persistent', since nobody knows what a "
            f"site will be when it comes back for its messages; {advice}"
        )
    if attributes is not None:
        raise UsageError(
            f"publisher of {topic!r}: attributes do not go with guarantee='persistent', since durable "
            f"subscriptions take whole topics; {advice}"
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
        self._note_receivers(self._confirmations)
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
