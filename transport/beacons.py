"""Finds peers on the local network: small UDP datagrams to a multicast group, and to a list of addresses.

What a beacon says is a hint that anybody can forge: it leads to a dial, and the hello on the link decides.
"""

import asyncio
import contextlib
import ipaddress
import random
import socket
import struct
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, cast

import msgspec
import structlog

from anabranch.overlay.addresses import is_dialable, parse_address
from anabranch.overlay.errors import UsageError
from anabranch.overlay.identifiers import PeerId, is_peer_name

DATAGRAM_MAX_BYTES = 1200
"""Passes every usual network in one piece."""
SocketAddress = tuple[str, int] | tuple[str, int, int, int]
"""As Python's sockets take and give them: IPv4, IPv6."""
_MAGIC = b"ANBR\x01"
"""Four letters and the version."""
_ADDRESSES_MAX = 16
_HANDLED_PER_S_MAX = 256
_SEEN_MAX = 1024
_REPEAT_S = 30.0
"""A peer still heard is reported again, and a name looked up again, this often."""
_DRAIN_MAX = 64
_FORM = "use udp://239.x.y.z:PORT or udp://[ff02::x]:PORT, with an interface as udp://INTERFACE;GROUP:PORT"
_log = structlog.get_logger("anabranch.beacons")


