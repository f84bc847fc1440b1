"""A secured mesh on real sockets, and those who must not get in."""

import asyncio
import contextlib
import os
import resource
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
import zmq

sys.path.insert(0, str(Path(__file__).parent))
from support_identities import DOMAIN, Identities
from support_peers import take, until

from anabranch import Client, Config, Peer, UsageError
from anabranch.overlay.addresses import parse_address
from anabranch.overlay.codec import encode_control
from anabranch.overlay.counters import Counters
from anabranch.overlay.headers import Hello, Kind
from anabranch.transport.locks import HELLO_MAX_BYTES, ZAP_DOMAIN, Lock
from anabranch.transport.loops import run

HOST = "tcp://127.0.0.1:0"


@pytest.fixture(scope="module")
def identities(tmp_path_factory: pytest.TempPathFactory) -> Identities:
    return Identities(tmp_path_factory.mktemp("identities"))


async def soon(condition: Callable[[], object]) -> None:
    await until(condition, "what the test waits for")


@contextlib.asynccontextmanager
async def talking(identities: Identities) -> AsyncIterator[tuple[Peer, Peer]]:
    """Two linked peers."""
    async with (
        Peer("a", listen=HOST, identity=identities["a"]) as a,
        Peer("b", join=a.addresses, identity=identities["b"]) as b,
    ):
        await b.wait_for_links(timeout=8)
        yield a, b


KEPT: list[zmq.SyncSocket] = []


class Keeping(zmq.Context[zmq.SyncSocket]):
    """Remembers its sockets, to be closed at the end."""

    def socket(self, *words: Any, **options: Any) -> zmq.SyncSocket:
        made: zmq.SyncSocket = super().socket(*words, **options)
        KEPT.append(made)
        return made


def keeping() -> Iterator["zmq.Context[zmq.SyncSocket]"]:
    made = Keeping()
    yield made
    while KEPT:
        KEPT.pop().close(0)
    made.destroy(linger=0)


context = pytest.fixture(keeping)
other_context = pytest.fixture(keeping)


def stranger(
    context: "zmq.Context[zmq.SyncSocket]", address: str, domain: str = DOMAIN
) -> tuple[zmq.SyncSocket, bytes]:
    """Knows the domain's name, and how to speak CURVE, and has no certificate."""
    dealer = context.socket(zmq.DEALER)
    binding = Lock(domain, Counters(), 64, 3.0).guard_dialling(dealer)
    dealer.connect(address)
    return dealer, binding


def resident_kib() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() // 1024


def port_of(peer: Peer) -> int:
    return parse_address(peer.addresses[0]).port


def test_members_talk_through_a_relay_and_a_client(identities: Identities) -> None:
    async def scenario() -> None:
        static = Config(neighbours_target=0)
        async with (
            Peer("a", listen=HOST, identity=identities["a"], config=static) as a,
            Peer("b", join=a.addresses, identity=identities["b"], config=static) as b,
            Client("c", join=a.addresses, identity=identities["c"], config=static) as c,
        ):
            async with b.subscribe("x/**") as at_b, c.subscribe("x/**") as at_c:
                await b.wait_for_subscribers("x/1", 2, timeout=8)
                await c.wait_for_subscribers("x/1", 2, timeout=8)
                await b.put("x/1", {"from": "b"})
                await c.put("x/1", b"c" * 3_000_000)
                at_client = {each.origin: each for each in await take(at_c, 2)}
                at_peer = {each.origin: each for each in await take(at_b, 2)}
            assert at_client["b"].payload == at_peer["b"].payload == {"from": "b"}
            assert len(at_client["c"].payload) == len(at_peer["c"].payload) == 3_000_000
            assert at_client["b"].path == ("b", "a", "c")

    run(scenario())


