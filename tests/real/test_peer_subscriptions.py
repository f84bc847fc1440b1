"""Subscriptions on real sockets: callbacks, overflow policies, many patterns, and their end."""

import asyncio
import sys
import time
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from anabranch import ClosedError, Config, Message, Overflow, Peer, UsageError
from anabranch.transport.loops import run
from anabranch.transport.subscription import BLOCK_MAX_S

sys.path.insert(0, str(Path(__file__).parent))
from support_peers import WAIT_S, pair, take, until


@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])
def test_a_callback_gets_every_message_one_at_a_time_and_in_order(is_async: bool) -> None:
    async def scenario() -> None:
        got: list[object] = []
        running = 0
        complete = asyncio.Event()

        def note(message: Message) -> None:
            got.append(message.payload)
            if len(got) == 100:
                complete.set()

        async def note_later(message: Message) -> None:
            nonlocal running
            running += 1
            assert running == 1
            await asyncio.sleep(0)
            note(message)
            running -= 1

        async with pair() as (a, b):
            b.subscribe("t", callback=note_later if is_async else note)
            await a.wait_for_subscribers("t", timeout=WAIT_S)
            publisher = await a.publisher("t")
            for number in range(100):
                await publisher.put(number)
            await asyncio.wait_for(complete.wait(), WAIT_S)
            assert got == list(range(100))
            assert b.counters["callback_errors"] == 0

    run(scenario())


@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])
def test_a_failing_callback_is_counted_and_logged_and_called_again(is_async: bool) -> None:
    async def scenario() -> None:
        complete = asyncio.Event()

        def fail(message: Message) -> None:
            if message.payload == "last":
                complete.set()
            else:
                raise ValueError(f"cannot do {message.payload}")

        async def fail_later(message: Message) -> None:
            await asyncio.sleep(0)
            fail(message)

        async with pair() as (a, b):
            b.subscribe("t", callback=fail_later if is_async else fail)
            await a.wait_for_subscribers("t", timeout=WAIT_S)
            for payload in ("one", "two", "last"):
                await a.put("t", payload)
            await asyncio.wait_for(complete.wait(), WAIT_S)
            assert b.counters["callback_errors"] == 2
            assert a.counters["callback_errors"] == 0

    with capture_logs() as logs:
        run(scenario())
    failures = [entry for entry in logs if entry["event"] == "callback failed"]
    assert [(entry["pattern"], entry["topic"], entry["exc_info"]) for entry in failures] == [
        ("t", "t", True)
    ] * 2


def test_a_callback_may_publish_and_may_close_its_own_subscription() -> None:
    async def scenario() -> None:
        async with pair() as (a, b), a.subscribe("pong") as pongs:

            async def answer(message: Message) -> None:
                await b.put("pong", message.payload)
                pings.close()

            pings = b.subscribe("ping", callback=answer)
            await a.wait_for_subscribers("ping", timeout=WAIT_S)
            await a.put("ping", 1)
            assert (await pongs.receive(timeout=WAIT_S)).payload == 1
            await until(lambda: not a.subscribers("ping"), "the subscription's end is known")

    run(scenario())


OVERFLOWS = {
    "drop_oldest": (list(range(90, 100)), 90),
    "drop_newest": (list(range(10)), 90),
}


@pytest.mark.parametrize("policy", OVERFLOWS)
def test_a_full_subscription_drops_by_its_policy_and_counts(policy: str) -> None:
    async def scenario() -> None:
        kept, lost = OVERFLOWS[policy]
        async with pair() as (a, b):
            full = b.subscribe("t", queue_max=10, overflow=policy)
            roomy = b.subscribe("t")
            await a.wait_for_subscribers("t", timeout=WAIT_S)
            publisher = await a.publisher("t")
            for number in range(100):
                await publisher.put(number)
                if number % 7 == 0:
                    await asyncio.sleep(0)
            await until(lambda: roomy.pending == 100, "all arrived")
            assert (full.pending, full.dropped) == (10, lost)
            assert b.counters["dropped.subscription_full"] == lost
            assert [message.payload for message in await take(full, 10)] == kept
            assert full.receive_nowait() is None
            assert roomy.dropped == 0
            assert len(await take(roomy, 100)) == 100

    run(scenario())


def test_a_blocking_subscription_that_nobody_reads_drops_the_newest_beyond_twice_its_queue() -> None:
    async def scenario() -> None:
        async with pair() as (a, b):
            full = b.subscribe("t", queue_max=10, overflow=Overflow.BLOCK)
            roomy = b.subscribe("t")
            await a.wait_for_subscribers("t", timeout=WAIT_S)
            publisher = await a.publisher("t", overflow="drop_newest")
            for number in range(15):
                await publisher.put(number)
            await until(lambda: roomy.pending == 15, "the first arrived")
            assert (full.pending, full.dropped) == (15, 0), "what fills it is taken"
            over_at = full._blocked_at + BLOCK_MAX_S
            await until(lambda: time.monotonic() > over_at, "the application took nothing for long enough")
            for number in range(15, 100):
                await publisher.put(number)
                await asyncio.sleep(0)
            await until(lambda: roomy.pending == 100, "all arrived, after a pause")
            assert full.pending == 20
            assert full.dropped == b.counters["dropped.subscription_full"] == 80
            kept = [message.payload for message in await take(full, 20)]
            assert kept == list(range(20))

    run(scenario())