class Beacon:
    """Announces this peer's addresses each `interval_s`, slowing to `interval_max_s`, and listens for others.

    `on_found(name, addresses)` is called in the event loop for each peer when it is first heard, when its
    addresses change, and every half minute. Announcing quickens again when somebody new is heard.
    An address `tcp://0.0.0.0:PORT` goes out as it is: receivers put the sender's host in its place.
    Datagrams go to the group and to `unicast` ("host:port"); without multicast only the latter are reached,
    which is logged once. Unicast arrives at the group's port; among several peers of a host, at one of them.
    """

    ignored: int
    """Datagrams that were garbage, oversized, of another mesh or without an address that can be dialled."""
    limited: int
    """Datagrams left unread because more than 256 came within a second."""

    def __init__(
        self,
        group: str,
        *,
        name: str,
        instance: int,
        addresses: Callable[[], list[str]],
        on_found: Callable[[str, list[str]], None],
        unicast: Sequence[str] = (),
        mesh: str = "anabranch",
        interval_s: float = 1.0,
        interval_max_s: float = 10.0,
        interface: str | None = None,
        loopback: bool = True,
    ) -> None:
        """`instance`: a number that tells this process from all others, as the epoch does.

        `interface`: its name, or for IPv4 its address; by default that of `group`, or the system chooses.
        `loopback`: whether other peers on this host hear the multicast.
        """
        if not is_peer_name(mesh):
            raise UsageError(f"mesh name {mesh!r}: use letters, digits, '.', '_' and '-' as in a peer's name")
        if not 0 <= instance < 2**64:
            raise UsageError(f"beacon instance {instance}: must be from 0 to 2**64 - 1")
        if not 0 < interval_s <= interval_max_s:
            raise UsageError(f"interval_s = {interval_s}: must be positive, and {interval_max_s} at most")
        self.ignored = self.limited = 0
        self._group = parse_group(group, interface)
        self._unicast = [parse_endpoint(text, self._group.family) for text in unicast]
        self._targets: dict[tuple[str, int], SocketAddress] = {}
        self._name = str(PeerId.parse(name))
        self._instance = instance
        self._mesh = mesh
        self._addresses = addresses
        self._on_found = on_found
        self._interval_s = interval_s
        self._interval_max_s = interval_max_s
        self._loopback = loopback
        self._rng = random.Random(instance)  # noqa: S311 - spreads announcements in time, guards nothing
        self._seen: dict[int, tuple[list[str], float]] = {}  # addresses, when on_found was told
        self._second = 0.0
        self._handled = 0
        self._newcomer = asyncio.Event()
        self._told: set[str] = set()
        self._sender: socket.socket | None = None
        self._listener: socket.socket | None = None
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Open the sockets and begin to announce. Trouble with the network is logged and tried again."""
        if not self._tasks:
            self._open_sockets()
            work = (self._resolve_for_ever(), self._announce_for_ever())
            self._tasks = [asyncio.create_task(coroutine) for coroutine in work]
            for task in self._tasks:
                task.add_done_callback(self._task_done)

    async def close(self) -> None:
        """Fall silent and free the sockets."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._drop(self._sender)
        self._drop(self._listener)
        self._sender = self._listener = None

    def _task_done(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():  # `addresses` raised
            _log.error("beacon_stopped", peer=self._name, error=repr(task.exception()))

    async def _announce_for_ever(self) -> None:
        pause_s = self._interval_s
        while True:
            self._open_sockets()
            self._announce()
            await asyncio.sleep(self._interval_s * self._rng.uniform(0.9, 1.1))
            try:
                async with asyncio.timeout(pause_s - self._interval_s):
                    await self._newcomer.wait()
                pause_s = self._interval_s
            except TimeoutError:
                pause_s = min(pause_s * 1.5, self._interval_max_s)
            self._newcomer.clear()

    def _announce(self) -> None:
        addresses = [text for text in self._addresses() if _dialable([text], ("127.0.0.1", 0))]
        if not addresses or self._sender is None:
            return  # nobody could dial us, or nothing can leave; we still listen
        datagram = _encode(Announcement(self._mesh, self._name, self._instance, addresses[:_ADDRESSES_MAX]))
        if self._listener is not None and not self._sent(self._sender, datagram, None, "multicast"):
            self._drop(self._listener)
            self._listener = self._opened("multicast", None)  # joins anew an interface that went and returned
        for (host, port), target in self._targets.items():
            self._sent(self._sender, datagram, target, f"unicast to {host}:{port}")

    def _sent(self, end: socket.socket, datagram: bytes, target: SocketAddress | None, what: str) -> bool:
        try:
            end.sendto(datagram, target or self._group.socket_address())
        except BlockingIOError:
            pass  # the next announcement makes up for it
        except OSError as error:
            self._tell(what, error)
            return False
        return True

    async def _resolve_for_ever(self) -> None:
        """Keep looking names up: they may move, or be unknown at first. A slow answer delays nobody else."""
        self._targets = {(host, port): (host, port) for host, port in self._unicast if _is_ip(host)}
        loop = asyncio.get_running_loop()
        while True:
            for host, port in self._unicast:
                try:
                    if not _is_ip(host):
                        found = await loop.getaddrinfo(host, port, family=self._group.family)
                        self._targets[host, port] = cast(SocketAddress, found[0][4])
                except (OSError, UnicodeError) as error:
                    self._tell(f"name of {host}", error)
            await asyncio.sleep(_REPEAT_S)

    def _readable(self, end: socket.socket) -> None:
        now = asyncio.get_running_loop().time()
        for _ in range(_DRAIN_MAX):
            try:
                datagram, sender = end.recvfrom(DATAGRAM_MAX_BYTES + 1)
            except OSError:
                return  # empty; or an earlier datagram of ours could not be delivered, which is no news
            if now - self._second >= 1.0:
                self._second, self._handled = now, 0
            self._handled += 1
            if self._handled > _HANDLED_PER_S_MAX:
                self.limited += 1
            else:
                self._handle(datagram, sender, now)

    def _handle(self, datagram: bytes, sender: SocketAddress, now: float) -> None:
        announcement = _decode(datagram)
        if announcement is None or announcement.mesh != self._mesh:
            self.ignored += 1
            return
        if announcement.instance == self._instance:
            return
        addresses = _dialable(announcement.addresses, sender)
        if not addresses:
            self.ignored += 1
            return
        known, told_at = self._seen.pop(announcement.instance, (None, now))
        if known is None:
            self._newcomer.set()
            if len(self._seen) >= _SEEN_MAX:
                del self._seen[next(iter(self._seen))]  # the one not heard for longest
        is_news = known != addresses or now - told_at >= _REPEAT_S
        self._seen[announcement.instance] = (addresses, now if is_news else told_at)
        if is_news:
            self._on_found(announcement.name, addresses)

    def _open_sockets(self) -> None:
        """Open what is not open yet: an interface may come up later than we do."""
        if self._sender is None:
            self._sender = self._opened("port", self._group.port) or self._opened("any port", 0)
        if self._listener is None and self._sender is not None:
            self._listener = self._opened("multicast", None)

    def _opened(self, what: str, sender_port: int | None) -> socket.socket | None:
        try:
            if sender_port is None and self._sender is not None:
                self._group.aim(self._sender, self._loopback)
            end = self._group.open(sender_port)
        except OSError as error:
            self._tell(what, error)
            return None
        asyncio.get_running_loop().add_reader(end.fileno(), self._readable, end)
        return end

    def _drop(self, end: socket.socket | None) -> None:
        if end is not None:
            asyncio.get_running_loop().remove_reader(end.fileno())
            end.close()

    def _tell(self, what: str, error: Exception) -> None:
        """Log the first trouble of each kind; they tend to repeat with each announcement."""
        if what not in self._told:
            self._told.add(what)
            _log.warning("beacon_trouble", peer=self._name, what=what, error=str(error))


class Group(msgspec.Struct, frozen=True):
    """A multicast group and the interface it is used on."""

    host: str
    port: int
    interface: str | None = None
    """Name, or IPv4 address; None: as the system routes."""

    @property
    def family(self) -> socket.AddressFamily:
        """IPv4 or IPv6."""
        return socket.AF_INET6 if ":" in self.host else socket.AF_INET

    def socket_address(self) -> SocketAddress:
        """Where to send to; OSError when there is no such interface."""
        is_ipv6 = self.family == socket.AF_INET6
        return (self.host, self.port, 0, self._index()) if is_ipv6 else (self.host, self.port)

    def open(self, sender_port: int | None) -> socket.socket:
        """A socket that sends, and receives what is sent to this port of the host alone.

        With None instead of a port, one that receives what is sent to the group and nothing else.
        """
        end = socket.socket(self.family, socket.SOCK_DGRAM)
        try:
            end.setblocking(False)
            end.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if sys.platform != "linux":
                end.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            elif self.family == socket.AF_INET:  # IP_MULTICAST_ALL: only groups that this very socket joined
                end.setsockopt(socket.IPPROTO_IP, 49, 0)
            if self.family == socket.AF_INET6:
                end.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            end.bind(self.socket_address() if sender_port is None else (self._local_host(), sender_port))
            if sender_port is None and self.family == socket.AF_INET6:
                request = socket.inet_pton(socket.AF_INET6, self.host) + struct.pack("@I", self._index())
                end.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, request)
            elif sender_port is None:
                end.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, self._ip_mreqn())
        except OSError:
            end.close()
            raise
        return end

    def aim(self, sender: socket.socket, loopback: bool) -> None:
        """Let its multicast leave through the interface, for one hop; OSError when there is no such one."""
        if self.family == socket.AF_INET6:
            sender.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, 1)
            sender.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_LOOP, int(loopback))
            sender.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, self._index())
        else:
            sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 1)
            sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, int(loopback))
            sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, self._ip_mreqn())

    def _local_host(self) -> str:
        """What to bind to: no wider than the interface, where its address is known."""
        if self.interface in ("lo", "lo0"):
            return "::1" if self.family == socket.AF_INET6 else "127.0.0.1"
        return self.interface if self.interface and _is_ip(self.interface) else ""

    def _index(self) -> int:
        return socket.if_nametoindex(self.interface) if self.interface else 0

    def _ip_mreqn(self) -> bytes:
        """The kernel's structure: group, the interface's address, its index."""
        if self.interface and _is_ip(self.interface):
            interface = socket.inet_aton(self.interface) + struct.pack("@i", 0)
        else:
            interface = bytes(4) + struct.pack("@i", self._index())
        return socket.inet_aton(self.host) + interface


