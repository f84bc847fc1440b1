"""The store of a peer: messages of its persistent publishers, and how far its durable subscriptions are.

A thread does the writing. What is asked for while it is at work shares the next transaction, and one sync.
"""

import asyncio
import queue
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import structlog

from anabranch.overlay.assured import StreamKey
from anabranch.overlay.durables import PositionKey
from anabranch.overlay.errors import StoreError, UsageError
from anabranch.overlay.outstreams import Kept
from anabranch.transport.confirmations import Receipt
from anabranch.transport.storefile import BROKEN, DamagedError, StoreFile

NUMBER_BASE = 2**32
"""Persistent streams are numbered from here on, so that no plain publisher has the same number."""
ROW_BYTES = 128
"""Counted for each message beside its payload."""
JOBS_MAX = 4096
"""So many share a transaction at most."""

log = structlog.get_logger("anabranch")


class StoredStream(msgspec.Struct):
    """A stream as the store has it."""

    number: int
    topic: str
    next_sequence: int
    first: int


class _Job(msgspec.Struct):
    """Something to do in a transaction; `done` is called in the loop with what it returned."""

    work: Callable[[StoreFile], Any]
    done: Callable[[Any], None] | None
    failed: Callable[[StoreError], None] | None = None
    is_owed: bool = False
    """Nobody asks for it a second time: if it fails, it is tried again with the next transaction."""


class Stored(msgspec.Struct):
    """A message that was written."""

    sequence: int
    message: Kept
    receipt: Receipt
    future: "asyncio.Future[None]"


