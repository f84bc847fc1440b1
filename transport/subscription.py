"""A subscription: a bounded queue of delivered runs between the peer and the application."""

import asyncio
import inspect
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextvars import copy_context
from itertools import count as counting
from itertools import repeat
from operator import length_hint
from types import TracebackType
from typing import Protocol

import msgspec
import structlog

from anabranch.overlay.actions import DeliveredRun
from anabranch.overlay.counters import Counters
from anabranch.overlay.errors import ClosedError, DropReason, UsageError
from anabranch.overlay.identifiers import SubscriptionId
from anabranch.overlay.qos import Overflow
from anabranch.transport.message import Message

QUEUE_MAX = 65_536
BLOCK_MAX_S = 0.3
"""How long `block` keeps the peer from reading without the application taking anything."""
PATHS_MAX = 64
"""Publishers' paths that a blocking subscription remembers, to ask them for another pause."""
HAND_MAX = 64
"""Messages that a loop over a subscription takes at once; the overflow policy does not reach those."""
RATE_WINDOW_S = 0.001
"""How often the speed of an application that falls behind is looked at."""

Callback = Callable[[Message], Awaitable[None] | None]

log = structlog.get_logger("anabranch")


class Host(Protocol):
    """What a subscription needs of its peer."""

    counters: Counters

    def forget_subscription(self, subscription: SubscriptionId) -> None:
        """It was closed."""

    def pause_reading(self, seconds: float) -> None:
        """Leave arriving messages in the sockets for a while."""

    def resume_reading(self) -> None:
        """Read again."""

    def application_backlog(self, path: tuple[str, ...], backlog_s: float) -> None:
        """The application will take this long for what came over this path."""