def test_no_peer_is_open_by_accident(monkeypatch: pytest.MonkeyPatch, identities: Identities) -> None:
    monkeypatch.delenv("ANABRANCH_OPEN")
    with pytest.raises(UsageError, match=r"has no identity: .*--identity .*--open, open=True"):
        Peer("a", listen=HOST)
    with pytest.raises(UsageError, match="choose one of them"):
        Peer("a", listen=HOST, identity=identities["a"], open=True)
    with pytest.raises(UsageError, match="names 'a'"):
        Peer("b", listen=HOST, identity=identities["a"])
    with pytest.raises(UsageError, match="there is no such file"):
        Peer("b", listen=HOST, identity="/nowhere/at/all")
    monkeypatch.setenv("ANABRANCH_IDENTITY", str(identities["a"]))
    assert Peer("a", listen=HOST).identity is not None
    assert Peer("a", listen=HOST, open=True).identity is None


def test_an_open_mesh_says_so(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with Peer("a", listen=HOST, open=True):
            pass

    structlog.reset_defaults()
    with caplog.at_level("INFO", "anabranch"):
        run(scenario())
    assert "open mesh" in caplog.text
    caplog.clear()
    with structlog.testing.capture_logs() as said:
        run(scenario())
    assert [each["log_level"] for each in said if "open mesh" in str(each["event"])] == ["warning"]


# Threats, by their numbers in docs/security.md


def test_threat_1_without_the_handler_nobody_gets_in(
    context: "zmq.Context[zmq.SyncSocket]", other_context: "zmq.Context[zmq.SyncSocket]"
) -> None:
    """Undefended (no ZAP_ENFORCE_DOMAIN) all three frames are delivered: tried by leaving that option out."""

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        lock = Lock(DOMAIN, Counters(), 64, 3.0)
        routers = [made.socket(zmq.ROUTER) for made in (context, other_context)]
        for router in routers:
            lock.guard_accepting(router)
        ports = [router.bind_to_random_port("tcp://127.0.0.1") for router in routers]
        readers: list[zmq.SyncSocket] = []

        def watch(made: zmq.SyncSocket, read: Callable[[], None]) -> None:
            readers.append(made)
            loop.add_reader(made.fileno(), read)

        async def knock(port: int) -> int:
            dealer, _ = stranger(context, f"tcp://127.0.0.1:{port}")
            dealer.send(b"hello?")
            await asyncio.sleep(0.4)
            dealer.close(0)
            return sum(router.poll(0) for router in routers)

        assert await knock(ports[0]) == 0, "before there is a handler"
        lock.start(context, watch)
        dealer, _ = stranger(context, f"tcp://127.0.0.1:{ports[0]}")
        dealer.send(b"hello?")
        await soon(lambda: routers[0].poll(0))  # the way does lead here while the handler answers
        routers[0].recv_multipart()
        dealer.close(0)
        assert await knock(ports[1]) == 0, "from a second context"
        handler = lock.stop()
        assert handler is readers[0]
        loop.remove_reader(handler.fileno())
        handler.close(0)
        assert await knock(ports[0]) == 0, "after the handler is gone"

    asyncio.run(scenario())


@pytest.mark.parametrize("mechanism", ["NULL", "PLAIN", "other domain"])
def test_threats_2_and_3_no_other_mechanism_and_no_claimed_user(
    mechanism: str, identities: Identities, context: "zmq.Context[zmq.SyncSocket]"
) -> None:
    """Checked with a listening socket without CURVE, and hellos that nobody looks at: an answer comes."""

    async def scenario() -> None:
        async with talking(identities) as (a, _):
            if mechanism == "other domain":
                dealer, _ = stranger(context, a.addresses[0], "elsewhere.example")
            else:
                dealer = context.socket(zmq.DEALER)
                if mechanism == "PLAIN":
                    dealer.plain_username, dealer.plain_password = b"a", b"b"
                dealer.connect(a.addresses[0])
            dealer.setsockopt(zmq.METADATA, b"X-User-Id:b") if hasattr(zmq, "METADATA") else None
            before = len(a.report()["links"])  # type: ignore[arg-type]
            with contextlib.suppress(zmq.Again):
                dealer.send(encode_control(Kind.HELLO, Hello("b", 2**52, "peer", 1)), zmq.NOBLOCK)
            await asyncio.sleep(0.5)
            assert len(a.report()["links"]) == before  # type: ignore[arg-type]
            assert dealer.poll(0) == 0, "not a word comes back"

    run(scenario())


def test_a_stranger_with_the_right_door_key_gets_nothing(
    identities: Identities, context: "zmq.Context[zmq.SyncSocket]"
) -> None:
    """Checked with hellos that nobody looks at (`_is_proven`): the stranger is a neighbour."""

    async def scenario() -> None:
        async with talking(identities) as (a, _):
            dealer, _ = stranger(context, a.addresses[0])
            dealer.send(encode_control(Kind.HELLO, Hello("b", 2**52, "peer", 1)))
            await soon(lambda: a.counters["dropped.untrusted"])
            await soon(lambda: dealer.poll(0))
            assert dealer.recv()[1] == Kind.BYE
            await asyncio.sleep(0.2)
            assert dealer.poll(0) == 0, "neither records nor topics"
            assert [link["peer"] for link in a.report()["links"]] == ["b"]  # type: ignore[attr-defined]

    run(scenario())


def test_threat_4_a_claimed_routing_id_takes_nothing_over(
    identities: Identities, context: "zmq.Context[zmq.SyncSocket]"
) -> None:
    """The id under which a's socket knows the connection of b, claimed while b has it. Checked with
    ROUTER_HANDOVER in `make_router`: b gets nothing any more."""

    async def scenario() -> None:
        async with talking(identities) as (a, b), b.subscribe("x") as wanted:
            await a.wait_for_subscribers("x", timeout=5)
            (of_b,) = a._running().wiring._accepted
            for claimed in (of_b, b"same", b"same"):
                dealer = context.socket(zmq.DEALER)
                Lock(DOMAIN, Counters(), 64, 3.0).guard_dialling(dealer)
                dealer.setsockopt(zmq.ROUTING_ID, claimed)
                monitor = dealer.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED)
                dealer.connect(a.addresses[0])
                dealer.send(b"\x01\x02garbage")
                await soon(lambda: monitor.poll(0))  # noqa: B023 - awaited here
                dealer.disable_monitor()
                monitor.close(0)
            await soon(lambda: a.counters["dropped.malformed"])
            await a.put("x", 1)
            assert (await wanted.receive(timeout=5)).payload == 1

    run(scenario())


