"""The sending half of a simulated process: what waits for its wires, and how it leaves them.

The other half, input and the turn that follows, is in `shell.py`.
"""

from collections.abc import Callable, Iterable
from heapq import heappush

from anabranch.overlay.bundles import OutBundle
from anabranch.overlay.codec import Frame
from anabranch.overlay.counters import sent_bytes_of
from anabranch.overlay.errors import DropReason
from anabranch.overlay.identifiers import LinkId
from anabranch.overlay.node import Node
from anabranch.transport.simulator.engine import Engine
from anabranch.transport.simulator.wires import UNREAD_MAX_BYTES, Wire, total_size

_KIND_BUNDLE = 1


class Sender:
    """The links of one process, their queues, its clock, and what it sent."""

    node: Node

    def __init__(self, queue_max: int, clock_offset_s: float, engine: Engine) -> None:
        self.clock_offset_s = clock_offset_s
        """What its clock shows at virtual time 0."""
        self.control_bytes = 0
        self.data_bytes = 0
        self.bundles_sent = 0
        self.frames_sent = 0
        self.links: dict[LinkId, Wire] = {}
        self.queue_max = queue_max
        self._high_water = queue_max // 8
        self._engine = engine
        self._clock = clock_offset_s
        self.tamper: Callable[[Wire, OutBundle], Iterable[OutBundle]] | None = None
        """A peer that does not keep to the protocol: what it sends instead of each bundle, its own or not."""
        self._held: dict[Wire, None] = {}
        """Wires whose queue waits for an acknowledgement."""

    def clock(self, time: float) -> float:
        """What this peer's clock shows; never goes back."""
        local = time + self.clock_offset_s
        if local > self._clock:
            self._clock = local
            return local
        return self._clock

    def pump(self, time: float, wire: Wire, _: None = None) -> None:
        """A look at the queue was scheduled for now."""
        wire.pumping = False
        self._pump(time, wire)

    def _pump(self, time: float, wire: Wire) -> None:
        """Send what the wire takes now."""
        queue, local = wire.queue, self.clock(time)
        while wire.unread <= UNREAD_MAX_BYTES:
            frames = queue.peek(local)
            if frames is None:
                if queue:
                    self._held[wire] = None
                else:
                    self.node.link_backlog(wire.source_link, 0.0)
                return
            if wire.free_at > time:
                if not wire.pumping:
                    wire.pumping = True
                    self._engine.at(wire.free_at, self.pump, wire)
                return
            queue.advance()
            self._send(wire, frames, time)

    def _pump_held(self, time: float) -> None:
        """An acknowledgement may have come."""
        held, self._held = self._held, {}
        for wire in held:
            self._pump(time, wire)

    def _queue_control(self, link: LinkId, frame: bytes, time: float) -> None:
        wire = self.links.get(link)
        if wire is None:
            return
        if wire.is_plain and not wire.unread and not wire.queue:
            self._send(wire, [frame], time)
        elif wire.queue.put_control(frame):
            self._pump(time, wire)
        else:
            self.node.counters.drop(DropReason.QUEUE_FULL)

    def _queue_bundle(self, link: LinkId, bundle: OutBundle, time: float) -> None:
        wire = self.links.get(link)
        if wire is None:
            self.node.counters.drop(DropReason.NO_LINK, bundle.messages or 1)
            return
        if self.tamper is None:
            self._put_bundle(wire, bundle, time)
        else:
            for each in self.tamper(wire, bundle):
                self._put_bundle(wire, each, time)

    def _put_bundle(self, wire: Wire, bundle: OutBundle, time: float) -> None:
        queue = wire.queue
        if wire.is_plain and not wire.unread:
            local = self.clock(time)
            frames = queue.express(bundle, local)
            if frames is not None:
                queue.express_sent(bundle, local)
                self._send(wire, frames, time)
                return
        taken = queue.put_bundle(bundle)
        if displaced := queue.take_displaced():
            self.node.counters.drop(DropReason.QUEUE_FULL, displaced)
        if not taken:
            self.node.counters.drop(DropReason.QUEUE_FULL, bundle.messages or 1)
        elif queue.bytes > self._high_water and wire.conditions.rate_bytes_s is not None:
            self.node.link_backlog(wire.source_link, queue.bytes / wire.conditions.rate_bytes_s)
            self._pump(time, wire)
        elif len(queue) > 1 or wire.unread or wire.free_at > time:
            self._pump(time, wire)
        elif (frames := queue.peek(self.clock(time))) is None:
            self._held[wire] = None
        else:
            queue.advance()
            self._send(wire, frames, time)

    def _send(self, wire: Wire, frames: list[Frame], time: float) -> None:
        head = frames[0]
        size = len(head) if len(frames) == 1 else total_size(frames)
        self.frames_sent += 1
        counters = self.node.counters
        counters["sent.messages"] += 1
        if head[1] == _KIND_BUNDLE:
            self.data_bytes += size
            self.bundles_sent += 1
            counters["sent.data_bytes"] += size
            if self._engine.meter is not None:
                self._engine.meter.note(wire.target.name, frames, size)
        else:
            self.control_bytes += size
            counters["sent.control_bytes"] += size
            counters[sent_bytes_of(head[1])] += size
        engine = self._engine
        if wire.is_plain:
            arrives: float | None = time + wire.delay_s
            if arrives < wire.last_arrival:  # type: ignore[operator]
                arrives = wire.last_arrival
            else:
                wire.last_arrival = arrives  # type: ignore[assignment]
        else:
            arrives = wire.arrival(size, time, engine.network_rng)
        if arrives is not None:
            heappush(engine.heap, (arrives, next(engine.serial), wire.receive, wire, frames))

    def _take_queue(self, wire: Wire) -> None:
        if (queue := self.node.queue(wire.source_link)) is not None:
            wire.queue = queue
