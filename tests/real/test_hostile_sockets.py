"""Hostile sockets against a serving peer: all is counted, a good neighbour notices nothing, nothing leaks."""

import asyncio
import contextlib
import os
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import zmq
from structlog.testing import capture_logs

from anabranch import Config, Peer, Publisher, Subscription
from anabranch.overlay.codec import encode_bundle_header, encode_control, encode_runs, encode_tail
from anabranch.overlay.headers import Hello, Kind, Run, Tail
from anabranch.transport.loops import run

sys.path.insert(0, str(Path(__file__).parent))
from support_peers import (
    LOCAL,
    WAIT_S,
    dealer,
    dropped,
    is_closed,
    neighbours,
    open_descriptors,
    troubles,
    until,
)

pytestmark = pytest.mark.alone

CONFIG = Config.local(
    neighbours_target=0, hello_timeout_s=0.5, payload_max_bytes=1024 * 1024, bundle_max_bytes=256 * 1024
)
FRAME_MAX_BYTES = CONFIG.payload_max_bytes + 1024 * 1024
LATENCY_MAX_S = 0.25
"""A good neighbour's worst round trip under attack; on an idle machine it is about a millisecond."""


HANG_UP_MAX_S = 6.0
GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00NULL" + bytes(48)
"""ZMTP 3.0, NULL mechanism."""


