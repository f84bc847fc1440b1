"""nats-py with a nats-server of its own: publish, a callback subscription, limits raised so that none drops.

Runs on uvloop where it is installed, as the product does.
"""

import asyncio
import contextlib
import json
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import nats

from anabranch.tools.bench.jobs import ASK_TOPIC, PING_TOPIC, PONG_TOPIC, TOPIC, BenchError, Job, Parent
from anabranch.tools.bench.measuring import Harvests, Meter, Pace, RoundTrips
from anabranch.tools.bench.waiting import until_drained, until_stopped
from anabranch.transport.loops import run

_START_TIMEOUT_S = 10.0
_REPLIES_TIMEOUT_S = 5.0
_SERVER_CONFIG = """
host: "127.0.0.1"
port: -1
ports_file_dir: {directory}
max_payload: 33554432
max_pending: 1073741824
write_deadline: "60s"
"""


def serve(job: Job, parent: Parent) -> None:
    """Runs a nats-server on a free loopback port until told to stop."""
    binary = shutil.which("nats-server")
    if binary is None:
        raise BenchError("nats-server is not on PATH")
    directory = Path(job.directory)
    config = directory / "nats.conf"
    config.write_text(_SERVER_CONFIG.format(directory=json.dumps(str(directory))))
    log = directory / "nats.log"
    with log.open("wb") as output:
        server = subprocess.Popen(
            [binary, "-c", str(config)], stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
    try:
        parent.on_orphaned = server.kill
        parent.report("ready", address=_server_address(server, directory, log))
        parent.wait_stop()
    finally:
        server.kill()
        server.wait()


def receive(job: Job, parent: Parent) -> None:
    """Counts what a callback subscription gets."""
    run(_receive(job, parent))


def send(job: Job, parent: Parent) -> None:
    """Publishes as fast as the client takes it, and flushes at the end."""
    run(_send(job, parent))


def echo(job: Job, parent: Parent) -> None:
    """Publishes each ping again as a pong."""
    run(_echo(job, parent))


def ping(job: Job, parent: Parent) -> None:
    """One ping at a time."""
    run(_ping(job, parent))


def answer(job: Job, parent: Parent) -> None:
    """Clients that answer each request to its inbox."""
    run(_answer(job, parent))


def ask(job: Job, parent: Parent) -> None:
    """Request-many: publishes with an inbox, takes as many replies as there are repliers."""
    run(_ask(job, parent))


async def _receive(job: Job, parent: Parent) -> None:
    client = await _connect(job)
    meter = Meter(job)
    count, next_mark = 0, 1

    async def take(message: Any) -> None:
        nonlocal count, next_mark
        payload = message.data
        count += 1
        if count == next_mark:
            next_mark = meter.mark(count, len(payload))

    await client.subscribe(_subject(TOPIC), cb=take, pending_msgs_limit=0, pending_bytes_limit=0)
    await client.flush()
    parent.report("ready", address=job.address)
    await until_drained(meter, parent, lambda: count)
    parent.report("result", **meter.result(count))
    await until_stopped(parent)
    await client.close()


async def _send(job: Job, parent: Parent) -> None:
    client = await _connect(job)
    parent.report("ready", address=job.address)
    pace = Pace(job)
    payload = job.payload()
    subject = _subject(TOPIC)
    publish = client.publish
    while burst := pace.more():
        for _ in range(burst):
            await publish(subject, payload)
    await client.flush(timeout=60)
    parent.report("sent", **pace.result())
    await until_stopped(parent)
    await client.close()


async def _echo(job: Job, parent: Parent) -> None:
    client = await _connect(job)
    subject = _subject(PONG_TOPIC)

    async def answer(message: Any) -> None:
        await client.publish(subject, message.data)

    await client.subscribe(_subject(PING_TOPIC), cb=answer)
    await client.flush()
    parent.report("ready", address=job.address)
    await until_stopped(parent)
    await client.close()


async def _ping(job: Job, parent: Parent) -> None:
    client = await _connect(job)
    loop = asyncio.get_running_loop()
    pong: asyncio.Future[bytes] = loop.create_future()

    async def take(message: Any) -> None:
        pong.set_result(message.data)

    await client.subscribe(_subject(PONG_TOPIC), cb=take)
    await client.flush()
    subject, payload = _subject(PING_TOPIC), job.payload()
    trips = RoundTrips(job)
    clock = time.perf_counter_ns
    while True:
        pong = loop.create_future()
        begun = clock()
        await client.publish(subject, payload)
        await pong
        if not trips.note(begun, clock()):
            break
    parent.report("result", **trips.result())
    await until_stopped(parent)
    await client.close()


async def _answer(job: Job, parent: Parent) -> None:
    payload = job.payload()
    clients = [await _connect(job) for _ in range(job.subscribers)]

    async def reply(message: Any) -> None:
        await message.respond(payload)

    for client in clients:
        await client.subscribe(_subject(ASK_TOPIC), cb=reply)
        await client.flush()
    parent.report("ready", address=job.address)
    await until_stopped(parent)
    for client in clients:
        await client.close()


async def _ask(job: Job, parent: Parent) -> None:
    client = await _connect(job)
    subject = _subject(ASK_TOPIC)
    inbox = client.new_inbox()
    missing, done = 0, asyncio.Event()

    async def take(message: Any) -> None:
        nonlocal missing
        missing -= bool(message.data)
        if not missing:
            done.set()

    await client.subscribe(inbox, cb=take)
    await client.flush()
    parent.report("ready", address=job.address)
    harvests = Harvests(job)
    while harvests.go_on():
        missing = job.subscribers
        done.clear()
        await client.publish(subject, b"", reply=inbox)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_REPLIES_TIMEOUT_S):
                await done.wait()
        harvests.note(job.subscribers - missing)
    parent.report("result", **harvests.result())
    await until_stopped(parent)
    await client.close()


def _subject(topic: str) -> str:
    return topic.replace("/", ".")


async def _connect(job: Job) -> Any:
    return await nats.connect(job.address, allow_reconnect=False, skip_subject_validation=True)


def _server_address(server: "subprocess.Popen[bytes]", directory: Path, log: Path) -> str:
    ports = directory / f"nats-server_{server.pid}.ports"
    deadline = time.monotonic() + _START_TIMEOUT_S
    while time.monotonic() < deadline and server.poll() is None:
        try:
            return str(json.loads(ports.read_text())["nats"][0])
        except (OSError, ValueError, LookupError):
            time.sleep(0.02)
    raise BenchError(f"nats-server did not start: {log.read_text(errors='replace')[-2000:]}")
