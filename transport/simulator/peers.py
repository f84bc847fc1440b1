"""A simulated peer: its faults, and the application on it. `shell.py` runs its node."""

from collections.abc import Container, Mapping, Sequence
from math import inf

from anabranch.overlay.codec import encode_payload
from anabranch.overlay.errors import UsageError
from anabranch.overlay.publishing import Outlet
from anabranch.overlay.qos import Demand, Role
from anabranch.transport.simulator.assurances import SimPublisher
from anabranch.transport.simulator.ledger import Published, SimSubscription
from anabranch.transport.simulator.shell import PeerState, Shell
from anabranch.transport.simulator.stores import SimDurable, SimStore
from anabranch.transport.simulator.trace import TraceKind


class SimPeer(Shell):
    """One peer. Made by `Simulator.add_peer`; its counters say what it sent."""

    # Faults

    def start(self, time: float) -> None:
        """The process starts; the application makes its subscriptions again."""
        if self.state is not PeerState.CRASHED:
            raise UsageError(f"peer {self.name!r} is {self.state.value}: only a crashed one can be restarted")
        if self.incarnation:
            self.node = self.new_node()
        self.incarnation += 1
        self.state = PeerState.RUNNING
        self.is_gone = False
        again = list(self.subscriptions.values())
        self.subscriptions.clear()
        self._note(time, TraceKind.FAULT)
        local = self.clock(time)
        self.node.start(local)
        for subscription in again:
            self.subscriptions[self.node.subscribe(subscription.pattern, local)] = subscription
            subscription.begin(time)
        if self.store is not None:
            self.store.start(self, time)
        self.turn(time)

    def crash(self, time: float, reset: bool) -> None:
        """The process ends, no farewell. With `reset` its host lives on and closes its links."""
        if self.state is PeerState.CRASHED:
            raise UsageError(f"peer {self.name!r} crashed already")
        self._note(time, TraceKind.FAULT)
        self.state = PeerState.CRASHED
        self.incarnation += 1
        self.is_gone = not reset
        self._backlog.clear()
        self._outlets.clear()
        self.assured.clear()
        self._calls.clear()
        for wire in list(self.links.values()):
            wire.back.is_open = False
            if reset:
                self._connections.close(wire, time)
            else:
                self._connections.vanish(wire)
        self.links.clear()
        self._timer_at = inf
        for subscription in self.subscriptions.values():
            subscription.end(time)

    def pause(self, time: float) -> None:
        """The process stands still, as after SIGSTOP; what arrives waits."""
        if self.state is not PeerState.RUNNING:
            raise UsageError(f"peer {self.name!r} is {self.state.value}: only a running one can be paused")
        self._note(time, TraceKind.FAULT)
        self.state = PeerState.PAUSED

    def resume(self, time: float) -> None:
        """The process goes on, and first reads what waited."""
        if self.state is not PeerState.PAUSED:
            raise UsageError(f"peer {self.name!r} is {self.state.value}: only a paused one can be resumed")
        self._note(time, TraceKind.FAULT)
        self.state = PeerState.RUNNING
        backlog, self._backlog = self._backlog, []
        for handler, subject, detail in backlog:
            handler(time, subject, detail)
        for wire in list(self.links.values()):
            wire.back.unread = 0
            wire.back.source.pump(time, wire.back)
        self.turn(time)

    # Its application

    def subscribe(self, subscription: SimSubscription, time: float) -> None:
        """The application wants a pattern."""
        local = self.application_step(time)
        self.subscriptions[self.node.subscribe(subscription.pattern, local)] = subscription
        subscription.begin(time)
        self.turn(time)

    def unsubscribe(self, subscription: SimSubscription, time: float) -> None:
        """The application no longer wants it."""
        local = self.application_step(time)
        for number, known in list(self.subscriptions.items()):
            if known is subscription:
                del self.subscriptions[number]
                subscription.end(time)
                self.node.unsubscribe(number, local)
        self.turn(time)

    def publish(self, topic: str, payloads: Sequence[object], demand: Demand | float, time: float) -> None:
        """The application puts messages, all within one turn of its loop. A number is a deadline."""
        local = self.application_step(time)
        demand = demand if isinstance(demand, Demand) else Demand(demand)
        outlet, published = self._outlets.get((topic, demand)) or self._open(topic, demand, local)
        node, ledger = self.node, self._ledger
        for payload in payloads:
            encoded, size = encode_payload(payload)
            if size > self.config.payload_max_bytes:
                raise UsageError(
                    f"payload of {size} bytes: payload_max_bytes = {self.config.payload_max_bytes} at most"
                )
            ledger.put(published, payload, time)
            node.publish(outlet, encoded, size, local)
        node.flush(local)
        self.turn(time)

    def _open(self, topic: str, demand: Demand, local: float) -> tuple[Outlet, Published]:
        outlet = self.node.open_publisher(topic, local, demand)
        published = self._ledger.open(
            self.name, outlet.publisher, self.incarnation, topic, outlet.next_sequence, demand.deadline_s
        )
        self._outlets[topic, demand] = outlet, published
        return outlet, published

    def persist(self, topic: str, payloads: Sequence[object], time: float) -> SimStore:
        """The application puts messages with a persistent publisher; its peer's store."""
        self.application_step(time)
        store = self.disk()
        store.put(self, topic, payloads, time)
        return store

    def subscribe_durably(self, durable: SimDurable, time: float) -> None:
        """The application makes a durable subscription."""
        self.application_step(time)
        self.disk().subscribe(self, durable, time)
        self.turn(time)

    def disk(self) -> SimStore:
        """Its store, from now on if it had none."""
        if self.store is None:
            self.store = SimStore(self.incarnation)
            self.node.know_consumers(())
        return self.store

    def acknowledge(
        self, topic: str, payloads: Sequence[object], deadline_s: float, time: float
    ) -> SimPublisher:
        """The application puts messages with an acknowledged publisher, all within one turn."""
        local = self.application_step(time)
        publisher = self._acknowledged.get((topic, deadline_s))
        if publisher is None or publisher.stream.key not in self.assured:
            publisher = SimPublisher(self, topic, deadline_s, time, self._ledger)
            self._acknowledged[topic, deadline_s] = publisher
            self.assured[publisher.stream.key] = publisher
        for payload in payloads:
            publisher.put(payload, time)
        self.node.flush(local)
        self.turn(time)
        return publisher

    def application_step(self, time: float) -> float:
        """The application does something; what its peer's clock shows."""
        if self.state is not PeerState.RUNNING:
            raise UsageError(f"peer {self.name!r} is {self.state.value}: its application can do nothing")
        self._note(time, TraceKind.APPLICATION)
        return self.clock(time)

    def leave(self, time: float) -> None:
        """The application closes its peer in order: farewells, then the process ends."""
        local = self.application_step(time)
        self.node.leave(local)
        self.turn(time)
        self.crash(time, reset=True)

    # Looking

    def patterns(self) -> frozenset[str]:
        """What its application wants."""
        durable = self.store.durables.values() if self.store is not None else ()
        return frozenset(each.pattern for each in (*self.subscriptions.values(), *durable))

    def knows(self, wanted: Mapping[str, frozenset[str]]) -> bool:
        """Whether it can route to all these peers and knows that they want exactly this."""
        node = self.node
        if self.config.role is Role.CLIENT:
            reached: Container[str] = wanted if node.links.by_peer else ()
        else:
            reached = node.routes.reachable()
        return all(
            name == self.name or (name in reached and node.interests.patterns_of(name) == patterns)
            for name, patterns in wanted.items()
        )
