"""Light clients: the API of a peer at one link, and another peer when theirs is gone."""

import asyncio
import contextlib
import sys
import time
from pathlib import Path

import pytest

from anabranch import Client, Config, Message, Peer, Subscription, UsageError
from anabranch.transport.loops import run

sys.path.insert(0, str(Path(__file__).parent))
from support_peers import CHAIN, LOCAL, WAIT_S, child, line, neighbours, take, until

MOVE_MAX_S = 4.0


def test_a_client_publishes_and_subscribes_through_its_peer() -> None:
    async def scenario() -> None:
        async with (
            line("a", "b", "c") as (a, _, c),
            Client("x", join=a.addresses) as x,
            Client("y", join=c.addresses) as y,
            c.subscribe("up") as up,
            x.subscribe("down") as down,
            y.subscribe("across") as across,
        ):
            await asyncio.gather(
                x.wait_for_subscribers("up", timeout=WAIT_S),
                x.wait_for_subscribers("across", timeout=WAIT_S),
                c.wait_for_subscribers("down", timeout=WAIT_S),
            )
            await x.put("up", {"n": 1})
            await c.put("down", bytes(100_000))
            await x.put("across", "hi")
            first, second, third = (
                await up.receive(timeout=WAIT_S),
                await down.receive(timeout=WAIT_S),
                await across.receive(timeout=WAIT_S),
            )
            assert (first.payload, first.path) == ({"n": 1}, ("x", "a", "b", "c"))
            assert (second.payload, second.path) == (bytes(100_000), ("c", "b", "a", "x"))
            assert (third.payload, third.path) == ("hi", ("x", "a", "b", "c", "y"))
            assert neighbours(x) == ["a"]

    run(scenario())


def test_a_client_has_callbacks_overflow_reports_and_own_delivery_as_peers_have() -> None:
    async def scenario() -> None:
        async with Peer("a", listen=LOCAL) as a, Client("x", join=a.addresses) as x:
            got: asyncio.Queue[Message] = asyncio.Queue()
            x.subscribe("t", callback=got.put_nowait)
            full = x.subscribe("t", queue_max=1, overflow="drop_newest")
            await a.wait_for_subscribers("t", timeout=WAIT_S)
            await a.put("t", 1)
            await x.put("t", 2)
            async with asyncio.timeout(WAIT_S):
                messages = [await got.get(), await got.get()]
            assert {(m.payload, m.origin) for m in messages} == {(1, "a"), (2, "x")}
            assert full.dropped == 1
            assert x.report()["role"] == "client"
            view = await x.inspect(timeout=WAIT_S)
            assert view["peer"] == "a"

    run(scenario())


def test_a_client_must_be_told_where_to_attach() -> None:
    with pytest.raises(UsageError, match="client 'x'"):
        Client("x", join=[])


def test_a_client_attaches_to_one_of_many_only() -> None:
    async def scenario() -> None:
        async with line("a", "b", "c") as peers:
            addresses = [peer.addresses[0] for peer in peers]
            async with Client("x", join=addresses) as x, x.subscribe("t"):
                await peers[2].wait_for_subscribers("t", timeout=WAIT_S)
                await asyncio.sleep(1.5)  # longer than the pause between two looks for neighbours
                assert len(neighbours(x)) == 1

    run(scenario())


@pytest.mark.parametrize("knows_both", [True, False], ids=["by join", "by what it heard"])
def test_a_client_moves_when_its_peer_is_closed_and_traffic_resumes_both_ways(knows_both: bool) -> None:
    async def scenario() -> None:
        config = Config.local()
        async with (
            Peer("b", listen=LOCAL, config=config) as b,
            Peer("a", listen=LOCAL, join=b.addresses, config=config) as a,
        ):
            join = [*a.addresses, *b.addresses] if knows_both else a.addresses
            async with (
                Client("x", join=join, config=config) as x,
                x.subscribe("down") as down,
                b.subscribe("up") as up,
            ):
                await x.wait_for_subscribers("up", timeout=WAIT_S)
                await b.wait_for_subscribers("down", timeout=WAIT_S)
                assert neighbours(x) == ["a"]
                await asyncio.sleep(1.2)  # a light client learns other addresses once a second
                await a.close()
                started = time.monotonic()
                await until(lambda: neighbours(x) == ["b"], "x moved to b")
                assert time.monotonic() - started < MOVE_MAX_S
                await check_traffic(x, b, up, down)

    run(scenario())