class Store:
    """One open store. Made by `Store.open`; used from the event loop's thread alone."""

    def __init__(self, file: StoreFile, bytes_max: int) -> None:
        self.report = file.report
        """What was wrong with the file found; empty if nothing was."""
        self.is_set_aside = file.is_set_aside
        self.bytes_max = bytes_max
        self.incarnation: int = dict(file.rows("meta"))["incarnation"]
        self.streams: dict[str, StoredStream] = {}
        self.consumers: list[tuple[str, str, str]] = [(p, n, t) for p, n, t in file.rows("consumers")]
        self.confirmed: dict[int, list[tuple[str, str, int]]] = {}
        self.durables: dict[str, tuple[str, bool]] = {
            name: (pattern, bool(forgotten)) for name, pattern, forgotten in file.rows("durables")
        }
        self.positions: dict[str, dict[PositionKey, int]] = {}
        self.on_stored: Callable[[StreamKey, int, list[Stored]], None] = lambda *_: None
        for number, topic, end, first in file.rows("streams"):
            self.streams[topic] = StoredStream(number, topic, end, first)
        for peer, name, number, end in file.rows("confirmed"):
            self.confirmed.setdefault(number, []).append((peer, name, end))
        for name, origin, publisher, incarnation, end in file.rows("positions"):
            key = (origin, StreamKey(publisher, incarnation, True))
            self.positions.setdefault(name, {})[key] = end
        payloads, count = file.connection.execute(
            "SELECT total(length(payload)), count(*) FROM log"
        ).fetchone()
        self.bytes = int(payloads) + ROW_BYTES * int(count)
        """What the messages in it take, those on their way into it included."""
        self._file = file
        self._loop = asyncio.get_running_loop()
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._freed = asyncio.Event()
        self._stored: dict[StreamKey, list[Stored]] = {}
        self._broken = ""
        self._next_number = NUMBER_BASE + len(self.streams)
        self._ends = {each.number: each.next_sequence for each in self.streams.values()}
        """Used by the thread: the next sequence of each stream."""
        self._thread = threading.Thread(target=self._run, name=f"store {file.path.name}", daemon=True)
        self._thread.start()

    @classmethod
    async def open(cls, directory: Path, name: str, bytes_max: int) -> "Store":
        """Open or begin the store of the peer of this name; looks at all that is in it."""

        def open_file() -> StoreFile:
            try:
                directory.mkdir(parents=True, exist_ok=True)
                with tempfile.TemporaryFile(dir=directory):
                    pass
            except OSError as error:
                raise UsageError(
                    f"store_dir {str(directory)!r}: {error.strerror}; name a directory that can be written to"
                ) from None
            return StoreFile(directory / f"{name}.store", time.time_ns() // 1000)

        file = await asyncio.get_running_loop().run_in_executor(None, open_file)
        return cls(file, bytes_max)

    # Messages

    def has_room(self, size: int) -> bool:
        """Whether a payload of this size may be written."""
        return self.bytes + size + ROW_BYTES <= self.bytes_max

    async def wait_for_room(self) -> None:
        """Until something was deleted."""
        self._freed.clear()
        await self._freed.wait()

    async def stream(self, topic: str) -> StoredStream:
        """The stream of a topic, begun if there is none."""
        known = self.streams.get(topic)
        if known is None:
            number = self._next_number
            self._next_number += 1
            known = self.streams[topic] = StoredStream(number, topic, 0, 0)

            def work(file: StoreFile) -> None:
                file.put("streams", number, topic, 0, 0)
                self._ends[number] = 0

            try:
                await self._do(work)
            except StoreError:
                del self.streams[topic]
                raise
        return known

    def key(self, stream: StoredStream) -> StreamKey:
        """What the mesh knows it by."""
        return StreamKey(stream.number, self.incarnation, True)

    async def append(self, key: StreamKey, payload: object, size: int, receipt: Receipt) -> None:
        """Write a message; on return it is on the disk, and was given to `on_stored`."""
        future = self._loop.create_future()
        number = key.publisher
        put_at, put_at_us = time.monotonic(), time.time_ns() // 1000
        is_value = not isinstance(payload, bytes)
        data = payload if isinstance(payload, bytes) else bytes(payload)  # type: ignore[call-overload]
        self.bytes += size + ROW_BYTES

        def work(file: StoreFile) -> tuple[int, int]:
            sequence = self._ends[number]
            file.put("log", number, sequence, put_at_us, int(is_value), data)
            self._ends[number] = sequence + 1
            return number, sequence

        def done(result: tuple[int, int]) -> None:
            stored = Stored(result[1], Kept(payload, size, put_at), receipt, future)
            self._stored.setdefault(key, []).append(stored)

        def failed(error: StoreError) -> None:
            self.bytes -= size + ROW_BYTES
            if not future.done():
                future.set_exception(error)

        self._put(_Job(work, done, failed))
        await future

    def load(
        self, key: StreamKey, first: int, bytes_max: int, done: Callable[[list[Any], int], None]
    ) -> None:
        """Read messages from `first` on; `done` gets them and where the next one would be."""
        number = key.publisher

        def work(file: StoreFile) -> tuple[list[tuple[int, Kept]], int]:
            found: list[tuple[int, Kept]] = []
            room, end = bytes_max, self._ends[number]
            clock, now = time.monotonic(), time.time_ns() // 1000
            while room > 0 and first + len(found) < end:
                at = first + len(found)
                rows = file.rows("log", "stream = ? AND sequence BETWEEN ? AND ?", number, at, at + 99)
                for _, sequence, put_at_us, is_value, payload in rows:
                    value = msgspec.Raw(payload) if is_value else payload
                    age_s = max(0.0, (now - put_at_us) / 1e6)
                    found.append((sequence, Kept(value, len(payload), clock - age_s)))
                    room -= len(payload) + ROW_BYTES
                if not rows:
                    break
            return found, (found[-1][0] + 1 if found else end)

        self._put(_Job(work, lambda result: done(*result), is_owed=True))

    def release(self, key: StreamKey, floor: int, confirmed: list[tuple[str, str, int]]) -> None:
        """Note how far durable subscriptions are; delete what all of them have."""
        number = key.publisher
        topic = next((each.topic for each in self.streams.values() if each.number == number), None)
        if topic is None:
            return

        def work(file: StoreFile) -> int:
            for peer, name, end in confirmed:
                file.put("confirmed", peer, name, number, end)
            run, which = file.connection.execute, (number, floor)
            where = "FROM log WHERE stream = ? AND sequence < ?"
            payloads, count = run(f"SELECT total(length(payload)), count(*) {where}", which).fetchone()
            run(f"DELETE {where}", which)
            ((_, _, end, first),) = file.rows("streams", "number = ?", number)
            file.put("streams", number, topic, end, max(first, min(floor, end)))
            return int(payloads) + ROW_BYTES * int(count)

        self._put(_Job(work, self._free))

    def expire(self, retention_s: float, done: Callable[[dict[StreamKey, int]], None]) -> None:
        """Look for messages older than this; `done` gets what each stream should begin with instead."""
        before = time.time_ns() // 1000 - int(retention_s * 1e6)
        keys = {each.number: self.key(each) for each in self.streams.values()}

        def work(file: StoreFile) -> dict[StreamKey, int]:
            run = file.connection.execute
            found = {}
            for number, key in keys.items():
                row = run("SELECT max(sequence) FROM log WHERE stream = ? AND put_at < ?", (number, before))
                last = row.fetchone()[0]
                if last is not None:
                    found[key] = last + 1
            return found

        self._put(_Job(work, done))

    # Durable subscriptions of others

    def keep_consumer(self, peer: str, name: str, pattern: str) -> None:
        """Messages are kept for it from now on."""
        self._put(_Job(lambda file: file.put("consumers", peer, name, pattern), None, is_owed=True))

    def forget_consumer(self, peer: str, name: str) -> None:
        """It will not come back."""

        def work(file: StoreFile) -> None:
            for table in ("consumers", "confirmed"):
                where = "WHERE peer = ? AND name = ?"
                file.connection.execute(f"DELETE FROM {table} {where}", (peer, name))  # noqa: S608

        self._put(_Job(work, None, is_owed=True))

    # Our own

    async def accept(self, name: str, origin: str, stream: StreamKey, until: int) -> None:
        """A durable subscription accepted all before `until`, for good once this returns."""
        values = (name, origin, stream.publisher, stream.incarnation, until)
        await self._do(lambda file: file.put("positions", *values))

    def keep_durable(self, name: str, pattern: str) -> None:
        """It exists."""
        self.durables[name] = (pattern, False)
        self._put(_Job(lambda file: file.put("durables", name, pattern, 0), None, is_owed=True))

    async def forget_durable(self, name: str) -> None:
        """It will not come back."""
        pattern = self.durables.get(name, ("**", False))[0]
        self.durables[name] = (pattern, True)
        self.positions.pop(name, None)

        def work(file: StoreFile) -> None:
            file.put("durables", name, pattern, 1)
            file.connection.execute("DELETE FROM positions WHERE name = ?", (name,))

        await self._do(work)

    async def close(self) -> None:
        """Write what was asked for, then let go of the file."""
        self._broken = f"store {str(self._file.path)!r}: it is closed"
        self._jobs.put(None)
        self._freed.set()
        await asyncio.get_running_loop().run_in_executor(None, self._thread.join)

    # Inside

    def _free(self, freed: int) -> None:
        self.bytes -= freed
        self._freed.set()

    async def _do(self, work: Callable[[StoreFile], Any]) -> None:
        future: asyncio.Future[None] = self._loop.create_future()

        def done(_: Any) -> None:
            if not future.done():
                future.set_result(None)

        def failed(error: StoreError) -> None:
            if not future.done():
                future.set_exception(error)

        self._put(_Job(work, done, failed))
        await future

    def _put(self, job: _Job) -> None:
        if self._broken:
            if job.failed is not None:
                job.failed(StoreError(self._broken))
            return
        self._jobs.put(job)

    def _run(self) -> None:
        """The thread: one transaction for all that waits."""
        over = False
        owed: list[_Job] = []
        while not over:
            jobs: list[_Job] = owed
            job = self._jobs.get()
            while True:
                if job is None:
                    over = True
                    break
                jobs.append(job)
                if len(jobs) >= JOBS_MAX or self._jobs.empty():
                    break
                job = self._jobs.get()
            if jobs:
                owed = self._transact(jobs)
        self._file.close()

    def _transact(self, jobs: list[_Job]) -> list[_Job]:
        """Those that failed and are owed."""
        ends = dict(self._ends)
        try:
            self._file.begin()
            results = [job.work(self._file) for job in jobs]
            for number, end in self._ends.items():
                if end != ends.get(number):
                    ((_, topic, _, first),) = self._file.rows("streams", "number = ?", number)
                    self._file.put("streams", number, topic, end, first)
            self._file.commit()
        except (DamagedError, *BROKEN) as error:
            self._ends = ends
            self._undo()
            self._tell(self._failed, jobs, error)
            return [job for job in jobs if job.is_owed]
        self._tell(self._done, jobs, results)
        return []

    def _undo(self) -> None:
        try:
            self._file.rollback()
        except BROKEN as error:
            log.error("the store failed", store=str(self._file.path), error=str(error))

    def _tell(self, function: Callable[..., None], *arguments: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:
            return  # the loop is closed: nobody waits any more

    def _done(self, jobs: list[_Job], results: list[Any]) -> None:
        self._stored = {}
        for job, result in zip(jobs, results, strict=True):
            if job.done is not None:
                job.done(result)
        stored, self._stored = self._stored, {}
        for key, messages in stored.items():
            self.on_stored(key, messages[0].sequence, messages)
            for each in messages:
                if not each.future.done():
                    each.future.set_result(None)

    def _failed(self, jobs: list[_Job], error: BaseException) -> None:
        text = f"store {str(self._file.path)!r}: {error}"
        if isinstance(error, DamagedError) or "malformed" in str(error):
            text += "; it is damaged: restart the peer, which sets it aside and begins a new one"
            self._broken = text
        log.error("the store failed", store=str(self._file.path), error=str(error))
        for job in jobs:
            if job.failed is not None:
                job.failed(StoreError(text))
