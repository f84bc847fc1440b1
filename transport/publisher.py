"""A publisher: `put` is an append on the hot path; everything else happens once per bundle."""

import asyncio
import time
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING

from anabranch.overlay.codec import encode_payload
from anabranch.overlay.errors import ClosedError, DropReason, UsageError
from anabranch.overlay.outlets import MESSAGE_BYTES, Outlet
from anabranch.overlay.qos import Overflow
from anabranch.overlay.queues import ONE_FRAME_MAX_BYTES

if TYPE_CHECKING:
    from anabranch.transport.confirmations import Receipt
    from anabranch.transport.peer import Peer
    from anabranch.transport.shell import Shell


class Publisher:
    """Publishes to one topic. Made by `Peer.publisher`; messages of one publisher stay in order."""

    __slots__ = (
        "_closed",
        "_gate",
        "_inline_max",
        "_outlet",
        "_overflow",
        "_peer",
        "_shell",
        "topic",
    )

    def __init__(self, peer: "Peer", shell: "Shell", outlet: Outlet, overflow: Overflow) -> None:
        config = shell.node.config
        self.topic = outlet.topic
        self._peer = peer
        self._shell = shell
        self._gate = shell.gate
        self._outlet = outlet
        self._overflow = overflow
        self._inline_max = min(config.inline_max_bytes, config.bundle_max_bytes // 2)
        self._closed = False

    async def put(
        self, payload: object, *, attributes: Mapping[str, object] | None = None, to: str | None = None
    ) -> "Receipt | None":
        """Publish bytes, or a value that msgpack can carry (None, numbers, texts, lists, maps, structs).

        `attributes`: names and values (numbers, texts, booleans, sets) that filters of subscriptions look at.
        `to`: an expression over the attributes of sites, such as "region = 'north' and load > 0.8"; it goes
        to the subscribers among the sites for which that is true, and to nobody else.

        Returns when the message has been taken; with overflow `block` it waits while a link on its way, or a
        subscriber that blocks, makes progress but has no room. Messages that nobody wants, or that cannot be
        sent to those who do, are counted and dropped. A publisher with a guarantee returns a receipt.
        """
        outlet = self._outlet
        if type(payload) is bytes:
            if attributes is None and to is None and len(payload) <= outlet.fits:
                for _ in outlet.places:
                    # Not the first of this turn: it leaves with the others.
                    outlet.payloads.append(payload)
                    return None
            size = len(payload)
        else:
            payload, size = encode_payload(payload)
        if attributes is not None or to is not None:
            if self._put_selected(payload, size, attributes, to):
                await self._shell.wait_for_room(outlet)
            return None
        if outlet.reserved:
            outlet.settle()
        room = outlet.room - size
        if room > 0 and size <= self._inline_max:
            outlet.payloads.append(payload)
            outlet.room = room - MESSAGE_BYTES
            return None
        if (
            size <= ONE_FRAME_MAX_BYTES
            and not self._gate.shut
            and not self._closed
            and self._shell.express(outlet, payload)
        ):
            return None
        self._put_first(payload, size)
        is_full = outlet.room <= 0
        if self._shell.published(outlet, is_full) and self._overflow is Overflow.BLOCK:
            await self._shell.wait_for_room(outlet)
        elif is_full:
            await asyncio.sleep(0)  # let the loop read and breathe
        return None

    @property
    def availability(self) -> float:
        """The estimated share of time in which some path reaches each receiver; 0 when there is no path.

        Of all receivers the worst, by what links were measured to do. A light client leaves the paths to its
        peer and knows nothing of them: 0.
        """
        self._gate.check()
        reach = self._shell.node.reach(self._outlet)
        if reach.route is None:
            return 1.0 if reach.subscriptions else 0.0
        return reach.route.availability

    def put_nowait(
        self, payload: object, *, attributes: Mapping[str, object] | None = None, to: str | None = None
    ) -> bool:
        """Publish without waiting; False when a link is congested (the message was taken all the same)."""
        payload, size = encode_payload(payload)
        if attributes is not None or to is not None:
            return not self._put_selected(payload, size, attributes, to, may_wait=False)
        self._put_first(payload, size)
        return not self._shell.published(self._outlet, self._outlet.room <= 0)

    def close(self) -> None:
        """What was put still leaves; further puts raise."""
        if not self._closed:
            self._closed = True
            if not self._gate.shut:
                self._shell.node.close_publisher(self._outlet, time.monotonic())
                self._shell.turn()

    async def __aenter__(self) -> "Publisher":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _put_selected(
        self,
        payload: object,
        size: int,
        attributes: Mapping[str, object] | None,
        to: str | None,
        *,
        may_wait: bool = True,
    ) -> bool:
        """Take one for selected receivers; whether to wait for room now."""
        self._check(size)
        node = self._shell.node
        node.select(self._outlet, payload, size, attributes, to, time.monotonic())
        is_congested = self._shell.published(self._outlet, node.is_full)
        return is_congested and (not may_wait or self._overflow is Overflow.BLOCK)

    def _put_first(self, payload: object, size: int) -> None:
        self._check(size)
        self._shell.node.publish(self._outlet, payload, size, time.monotonic())

    def _check(self, size: int) -> None:
        """Whether a payload of this size may be put now."""
        self._gate.check()
        if self._closed:
            raise ClosedError(f"publisher of {self.topic!r} is closed")
        limit = self._shell.node.config.payload_max_bytes
        if size > limit:
            self._shell.node.counters.drop(DropReason.OVERSIZED)
            raise UsageError(
                f"payload of {size} B for {self.topic!r}: payload_max_bytes = {limit}; "
                "send it in parts, or raise the limit on every peer"
            )
