"""What passes one connection of a proxied link: two pipes that hold each chunk until it is due.

Knows sockets and due times; how a link treats its connections is decided in `proxies.py`.
"""

import asyncio
import random
import socket
import struct
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol, cast

import msgspec

from anabranch.overlay.errors import UsageError
from anabranch.tools.testbed.alarms import Alarms
from anabranch.tools.testbed.histogram import Histogram

_WRITE_BYTES = 256 * 1024
"""Due chunks are joined up to about this much per write."""
LEAST_TIMEOUT_S = 0.2
"""What TCP waits at least before it sends something again."""
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class Owner(Protocol):
    """Who is told when a connection comes and goes."""

    def opened(self, pair: "Pair") -> None:
        """Somebody connected."""

    def closed(self, pair: "Pair") -> None:
        """Both sides are gone."""


class Conditions(msgspec.Struct, frozen=True, kw_only=True):
    """What one direction of a link does to what passes. Order is kept whatever the delay."""

    delay_s: float = 0.0
    jitter_s: float = 0.0
    """Each chunk takes up to this much longer or shorter, all values alike."""
    loss: float = 0.0
    """Share of chunks that TCP has to send again: they, and all behind them, come a time-out later."""
    loss_after_loss: float | None = None
    """The same for a chunk after such a one, when losses come in bursts."""
    rate_bytes_s: float | None = None
    blackhole: bool = False
    """Nothing passes in this direction."""

    def __post_init__(self) -> None:
        for name in ("delay_s", "jitter_s"):
            if not 0 <= getattr(self, name) <= 60:
                raise UsageError(f"{name} = {getattr(self, name)}: seconds from 0 to 60")


class Surroundings(msgspec.Struct, frozen=True):
    """What all pipes of a set of proxies share."""

    alarms: Alarms
    lateness: Histogram
    rng: random.Random
    buffer_max_bytes: int


class Pair:
    """A connection of one side that dialled (*near*), and the one made for it to the target (*far*)."""

    def __init__(self, owner: Owner, surroundings: Surroundings) -> None:
        self.there = Pipe(surroundings, self._pipe_ended)
        self.back = Pipe(surroundings, self._pipe_ended)
        self.near = End(self, outgoing=self.there, incoming=self.back)
        self.far = End(self, outgoing=self.back, incoming=self.there)
        self._owner = owner
        self._dialling: asyncio.Task[None] | None = None
        self._was_reset = False

    @property
    def passed_bytes(self) -> int:
        """Both directions."""
        return self.there.passed_bytes + self.back.passed_bytes

    @property
    def in_flight_bytes(self) -> int:
        """Both directions."""
        return self.there.in_flight_bytes + self.back.in_flight_bytes

    def dial(self, host: str, port: int) -> None:
        """Connect to the target, unless that was done."""
        if self._dialling is None and not self._was_reset:
            self._dialling = asyncio.get_running_loop().create_task(self._dial(host, port))

    def reset(self) -> None:
        """End both connections with a reset."""
        self._was_reset = True
        if self._dialling is not None:
            self._dialling.cancel()
        self.near.reset()
        self.far.reset()
        self._owner.closed(self)

    def end_opened(self, end: "End") -> None:
        """One of the two connections stands."""
        if self._was_reset:
            end.reset()
        elif end is self.near:
            self._owner.opened(self)

    def end_lost(self) -> None:
        """One of the two connections is gone."""
        if self.near.transport is None and self.far.transport is None:
            self._owner.closed(self)

    def _pipe_ended(self) -> None:
        if self.there.ended and self.back.ended:
            self.near.close()
            self.far.close()

    async def _dial(self, host: str, port: int) -> None:
        try:
            await asyncio.get_running_loop().create_connection(lambda: self.far, host, port)
        except OSError:  # nobody listens there: the side that dialled sees what it would see without a proxy
            self.reset()