def test_threat_5_no_socket_names_its_neighbours_and_all_come_from_the_factory() -> None:
    """Checked with ROUTER_HANDOVER in `make_router`."""
    sources = [*Path("transport").rglob("*.py"), *Path("tools/commands").rglob("*.py")]
    texts = {path.name: path.read_text() for path in sources}
    assert len(texts) > 20
    makers = {name for name, text in texts.items() if "context.socket(" in text}
    assert makers == {"sockets.py"}
    for name, text in texts.items():
        for word in ("CONNECT_ROUTING_ID", "ROUTER_HANDOVER", "recv_pyobj", "zmq.asyncio"):
            assert word not in text, name


def test_threat_6_a_giant_first_frame_takes_no_memory(identities: Identities) -> None:
    """Checked without MAXMSGSIZE."""

    async def scenario() -> None:
        async with talking(identities) as (a, _):
            before = resident_kib()
            greeting = b"\xff" + bytes(8) + b"\x7f\x03\x00CURVE" + bytes(15) + b"\x00" + bytes(31)
            raw = socket.create_connection(("127.0.0.1", port_of(a)))
            raw.settimeout(5)
            raw.sendall(greeting)
            raw.recv(64)
            sent, sizes = 0, [before]
            chunk = bytes(1 << 20)
            with contextlib.suppress(OSError):
                raw.sendall(b"\x06" + (8 << 30).to_bytes(8, "big"))
                while sent < 64 << 20:
                    sent += await asyncio.to_thread(raw.send, chunk)
                    sizes.append(resident_kib())
            raw.close()
            grown_kib = max(sizes) - before
            assert sent < 64 << 20, "the connection was ended"
            assert grown_kib < 5 * 1024

    run(scenario())