class Subscription:
    """Messages whose topic matches a pattern. Made by `Peer.subscribe`, in effect from then on.

    Iterate with `async for`, or `await receive()`. Leaving `async with`, or `close()`, ends it; an
    iteration under way then ends too.
    """

    _waits_between = False
    """Whether the next message may take time to get."""

    def __init__(
        self,
        host: Host,
        subscription_id: SubscriptionId,
        pattern: str,
        queue_max: int,
        overflow: Overflow,
        callback: Callback | None,
    ) -> None:
        if queue_max < 1:
            raise UsageError(f"queue_max = {queue_max}: must be at least 1")
        self.pattern = pattern
        self.dropped = 0
        """Messages that this subscription's overflow policy dropped."""
        self._host = host
        self.id = subscription_id
        """Its number at its peer."""
        self._queue_max = queue_max
        self._alert_at = queue_max // 2 if overflow is Overflow.BLOCK else queue_max
        self._overflow = overflow
        self._runs: deque[DeliveredRun] = deque()
        self._index = 0
        self._pending = 0
        self._hand_run: DeliveredRun | None = None
        self._hand_payloads: Iterator[object] = iter(())
        self._hand: Iterator[Message] = iter(())
        """What a loop took at once and has not used yet."""
        self._waiter: asyncio.Future[None] | None = None
        self._closed = False
        self._blocked_at = 0.0
        """When it last asked its peer not to read; 0 unless it did."""
        self._paths: set[tuple[str, ...]] = set()
        """Whence came what it has no room for."""
        self._offered = 0
        self._rate_mark = (0, 0.0)
        self._task: asyncio.Task[None] | None = None
        self._callback: Callback | None = None
        """A plain one, which is called without a task."""
        self._is_due = False
        """Whether it is about to be called."""
        if callback is None:
            return
        self._loop = asyncio.get_running_loop()
        self._context = copy_context()
        if self._waits_between or inspect.iscoroutinefunction(callback):
            self._task = self._loop.create_task(self._call(callback))
        else:
            self._callback = callback

    @property
    def pending(self) -> int:
        """Messages that wait to be read."""
        return self._pending + length_hint(self._hand_payloads)

    @property
    def room(self) -> int:
        """How many more messages it takes before its overflow policy has a say."""
        return 0 if self._closed else max(0, self._queue_max - self.pending)

    @property
    def has_much_room(self) -> bool:
        """Whether half of it is free, or it is closed."""
        return self._closed or self.pending <= self._queue_max // 2

    async def __aenter__(self) -> "Subscription":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aiter__(self) -> AsyncIterator[Message]:
        """Messages as they come. Leaving the loop keeps the rest for the next loop."""
        while True:
            if self._blocked_at:
                for message in self._hand:
                    if self._blocked_at:
                        self._keep_blocking()
                    yield message
            else:
                for message in self._hand:
                    yield message
            while not self._runs:
                if self._closed:
                    return
                await self._wait()
            if len(self._runs[0].payloads) == 1:
                yield self._take()
            else:
                self._fill_hand()

    async def receive(self, timeout: float | None = None) -> Message:
        """The next message; TimeoutError after `timeout` seconds, ClosedError once closed and empty."""
        async with asyncio.timeout(timeout):
            while not self.pending:
                if self._closed:
                    raise ClosedError(f"subscription to {self.pattern!r} is closed")
                await self._wait()
        return self._take()

    def receive_nowait(self) -> Message | None:
        """The next message if one waits."""
        return self._take() if self.pending else None

    def close(self) -> None:
        """End it. What waits can still be read; nothing new arrives."""
        if self._closed:
            return
        self._closed = True
        self._host.forget_subscription(self.id)
        if self._blocked_at:
            self._blocked_at = 0.0
            self._host.resume_reading()
        self._wake()
        if self._task is not None:
            self._task.cancel()

    # Called by the peer

    def offer(self, run: DeliveredRun) -> None:
        """Take a delivered run, by the overflow policy if there is no room."""
        if self._closed:
            return
        count = len(run.payloads)
        if self._pending + count > self._alert_at:
            run, count = self._offer_crowded(run, count)
            if not count:
                return
        self._runs.append(run)
        self._pending += count
        self._offered += count
        waiter = self._waiter
        if waiter is not None:
            if not waiter.done():
                waiter.set_result(None)
        elif self._callback is not None and not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._call_plainly, context=self._context)

    def _offer_crowded(self, run: DeliveredRun, count: int) -> tuple[DeliveredRun, int]:
        """What of a run there is room for, after the policy had its say."""
        excess = self._pending + count - self._queue_max
        if self._overflow is Overflow.BLOCK:
            self._ask_for_pause(run)
            if excess > 0:
                if not self._blocked_at:
                    self._paths.clear()
                if len(self._paths) < PATHS_MAX:
                    self._paths.add(run.path)
            if excess > 0 and not self._blocked_at:
                # The run that fills it is taken whole; reading stops while the application makes progress.
                self._blocked_at = time.monotonic()
                self._host.pause_reading(BLOCK_MAX_S)
                self._return_hand()
                return run, count
            if len(run.path) > 1 and time.monotonic() - self._blocked_at < BLOCK_MAX_S:
                return run, count  # it was read before the reading stopped
            excess -= self._queue_max
        if excess <= 0:
            return run, count
        if self._overflow is Overflow.DROP_OLDEST:
            self._drop_front(min(excess, self._pending))
            excess = max(0, count - self._queue_max)
            self._count_dropped(excess)
            return (_last(run, count - excess), count - excess) if excess else (run, count)
        kept = max(0, count - excess)
        self._count_dropped(count - kept)
        return _first(run, kept), kept

    def _ask_for_pause(self, run: DeliveredRun) -> None:
        """Tell the publisher how long this application will need for what waits already."""
        taken, at = self._rate_mark
        now = time.monotonic()
        if now - at < RATE_WINDOW_S:
            return
        consumed = self._offered - self._pending
        self._rate_mark = (consumed, now)
        if consumed - taken > 0 and now - at < 1.0:
            self._host.application_backlog(run.path, self._pending * (now - at) / (consumed - taken))

    # Inside

    def _fill_hand(self) -> None:
        """Take some messages at once: cheaper for a loop than one by one."""
        run = self._runs[0]
        first = self._index
        payloads = run.payloads[first : first + HAND_MAX]
        self._pending -= len(payloads)
        self._index = first + len(payloads)
        if self._index == len(run.payloads):
            self._runs.popleft()
            self._index = 0
        self._hand_run = run
        self._hand_payloads = iter(payloads)
        self._hand = map(Message, self._hand_payloads, counting(run.first_sequence + first), repeat(run))

    def _waiting(self) -> Iterator[Message]:
        """What waits now and comes meanwhile, one by one."""
        while True:
            for message in self._hand:
                if self._blocked_at:
                    self._keep_blocking()
                yield message
            if not self._runs:
                return
            if len(self._runs[0].payloads) == 1:
                yield self._take()
            else:
                self._fill_hand()

    def _return_hand(self) -> None:
        """Put what a loop took and did not use back in front, so that it is asked about each from now on."""
        run, left = self._hand_run, len(list(self._hand_payloads))
        if not left:
            return
        assert run is not None
        self._pending += left
        if self._index:  # the rest of the same run is in front
            self._index -= left
        else:
            self._runs.appendleft(run)
            self._index = len(run.payloads) - left

    def _take(self) -> Message:
        for message in self._hand:
            return message
        run = self._runs[0]
        index = self._index
        self._pending -= 1
        if index + 1 == len(run.payloads):
            self._runs.popleft()
            self._index = 0
        else:
            self._index = index + 1
        if self._blocked_at:
            self._keep_blocking()
        return Message(run.payloads[index], run.first_sequence + index, run)

    def _drop_front(self, count: int) -> None:
        self._count_dropped(count)
        self._pending -= count
        while count:
            left = len(self._runs[0].payloads) - self._index
            if count < left:
                self._index += count
                return
            count -= left
            self._runs.popleft()
            self._index = 0

    def _count_dropped(self, count: int) -> None:
        self.dropped += count
        self._host.counters.drop(DropReason.SUBSCRIPTION_FULL, count)

    def _keep_blocking(self) -> None:
        """The application took a message while its peer does not read: go on so, or let it read."""
        if self._pending <= self._queue_max // 2:
            self._blocked_at = 0.0
            self._host.resume_reading()
        elif (now := time.monotonic()) - self._blocked_at > BLOCK_MAX_S / 3:
            self._blocked_at = now
            self._host.pause_reading(BLOCK_MAX_S)
            for path in self._paths:  # a pause they were asked for ends by itself: ask again
                self._host.application_backlog(path, BLOCK_MAX_S)

    async def _wait(self) -> None:
        if self._waiter is not None or self._callback is not None:
            raise UsageError(f"subscription to {self.pattern!r} is read twice at a time: use one reader each")
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def _call_plainly(self) -> None:
        """Call back for what waits. What turns out to take time is left to a task, from then on."""
        self._is_due = False
        callback = self._callback
        for message in self._waiting():
            if callback is None or self._closed:
                return
            try:
                outcome = callback(message)
            except Exception:  # noqa: BLE001 - as in `_call`
                self._note_failure(message)
                continue
            if outcome is not None and inspect.isawaitable(outcome):
                self._callback = None
                self._task = self._loop.create_task(self._call_after(outcome, message, callback))
                return

    async def _call_after(self, outcome: Awaitable[None], message: Message, callback: Callback) -> None:
        try:
            await outcome
        except Exception:  # noqa: BLE001 - as in `_call`
            self._note_failure(message)
        await self._call(callback)

    async def _call(self, callback: Callback) -> None:
        async for message in self:
            try:
                outcome = callback(message)
                if outcome is not None and inspect.isawaitable(outcome):
                    await outcome
            except Exception:  # noqa: BLE001 - the application's own failure must not end the subscription
                self._note_failure(message)

    def _note_failure(self, message: Message) -> None:
        self._host.counters.add("callback_errors")
        log.exception("callback failed", pattern=self.pattern, topic=message.topic)


def _first(run: DeliveredRun, count: int) -> DeliveredRun:
    return msgspec.structs.replace(run, payloads=run.payloads[:count])


def _last(run: DeliveredRun, count: int) -> DeliveredRun:
    skipped = len(run.payloads) - count
    return msgspec.structs.replace(
        run, payloads=run.payloads[skipped:], first_sequence=run.first_sequence + skipped
    )
