"""Sends what is queued for links: at once where the socket takes it, later where it does not.

Part of the wiring, which is told of connections found lost and of input found while sending.
"""

import asyncio
import time
from collections.abc import Callable, Mapping

import zmq

from anabranch.overlay.bundles import OutBundle
from anabranch.overlay.codec import Frame
from anabranch.overlay.counters import Counters, sent_bytes_of
from anabranch.overlay.errors import DropReason
from anabranch.overlay.identifiers import LinkId
from anabranch.transport.connections import Connection, Dialled, share
from anabranch.transport.gate import Gate
from anabranch.transport.reading import has_input
from anabranch.transport.room import Room

FLOODED_PAUSE_S = 0.02
"""A relay with a queue half full reads nothing until that has drained, at most for this long: the notices to
publishers are under way."""
RETRY_S = 0.002
"""A full socket is tried again after this long at the latest."""


class Sending:
    """The sending half of all connections of one peer."""

    def __init__(
        self,
        connections: Mapping[LinkId, Connection],
        room: Room,
        counters: Counters,
        gate: Gate,
        on_backlog: Callable[[LinkId, float], None],
        on_lost: Callable[[Connection], None],
        on_input: Callable[[Dialled | None], None],
        on_flooded: Callable[[object, float], None],
        on_drained: Callable[[object], None],
    ) -> None:
        self._connections = connections
        self._room = room
        self._counters = counters
        self._gate = gate
        self._on_backlog = on_backlog
        self._on_lost = on_lost
        self._on_input = on_input
        self._on_flooded = on_flooded
        self._on_drained = on_drained
        self._flooded: dict[LinkId, Connection] = {}
        self._loop = asyncio.get_running_loop()
        self._pending: dict[LinkId, Connection] = {}
        """Connections with something queued that the socket did not take yet."""
        self._touched: dict[zmq.SyncSocket, Connection] = {}
        """Sockets that sent since they were last looked at."""
        self._retry: asyncio.TimerHandle | None = None

    def send_control(self, link: LinkId, frame: bytes) -> None:
        """Queue a control message; it leaves with `finish_turn`."""
        connection = self._connections.get(link)
        if connection is None:
            return
        if not connection.queue.put_control(frame):
            self._counters.drop(DropReason.QUEUE_FULL)
            return
        self._pending[link] = connection

    def send_bundle(self, link: LinkId, bundle: OutBundle) -> None:
        """Send a bundle past an empty queue if the socket takes it, else queue it; then `finish_turn`."""
        connection = self._connections.get(link)
        if connection is None:
            self._counters.drop(DropReason.NO_LINK, bundle.messages or 1)
            return
        share(bundle.body)
        if not connection.blocked_since and self._express(connection, bundle, time.monotonic()):
            return
        queue = connection.queue
        if not queue.put_bundle(bundle):
            self._counters.drop(DropReason.QUEUE_FULL, bundle.messages or 1)
            return
        if displaced := queue.take_displaced():
            self._counters.drop(DropReason.QUEUE_FULL, displaced)
        if connection.blocked_since:
            self._pending[link] = connection
        else:
            self.pump(connection)
        if queue.bytes > self._room.high_water_bytes and self._room.is_lacking(link):
            self._room.congested.add(link)
            self._on_backlog(link, connection.backlog_s())
            if queue.bytes > self._room.flooded_bytes and not bundle.messages:
                self._flooded[link] = connection
                self._on_flooded(connection, FLOODED_PAUSE_S)

    def _express(self, connection: Connection, bundle: OutBundle, now: float) -> bool:
        """Whether a bundle left at once."""
        frames = connection.queue.express(bundle, now)
        if frames is None:
            return False
        try:
            connection.send(frames)
        except zmq.ZMQError:
            return False  # full or gone: the usual way finds out which
        connection.queue.express_sent(bundle, now)
        self._count_sent("sent.data_bytes", frames)
        self._touched[connection.socket] = connection
        return True

    def finish_turn(self) -> None:
        """Send what is queued; look again at sockets that sent, for a send may swallow the edge."""
        if self._pending:
            for connection in list(self._pending.values()):
                self.pump(connection)
        if self._touched:
            touched, self._touched = self._touched, {}
            for socket, connection in touched.items():
                if not socket.closed and has_input(socket):
                    self._loop.call_soon(
                        self._on_input, connection if isinstance(connection, Dialled) else None
                    )

    async def flush(self, deadline: float) -> None:
        """Until everything queued has left; not longer than to this time of the monotonic clock."""
        while self._pending and (left := deadline - time.monotonic()) > 0:
            await self._room.wait_for_change(left)

    def resume(self) -> None:
        """A descriptor spoke, which may also mean that a full socket has room."""
        if self._pending:
            self.finish_turn()
        if self._room.congested:
            self._relieve()

    def forget(self, connection: Connection) -> None:
        """A connection is gone."""
        self._pending.pop(connection.link, None)
        self._flooded.pop(connection.link, None)
        if isinstance(connection, Dialled):
            self._touched.pop(connection.socket, None)

    def stop(self) -> None:
        """Try no more."""
        if self._retry is not None:
            self._retry.cancel()

    # Inside

    def pump(self, connection: Connection) -> None:
        """Send what is queued for a connection, as far as its socket takes it."""
        queue = connection.queue
        now = time.monotonic()
        try:
            while (frames := queue.peek(now)) is not None:
                connection.send(frames)
                if queue.next_is_bundle:
                    self._count_sent("sent.data_bytes", frames)
                else:
                    self._count_sent("sent.control_bytes", frames)
                    self._counters[sent_bytes_of(frames[0][1])] += len(frames[0])
                size = queue.advance()
                connection.blocked_since = 0.0
                if queue.bytes:
                    connection.note_sent(size, now)
        except zmq.Again:
            connection.blocked_since = connection.blocked_since or now
            self._pending[connection.link] = connection
            if self._retry is None:
                self._retry = self._loop.call_later(RETRY_S, self._on_retry)
        except zmq.ZMQError:
            self._pending.pop(connection.link, None)
            if not connection.closing:
                self._loop.call_soon(self._on_lost, connection)
            return
        else:
            if queue:  # bulk that waits for an acknowledgement, which comes as input
                connection.blocked_since = connection.blocked_since or now
                self._pending[connection.link] = connection
            elif self._pending.pop(connection.link, None) is not None and not self._pending:
                self._room.changed.set()
        self._touched[connection.socket] = connection

    def _count_sent(self, kind: str, frames: list[Frame]) -> None:
        counters = self._counters
        counters["sent.messages"] += 1
        counters[kind] += len(frames[0]) if len(frames) == 1 else sum(map(len, frames))

    def _on_retry(self) -> None:
        self._retry = None
        if not self._gate.shut:
            self.finish_turn()
            self._relieve()

    def _relieve(self) -> None:
        for link in self._room.relieved():
            self._on_backlog(link, 0.0)
            if link in self._flooded:
                self._on_drained(self._flooded.pop(link))
