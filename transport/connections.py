"""One connection of a link, dialled or accepted: its queue, and how fast what waits there leaves."""

import zmq
from zmq.backend import Socket as _Backend  # without the wrapper around it, a send costs less than half

from anabranch.overlay.codec import Frame
from anabranch.overlay.identifiers import LinkId
from anabranch.overlay.queues import LinkQueue

_LAST = int(zmq.NOBLOCK)
_MORE = int(zmq.NOBLOCK | zmq.SNDMORE)
_SHARED_MIN_BYTES = 32 * 1024
_RATE_FIRST_BYTES_S = 100e6
_RATE_WINDOW_S = 0.01
_backend_send = _Backend.send


def keep(buffer: bytes | bytearray) -> Frame:
    """A copy in ZeroMQ's own memory: all links that it leaves by refer to the same.

    Cheaper than lending Python's memory to ZeroMQ, which gives it back through a thread of its own.
    """
    return zmq.Frame(buffer, copy=True)  # type: ignore[return-value]  # it has a length and a buffer


def share(body: list[Frame]) -> None:
    """Keep a large body once, unless it is kept already."""
    first = body[0]
    if type(first) is bytes and len(first) > _SHARED_MIN_BYTES:
        body[0] = keep(first)


class Connection:
    """What both kinds have."""

    __slots__ = (
        "_sent",
        "_window_at",
        "binding",
        "blocked_since",
        "closing",
        "link",
        "queue",
        "rate_bytes_s",
        "socket",
    )

    def __init__(self, link: LinkId, socket: zmq.SyncSocket, queue_max_bytes: int) -> None:
        self.link = link
        self.socket = socket
        self.queue = LinkQueue(queue_max_bytes)
        self.blocked_since = 0.0
        """When the socket first refused to take more; 0 while it takes."""
        self.closing = False
        self.binding = b""
        """The key of the connection; empty in an open mesh."""
        self.rate_bytes_s = _RATE_FIRST_BYTES_S
        """How fast its queue has been leaving."""
        self._sent = 0
        self._window_at = 0.0

    def send(self, frames: list[Frame]) -> None:
        """Hand over one message; zmq.Again when full, other ZMQError when the connection is gone."""
        if len(frames) == 1:
            _backend_send(self.socket, frames[0], _LAST)
            return
        for frame in frames[:-1]:
            _backend_send(self.socket, frame, _MORE, False)
        _backend_send(self.socket, frames[-1], _LAST, False)

    def note_sent(self, size: int, now: float) -> None:
        """Bytes left a queue that holds more: follow the rate."""
        self._sent += size
        elapsed = now - self._window_at
        if elapsed > 10 * _RATE_WINDOW_S:  # it was idle in between
            self._sent, self._window_at = 0, now
        elif elapsed >= _RATE_WINDOW_S:
            self.rate_bytes_s += 0.5 * (self._sent / elapsed - self.rate_bytes_s)
            self._sent, self._window_at = 0, now

    def backlog_s(self) -> float:
        """How long until half of what waits has left; publishers that resume then find the rest moving."""
        return self.queue.bytes / 2 / max(self.rate_bytes_s, 1e4)


class Dialled(Connection):
    """A connection this peer opened: a DEALER of its own."""

    __slots__ = ("address", "is_open", "monitor")

    def __init__(
        self, address: str, socket: zmq.SyncSocket, monitor: zmq.SyncSocket, queue_max_bytes: int
    ) -> None:
        super().__init__(LinkId(0), socket, queue_max_bytes)
        self.address = address
        self.monitor = monitor
        self.is_open = False
        """Whether the connection stands; it has no link number before."""


class Accepted(Connection):
    """A connection that a neighbour opened: a routing id on our ROUTER."""

    __slots__ = ("expelled", "fd", "is_proven", "routing_id")

    def __init__(
        self, link: LinkId, socket: zmq.SyncSocket, routing_id: bytes, fd: int, queue_max_bytes: int
    ) -> None:
        super().__init__(link, socket, queue_max_bytes)
        self.routing_id = routing_id
        self.is_proven = True
        """Whether its hello was accepted: what it says before is limited in a secured mesh."""
        self.expelled = False
        """Whether it is to end, whatever it still sends."""
        self.fd = fd
        """The descriptor inside ZeroMQ, by which the monitor names a lost connection; -1 when unknown."""

    def send(self, frames: list[Frame]) -> None:
        """See `Connection`."""
        _backend_send(self.socket, self.routing_id, _MORE)
        super().send(frames)