@pytest.mark.parametrize("word", ["drop", "", "BLOCK", 3])
def test_an_unknown_overflow_policy_names_the_known_ones(word: object) -> None:
    async def scenario() -> None:
        async with Peer("a") as a:
            with pytest.raises(UsageError, match="one of drop_oldest, drop_newest, block"):
                a.subscribe("t", overflow=word)  # type: ignore[arg-type]
            with pytest.raises(UsageError, match="one of drop_oldest, drop_newest, block"):
                await a.publisher("t", overflow=word)  # type: ignore[arg-type]
            with pytest.raises(UsageError, match="queue_max = 0"):
                a.subscribe("t", queue_max=0)
            assert a.subscribers("t") == (), "a refused subscription leaves nothing behind"

    run(scenario())


def test_a_closed_subscription_gets_nothing_more_and_the_mesh_hears_of_it() -> None:
    async def scenario() -> None:
        async with pair() as (a, b), b.subscribe("t") as kept:
            ended = b.subscribe("t")
            only = b.subscribe("u")
            await a.wait_for_subscribers("u", timeout=WAIT_S)
            await a.put("t", 1)
            await kept.receive(timeout=WAIT_S)
            ended.close()
            ended.close()
            only.close()
            await until(lambda: not a.subscribers("u"), "nobody wants u")
            await a.put("t", 2)
            await kept.receive(timeout=WAIT_S)
            assert (await ended.receive()).payload == 1, "what waited can still be read"
            with pytest.raises(ClosedError, match="subscription to 't' is closed"):
                await ended.receive()
            await a.put("u", 3)
            assert a.counters["published_unwanted"] == 1
            assert only.receive_nowait() is None

    run(scenario())


def test_an_iteration_ends_with_its_subscription_and_with_its_peer() -> None:
    async def scenario() -> None:
        async with pair() as (a, b):
            first, second = b.subscribe("t"), b.subscribe("t")
            reading = [asyncio.create_task(read_all(s)) for s in (first, second)]
            await a.wait_for_subscribers("t", timeout=WAIT_S)
            await a.put("t", 1)
            await until(lambda: b.counters["delivered"] and not first.pending + second.pending, "read")
            first.close()
            assert await asyncio.wait_for(reading[0], WAIT_S) == [1]
            assert not reading[1].done()
            await b.close()
            assert await asyncio.wait_for(reading[1], WAIT_S) == [1]

    run(scenario())


def test_leaving_an_iteration_keeps_the_rest_for_the_next() -> None:
    async def scenario() -> None:
        async with Peer("a") as a, a.subscribe("t") as numbers:
            for number in range(10):
                await a.put("t", number)
            got = []
            for stop_at in (3, 4, 9):
                async for message in numbers:
                    got.append(message.payload)
                    if message.payload == stop_at:
                        break
            assert got == list(range(10))

    run(scenario())


def test_two_readers_of_one_subscription_are_refused() -> None:
    async def scenario() -> None:
        async with Peer("a") as a, a.subscribe("t") as numbers:
            reading = asyncio.create_task(numbers.receive())
            await asyncio.sleep(0)
            with pytest.raises(UsageError, match="read twice at a time"):
                await numbers.receive()
            await a.put("t", 1)
            assert (await reading).payload == 1
            with pytest.raises(TimeoutError):
                await numbers.receive(timeout=0.01)
            await a.put("t", 2)
            assert (await numbers.receive()).payload == 2, "a reader that gave up is no reader"

    run(scenario())


def test_many_patterns_and_each_message_once_per_subscription() -> None:
    async def scenario() -> None:
        async with pair() as (a, b):
            exact = [b.subscribe(f"n/{number}") for number in range(300)]
            wide = [b.subscribe(pattern) for pattern in ("n/*", "**", "*/7", "n/**")]
            same = b.subscribe("n/7")
            await a.wait_for_subscribers("n/299", timeout=WAIT_S)
            await a.wait_for_subscribers("elsewhere", timeout=WAIT_S)
            for number in range(300):
                await a.put(f"n/{number}", number)
            await until(lambda: wide[1].pending == 300, "all arrived")
            assert [subscription.pending for subscription in exact] == [1] * 300
            assert [subscription.pending for subscription in wide] == [300, 300, 1, 300]
            assert (await same.receive()).payload == 7
            assert same.pending == 0
            assert b.counters["delivered"] == 300, "one copy travels, however many want it"

    run(scenario())


def test_more_subscriptions_or_publishers_than_configured_are_refused_with_the_setting() -> None:
    async def scenario() -> None:
        config = Config(subscriptions_max=2, publishers_max=2, patterns_max=1)
        async with Peer("a", config=config) as a:
            first = a.subscribe("t")
            with pytest.raises(UsageError, match="patterns_max = 1"):
                a.subscribe("u")
            a.subscribe("t")
            with pytest.raises(UsageError, match="raise subscriptions_max"):
                a.subscribe("t")
            first.close()
            a.subscribe("t")
            publisher = await a.publisher("t")
            await a.publisher("u")
            with pytest.raises(UsageError, match="raise publishers_max"):
                await a.publisher("v")
            publisher.close()
            await a.publisher("v")

    run(scenario())


@pytest.mark.parametrize("pattern", ["", "/", "a//b", "a/b*", "***", "x" * 256])
def test_a_malformed_pattern_names_itself(pattern: str) -> None:
    async def scenario() -> None:
        async with Peer("a") as a:
            with pytest.raises(UsageError, match="pattern"):
                a.subscribe(pattern)

    run(scenario())


async def read_all(subscription: object) -> list[object]:
    return [message.payload async for message in subscription]  # type: ignore[attr-defined]
