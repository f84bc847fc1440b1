"""A simulated peer: its faults, and the application on it. `shell.py` runs its node."""

from collections.abc import Container, Mapping, Sequence
from math import inf
from typing import Any

from anabranch.overlay.asking import Protocol
from anabranch.overlay.attributes import check_attributes
from anabranch.overlay.codec import encode_payload
from anabranch.overlay.errors import UsageError
from anabranch.overlay.interests import Interest
from anabranch.overlay.outlets import Outlet
from anabranch.overlay.qos import Demand, Role
from anabranch.transport.simulator.assurances import SimPublisher
from anabranch.transport.simulator.ledger import Published, SimSubscription
from anabranch.transport.simulator.replying import SimAsked, SimHarvest
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
        if self.name in self._ledger.sites:
            self.node.set_attributes(self._ledger.sites[self.name], local)
        for subscription in again:
            number = self.node.subscribe(subscription.pattern, local, where=subscription.where)
            self.subscriptions[number] = subscription
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
        self._flows.clear()
        self.assured.clear()
        self._calls.clear()
        self.replying.forget()
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
        number = self.node.subscribe(subscription.pattern, local, where=subscription.where)
        self.subscriptions[number] = subscription
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

    def select(
        self,
        topic: str,
        payloads: Sequence[object],
        demand: Demand,
        attributes: Mapping[str, object] | None,
        to: str | None,
        time: float,
    ) -> None:
        """The application puts messages with attributes, or for selected sites."""
        local = self.application_step(time)
        outlet, _ = self._outlets.get((topic, demand)) or self._open(topic, demand, local)
        for payload in payloads:
            encoded, size = encode_payload(payload)
            flow = self.node.select(outlet, encoded, size, attributes, to, local)
            published = self._flows.get(flow.publisher)
            if published is None:
                published = self._ledger.open(
                    self.name,
                    flow.publisher,
                    self.incarnation,
                    topic,
                    flow.next_sequence - 1,
                    demand.deadline_s,
                )
                published.is_selected = True
                self._flows[flow.publisher] = published
            self._ledger.put(published, payload, time)
        self.node.flush(local)
        self.turn(time)

    def set_attributes(self, attributes: Mapping[str, object], time: float) -> None:
        """The application says what its site is."""
        local = self.application_step(time)
        self._ledger.sites[self.name] = check_attributes(attributes)
        self.node.set_attributes(attributes, local)
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
        self,
        topic: str,
        payloads: Sequence[object],
        deadline_s: float,
        attributes: Mapping[str, object] | None,
        to: str | None,
        time: float,
    ) -> SimPublisher:
        """The application puts messages with an acknowledged publisher, all within one turn."""
        local = self.application_step(time)
        publisher = self._acknowledged.get((topic, deadline_s))
        if publisher is None or publisher.stream.key not in self.assured:
            outlet = self.node.open_publisher(topic, local, Demand(deadline_s))
            stream = self.node.acknowledge(outlet, local)
            publisher = SimPublisher(self, stream, outlet.publisher, topic, deadline_s, self._ledger)
            self._acknowledged[topic, deadline_s] = publisher
            self.assured[publisher.stream.key] = publisher
        chosen = publisher
        for payload in payloads:
            if attributes is None and to is None:
                publisher.put(payload, time)
            else:
                chosen = publisher.select(payload, attributes, to, time)
        self.node.flush(local)
        self.turn(time)
        return chosen

    def application_step(self, time: float) -> float:
        """The application does something; what its peer's clock shows."""
        if self.state is not PeerState.RUNNING:
            raise UsageError(f"peer {self.name!r} is {self.state.value}: its application can do nothing")
        self._note(time, TraceKind.APPLICATION)
        return self.clock(time)

    def request(self, harvest: SimHarvest, topic: str, payload: object, time: float, **options: Any) -> None:
        """The application asks for replies."""
        local = self.application_step(time)
        if options.get("protocol") in (Protocol.DIRECT, Protocol.DATAGRAM):
            options["reply_to"] = self.name
        if options.get("protocol") is Protocol.PUBLISH:
            options["reply_to"] = self.replying.topic
            if not self.replying.has_inbox:
                self.replying.open_inbox(self.node.subscribe(self.replying.topic, local))
        number = self.node.request(topic, payload, local, **options)
        self.replying.began(number, harvest)
        self.turn(time)

    def answer(self, asked: SimAsked, value: object, time: float, *, declines: bool = False) -> bool:
        """The application replies to a request, or declines."""
        local = self.application_step(time)
        if declines:
            was_wanted = self.node.decline(asked.key, asked.subscriber, local)
        else:
            was_wanted = self.node.reply(asked.key, asked.subscriber, value, local)
        self.turn(time)
        return was_wanted

    def close_request(self, harvest: SimHarvest, time: float) -> None:
        """The application wants no more replies."""
        local = self.application_step(time)
        self.node.close_request(harvest.number, local)
        self.turn(time)

    def snapshot(self, harvest: SimHarvest, wait_s: float, time: float) -> None:
        """The application polls; what comes is in `harvest.snapshots`."""
        local = self.application_step(time)
        self.node.snapshot(harvest.number, wait_s, local)
        self.turn(time)

    def leave(self, time: float) -> None:
        """The application closes its peer in order: farewells, then the process ends."""
        local = self.application_step(time)
        self.node.leave(local)
        self.turn(time)
        self.crash(time, reset=True)

    # Looking

    def patterns(self) -> frozenset[Interest]:
        """What its application wants."""
        if any(subscription.where is not None for subscription in self.subscriptions.values()):
            return self.node.interests.patterns_of(self.name)  # what covers what is decided there
        durable = self.store.durables.values() if self.store is not None else ()
        return frozenset(each.pattern for each in (*self.subscriptions.values(), *durable))

    def knows(self, wanted: Mapping[str, frozenset[Interest]]) -> bool:
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
