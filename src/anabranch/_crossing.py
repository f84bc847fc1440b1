"""How messages and calls cross between an application's threads and the thread of a peer's event loop.

Called by `anabranch.blocking` alone. Messages cross in batches: no thread waits for the other per message.
"""

import asyncio
import atexit
import os
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

from anabranch.overlay.codec import encode_payload
from anabranch.overlay.counters import Counters
from anabranch.overlay.errors import ClosedError, DropReason, UsageError
from anabranch.overlay.qos import Overflow
from anabranch.transport import loops
from anabranch.transport.message import Message
from anabranch.transport.publisher import Publisher
from anabranch.transport.subscription import Subscription

HANDOVER_MAX_BYTES = 4 * 1024 * 1024
"""What a publisher may have handed over that its peer has not taken; as much again may be in the taking."""
MESSAGE_OVERHEAD_BYTES = 64
"""Counted for each message besides its payload, so that empty ones are bounded too."""
BATCH_MAX = 4096
"""Messages that a reading thread takes over at a time."""
DRAIN_DEADLINE_S = 1.0
"""How long closing waits for what was handed over to be taken."""

T = TypeVar("T")


class LoopThread:
    """A daemon thread that runs an event loop until it is told to finish."""

    def __init__(self, name: str) -> None:
        self.refusal = ""
        """Why nothing more is taken; empty while the loop runs."""
        self.ended = threading.Event()
        """Set after the last coroutine."""
        self._thread = threading.Thread(target=self._run, name=f"loop of {name}", daemon=True)
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._started: Future[None] = Future()
        self._over: asyncio.Event
        self._name = name

    def start(self, close_at_exit: Callable[[], None]) -> None:
        """Once; returns when the loop runs. `close_at_exit` is called if the program ends before `finish`."""
        with self._lock:
            if self.refusal or self._thread.ident is not None:
                raise UsageError(f"peer {self._name} was opened before: make a new Peer")
            self._thread.start()
        self._started.result()
        _running[self] = close_at_exit

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop and wait for it; ClosedError when the loop ends meanwhile."""
        try:
            future = self._submit(coroutine)
        except BaseException:
            coroutine.close()
            raise
        try:
            return future.result()
        except CancelledError:
            raise ClosedError(self.refusal) from None
        except BaseException:
            future.cancel()
            raise

    def run(self, function: Callable[[], T]) -> T:
        """Run a plain function in the loop and wait for it."""

        async def call() -> T:
            return function()

        return self.call(call())

    def soon(self, function: Callable[..., object], *arguments: object) -> None:
        """Run a plain function in the loop's next turn, without waiting."""
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:  # the loop is closed
            raise ClosedError(self.refusal) from None

    def refuse(self, reason: str) -> bool:
        """Take nothing more; False if that was so before."""
        with self._lock:
            is_first, self.refusal = not self.refusal, self.refusal or reason
        return is_first

    def finish(self, last: Coroutine[Any, Any, None], *, at_exit: bool) -> None:
        """After `refuse`: run a last coroutine, then end the loop and the thread.

        At interpreter exit the loop is left as it is after the coroutine: asyncio ends it with the help of a
        further thread, and none can be started then.
        """
        _running.pop(self, None)
        if self._loop is None:
            last.close()
            return
        try:
            asyncio.run_coroutine_threadsafe(last, self._loop).result()
        finally:
            self.ended.set()
            if not at_exit:
                self._loop.call_soon_threadsafe(self._over.set)
                self._thread.join()

    def _submit(self, coroutine: Coroutine[Any, Any, T]) -> "Future[T]":
        if self.refusal:
            raise ClosedError(self.refusal)
        if threading.get_ident() == self._thread.ident:
            raise UsageError(f"a blocking call in the event loop of peer {self._name} would wait for itself")
        with self._lock:  # what is submitted before `refuse` is in the loop before `finish`
            if self.refusal:
                raise ClosedError(self.refusal)
            if self._loop is None:
                raise ClosedError(f"peer {self._name} is not open: with Peer({self._name!r}, ...)")
            return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def _run(self) -> None:
        try:
            loops.run(self._main())
        except BaseException as error:
            if self._started.done():
                raise
            self._started.set_exception(error)

    async def _main(self) -> None:
        self._over = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._loop.set_default_executor(_Executor())
        self._started.set_result(None)
        await self._over.wait()


class _Selected(NamedTuple):
    """A payload for selected receivers."""

    payload: object
    attributes: dict[str, object] | None
    to: str | None


