"""One peer of an emulated mesh, a process: publishes and subscribes as it is told, and notes every message.

Run with `python -m`; its arguments are the paths of the namespaces to live in, network and then user.
"""

import asyncio
import contextlib
import os
import struct
import sys
import time
from pathlib import Path

import msgspec
import structlog

from anabranch import Config, Peer
from anabranch.overlay.qos import Overflow
from anabranch.tools.testbed import kernel
from anabranch.tools.testbed.orders import (
    Begin,
    Ended,
    FlowOrder,
    GotNote,
    Note,
    Order,
    Prepare,
    Prepared,
    PutNote,
    SpanNote,
    SubscriptionOrder,
    Traffic,
)
from anabranch.tools.testbed.parent import OrphanedError, Parent
from anabranch.transport.loops import run

HEAD = struct.Struct("!HHI")
"""Flow, incarnation of its peer, turn: what each payload begins with."""
BEHIND_MAX_S = 0.25
"""A publisher that was stopped for longer skips its turns instead of making up for them."""
TRAFFIC_INTERVAL_S = 1.0
QUEUE_MAX = 100_000


class Notes:
    """A file of notes; each is with the system at once, so that a killed process loses none."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._encoder = msgspec.json.Encoder()

    def add(self, note: Note) -> None:
        """Write one down."""
        os.write(self._fd, self._encoder.encode(note) + b"\n")


async def serve() -> None:
    """Until told to leave, or the parent is gone."""
    async with Parent() as parent:
        try:
            job = await parent.order(Prepare)
            notes = Notes(Path(job.notes))
            config = msgspec.convert(job.config, Config)
            parent.tell(Prepared(address=job.listen))
            begin = await parent.order(Begin)
            await asyncio.sleep(max(0.0, begin.at - time.monotonic()))
            async with Peer(
                job.name,
                listen=job.listen or (),
                join=begin.join,
                advertise=job.advertise,
                config=config,
                log_dir=job.log_dir,
                open=True,
            ) as peer:
                await _Player(peer, job, notes, parent, begin.at).play()
            parent.tell(Ended(counters=dict(peer.counters)))
        except OrphanedError:
            return


class _Player:
    def __init__(self, peer: Peer, job: Prepare, notes: Notes, parent: Parent, start_at: float) -> None:
        self._peer = peer
        self._job = job
        self._notes = notes
        self._parent = parent
        self._start_at = start_at

    async def play(self) -> None:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._receive(each)) for each in self._job.subscriptions]
            tasks += [group.create_task(self._publish(each)) for each in self._job.flows]
            tasks.append(group.create_task(self._tell_traffic()))
            with contextlib.suppress(OrphanedError):
                await self._parent.order(Order)  # type: ignore[arg-type] # a Leave: there is no other
            for task in tasks:
                task.cancel()

    async def _sleep_until(self, at_s: float) -> None:
        await asyncio.sleep(max(0.0, self._start_at + at_s - time.monotonic()))

    async def _receive(self, order: SubscriptionOrder) -> None:
        await self._sleep_until(order.start_s)
        incarnation, notes = self._job.incarnation, self._notes
        stop = asyncio.timeout_at(None)
        if order.stop_s is not None:
            ends = self._start_at + order.stop_s - time.monotonic()
            stop = asyncio.timeout(ends)
        notes.add(SpanNote(order.number, True, time.monotonic()))
        async with self._peer.subscribe(order.pattern, queue_max=QUEUE_MAX) as subscription:
            with contextlib.suppress(TimeoutError):
                async with stop:
                    async for message in subscription:
                        now = time.monotonic()
                        payload = message.payload
                        assert isinstance(payload, bytes)
                        flow, theirs, _ = HEAD.unpack_from(payload)
                        notes.add(
                            GotNote(
                                order.number, incarnation, flow, theirs, message.sequence, now, message.path
                            )
                        )
        notes.add(SpanNote(order.number, False, time.monotonic()))

    async def _publish(self, order: FlowOrder) -> None:
        padding = bytes(max(0, order.size_bytes - HEAD.size))
        incarnation, notes = self._job.incarnation, self._notes
        publisher = await self._peer.publisher(
            order.topic, deadline=order.deadline_s or None, overflow=Overflow.DROP_NEWEST
        )
        begin, interval = self._start_at + order.start_s, 1.0 / order.rate_per_s
        late_s = time.monotonic() - begin
        turn = int(late_s / interval) + 1 if late_s > BEHIND_MAX_S else 0
        stop = self._start_at + order.stop_s
        sequence = 0
        while (due := begin + turn * interval) < stop:
            now = time.monotonic()
            if due > now:
                await asyncio.sleep(due - now)
                continue
            if now - due > BEHIND_MAX_S:
                turn += int((now - due) / interval)
                continue
            payload = HEAD.pack(order.number, incarnation, turn & 0xFFFFFFFF) + padding
            now = time.monotonic()
            await publisher.put(payload)
            notes.add(PutNote(order.number, incarnation, sequence, now))
            sequence += 1
            turn += 1

    async def _tell_traffic(self) -> None:
        while True:
            await asyncio.sleep(TRAFFIC_INTERVAL_S)
            self._parent.tell(Traffic(at=time.monotonic(), counters=dict(self._peer.counters)), if_read=True)


def main() -> None:
    """Enter the namespaces that the arguments name, then be a peer."""
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    if sys.platform == "linux":
        kernel.end_with_parent()
    paths = sys.argv[1:]
    if len(paths) > 1:
        kernel.enter(paths[1], kernel.CLONE_NEWUSER)
    if paths:
        kernel.enter(paths[0], kernel.CLONE_NEWNET)
    run(serve())


if __name__ == "__main__":
    main()
