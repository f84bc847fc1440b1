"""Zenoh's Python binding: two peers, told of each other, congestion control that blocks rather than drops.

Every other setting is the library's default. It offers three ways to receive, the job's variant: `fifo`
iterates the subscriber, `callback` is called in a thread of the binding, `direct_callback` in the thread that
reads the network. The bench runs those that are any good at what it measures and reports the fastest.
"""

import socket
import threading
import time
from typing import Any

import zenoh

from anabranch.tools.bench.jobs import ASK_TOPIC, PING_TOPIC, PONG_TOPIC, TOPIC, BenchError, Job, Parent
from anabranch.tools.bench.measuring import Harvests, Meter, RoundTrips, send_blocking

_MATCH_TIMEOUT_S = 10.0
_OPEN_ATTEMPTS = 5


def receive(job: Job, parent: Parent) -> None:
    """Counts what a subscriber gets, payloads taken out as bytes."""
    session, address = _listening_session()
    with session:
        meter = Meter(job)
        count, next_mark = 0, 1

        def take(sample: zenoh.Sample) -> None:
            nonlocal count, next_mark
            payload = sample.payload.to_bytes()
            count += 1
            if count == next_mark:
                next_mark = meter.mark(count, len(payload))

        subscriber = _subscribe(session, TOPIC, job.variant, take)
        parent.report("ready", address=address)
        if job.variant == "fifo":
            threading.Thread(target=_iterate, args=(subscriber, take), daemon=True).start()
        meter.wait_drained(parent, lambda: count)
        parent.report("result", **meter.result(count))
        parent.wait_stop()


def send(job: Job, parent: Parent) -> None:
    """Publishes as fast as the publisher takes it."""
    with _connected_session(job.address) as session:
        publisher = _publisher(session, TOPIC)
        _wait_matching(publisher)
        parent.report("ready", address=job.address)
        parent.report("sent", **send_blocking(job, publisher.put))
        parent.wait_stop()


def echo(job: Job, parent: Parent) -> None:
    """Publishes each ping again as a pong."""
    session, address = _listening_session()
    with session:
        publisher = _publisher(session, PONG_TOPIC)

        def answer(sample: zenoh.Sample) -> None:
            publisher.put(sample.payload.to_bytes())

        subscriber = _subscribe(session, PING_TOPIC, job.variant, answer)
        if job.variant == "fifo":
            threading.Thread(target=_iterate, args=(subscriber, answer), daemon=True).start()
        parent.report("ready", address=address)
        parent.wait_stop()


def ping(job: Job, parent: Parent) -> None:
    """One ping at a time, waiting on the subscriber's channel: quicker than a callback that sets an event."""
    with _connected_session(job.address) as session:
        pongs = session.declare_subscriber(PONG_TOPIC)
        publisher = _publisher(session, PING_TOPIC)
        _wait_matching(publisher)
        payload = job.payload()
        _first_round_trip(publisher, pongs, payload)
        trips = RoundTrips(job)
        clock = time.perf_counter_ns
        while True:
            begun = clock()
            publisher.put(payload)
            pongs.recv().payload.to_bytes()
            if not trips.note(begun, clock()):
                break
        parent.report("result", **trips.result())
        parent.wait_stop()


def answer(job: Job, parent: Parent) -> None:
    """Sessions with a queryable each, all connected to the one that asks."""
    payload = job.payload()
    sessions = [_connected_session(job.address) for _ in range(job.subscribers)]
    for number, session in enumerate(sessions):
        _declare_queryable(session, f"{ASK_TOPIC}/{job.name}-{number}", payload, job.variant)
    parent.report("ready", address=job.address)
    parent.wait_stop()
    for session in sessions:
        session.close()  # type: ignore[no-untyped-call]


def ask(job: Job, parent: Parent) -> None:
    """One request at a time, to all queryables; it is over when Zenoh says that there are no more replies."""
    session, address = _listening_session()
    with session:
        parent.report("ready", address=address)
        expected = job.subscribers
        deadline = time.monotonic() + _MATCH_TIMEOUT_S
        while _ask_once(session) < expected:
            if time.monotonic() > deadline:
                raise BenchError(f"zenoh found no {expected} queryables within {_MATCH_TIMEOUT_S:.0f} s")
            time.sleep(0.05)
        harvests = Harvests(job)
        while harvests.go_on():
            harvests.note(_ask_once(session))
        parent.report("result", **harvests.result())
        parent.wait_stop()


def _ask_once(session: zenoh.Session) -> int:
    replies = session.get(
        f"{ASK_TOPIC}/*", target=zenoh.QueryTarget.ALL, consolidation=zenoh.ConsolidationMode.NONE
    )
    return sum(reply.ok is not None and bool(reply.ok.payload.to_bytes()) for reply in replies)


def _declare_queryable(session: zenoh.Session, key: str, payload: bytes, variant: str) -> None:
    def reply(query: zenoh.Query) -> None:
        with query:
            query.reply(key, payload)

    session.declare_queryable(key, zenoh.handlers.Callback(reply, indirect=variant == "callback"))


def _iterate(subscriber: Any, take: Any) -> None:
    for sample in subscriber:
        take(sample)


def _subscribe(session: zenoh.Session, topic: str, variant: str, take: Any) -> Any:
    if variant == "fifo":
        return session.declare_subscriber(topic)
    handler = zenoh.handlers.Callback(take, indirect=variant == "callback")
    return session.declare_subscriber(topic, handler)


def _publisher(session: zenoh.Session, topic: str) -> Any:
    return session.declare_publisher(topic, congestion_control=zenoh.CongestionControl.BLOCK, express=False)


def _listening_session() -> tuple[zenoh.Session, str]:
    # The binding doesn't tell which port it was given, so one that was free a moment ago is asked for.
    for attempt in range(_OPEN_ATTEMPTS):
        with socket.create_server(("127.0.0.1", 0)) as probe:
            address = f"tcp/127.0.0.1:{probe.getsockname()[1]}"
        config = _config()
        config.insert_json5("listen/endpoints", f'["{address}"]')
        try:
            return zenoh.open(config), address
        except zenoh.ZError:
            if attempt == _OPEN_ATTEMPTS - 1:
                raise
    raise AssertionError("unreachable")


def _connected_session(address: str) -> zenoh.Session:
    config = _config()
    config.insert_json5("listen/endpoints", "[]")
    config.insert_json5("connect/endpoints", f'["{address}"]')
    return zenoh.open(config)


def _config() -> zenoh.Config:
    config = zenoh.Config()
    config.insert_json5("mode", '"peer"')
    config.insert_json5("scouting/multicast/enabled", "false")
    return config


def _wait_matching(publisher: Any) -> None:
    deadline = time.monotonic() + _MATCH_TIMEOUT_S
    while not publisher.matching_status:
        if time.monotonic() > deadline:
            raise BenchError(f"zenoh found no subscriber within {_MATCH_TIMEOUT_S:.0f} s")
        time.sleep(0.01)


def _first_round_trip(publisher: Any, pongs: Any, payload: bytes) -> None:
    """The way back is known some time after the way there: repeat until a pong comes, then take them all."""
    deadline = time.monotonic() + _MATCH_TIMEOUT_S
    while True:
        publisher.put(payload)
        time.sleep(0.05)
        if pongs.try_recv() is not None:
            break
        if time.monotonic() > deadline:
            raise BenchError(f"zenoh brought no pong back within {_MATCH_TIMEOUT_S:.0f} s")
    time.sleep(0.1)
    while pongs.try_recv() is not None:
        pass