class Handover:
    """What application threads put, on its way to a publisher in the loop's thread."""

    def __init__(
        self,
        thread: LoopThread,
        publisher: Publisher,
        overflow: Overflow,
        counters: Counters,
        payload_max_bytes: int,
        check_selected: Callable[[Mapping[str, object] | None, str | None], None],
    ) -> None:
        self._check_selected = check_selected
        self._thread = thread
        self._publisher = publisher
        self._overflow = overflow
        self._counters = counters
        self._payload_max = payload_max_bytes
        self._room = threading.Condition(threading.Lock())
        self._handed: list[object] = []
        self._handed_bytes = 0
        self._without_room = 0
        self._is_draining = False
        self._draining: asyncio.Task[None] | None = None
        self._closed = False

    def put(
        self, payload: object, attributes: Mapping[str, object] | None = None, to: str | None = None
    ) -> None:
        """From any thread. UsageError for what cannot travel, ClosedError once refused."""
        if attributes is not None or to is not None:
            self._check_selected(attributes, to)
        if type(payload) is bytes:
            size = len(payload)
        else:
            payload, size = encode_payload(payload)
        if size > self._payload_max:
            self._reject_oversized(size)
        if attributes is not None or to is not None:
            payload = _Selected(payload, dict(attributes) if attributes is not None else None, to)
        if self._thread.refusal:  # before the lock: in a forked child it may be held for ever
            raise ClosedError(self._thread.refusal)
        with self._room:
            if (self._closed or self._handed_bytes >= HANDOVER_MAX_BYTES) and not self._wait_for_room():
                return
            self._handed.append(payload)
            self._handed_bytes += size + MESSAGE_OVERHEAD_BYTES
            if self._is_draining:
                return
            self._is_draining = True
        self._thread.soon(self._start_drain)

    def refuse(self) -> None:
        """From any thread: waiting and further puts raise."""
        with self._room:
            self._closed = True
            self._room.notify_all()

    async def finish(self) -> None:
        """In the loop, after `refuse`: until all is taken or the deadline is over; the rest is dropped."""
        if self._draining is None or self._draining.done():
            self._start_drain()
        assert self._draining is not None
        _, late = await asyncio.wait([self._draining], timeout=DRAIN_DEADLINE_S)
        if late:
            self._draining.cancel()
            await asyncio.wait(late)

    def _reject_oversized(self, size: int) -> None:
        self._thread.soon(self._counters.drop, DropReason.OVERSIZED)
        raise UsageError(
            f"payload of {size} B for {self._publisher.topic!r}: payload_max_bytes = {self._payload_max}; "
            "send it in parts, or raise the limit on every peer"
        )

    def _wait_for_room(self) -> bool:
        """Whether the message may be handed over; called and left with the lock held."""
        if self._overflow is not Overflow.BLOCK and not self._closed:
            self._without_room += 1
            return False
        while self._handed_bytes >= HANDOVER_MAX_BYTES and not self._closed:
            self._room.wait()
        if self._closed:
            raise ClosedError(self._thread.refusal or f"publisher of {self._publisher.topic!r} is closed")
        return True

    def _start_drain(self) -> None:
        self._draining = asyncio.get_running_loop().create_task(self._drain())

    async def _drain(self) -> None:
        put = self._publisher.put
        taking = iter(self._take())
        try:
            while True:
                for payload in taking:
                    if type(payload) is _Selected:
                        await put(payload.payload, attributes=payload.attributes, to=payload.to)
                    else:
                        await put(payload)
                batch = self._take()
                if not batch:
                    return
                taking = iter(batch)
        except BaseException as error:
            self.refuse()
            left = sum(1 for _ in taking) + len(self._take())
            if not isinstance(error, ClosedError):  # cancelled, after the publisher took the last one
                self._counters.drop(DropReason.QUEUE_FULL, left)
                raise
            self._counters.drop(DropReason.QUEUE_FULL, left + 1)

    def _take(self) -> list[object]:
        with self._room:
            batch, self._handed = self._handed, []
            self._handed_bytes = 0
            self._is_draining = bool(batch)
            without_room, self._without_room = self._without_room, 0
            self._room.notify_all()
        if without_room:
            self._counters.drop(DropReason.QUEUE_FULL, without_room)
        return batch


class Intake:
    """What a subscription in the loop's thread received, on its way to application threads."""

    def __init__(self, thread: LoopThread, subscription: Subscription) -> None:
        self.ready: deque[Message] = deque()
        """Handed over; any thread may pop from the left."""
        self._thread = thread
        self._subscription = subscription
        self._fetching = threading.Lock()

    def fetch(self, timeout: float | None) -> bool:
        """From any thread: until something is ready. False once closed and empty, TimeoutError in between."""
        if not self._fetching.acquire(timeout=-1 if timeout is None else max(0.0, timeout)):
            raise TimeoutError
        try:
            return bool(self.ready) or self._thread.call(self._gather(timeout))
        except ClosedError:
            self._thread.ended.wait()  # then the rest was handed over
            return bool(self.ready)
        finally:
            self._fetching.release()

    def take_rest(self) -> None:
        """In the loop: hand over all that waits, however much."""
        while (message := self._subscription.receive_nowait()) is not None:
            self.ready.append(message)

    async def _gather(self, timeout: float | None) -> bool:
        subscription, ready = self._subscription, self.ready
        try:
            ready.append(await subscription.receive(timeout))
        except ClosedError:
            return False
        for _ in range(min(subscription.pending, BATCH_MAX - 1)):
            message = subscription.receive_nowait()
            assert message is not None
            ready.append(message)
        return True


class _Executor(ThreadPoolExecutor):
    """A thread per job. Unlike a pool it also works at interpreter exit, when forgotten peers are closed."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> "Future[T]":
        future: Future[T] = Future()

        def work() -> None:
            try:
                future.set_result(fn(*args, **kwargs))
            except BaseException as error:  # noqa: BLE001 - raised to whoever waits for the job
                future.set_exception(error)

        try:
            threading.Thread(target=work, name="job of a peer", daemon=True).start()
        except RuntimeError:  # the interpreter starts no thread any more
            work()
        return future


_running: dict[LoopThread, Callable[[], None]] = {}


def _close_at_exit() -> None:
    for close in list(_running.values()):
        close()


def _refuse_after_fork() -> None:
    for thread in _running:
        thread.refusal = (
            "this process was forked from the one that opened the peer: open a peer of its own in the child, "
            "or start children with multiprocessing's 'spawn'"
        )
        thread.ended = threading.Event()
        thread.ended.set()
    _running.clear()


atexit.register(_close_at_exit)
os.register_at_fork(after_in_child=_refuse_after_fork)
