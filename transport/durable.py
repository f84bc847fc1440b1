"""Durable subscriptions: what was accepted is not delivered again, also to the next process of that name."""

from collections.abc import AsyncIterator, Awaitable, Callable

from anabranch.overlay.actions import AssuredDelivery
from anabranch.overlay.errors import ClosedError, UsageError
from anabranch.overlay.identifiers import SubscriptionId
from anabranch.overlay.qos import Overflow
from anabranch.transport.message import Message
from anabranch.transport.subscription import Callback, Host, Subscription

Accept = Callable[[AssuredDelivery, int], Awaitable[None]]


class DurableMessage(Message, frozen=True):
    """One publication, as a durable subscription got it."""

    _accept: Accept

    async def accept(self) -> None:
        """Accept this message and all earlier ones of its publisher; on return that is on the disk.

        From then on none of them is delivered to this durable subscription again. For a message of a
        publisher that is not persistent it does nothing.
        """
        run = self._run
        if isinstance(run, AssuredDelivery) and run.intake.is_durable:
            await self._accept(run, self.sequence + 1)


class DurableSubscription(Subscription):
    """A subscription under a name that outlives its process. Made by `Peer.subscribe(..., durable=NAME)`.

    Asking for the next message accepts the one before, unless `auto_accept` is False.
    """

    _waits_between = True

    def __init__(
        self,
        host: Host,
        subscription_id: SubscriptionId,
        pattern: str,
        queue_max: int,
        callback: Callback | None,
        *,
        name: str,
        auto_accept: bool,
        accept: Accept,
        on_close: Callable[[], None],
    ) -> None:
        self.name = name
        self._auto_accept = auto_accept
        self._accept = accept
        self._on_close = on_close
        self._last: DurableMessage | None = None
        super().__init__(host, subscription_id, pattern, queue_max, Overflow.DROP_NEWEST, callback)

    async def __aiter__(self) -> AsyncIterator[DurableMessage]:
        """Messages as they come. Each step accepts the message before it."""
        while True:
            try:
                message = await self.receive()
            except ClosedError:
                return
            yield message

    async def receive(self, timeout: float | None = None) -> DurableMessage:
        """Accept the message before, then wait for the next one; else as `Subscription.receive`."""
        await self._accept_last()
        message = await super().receive(timeout)
        assert isinstance(message, DurableMessage)
        if self._auto_accept:
            self._last = message
        return message

    def receive_nowait(self) -> DurableMessage | None:
        """The next message if one waits; only with `auto_accept=False`, since accepting takes time."""
        if self._auto_accept:
            raise UsageError(
                f"receive_nowait on durable subscription {self.name!r}: accepting takes time; "
                "subscribe with auto_accept=False, or await receive()"
            )
        return self._take() if self.pending else None

    def close(self) -> None:
        """End it, for now. What was not accepted comes again when the name is subscribed again."""
        if not self._closed:
            self._runs.clear()
            self._pending = self._index = 0
            self._on_close()
        super().close()

    def _take(self) -> DurableMessage:
        message = super()._take()
        return DurableMessage(message.payload, message.sequence, message._run, self._accept)  # noqa: SLF001

    async def _accept_last(self) -> None:
        last, self._last = self._last, None
        if last is not None:
            await last.accept()
