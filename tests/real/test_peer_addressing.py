"""Content filters and selections of sites over real sockets, asynchronous and blocking."""

import asyncio
from pathlib import Path

import pytest

from anabranch import ExpressionError, Peer, UsageError
from anabranch.blocking import Peer as BlockingPeer
from anabranch.overlay.config import Config
from anabranch.testing import mesh


async def _filters() -> None:
    async with mesh("a", "b", "c") as peers:
        a, b, c = peers["a"], peers["b"], peers["c"]
        high = b.subscribe("air/*", where="altitude > 10000")
        everything = c.subscribe("air/*")
        await a.wait_for_subscribers("air/x", 2, timeout=10)
        publisher = await a.publisher("air/x")
        for altitude in range(9_990, 10_011, 10):
            await publisher.put({"altitude": altitude}, attributes={"altitude": altitude})
        await publisher.put(b"plain")
        large = bytes(100_000)
        await publisher.put(large, attributes={"altitude": 11_000, "tags": {"x", 2}})
        got = [await everything.receive(timeout=10) for _ in range(5)]
        assert [each.payload for each in got] == [
            *({"altitude": altitude} for altitude in (9_990, 10_000, 10_010)),
            b"plain",
            large,
        ]
        assert got[-1].attributes == {"altitude": 11_000, "tags": frozenset(("x", 2))}
        first, second = [await high.receive(timeout=10) for _ in range(2)]
        assert first.payload == {"altitude": 10_010}
        assert second.payload == large
        assert high.receive_nowait() is None
        assert b.counters["delivered"] == 2, "nothing else was sent there"


async def _sites() -> None:
    async with mesh("a", "b", "c") as peers:
        a, b, c = peers["a"], peers["b"], peers["c"]
        inboxes = {name: peer.subscribe("@site") for name, peer in peers.items()}
        b.set_attributes({"load": 0.9, "region": "north"})
        c.set_attributes({"load": 0.1, "region": "north"})
        assert await a.wait_for_subscribers("@site", 2, to="region = 'north'", timeout=10) == ("b", "c")
        await a.put(None, 1, to="region = 'north' and load > 0.5")
        await a.put(None, 2, to="region = 'north'")
        await a.put("@site", 3, to="not exists(region)")
        b_got = [(await inboxes["b"].receive(timeout=10)) for _ in range(2)]
        assert [each.payload for each in b_got] == [1, 2]
        assert b_got[0].to == "region = 'north' and load > 0.5"
        assert (await inboxes["c"].receive(timeout=10)).payload == 2
        assert (await inboxes["a"].receive(timeout=10)).payload == 3
        with pytest.raises(UsageError, match="without a topic"):
            await a.put(None, 4)
        with pytest.raises(ExpressionError, match="column 8"):
            await a.put(None, 4, to="load > ")
        with pytest.raises(UsageError, match="type dict"):
            await a.put("t", 4, attributes={"x": {}})
        with pytest.raises(ExpressionError):
            a.subscribe("t", where="x >")
        with pytest.raises(UsageError, match="as a text"):
            a.subscribe("t", where=5)  # type: ignore[arg-type]


async def _acknowledged() -> None:
    async with mesh("a", "b", "c") as peers:
        a, b, c = peers["a"], peers["b"], peers["c"]
        inboxes = {"b": b.subscribe("t"), "c": c.subscribe("t", where="level > 2")}
        b.set_attributes({"load": 0.9})
        c.set_attributes({"load": 0.1})
        await a.wait_for_subscribers("t", 2, attributes={"level": 3}, timeout=10)
        await a.wait_for_subscribers("t", 1, attributes={"level": 3}, to="load < 0.5", timeout=10)
        publisher = await a.publisher("t", guarantee="acknowledged")
        receipts = [
            await publisher.put("all"),
            await publisher.put("high", attributes={"level": 3}),
            await publisher.put("b", to="load > 0.5"),
            await publisher.put("c", attributes={"level": 9}, to="load < 0.5"),
            await publisher.put("nobody", attributes={"level": 1}, to="load < 0.5"),
        ]
        outcomes = [await receipt.confirmed(timeout=10) for receipt in receipts]
        assert [outcome.confirmed for outcome in outcomes] == [("b",), ("b", "c"), ("b",), ("c",), ()]
        outcome = await publisher.confirmed(timeout=10)
        assert (set(outcome.confirmed), outcome.missing) == ({"b", "c"}, {})
        assert publisher.put_nowait("again", to="load < 0.5", attributes={"level": 3})
        assert (await publisher.confirmed(timeout=10)).confirmed == ("c",)
        got = [await inboxes["c"].receive(timeout=10) for _ in range(3)]
        assert [(each.payload, each.attributes, each.to) for each in got] == [
            ("high", {"level": 3}, ""),
            ("c", {"level": 9}, "load < 0.5"),
            ("again", {"level": 3}, "load < 0.5"),
        ]
        assert {(await inboxes["b"].receive(timeout=10)).payload for _ in range(3)} == {"all", "high", "b"}
        with pytest.raises(ExpressionError, match="column 7"):
            await publisher.put(1, to="load >")


