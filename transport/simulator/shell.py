"""The shell around one simulated node: input in, turn, actions out."""

import enum
from collections.abc import Callable, Sequence
from math import inf
from typing import TYPE_CHECKING, Any

from anabranch.overlay.actions import Action, CloseLink, Deliver, Dial, SendBundle, SendControl, Write
from anabranch.overlay.assured import StreamKey
from anabranch.overlay.codec import Frame
from anabranch.overlay.config import Config
from anabranch.overlay.identifiers import LinkId, SubscriptionId
from anabranch.overlay.node import Node
from anabranch.overlay.outlets import Outlet
from anabranch.overlay.profiles import Profile
from anabranch.overlay.qos import Demand, Role
from anabranch.overlay.records import LogRecord
from anabranch.transport.simulator.assurances import SimPublisher, act
from anabranch.transport.simulator.connections import Connections
from anabranch.transport.simulator.engine import Engine, Handler
from anabranch.transport.simulator.ledger import Delivery, Ledger, Published, SimSubscription
from anabranch.transport.simulator.questions import SimQuestions
from anabranch.transport.simulator.replying import SimReplying
from anabranch.transport.simulator.sending import Sender
from anabranch.transport.simulator.starting import address_of, new_node
from anabranch.transport.simulator.stores import SimStore
from anabranch.transport.simulator.trace import FOLD_AT_PARTS, HEAD, TraceKind
from anabranch.transport.simulator.wires import Wire, total_size

if TYPE_CHECKING:
    from anabranch.transport.simulator.realm import Realm

TIMER_ROUNDING_S = 1e-6
"""Adding and taking off a clock's offset may leave a timer this much early."""

_pack_head = HEAD.pack


class PeerState(enum.Enum):
    """What a simulated process does."""

    RUNNING = "running"
    PAUSED = "paused"
    CRASHED = "crashed"