def test_a_client_moves_when_the_process_of_its_peer_is_killed() -> None:
    async def scenario() -> None:
        config = Config.local()
        async with (
            Peer("b", listen=LOCAL, config=config) as b,
            child("a", listen=LOCAL, join=b.addresses) as a,
            Client("x", join=[*a.addresses, *b.addresses], config=config) as x,
            x.subscribe("down") as down,
            b.subscribe("up") as up,
        ):
            await x.wait_for_subscribers("up", timeout=WAIT_S)
            await b.wait_for_subscribers("down", timeout=WAIT_S)
            assert neighbours(x) == ["a"]
            started = time.monotonic()
            await a.kill()
            await until(lambda: neighbours(x) == ["b"], "x moved to b")
            assert time.monotonic() - started < MOVE_MAX_S
            await check_traffic(x, b, up, down)

    run(scenario())


def test_a_client_moves_when_its_peer_stands_still() -> None:
    async def scenario() -> None:
        config = Config.local()
        async with (
            Peer("b", listen=LOCAL, config=config) as b,
            child("a", listen=LOCAL, join=b.addresses) as a,
            Client("x", join=[*a.addresses, *b.addresses], config=config) as x,
            x.subscribe("down") as down,
            b.subscribe("up") as up,
        ):
            await x.wait_for_subscribers("up", timeout=WAIT_S)
            started = time.monotonic()
            a.stop()
            await until(lambda: neighbours(x) == ["b"], "x moved to b")
            assert time.monotonic() - started < MOVE_MAX_S
            await check_traffic(x, b, up, down)

    run(scenario())


def test_order_holds_when_a_client_moves_while_it_publishes() -> None:
    async def scenario() -> None:
        config = Config.local()
        async with contextlib.AsyncExitStack() as stack:
            b = await stack.enter_async_context(Peer("b", listen=LOCAL, config=config))
            a = await stack.enter_async_context(Peer("a", listen=LOCAL, join=b.addresses, config=config))
            x = await stack.enter_async_context(Client("x", join=[*a.addresses, *b.addresses], config=config))
            numbers = b.subscribe("n")
            await x.wait_for_subscribers("n", timeout=WAIT_S)
            publisher = await x.publisher("n")
            closing = None
            moved_at = None
            for number in range(100_000):
                await publisher.put(number)
                await asyncio.sleep(0.001)
                if number == 100:
                    closing = asyncio.create_task(a.close())
                if moved_at is None and number > 100 and neighbours(x) == ["b"]:
                    moved_at = number
                if moved_at is not None and number > moved_at + 100:
                    break
            assert closing is not None
            await closing
            await publisher.put("end")
            got = []
            while (message := await numbers.receive(timeout=WAIT_S)).payload != "end":
                got.append(message.payload)
            assert got == sorted(set(got)), "in order and none twice"  # type: ignore[type-var]
            assert len(got) > 150
            assert {p for p in got if p > moved_at} >= set(range(moved_at + 1, moved_at + 100))  # type: ignore[operator]

    run(scenario())


def test_a_client_waits_for_the_only_peer_it_knows_to_return() -> None:
    async def scenario() -> None:
        a = Peer("a", listen=LOCAL, config=CHAIN)
        await a.open()
        address = a.addresses[0]
        async with Client("x", join=address, config=CHAIN) as x, x.subscribe("t") as topics:
            await a.wait_for_subscribers("t", timeout=WAIT_S)
            await a.close()
            await until(lambda: neighbours(x) == [], "x is alone")
            assert x.subscribers("t") == ("x",)
            async with Peer("a", listen=address, config=CHAIN) as again:
                await again.wait_for_subscribers("t", timeout=WAIT_S)
                await again.put("t", "back")
                assert (await topics.receive(timeout=WAIT_S)).payload == "back"

    run(scenario())


async def check_traffic(client: Client, peer: Peer, up: Subscription, down: Subscription) -> None:
    """Messages flow from the client to the peer and back over their own link."""
    await peer.wait_for_subscribers("down", timeout=WAIT_S)
    await client.put("up", "moved")
    await peer.put("down", "found you")
    [there] = await take(up, 1)
    [here] = await take(down, 1)
    assert (there.payload, there.path) == ("moved", ("x", "b"))
    assert (here.payload, here.path) == ("found you", ("b", "x"))