async def _full() -> None:
    async with mesh("a", "b", config=Config.local(unconfirmed_max_bytes=20_000)) as peers:
        a, b = peers["a"], peers["b"]
        b.set_attributes({"on": True})
        inbox = b.subscribe("t", queue_max=1000)
        await a.wait_for_subscribers("t", to="on", timeout=10)
        publisher = await a.publisher("t", guarantee="acknowledged")
        for number in range(100):  # several times what may be unconfirmed: it waits for confirmations
            await publisher.put(bytes(1000), to=f"on and {number % 3} >= 0")
        assert (await publisher.confirmed(timeout=10)).complete
        assert len([await inbox.receive(timeout=10) for _ in range(100)]) == 100


async def _many_sets() -> None:
    """More sets of receivers than a publisher remembers: what was put for all of them is confirmed."""
    config = Config.local(neighbours_target=0)
    async with mesh(*(f"p{number}" for number in range(11)), config=config) as peers:
        publishing, *others = peers.values()
        for number, peer in enumerate(others):
            peer.set_attributes({"bit": 2**number})
            peer.subscribe("t", queue_max=2000)
        await publishing.wait_for_subscribers("t", 10, to="bit > 0", timeout=20)
        publisher = await publishing.publisher("t", guarantee="acknowledged")
        wanted = 0
        for number in range(1, 700):
            receipt = await publisher.put(number, to=f"{number} % (bit * 2) >= bit")
            assert len(receipt.receivers) == number.bit_count()
            wanted += len(receipt.receivers)
        outcome = await publisher.confirmed(timeout=20)
        assert (len(outcome.confirmed), outcome.missing) == (10, {})
        assert sum(peer.counters["delivered"] for peer in others) == wanted
        assert len(publishing._shell.assurances._confirmations) <= 258, "the rest is forgotten"


async def _persistent(directory: Path) -> None:
    async with Peer("a", listen="tcp://127.0.0.1:0", open=True, store_dir=directory) as a:
        publisher = await a.publisher("t", guarantee="persistent")
        with pytest.raises(UsageError, match="knows what a site will be"):
            await publisher.put(1, to="load > 1")
        with pytest.raises(UsageError, match="take whole topics"):
            await publisher.put(1, attributes={"load": 1})
        with pytest.raises(UsageError, match="nothing to filter by"):
            a.subscribe("t", durable="d", where="load > 1")


def test_what_makes_no_sense_for_messages_that_wait_says_so(tmp_path: Path) -> None:
    asyncio.run(_persistent(tmp_path))


STORIES = {
    "filters": _filters,
    "sites": _sites,
    "acknowledged": _acknowledged,
    "full": _full,
    "many sets": _many_sets,
}


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES)
def test_over_real_sockets(story) -> None:  # type: ignore[no-untyped-def]
    asyncio.run(story())


def test_the_blocking_form(tmp_path) -> None:  # type: ignore[no-untyped-def]
    address = f"ipc://{tmp_path / 'a'}"
    config = Config.local(site_attributes={"load": "number"})
    with BlockingPeer("a", listen=address, config=config) as a, BlockingPeer("b", join=address) as b:
        b.set_attributes({"load": 3})
        inbox = b.subscribe("t", where="level = 2")
        a.wait_for_subscribers("t", timeout=10)
        a.wait_for_subscribers("t", 1, attributes={"level": 2}, to="load = 3", timeout=10)
        for level in (1, 2, 3):
            a.put("t", level, attributes={"level": level}, to="load > 2")
        assert inbox.receive(timeout=10).payload == 2
        with pytest.raises(ExpressionError, match="did you mean 'load'"):
            a.put("t", 1, to="laod > 2")
        with pytest.raises(UsageError, match="without a topic"):
            a.put(None, 1)
        with a.publisher("t", guarantee="acknowledged") as publisher:
            receipt = publisher.put(4, attributes={"level": 2}, to="load > 2")
            assert receipt.confirmed(timeout=10).confirmed == ("b",)
