"""One peer of the demonstration: `python -m anabranch.tools.demo.peer_process`, run by `mesh.py`.

Publishes and subscribes as it is told, measures what arrives, tells its parent twice a second, and at once
when a link or a path changed.
"""

import asyncio
import struct
import sys
import time

import msgspec
import structlog

from anabranch import Config, Peer, Subscription
from anabranch.tools.demo.measuring import FlowMeter
from anabranch.tools.demo.messages import (
    Finish,
    Hush,
    LinkSeen,
    LinkView,
    Matched,
    Open,
    Order,
    PathSeen,
    Publish,
    Ready,
    Status,
)
from anabranch.tools.testbed.parent import OrphanedError, Parent
from anabranch.transport.loops import run

STATUS_INTERVAL_S = 0.5
WATCH_INTERVAL_S = 0.05
PAYLOAD = struct.Struct("<d56x")
"""When it was sent (`time.monotonic`), and filling up to 64 bytes."""


class _Report(msgspec.Struct, frozen=True):
    links: list[LinkView]


async def main() -> None:
    """Until told to finish, or the parent is gone."""
    async with Parent() as parent:
        try:
            job = await parent.order(Open)
        except OrphanedError:
            return
        config = Config(neighbours_target=0)  # only the links that were laid
        async with Peer(
            job.name, listen="tcp://127.0.0.1:0", join=job.join, config=config, log_dir=job.log_dir, open=True
        ) as peer:
            parent.tell(Ready(address=peer.addresses[0]))
            await _Demonstrator(peer, parent, job).run()


class _Demonstrator:
    def __init__(self, peer: Peer, parent: Parent, job: Open) -> None:
        self._peer = peer
        self._parent = parent
        self._job = job
        self._meters = {topic: FlowMeter(topic, job.deadline_s) for topic in job.subscribe}
        self._published = dict.fromkeys(job.publish, 0)
        self._start_at: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        self._hushed = False

    async def run(self) -> None:
        subscriptions = {topic: self._peer.subscribe(topic) for topic in self._job.subscribe}
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._receive(*each)) for each in subscriptions.items()]
            tasks += [group.create_task(self._publish(*each)) for each in self._job.publish.items()]
            tasks += [group.create_task(self._watch_links()), group.create_task(self._tell_status())]
            await self._follow_orders()
            for task in tasks:
                task.cancel()

    async def _follow_orders(self) -> None:
        while True:
            try:
                order: Order = await self._parent.order(Order)  # type: ignore[arg-type]
            except OrphanedError:
                return
            if isinstance(order, Publish):
                self._start_at.set_result(order.at)
            elif isinstance(order, Hush):
                self._hushed = True
                self._parent.tell(self._status())
            elif isinstance(order, Finish):
                self._parent.tell(self._status(final=True))
                return

    async def _publish(self, topic: str, subscribers: int) -> None:
        publisher = await self._peer.publisher(topic, deadline=self._job.deadline_s)
        await self._peer.wait_for_subscribers(topic, subscribers)
        self._parent.tell(Matched(topic=topic))
        start_at = await self._start_at
        while not self._hushed:
            due = start_at + self._published[topic] / self._job.rate
            if (pause := due - time.monotonic()) > 0:
                await asyncio.sleep(pause)
                continue
            self._published[topic] += 1
            await publisher.put(PAYLOAD.pack(time.monotonic()))

    async def _receive(self, topic: str, subscription: Subscription) -> None:
        meter = self._meters[topic]
        async for message in subscription:
            now = time.monotonic()
            assert isinstance(message.payload, bytes)
            (sent_at,) = PAYLOAD.unpack(message.payload)
            path = message.path
            if meter.add(
                message.sequence, path, sent_at=sent_at, now=now, age_s=message.age, late=message.late
            ):
                self._parent.tell(PathSeen(at=now, topic=topic, path=path))

    async def _watch_links(self) -> None:
        known: dict[str, str] = {}
        while True:
            states = {link.peer: link.state for link in self._links()}
            for neighbour in known.keys() | states.keys():
                state = states.get(neighbour, "down")
                if state != known.get(neighbour, "down"):
                    self._parent.tell(LinkSeen(at=time.monotonic(), neighbour=neighbour, state=state))
            known = states
            await asyncio.sleep(WATCH_INTERVAL_S)

    async def _tell_status(self) -> None:
        while True:
            self._parent.tell(self._status(), if_read=True)
            await asyncio.sleep(STATUS_INTERVAL_S)

    def _links(self) -> list[LinkView]:
        return msgspec.convert(self._peer.report(), _Report).links

    def _status(self, *, final: bool = False) -> Status:
        now = time.monotonic()
        return Status(
            at=now,
            links=self._links(),
            flows=[meter.view(now) for meter in self._meters.values()],
            published=self._published,
            counters=dict(self._peer.counters),
            hushed=self._hushed,
            final=final,
        )


def _unexpected(_: object, __: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """What the demonstration should tell its user of: not that its mesh is open, which it asked for."""
    if str(event["event"]).startswith("open mesh"):
        raise structlog.DropEvent
    return event


if __name__ == "__main__":
    processors = [_unexpected, *structlog.get_config()["processors"]]
    structlog.configure(processors, logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    run(main())
