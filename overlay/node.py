"""The node: every input of a peer goes in here, every action comes out. Glue between the parts, no maths.

A shell calls an input or a command with `now`, then takes the actions and re-arms its timer from
`next_timeout()`. Nothing a neighbour sends makes an input raise.
"""

from collections.abc import Mapping, Sequence

from anabranch.overlay import describing
from anabranch.overlay.actions import Action, DeliveredRun, SendControl, SubscribersChanged
from anabranch.overlay.addresses import is_dialable
from anabranch.overlay.codec import Frame, encode_control
from anabranch.overlay.config import Config
from anabranch.overlay.control import Control
from anabranch.overlay.duties import Duties
from anabranch.overlay.errors import DropReason, PeerError, UsageError
from anabranch.overlay.headers import WIRE_VERSION, Inspect, Kind
from anabranch.overlay.identifiers import LinkId, PeerId, SubscriptionId
from anabranch.overlay.identity import Identity, Rng
from anabranch.overlay.parts import Parts
from anabranch.overlay.patterns import check_pattern, check_topic
from anabranch.overlay.publishing import Outlet
from anabranch.overlay.qos import BEST_EFFORT, Demand, LinkState, Role
from anabranch.overlay.records import DeliveryRecord
from anabranch.security.signing import NullSigner, NullVerifier, Signer, Verifier

LAG_NOTICED_S = 0.1
"""A timer that fires this late means that our own loop stood still."""
_BUNDLE = int(Kind.BUNDLE)
_BEFORE_HELLO = (int(Kind.HELLO), int(Kind.BYE))


