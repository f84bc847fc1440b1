"""What a blocking program holds in its hands: publishers and subscriptions, made by `blocking.Peer`."""

from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Self

from anabranch._crossing import Handover, Intake
from anabranch.overlay.errors import ClosedError, UsageError
from anabranch.transport.message import Message
from anabranch.transport.subscription import Subscription as AsyncSubscription


class Publisher:
    """Publishes to one topic. Made by `Peer.publisher`; what one thread puts stays in order."""

    def __init__(
        self, topic: str, handover: Handover, close: Callable[[], None], reached: Callable[[], float]
    ) -> None:
        self.topic = topic
        self._hand_over = handover.put
        self._close = close
        self._reached = reached
        self._closed = False

    @property
    def availability(self) -> float:
        """The estimated share of time in which some path reaches each receiver; 0 when there is no path."""
        return self._reached()

    def put(
        self, payload: object, *, attributes: Mapping[str, object] | None = None, to: str | None = None
    ) -> object:
        """Publish bytes, or a value that msgpack can carry; returns once the message is handed over.

        The peer's thread takes whatever was handed over in one go. While 4 MiB wait for that (the links have
        no room, or this thread is faster), `put` waits with overflow `block`; with another one it never
        waits, and the message is dropped and counted (`dropped.queue_full`). A payload that cannot travel
        raises UsageError here and now. Age and deadline count from when the peer takes the message.
        """
        self._hand_over(payload, attributes, to)
        return None

    def close(self) -> None:
        """What was put still leaves; further puts raise."""
        if not self._closed:
            self._closed = True
            self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Subscription:
    """Messages whose topic matches a pattern. Made by `Peer.subscribe`, in effect from then on.

    Iterate, or call `receive()`; several threads may, and each message goes to one of them. Leaving `with`,
    or `close()` from any thread, ends it, and iterations under way end too.
    """

    def __init__(
        self, inner: AsyncSubscription, intake: Intake, close: Callable[[], None], *, has_callback: bool
    ) -> None:
        self.pattern = inner.pattern
        self.closed = False
        """Whether `close` was called."""
        self._inner = inner
        self._intake = intake
        self._close = close
        self._has_callback = has_callback

    @property
    def dropped(self) -> int:
        """Messages that this subscription's overflow policy dropped."""
        return self._inner.dropped

    @property
    def pending(self) -> int:
        """Messages that wait to be read."""
        return self._inner.pending + len(self._intake.ready)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[Message]:
        """Messages as they come. Leaving the loop keeps the rest for the next loop."""
        self._check_reader()
        return messages_of(self._intake)

    def receive(self, timeout: float | None = None) -> Message:
        """The next message; TimeoutError after `timeout` seconds, ClosedError once closed and empty."""
        self._check_reader()
        while True:
            try:
                return self._intake.ready.popleft()
            except IndexError:
                if not self._intake.fetch(timeout):
                    raise ClosedError(f"subscription to {self.pattern!r} is closed") from None

    def receive_nowait(self) -> Message | None:
        """The next message if one waits."""
        try:
            return self.receive(0)
        except (TimeoutError, ClosedError):
            return None

    def close(self) -> None:
        """End it. What waits can still be read; nothing new arrives, and no callback starts any more."""
        if not self.closed:
            self.closed = True
            self._close()

    def _check_reader(self) -> None:
        if self._has_callback:
            raise UsageError(
                f"subscription to {self.pattern!r} has a callback: make another one to read from"
            )


def messages_of(intake: Intake) -> Iterator[Message]:
    """Messages as they come, until there will be no more."""
    take = intake.ready.popleft
    while True:
        try:
            message = take()
        except IndexError:
            if not intake.fetch(None):
                return
            continue
        yield message
