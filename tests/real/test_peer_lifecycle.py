"""From open to close and beyond: nothing is left behind, nothing works afterwards, nothing is shared."""

import asyncio
import gc
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from anabranch import Client, ClosedError, Config, Peer, UsageError
from anabranch.overlay.queues import RETAINED_MAX_BYTES
from anabranch.transport.loops import run

sys.path.insert(0, str(Path(__file__).parent))
from support_peers import (
    LOCAL,
    WAIT_S,
    child,
    dropped,
    free_port,
    neighbours,
    open_descriptors,
    pair,
    take,
    troubles,
    until,
)


def test_closing_twice_or_at_once_from_two_sides_does_nothing_more() -> None:
    async def scenario() -> None:
        async with Peer("a", listen=LOCAL) as a:
            await a.close()
            await a.close()
        b = Peer("b", listen=LOCAL)
        await b.open()
        await asyncio.gather(b.close(), b.close())
        never_opened = Peer("c")
        await never_opened.close()

    run(scenario())


def test_after_close_everything_raises_closed_error_and_says_so() -> None:
    async def scenario() -> None:
        async with Peer("a", listen=LOCAL) as a:
            publisher = await a.publisher("t")
            subscription = a.subscribe("t")
            await publisher.put(1)
        with pytest.raises(ClosedError, match="peer a is closed"):
            await publisher.put(1)
        with pytest.raises(ClosedError, match="peer a is closed"):
            publisher.put_nowait(1)
        with pytest.raises(ClosedError, match="peer a is closed"):
            await a.put("t", 1)
        with pytest.raises(ClosedError, match="peer a is closed"):
            a.subscribe("t")
        with pytest.raises(ClosedError, match="peer a is closed"):
            await a.publisher("t")
        with pytest.raises(ClosedError, match="peer a is closed"):
            a.subscribers("t")
        with pytest.raises(ClosedError, match="peer a is closed"):
            a.report()
        with pytest.raises(ClosedError, match="peer a is closed"):
            await a.inspect()
        with pytest.raises(ClosedError, match="peer a is closed"):
            a.set_attributes({})
        with pytest.raises(ClosedError, match="peer a is closed"):
            await a.wait_for_links()
        with pytest.raises(UsageError, match="opened before: make a new Peer"):
            await a.open()
        assert (await subscription.receive()).payload == 1, "what arrived before can still be read"
        with pytest.raises(ClosedError, match="subscription to 't' is closed"):
            await subscription.receive()
        subscription.close()
        publisher.close()
        assert a.counters["published"] == 1, "counters outlive the peer"

    run(scenario())


def test_before_open_it_says_how_to_open() -> None:
    a = Peer("a")
    with pytest.raises(ClosedError, match=r"peer a is not open: async with Peer\(\"a\""):
        a.subscribe("t")
    assert a.counters == {}


def test_a_closed_publisher_refuses_and_leaves_others_alone() -> None:
    async def scenario() -> None:
        async with Peer("a") as a, a.subscribe("t") as topics:
            other = await a.publisher("t")
            async with await a.publisher("t") as publisher:
                await publisher.put("last")
            publisher.close()
            with pytest.raises(ClosedError, match="publisher of 't' is closed"):
                await publisher.put("x")
            with pytest.raises(ClosedError, match="publisher of 't' is closed"):
                publisher.put_nowait("x")
            await other.put("other")
            assert [message.payload for message in await take(topics, 2)] == ["last", "other"]

    run(scenario())