def test_threat_7_silent_connections_do_not_keep_members_out(identities: Identities) -> None:
    """Checked without the limit of silent connections per host."""

    async def scenario() -> None:
        async with Peer("a", listen=HOST, identity=identities["a"]) as a:
            silent = [
                socket.create_connection(("127.0.0.1", port_of(a)), source_address=("127.0.0.2", 0))
                for _ in range(200)
            ]
            started = time.monotonic()
            async with Peer("b", join=a.addresses, identity=identities["b"]) as b:
                await b.wait_for_links(timeout=5)
            assert time.monotonic() - started < 3
            await soon(lambda: a.counters["refused_handshakes"])
            for each in silent:
                each.close()

    run(scenario())


def test_knocking_is_limited_per_host(identities: Identities, context: "zmq.Context[zmq.SyncSocket]") -> None:
    """Checked without that limit."""

    async def scenario() -> None:
        config = Config(hello_timeout_s=1.0)
        async with Peer("a", listen=HOST, identity=identities["a"], config=config) as a:
            for _ in range(40):
                stranger(context, f"tcp://127.0.0.2:0;127.0.0.1:{port_of(a)}")
            await soon(lambda: a.counters["refused_handshakes"] >= 8)
            async with Peer("b", join=a.addresses, identity=identities["b"]) as b:
                await b.wait_for_links(timeout=8)  # another host is not held back

    run(scenario())


@pytest.mark.parametrize("frames", [[bytes(HELLO_MAX_BYTES + 1)], [b"\x01\x02", b"more"]])
def test_before_its_hello_a_connection_says_little_or_is_ended(
    frames: list[bytes], identities: Identities, context: "zmq.Context[zmq.SyncSocket]"
) -> None:
    """Checked without the look at its frames in `_hear_stranger`."""

    async def scenario() -> None:
        async with talking(identities) as (a, _):
            dealer, _ = stranger(context, a.addresses[0])
            monitor = dealer.get_monitor_socket(zmq.EVENT_DISCONNECTED)
            dealer.send_multipart(frames)
            await soon(lambda: a.counters["dropped.oversized"] == 1)
            await soon(lambda: monitor.poll(0))
            dealer.disable_monitor()
            monitor.close(0)

    run(scenario())


def test_somebody_in_between_cannot_pass_for_either_end(
    identities: Identities, context: "zmq.Context[zmq.SyncSocket]"
) -> None:
    """Knows the door key, ends CURVE on both sides, and passes everything on. Undefended (a hello that does
    not cover the connection's key) both ends link up: tried with an empty binding in what is signed
    and checked."""

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        async with Peer("a", listen=HOST, identity=identities["a"]) as a:
            lock = Lock(DOMAIN, Counters(), 64, 3.0)
            lock.start(context, lambda made, read: loop.add_reader(made.fileno(), read))
            front = context.socket(zmq.ROUTER)
            lock.guard_accepting(front)
            port = front.bind_to_random_port("tcp://127.0.0.1")
            back, _ = stranger(context, a.addresses[0])
            passed: list[int] = []

            async def pass_on() -> None:
                caller = b""
                while True:
                    while front.poll(0):
                        caller, *frames = front.recv_multipart()
                        passed.append(frames[0][1])
                        back.send_multipart(frames)
                    while back.poll(0):
                        frames = back.recv_multipart()
                        passed.append(frames[0][1])
                        front.send_multipart([caller, *frames])
                    await asyncio.sleep(0.005)

            between = asyncio.create_task(pass_on())
            async with Peer("b", join=f"tcp://127.0.0.1:{port}", identity=identities["b"]) as b:
                await soon(lambda: a.counters["dropped.untrusted"])
                await asyncio.sleep(0.3)
                assert not a.report()["links"]
                assert not [link for link in b.report()["links"] if link["state"] == "up"]  # type: ignore[attr-defined]
            between.cancel()
            assert set(passed) <= {Kind.HELLO, Kind.BYE}
            handler = lock.stop()
            assert handler is not None
            loop.remove_reader(handler.fileno())
            handler.close(0)

    asyncio.run(scenario())