class Scene:
    """A victim, its good neighbour, and the traffic between them."""

    def __init__(self, victim: Peer, good: Peer, echoes: Subscription, pings: Publisher) -> None:
        self.victim = victim
        self.good = good
        self._echoes = echoes
        self._pings = pings
        self._sent = 0

    @property
    def address(self) -> str:
        """Where the victim listens."""
        return self.victim.addresses[0]

    async def round_trip(self) -> float:
        """One message to the victim and back."""
        self._sent += 1
        started = time.monotonic()
        await self._pings.put(self._sent)
        message = await self._echoes.receive(timeout=WAIT_S)
        assert message.payload == self._sent
        return time.monotonic() - started

    async def serve_well(self, count: int = 20) -> None:
        """The victim answers a good neighbour as quickly as ever."""
        times = sorted([await self.round_trip() for _ in range(count)])
        assert times[count // 2] < LATENCY_MAX_S / 5
        assert times[-1] < LATENCY_MAX_S

    async def until_dropped(self, reason: str, count: int = 1) -> None:
        """The victim has counted that many."""
        counted = lambda: dropped(self.victim).get(reason, 0) >= count  # noqa: E731
        await until(counted, f"{count} dropped as {reason}")


@contextlib.asynccontextmanager
async def scene(config: Config = CONFIG) -> AsyncIterator[Scene]:
    """Traffic before and after; afterwards no exception was logged, no descriptor is left open."""
    with capture_logs() as logs:
        async with (
            Peer("victim", listen=LOCAL, config=config) as victim,
            Peer("good", join=victim.addresses, config=config) as good,
            good.subscribe("echo") as echoes,
        ):
            answers = await victim.publisher("echo")
            victim.subscribe("ping", callback=lambda message: answers.put(message.payload))
            await good.wait_for_subscribers("ping", timeout=WAIT_S)
            await victim.wait_for_subscribers("echo", timeout=WAIT_S)
            played = Scene(victim, good, echoes, await good.publisher("ping"))
            await played.serve_well()
            descriptors = open_descriptors()
            yield played
            await played.serve_well()
            assert neighbours(victim) == ["good"]
            assert victim.counters["callback_errors"] == 0
            await until(lambda: open_descriptors() <= descriptors, "descriptors are freed")
            victim._running().node.check_invariants()
    assert troubles(logs) == []


def hello(name: str, epoch: int = 1, role: str = "peer", instance: int = 99) -> bytes:
    return encode_control(Kind.HELLO, Hello(name, epoch, role, instance))


def bundle(hop: int, sequence: int, payload: object = b"x", origin: str = "eve") -> bytes:
    tail = encode_tail(Tail(origin, 1, 1, [origin], True, []))
    body = encode_runs([Run("ping", 1, sequence, [payload])])
    return encode_bundle_header(0, hop, sequence, 0, 0, tail) + body


async def arrives(sender: zmq.SyncSocket) -> list[bytes]:
    """The next message a dealer gets."""
    await until(lambda: sender.poll(0), "an answer")
    return sender.recv_multipart()


GARBAGE: dict[str, tuple[list[bytes], str]] = {
    "an empty frame": ([b""], "malformed"),
    "one byte": ([b"\x01"], "malformed"),
    "another version": ([b"\x07\x02abc"], "version"),
    "noise": ([os.urandom(1000).replace(b"\x01", b"\x02")], "version"),
    "a truncated hello": ([hello("eve")[:-3]], "malformed"),
    "a hello of two frames": ([hello("eve"), b""], "malformed"),
    "a hello without a name": ([hello("")], "malformed"),
    "a hello of a king": ([hello("eve", role="king")], "malformed"),
    "data before the hello": ([bundle(0, 0)], "no_session"),
    "an unknown kind": ([b"\x01\xee"], "no_session"),
}


@pytest.mark.parametrize("what", GARBAGE)
def test_before_the_hello_it_is_dropped_and_counted(what: str) -> None:
    frames, reason = GARBAGE[what]

    async def scenario() -> None:
        async with scene() as played:
            with dealer(played.address) as eve:
                for _ in range(20):
                    eve.send_multipart(frames)
                await played.until_dropped(reason, 20)
                await played.serve_well()

    run(scenario())


AFTER_HELLO: dict[str, tuple[list[bytes], str]] = {
    "an empty frame": ([b""], "malformed"),
    "an unknown kind": ([b"\x01\xee"], "version"),
    "a bundle's head alone": ([bundle(0, 0)[:20]], "malformed"),
    "a truncated bundle": ([bundle(0, 0)[:-4]], "malformed"),
    "a tail beyond its frame": ([bundle(0, 0)[:4] + b"\xff\xff\xff\xff" + bundle(0, 0)[8:]], "malformed"),
    "in another's name": ([bundle(0, 0, origin="good")], "conflict"),
    "truncated records": ([b"\x01\x05\x91\x91"], "malformed"),
    "control of several frames": ([b"\x01\x05", b"x"], "malformed"),
    "a short probe": ([b"\x01\x03\x00"], "malformed"),
}


@pytest.mark.parametrize("what", AFTER_HELLO)
def test_after_the_hello_it_is_dropped_and_counted(what: str) -> None:
    frames, reason = AFTER_HELLO[what]

    async def scenario() -> None:
        async with scene() as played:
            with dealer(played.address) as eve:
                eve.send(hello("eve"))
                assert (await arrives(eve))[0][:2] == bytes((1, Kind.HELLO))
                for _ in range(20):
                    eve.send_multipart(frames)
                await played.until_dropped(reason)
                eve.send(encode_control(Kind.BYE))
                await played.serve_well()
                await until(lambda: neighbours(played.victim) == ["good"], "eve is gone")

    run(scenario())


def test_replayed_bundles_are_delivered_once() -> None:
    async def scenario() -> None:
        async with scene() as played, played.victim.subscribe("ping") as pings:
            said_hello, said = hello("eve"), [bundle(n, n, payload=f"eve {n}") for n in range(10)]
            for attempt in range(3):
                with dealer(played.address) as eve:
                    eve.send(said_hello)
                    await arrives(eve)
                    for frame in said * 2:
                        eve.send(frame)
                    await played.until_dropped("replayed", 10 * (attempt + 1))
                    await played.until_dropped("duplicate", 10 * attempt)
                await until(lambda: neighbours(played.victim) == ["good"], "eve is gone")
            got = []
            while (message := pings.receive_nowait()) is not None:
                got.append(message.payload)
            assert [payload for payload in got if str(payload).startswith("eve")] == [
                f"eve {n}" for n in range(10)
            ]
            for _ in range(10):  # what eve said was answered, too
                await played._echoes.receive(timeout=WAIT_S)

    run(scenario())


def test_a_bundle_too_large_is_counted_and_one_beyond_the_frame_limit_cuts_the_connection() -> None:
    async def scenario() -> None:
        async with scene() as played:
            with dealer(played.address) as eve:
                eve.send(hello("eve"))
                await arrives(eve)
                eve.send(
                    bundle(0, 0, payload=bytes(CONFIG.payload_max_bytes + CONFIG.bundle_max_bytes + 300_000))
                )
                await played.until_dropped("oversized")
                assert "eve" in neighbours(played.victim)
                eve.send(bytes(FRAME_MAX_BYTES + 1))
                await until(lambda: neighbours(played.victim) == ["good"], "eve is cut off")
                await played.serve_well()

    run(scenario())


@pytest.mark.parametrize("frames", [3000, 20_000])
def test_thousands_of_tiny_frames_in_one_message_are_dropped(frames: int) -> None:
    async def scenario() -> None:
        async with scene() as played:
            with dealer(played.address) as eve:
                eve.send(hello("eve"))
                await arrives(eve)
                head = bundle(0, 0)[:-4]
                for hop in range(3):
                    eve.send_multipart([bundle(hop, hop)[: len(head)], *([b"z"] * frames)])
                await played.until_dropped("malformed", 3)
                await played.serve_well()
                eve.send(encode_control(Kind.BYE))

    run(scenario())


MUTES: dict[str, list[bytes]] = {
    "that never finish the greeting": [b"", b"\xff" + bytes(7) + b"\x01\x7f", b"\xff" + bytes(20), GREETING],
    "of another protocol": [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01" + bytes(60),
        b"\x70" + bytes(63),
    ],
}


@pytest.mark.parametrize("what", MUTES)
def test_connections_are_closed_and_hurt_nobody(what: str) -> None:
    async def scenario() -> None:
        async with scene() as played, contextlib.AsyncExitStack() as stack:
            host, port = played.address.removeprefix("tcp://").split(":")
            mutes = []
            for number in range(200):
                mute = stack.enter_context(contextlib.closing(socket.create_connection((host, int(port)))))
                mute.setblocking(False)
                mute.send(MUTES[what][number % len(MUTES[what])])
                mutes.append(mute)
            await played.serve_well()
            assert neighbours(played.victim) == ["good"]
            async with Peer("late", join=played.address, config=CONFIG) as late:
                await late.wait_for_links(timeout=WAIT_S)
            await until(lambda: all(map(is_closed, mutes)), "the victim hung up on all", HANG_UP_MAX_S)

    run(scenario())


def test_connections_that_greet_and_then_say_nothing_are_closed() -> None:
    async def scenario() -> None:
        async with scene() as played:
            with zmq.Context() as context:
                watched = []
                for _ in range(50):
                    eve = context.socket(zmq.DEALER)
                    watched.append((eve, eve.get_monitor_socket(zmq.EVENT_DISCONNECTED)))
                    eve.connect(played.address)
                try:
                    closed = lambda: all(monitor.poll(0) for _, monitor in watched)  # noqa: E731
                    await until(closed, "the victim hung up on all", HANG_UP_MAX_S)
                finally:
                    for eve, _ in watched:
                        eve.disable_monitor()
                    context.destroy(linger=0)

    run(scenario())


def test_no_more_connections_without_a_hello_than_configured_count_as_links() -> None:
    async def scenario() -> None:
        config = CONFIG.replace(links_opening_max=8)
        async with scene(config) as played:
            node = played.victim._running().node
            most = 0
            with zmq.Context() as context:
                eves = []
                for _ in range(60):
                    eve = context.socket(zmq.DEALER)
                    eve.setsockopt(zmq.LINGER, 0)
                    eve.connect(played.address)
                    eve.send(b"\x01\x07not a hello")
                    eves.append(eve)
                ends = time.monotonic() + 1.0
                while time.monotonic() < ends:
                    most = max(most, node.links.opening_count())
                    assert await played.round_trip() < LATENCY_MAX_S
                assert 0 < most <= 8
                assert dropped(played.victim)["table_full"] >= 52
                async with Peer("late", join=played.address, config=config) as late:
                    await late.wait_for_links(timeout=WAIT_S)
                context.destroy(linger=0)
            await until(lambda: node.links.opening_count() == 0, "all are forgotten")

    run(scenario())


def test_a_dealer_that_speaks_in_the_name_of_another_is_refused_or_soon_forgotten() -> None:
    async def scenario() -> None:
        async with scene() as played:
            epoch = played.good._running().node.identity.epoch
            with dealer(played.address) as eve:
                eve.send(hello("good", epoch=epoch - 1))
                assert (await arrives(eve))[0][:2] == bytes((1, Kind.BYE))
                await played.serve_well()
            with dealer(played.address) as eve:
                eve.send(hello("victim", epoch=epoch))
                assert (await arrives(eve))[0][:2] == bytes((1, Kind.BYE))
                await played.until_dropped("conflict")
                await played.serve_well()
            with dealer(played.address) as eve:
                eve.send(
                    hello("good", epoch=epoch + 1)
                )  # nothing tells it from a restart, until it is silent
                await arrives(eve)
            started = time.monotonic()
            while True:
                with contextlib.suppress(TimeoutError):
                    played._sent += 1
                    await played._pings.put(played._sent)
                    while (await played._echoes.receive(timeout=0.2)).payload != played._sent:
                        pass  # what was repaired comes late
                    break
                assert time.monotonic() - started < WAIT_S
            assert neighbours(played.victim) == ["good"]

    run(scenario())


FLOODS: dict[str, Callable[[int], list[bytes]]] = {
    "of one hello": lambda _: [hello("eve")],
    "of many hellos": lambda number: [hello(f"eve{number}", epoch=number)],
    "of noise": lambda _: [os.urandom(100)],
    "of inspections": lambda number: [encode_control(Kind.INSPECT) + b"\x91\x01"],
    "of records": lambda number: [
        b"\x01\x05\x91\x91\x97\xa1z" + b"\x01\x02" + bytes((number % 100,)) + b"\xc4\x01\x90\xc4\x00\x00"
    ],
}


@pytest.mark.parametrize("what", FLOODS)
def test_a_flood(what: str) -> None:
    async def scenario() -> None:
        async with scene() as played:
            with dealer(played.address) as eve:
                eve.send(hello("eve"))
                await arrives(eve)
                worst = 0.0
                for number in range(20_000):
                    with contextlib.suppress(zmq.Again):
                        eve.send_multipart(FLOODS[what](number), zmq.NOBLOCK)
                    if number % 500 == 0:
                        worst = max(worst, await played.round_trip())
                    if number % 50 == 0:
                        while eve.poll(0):
                            eve.recv_multipart()
                        await asyncio.sleep(0)
                assert worst < LATENCY_MAX_S
            await until(lambda: neighbours(played.victim) == ["good"], "eve is gone")

    run(scenario())


def test_connections_that_come_and_go_leave_nothing_behind() -> None:
    async def scenario() -> None:
        async with scene() as played:
            wiring = played.victim._running().wiring
            for number in range(100):
                with dealer(played.address) as eve:
                    eve.send(hello(f"eve{number % 3}", epoch=number + 1))
                    if number % 2:
                        await arrives(eve)
                if number % 10 == 0:
                    assert await played.round_trip() < LATENCY_MAX_S
            await until(lambda: neighbours(played.victim) == ["good"], "all are gone")
            await until(lambda: len(wiring._connections) == 1, "no connection is kept")
            assert len(wiring._by_fd) == 1

    run(scenario())
