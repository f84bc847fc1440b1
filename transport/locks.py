"""Encrypts the links of one peer (CURVE) and limits who may knock; the core decides who may stay.

The key pair of a link is made for that link, by the side that dials. Both hellos sign it, so neither end can
be somebody in between. The accepting side's own key only lets connections begin: all of a domain share it.
"""

import hashlib
import ipaddress
import time
from collections import Counter
from collections.abc import Callable

import zmq
from zmq.utils import z85

from anabranch.overlay.counters import Counters
from anabranch.transport.sockets import make_handler

ZAP_DOMAIN = b"anabranch"
HELLO_MAX_BYTES = 8 * 1024
"""What a connection may say before its hello is proven: one frame of this size."""
KNOCKING_PER_HOST_MAX = 32
"""Connections of one host that stand and have not proven themselves yet."""
SILENT_PER_HOST_MAX = 128
"""Connections of one host that have said nothing yet, those in their handshake included."""


class Lock:
    """CURVE for the sockets of one peer, and the handler that ZeroMQ asks about each connection (ZAP)."""

    def __init__(self, domain: str, counters: Counters, knocking_max: int, patience_s: float) -> None:
        secret = hashlib.sha256(b"anabranch-door-v1\0" + domain.encode()).digest()
        self._door_secret = z85.encode(secret)
        self._door_public = zmq.curve_public(self._door_secret)
        self._counters = counters
        self._knocking_max = knocking_max
        self._patience_s = patience_s
        self._knocking: dict[bytes, tuple[str, float]] = {}
        """By key: the host, and until when it has to prove itself."""
        self._silent: Counter[str] = Counter()
        """Connections that said nothing yet, by host."""
        self._host_of: dict[int, str] = {}
        """Their descriptors."""
        self._handler: zmq.SyncSocket | None = None

    def start(
        self,
        context: "zmq.Context[zmq.SyncSocket]",
        watch: Callable[[zmq.SyncSocket, Callable[[], None]], None],
    ) -> None:
        """Answer ZeroMQ's questions from now on; before any socket of the context listens."""
        handler = self._handler = make_handler(context)
        watch(handler, self._answer)

    def stop(self) -> zmq.SyncSocket | None:
        """The handler, to be closed last: without it nobody is let in."""
        handler, self._handler = self._handler, None
        return handler

    def guard_accepting(self, socket: zmq.SyncSocket) -> None:
        """Only CURVE, and nobody while the handler does not answer."""
        socket.setsockopt(zmq.CURVE_SERVER, 1)
        socket.setsockopt(zmq.CURVE_SECRETKEY, self._door_secret)
        socket.setsockopt(zmq.ZAP_DOMAIN, ZAP_DOMAIN)
        socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)

    def guard_dialling(self, socket: zmq.SyncSocket) -> bytes:
        """A key pair for this one connection; its public half, which both hellos sign."""
        public, secret = zmq.curve_keypair()
        socket.setsockopt(zmq.CURVE_PUBLICKEY, public)
        socket.setsockopt(zmq.CURVE_SECRETKEY, secret)
        socket.setsockopt(zmq.CURVE_SERVERKEY, self._door_public)
        return z85.decode(public)

    def binding_of(self, first: zmq.Frame) -> bytes:
        """The key of the connection that a frame came over; empty, which proves nothing, when it has none."""
        try:
            return bytes.fromhex(str(first.get("User-Id")))
        except (zmq.ZMQError, ValueError):
            return b""

    def proven(self, binding: bytes) -> None:
        """A connection is done with knocking: proven, or gone."""
        self._knocking.pop(binding, None)

    def came(self, descriptor: int, host: str) -> bool:
        """A connection was accepted; whether its host has too many silent ones."""
        self.spoke(descriptor)
        self._host_of[descriptor] = host
        self._silent[host] += 1
        if not host or self._silent[host] <= SILENT_PER_HOST_MAX:
            return False
        self._counters.add("refused_handshakes")
        return True

    def spoke(self, descriptor: int) -> None:
        """A connection is silent no more, or gone."""
        host = self._host_of.pop(descriptor, None)
        if host is not None:
            self._silent[host] -= 1
            if not self._silent[host]:
                del self._silent[host]

    def _answer(self) -> None:
        handler = self._handler
        while handler is not None and not handler.closed:
            try:
                question = handler.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            if len(question) < 8:
                continue
            routing_id, _, version, request, domain, address, _, mechanism, *credentials = question
            key = credentials[0] if len(credentials) == 1 else b""
            is_fine = version == b"1.0" and domain == ZAP_DOMAIN and mechanism == b"CURVE" and len(key) == 32
            if is_fine and self._may_knock(
                key, host_of(address.decode("ascii", "replace")), time.monotonic()
            ):
                status, text, user = b"200", b"", key.hex().encode()
            else:
                status, text, user = b"400", b"not now", b""
                self._counters.add("refused_handshakes")
            handler.send_multipart([routing_id, b"", b"1.0", request, status, text, user, b""], zmq.NOBLOCK)

    def _may_knock(self, key: bytes, host: str, now: float) -> bool:
        if len(self._knocking) >= min(self._knocking_max, KNOCKING_PER_HOST_MAX):
            self._knocking = {each: known for each, known in self._knocking.items() if known[1] > now}
        of_host = sum(1 for each, _ in self._knocking.values() if each == host)
        if (
            len(self._knocking) >= self._knocking_max
            or of_host >= KNOCKING_PER_HOST_MAX
            or key in self._knocking
        ):
            return False
        self._knocking[key] = (host, now + self._patience_s)
        return True


def host_of(address: str) -> str:
    """A host as limits count it: an IPv4 one is the same behind a listener for both families."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv6Address):
        if parsed.ipv4_mapped is not None:
            return str(parsed.ipv4_mapped)
        return str(ipaddress.IPv6Network((parsed.packed, 64), strict=False).network_address)
    return str(parsed)
