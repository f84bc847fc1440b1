"""Replies past the mesh: ZeroMQ connections (`direct`) and UDP datagrams (`datagram`) to the publisher."""

import asyncio
import socket
from collections.abc import Callable
from ipaddress import ip_address
from typing import Any

import zmq

from anabranch.overlay.addresses import is_dialable, parse_address
from anabranch.overlay.asking import Protocol
from anabranch.overlay.errors import UsageError
from anabranch.transport.sockets import make_pull, make_push

CONNECTIONS_MAX = 256
"""Publishers to which a connection is kept; the oldest goes."""
DATAGRAM_MAX_BYTES = 65_000
FRAME_MAX_BYTES = 16 * 1024 * 1024


class Aside:
    """Sockets for replies, opened when they are first needed."""

    def __init__(self, arrived: Callable[[bytes], None]) -> None:
        self._arrived = arrived
        self._context: zmq.Context[Any] | None = None
        self._pull: zmq.Socket[Any] | None = None
        self._pull_address = ""
        self._pushes: dict[str, zmq.Socket[Any]] = {}
        self._udp: asyncio.DatagramTransport | None = None

    async def open(self, protocol: Protocol, host: str) -> str:
        """Where replies can be sent to."""
        loop = asyncio.get_running_loop()
        if protocol is Protocol.DATAGRAM:
            if self._udp is None:
                self._udp, _ = await loop.create_datagram_endpoint(
                    lambda: _Datagrams(self._arrived), local_addr=(host, 0)
                )
            bound, port, *_ = self._udp.get_extra_info("sockname")
            return f"udp://[{bound}]:{port}" if ":" in bound else f"udp://{bound}:{port}"
        if self._pull is None:
            self._pull, self._pull_address = make_pull(self._zmq(), host, FRAME_MAX_BYTES)
            loop.add_reader(self._pull.fileno(), self._read)
            loop.call_soon(self._read)
        return self._pull_address

    def send(self, protocol: Protocol, address: str, frame: bytes) -> bool:
        """Send a reply; False when that cannot be."""
        if protocol is Protocol.DATAGRAM:
            return len(frame) <= DATAGRAM_MAX_BYTES and _send_datagram(address, frame)
        push = self._pushes.get(address)
        if push is None:
            if not is_dialable(address):
                return False
            if len(self._pushes) >= CONNECTIONS_MAX:
                self._pushes.pop(next(iter(self._pushes))).close(linger=1000)
            try:
                push = self._pushes[address] = make_push(self._zmq(), parse_address(address))
            except UsageError:
                return False
        try:
            push.send(frame, zmq.NOBLOCK)
        except zmq.Again:
            return False
        return True

    async def close(self) -> None:
        """Free everything."""
        if self._pull is not None:
            asyncio.get_running_loop().remove_reader(self._pull.fileno())
            self._pull.close(linger=0)
            self._pull = None
        for push in self._pushes.values():
            push.close(linger=200)
        self._pushes.clear()
        if self._udp is not None:
            self._udp.close()
            self._udp = None
        if self._context is not None:
            context, self._context = self._context, None
            await asyncio.get_running_loop().run_in_executor(None, context.term)

    def _zmq(self) -> "zmq.Context[Any]":
        if self._context is None:
            self._context = zmq.Context()
        return self._context

    def _read(self) -> None:
        while self._pull is not None:
            try:
                frame = self._pull.recv(zmq.NOBLOCK)
            except zmq.Again:
                return
            self._arrived(frame)


class _Datagrams(asyncio.DatagramProtocol):
    """Takes what comes."""

    def __init__(self, arrived: Callable[[bytes], None]) -> None:
        self._arrived = arrived

    def datagram_received(self, data: bytes, addr: object) -> None:
        del addr
        self._arrived(data)


def _send_datagram(address: str, frame: bytes) -> bool:
    scheme, _, rest = address.partition("://")
    host, _, port = rest.rpartition(":")
    if scheme != "udp":
        return False
    try:
        target = ip_address(host.strip("[]"))  # names are not looked up: that would hold up the loop
        family = socket.AF_INET6 if target.version == 6 else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            sender.sendto(frame, (str(target), int(port)))
    except (OSError, ValueError, OverflowError):
        return False
    return True
