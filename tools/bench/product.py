"""The product as its users run it: default settings, record logs on, `put` here and `async for` there.

The subscription that is counted blocks when it is full, instead of dropping the oldest: the other systems are
also set to wait rather than to lose, and a rate with losses says little.
"""

import asyncio
import time
from typing import Any

from anabranch import Config, Peer
from anabranch.tools.bench.jobs import PING_TOPIC, PONG_TOPIC, TOPIC, Job, Parent, resident_bytes
from anabranch.tools.bench.measuring import Meter, Pace, RoundTrips
from anabranch.tools.bench.waiting import until_drained, until_stopped
from anabranch.transport.loops import run

_MATCH_TIMEOUT_S = 20.0
_IDLE_S = 2.0


def receive(job: Job, parent: Parent) -> None:
    """Counts what a subscription yields."""
    run(_receive(job, parent))


def send(job: Job, parent: Parent) -> None:
    """Publishes as fast as the publisher takes it, once all subscribers are known."""
    run(_send(job, parent))


def relay(job: Job, parent: Parent) -> None:
    """A peer that neither publishes nor subscribes."""
    run(_relay(job, parent))


def idle(job: Job, parent: Parent) -> None:
    """A peer that nobody talks to; tells its memory."""
    run(_idle(job, parent))


def echo(job: Job, parent: Parent) -> None:
    """Publishes each ping again as a pong."""
    run(_echo(job, parent))


def ping(job: Job, parent: Parent) -> None:
    """One ping at a time."""
    run(_ping(job, parent))


async def _receive(job: Job, parent: Parent) -> None:
    meter = Meter(job)
    count, next_mark = 0, meter.next_mark
    async with _peer(job) as peer, peer.subscribe(TOPIC, overflow="block") as subscription:

        async def take() -> None:
            nonlocal count, next_mark
            async for message in subscription:
                payload = message.payload
                count += 1
                if count == next_mark:
                    assert isinstance(payload, bytes)
                    next_mark = meter.mark(count, len(payload))

        taking = asyncio.create_task(take())
        parent.report("ready", address=peer.addresses[0])
        draining = asyncio.create_task(until_drained(meter, parent, lambda: count))
        await asyncio.wait({taking, draining}, return_when=asyncio.FIRST_COMPLETED)
        if taking.done():
            await taking  # raises what ended it
        taking.cancel()
        parent.report("result", **meter.result(count))
        await until_stopped(parent)


async def _send(job: Job, parent: Parent) -> None:
    async with _peer(job) as peer:
        parent.report("ready", address=peer.addresses[0])
        publisher = await peer.publisher(TOPIC)
        await peer.wait_for_subscribers(TOPIC, count=job.subscribers, timeout=_MATCH_TIMEOUT_S)
        pace = Pace(job)
        payload = job.payload()
        put = publisher.put
        while burst := pace.more():
            for _ in range(burst):
                await put(payload)
            if job.rate:
                await asyncio.sleep(pace.pause_s())
        parent.report("sent", **pace.result())
        await until_stopped(parent)


async def _relay(job: Job, parent: Parent) -> None:
    async with _peer(job) as peer:
        parent.report("ready", address=peer.addresses[0])
        await until_stopped(parent)


async def _idle(job: Job, parent: Parent) -> None:
    async with _peer(job):
        await asyncio.sleep(_IDLE_S)
        parent.report("result", rss_bytes=resident_bytes())
        await until_stopped(parent)


async def _echo(job: Job, parent: Parent) -> None:
    async with _peer(job) as peer, peer.subscribe(PING_TOPIC) as pings:
        publisher = await peer.publisher(PONG_TOPIC)

        async def answer() -> None:
            async for message in pings:
                await publisher.put(message.payload)

        answering = asyncio.create_task(answer())
        parent.report("ready", address=peer.addresses[0])
        stopped = asyncio.create_task(until_stopped(parent))
        await asyncio.wait({answering, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if answering.done():
            await answering  # raises what ended it
        answering.cancel()


async def _ping(job: Job, parent: Parent) -> None:
    async with _peer(job) as peer, peer.subscribe(PONG_TOPIC) as pongs:
        publisher = await peer.publisher(PING_TOPIC)
        await peer.wait_for_subscribers(PING_TOPIC, count=1, timeout=_MATCH_TIMEOUT_S)
        payload = job.payload()
        incoming = aiter(pongs)
        await _first_round_trip(publisher, incoming, payload)
        trips = RoundTrips(job)
        clock = time.perf_counter_ns
        while True:
            begun = clock()
            await publisher.put(payload)
            await anext(incoming)
            if not trips.note(begun, clock()):
                break
        parent.report("result", **trips.result())
        await until_stopped(parent)


async def _first_round_trip(publisher: Any, incoming: Any, payload: bytes) -> None:
    """The echo may learn of our subscription after we learnt of its: repeat until a pong comes, take all."""
    pong = asyncio.ensure_future(anext(incoming))
    sent = 0
    async with asyncio.timeout(_MATCH_TIMEOUT_S):
        while not pong.done():
            await publisher.put(payload)
            sent += 1
            await asyncio.wait({pong}, timeout=0.1)
    await pong
    await asyncio.sleep(0.2)
    while sent := sent - 1:
        try:
            async with asyncio.timeout(0.2):
                await anext(incoming)
        except TimeoutError:
            break


def _peer(job: Job) -> Peer:
    config = Config(neighbours_target=0) if job.star else Config()
    join = [job.address] if job.address else []
    return Peer(
        job.name,
        listen="tcp://127.0.0.1:0",
        join=join,
        config=config,
        log_dir=job.directory,
        identity=job.identity or None,
        open=not job.identity,
    )
