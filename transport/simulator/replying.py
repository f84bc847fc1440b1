"""Requests and replies of simulated applications: what was asked, what came, and ways past the mesh."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from anabranch.overlay.actions import (
    Action,
    DeliveredRun,
    DeliverRequest,
    Harvested,
    HarvestOver,
    RepliesArrived,
    Reply,
    SendAside,
    SnapshotTaken,
)
from anabranch.overlay.asking import Protocol, RequestKey
from anabranch.overlay.errors import UsageError
from anabranch.overlay.identifiers import SubscriptionId
from anabranch.transport.simulator.connections import Connections
from anabranch.transport.simulator.engine import Engine

if TYPE_CHECKING:
    from anabranch.transport.simulator.peers import SimPeer

DATAGRAM_MAX_BYTES = 65_000
LATER = object()
"""Returned by a responder that will `Simulator.peer(name).answer` later, or never."""
DECLINE = object()
"""Returned by a responder that declines."""


class SimAsked:
    """A request as it reached one subscriber."""

    def __init__(self, site: str, action: DeliverRequest) -> None:
        run = action.run
        self.site = site
        self.topic = run.topic
        self.payload = run.payloads[0]
        self.origin = run.origin
        self.key: RequestKey = run.key
        self.subscriber = run.subscriber
        self.age_s = run.age_s


class SimHarvest:
    """What came of a request."""

    def __init__(self, origin: str, asked_at: float) -> None:
        self.origin = origin
        self.asked_at = asked_at
        self.number = 0
        self.replies: list[Reply] = []
        self.times: list[float] = []
        """When each reply came."""
        self.result: Harvested | None = None
        self.over_at = 0.0
        self.snapshots: list[Harvested] = []


class SimReplying:
    """The part of a simulated application that asks and replies."""

    def __init__(self, name: str, engine: Engine, connections: Connections) -> None:
        self.responder: Callable[[SimAsked], object] = lambda asked: asked.site
        self.topic = f"anabranch/replies/{name}"
        """Where replies to it are published."""
        self.asked: list[SimAsked] = []
        """Every request that reached its application."""
        self._name = name
        self._engine = engine
        self._connections = connections
        self._harvests: dict[int, SimHarvest] = {}
        self._inbox: SubscriptionId | None = None
        self._dialled: set[str] = set()

    @property
    def has_inbox(self) -> bool:
        """Whether replies can be published to it."""
        return self._inbox is not None

    def open_inbox(self, subscription: SubscriptionId) -> None:
        """The subscription that published replies come to."""
        self._inbox = subscription

    def takes(self, subscription: SubscriptionId, run: DeliveredRun, time: float) -> bool:
        """Whether a delivery holds replies that were published to us."""
        if subscription != self._inbox:
            return False
        for frame in run.payloads:
            self._peer.node.arrived_aside(frame, self._peer.clock(time))  # type: ignore[arg-type]
        return True

    def began(self, number: int, harvest: SimHarvest) -> None:
        """A request was made."""
        harvest.number = number
        self._harvests[number] = harvest

    def forget(self) -> None:
        """The process ended."""
        self._harvests.clear()
        self._inbox = None
        self._dialled.clear()

    def act(self, action: Action, time: float) -> None:
        """An action about replies."""
        if isinstance(action, DeliverRequest):
            asked = SimAsked(self._name, action)
            self.asked.append(asked)
            self._engine.at(time, self._respond, asked, self._peer.incarnation)
        elif isinstance(action, RepliesArrived | HarvestOver | SnapshotTaken):
            self._engine.at(time, self._came, action, self._peer.incarnation)
        elif isinstance(action, SendAside):
            self._send_aside(action, time)

    @property
    def _peer(self) -> "SimPeer":
        return self._connections.peers[self._name]  # type: ignore[return-value]

    def _came(self, time: float, action: Action, incarnation: int) -> None:
        if incarnation != self._peer.incarnation:
            return
        if isinstance(action, RepliesArrived) and action.number in self._harvests:
            harvest = self._harvests[action.number]
            harvest.replies += action.replies
            harvest.times += [time] * len(action.replies)
        elif isinstance(action, SnapshotTaken) and action.number in self._harvests:
            self._harvests[action.number].snapshots.append(action.result)
        elif isinstance(action, HarvestOver) and action.number in self._harvests:
            harvest = self._harvests.pop(action.number)
            if harvest.result is not None:
                raise AssertionError(f"request {action.number} of {self._name} ended twice")
            harvest.result, harvest.over_at = action.result, time

    def _respond(self, time: float, asked: SimAsked, incarnation: int) -> None:
        peer = self._peer
        if incarnation != peer.incarnation or not peer.is_running:
            return
        value = self.responder(asked)
        if value is not LATER:
            peer.answer(asked, None if value is DECLINE else value, time, declines=value is DECLINE)

    def _send_aside(self, action: SendAside, time: float) -> None:
        if action.protocol is Protocol.PUBLISH:
            self._engine.at(time, self._publish, action.address, action.frame)
            return
        target = self._connections.peers.get(action.address)
        if target is None:  # the publisher named no address
            self._peer.node.counters.add("replies_unsent")
            return
        conditions = self._connections.network.get(self._name, action.address)
        rng = self._engine.network_rng
        under_way = conditions.travel_s(rng)
        if action.protocol is Protocol.DATAGRAM:
            if (
                conditions.blackhole
                or len(action.frame) > DATAGRAM_MAX_BYTES
                or rng.random() < conditions.loss
            ):
                return
        else:
            if conditions.blackhole:
                return
            if action.address not in self._dialled:  # a connection takes a round trip first
                self._dialled.add(action.address)
                under_way += 2 * conditions.delay_s
            while rng.random() < conditions.loss:
                under_way += max(0.2, 2 * conditions.delay_s)  # sent again by the transport below
        self._engine.at(time + under_way, target.replying.arrived, action.frame)

    def arrived(self, time: float, frame: bytes, _: None) -> None:
        """A reply came past the mesh."""
        peer = self._peer
        if peer.is_running:
            peer.node.arrived_aside(frame, peer.clock(time))
            peer.turn(time)

    def _publish(self, time: float, topic: str, frame: bytes) -> None:
        if self._peer.is_running:
            try:
                self._peer.publish(topic, [frame], 0.0, time)
            except UsageError:  # the publisher named no topic
                self._peer.node.counters.add("replies_unsent")
