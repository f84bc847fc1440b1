"""The mesh in virtual time: add peers, set the network, let time pass, look at the ledger.

Everything random comes from the seed, so a failing run is named by it and happens again exactly.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from anabranch.overlay.config import Config
from anabranch.overlay.errors import UsageError
from anabranch.overlay.identifiers import PeerId
from anabranch.overlay.patterns import check_pattern, check_topic
from anabranch.overlay.profiles import Profile
from anabranch.overlay.qos import Demand, Variant
from anabranch.overlay.records import LogRecord
from anabranch.transport.simulator.assurances import SimPublisher
from anabranch.transport.simulator.conditions import Conditions, Network
from anabranch.transport.simulator.connections import Connections
from anabranch.transport.simulator.engine import Engine
from anabranch.transport.simulator.flows import Flow
from anabranch.transport.simulator.ledger import Delivery, Ledger, SimSubscription
from anabranch.transport.simulator.metering import Meter
from anabranch.transport.simulator.peers import SimPeer
from anabranch.transport.simulator.replying import SimAsked, SimHarvest
from anabranch.transport.simulator.starting import address_of
from anabranch.transport.simulator.stores import SimDurable, SimStore

if TYPE_CHECKING:
    from anabranch.transport.simulator.realm import Realm

LOOK_EVERY_S = 0.01
"""How often `run_until_true` asks its predicate."""


class Simulator:
    """A mesh of the same nodes that run on sockets, in virtual time.

    By default every peer reaches every other with `default` conditions. `check=True` asserts the nodes'
    invariants after every event (`check_every=n`: every n-th) and the promises about deliveries always.
    `on_record` gets the log records of all nodes; without it they are not made. With `secured` every peer
    has an identity, made from the seed, as in a secured mesh.
    """

    def __init__(
        self,
        seed: int,
        *,
        check: bool = True,
        check_every: int = 1,
        default: Conditions | None = None,
        keep_messages: bool = True,
        on_record: Callable[[LogRecord], None] | None = None,
        secured: bool = False,
    ) -> None:
        self._engine = Engine(seed, check_every if check else 0)
        self.network = Network(default or Conditions())
        self._connections = Connections(self._engine, self.network)
        self.ledger = Ledger(check)
        self.peers: dict[str, SimPeer] = {}
        self._keep_messages = keep_messages
        self._on_record = on_record
        self._realm: Realm | None = None
        if secured:
            from anabranch.transport.simulator import realm

            self._realm = realm.Realm(self._engine)

    @property
    def seed(self) -> int:
        """What this run is named by."""
        return self._engine.seed

    @property
    def now(self) -> float:
        """Virtual time in seconds, from 0."""
        return self._engine.now

    @property
    def events(self) -> int:
        """Frames received, timers fired, and steps of applications so far."""
        return self._engine.events

    def trace_hash(self) -> str:
        """A fingerprint of every event so far; equal for equal seeds and equal calls, in any process."""
        return self._engine.trace.digest()

    # Peers

    def add_peer(
        self,
        name: str,
        *,
        config: Config | None = None,
        seeds: Iterable[str] = (),
        clock_offset_s: float = 0.0,
        profile: Profile | None = None,
    ) -> SimPeer:
        """Start a peer now. `seeds` are names of peers to join, which may start later."""
        PeerId.parse(name)
        if name in self.peers:
            raise UsageError(f"peer {name!r} exists already: names are unique")
        peer = SimPeer(
            name,
            len(self.peers),
            config or Config(),
            [address_of(PeerId.parse(seed)) for seed in seeds],
            clock_offset_s,
            self._engine,
            self._connections,
            self.ledger,
            self._on_record,
            self._realm,
        )
        if profile is not None:
            peer.profile = profile
            peer.node.use_profile(profile)
        self.peers[name] = peer
        self._connections.add_peer(peer)
        peer.start(self.now)
        return peer

    def peer(self, name: str) -> SimPeer:
        """The peer of this name; UsageError names the ones there are."""
        found = self.peers.get(name)
        if found is None:
            known = ", ".join(list(self.peers)[:10]) or "none yet"
            raise UsageError(f"no peer {name!r}: add it first; there are {known}")
        return found

    def crash(self, name: str, *, reset: bool = False) -> None:
        """End a peer without a farewell.

        Its neighbours notice by silence, as when a host loses its power; with `reset` their connections are
        closed at once, as when a process is killed.
        """
        self.peer(name).crash(self.now, reset)

    def restart(self, name: str) -> None:
        """Start a crashed peer again: same name, later epoch, the same subscriptions made anew."""
        self.peer(name).start(self.now)

    def leave(self, name: str) -> None:
        """Close a peer in order, with farewells."""
        self.peer(name).leave(self.now)

    def pause(self, name: str) -> None:
        """Stop a peer as SIGSTOP does: what is sent to it waits."""
        self.peer(name).pause(self.now)

    def resume(self, name: str) -> None:
        """Let a paused peer go on."""
        self.peer(name).resume(self.now)

    # The network

    def connect(self, a: str, b: str, conditions: Conditions, back: Conditions | None = None) -> None:
        """Set what the network does between two peers: a to b, and b to a (`back`, or the same)."""
        self.set_conditions(a, b, conditions)
        self.set_conditions(b, a, back or conditions)

    def set_conditions(self, source: str, target: str, conditions: Conditions | None) -> None:
        """Change one direction from now on; None returns it to the default."""
        self.network.set(source, target, conditions)
        self._connections.refresh(source, target)

    def set_default(self, conditions: Conditions) -> None:
        """Change every direction that has no conditions of its own."""
        self.network.default = conditions
        self._connections.refresh_all()

    def change(self, a: str, b: str, **changes: object) -> None:
        """Change some conditions between two peers, both ways, e.g. `change("a", "b", blackhole=True)`."""
        for source, target in ((a, b), (b, a)):
            self.set_conditions(source, target, self.network.configured(source, target).replace(**changes))

    def partition(self, *groups: Iterable[str]) -> None:
        """Only peers within one group reach each other; peers that no group names form one of their own."""
        members = [list(group) for group in groups]
        for group in members:
            for name in group:
                self.peer(name)
        self.network.partition(members)
        self._connections.refresh_all()

    def heal(self) -> None:
        """End the partition. Conditions between pairs stay as they were set."""
        self.network.heal()
        self._connections.refresh_all()

    # Applications

    def subscribe(
        self,
        name: str,
        pattern: str,
        *,
        where: str | None = None,
        callback: Callable[[Delivery], None] | None = None,
    ) -> SimSubscription:
        """Subscribe at a peer. The callback may publish; it is called after the peer's turn."""
        subscription = SimSubscription(name, check_pattern(pattern), self._keep_messages, callback, where)
        self.peer(name).subscribe(subscription, self.now)
        self.ledger.subscriptions.append(subscription)
        return subscription

    def unsubscribe(self, subscription: SimSubscription) -> None:
        """Cancel a subscription; what it got stays in the ledger."""
        self.peer(subscription.peer).unsubscribe(subscription, self.now)

    def publish(
        self,
        name: str,
        topic: str,
        *payloads: object,
        deadline_s: float = 0.0,
        attributes: Mapping[str, object] | None = None,
        to: str | None = None,
    ) -> None:
        """Put messages at a peer, all within one turn of its loop."""
        peer = self.peer(name)
        if attributes is None and to is None:
            peer.publish(topic, payloads, deadline_s, self.now)
        else:
            peer.select(topic, payloads, Demand(deadline_s), attributes, to, self.now)

    def set_attributes(self, name: str, attributes: Mapping[str, object]) -> None:
        """Say what a peer's site is; a restarted peer says it again."""
        self.peer(name).set_attributes(attributes, self.now)

    def respond(self, name: str, responder: Callable[[SimAsked], object]) -> None:
        """What the application at a peer does with requests: it returns the reply, `DECLINE`, or `LATER`."""
        self.peer(name).replying.responder = responder

    def request(self, name: str, topic: str, payload: object = None, **options: object) -> SimHarvest:
        """Publish at a peer and ask for replies; the options are those of `Node.request`."""
        harvest = SimHarvest(name, self.now)
        self.peer(name).request(harvest, topic, payload, self.now, **options)
        return harvest

    def acknowledge(
        self,
        name: str,
        topic: str,
        *payloads: object,
        deadline_s: float = 0.0,
        attributes: Mapping[str, object] | None = None,
        to: str | None = None,
    ) -> SimPublisher:
        """Put messages with an acknowledged publisher: the same one each time until its peer crashes.

        For selected receivers, what it returns tells of those messages that went to the same ones.
        """
        return self.peer(name).acknowledge(topic, payloads, deadline_s, attributes, to, self.now)

    def persist(self, name: str, topic: str, *payloads: object) -> SimStore:
        """Put messages with a persistent publisher; they count once its peer's store has them."""
        return self.peer(name).persist(topic, payloads, self.now)

    def subscribe_durably(
        self, name: str, pattern: str, durable: str, *, accept_every: int = 1
    ) -> SimDurable:
        """A durable subscription, which its peer goes on with after a crash."""
        subscription = SimDurable(durable, check_pattern(pattern), accept_every)
        self.peer(name).subscribe_durably(subscription, self.now)
        return subscription

    def flow(
        self,
        name: str,
        topic: str,
        *,
        rate: float,
        size: int = 64,
        start: float | None = None,
        stop: float = float("inf"),
        deadline_s: float = 0.0,
        availability: float = 0.0,
        variant: Variant | None = None,
    ) -> Flow:
        """Publish at a rate (messages/s) from now or `start` on until `stop`, in virtual time."""
        check_topic(topic)
        demand = Demand(deadline_s, availability, variant)
        flow = Flow(self.peer(name), topic, rate, size, stop, demand, self._engine)
        flow.begin(self.now if start is None else start)
        return flow

    # Time

    def at(self, time: float, call: Callable[[], None]) -> None:
        """Do something at a virtual time, such as a fault."""
        self._engine.at(time, _call, call)

    def run_until(self, time: float) -> None:
        """Let everything happen that is due by then."""
        self._engine.run_until(time)

    def run_for(self, seconds: float) -> None:
        """Let this much time pass."""
        self._engine.run_until(self.now + seconds)

    def run_until_true(
        self, predicate: Callable[[], bool], limit_s: float, every_s: float = LOOK_EVERY_S
    ) -> bool:
        """Let time pass until the predicate holds; False if it did not within `limit_s`."""
        end = self.now + limit_s
        while not predicate():
            if self.now >= end:
                return False
            self._engine.run_until(min(end, self.now + every_s))
        return True

    # Looking

    def running(self) -> list[SimPeer]:
        """The peers that take part now."""
        return [peer for peer in self.peers.values() if peer.is_running]

    def is_settled(self, names: Iterable[str] = ()) -> bool:
        """Whether each running peer of these (default: all) can route to the others and knows what they want.

        Asks the nodes themselves, so it costs time in proportion to the square of their number.
        """
        chosen = frozenset(names)
        running = [peer for peer in self.running() if not chosen or peer.name in chosen]
        wanted = {peer.name: peer.patterns() for peer in running}
        return all(peer.knows(wanted) for peer in running)

    def write_counters(self) -> None:
        """Records of all counters, as they stand; for the end of a run."""
        if self._on_record is not None:
            for peer in self.running():
                self._on_record(peer.node.control_record(peer.clock(self.now)))

    def control_bytes(self) -> int:
        """Bytes of control that all peers sent."""
        return sum(peer.control_bytes for peer in self.peers.values())

    def data_bytes(self) -> int:
        """Bytes of bundles that all peers sent, on every hop."""
        return sum(peer.data_bytes for peer in self.peers.values())

    def meter(self) -> Meter:
        """What bundles carried for whom, on every hop, since this was first asked for."""
        if self._engine.meter is None:
            self._engine.meter = Meter()
        return self._engine.meter

    def bundles_sent(self) -> int:
        """Bundles that all peers sent, on every hop. A flow's bundle holds one message."""
        return sum(peer.bundles_sent for peer in self.peers.values())

    def counters(self, names: Sequence[str] = ()) -> dict[str, int]:
        """The nodes' counters, summed over these peers (default: all)."""
        total: dict[str, int] = {}
        for peer in self.peers.values():
            if not names or peer.name in names:
                for name, count in peer.node.counters.items():
                    total[name] = total.get(name, 0) + count
        return dict(sorted(total.items()))


def _call(time: float, call: Callable[[], None], _: None) -> None:
    del time
    call()
