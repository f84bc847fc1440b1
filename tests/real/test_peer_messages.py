"""Messages from put to receive on real sockets: every kind of address, payload and field."""

import datetime
import sys
from pathlib import Path

import msgspec
import pytest

from anabranch import Config, Peer, UsageError
from anabranch.transport.loops import run

sys.path.insert(0, str(Path(__file__).parent))
from support_peers import CHAIN, LOCAL, WAIT_S, line, pair, take

MIB = 1024 * 1024


@pytest.mark.parametrize("kind", ["tcp", "tcp6", "ipc"])
def test_messages_pass_in_both_directions_over(kind: str, tmp_path: Path) -> None:
    listen = {"tcp": LOCAL, "tcp6": "tcp://[::1]:0", "ipc": f"ipc://{tmp_path}/a.sock"}[kind]

    async def scenario() -> None:
        async with Peer("a", listen=listen) as a, Peer("b", join=a.addresses) as b:
            assert a.addresses[0].startswith({"tcp6": "tcp://[::1]:"}.get(kind, listen.rstrip("0")))
            async with a.subscribe("to/a") as to_a, b.subscribe("to/b") as to_b:
                await a.wait_for_subscribers("to/b", timeout=WAIT_S)
                await b.wait_for_subscribers("to/a", timeout=WAIT_S)
                await a.put("to/b", b"from a")
                await b.put("to/a", b"from b")
                assert (await to_b.receive(timeout=WAIT_S)).payload == b"from a"
                assert (await to_a.receive(timeout=WAIT_S)).payload == b"from b"

    run(scenario())


def test_a_peer_listens_on_several_addresses_at_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        listen = [LOCAL, "tcp://[::1]:0", f"ipc://{tmp_path}/hub.sock"]
        async with Peer("hub", listen=listen) as hub, hub.subscribe("in") as inbox:
            assert len(set(hub.addresses)) == 3
            for name, address in zip("abc", hub.addresses, strict=True):
                async with Peer(name, join=address, config=CHAIN) as spoke:
                    await spoke.wait_for_subscribers("in", timeout=WAIT_S)
                    await spoke.put("in", name)
                    message = await inbox.receive(timeout=WAIT_S)
                    assert (message.payload, message.path) == (name, (name, "hub"))

    run(scenario())


class Plot(msgspec.Struct):
    """An application's own type."""

    callsign: str
    height_m: float


VALUES = {
    "bytes": (b"\x00\xff", b"\x00\xff"),
    "no bytes": (b"", b""),
    "bytearray": (bytearray(b"ab"), b"ab"),
    "memoryview": (memoryview(b"abcd")[1:3], b"bc"),
    "none": (None, None),
    "false": (False, False),
    "whole number": (2**63, 2**63),
    "negative": (-(2**63), -(2**63)),
    "float": (1.5, 1.5),
    "text": ("grüße", "grüße"),
    "nested": ({"a": [1, {"b": None}]}, {"a": [1, {"b": None}]}),
    "struct": (Plot("DL1", 1e4), {"callsign": "DL1", "height_m": 1e4}),
    "bytes inside": ([b"x"], [b"x"]),
    "long text": ("x" * 100_000, "x" * 100_000),
}


def test_payloads_arrive_as_what_was_put_here_and_elsewhere() -> None:
    async def scenario() -> None:
        async with pair() as (a, b), a.subscribe("v") as here, b.subscribe("v") as there:
            await a.wait_for_subscribers("v", 2, timeout=WAIT_S)
            values = await a.publisher("v")
            for put, _ in VALUES.values():
                await values.put(put)
            for subscription in (here, there):
                arrived = [message.payload for message in await take(subscription, len(VALUES))]
                for (name, (_, expected)), payload in zip(VALUES.items(), arrived, strict=True):
                    assert (type(payload), payload) == (type(expected), expected), name

    run(scenario())


def test_a_value_changed_after_put_arrives_as_it_was() -> None:
    async def scenario() -> None:
        async with Peer("a") as a, a.subscribe("v") as here:
            value = {"n": 1}
            values = await a.publisher("v")
            await values.put(value)
            value["n"] = 2
            assert (await here.receive(timeout=WAIT_S)).payload == {"n": 1}

    run(scenario())


UNFIT = {"object": object(), "class": datetime.timezone, "map of objects": {1: object()}}


@pytest.mark.parametrize("payload", UNFIT.values(), ids=UNFIT)
def test_a_payload_that_cannot_travel_is_the_callers_error(payload: object) -> None:
    async def scenario() -> None:
        async with Peer("a") as a:
            publisher = await a.publisher("v")
            with pytest.raises(UsageError, match=r"payload of type .* cannot be encoded"):
                await publisher.put(payload)
            with pytest.raises(UsageError, match=r"payload of type .* cannot be encoded"):
                publisher.put_nowait(payload)

    run(scenario())


