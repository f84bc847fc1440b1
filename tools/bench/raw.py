"""Bare pyzmq, written for speed: blocking sockets, one ZeroMQ message per publication.

A publication has a topic and a payload, a frame each. The variant `bare` leaves the topic out: no
publish/subscribe, but what the sockets carry at most; it is reported and not compared with.
"""

import time
from collections.abc import Callable

import zmq

from anabranch.tools.bench.jobs import TOPIC, Job, Parent
from anabranch.tools.bench.measuring import Meter, RoundTrips, send_blocking

_KINDS = {
    "pub_sub": (zmq.XPUB, zmq.SUB, 2),
    "dealer_router": (zmq.DEALER, zmq.ROUTER, 3),
    "bare": (zmq.PUSH, zmq.PULL, 1),
}
"""Of each variant: the sender's and the receiver's socket, and how many frames arrive per message."""

_LOOK_MS = 100


def receive(job: Job, parent: Parent) -> None:
    """Counts what arrives."""
    _, kind, frames = _KINDS[job.variant]
    with zmq.Context() as context, context.socket(kind) as socket:
        socket.set(zmq.RCVTIMEO, _LOOK_MS)
        if kind == zmq.SUB:
            socket.set(zmq.SUBSCRIBE, b"")
        port = socket.bind_to_random_port("tcp://127.0.0.1")
        parent.report("ready", address=f"tcp://127.0.0.1:{port}")
        meter = Meter(job)
        count = 0
        while not meter.drained(count, parent.expected):
            count = _receive_until_silent(socket, meter, count, frames)
        parent.report("result", **meter.result(count))
        parent.wait_stop()


def send(job: Job, parent: Parent) -> None:
    """Sends, waiting while the other side doesn't keep up."""
    kind, _, _ = _KINDS[job.variant]
    with zmq.Context() as context, context.socket(kind) as socket:
        socket.set(zmq.LINGER, 0)
        if kind == zmq.XPUB:
            socket.set(zmq.XPUB_NODROP, 1)
        socket.connect(job.address)
        if kind == zmq.XPUB:
            socket.recv()  # the subscription; what is sent before it is lost
        topic, more, send = TOPIC.encode(), int(zmq.SNDMORE), socket.send

        def put_with_topic(payload: bytes) -> None:
            send(topic, more)
            send(payload)

        put: Callable[[bytes], object] = send if job.variant == "bare" else put_with_topic
        parent.report("ready", address=job.address)
        parent.report("sent", **send_blocking(job, put))
        parent.wait_stop()


def _receive_until_silent(socket: "zmq.Socket[bytes]", meter: Meter, count: int, frames: int) -> int:
    """Counts messages of so many frames until none came for a moment."""
    recv = socket.recv
    next_mark = meter.next_mark
    before_payload = range(frames - 1)
    try:
        while True:
            for _ in before_payload:
                recv()
            payload = recv()
            count += 1
            if count == next_mark:
                next_mark = meter.mark(count, len(payload))
    except zmq.Again:
        return count


def echo(job: Job, parent: Parent) -> None:  # noqa: ARG001 - the form of every role
    """Returns each message from a ROUTER socket."""
    with zmq.Context() as context, context.socket(zmq.ROUTER) as socket:
        socket.set(zmq.LINGER, 0)
        socket.set(zmq.RCVTIMEO, _LOOK_MS)
        port = socket.bind_to_random_port("tcp://127.0.0.1")
        parent.report("ready", address=f"tcp://127.0.0.1:{port}")
        while not parent.stopped.is_set():
            try:
                while True:
                    socket.send_multipart(socket.recv_multipart())
            except zmq.Again:
                continue


def ping(job: Job, parent: Parent) -> None:
    """One message at a time from a DEALER socket and back."""
    with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.set(zmq.LINGER, 0)
        socket.connect(job.address)
        payload = job.payload()
        socket.send(payload)  # the first takes the connection with it
        socket.recv()
        trips = RoundTrips(job)
        clock = time.perf_counter_ns
        while True:
            begun = clock()
            socket.send(payload)
            socket.recv()
            if not trips.note(begun, clock()):
                break
        parent.report("result", **trips.result())
        parent.wait_stop()