class Node:
    """One peer of the mesh, without sockets and without a clock."""

    def __init__(
        self,
        peer: PeerId,
        config: Config,
        *,
        epoch: int,
        rng: Rng,
        seeds: Sequence[str] = (),
        addresses: Sequence[str] = (),
        signer: Signer | None = None,
        verifier: Verifier | None = None,
    ) -> None:
        self.peer = str(peer)  # the wire codec takes plain text only
        self.config = config
        self.identity = Identity(self.peer, epoch, rng.randrange(2**63))
        self._parts = parts = Parts(
            self.identity, config, rng, addresses, signer or NullSigner(), verifier or NullVerifier()
        )
        self.counters = parts.counters
        self.sessions = parts.sessions
        self.links = parts.links
        self.topology = parts.topology
        self.interests = parts.interests
        self.matching = parts.matching
        self.routes = parts.routes
        self.book = parts.spreading.book
        self._timers = parts.timers
        self._telling, self._publishing = parts.telling, parts.publishing
        self._delivering = parts.delivering
        self._streams = parts.delivering.streams
        self._local = parts.local
        self._control = Control(parts)
        self._duties = Duties(parts)
        self._seeds = tuple(seeds)
        self._actions: list[Action] = []
        self._publishers_open, self._next_subscription = 0, 1
        self.queue = parts.sessions.queue
        self.publish = parts.publishing.publish
        """Take one publication (`codec.encode_payload` made payload and size); it leaves with a flush."""
        self.seal = parts.publishing.seal
        """No outlet takes another message without `publish`."""
        self.reach = parts.publishing.reach
        """Whom the publisher of an outlet reaches now, and how."""
        self.pause_until = parts.publishing.pause_until
        """Until when the publisher of an outlet shall wait, if it can."""
        self.express = parts.publishing.express
        """The same for one that leaves at once, if it can: the shell then sends the bundle it returns."""

    @property
    def recording(self) -> bool:
        """Whether `Write` actions are made; switch off where nobody keeps them."""
        return self.sessions.recording

    @recording.setter
    def recording(self, wanted: bool) -> None:
        self.sessions.recording = wanted

    # Inputs

    def start(self, now: float) -> None:
        """Begin: announce ourselves, dial the seeds."""
        for address in self._seeds:
            self.sessions.dialling.add(address, True, now)
        self._actions += self._telling.everything(self._local.patterns(), now)
        self._duties.begin(now)
        self._after(now)

    def link_opened(self, link: LinkId, now: float, address: str | None = None) -> None:
        """A connection stands. `address` is the one we dialled; None when the neighbour dialled us."""
        self._actions += self.sessions.opened(link, now, address)
        self._after(now)

    def link_closed(self, link: LinkId, now: float) -> None:
        """A connection is gone."""
        self.sessions.closed(link, now, "connection lost")
        self._after(now)

    def link_backlog(self, link: LinkId, backlog_s: float) -> None:
        """What waits for a link will take this long; 0 when it keeps up again."""
        known = self.links.get(link)
        if known is not None:
            known.backlog_s = backlog_s

    def application_backlog(self, path: tuple[str, ...], backlog_s: float, now: float) -> None:
        """Our application will take this long for what already came over this path: tell the publisher."""
        if len(path) == 1:
            self._parts.congestion.note((self.peer, self.peer), backlog_s, now, True)
            return
        link = self.links.by_peer.get(path[-2])
        if link is not None:
            self._actions += self._parts.congestion.met(link, path, self.peer, backlog_s, now)

    def dial_failed(self, address: str, now: float) -> None:
        """A `Dial` did not succeed."""
        self.sessions.dialling.failed(address, now)
        self._after(now)

    def found(self, addresses: Sequence[str], now: float) -> None:
        """Somebody was discovered at these addresses (by beacon): dial the first usable one."""
        for address in addresses:
            if is_dialable(address):
                self.sessions.dialling.add(address, False, now)
                break
        self._after(now)

    def receive(self, link_id: LinkId, frames: Sequence[Frame], now: float) -> None:
        """A message arrived on a link. Bad ones are counted and dropped."""
        link = self.links.get(link_id)
        try:
            if link is None:
                raise PeerError(DropReason.NO_SESSION)
            head = frames[0] if frames else b""
            if len(head) < 2:
                raise PeerError(DropReason.MALFORMED)
            if head[0] != WIRE_VERSION:
                raise PeerError(DropReason.VERSION)
            kind = head[1]
            if link.peer:
                link.heard_at = now
                if link.state is LinkState.SUSPECT:
                    self.sessions.heard(link)
            elif kind not in _BEFORE_HELLO:
                self._actions += self._control.ask_who(link, kind)
                raise PeerError(DropReason.NO_SESSION)
            if kind == _BUNDLE:
                self._actions += self._delivering.receive(link, frames, now)
                if not self._streams.is_holding and not self.sessions.has_changes:
                    return
            else:
                self._actions += self._control.receive(link, kind, frames, now)
        except PeerError as error:
            self.counters.drop(error.reason)
        self._after(now)

    def handle_timeout(self, now: float) -> None:
        """Time has passed; call when `next_timeout()` is reached, after draining what arrived."""
        due = self._timers.pop_due(now)
        if due and now - due[0][0] > LAG_NOTICED_S:
            self.sessions.forgive(now - due[0][0], now)
        for at, (name, number) in due:
            self._actions += self._duties.fire(name, number, at, now)
        self._after(now)

    def excuse_silence(self, now: float) -> None:
        """We were not listening until now: nobody's silence counts."""
        self.sessions.forgive(now, now)

    def next_timeout(self) -> float | None:
        """When `handle_timeout` has something to do."""
        return self._timers.next()

    def take_actions(self) -> list[Action]:
        """What the shell has to do now, in this order."""
        actions, self._actions = self._actions, []
        return actions

    # Commands

    def subscribe(self, pattern: str, now: float) -> SubscriptionId:
        """Want topics that match; announced to the mesh when it is new."""
        check_pattern(pattern)
        if len(self._local) >= self.config.subscriptions_max:
            raise UsageError(
                f"{len(self._local)} subscriptions are open: close some or raise subscriptions_max"
            )
        subscription = SubscriptionId(self._next_subscription)
        self._next_subscription += 1
        self._local.add(subscription, pattern)
        try:
            self._announce_interests(now)
        except UsageError:
            self._local.remove(subscription)
            raise
        return subscription

    def unsubscribe(self, subscription: SubscriptionId, now: float) -> None:
        """Stop wanting them."""
        self._local.remove(subscription)
        self._announce_interests(now)

    def open_publisher(self, topic: str, now: float, demand: Demand = BEST_EFFORT) -> Outlet:
        """A publisher of one topic."""
        check_topic(topic)
        if self._publishers_open >= self.config.publishers_max:
            raise UsageError(
                f"{self._publishers_open} publishers are open: close some or raise publishers_max"
            )
        self._publishers_open += 1
        self._after(now)
        return self._publishing.open(topic, demand)

    def close_publisher(self, outlet: Outlet, now: float) -> None:
        """What it put last leaves first."""
        del outlet
        self._publishers_open -= 1
        self.flush(now)

    @property
    def has_unsent(self) -> bool:
        """Whether `flush` has something to send."""
        return self._publishing.has_unsent

    def flush(self, now: float) -> None:
        """Send what was published."""
        if self._publishing.has_unsent:
            self._actions += self._publishing.flush(now)
            if self.routes.has_changes:
                self._actions += self._duties.note_routes(now)

    def set_addresses(self, addresses: Sequence[str]) -> None:
        """Where this peer can be dialled; call before `start`."""
        self._telling.addresses = list(addresses)

    def set_attributes(self, attributes: Mapping[str, object], now: float) -> None:
        """Say what this site is; replaces what was said before."""
        self._actions += self._telling.sites(dict(attributes), now)
        self._after(now)

    def inspect(self, link: LinkId, token: int, now: float) -> None:
        """Ask a neighbour for its own view; `Reported` brings the answer."""
        self._actions.append(SendControl(link, encode_control(Kind.INSPECT, Inspect(token))))
        self._after(now)

    def leave(self, now: float) -> None:
        """Say farewell on every link; nothing is dialled again."""
        self.flush(now)
        self._actions += self._telling.withdrawal(now)
        self._actions += self.sessions.leave(now)
        self._duties.end()
        self.sessions.take_changes()
        self._telling.refresh_own_links()

    def destinations(self, topic: str) -> tuple[str, ...]:
        """The peers (ourselves included) that want a topic and can be reached now."""
        reachable = self.reachable()
        return tuple(peer for peer in self.matching.peers(topic) if peer == self.peer or peer in reachable)

    def delivery_record(self, run: DeliveredRun) -> DeliveryRecord:
        """For the logs: a `Deliver` makes no `Write`, so that the application gets its messages first."""
        return describing.delivery_record(self._parts, run)

    def reachable(self) -> set[str]:
        """The other peers that can be reached; a light client takes its peer's word for it."""
        if self.config.role is not Role.CLIENT:
            return self.routes.reachable()
        return set(self.book.origins()) - {self.peer} if self.links.by_peer else set()

    def report(self, now: float) -> dict[str, object]:
        """This peer's own view: links, routes, known peers, counters."""
        return describing.report(self._parts, now)

    def check_invariants(self) -> None:
        """What must hold after every input; AssertionError is a bug of ours."""
        describing.check_invariants(self._parts)

    # Inside

    def _announce_interests(self, now: float) -> None:
        if self._local.patterns() != self.interests.patterns_of(self.peer):
            self._actions += self._telling.interests(self._local.patterns(), now)
            self._actions.append(SubscribersChanged())
        self._after(now)

    def _after(self, now: float) -> None:
        self._actions += self._duties.conclude(now)