class Announcement(msgspec.Struct, array_like=True, frozen=True):
    """What a datagram says, after the magic bytes."""

    mesh: str
    name: str
    instance: Annotated[int, msgspec.Meta(ge=0)]
    addresses: Annotated[list[str], msgspec.Meta(max_length=_ADDRESSES_MAX)]


def parse_group(text: str, interface: str | None = None) -> Group:
    """Parse `udp://GROUP:PORT` or `udp://INTERFACE;GROUP:PORT`; UsageError names it and shows the form."""
    scheme, _, rest = text.partition("://")
    named, semicolon, endpoint = rest.rpartition(";")
    host, port = _split(endpoint)
    if scheme != "udp" or not port or (semicolon and not named):
        raise UsageError(f"beacon group {text!r}: {_FORM}")
    if not _is_ip(host) or not ipaddress.ip_address(host).is_multicast:
        raise UsageError(f"beacon group {text!r}: {host!r} is no multicast address; {_FORM}")
    interface = interface or named or None
    if interface and (":" in interface or (":" in host and _is_ip(interface))):
        raise UsageError(f"beacon group {text!r}: name the interface, as in eth0, instead of {interface!r}")
    return Group(host, port, interface)


def parse_endpoint(text: str, family: socket.AddressFamily | None = None) -> tuple[str, int]:
    """Parse `HOST:PORT` (`[IPV6]:PORT`), of the group's family if that is given; UsageError names it."""
    host, port = _split(text)
    if not port or not host or "/" in host:
        raise UsageError(f"beacon address {text!r}: use HOST:PORT or [IPV6]:PORT")
    if family is not None and _is_ip(host) and (":" in host) != (family == socket.AF_INET6):
        raise UsageError(f"beacon address {text!r}: the group is of the other IP version; use one like it")
    return host, port


