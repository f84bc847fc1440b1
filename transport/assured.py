"""Publishers with a guarantee: `put` gives a receipt, which tells who confirmed."""

import asyncio
import time
from typing import TYPE_CHECKING

from anabranch.overlay.codec import encode_payload
from anabranch.overlay.errors import LimitError, UsageError
from anabranch.overlay.publishing import Outlet
from anabranch.overlay.qos import Guarantee, Overflow
from anabranch.transport.confirmations import Confirmations, Outcome, Receipt
from anabranch.transport.publisher import Publisher

if TYPE_CHECKING:
    from anabranch.transport.peer import Peer
    from anabranch.transport.shell import Shell

BREATHE_EVERY = 64
"""After so many puts without a pause the event loop gets its turn."""


class AssuredPublisher(Publisher):
    """Publishes to one topic with a guarantee. Made by `Peer.publisher(..., guarantee=...)`."""

    __slots__ = ("_asked_from", "_confirmations", "_put_count", "_receivers", "_seen_names")

    def __init__(
        self,
        peer: "Peer",
        shell: "Shell",
        outlet: Outlet,
        overflow: Overflow,
        confirmations: Confirmations,
    ) -> None:
        super().__init__(peer, shell, outlet, overflow)
        self._confirmations = confirmations
        self._put_count = 0
        self._asked_from = confirmations.stream.next_sequence
        self._receivers: dict[str, None] = {}
        self._seen_names: tuple[str, ...] = ()

    async def put(self, payload: object) -> Receipt:
        """Publish; the receipt tells who confirmed.

        Acknowledged: returns when the message has been taken. With `unconfirmed_max_bytes` unconfirmed it
        waits, or raises LimitError if the overflow policy is not `block`.
        """
        payload, size = self._checked(payload)
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

    def put_nowait(self, payload: object) -> bool:
        """Publish without waiting; False, and not taken, with `unconfirmed_max_bytes` unconfirmed."""
        payload, size = self._checked(payload)
        stream = self._confirmations.stream
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

    def _checked(self, payload: object) -> tuple[object, int]:
        encoded, size = encode_payload(payload)
        self._check(size)
        return encoded, size

    def _note_receivers(self) -> None:
        names = self._confirmations.stream.names
        if names is not self._seen_names:
            self._seen_names = names
            self._receivers.update(dict.fromkeys(names))


def guarantee_of(value: "str | Guarantee") -> Guarantee:
    """A guarantee as people name it."""
    try:
        return Guarantee(value)
    except ValueError:
        raise UsageError(f"guarantee = {value!r}: one of {', '.join(Guarantee)}") from None


def open_publisher(
    peer: "Peer", shell: "Shell", outlet: Outlet, overflow: Overflow, guarantee: Guarantee
) -> Publisher:
    """The publisher for an outlet that was just opened."""
    if guarantee is Guarantee.BEST_EFFORT:
        return Publisher(peer, shell, outlet, overflow)
    stream = shell.node.acknowledge(outlet, time.monotonic())
    return AssuredPublisher(peer, shell, outlet, overflow, shell.assurances.confirmations(stream))
