"""The only place where ZeroMQ sockets are made, so that every one has the same guards.

Options follow measurements of links that go dark: small high-water marks turn stale delivery into EAGAIN,
which the peer's own queue handles; ROUTER_MANDATORY turns silent drops into errors.
"""

import os
import socket as std_socket

import zmq
from zmq.utils.monitor import parse_monitor_message

from anabranch.overlay.addresses import Address
from anabranch.overlay.errors import UsageError
from anabranch.transport.reading import has_input

SEND_HWM = 16
"""Messages (mostly bundles) per connection inside ZeroMQ; the rest waits in our queue, in its own order."""
RECEIVE_HWM = 16
ASIDE_HWM = 1000
"""Replies on their way past the mesh, per connection."""
LINGER_MS = 300
"""How long a closed socket may still flush what it took."""
NEVER_MS = 24 * 3600 * 1000
"""A dialled socket is closed long before. Neither -1 nor IMMEDIATE: with either of them ZeroMQ throws away
what arrived and was not read yet when its connection ends."""
ZERO_COPY_BYTES = 256 * 1024
"""Below this a copy is cheaper than keeping track of the buffer."""
_MONITORED = (
    zmq.EVENT_ACCEPTED
    | zmq.EVENT_HANDSHAKE_SUCCEEDED
    | zmq.EVENT_DISCONNECTED
    | zmq.EVENT_CLOSED
    | zmq.EVENT_CONNECT_RETRIED
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
)


def make_router(context: "zmq.Context[zmq.SyncSocket]", frame_max_bytes: int) -> zmq.SyncSocket:
    """The socket that accepts links. Routing ids stay anonymous; names come from the hello."""
    socket = context.socket(zmq.ROUTER)
    _guard(socket, frame_max_bytes)
    socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
    socket.setsockopt(zmq.BACKLOG, 256)
    return socket


def make_dealer(context: "zmq.Context[zmq.SyncSocket]", frame_max_bytes: int) -> zmq.SyncSocket:
    """The socket of one dialled link. It does not reconnect: the node decides when to dial again."""
    socket = context.socket(zmq.DEALER)
    _guard(socket, frame_max_bytes)
    socket.setsockopt(zmq.RECONNECT_IVL, NEVER_MS)
    socket.setsockopt(zmq.CONNECT_TIMEOUT, 2000)
    return socket


def make_pull(
    context: "zmq.Context[zmq.SyncSocket]", host: str, frame_max_bytes: int
) -> tuple[zmq.SyncSocket, str]:
    """A socket that takes replies from whoever connects, and its address."""
    socket = context.socket(zmq.PULL)
    _guard(socket, frame_max_bytes)
    socket.setsockopt(zmq.RCVHWM, ASIDE_HWM)
    return socket, bind(socket, Address("tcp", host, 0))


def make_push(context: "zmq.Context[zmq.SyncSocket]", address: Address) -> zmq.SyncSocket:
    """A socket that sends replies to one publisher."""
    socket = context.socket(zmq.PUSH)
    _guard(socket, 0)
    socket.setsockopt(zmq.SNDHWM, ASIDE_HWM)
    try:
        connect(socket, address)
    except zmq.ZMQError as error:
        socket.close(linger=0)
        raise UsageError(f"{str(address)!r}: {error}") from None
    return socket


def make_handler(context: "zmq.Context[zmq.SyncSocket]") -> zmq.SyncSocket:
    """The socket that ZeroMQ asks about newcomers; it reaches nobody else."""
    socket = context.socket(zmq.ROUTER)
    socket.setsockopt(zmq.LINGER, 0)
    socket.bind("inproc://zeromq.zap.01")
    return socket


def monitor(socket: zmq.SyncSocket) -> zmq.SyncSocket:
    """A socket that tells what happens to the connections of another; must be made before bind or connect."""
    return socket.get_monitor_socket(_MONITORED)


def monitor_events(monitor_socket: zmq.SyncSocket) -> list[tuple[int, int]]:
    """What happened since the last look: (event, value), the value mostly a file descriptor."""
    events: list[tuple[int, int]] = []
    while not monitor_socket.closed and has_input(monitor_socket):
        event = parse_monitor_message(monitor_socket.recv_multipart(zmq.NOBLOCK))
        events.append((event["event"], event["value"]))
    return events


def bind(socket: zmq.SyncSocket, address: Address) -> str:
    """Listen; the address with its real port. UsageError names what cannot be bound."""
    socket.setsockopt(zmq.IPV6, 1 if ":" in address.host else 0)
    try:
        socket.bind(str(address))
    except zmq.ZMQError as error:
        fix = "choose a free port (0 for any) of this host"
        if address.scheme == "ipc":
            fix = "choose a path in a directory that is there and can be written to"
        raise UsageError(f"cannot listen on {address}: {zmq.strerror(error.errno or 0)}; {fix}") from None
    endpoint = socket.getsockopt(zmq.LAST_ENDPOINT)
    assert isinstance(endpoint, bytes)
    return endpoint.rstrip(b"\0").decode()


def connect(socket: zmq.SyncSocket, address: Address) -> None:
    """Start connecting; the monitor tells the outcome."""
    is_ipv4 = address.host.replace(".", "").isdigit()
    socket.setsockopt(zmq.IPV6, 0 if is_ipv4 else 1)
    socket.connect(str(address))


def host_behind(descriptor: int) -> str:
    """The host at the other end of an accepted connection; empty when it is gone, or on this host (ipc)."""
    try:
        with std_socket.socket(fileno=os.dup(descriptor)) as connection:
            name = connection.getpeername()
    except OSError:
        return ""
    return str(name[0]) if isinstance(name, tuple) else ""


def hang_up(descriptor: int, ports: set[int]) -> None:
    """End an accepted connection that ZeroMQ would keep; its monitor tells the rest.

    ROUTER cannot be told to drop a neighbour. The descriptor is looked at first: only connections to these
    ports (0 stands for ipc) are ours to end.
    """
    try:
        with std_socket.socket(fileno=os.dup(descriptor)) as connection:
            name = connection.getsockname()
            if (name[1] if isinstance(name, tuple) else 0) in ports:
                connection.shutdown(std_socket.SHUT_RDWR)
    except OSError:
        return  # it ended by itself


def _guard(socket: zmq.SyncSocket, frame_max_bytes: int) -> None:
    socket.setsockopt(zmq.LINGER, LINGER_MS)
    socket.setsockopt(zmq.SNDHWM, SEND_HWM)
    socket.setsockopt(zmq.RCVHWM, RECEIVE_HWM)
    if frame_max_bytes:
        socket.setsockopt(zmq.MAXMSGSIZE, frame_max_bytes)
    socket.setsockopt(zmq.HANDSHAKE_IVL, 2000)
    # Not ZMTP's heartbeats: with a full pipe and a connection that just broke they abort the process
    # (libzmq's `!_io_error` assertion). Our own probes detect silence; this frees dead connections.
    socket.setsockopt(zmq.TCP_KEEPALIVE, 1)
    socket.setsockopt(zmq.TCP_KEEPALIVE_IDLE, 5)
    socket.setsockopt(zmq.TCP_KEEPALIVE_INTVL, 1)
    socket.setsockopt(zmq.TCP_KEEPALIVE_CNT, 3)
    socket.setsockopt(zmq.TCP_MAXRT, 1500)
    socket.copy_threshold = ZERO_COPY_BYTES