def test_large_payloads_pass_a_relay_and_the_limit_is_exact() -> None:
    async def scenario() -> None:
        limit = Config().payload_max_bytes
        assert limit == 16 * MIB
        async with line("a", "b", "c") as (a, _, c), c.subscribe("big") as big:
            await a.wait_for_subscribers("big", timeout=WAIT_S)
            publisher = await a.publisher("big")
            for size in (24 * 1024, 24 * 1024 + 1, MIB, limit):
                payload = size.to_bytes(4, "big") * (size // 4) + b"\x01" * (size % 4)
                await publisher.put(payload)
                message = await big.receive(timeout=WAIT_S)
                assert message.payload == payload
                assert message.path == ("a", "b", "c")
            too_large = b"x" * (limit + 1)
            refusal = f"payload of {limit + 1} B for 'big': payload_max_bytes = {limit}"
            with pytest.raises(UsageError, match=refusal):
                await publisher.put(too_large)
            with pytest.raises(UsageError, match=refusal):
                publisher.put_nowait(too_large)
            assert a.counters["dropped.oversized"] == 2
            await publisher.put(b"still works")
            assert (await big.receive(timeout=WAIT_S)).payload == b"still works"

    run(scenario())


def test_large_and_small_payloads_of_one_publisher_keep_their_order() -> None:
    async def scenario() -> None:
        async with pair() as (a, b), b.subscribe("mixed") as mixed:
            await a.wait_for_subscribers("mixed", timeout=WAIT_S)
            publisher = await a.publisher("mixed")
            sizes = [10, 300_000, 20, 30_000, 30, 30_001, 1_000_000, 40] * 8
            for size in sizes:
                publisher.put_nowait(bytes(size))
            arrived = await take(mixed, len(sizes))
            assert [len(message.payload) for message in arrived] == sizes  # type: ignore[arg-type]
            assert [message.sequence for message in arrived] == list(range(len(sizes)))

    run(scenario())


def test_a_message_tells_where_it_comes_from() -> None:
    async def scenario() -> None:
        async with line("a", "b", "c") as (a, _, c), c.subscribe("t/*") as topics:
            await a.wait_for_subscribers("t/1", timeout=WAIT_S)
            first, second = await a.publisher("t/1"), await a.publisher("t/1")
            for publisher in (first, first, second):
                await publisher.put("x")
            one, two, three = await take(topics, 3)
            assert {(m.topic, m.origin, m.path) for m in (one, two, three)} == {("t/1", "a", ("a", "b", "c"))}
            assert [m.sequence for m in (one, two, three)] == [0, 1, 0]
            assert one.publisher == two.publisher != three.publisher
            assert 0 < one.age < 2
            assert not one.late
            assert repr(one) == "Message('t/1', 'x', origin='a', sequence=0)"

    run(scenario())


def test_own_messages_have_a_path_of_one() -> None:
    async def scenario() -> None:
        async with Peer("a") as a, a.subscribe("t") as own:
            await a.put("t", 1)
            message = await own.receive(timeout=WAIT_S)
            assert (message.origin, message.path, message.payload) == ("a", ("a",), 1)
            assert 0 <= message.age < 1

    run(scenario())


def test_lateness_is_judged_by_the_deadline() -> None:
    async def scenario() -> None:
        async with pair() as (a, b), b.subscribe("t") as topics:
            await a.wait_for_subscribers("t", timeout=WAIT_S)
            for deadline, is_late in ((1e-6, True), (100.0, False), (None, False)):
                publisher = await a.publisher("t", deadline=deadline)
                await publisher.put("x")
                message = await topics.receive(timeout=WAIT_S)
                assert message.late is is_late, deadline

    run(scenario())


@pytest.mark.parametrize("deadline", [0, -1, 4000, float("nan")])
def test_a_deadline_that_cannot_be_kept_is_refused(deadline: float) -> None:
    async def scenario() -> None:
        async with Peer("a") as a:
            with pytest.raises(UsageError, match="deadline ="):
                await a.publisher("t", deadline=deadline)

    run(scenario())


def test_what_nobody_wants_is_counted_and_not_sent() -> None:
    async def scenario() -> None:
        async with Peer("a", listen=LOCAL) as a, Peer("b", join=a.addresses) as b, b.subscribe("wanted"):
            await a.wait_for_subscribers("wanted", timeout=WAIT_S)
            before = a.counters["sent.data_bytes"]
            await a.put("unwanted", b"x")
            assert a.counters["published_unwanted"] == 1
            assert a.counters["sent.data_bytes"] == before

    run(scenario())