@pytest.mark.parametrize("size", [4, 20_000], ids=["small", "large"])
@pytest.mark.parametrize("closes", ["the one that listens", "the one that dialled"])
def test_what_was_put_right_before_close_still_arrives(closes: str, size: int) -> None:
    async def scenario() -> None:
        async with pair() as (a, b):
            source, target = (a, b) if closes == "the one that listens" else (b, a)
            topics = target.subscribe("t")
            await source.wait_for_subscribers("t", timeout=WAIT_S)
            publisher = await source.publisher("t", overflow="drop_newest")
            for number in range(200):
                await publisher.put(number.to_bytes(4, "big") * (size // 4))
            await source.close()
            await until(lambda: topics.pending == 200, "all arrived", 2.0)
            assert [message.sequence for message in await take(topics, 200)] == list(range(200))
            await until(lambda: neighbours(target) == [], "it is known to be gone")
            assert target.subscribers("t") == (str(target.name),)

    for _ in range(3):
        run(scenario())


def test_closing_with_a_full_queue_ends_within_the_deadline_and_counts_the_rest() -> None:
    async def scenario() -> None:
        async with Peer("a", listen=LOCAL) as a:
            async with child("b", join=a.addresses, subscribe="t") as b:
                await a.wait_for_subscribers("t", timeout=WAIT_S)
                b.stop()
                publisher = await a.publisher("t", overflow="drop_newest")
                for _ in range(120):
                    await publisher.put(bytes(256 * 1024))
                started = time.monotonic()
                await a.close()
                took = time.monotonic() - started
                b.resume()
            assert took < 3.5
            assert dropped(a)["queue_full"] > 0
            assert dropped(a)["link_lost"] > 0
            # What the sockets took before they stood still was never acknowledged, so it is counted, too:
            # all of it but what is beyond the memory of a link. Nothing is counted twice.
            assert dropped(a)["unrecovered"] > 0
            assert 120 - RETAINED_MAX_BYTES // 2**18 <= sum(dropped(a).values()) <= 120

    run(scenario())


def test_an_idle_peer_closes_at_once() -> None:
    async def scenario() -> None:
        async with pair() as (a, b):
            started = time.monotonic()
            await b.close()
            await a.close()
            assert time.monotonic() - started < 1.0

    run(scenario())


def test_peers_leave_no_descriptors_tasks_or_warnings_behind() -> None:
    async def scenario() -> int:
        for _ in range(3):
            port = free_port()
            async with pair() as (a, b), Client("c", join=a.addresses) as c, c.subscribe("t"):
                await a.wait_for_subscribers("t", timeout=WAIT_S)
                await b.put("t", bytes(100_000))
                async with Peer("d", join=f"tcp://127.0.0.1:{port}"):
                    await asyncio.sleep(0)
        gc.collect()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        assert not others
        return open_descriptors()

    with warnings.catch_warnings(), capture_logs() as logs:
        warnings.simplefilter("error")
        first = run(scenario())
        assert run(scenario()) <= first
        gc.collect()
    assert troubles(logs) == []


def test_a_peer_that_cannot_listen_says_why_and_leaves_nothing_behind() -> None:
    async def scenario() -> None:
        async with Peer("a", listen=LOCAL) as a:
            before = open_descriptors()
            for _ in range(3):
                b = Peer("b", listen=[LOCAL, a.addresses[0]])
                with pytest.raises(UsageError, match=rf"cannot listen on {a.addresses[0]}.*free port"):
                    await b.open()
                with pytest.raises(ClosedError):
                    b.report()
            assert open_descriptors() <= before

    run(scenario())


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"name": ""}, "peer name ''"),
        ({"name": "a b"}, "peer name 'a b'"),
        ({"name": "a", "listen": "tcp://127.0.0.1"}, "has no port"),
        ({"name": "a", "listen": "udp://127.0.0.1:1"}, "use tcp://HOST:PORT"),
        ({"name": "a", "join": "tcp://127.0.0.1:0"}, "cannot be dialled"),
        ({"name": "a", "join": ["tcp://0.0.0.0:7400"]}, "cannot be dialled"),
        ({"name": "a", "advertise": "tcp://*:7400"}, "cannot be dialled"),
        ({"name": "a", "config": Config(role="client"), "listen": LOCAL}, "does not listen"),
    ],
    ids=str,
)
def test_a_wrong_argument_is_refused_where_it_is_given(settings: dict[str, object], named: str) -> None:
    with pytest.raises(UsageError, match=named):
        Peer(**settings)  # type: ignore[arg-type]


def test_two_peers_in_one_process_share_nothing() -> None:
    async def scenario() -> None:
        small = Config(payload_max_bytes=300_000, bundle_max_bytes=100_000, neighbours_target=0)
        async with (
            Peer("a", listen=LOCAL, config=small) as a,
            Peer("b", listen=LOCAL) as b,
            a.subscribe("t") as at_a,
            b.subscribe("t") as at_b,
        ):
            await a.put("t", "a")
            await b.put("t", "b")
            assert (await at_a.receive(timeout=WAIT_S)).payload == "a"
            assert (await at_b.receive(timeout=WAIT_S)).payload == "b"
            assert (at_a.pending, at_b.pending) == (0, 0)
            with pytest.raises(UsageError, match="payload_max_bytes = 300000"):
                await a.put("t", bytes(300_001))
            await b.put("t", bytes(1_200_000))
            assert (a.counters["published"], b.counters["published"]) == (1, 2)
            assert a.counters["dropped.oversized"] == 1
            assert b.counters["dropped.oversized"] == 0
            await a.close()
            await b.put("t", "on")
            assert len(await take(at_b, 2)) == 2

    run(scenario())


FORKED = """
import asyncio, os
from anabranch import ClosedError, Peer

async def main():
    async with Peer("a", listen="tcp://127.0.0.1:0") as a, a.subscribe("t") as topics:
        publisher = await a.publisher("t")
        for _ in range(3):
            await publisher.put("early")  # in the midst of a turn, a put is an append
        pid = os.fork()
        if pid == 0:
            for use in (
                lambda: publisher.put_nowait(1),
                lambda: a.subscribe("u"),
                lambda: a.report(),
                lambda: a.subscribers("t"),
                lambda: publisher.put(1).send(None),
            ):
                try:
                    use()
                except ClosedError as error:
                    print(error, flush=True)
                else:
                    print("used a forked peer", flush=True)
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        await publisher.put("alive")
        for _ in range(3):
            assert (await topics.receive(timeout=5)).payload == "early"
        print((await topics.receive(timeout=5)).payload, "child", code, flush=True)

asyncio.run(main())
"""


def test_a_forked_child_is_told_to_open_a_peer_of_its_own() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", FORKED], capture_output=True, text=True, timeout=30
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    refusals, last = lines[:-1], lines[-1]
    assert len(refusals) == 5
    assert all("forked" in line and "open a peer of its own in the child" in line for line in refusals)
    assert last == "alive child 0"
    assert done.stderr == ""
