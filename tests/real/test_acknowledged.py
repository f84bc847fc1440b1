"""Acknowledged publishers on real sockets: receipts, full queues, dead receivers, threads."""

import asyncio
import contextlib
import sys
from pathlib import Path

import pytest

from anabranch import AssuredPublisher, Client, Config, LimitError, Peer, UsageError, blocking
from anabranch.transport.loops import run

sys.path.insert(0, str(Path(__file__).parent))
from support_peers import CHAIN, WAIT_S, child, line, pair, take


async def acknowledged(peer: Peer, topic: str, **options: object) -> AssuredPublisher:
    publisher = await peer.publisher(topic, guarantee="acknowledged", **options)  # type: ignore[arg-type]
    assert isinstance(publisher, AssuredPublisher)
    return publisher


def test_every_receiver_confirms_over_a_relay_large_payloads_too() -> None:
    async def scenario() -> None:
        async with line("a", "b", "c") as (a, b, c), b.subscribe("t") as near, c.subscribe("t") as far:
            await a.wait_for_subscribers("t", 2, timeout=WAIT_S)
            publisher = await acknowledged(a, "t")
            first = await publisher.put({"n": 1})
            outcome = await first.confirmed(WAIT_S)
            assert (outcome.complete, outcome.confirmed, outcome.missing) == (True, ("b", "c"), {})
            big = bytes(range(256)) * 1024
            receipts = [await publisher.put(payload) for payload in (b"x", big, [big], None)]
            assert (await publisher.confirmed(WAIT_S)).complete
            assert all(receipt.outcome().complete for receipt in receipts)
            for inbox in (near, far):
                got = [message.payload for message in await take(inbox, 5)]
                assert got == [{"n": 1}, b"x", big, [big], None]

    run(scenario())


def test_a_full_queue_holds_messages_back_and_loses_none() -> None:
    async def scenario() -> None:
        async with pair() as (a, b), b.subscribe("t", queue_max=100, overflow="drop_oldest") as inbox:
            await a.wait_for_subscribers("t", timeout=WAIT_S)
            publisher = await acknowledged(a, "t")
            for number in range(1000):
                await publisher.put(number)
            outcome = await publisher.confirmed(0.3)
            assert not outcome.complete
            assert set(outcome.missing) == {"b"}
            assert [message.payload for message in await take(inbox, 1000)] == list(range(1000))
            assert (await publisher.confirmed(WAIT_S)).missing == {}
            assert inbox.dropped == 0

    run(scenario())


def test_a_killed_receiver_is_named_and_nothing_is_confirmed_in_its_name() -> None:
    async def scenario() -> None:
        config = Config.local(confirm_limit_s=1.5)
        async with contextlib.AsyncExitStack() as stack:
            a, b = await stack.enter_async_context(pair(config))
            victim = await stack.enter_async_context(child("victim", join=a.addresses, subscribe="t"))
            async with b.subscribe("t"):
                await a.wait_for_subscribers("t", 2, timeout=WAIT_S)
                publisher = await acknowledged(a, "t")
                receipt = await publisher.put(b"both live")
                assert (await receipt.confirmed(WAIT_S)).confirmed == ("b", "victim")
                await victim.kill()
                receipt = await publisher.put(b"one lives")
                outcome = await receipt.confirmed(WAIT_S)
                assert outcome.confirmed == ("b",)
                assert set(outcome.missing) == {"victim"}
                assert outcome.missing["victim"] in ("unreached", "silent")

    run(scenario())


def test_nobody_there_is_not_a_confirmation() -> None:
    async def scenario() -> None:
        async with pair() as (a, _):
            publisher = await acknowledged(a, "t")
            outcome = await (await publisher.put(b"x")).confirmed(WAIT_S)
            assert (outcome.complete, outcome.confirmed, outcome.missing) == (False, (), {})

    run(scenario())


def test_light_clients_publish_and_confirm() -> None:
    async def scenario() -> None:
        async with contextlib.AsyncExitStack() as stack:
            a, b = await stack.enter_async_context(line("a", "b"))
            x = await stack.enter_async_context(Client("x", join=a.addresses, config=CHAIN))
            y = await stack.enter_async_context(Client("y", join=b.addresses, config=CHAIN))
            async with y.subscribe("t") as inbox:
                await x.wait_for_subscribers("t", timeout=WAIT_S)
                publisher = await acknowledged(x, "t")
                for number in range(50):
                    await publisher.put(number)
                assert (await publisher.confirmed(WAIT_S)).confirmed == ("y",)
                assert [message.payload for message in await take(inbox, 50)] == list(range(50))

    run(scenario())


def test_too_much_unconfirmed_makes_put_wait_or_raise() -> None:
    async def scenario() -> None:
        config = Config.local(unconfirmed_max_bytes=20_000)
        async with pair(config) as (a, b), b.subscribe("t", queue_max=1) as inbox:
            await a.wait_for_subscribers("t", timeout=WAIT_S)
            refusing = await acknowledged(a, "t", overflow="drop_newest")
            with pytest.raises(LimitError, match="unconfirmed_max_bytes = 20000"):
                await _put_many(refusing, 100)
            assert refusing.put_nowait(b"x") is False
            waiting = await acknowledged(a, "t")
            task = asyncio.create_task(_put_many(waiting, 60))
            taken = await asyncio.wait_for(_take_until(inbox, task), WAIT_S)
            assert taken >= 40
            with pytest.raises(UsageError, match=r"guarantee = 'surely': one of best_effort"):
                await a.publisher("t", guarantee="surely")

    run(scenario())


async def _put_many(publisher: AssuredPublisher, count: int) -> None:
    for _ in range(count):
        await publisher.put(bytes(1000))


async def _take_until(inbox, task) -> int:  # type: ignore[no-untyped-def]
    taken = 0
    while not task.done():
        await inbox.receive(timeout=WAIT_S)
        taken += 1
    return taken


def test_blocking_programs_get_receipts_too() -> None:
    with (
        blocking.Peer("a", listen="tcp://127.0.0.1:0") as a,
        blocking.Peer("b", join=a.addresses) as b,
        b.subscribe("t") as inbox,
    ):
        a.wait_for_subscribers("t", timeout=WAIT_S)
        with a.publisher("t", guarantee="acknowledged") as publisher:
            assert isinstance(publisher, blocking.AssuredPublisher)
            receipt = publisher.put({"n": 1})
            assert receipt.confirmed(timeout=WAIT_S).complete
            publisher.put(b"two")
            assert publisher.confirmed(timeout=WAIT_S).confirmed == ("b",)
        assert [inbox.receive(timeout=WAIT_S).payload for _ in range(2)] == [{"n": 1}, b"two"]
