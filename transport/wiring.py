"""The sockets of one peer: dials, accepts, reads, sends. Tells its owner what happened; knows no protocol.

ZeroMQ's file descriptor is edge-triggered: after reading and after sending, sockets are looked at again
before the loop may sleep.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import partial

import structlog
import zmq

from anabranch.overlay.addresses import Address, parse_address
from anabranch.overlay.codec import Frame
from anabranch.overlay.config import Config
from anabranch.overlay.counters import Counters
from anabranch.overlay.errors import DropReason, UsageError
from anabranch.overlay.identifiers import LinkId
from anabranch.transport import sockets
from anabranch.transport.connections import Accepted, Connection, Dialled
from anabranch.transport.gate import Gate
from anabranch.transport.locks import HELLO_MAX_BYTES, Lock, host_of
from anabranch.transport.memory import keep_freed_memory
from anabranch.transport.owner import Owner
from anabranch.transport.polling import BusyPoll
from anabranch.transport.reading import READ_MESSAGES, drain, has_input
from anabranch.transport.room import Room
from anabranch.transport.sending import Sending

LAST_READS_MAX = 64
"""How often a connection that ended is read before what it still holds is given up."""
SWEEP_S = 0.5
"""Pause between two looks for connections that never introduced themselves."""
FRAME_OVERHEAD_BYTES = 1024 * 1024

log = structlog.get_logger("anabranch")


class Wiring:
    """Every connection of one peer."""

    def __init__(
        self, owner: Owner, config: Config, counters: Counters, gate: Gate, domain: str | None = None
    ) -> None:
        """`domain`: of a secured mesh; None leaves links in the clear."""
        self._owner = owner
        self._received = owner.received
        self._counters = counters
        self._gate = gate
        self._loop = asyncio.get_running_loop()
        self._context: zmq.Context[zmq.SyncSocket] = zmq.Context()
        self._context.set(zmq.MAX_SOCKETS, 4096)
        self._queue_max = config.link_queue_max_bytes
        self._frame_max = config.payload_max_bytes + FRAME_OVERHEAD_BYTES
        self._router: zmq.SyncSocket | None = None
        self._router_monitor: zmq.SyncSocket | None = None
        self._connections: dict[LinkId, Connection] = {}
        self._accepted: dict[bytes, Accepted] = {}
        self._by_fd: dict[int, Accepted] = {}
        self._strangers: dict[int, float] = {}
        """Descriptors of accepted connections that said nothing yet, or were closed, and when to hang up."""
        self._ports: set[int] = set()
        self._patience_s = config.hello_timeout_s
        self._sweep: asyncio.TimerHandle | None = None
        self._leaving: list[Accepted] = []
        """Connections that ended; lost once their last words have been read."""
        self._dialling: list[Dialled] = []
        self.room = Room(self._connections, config, gate)
        self.sending = Sending(
            self._connections,
            self.room,
            counters,
            gate,
            owner.backlog,
            self._ended,
            self.read_on,
            self.pause_reading,
            self.resume_reading,
        )
        self._lock: Lock | None = None
        if domain is not None:
            self._lock = Lock(domain, counters, config.links_opening_max, config.hello_timeout_s)
            self._lock.start(self._context, self._watch)
        self._pauses: dict[object, asyncio.TimerHandle] = {}
        self._busy_poll = BusyPoll(config.busy_poll_s)
        self._now = 0.0
        self._next_link = 1
        keep_freed_memory()

    # For the shell

    def listen(self, addresses: Sequence[Address]) -> list[str]:
        """Bind; the real addresses."""
        if not addresses:
            return []
        router = self._router = sockets.make_router(self._context, self._frame_max)
        if self._lock is not None:
            self._lock.guard_accepting(router)
        self._router_monitor = sockets.monitor(router)
        bound = [sockets.bind(router, address) for address in addresses]
        self._ports = {parse_address(text).port for text in bound}
        self._sweep = self._loop.call_later(SWEEP_S, self._sweep_strangers)
        self._watch(router, self._on_router)
        self._watch(self._router_monitor, self._read_router_monitor)
        return bound

    def dial(self, text: str) -> None:
        """Connect; the owner hears `opened` or `dial_failed`."""
        try:
            address = parse_address(text)
            socket = sockets.make_dealer(self._context, self._frame_max)
            binding = self._lock.guard_dialling(socket) if self._lock is not None else b""
            monitor = sockets.monitor(socket)
        except (UsageError, zmq.ZMQError) as error:
            log.warning("cannot dial", address=text, error=str(error))
            self._loop.call_soon(self._owner.dial_failed, text)
            return
        dialled = Dialled(text, socket, monitor, self._queue_max)
        dialled.binding = binding
        self._dialling.append(dialled)
        self._watch(monitor, partial(self._read_dial_monitor, dialled))
        try:
            sockets.connect(socket, address)
        except zmq.ZMQError as error:
            log.warning("cannot dial", address=text, error=str(error))
            self._loop.call_soon(self._lost_dial, dialled)

    def close_link(self, link: LinkId) -> None:
        """Close a connection after what can leave at once has left."""
        connection = self._connections.get(link)
        if connection is not None:
            connection.closing = True
            self.sending.pump(connection)
            self._destroy(connection)
            if isinstance(connection, Accepted) and connection.fd >= 0:
                self._strangers[connection.fd] = time.monotonic() + sockets.LINGER_MS / 1000

    def pause_reading(self, holder: object, seconds: float) -> None:
        """Leave what arrives in the sockets for a while, so that senders feel it."""
        timer = self._pauses.pop(holder, None)
        if timer is not None:
            timer.cancel()
        self._pauses[holder] = self._loop.call_later(seconds, self.resume_reading, holder)

    def resume_reading(self, holder: object) -> None:
        """Read again, unless others hold it up."""
        timer = self._pauses.pop(holder, None)
        if timer is not None and not self._gate.shut:
            timer.cancel()
            if not self._pauses:
                self._loop.call_soon(self.read_all)

    @property
    def is_paused(self) -> bool:
        """Whether what arrives is left in the sockets."""
        return bool(self._pauses)

    def read_all(self) -> None:
        """Take in what has arrived on any connection."""
        self._read_router_monitor()
        self.read_on(None)
        for connection in list(self._connections.values()):
            if isinstance(connection, Dialled):
                self.read_on(connection)

    async def close(self) -> None:
        """Free every socket; the gate must be shut. What ZeroMQ already took may leave for a moment."""
        self.room.changed.set()
        self.sending.stop()
        if self._sweep is not None:
            self._sweep.cancel()
        for timer in self._pauses.values():
            timer.cancel()
        for connection in [*self._connections.values(), *self._dialling]:
            self._destroy(connection)
        if self._router is not None:
            self._drop_socket(self._router, self._router_monitor)
        handler = self._lock.stop() if self._lock is not None else None
        if handler is not None:
            self._drop_socket(handler, None)
        await self._loop.run_in_executor(None, self._context.term)

    # Reading

    def _watch(self, socket: zmq.SyncSocket, read: Callable[[], None]) -> None:
        self._loop.add_reader(socket.fileno(), read)
        self._loop.call_soon(read)  # the edge may have passed before the reader stood

    def read_on(self, connection: Dialled | None) -> None:
        """Read on, after the application had a turn with what came first; None for accepted connections."""
        socket = self._router if connection is None else connection.socket
        if socket is not None and not socket.closed and has_input(socket):
            if connection is None:
                self._on_router(READ_MESSAGES)
            else:
                self._on_dealer(connection, READ_MESSAGES)

    def _on_router(self, messages_max: int = 1) -> None:
        router = self._router
        if router is not None and not self._gate.shut and not self._pauses:
            self._now = time.monotonic()
            leaving = len(self._leaving)
            more, size = drain(router, True, self._take_accepted, messages_max)
            self._finish_reading(more, size, None)
            if leaving and not more:
                gone, self._leaving = self._leaving[:leaving], self._leaving[leaving:]
                for accepted in gone:
                    self.lost(accepted)

    def _take_accepted(self, routing_id: bytes, first: zmq.Frame, frames: list[Frame]) -> None:
        accepted = self._accepted.get(routing_id)
        if accepted is None:
            accepted = self._accept(routing_id, first)
        if not accepted.is_proven:
            self._hear_stranger(accepted, frames)
            return
        self._received(accepted.link, frames, self._now)

    def _hear_stranger(self, accepted: Accepted, frames: list[Frame]) -> None:
        """One small frame at a time, until the hello is proven; anything else ends the connection."""
        if accepted.expelled:
            return
        if len(frames) != 1 or len(frames[0]) > HELLO_MAX_BYTES:
            self._counters.drop(DropReason.OVERSIZED)
            accepted.expelled = True
            self._owner.closed(accepted.link)
            sockets.hang_up(accepted.fd, self._ports)
            return
        self._received(accepted.link, frames, self._now)
        if self._owner.is_proven(accepted.link):
            accepted.is_proven = True
            assert self._lock is not None
            self._lock.proven(accepted.binding)

    def _on_dealer(self, dialled: Dialled, messages_max: int = 1) -> None:
        if dialled.is_open and not dialled.closing and not self._gate.shut and not self._pauses:
            now = time.monotonic()
            link, received = dialled.link, self._received
            more, size = drain(
                dialled.socket, False, lambda _, __, frames: received(link, frames, now), messages_max
            )
            self._finish_reading(more, size, dialled)

    def _finish_reading(self, more: bool, size: int, connection: Dialled | None) -> None:
        self._owner.turn()
        if more:
            self._loop.call_soon(self.read_on, connection)
            self._busy_poll.arrived(size)
        self.sending.resume()

    # Connections that come

    def _accept(self, routing_id: bytes, first: zmq.Frame) -> Accepted:
        assert self._router is not None
        self._read_router_monitor()  # a reused descriptor must lose its former owner first
        fd = first.get(zmq.SRCFD)
        number = fd if isinstance(fd, int) else -1
        self._strangers.pop(number, None)
        accepted = Accepted(self._new_link(), self._router, routing_id, number, self._queue_max)
        if self._lock is not None:
            self._lock.spoke(number)
            accepted.is_proven = False
            accepted.binding = self._lock.binding_of(first)
        self._accepted[routing_id] = accepted
        self._by_fd[accepted.fd] = accepted
        self._connections[accepted.link] = accepted
        self._opened(accepted, None)
        return accepted

    def _read_dial_monitor(self, dialled: Dialled) -> None:
        for event, _ in self._events_of(dialled.monitor):
            if event == zmq.EVENT_HANDSHAKE_SUCCEEDED and not dialled.is_open:
                dialled.is_open = True
                dialled.link = self._new_link()
                self._dialling.remove(dialled)
                self._connections[dialled.link] = dialled
                self._watch(dialled.socket, partial(self._on_dealer, dialled))
                self._opened(dialled, dialled.address)
                self._owner.turn()
            elif dialled.is_open:
                for _ in range(LAST_READS_MAX):  # its last words first; it ended, so they are few
                    if dialled.closing or not has_input(dialled.socket):
                        break
                    self._on_dealer(dialled, READ_MESSAGES)
                self.lost(dialled)
                return
            elif event != zmq.EVENT_HANDSHAKE_SUCCEEDED:
                self._lost_dial(dialled)
                return

    def _opened(self, connection: Connection, address: str | None) -> None:
        self._owner.opened(connection.link, address, connection.binding)
        queue = self._owner.queue(connection.link)
        if queue is not None:
            connection.queue = queue

    def _new_link(self) -> LinkId:
        link = LinkId(self._next_link)
        self._next_link += 1
        return link

    # Connections that go

    def _read_router_monitor(self) -> None:
        for event, value in self._events_of(self._router_monitor):
            if event == zmq.EVENT_ACCEPTED:
                self._came(value)
            elif event == zmq.EVENT_DISCONNECTED:
                self._strangers.pop(value, None)
                if self._lock is not None:
                    self._lock.spoke(value)
                accepted = self._by_fd.pop(value, None)
                if accepted is not None:
                    self._ended(accepted)

    def _came(self, descriptor: int) -> None:
        self._strangers[descriptor] = time.monotonic() + self._patience_s
        if self._lock is not None and self._lock.came(descriptor, host_of(sockets.host_behind(descriptor))):
            sockets.hang_up(descriptor, self._ports)

    def _sweep_strangers(self) -> None:
        """Hang up on connections that said nothing in time, or were closed here and not there."""
        self._sweep = self._loop.call_later(SWEEP_S, self._sweep_strangers)
        self._read_router_monitor()
        now = time.monotonic()
        for descriptor in [known for known, due in self._strangers.items() if due <= now]:
            del self._strangers[descriptor]
            sockets.hang_up(descriptor, self._ports)

    def _events_of(self, monitor: zmq.SyncSocket | None) -> list[tuple[int, int]]:
        return [] if monitor is None or self._gate.shut else sockets.monitor_events(monitor)

    def _ended(self, connection: Connection) -> None:
        """It ended on the other side; lost once what it sent before has been read."""
        if isinstance(connection, Accepted):
            self._leaving.append(connection)
            self._loop.call_soon(self._on_router, READ_MESSAGES)
        else:
            self.lost(connection)

    def lost(self, connection: Connection) -> None:
        """A connection that stood is gone; its owner hears of it."""
        if self._connections.get(connection.link) is connection and not connection.closing:
            self._owner.closed(connection.link)  # before its queue goes: what waits may take another way
            self._destroy(connection)
            self._owner.turn()

    def _lost_dial(self, dialled: Dialled) -> None:
        if dialled in self._dialling and not self._gate.shut:
            self._destroy(dialled)
            self._owner.dial_failed(dialled.address)

    def _destroy(self, connection: Connection) -> None:
        connection.closing = True
        _, messages = connection.queue.clear()
        if messages:
            self._counters.drop(DropReason.LINK_LOST, messages)
        self._connections.pop(connection.link, None)
        self.sending.forget(connection)
        self.room.congested.discard(connection.link)
        self.room.changed.set()
        if isinstance(connection, Accepted):
            if self._lock is not None:
                self._lock.proven(connection.binding)
            self._accepted.pop(connection.routing_id, None)
            if self._by_fd.get(connection.fd) is connection:
                del self._by_fd[connection.fd]
        elif isinstance(connection, Dialled):
            if connection in self._dialling:
                self._dialling.remove(connection)
            self._drop_socket(connection.socket, connection.monitor)

    def _drop_socket(self, socket: zmq.SyncSocket, monitor: zmq.SyncSocket | None) -> None:
        if monitor is not None and not monitor.closed:
            self._loop.remove_reader(monitor.fileno())
            socket.disable_monitor()
            monitor.close()
        if not socket.closed:
            self._loop.remove_reader(socket.fileno())
            socket.close()
