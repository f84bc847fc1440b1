"""Back pressure: who waits, who is dropped, who is left in peace when one peer does not keep up."""

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from anabranch import Config, Peer, Publisher
from anabranch.transport.loops import run

sys.path.insert(0, str(Path(__file__).parent))
from support_peers import CHAIN, LOCAL, WAIT_S, Child, child, dropped, neighbours, pair, resident_bytes, take

pytestmark = pytest.mark.alone
MIB = 1024 * 1024
NO_MESH = {"neighbours_target": 0}


@asynccontextmanager
async def publisher_and_sink(is_relayed: bool, **sink: object) -> AsyncIterator[tuple[Peer, Child]]:
    """A peer of this process, and a subscriber in another: next to it, or behind a relay in a third."""
    async with AsyncExitStack() as stack:
        source = await stack.enter_async_context(Peer("source", listen=LOCAL, config=CHAIN))
        join = source.addresses
        if is_relayed:
            relay = child("relay", listen=LOCAL, join=join, config=NO_MESH)
            join = (await stack.enter_async_context(relay)).addresses
        receiver = await stack.enter_async_context(
            child("sink", join=join, subscribe="t", config=NO_MESH, **sink)
        )
        await source.wait_for_subscribers("t", timeout=WAIT_S)
        yield source, receiver