class End(asyncio.Protocol):
    """One of the two connections."""

    def __init__(self, pair: Pair, outgoing: "Pipe", incoming: "Pipe") -> None:
        self.transport: asyncio.Transport | None = None
        self._pair = pair
        self._outgoing = outgoing
        self._incoming = incoming

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It stands."""
        self.transport = self._outgoing.source = self._incoming.sink = cast(asyncio.Transport, transport)
        self._outgoing.regulate()
        self._incoming.flush()
        self._pair.end_opened(self)

    def data_received(self, data: bytes) -> None:
        """Bytes to carry to the other end."""
        self._outgoing.push(data)

    def eof_received(self) -> bool:
        """It will send no more, but may still receive."""
        self._outgoing.push(b"")
        return True

    def connection_lost(self, error: Exception | None) -> None:
        """It is gone; the other end learns it after the delay."""
        del error
        self.transport = self._outgoing.source = self._incoming.sink = None
        self._outgoing.finish()
        self._incoming.discard()
        self._pair.end_lost()

    def pause_writing(self) -> None:
        """It takes no more at the moment."""
        self._incoming.set_stuck(True)

    def resume_writing(self) -> None:
        """It takes more."""
        self._incoming.set_stuck(False)

    def close(self) -> None:
        """Close it once everything is written."""
        if self.transport is not None:
            self.transport.close()

    def reset(self) -> None:
        """Close it so that the other side sees a reset."""
        if self.transport is not None:
            connection: socket.socket = self.transport.get_extra_info("socket")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            self.transport.abort()


class Pipe:
    """One direction: bytes in, the same bytes out when their time has come."""

    def __init__(self, surroundings: Surroundings, on_end: Callable[[], None]) -> None:
        self.ended = False
        """Whether the sink was told that no more will come."""
        self.source: asyncio.Transport | None = None
        self.sink: asyncio.Transport | None = None
        self.passed_bytes = 0
        self.in_flight_bytes = 0
        self._alarms = surroundings.alarms
        self._lateness = surroundings.lateness
        self._rng = surroundings.rng
        self._on_end = on_end
        self._full_bytes = surroundings.buffer_max_bytes
        self._queue: deque[tuple[float, bytes]] = deque()
        """Due times and chunks; an empty chunk says that no more will come."""
        self._last_due = 0.0
        self._delay_s = 0.0
        self._jitter_s = 0.0
        self._loss = 0.0
        self._loss_again: float | None = None
        self._lost_last = False
        self._rate: float | None = None
        self._free_at = 0.0
        self._passing = True
        self._stuck = False
        self._finished = False
        self._armed = False

    def set_conditions(self, shape: Conditions, passing: bool) -> None:
        """How to treat what comes from now on, and whether anything passes at all."""
        self._delay_s, self._jitter_s, self._passing = shape.delay_s, shape.jitter_s, passing
        self._loss, self._loss_again, self._rate = shape.loss, shape.loss_after_loss, shape.rate_bytes_s
        self.regulate()
        self.flush()

    def set_stuck(self, stuck: bool) -> None:
        """Whether the sink refuses more."""
        self._stuck = stuck
        self.flush()

    def push(self, chunk: bytes) -> None:
        """Take a chunk; an empty one is the end."""
        delay = self._delay_s
        if self._jitter_s:
            delay = max(0.0, delay + self._rng.uniform(-self._jitter_s, self._jitter_s))
        left = time.monotonic()
        if self._rate is not None:
            left = self._free_at = max(left, self._free_at) + len(chunk) / self._rate
        if self._loss and self._is_lost():
            delay += max(LEAST_TIMEOUT_S, 3 * delay)
        due = self._last_due = max(self._last_due, left + delay)
        self._queue.append((due, chunk))
        self.in_flight_bytes += len(chunk)
        if self.in_flight_bytes >= self._full_bytes:
            self.regulate()
        if not self._armed:
            self.flush()

    def _is_lost(self) -> bool:
        share, again = self._loss, self._loss_again
        if again is not None and share < 1:
            share = again if self._lost_last else min(1.0, share * (1 - again) / (1 - share))
        self._lost_last = self._rng.random() < share
        return self._lost_last

    def finish(self) -> None:
        """The source is gone: when what is on its way has arrived, close the sink."""
        self._finished = True
        self.push(b"")

    def discard(self) -> None:
        """The sink is gone: nothing can arrive any more."""
        self._queue.clear()
        self.in_flight_bytes = 0
        self.regulate()

    def regulate(self) -> None:
        """Read from the source only while there is room, and while the link passes anything."""
        source = self.source
        if source is None or source.is_closing():
            return
        if not self._passing or self.in_flight_bytes >= self._full_bytes:
            source.pause_reading()
        elif self.in_flight_bytes <= self._full_bytes // 2:
            source.resume_reading()

    def flush(self) -> None:
        """Write what is due, and wait for the next."""
        now = time.monotonic()
        while self._queue and self._queue[0][0] <= now and self._may_write():
            self._write_due(now)
        if self._queue and not self._armed and self._may_write():
            self._armed = True
            self._alarms.at(self._queue[0][0], self._ring)

    def _may_write(self) -> bool:
        return self._passing and self.sink is not None and not self._stuck

    def _ring(self) -> None:
        self._armed = False
        self.flush()

    def _write_due(self, now: float) -> None:
        queue = self._queue
        self._lateness.add(now - queue[0][0])
        chunks: list[bytes] = []
        size = 0
        ended = False
        while queue and queue[0][0] <= now and size < _WRITE_BYTES and not ended:
            chunk = queue.popleft()[1]
            chunks.append(chunk)
            size += len(chunk)
            ended = not chunk
        self.in_flight_bytes -= size
        self.passed_bytes += size
        assert self.sink is not None
        if size:
            self.sink.write(chunks[0] if len(chunks) == 1 else b"".join(chunks))
        if ended and self._finished:
            self.sink.close()
        elif ended:
            self.sink.write_eof()
        self.regulate()
        if ended:
            self.ended = True
            self._on_end()
