"""A child process's line to the process that started it: JSON lines, orders on stdin, events on stdout.

When stdin ends, the parent is gone (or has no more orders): the child gets a few seconds to end in order,
then it is ended, whatever it does. So nothing is left behind, not even when the parent was killed.
"""

import asyncio
import os
import threading
from types import TracebackType
from typing import IO, Any, Self, TypeVar

import msgspec

from anabranch.overlay.errors import AnabranchError

ORPHAN_GRACE_S = 5.0
"""From the end of stdin to the end of the process."""
BACKLOG_MAX_BYTES = 256 * 1024
"""A parent that does not read misses what is told `if_read`; it never holds this process up."""
_LINE_MAX_BYTES = 1024 * 1024
_ORDERS_MAX = 64

T = TypeVar("T")


class OrphanedError(AnabranchError):
    """There will be no more orders: end."""


class Parent:
    """`async with Parent() as parent:`, once per process, in its main thread.

    Takes stdin and stdout over: what others print goes to stderr, so that it cannot garble events.
    """

    def __init__(self) -> None:
        self._orders: asyncio.Queue[bytes] = asyncio.Queue(_ORDERS_MAX)
        self._ended = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.WriteTransport | None = None
        self._written = asyncio.Event()
        self._file: IO[Any] | None = None

    async def __aenter__(self) -> Self:
        self._file = os.fdopen(os.dup(1), "wb", 0)
        os.dup2(2, 1)
        written = self._written

        class Protocol(asyncio.BaseProtocol):
            def connection_lost(self, error: Exception | None) -> None:
                del error
                written.set()

        transport, _ = await self._loop.connect_write_pipe(Protocol, self._file)
        self._transport = transport
        threading.Thread(target=self._listen, name="orders", daemon=True).start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._transport is not None
        self._transport.close()
        await self._written.wait()

    def tell(self, event: object, *, if_read: bool = False) -> None:
        """Send an event. With `if_read` it is left out while the parent is behind with reading."""
        assert self._transport is not None
        if self._transport.is_closing():
            return
        if if_read and self._transport.get_write_buffer_size() > BACKLOG_MAX_BYTES:
            return
        self._transport.write(msgspec.json.encode(event) + b"\n")

    async def order(self, kind: type[T]) -> T:
        """The next order; OrphanedError when no more will come."""
        line = asyncio.ensure_future(self._orders.get())
        ended = asyncio.ensure_future(self._ended.wait())
        try:
            await asyncio.wait({line, ended}, return_when=asyncio.FIRST_COMPLETED)
            if line.done():
                return msgspec.json.decode(line.result(), type=kind)
            raise OrphanedError("stdin was closed")
        finally:
            line.cancel()
            ended.cancel()

    # In a thread of its own, so that even a process whose event loop hangs ends

    def _listen(self) -> None:
        rest = b""
        try:
            while len(rest) <= _LINE_MAX_BYTES and (chunk := os.read(0, 65536)):
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    asyncio.run_coroutine_threadsafe(self._orders.put(line), self._loop).result()
            self._loop.call_soon_threadsafe(self._ended.set)
        except (
            RuntimeError,
            asyncio.CancelledError,
        ):  # the event loop is closed: we are ending
            return
        threading.Event().wait(ORPHAN_GRACE_S)
        os._exit(3)
