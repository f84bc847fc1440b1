"""One peer process of the chaos test: publishes, wants everything, and keeps account of what it hears."""

import asyncio
import os
import time
import zlib
from pathlib import Path
from typing import TextIO

import msgspec
import structlog
from chaos_messages import (
    SILENCE_S,
    TOPIC,
    FlowReport,
    Gap,
    Open,
    Order,
    Ready,
    Report,
    Violation,
    pack,
    unpack,
)

from anabranch import Config, Message, Peer, Publisher, Subscription
from anabranch.tools.testbed.parent import OrphanedError, Parent
from anabranch.transport.loops import run


class _Link(msgspec.Struct):
    peer: str
    state: str


class _View(msgspec.Struct):
    links: list[_Link]


async def main() -> None:
    """Until told to finish, or the parent is gone."""
    async with Parent() as parent:
        try:
            job = await parent.order(Open)
        except OrphanedError:
            return
        with (Path(job.log_dir) / f"{job.name}-{job.incarnation}.log").open("a", buffering=1) as log:
            _log_to(log)
            await _take_part(job, parent)


async def _take_part(job: Open, parent: Parent) -> None:
    config = Config(neighbours_target=job.neighbours_target)
    async with (
        Peer(job.name, listen=job.listen, join=job.join, config=config, log_dir=job.log_dir) as peer,
        peer.subscribe(f"{TOPIC}/*") as subscription,
    ):
        await _Accountant(peer, parent, job).run(subscription)


class _Accountant:
    def __init__(self, peer: Peer, parent: Parent, job: Open) -> None:
        self._peer = peer
        self._parent = parent
        self._job = job
        self._flows: dict[tuple[str, int], FlowReport] = {}
        self._published = 0
        self._hushed = False

    async def run(self, subscription: Subscription) -> None:
        publisher = await self._peer.publisher(f"{TOPIC}/{self._job.name}")
        self._parent.tell(Ready())
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self._receive(subscription)),
                group.create_task(self._publish(publisher)),
            ]
            await self._follow_orders()
            for task in tasks:
                task.cancel()

    async def _follow_orders(self) -> None:
        while True:
            try:
                what = (await self._parent.order(Order)).what
            except OrphanedError:
                return
            if what == "hush":
                self._hushed = True
            elif what == "tell":
                self._parent.tell(self._report())
            elif what == "finish":
                return

    async def _publish(self, publisher: Publisher) -> None:
        job = self._job
        filling = os.urandom(job.payload_bytes)
        checksum = zlib.crc32(filling)
        due = time.monotonic()
        while not self._hushed:
            now = time.monotonic()
            if due > now:
                await asyncio.sleep(due - now)
                continue
            due = max(due + 1 / job.rate, now - 0.1)  # what a pause kept from being put is not made up for
            number = self._published
            self._published += 1
            await publisher.put(pack(job.incarnation, number, now, filling, checksum))

    async def _receive(self, subscription: Subscription) -> None:
        async for message in subscription:
            self._take(message)

    def _take(self, message: Message) -> None:
        now = time.monotonic()
        payload = message.payload
        assert isinstance(payload, bytes)
        incarnation, number, put_at, is_whole = unpack(payload)
        if not is_whole or number != message.sequence:
            self._parent.tell(Violation(f"broken: {message!r}"))
            return
        key = (message.origin, incarnation)
        flow = self._flows.get(key)
        if flow is None:
            flow = self._flows[key] = FlowReport(
                *(*key, number, number - 1, 0, now, put_at, [], [], [(now, message.path)])
            )
            if any(source == key[0] and later > incarnation for source, later in self._flows):
                self._parent.tell(Violation(f"a former self of {key[0]} is heard after its later one"))
        if number <= flow.last:
            self._parent.tell(Violation(f"{key}: {number} after {flow.last}, path {message.path}"))
            return
        if number > flow.last + 1:
            flow.gaps.append(Gap(flow.last + 1, number, flow.last_at, now))
        if now - flow.last_at > SILENCE_S:
            flow.silences.append((flow.last_at, now))
        if flow.paths[-1][1] != message.path:
            flow.paths.append((now, message.path))
        flow.last, flow.last_at, flow.last_put_at = number, now, put_at
        flow.received += 1

    def _report(self) -> Report:
        links = msgspec.convert(self._peer.report(), _View).links
        return Report(
            time.monotonic(),
            list(self._flows.values()),
            self._published,
            dict(self._peer.counters),
            {link.peer: link.state for link in links},
        )


def _log_to(file: TextIO) -> None:
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        logger_factory=structlog.PrintLoggerFactory(file),
    )


if __name__ == "__main__":
    run(main())
