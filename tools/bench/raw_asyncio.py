"""Bare pyzmq in an asyncio program, written for speed: plain sockets on the event loop, no `zmq.asyncio`.

One ZeroMQ message per publication, topic and payload a frame each. This is what the product's bundles save:
the same sockets, the same kind of program. `raw.py` has it with blocking sockets, without an event loop.
"""

import asyncio

import zmq

from anabranch.tools.bench.jobs import TOPIC, Job, Parent
from anabranch.tools.bench.measuring import Meter, Pace
from anabranch.tools.bench.raw import echo, ping
from anabranch.tools.bench.waiting import until_drained, until_stopped
from anabranch.transport.loops import run

__all__ = ["echo", "ping", "receive", "send"]

_KINDS = {
    "pub_sub": (zmq.XPUB, zmq.SUB, 2),
    "dealer_router": (zmq.DEALER, zmq.ROUTER, 3),
    "multipart": (zmq.XPUB, zmq.SUB, 2),
}
"""Of each variant: the sender's and the receiver's socket, and how many frames a message has. `multipart`
is `pub_sub` by way of `send_multipart` and `recv_multipart`, as pyzmq's guide has it."""
_DRAIN_MESSAGES = 1000
_NOBLOCK = int(zmq.NOBLOCK)
_MORE = int(zmq.NOBLOCK | zmq.SNDMORE)


def receive(job: Job, parent: Parent) -> None:
    """Counts what arrives, in the callback that reads it."""
    run(_receive(job, parent))


def send(job: Job, parent: Parent) -> None:
    """Sends, waiting while the other side doesn't keep up."""
    run(_send(job, parent))


async def _receive(job: Job, parent: Parent) -> None:
    _, kind, frames = _KINDS[job.variant]
    loop = asyncio.get_running_loop()
    meter = Meter(job)
    count, next_mark = 0, meter.next_mark
    before_payload = range(frames - 1)
    is_multipart = job.variant == "multipart"
    with zmq.Context() as context, context.socket(kind) as socket:
        if kind == zmq.SUB:
            socket.set(zmq.SUBSCRIBE, b"")
        port = socket.bind_to_random_port("tcp://127.0.0.1")
        recv = socket.recv

        def read() -> None:
            nonlocal count, next_mark
            try:
                for _ in range(_DRAIN_MESSAGES):
                    if is_multipart:
                        payload = socket.recv_multipart(_NOBLOCK)[-1]
                    else:
                        for _ in before_payload:
                            recv(_NOBLOCK)
                        payload = recv(_NOBLOCK)
                    count += 1
                    if count == next_mark:
                        next_mark = meter.mark(count, len(payload))
            except zmq.Again:
                return
            loop.call_soon(read)

        loop.add_reader(socket.fileno(), read)
        read()
        parent.report("ready", address=f"tcp://127.0.0.1:{port}")
        await until_drained(meter, parent, lambda: count)
        loop.remove_reader(socket.fileno())
        parent.report("result", **meter.result(count))
        await until_stopped(parent)


async def _send(job: Job, parent: Parent) -> None:
    kind, _, _ = _KINDS[job.variant]
    loop = asyncio.get_running_loop()
    with zmq.Context() as context, context.socket(kind) as socket:
        socket.set(zmq.LINGER, 0)
        if kind == zmq.XPUB:
            socket.set(zmq.XPUB_NODROP, 1)
        socket.connect(job.address)
        if kind == zmq.XPUB:
            socket.recv()  # the subscription; what is sent before it is lost
        room = asyncio.Event()
        loop.add_reader(socket.fileno(), room.set)
        topic, transmit = TOPIC.encode(), socket.send
        is_multipart = job.variant == "multipart"

        async def put(payload: bytes) -> None:
            while True:
                try:
                    if is_multipart:
                        socket.send_multipart((topic, payload), _NOBLOCK)
                    else:
                        transmit(topic, _MORE)
                        transmit(payload, _NOBLOCK)
                    return
                except zmq.Again:
                    room.clear()
                    if not socket.get(zmq.EVENTS) & zmq.POLLOUT:  # type: ignore[operator,arg-type]
                        await room.wait()

        parent.report("ready", address=job.address)
        pace = Pace(job)
        payload = job.payload()
        while burst := pace.more():
            for _ in range(burst):
                await put(payload)
            await asyncio.sleep(0)
        loop.remove_reader(socket.fileno())
        parent.report("sent", **pace.result())
        await until_stopped(parent)
