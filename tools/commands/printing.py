"""Threads for stdout and stdin, which may stand still when the event loop must not."""

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator

WAITING_MAX_BYTES = 1024 * 1024
"""Output that may wait for a slow reader before `write` waits as well."""
CLOSE_DEADLINE_S = 1.0
READ_BYTES = 64 * 1024
CHUNKS_MAX = 4
"""Pieces of stdin that are read ahead."""


class Printer:
    """Writes to stdout in a thread of its own.

    `write` waits while a megabyte is unwritten; `is_broken` tells that nobody reads any more (`| head`), and
    then everything is thrown away. Use it as a context: leaving it writes the rest, for a second at most.
    """

    def __init__(self) -> None:
        self.is_broken = False
        self._loop = asyncio.get_running_loop()
        self._room = asyncio.Event()
        self._room.set()
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._wanted = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="stdout", daemon=True)
        self._thread.start()

    async def __aenter__(self) -> "Printer":
        return self

    async def __aexit__(self, *error: object) -> None:
        with self._wanted:
            self._closing = True
            self._wanted.notify()
        self._thread.join(CLOSE_DEADLINE_S)

    async def write(self, data: bytes) -> None:
        """Take it over; BrokenPipeError when nobody reads."""
        if self.is_broken:
            raise BrokenPipeError
        with self._wanted:
            self._waiting.append(data)
            self._waiting_bytes += len(data)
            is_full = self._waiting_bytes > WAITING_MAX_BYTES
            if is_full:
                self._room.clear()
            self._wanted.notify()
        if is_full:
            await self._room.wait()

    def _run(self) -> None:
        while True:
            with self._wanted:
                while not self._waiting and not self._closing:
                    self._wanted.wait()
                data, self._waiting = b"".join(self._waiting), []
                self._waiting_bytes = 0
                if not data:
                    return
            try:
                _write_all(data)
            except OSError:
                self.is_broken = True
            if not self._closing:
                self._loop.call_soon_threadsafe(self._room.set)


async def stdin_lines(line_max_bytes: int) -> AsyncIterator[bytes]:
    """The lines of stdin without their ends, as they come; ValueError for one that is too long, OSError."""
    chunks: asyncio.Queue[bytes | OSError] = asyncio.Queue()
    room = threading.Semaphore(CHUNKS_MAX)
    reading = (sys.stdin.fileno(), asyncio.get_running_loop(), chunks, room)
    threading.Thread(target=_read_chunks, args=reading, name="stdin", daemon=True).start()
    rest = b""
    while chunk := await chunks.get():
        room.release()
        if isinstance(chunk, OSError):
            raise chunk
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line.removesuffix(b"\r")
        if len(rest) > line_max_bytes:
            raise ValueError(f"more than {line_max_bytes} bytes without an end of line")
    if rest:
        yield rest


def _read_chunks(
    descriptor: int,
    loop: asyncio.AbstractEventLoop,
    chunks: "asyncio.Queue[bytes | OSError]",
    room: threading.Semaphore,
) -> None:
    # os.read and not sys.stdin: a daemon thread inside a buffered reader cannot be left at exit.
    chunk: bytes | OSError = b"-"
    while chunk and not isinstance(chunk, OSError):
        room.acquire()
        try:
            chunk = os.read(descriptor, READ_BYTES)
        except OSError as error:
            chunk = error
        try:
            loop.call_soon_threadsafe(chunks.put_nowait, chunk)
        except RuntimeError:  # the loop has ended: nobody wants the rest
            return


def _write_all(data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(sys.stdout.fileno(), view) :]
