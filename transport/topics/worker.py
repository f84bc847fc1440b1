"""Queries in a process of their own: a hostile one slows nobody down, and is killed with its process.

`Workers` is used by who keeps topics; the rest runs in the process: `python -m …worker STORE DESCRIPTOR`.
"""

import asyncio
import importlib
import os
import resource
import signal
import socket
import struct
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import msgspec

from anabranch.overlay.counters import Counters
from anabranch.transport.topics.query import FoundRows, Query, QueryError, evaluate, open_for_queries

DEADLINE_S = 1.0
"""For one query, of the processor's time."""
PATIENCE_S = 2.0
"""Without an answer by then a worker is killed: what it does looks at no clock, or the host is very busy."""
LEFT_ALONE_S = 1.0
"""What a worker takes longer still before it ends by itself: nobody is there any more to kill it."""
WAITING_MAX = 64
"""Queries that wait for a worker; further ones are not answered."""
WAITING_PER_ASKER_MAX = 8
MEMORY_MAX_BYTES = 1024 * 1024 * 1024
START_S = 10.0
NICE = 19
"""Whatever else the host has to do comes before a search."""
SEARCHING = ("re2", "lxml.etree")
"""Libraries for queries, where they are installed: loading them is no query's own time."""
_LENGTH = struct.Struct(">I")
_encoder = msgspec.msgpack.Encoder()
_found_decoder = msgspec.msgpack.Decoder(FoundRows)


class Job(msgspec.Struct, array_like=True):
    """One query for a worker."""

    query: Query
    asker: str
    is_owner: bool
    now: float


class Workers:
    """Two processes: for what an index answers, and for what has to be searched through."""

    def __init__(self, store: Path, counters: Counters) -> None:
        self._quick = _Worker(store, counters)
        self._slow = _Worker(store, counters)

    async def find(self, query: Query, asker: str, is_owner: bool, now: float) -> FoundRows | None:
        """What a query finds; None when too many wait already."""
        is_quick = not query.text or query.by == "string"
        return await (self._quick if is_quick else self._slow).run(Job(query, asker, is_owner, now))

    async def warm(self) -> None:
        """Start both processes."""
        await asyncio.gather(self._quick.warm(), self._slow.warm())

    async def close(self) -> None:
        """End both processes."""
        await self._quick.close()
        await self._slow.close()


class _Worker:
    """A process that is started when it is needed, and killed when it takes too long. Askers take turns."""

    def __init__(self, store: Path, counters: Counters) -> None:
        self._store = store
        self._counters = counters
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter
        self._lock = asyncio.Lock()
        self._waiting: dict[str, list[tuple[Job, asyncio.Future[FoundRows]]]] = {}
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False

    async def run(self, job: Job) -> FoundRows | None:
        """The answer to one query."""
        waiting = self._waiting.setdefault(job.asker, [])
        if len(waiting) >= WAITING_PER_ASKER_MAX or sum(map(len, self._waiting.values())) >= WAITING_MAX:
            self._counters.add("queries_refused")
            return None
        future: asyncio.Future[FoundRows] = asyncio.get_running_loop().create_future()
        waiting.append((job, future))
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._work())
        return await future

    async def warm(self) -> None:
        """Start the process."""
        async with self._lock:
            await self._start()

    async def close(self) -> None:
        """End the process."""
        self._is_closed = True
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        await self._kill()

    async def _work(self) -> None:
        try:
            while self._waiting:
                asker = next(iter(self._waiting))
                waiting = self._waiting.pop(asker)
                job, future = waiting.pop(0)
                if waiting:
                    self._waiting[asker] = waiting  # goes to the end: askers take turns
                try:
                    found = await self._ask(job)
                except asyncio.CancelledError:
                    future.cancel()
                    raise
                if not future.done():
                    future.set_result(found)
        finally:
            self._task = None
            for left in self._waiting.values():
                for _, future in left:
                    future.cancel()
            self._waiting.clear()

    async def _ask(self, job: Job) -> FoundRows:
        async with self._lock:
            try:
                await self._start()
                content = _encoder.encode(job)
                self._writer.write(_LENGTH.pack(len(content)) + content)
                answer = await asyncio.wait_for(_read(self._reader), PATIENCE_S)
            except (TimeoutError, OSError, asyncio.IncompleteReadError):
                self._counters.add("queries_killed")
                await self._kill()
                return FoundRows([], partial=True, is_late=True)
            return _found_decoder.decode(answer)

    async def _start(self) -> None:
        if self._process is not None:
            return
        ours, theirs = socket.socketpair()
        module = "anabranch.transport.topics.worker"
        command = [sys.executable, "-m", module, str(self._store), str(theirs.fileno())]
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603, ASYNC220 - our own module; returns at once
                command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL
            )
        ours.setblocking(False)
        self._reader, self._writer = await asyncio.open_unix_connection(sock=ours)
        await asyncio.wait_for(_read(self._reader), START_S)

    async def _kill(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        self._writer.close()
        with suppress(OSError):
            await self._writer.wait_closed()
        await asyncio.get_running_loop().run_in_executor(None, process.wait)


async def _read(reader: asyncio.StreamReader) -> bytes:
    (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    return await reader.readexactly(length)


def _serve(store: str, descriptor: int) -> None:
    """The process: queries in, rows out, until the other end is gone."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_MAX_BYTES, MEMORY_MAX_BYTES))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # ends the process, in the middle of a search too
    for library in SEARCHING:
        with suppress(ImportError):
            importlib.import_module(library)
    decoder = msgspec.msgpack.Decoder(Job)
    connection = open_for_queries(store)
    os.nice(NICE)
    with suppress(OSError), socket.socket(fileno=descriptor) as link, link.makefile("rwb") as stream:
        _say(stream, b"ready")
        while head := stream.read(_LENGTH.size):
            job = decoder.decode(stream.read(_LENGTH.unpack(head)[0]))
            signal.setitimer(signal.ITIMER_REAL, PATIENCE_S + LEFT_ALONE_S)
            try:
                found = evaluate(connection, job.query, job.asker, job.is_owner, job.now, DEADLINE_S)
            except QueryError as error:
                found = FoundRows([], error=str(error))
            except (MemoryError, RecursionError):
                found = FoundRows([], partial=True, is_late=True)
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            _say(stream, _encoder.encode(found))


def _say(stream: object, content: bytes) -> None:
    stream.write(_LENGTH.pack(len(content)) + content)  # type: ignore[attr-defined]
    stream.flush()  # type: ignore[attr-defined]


if __name__ == "__main__":
    _serve(sys.argv[1], int(sys.argv[2]))
