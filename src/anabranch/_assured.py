"""Publishers with a guarantee and durable subscriptions for blocking programs; made by `blocking.Peer`."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

from anabranch._crossing import Intake, LoopThread
from anabranch._ends import Publisher, Subscription
from anabranch.overlay.errors import ClosedError
from anabranch.transport.assured import AssuredPublisher as AsyncPublisher
from anabranch.transport.confirmations import Outcome
from anabranch.transport.confirmations import Receipt as AsyncReceipt
from anabranch.transport.durable import DurableMessage
from anabranch.transport.message import Message
from anabranch.transport.subscription import Subscription as AsyncSubscription


class Receipt:
    """One message that was put with a guarantee."""

    def __init__(self, thread: LoopThread, inner: AsyncReceipt) -> None:
        self.sequence = inner.sequence
        """Its position among the messages of its publisher."""
        self.receivers = inner.receivers
        """The peers that wanted it when it was put, and those with durable subscriptions to it."""
        self._thread = thread
        self._inner = inner

    def confirmed(self, timeout: float | None = None) -> Outcome:
        """Wait until each receiver confirmed or was given up; after `timeout` seconds, how it stands."""
        return self._thread.call(self._inner.confirmed(timeout))

    def outcome(self) -> Outcome:
        """How it stands now."""
        return self._thread.run(self._inner.outcome)


class AssuredPublisher(Publisher):
    """Publishes to one topic with a guarantee; several threads may put, each waits for its own message."""

    def __init__(self, thread: LoopThread, inner: AsyncPublisher, close: Callable[[], None]) -> None:
        async def reached() -> float:
            return inner.availability

        nowhere = cast("Any", _NoHandover())
        super().__init__(inner.topic, nowhere, close, lambda: thread.call(reached()))
        self._thread = thread
        self._inner = inner

    def put(
        self, payload: object, *, attributes: Mapping[str, object] | None = None, to: str | None = None
    ) -> Receipt:
        """Publish; the receipt tells who confirmed. Waits as `anabranch.AssuredPublisher.put` does."""
        put = self._inner.put(payload, attributes=attributes, to=to)
        return Receipt(self._thread, self._thread.call(put))

    def confirmed(self, timeout: float | None = None) -> Outcome:
        """Wait until everything put so far is settled; after `timeout` seconds, how it stands."""
        return self._thread.call(self._inner.confirmed(timeout))


class DurableSubscription(Subscription):
    """A subscription under a name that outlives its process. Made by `Peer.subscribe(..., durable=NAME)`."""

    def __init__(self, thread: LoopThread, inner: AsyncSubscription) -> None:
        def close() -> None:
            if not thread.refusal:
                thread.run(inner.close)

        super().__init__(inner, Intake(thread, inner), close, has_callback=False)
        self._thread = thread

    def receive(self, timeout: float | None = None) -> Message:
        """Accept the message before, then wait for the next one; TimeoutError after `timeout` seconds."""
        return self._thread.call(self._inner.receive(timeout))

    def accept(self, message: Message) -> None:
        """Accept a message and all earlier ones of its publisher; on return that is on the disk."""
        assert isinstance(message, DurableMessage)
        self._thread.call(message.accept())

    def __iter__(self) -> Iterator[Message]:
        """Messages as they come, until it is closed. Each step accepts the message before it."""
        while True:
            try:
                yield self.receive()
            except ClosedError:
                return


class _NoHandover:
    """Such a publisher hands nothing over unseen: every put waits for the peer's answer."""

    def put(self, payload: object) -> None:
        raise NotImplementedError