def test_threat_10_revocation_and_renewal_reach_live_links(identities: Identities) -> None:
    """Checked by evicting nobody, and with a list of revocations that is not asked."""

    async def scenario() -> None:
        traitor = identities["traitor"]
        async with (
            talking(identities) as (a, b),
            Peer("traitor", join=b.addresses or a.addresses, identity=traitor) as t,
        ):
            await t.wait_for_links(timeout=8)
            async with t.subscribe("x") as wanted:
                await a.wait_for_subscribers("x", timeout=5)
                identities.revoke("traitor", tell="b")
                await soon(lambda: a.counters["evicted"])
                await a.put("x", "secret")
                await asyncio.sleep(1.0)
                assert a.counters["published_unwanted"] == 1
                with pytest.raises(TimeoutError):
                    await wanted.receive(timeout=0.1)
                assert "traitor" not in str(a.report()["links"])
            identities.issue("a")  # a new certificate while it runs
            await soon(lambda: b._node is not None and len(b._node._parts.verifier._holders["a"]) == 2)  # type: ignore[attr-defined]
            async with b.subscribe("y") as more:
                await a.wait_for_subscribers("y", timeout=5)
                await a.put("y", "still here")
                assert (await more.receive(timeout=5)).payload == "still here"

    run(scenario())


def test_an_expired_peer_is_parted_with(identities: Identities) -> None:
    """Checked by evicting nobody."""

    async def scenario() -> None:
        brief = identities.issue("brief", 2.5 / 3600)
        async with (
            Peer("a", listen=HOST, identity=identities["a"]) as a,
            Peer("brief", join=a.addresses, identity=brief) as short,
        ):
            await short.wait_for_links(timeout=5)
            await soon(lambda: a.counters["evicted"])
            assert not a.report()["links"]
        with pytest.raises(UsageError, match="expired at"):
            Peer("brief", join="tcp://127.0.0.1:1", identity=brief)

    run(scenario())


def test_threat_23_a_listener_on_the_wire_reads_no_name_and_no_topic(identities: Identities) -> None:
    """Checked without CURVE: all of it can be read."""

    async def scenario() -> None:
        seen = bytearray()
        async with Peer("a", listen=HOST, identity=identities["a"]) as a:

            async def tap(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                up_reader, up_writer = await asyncio.open_connection("127.0.0.1", port_of(a))

                async def copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
                    with contextlib.suppress(ConnectionError):
                        while data := await source.read(65536):
                            seen.extend(data)
                            sink.write(data)
                    sink.close()

                await asyncio.gather(copy(reader, up_writer), copy(up_reader, writer))

            server = await asyncio.start_server(tap, "127.0.0.1", 0)
            port = server.sockets[0].getsockname()[1]
            config = Config(neighbours_target=0)
            own = identities["watched-peer"]
            join = f"tcp://127.0.0.1:{port}"
            async with (
                Peer("watched-peer", join=join, identity=own, config=config) as b,
                b.subscribe("very/secret/topic") as wanted,
            ):
                await a.wait_for_subscribers("very/secret/topic", timeout=5)
                await a.put("very/secret/topic", b"very secret payload")
                assert (await wanted.receive(timeout=5)).payload == b"very secret payload"
            server.close()
        assert len(seen) > 2000
        for word in (b"secret", b"watched-peer", DOMAIN.encode(), b"anabranch://"):
            assert word not in bytes(seen)

    run(scenario())


def test_threat_24_the_libraries_are_new_enough() -> None:
    import cryptography

    assert zmq.zmq_version_info() >= (4, 3, 5)
    assert int(cryptography.__version__.split(".")[0]) >= 47
    assert zmq.has("curve")
    assert ZAP_DOMAIN
    assert os.environ["ANABRANCH_OPEN"] == "1", "the tests' own default, see conftest.py"
