"""A best-effort publisher with limits: messages per second, bytes that wait in queues.

Plain publishers know nothing of it.
"""

import asyncio
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from anabranch.overlay.bundles import Queued
from anabranch.overlay.codec import encode_payload
from anabranch.overlay.errors import DropReason
from anabranch.overlay.outlets import Outlet
from anabranch.overlay.qos import Overflow
from anabranch.overlay.rates import Rate
from anabranch.transport.publisher import Publisher

if TYPE_CHECKING:
    from anabranch.transport.peer import Peer
    from anabranch.transport.shell import Shell

LOOK_S = 0.005
"""How often a publisher that waits looks whether its bytes have left."""


class LimitedPublisher(Publisher):
    """A best-effort publisher with a rate, or a limit to what waits."""

    __slots__ = ("_queued", "_rate")

    def __init__(
        self,
        peer: "Peer",
        shell: "Shell",
        outlet: Outlet,
        overflow: Overflow,
        rate: Rate | None,
        queued: Queued | None,
    ) -> None:
        super().__init__(peer, shell, outlet, overflow)
        self._rate = rate
        self._queued = queued

    async def put(
        self, payload: object, *, attributes: Mapping[str, object] | None = None, to: str | None = None
    ) -> None:
        """Publish as `Publisher.put`; beyond a limit it waits, or drops, by the overflow policy."""
        payload, size = encode_payload(payload)
        self._check(size)
        self._settle(attributes, to)
        while self._lacks_room(size):
            if self._overflow is not Overflow.BLOCK:
                self._shell.node.counters.drop(DropReason.QUEUED)
                return
            await asyncio.sleep(LOOK_S)
            self._check(size)
        while wait_s := self._too_early():
            if self._overflow is not Overflow.BLOCK:
                self._shell.node.counters.drop(DropReason.RATE)
                return
            await asyncio.sleep(wait_s)
        await super().put(payload, attributes=attributes, to=to)

    def put_nowait(
        self, payload: object, *, attributes: Mapping[str, object] | None = None, to: str | None = None
    ) -> bool:
        """Publish without waiting; False, and not taken, beyond a limit."""
        payload, size = encode_payload(payload)
        self._check(size)
        self._settle(attributes, to)
        if self._lacks_room(size):
            self._shell.node.counters.drop(DropReason.QUEUED)
            return False
        if self._too_early():
            self._shell.node.counters.drop(DropReason.RATE)
            return False
        return super().put_nowait(payload, attributes=attributes, to=to)

    def _settle(self, attributes: Mapping[str, object] | None, to: str | None) -> None:
        """What was put for selected receivers is counted once it is in the queues: let it go there."""
        if self._queued is not None and (attributes is not None or to is not None):
            self._shell.published(self._outlet, True)

    def _too_early(self) -> float:
        return self._rate.take(time.monotonic()) if self._rate is not None else 0.0

    def _lacks_room(self, size: int) -> bool:
        """Whether so much more would be too much; a message of any size may wait when nothing else does."""
        queued = self._queued
        if queued is None:
            return False
        if self._is_over(queued, size):
            self._shell.published(self._outlet, True)  # what was put in this turn may well find its way out
        return self._is_over(queued, size)

    def _is_over(self, queued: Queued, size: int) -> bool:
        outlet = self._outlet
        waiting = queued.bytes + (outlet.held_bytes if outlet.payloads else 0)
        return waiting > 0 and waiting + size > queued.bytes_max
