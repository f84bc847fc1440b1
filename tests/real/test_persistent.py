"""Persistent publishers and durable subscriptions on real sockets and disks, in one process."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from anabranch import (
    ClosedError,
    Config,
    DurableSubscription,
    LimitError,
    Peer,
    StoreError,
    UsageError,
    blocking,
)
from anabranch.transport.durable import DurableMessage
from anabranch.transport.loops import run

sys.path.insert(0, str(Path(__file__).parent))
from support_peers import LOCAL, WAIT_S, free_port, until


def durable(peer: Peer, **options: object) -> DurableSubscription:
    inbox = peer.subscribe("t/*", durable="mine", **options)  # type: ignore[arg-type]
    assert isinstance(inbox, DurableSubscription)
    return inbox


async def numbers(inbox: DurableSubscription, count: int) -> list[object]:
    return [(await inbox.receive(timeout=WAIT_S)).payload for _ in range(count)]


def test_messages_wait_for_a_durable_subscription_and_each_is_accepted_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        listen = f"tcp://127.0.0.1:{free_port()}"
        async with Peer("a", listen=listen, store_dir=tmp_path) as a:
            async with Peer("b", join=listen, store_dir=tmp_path) as b:
                durable(b)
                await a.wait_for_subscribers("t/1", timeout=WAIT_S)
                publisher = await a.publisher("t/1", guarantee="persistent")
                assert publisher.receivers == ("b",)  # type: ignore[attr-defined]
            await asyncio.gather(*(publisher.put(number) for number in range(100)))
        async with Peer("a", listen=listen, store_dir=tmp_path) as a:  # nobody opens the publisher again
            async with Peer("b", join=listen, store_dir=tmp_path) as b:
                inbox = durable(b, auto_accept=False)
                assert await numbers(inbox, 60) == list(range(60))
                message = await inbox.receive(timeout=WAIT_S)
                assert isinstance(message, DurableMessage)
                await message.accept()
                assert await numbers(inbox, 10) == list(range(61, 71))
                assert b.counters["dropped.duplicate"] == 0
            async with Peer("b", join=listen, store_dir=tmp_path) as b:
                inbox = durable(b)
                assert await numbers(inbox, 39) == list(range(61, 100))
                publisher = await a.publisher("t/1", guarantee="persistent")
                receipt = await publisher.put(100)
                assert receipt is not None
                assert receipt.sequence == 100
                assert await numbers(inbox, 1) == [100]
                assert set((await receipt.confirmed(0.05)).missing) == {"b"}, "not accepted yet"
                with pytest.raises(TimeoutError):
                    await inbox.receive(timeout=0.05)
                assert (await receipt.confirmed(WAIT_S)).complete
                store = a._persistence.store  # type: ignore[union-attr]
                await until(lambda: store.bytes == 0, "everything that was confirmed is deleted")

    run(scenario())


def test_two_durable_subscriptions_of_one_peer_are_apart_and_one_can_be_forgotten(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with (
            Peer("a", listen=LOCAL, store_dir=tmp_path) as a,
            Peer("b", join=a.addresses, store_dir=tmp_path) as b,
        ):
            first = durable(b)
            second = b.subscribe("**", durable="other")
            plain = b.subscribe("t/1")
            own = a.subscribe("t/1", durable="at-home")
            await a.wait_for_subscribers("t/1", 2, timeout=WAIT_S)
            publisher = await a.publisher("t/1", guarantee="persistent")
            for number in range(5):
                await publisher.put({"n": number})
            wanted = [{"n": number} for number in range(5)]
            for inbox in (first, second, plain, own):
                assert [(await inbox.receive(timeout=WAIT_S)).payload for _ in range(5)] == wanted
            first.close()
            await publisher.put("for one")
            assert (await second.receive(timeout=WAIT_S)).payload == "for one"
            store = a._persistence.store  # type: ignore[union-attr]
            assert store.bytes > 0
            await b.forget_durable("mine")
            await b.forget_durable("other")
            await a.forget_durable("at-home")
            await until(lambda: store.bytes == 0, "nothing is kept for those that were forgotten")
            with pytest.raises(UsageError, match="no such durable subscription"):
                await b.forget_durable("nonsense")

    run(scenario())


def test_a_full_store_refuses_or_waits_and_old_messages_expire(tmp_path: Path) -> None:
    async def scenario() -> None:
        config = Config.local(store_max_bytes=10_000, store_retention_s=1.0)
        async with Peer("a", listen=LOCAL, store_dir=tmp_path, config=config) as a:
            async with Peer("b", join=a.addresses, store_dir=tmp_path) as b:
                durable(b)
                await a.wait_for_subscribers("t/1", timeout=WAIT_S)
                refusing = await a.publisher("t/1", guarantee="persistent", overflow="drop_newest")
                assert refusing.receivers == ("b",)  # type: ignore[attr-defined]
            with pytest.raises(LimitError, match="store_max_bytes = 10000"):
                await _fill(refusing)
            waiting = await a.publisher("t/1", guarantee="persistent")
            await asyncio.wait_for(waiting.put(bytes(1000)), WAIT_S)
            assert a.counters["unconfirmed.expired"] >= 8
            with pytest.raises(UsageError, match="await put"):
                waiting.put_nowait(b"x")

    run(scenario())


async def _fill(publisher) -> None:  # type: ignore[no-untyped-def]
    for _ in range(100):
        await publisher.put(bytes(1000))


def test_a_damaged_store_is_set_aside_with_a_report_and_the_peer_goes_on(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        async with Peer("a", store_dir=tmp_path) as a:
            a.subscribe("t", durable="mine")
            await (await a.publisher("t", guarantee="persistent")).put(b"x")
        _damage(tmp_path / "a.store")
        async with Peer("a", store_dir=tmp_path) as a:
            assert a.counters["store_set_aside"] == 1
            inbox = a.subscribe("t", durable="mine")
            await (await a.publisher("t", guarantee="persistent")).put(b"y")
            assert (await inbox.receive(timeout=WAIT_S)).payload == b"y"

    run(scenario())
    assert list(tmp_path.glob("a.store.damaged-*"))


def _damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    for place in range(4096, len(data), 256):
        data[place] ^= 0xFF
    path.write_bytes(data)


def test_a_put_that_finds_no_room_on_the_disk_fails_and_later_ones_succeed(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Peer("a", store_dir=tmp_path) as a:
            inbox = durable(a)
            publisher = await a.publisher("t/1", guarantee="persistent")
            await publisher.put(0)
            store = a._persistence.store  # type: ignore[union-attr]
            pages = store._file.connection.execute("PRAGMA page_count").fetchone()[0]
            store._file.connection.execute(
                f"PRAGMA max_page_count = {pages}"
            )  # what SQLite takes for a full disk
            used = store.bytes
            for _ in range(2):
                with pytest.raises(StoreError, match="full"):
                    await asyncio.wait_for(publisher.put(bytes(100_000)), WAIT_S)
            assert store.bytes == used
            store._file.connection.execute("PRAGMA max_page_count = 1000000")
            await asyncio.gather(*(publisher.put(number) for number in range(1, 4)))
            assert await numbers(inbox, 4) == [0, 1, 2, 3]

    run(scenario())


def test_what_waits_for_the_store_ends_when_the_peer_is_closed(tmp_path: Path) -> None:
    async def scenario() -> None:
        peer = Peer("a", store_dir=tmp_path, config=Config.local(store_max_bytes=3000))
        await peer.open()
        inbox = durable(peer)
        publisher = await peer.publisher("t/1", guarantee="persistent")
        await publisher.put(bytes(1000))
        message = await inbox.receive(timeout=WAIT_S)
        assert isinstance(message, DurableMessage)
        waiting = asyncio.create_task(_fill(publisher))
        await until(lambda: not publisher._store.has_room(1000), "the store is full")  # type: ignore[attr-defined]
        await peer.close()
        for ends in (waiting, inbox.receive(), message.accept(), publisher.put(b"x")):
            with pytest.raises(ClosedError):
                await asyncio.wait_for(ends, WAIT_S)
        async with asyncio.timeout(WAIT_S):
            assert [each async for each in inbox] == []

    run(scenario())


def test_what_needs_a_store_says_so_and_a_store_has_one_user(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Peer("a", store_dir=tmp_path) as a:
            with pytest.raises(UsageError, match="in use"):
                await Peer("a", store_dir=tmp_path).open()
            with pytest.raises(UsageError, match=r"durable = 'a/b': use 1 to 64"):
                a.subscribe("t", durable="a/b")
            a.subscribe("t", durable="mine")
            with pytest.raises(UsageError, match="one reader"):
                a.subscribe("t", durable="mine")
        async with Peer("b") as b:
            with pytest.raises(UsageError, match="store_dir=DIRECTORY"):
                await b.publisher("t", guarantee="persistent")
            with pytest.raises(UsageError, match="store_dir=DIRECTORY"):
                b.subscribe("t", durable="mine")
        (tmp_path / "file").touch()
        with pytest.raises(UsageError, match="store_dir"):
            await Peer("c", store_dir=tmp_path / "file").open()

    run(scenario())


def test_blocking_programs_persist_too(tmp_path: Path) -> None:
    with (
        blocking.Peer("a", listen=LOCAL, store_dir=tmp_path) as a,
        blocking.Peer("b", join=a.addresses, store_dir=tmp_path) as b,
        b.subscribe("t", durable="mine", auto_accept=False) as inbox,
    ):
        assert isinstance(inbox, blocking.DurableSubscription)
        a.wait_for_subscribers("t", timeout=WAIT_S)
        with a.publisher("t", guarantee="persistent") as publisher:
            assert isinstance(publisher, blocking.AssuredPublisher)
            receipts = [publisher.put(number) for number in range(10)]
            assert [inbox.receive(timeout=WAIT_S).payload for _ in range(9)] == list(range(9))
            inbox.accept(inbox.receive(timeout=WAIT_S))
            assert receipts[-1].confirmed(timeout=WAIT_S).complete


def test_the_command_publishes_persistently_and_reads_durably(tmp_path: Path) -> None:
    address = f"tcp://127.0.0.1:{free_port()}"
    command = str(Path(sys.executable).with_name("anabranch"))
    store = ["--store-dir", str(tmp_path)]

    def pub(*more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [command, "pub", "t/1", "hello", "--guarantee", "persistent", *more],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    assert pub().returncode == 2
    reader = subprocess.Popen(
        [
            command,
            "sub",
            "t/*",
            "--durable",
            "mine",
            "--name",
            "r",
            *store,
            "--listen",
            address,
            "--count",
            "1",
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        done = pub("--name", "w", *store, "--join", address, "--timeout", "20", "--json")
        assert done.returncode == 2, "with --json the payload must be JSON"
        done = pub("--name", "w", *store, "--join", address, "--timeout", "20")
        assert done.returncode == 0, done.stderr
        assert reader.communicate(timeout=30)[0] == "t/1\thello\n"
        assert reader.returncode == 0
    finally:
        reader.kill()
        reader.wait()