class Shell(Sender):
    """One process with its node, its links and its timer."""

    def __init__(
        self,
        name: str,
        number: int,
        config: Config,
        seeds: Sequence[str],
        clock_offset_s: float,
        engine: Engine,
        connections: Connections,
        ledger: Ledger,
        on_record: Callable[[LogRecord], None] | None,
        realm: "Realm | None" = None,
    ) -> None:
        super().__init__(config.link_queue_max_bytes, clock_offset_s, engine)
        self.name = name
        self.number = number
        self.config = config
        self.address = address_of(name)
        self.state = PeerState.CRASHED
        self.incarnation = 0
        """Odd while it runs: every start and every crash adds one."""
        self.is_gone = False
        """Crashed together with its host: nothing answers there, not even a refusal."""
        self.profile: Profile | None = None
        """What its node is told about links, at every start."""
        self.subscriptions: dict[SubscriptionId, SimSubscription] = {}
        self._outlets: dict[tuple[str, Demand], tuple[Outlet, Published]] = {}
        """Its application's publishers, by topic and what they ask for."""
        self._flows: dict[int, Published] = {}
        self.assured: dict[StreamKey, SimPublisher] = {}
        """Those with a guarantee."""
        self.store: SimStore | None = None
        """Its disk, if it ever had something on it."""
        self._acknowledged: dict[tuple[str, float], SimPublisher] = {}
        self._seeds = tuple(seeds)
        self._connections = connections
        self._ledger = ledger
        self._on_record = on_record
        self._realm = realm
        self._last_link = 0
        self._timer_at = inf
        self._backlog: list[tuple[Handler, Any, Any]] = []
        self._calls: list[tuple[Callable[[Delivery], None], Delivery]] = []
        self.replying = SimReplying(name, self._engine, connections)
        self.questions = SimQuestions()
        self.node = self.new_node()

    @property
    def is_running(self) -> bool:
        """Whether it takes part."""
        return self.state is PeerState.RUNNING

    @property
    def is_listening(self) -> bool:
        """Whether its address takes connections; a paused process does, its kernel sees to that."""
        return self.state is not PeerState.CRASHED and self.config.role is not Role.CLIENT

    def new_link(self) -> LinkId:
        """A number for a link; none is used twice."""
        self._last_link += 1
        return LinkId(self._last_link)

    # What happens to it: handlers of the engine, called as (time, subject, detail)

    def receive(self, time: float, wire: Wire, frames: list[Frame]) -> None:
        """A message arrives."""
        if self.state is not PeerState.RUNNING or not wire.is_open:
            self._receive_aside(time, wire, frames)
            return
        engine = self._engine
        engine.events += 1
        parts = engine.trace.parts
        parts.append(_pack_head(time, 1, self.number, len(frames) & 0xFF))
        parts += frames
        if len(parts) > FOLD_AT_PARTS:
            engine.trace.fold()
        local = time + self.clock_offset_s
        if local > self._clock:
            self._clock = local
        else:
            local = self._clock
        self.node.receive(wire.target_link, frames, local)
        self.turn(time)

    def timer(self, time: float, due: float, _: None) -> None:
        """A timer may be due; it may also have been moved since."""
        if due != self._timer_at:
            return
        self._timer_at = inf
        if self.state is not PeerState.RUNNING:
            return
        local = self.clock(time)
        wanted = self.node.next_timeout()
        if wanted is not None and wanted - local < TIMER_ROUNDING_S:
            self._note(time, TraceKind.TIMER)
            if wanted > local:
                local = self._clock = wanted
            self.node.handle_timeout(local)
            self.turn(time)
        else:
            self._arm(time)

    def accept(self, time: float, wire: Wire, incarnation: int) -> None:
        """Another peer connected."""
        if self._waits(self.accept, wire, incarnation):
            return
        if incarnation != self.incarnation:
            wire.is_open = False
            self._receive_aside(time, wire, [])
            return
        link = self.new_link()
        wire.target_link = wire.back.source_link = link
        self.links[link] = wire.back
        self._connections.accepted(wire)
        self._note(time, TraceKind.OPENED)
        self.node.link_opened(link, self.clock(time))
        self._take_queue(wire.back)
        self.turn(time)

    def dialled(self, time: float, wire: Wire, address: str) -> None:
        """The connection that this peer dialled stands."""
        if self._waits(self.dialled, wire, address):
            return
        self.links[wire.source_link] = wire
        self._note(time, TraceKind.OPENED)
        self.node.link_opened(wire.source_link, self.clock(time), address)
        self._take_queue(wire)
        self.turn(time)

    def dial_failed(self, time: float, address: str, incarnation: int) -> None:
        """The connection that this peer dialled does not come about."""
        if self._waits(self.dial_failed, address, incarnation) or incarnation != self.incarnation:
            return
        self._note(time, TraceKind.DIAL_FAILED)
        self.node.dial_failed(address, self.clock(time))
        self.turn(time)

    def link_lost(self, time: float, wire: Wire, _: None) -> None:
        """The other end of one of this peer's connections is closed."""
        if self._waits(self.link_lost, wire, None) or self.links.get(wire.source_link) is not wire:
            return
        del self.links[wire.source_link]
        wire.is_open = wire.back.is_open = False
        self._connections.vanish(wire)
        self._note(time, TraceKind.CLOSED)
        self.node.link_closed(wire.source_link, self.clock(time))
        self.turn(time)

    # The turn that follows any input

    def turn(self, time: float) -> None:
        """Take the actions, send, re-arm the timer."""
        node = self.node
        actions = node.take_actions()
        while actions:
            for action in actions:
                kind = type(action)
                if kind is SendBundle:
                    self._queue_bundle(action.link, action.bundle, time)  # type: ignore[union-attr]
                elif kind is Deliver:
                    self._deliver(action, time)  # type: ignore[arg-type]
                elif kind is SendControl:
                    self._queue_control(action.link, action.frame, time)  # type: ignore[union-attr]
                else:
                    self._act(action, time)
            actions = node.take_actions()
        if self._held:
            self._pump_held(time)
        wanted = node.next_timeout()
        if wanted is not None and wanted - self.clock_offset_s < self._timer_at:
            self._arm(time)
        engine = self._engine
        if engine.check_every and engine.events % engine.check_every == 0:
            node.check_invariants()
        if self._calls:
            calls, self._calls = self._calls, []
            for callback, delivery in calls:
                callback(delivery)

    def _deliver(self, action: Deliver, time: float) -> None:
        if (on_record := self._on_record) is not None:
            on_record(self.node.delivery_record(action.run))
        for number in action.subscriptions:
            if not self.replying.takes(number, action.run, time):
                subscription = self.subscriptions[number]
                deliveries = self._ledger.deliver(subscription, action.run, time)
                if (callback := subscription.callback) is not None:
                    self._calls += [(callback, delivery) for delivery in deliveries]

    def _act(self, action: Action, time: float) -> None:
        if isinstance(action, Dial):
            self._connections.dial(self, action.address, time)
        elif isinstance(action, CloseLink):
            self._close(action.link, time)
        elif isinstance(action, Write) and self._on_record is not None:
            self._on_record(action.record)
        elif not self._act_on_disk(action, time):
            act(self, action, self._ledger, time)
            self.replying.act(action, time)
            self.questions.act(self, action, time)

    def _act_on_disk(self, action: Action, time: float) -> bool:
        return self.store is not None and self.store.act(self, action, time)

    def _close(self, link: LinkId, time: float) -> None:
        wire = self.links.pop(link, None)
        if wire is None:
            return
        wire.back.is_open = False
        local = self.clock(time)
        while (frames := wire.queue.peek(local)) is not None:
            wire.queue.advance()
            self._send(wire, frames, time)
        self._connections.close(wire, time)

    # Inside

    def _arm(self, time: float) -> None:
        if (wanted := self.node.next_timeout()) is not None:
            due = wanted - self.clock_offset_s
            self._timer_at = due if due > time else time
            self._engine.at(self._timer_at, self.timer, self._timer_at)

    def _receive_aside(self, time: float, wire: Wire, frames: list[Frame]) -> None:
        """What arrives at a process that does not read, or at a connection that it closed."""
        if wire.is_open and self.state is PeerState.PAUSED:
            wire.unread += total_size(frames)
            self._backlog.append((self.receive, wire, frames))
        elif not self.is_gone:
            self._connections.reset(wire, time)

    def _waits(self, handler: Handler, subject: Any, detail: Any) -> bool:
        if self.state is not PeerState.PAUSED:
            return False
        self._backlog.append((handler, subject, detail))
        return True

    def _note(self, time: float, kind: int) -> None:
        engine = self._engine
        engine.events += 1
        parts = engine.trace.parts
        parts.append(_pack_head(time, kind, self.number, 0))
        if len(parts) > FOLD_AT_PARTS:
            engine.trace.fold()

    def new_node(self) -> Node:
        """Its process starts now."""
        recording = self._on_record is not None
        start = (self.name, self.config, self._seeds, self.incarnation, self._engine, recording, self.profile)
        return new_node(*start, self._realm)

    def later(self, time: float, call: Callable[[float], None]) -> None:
        """Let its process do something, unless it has died by then."""
        self._engine.at(time, self._do_later, call, self.incarnation)

    def _do_later(self, time: float, call: Callable[[float], None], incarnation: int) -> None:
        if not self._waits(self._do_later, call, incarnation) and incarnation == self.incarnation:
            call(time)
            self.turn(time)