def _split(text: str) -> tuple[str, int]:
    """Host and port; 0 for a port that is not there, or no number up to 65535."""
    host, _, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if (":" in host and not bracketed) or not port.isascii() or not port.isdigit() or len(port) > 5:
        return host, 0
    return host[1:-1] if bracketed else host, int(port) if int(port) <= 65535 else 0


def _is_ip(host: str) -> bool:
    try:
        return "%" not in host and bool(ipaddress.ip_address(host))
    except ValueError:
        return False


def _encode(announcement: Announcement) -> bytes:
    """The datagram; the last addresses go if it would be too large."""
    while len(datagram := _MAGIC + msgspec.msgpack.encode(announcement)) > DATAGRAM_MAX_BYTES:
        announcement = msgspec.structs.replace(announcement, addresses=announcement.addresses[:-1])
    return datagram


def _decode(datagram: bytes) -> Announcement | None:
    """None: not one of ours."""
    if len(datagram) > DATAGRAM_MAX_BYTES or not datagram.startswith(_MAGIC):
        return None
    try:
        announcement = msgspec.msgpack.decode(datagram[len(_MAGIC) :], type=Announcement)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return announcement if is_peer_name(announcement.name) else None


def _dialable(addresses: list[str], sender: SocketAddress) -> list[str]:
    """The addresses that can be dialled from here: a wildcard becomes the sender's host.

    Paths count only from this very host: a stranger must not make us open local sockets.
    """
    host = sender[0].partition("%")[0]
    source = ipaddress.ip_address(host)
    if len(sender) == 4 and source.is_link_local:
        host = f"{host}%{sender[3]}"
    found = []
    for text in addresses:
        with contextlib.suppress(UsageError):
            address = parse_address(text)
            if address.is_wildcard:
                address = address.with_host(host)
            if is_dialable(str(address)) and (address.scheme == "tcp" or source.is_loopback):
                found.append(str(address))
    return found