@pytest.mark.parametrize("size", [256, 4096])
@pytest.mark.parametrize("is_relayed", [False, True], ids=["direct", "relayed"])
def test_a_blocked_publisher_loses_nothing_to_a_slow_blocking_subscriber(is_relayed: bool, size: int) -> None:
    async def scenario() -> None:
        count, per_second = 15_000, 10_000
        slow = {"overflow": "block", "queue_max": 1000, "pause_s": 0.01, "pause_every": per_second // 100}
        async with publisher_and_sink(is_relayed, **slow) as (source, sink):
            publisher = await source.publisher("t")
            started = time.monotonic()
            for _ in range(count):
                await publisher.put(bytes(size))
            took = time.monotonic() - started
            answer = await sink.until_received(count)
            assert (answer["received"], answer["missing"], answer["disordered"]) == (count, 0, 0), answer
            assert "subscription_full" not in answer
            assert dropped(source) == {}
            if size == 4096:
                if not is_relayed:  # a relay's sockets hold as much again
                    assert took > 0.2 * count / per_second, "60 MB are more than sockets hold"
                assert source.counters["congestion_notices"] > 0

    run(scenario())


def test_a_put_that_fills_a_bundle_lets_the_loop_go_on_even_when_no_link_holds_it_back() -> None:
    async def scenario() -> None:
        async with pair() as (a, b), b.subscribe("t"):
            await a.wait_for_subscribers("t", timeout=WAIT_S)
            publisher = await a.publisher("t")
            shell = a._running()
            turns: list[int] = []
            for number in range(3):
                # What the room remembers of a link that stalled since: congested, but not lacking room.
                shell.wiring.room.congested.update(link.id for link in shell.node.links)
                asyncio.get_running_loop().call_soon(turns.append, number)
                await publisher.put(bytes(300_000))
            assert turns == [0, 1, 2]

    run(scenario())


def test_a_burst_larger_than_a_blocking_subscription_loses_nothing() -> None:
    async def scenario() -> None:
        count = 1500
        slow = {"overflow": "block", "queue_max": 100, "pause_s": 0.001}
        async with publisher_and_sink(False, **slow) as (source, sink):
            publisher = await source.publisher("t")
            for number in range(count):
                await publisher.put(number.to_bytes(4, "big") * 16)
            answer = await sink.until_received(count)
            assert (answer["received"], answer["missing"], answer["disordered"]) == (count, 0, 0), answer

    run(scenario())


@pytest.mark.parametrize("is_relayed", [False, True], ids=["direct", "relayed"])
def test_a_fast_publisher_that_blocks_loses_nothing_and_memory_stays_bounded(is_relayed: bool) -> None:
    async def scenario() -> None:
        count, size = 4000, 64 * 1024
        async with publisher_and_sink(is_relayed, overflow="block") as (source, sink):
            publisher = await source.publisher("t")
            before = resident_bytes(), resident_bytes(sink.pid)
            peak = 0
            for number in range(count):
                await publisher.put(bytes(size))
                if number % 64 == 0:
                    peak = max(peak, resident_bytes() - before[0])
            answer = await sink.until_received(count)
            assert (answer["missing"], answer["disordered"]) == (0, 0), answer
            assert dropped(source) == {}
            assert peak < 100 * MIB, "a quarter of a gigabyte passed"

    run(scenario())


def test_a_publisher_that_does_not_block_never_waits_and_counts_what_found_no_room() -> None:
    """Checked with a queue without a limit."""

    async def scenario() -> None:
        async with publisher_and_sink(False) as (source, sink):
            sink.stop()
            publisher = await source.publisher("t", overflow="drop_newest")
            longest = 0.0
            count = 300
            for _ in range(count):
                started = time.monotonic()
                await publisher.put(bytes(256 * 1024))
                longest = max(longest, time.monotonic() - started)
            assert longest < 0.5
            lost = dropped(source)["queue_full"]
            assert lost > 0
            queue = source.config.link_queue_max_bytes // (256 * 1024)
            assert count - lost <= queue + 64, (
                "what was kept is bounded by the queue and small socket buffers"
            )
            sink.resume()
            answer = await sink.until_received(count - lost)
            assert answer["disordered"] == 0

    run(scenario())


def test_put_nowait_tells_that_a_link_is_congested() -> None:
    async def scenario() -> None:
        async with publisher_and_sink(False) as (source, sink):
            publisher = await source.publisher("t")
            assert publisher.put_nowait(b"x")
            sink.stop()
            answers = []
            for _ in range(60):
                answers.append(publisher.put_nowait(bytes(256 * 1024)))
                await asyncio.sleep(0)
            assert not all(answers)
            sink.resume()
            assert (await sink.until_received(61))["missing"] == 0

    run(scenario())


def test_a_peer_that_stands_still_does_not_slow_the_others_and_receives_again_when_it_goes_on() -> None:
    """Checked with links that hold publishers back however long they take nothing (`is_lacking`)."""

    async def scenario() -> None:
        async with (
            Peer("source", listen=LOCAL, config=Config.local(neighbours_target=0)) as source,
            child("frozen", join=source.addresses, subscribe="t", config=NO_MESH) as frozen,
            child("lively", join=source.addresses, subscribe="t", config=NO_MESH) as lively,
        ):
            await source.wait_for_subscribers("t", 2, timeout=WAIT_S)
            publisher = await source.publisher("t")
            before = await rate(publisher, lively, 1.0)
            frozen.stop()
            during = [await rate(publisher, lively, 0.5) for _ in range(5)]
            frozen.resume()
            assert max(during) > 0.5 * before, (before, during)
            assert sorted(during)[2] > 0.4 * before, (before, during)
            lively_answer = await lively.ask()
            assert (lively_answer["missing"], lively_answer["disordered"]) == (0, 0)
            await source.wait_for_subscribers("t", 2, timeout=WAIT_S)
            had = (await frozen.ask())["received"]
            for _ in range(100):
                await publisher.put(bytes(1024))
            await frozen.until_received(had + 100)

    run(scenario())


def test_a_publisher_that_blocks_is_not_held_for_long_by_a_peer_that_stands_still() -> None:
    async def scenario() -> None:
        async with publisher_and_sink(False, overflow="block") as (source, sink):
            publisher = await source.publisher("t")
            sink.stop()
            longest = 0.0
            ends = time.monotonic() + WAIT_S
            while time.monotonic() < ends and neighbours(source):
                started = time.monotonic()
                await publisher.put(bytes(64 * 1024))
                longest = max(longest, time.monotonic() - started)
            sink.resume()
            assert longest < 1.0
            assert neighbours(source) == [], "it is given up, and nobody waits for it"

    run(scenario())


def test_one_slow_blocking_subscription_keeps_its_messages_next_to_a_quick_one() -> None:
    async def scenario() -> None:
        async with pair() as (a, b):
            slow = b.subscribe("t", queue_max=100, overflow="block")
            quick = b.subscribe("t", queue_max=100, overflow="block")
            await a.wait_for_subscribers("t", timeout=WAIT_S)
            publisher = await a.publisher("t")

            async def read_slowly() -> list[object]:
                payloads = []
                while len(payloads) + slow.dropped < 1000:
                    payloads.append((await slow.receive(timeout=WAIT_S)).payload)
                    await asyncio.sleep(0.001)
                return payloads

            async def read_quickly() -> int:
                count = 0
                async for _ in quick:
                    count += 1
                    if count + quick.dropped == 1000:
                        break
                return count

            reading = asyncio.gather(read_slowly(), read_quickly())
            for number in range(1000):
                await publisher.put(number)
            slowly, quickly = await asyncio.wait_for(reading, WAIT_S)
            assert (quickly, quick.dropped) == (1000, 0)
            assert (len(slowly), slow.dropped) == (1000, 0)

    run(scenario())


def test_own_blocking_subscription_slows_its_own_publisher() -> None:
    async def scenario() -> None:
        async with Peer("a") as a:
            own = a.subscribe("t", queue_max=100, overflow="block")
            publisher = await a.publisher("t")

            async def read_slowly() -> list[object]:
                payloads = []
                while len(payloads) + own.dropped < 1000:
                    payloads.append((await own.receive(timeout=WAIT_S)).payload)
                    await asyncio.sleep(0.001)
                return payloads

            reading = asyncio.create_task(read_slowly())
            for number in range(1000):
                await publisher.put(number)
            assert await asyncio.wait_for(reading, WAIT_S) == list(range(1000))
            assert own.dropped == 0

    run(scenario())


def test_light_clients_feel_back_pressure_too() -> None:
    async def scenario() -> None:
        count = 1000
        slow: dict[str, object] = {"overflow": "block", "queue_max": 100, "pause_s": 0.001}
        async with (
            Peer("hub", listen=LOCAL, config=CHAIN) as hub,
            child("sink", join=hub.addresses, subscribe="t", role="client", **slow) as sink,
        ):
            await hub.wait_for_subscribers("t", timeout=WAIT_S)
            publisher = await hub.publisher("t")
            for _ in range(count):
                await publisher.put(b"x")
            answer = await sink.until_received(count)
            assert answer["missing"] == 0
            assert dropped(hub) == {}

    run(scenario())


def test_small_messages_pass_a_link_that_was_congested_once_it_is_free_again() -> None:
    async def scenario() -> None:
        async with pair() as (a, b), b.subscribe("t") as topics:
            await a.wait_for_subscribers("t", timeout=WAIT_S)
            publisher = await a.publisher("t")
            for _ in range(200):
                await publisher.put(bytes(MIB))
            await take(topics, 200)
            await publisher.put(b"small")
            message = await topics.receive(timeout=WAIT_S)
            assert message.payload == b"small"
            assert message.age < 0.5
            assert dropped(a) == {}

    run(scenario())


async def rate(publisher: Publisher, sink: Child, seconds: float) -> float:
    """Messages per second that arrive at a sink while one publishes as fast as it can."""
    had = (await sink.ask())["received"]
    started = time.monotonic()
    while time.monotonic() < started + seconds:
        for _ in range(100):
            await publisher.put(bytes(1024))
    return ((await sink.ask())["received"] - had) / (time.monotonic() - started)
