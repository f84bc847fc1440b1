"""Waiting for subscribers, links and peers: it ends when they are there, in time, or with the peer."""

import asyncio
import sys
from pathlib import Path

import pytest

from anabranch import Client, ClosedError, Peer, UsageError
from anabranch.transport.loops import run

sys.path.insert(0, str(Path(__file__).parent))
from support_peers import CHAIN, LOCAL, WAIT_S, line, neighbours, pair, until


def test_waiting_ends_when_the_last_of_them_is_there() -> None:
    async def scenario() -> None:
        async with (
            Peer("a", listen=LOCAL, config=CHAIN) as a,
            asyncio.TaskGroup() as tasks,
        ):
            subscribers = tasks.create_task(a.wait_for_subscribers("t/1", 3, timeout=WAIT_S))
            links = tasks.create_task(a.wait_for_links(2, timeout=WAIT_S))
            peers = tasks.create_task(a.wait_for_peers("b", "c", timeout=WAIT_S))
            async with Peer("b", join=a.addresses, config=CHAIN) as b, b.subscribe("t/*"):
                await a.wait_for_subscribers("t/1", 1, timeout=WAIT_S)
                own = a.subscribe("**")
                await a.wait_for_subscribers("t/1", 2, timeout=WAIT_S)
                assert not any(task.done() for task in (subscribers, links, peers))
                async with Peer("c", join=a.addresses, config=CHAIN) as c, c.subscribe("t/1"):
                    assert sorted(await subscribers) == ["a", "b", "c"]
                    await links
                    await peers
                    assert neighbours(a) == ["b", "c"]
            own.close()

    run(scenario())


def test_subscribers_are_those_that_can_be_reached_now() -> None:
    async def scenario() -> None:
        async with line("a", "b", "c") as (a, b, c), c.subscribe("t"):
            assert await a.wait_for_subscribers("t", timeout=WAIT_S) == ("c",)
            await b.close()
            await until(lambda: a.subscribers("t") == (), "c is out of reach")
            assert a.subscribers("other") == ()

    run(scenario())


@pytest.mark.parametrize("what", ["subscribers", "links", "peers"])
def test_waiting_in_vain_ends_with_a_timeout(what: str) -> None:
    async def scenario() -> None:
        async with Peer("a", listen=LOCAL) as a:
            waits = {
                "subscribers": lambda: a.wait_for_subscribers("t", timeout=0.02),
                "links": lambda: a.wait_for_links(timeout=0.02),
                "peers": lambda: a.wait_for_peers("b", timeout=0.02),
            }
            with pytest.raises(TimeoutError):
                await waits[what]()

    run(scenario())


def test_a_timeout_names_what_was_there() -> None:
    async def scenario() -> None:
        async with pair() as (a, b), b.subscribe("t"):
            await a.wait_for_subscribers("t", timeout=WAIT_S)
            with pytest.raises(TimeoutError, match="b"):
                await a.wait_for_subscribers("t", 2, timeout=0.02)

    run(scenario())


def test_waiting_ends_when_the_peer_is_closed() -> None:
    async def scenario() -> None:
        a = Peer("a", listen=LOCAL)
        await a.open()
        waiting = [
            asyncio.ensure_future(wait)
            for wait in (a.wait_for_subscribers("t"), a.wait_for_links(), a.wait_for_peers("b"))
        ]
        await asyncio.sleep(0)
        await a.close()
        for outcome in await asyncio.gather(*waiting, return_exceptions=True):
            assert isinstance(outcome, ClosedError)

    run(scenario())


def test_a_light_client_waits_for_its_link_even_where_nobody_subscribes() -> None:
    async def scenario() -> None:
        async with Peer("a", listen=LOCAL) as a, Client("c", join=a.addresses) as client:
            await client.wait_for_links(timeout=2)
            assert neighbours(client) == ["a"]

    run(scenario())


def test_a_light_client_waits_for_peers_beyond_its_own() -> None:
    async def scenario() -> None:
        async with line("a", "b") as (a, _), Client("c", join=a.addresses, config=CHAIN) as client:
            await client.wait_for_peers("a", "b", timeout=2)

    run(scenario())


def test_what_is_waited_for_is_checked_first() -> None:
    async def scenario() -> None:
        async with Peer("a") as a:
            with pytest.raises(UsageError, match=r"topic 't/\*'"):
                await a.wait_for_subscribers("t/*")
            with pytest.raises(UsageError, match=r"topic 't/\*'"):
                a.subscribers("t/*")

    run(scenario())
