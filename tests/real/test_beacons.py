"""Beacons on loopback: found by multicast and by unicast, deaf to everything else."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable, Iterable
from typing import cast

import msgspec
import pytest
from structlog.testing import capture_logs

from anabranch.overlay.errors import UsageError
from anabranch.transport import beacons
from anabranch.transport.beacons import Announcement, Beacon, Group, parse_endpoint, parse_group
from anabranch.transport.loops import run

GROUP = "239.255.77.14"


class Finds:
    """Collects what a beacon reports and lets a test wait for it."""

    def __init__(self) -> None:
        self.all: list[tuple[str, list[str]]] = []
        self._queue: asyncio.Queue[tuple[str, list[str]]] = asyncio.Queue()

    def __call__(self, name: str, addresses: list[str]) -> None:
        self.all.append((name, addresses))
        self._queue.put_nowait((name, addresses))

    async def next(self) -> tuple[str, list[str]]:
        async with asyncio.timeout(10):
            return await self._queue.get()


def free_port(family: int = socket.AF_INET) -> int:
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.bind(("::1" if family == socket.AF_INET6 else "127.0.0.1", 0))
        return int(probe.getsockname()[1])


def tells(*addresses: str) -> Callable[[], list[str]]:
    return lambda: list(addresses)


@contextlib.asynccontextmanager
async def running(*all_beacons: Beacon) -> AsyncIterator[None]:
    try:
        for beacon in all_beacons:
            await beacon.start()
        yield
    finally:
        for beacon in all_beacons:
            await beacon.close()


def encoded(*, mesh: str = "anabranch", name: str = "x", instance: int = 99, addresses: list[str]) -> bytes:
    return b"ANBR\x01" + msgspec.msgpack.encode([mesh, name, instance, addresses])


def need_multicast_on_loopback() -> None:
    """Skip when this kernel has no multicast on lo; a failure of our own code still fails."""
    port = free_port()
    request = socket.inet_aton(GROUP) + socket.inet_aton("127.0.0.1")
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
    ):
        receiver.settimeout(2)
        try:
            receiver.bind((GROUP, port))
            receiver.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, request)
            sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("127.0.0.1"))
            sender.sendto(b"?", (GROUP, port))
            receiver.recv(1)
        except OSError as error:
            pytest.skip(f"the kernel refuses multicast on loopback: {error}")


@pytest.mark.parametrize("interface", ["127.0.0.1", "lo"])
def test_two_beacons_find_each_other_by_multicast(interface: str) -> None:
    need_multicast_on_loopback()
    if interface not in {name for _, name in socket.if_nameindex()} | {"127.0.0.1"}:
        pytest.skip(f"no interface {interface!r} on this system")

    async def scenario() -> None:
        group = f"udp://{GROUP}:{free_port()}"
        found_a, found_b = Finds(), Finds()
        a = Beacon(
            group,
            name="a",
            instance=1,
            addresses=tells("tcp://127.0.0.1:7001"),
            on_found=found_a,
            interface=interface,
        )
        b = Beacon(
            f"udp://{interface};{group.removeprefix('udp://')}",
            name="b",
            instance=2,
            addresses=tells("tcp://127.0.0.1:7002", "tcp://0.0.0.0:7003", "tcp://127.0.0.1:*"),
            on_found=found_b,
        )
        with capture_logs() as logs:
            async with running(a, b):
                assert await found_b.next() == ("a", ["tcp://127.0.0.1:7001"])
                assert await found_a.next() == ("b", ["tcp://127.0.0.1:7002", "tcp://127.0.0.1:7003"])
                await a.start()  # idempotent: a second start opens nothing
            await a.close()
        assert logs == []
        assert (a.ignored, b.ignored) == (0, 0)
        assert [name for name, _ in found_a.all] == ["b"], "told once, and never of itself"

    run(scenario())


def test_unicast_reaches_a_beacon_of_another_group() -> None:
    async def scenario() -> None:
        port_a, port_b = free_port(), free_port()
        found_a, found_b = Finds(), Finds()
        a = Beacon(
            f"udp://127.0.0.1;239.255.77.15:{port_a}",
            name="a",
            instance=1,
            addresses=tells("tcp://127.0.0.1:7001", "ipc:///tmp/a.sock"),
            on_found=found_a,
            unicast=[f"127.0.0.1:{port_b}"],
        )
        b = Beacon(
            f"udp://127.0.0.1;239.255.77.16:{port_b}",
            name="b",
            instance=2,
            addresses=tells("tcp://127.0.0.1:7002"),
            on_found=found_b,
            unicast=[f"localhost:{port_a}"],
            interval_s=0.1,
        )
        async with running(a, b):
            assert await found_b.next() == ("a", ["tcp://127.0.0.1:7001", "ipc:///tmp/a.sock"])
            assert await found_a.next() == ("b", ["tcp://127.0.0.1:7002"])

    run(scenario())


def test_without_multicast_the_unicast_list_still_works_and_the_log_says_so_once() -> None:
    async def scenario() -> None:
        port_a, port_b = free_port(), free_port()
        a = Beacon(
            f"udp://{GROUP}:{port_a}",
            name="a",
            instance=1,
            addresses=tells("tcp://127.0.0.1:7001"),
            on_found=Finds(),
            unicast=[f"127.0.0.1:{port_b}"],
            interface="no-such-if",
            interval_s=0.02,
            interval_max_s=0.02,
        )
        # A plain socket stands for the other peer: it sees every announcement, also the repeated ones.
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other, capture_logs() as logs:
            other.bind(("127.0.0.1", port_b))
            other.settimeout(10)
            async with running(a):
                for _ in range(3):
                    assert b"tcp://127.0.0.1:7001" in await asyncio.to_thread(other.recv, 2000)
        assert [entry["what"] for entry in logs].count("multicast") == 1

    run(scenario())


def test_ipv6_falls_back_or_multicasts() -> None:
    """On most systems lo has no IPv6 multicast route, so this is the fall-back for real."""

    async def scenario() -> None:
        try:
            port_a, port_b = free_port(socket.AF_INET6), free_port(socket.AF_INET6)
        except OSError as error:
            pytest.skip(f"no IPv6 on loopback: {error}")
        found_a, found_b = Finds(), Finds()
        a = Beacon(
            f"udp://lo;[ff02::4d0e]:{port_a}",
            name="a",
            instance=1,
            addresses=tells("tcp://[::]:7001"),
            on_found=found_a,
            unicast=[f"[::1]:{port_b}"],
        )
        b = Beacon(
            f"udp://lo;[ff02::4d0e]:{port_b}",
            name="b",
            instance=2,
            addresses=tells("tcp://[::1]:7002"),
            on_found=found_b,
            unicast=[f"[::1]:{port_a}"],
        )
        with capture_logs():
            async with running(a, b):
                assert await found_b.next() == ("a", ["tcp://[::1]:7001"])
                assert await found_a.next() == ("b", ["tcp://[::1]:7002"])

    run(scenario())


def test_garbage_other_meshes_and_oversized_datagrams_are_counted_and_ignored() -> None:
    good = "tcp://127.0.0.1:7009"
    bad = [
        b"",
        b"\x00" * 40,
        b"ANBR\x01",
        b"ANBR\x02" + encoded(addresses=[good])[5:],
        encoded(addresses=[good])[:-3],
        encoded(mesh="other", addresses=[good]),
        encoded(name="no spaces allowed", addresses=[good]),
        encoded(instance=-1, addresses=[good]),
        encoded(addresses=[]),
        encoded(addresses=["tcp://*:0", "what://x", "nonsense"]),
        encoded(addresses=[good] * 17),
        encoded(addresses=["tcp://" + "h" * 1300 + ":1"]),
        b"ANBR\x01" + msgspec.msgpack.encode({"mesh": "anabranch"}),
        b"ANBR\x01" + b"\x91" * 1100,
    ]

    async def scenario() -> None:
        port = free_port()
        found = Finds()
        beacon = Beacon(
            f"udp://127.0.0.1;{GROUP}:{port}", name="a", instance=1, addresses=tells(), on_found=found
        )
        async with running(beacon):
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
                for datagram in bad:
                    stranger.sendto(datagram, ("127.0.0.1", port))
                stranger.sendto(encoded(instance=1, addresses=[good]), ("127.0.0.1", port))  # our own echo
                stranger.sendto(encoded(instance=2**64 - 1, addresses=[good, "bad"]), ("127.0.0.1", port))
                assert await found.next() == ("x", [good])
        assert beacon.ignored == len(bad)
        assert len(found.all) == 1

    run(scenario())


def test_a_flood_is_limited_and_the_table_of_seen_peers_stays_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(beacons, "_SEEN_MAX", 50)

    async def scenario() -> None:
        found = Finds()
        beacon = Beacon(f"udp://{GROUP}:7399", name="a", instance=1, addresses=tells(), on_found=found)
        flood = Flood(
            encoded(instance=number, addresses=[f"tcp://127.0.0.1:{number}"]) for number in range(100, 400)
        )
        while flood.left:
            beacon._readable(cast(socket.socket, flood))
        assert len(found.all) == 256
        assert beacon.limited == 44
        assert len(beacon._seen) == 50

    run(scenario())


class Flood:
    """Stands for a socket with many datagrams waiting: all arrive within the same second, on any machine."""

    def __init__(self, datagrams: Iterable[bytes]) -> None:
        self.left = list(datagrams)

    def recvfrom(self, _size: int) -> tuple[bytes, tuple[str, int]]:
        if not self.left:
            raise BlockingIOError
        return self.left.pop(0), ("127.0.0.1", 1)


def test_a_changed_address_is_told_at_once_and_an_unchanged_one_after_a_while() -> None:
    found: list[list[str]] = []
    beacon = Beacon(
        f"udp://{GROUP}:7399", name="a", instance=1, addresses=tells(), on_found=lambda _, a: found.append(a)
    )
    old, new = ["tcp://127.0.0.1:1"], ["tcp://127.0.0.1:2"]
    for now, addresses in [
        (0.0, old),
        (1.0, old),
        (2.0, new),
        (3.0, new),
        (31.9, new),
        (32.0, new),
        (33.0, new),
    ]:
        beacon._handle(encoded(addresses=addresses), ("127.0.0.1", 1), now)
    assert found == [old, new, new]


def test_addresses_are_judged_by_where_the_datagram_came_from() -> None:
    offered = ["tcp://0.0.0.0:7400", "tcp://[::]:7401", "ipc:///run/docker.sock", "tcp://10.0.0.9:7402"]
    assert beacons._dialable(offered, ("192.0.2.7", 1)) == [
        "tcp://192.0.2.7:7400",
        "tcp://192.0.2.7:7401",
        "tcp://10.0.0.9:7402",
    ]
    assert "ipc:///run/docker.sock" in beacons._dialable(offered, ("127.0.0.1", 1))
    assert beacons._dialable(["tcp://[::]:7401"], ("fe80::1", 1, 0, 3)) == ["tcp://[fe80::1%3]:7401"]


def test_announcements_fit_one_datagram() -> None:
    addresses = [f"tcp://{'h' * 200}.example:{port}" for port in range(1000, 1016)]
    datagram = beacons._encode(Announcement("anabranch", "a" * 64, 2**64 - 1, addresses))
    assert 900 < len(datagram) <= beacons.DATAGRAM_MAX_BYTES
    decoded = beacons._decode(datagram)
    assert decoded is not None
    assert decoded.addresses == addresses[:5]


def test_well_formed_groups_and_endpoints() -> None:
    assert parse_group("udp://239.1.2.3:7399") == Group("239.1.2.3", 7399)
    assert parse_group("udp://eth0;239.1.2.3:7399") == Group("239.1.2.3", 7399, "eth0")
    assert parse_group("udp://eth0;[ff02::7]:7399") == Group("ff02::7", 7399, "eth0")
    assert parse_endpoint("seed.example:7399") == ("seed.example", 7399)
    assert parse_endpoint("[::1]:7399") == ("::1", 7399)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "239.1.2.3:7399",
        "tcp://239.1.2.3:7399",
        "udp://239.1.2.3",
        "udp://239.1.2.3:0",
        "udp://239.1.2.3:70000",
        "udp://239.1.2.3:x",
        "udp://10.0.0.1:7399",
        "udp://mesh.example:7399",
        "udp://ff02::7:7399",
        "udp://[ff02::7%eth0]:7399",
        "udp://;239.1.2.3:7399",
        "udp://::1;[ff02::7]:7399",
    ],
)
def test_a_malformed_group_names_itself(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        Beacon(text, name="a", instance=1, addresses=tells(), on_found=Finds())
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize("text", ["", "host", "host:0", ":7399", "::1:7399", "udp://host:7399", "[::1]:7399"])
def test_a_malformed_unicast_address_names_itself(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        Beacon(
            f"udp://{GROUP}:7399", name="a", instance=1, addresses=tells(), on_found=Finds(), unicast=[text]
        )
    assert repr(text) in str(caught.value)
