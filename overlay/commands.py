"""What an application may ask of its node: the commands of the core's interface. The base of `Node`."""

from collections.abc import Callable, Mapping, Sequence

from anabranch.overlay import describing
from anabranch.overlay.actions import DeliveredRun, SendControl, SubscribersChanged, Write
from anabranch.overlay.codec import Frame, encode_control
from anabranch.overlay.config import Config
from anabranch.overlay.durables import PositionKey
from anabranch.overlay.duties import Duties
from anabranch.overlay.errors import UsageError
from anabranch.overlay.guarantees import GuaranteeCommands
from anabranch.overlay.headers import Inspect, Kind
from anabranch.overlay.identifiers import LinkId, SubscriptionId
from anabranch.overlay.outlets import Outlet
from anabranch.overlay.parts import Parts
from anabranch.overlay.patterns import check_pattern, check_topic
from anabranch.overlay.profiles import Beliefs, Profile
from anabranch.overlay.qos import BEST_EFFORT, Demand, Role
from anabranch.overlay.records import ControlRecord, DeliveryRecord
from anabranch.overlay.replycommands import ReplyCommands
from anabranch.overlay.topiccommands import TopicCommands


class Commands(ReplyCommands, GuaranteeCommands, TopicCommands):
    """Each takes `now`; a shell takes the actions afterwards."""

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self.peer = parts.identity.peer
        self.config: Config = parts.config
        for rule in parts.config.topics:
            check_pattern(rule.pattern)
        self._duties = Duties(parts)
        self._publishers_open, self._next_subscription = 0, 1
        self.queue = parts.sessions.queue
        self.publish = parts.publishing.publish
        """Take one publication (`codec.encode_payload` made payload and size); it leaves with a flush."""
        self.select = parts.selecting.publish
        """The same for one with attributes or a selection of sites; the stream that has counted it."""
        self.seal = parts.publishing.seal
        """No outlet takes another message without `publish`."""
        self.reach = parts.publishing.reach
        """Whom the publisher of an outlet reaches now, and how."""
        self.pause_until = parts.publishing.pause_until
        """Until when the publisher of an outlet shall wait, if it can."""
        self.express = parts.publishing.express
        """The same for one that leaves at once, if it can: the shell then sends the bundle it returns."""

    def subscribe(
        self,
        pattern: str,
        now: float,
        durable: tuple[str, dict[PositionKey, int]] | None = None,
        where: str | None = None,
    ) -> SubscriptionId:
        """Want topics that match, as far as the filter lets them pass; announced to the mesh when new.

        `durable`: its name, and how far it is with the streams it knows.
        """
        check_pattern(pattern)
        condition = self._parts.selections.filter(where) if where is not None else None
        if len(self._parts.local) >= self.config.subscriptions_max:
            raise UsageError(
                f"{len(self._parts.local)} subscriptions are open: close some or raise subscriptions_max"
            )
        subscription = SubscriptionId(self._next_subscription)
        self._next_subscription += 1
        self._parts.local.add(subscription, pattern, condition)
        try:
            if durable is not None:  # told first: who hears of the interest knows that it is durable
                self.open_durable(durable[0], pattern, subscription, durable[1], now)
            self._announce_interests(now)
        except UsageError:
            self._parts.local.remove(subscription)
            raise
        return subscription

    def unsubscribe(self, subscription: SubscriptionId, now: float) -> None:
        """Stop wanting them."""
        self._parts.local.remove(subscription)
        self._replies.unsubscribed(subscription, now)
        self._announce_interests(now)

    def open_publisher(self, topic: str, now: float, demand: Demand = BEST_EFFORT) -> Outlet:
        """A publisher of one topic."""
        check_topic(topic)
        self._parts.restricting.check_publish(self.peer, topic)
        if self._publishers_open >= self.config.publishers_max:
            raise UsageError(
                f"{self._publishers_open} publishers are open: close some or raise publishers_max"
            )
        self._publishers_open += 1
        self._after(now)
        return self._parts.publishing.open(topic, demand)

    def close_publisher(self, outlet: Outlet, now: float) -> None:
        """What it put last leaves first."""
        del outlet
        self._publishers_open -= 1
        self.flush(now)

    def keep_bodies(self, keep: Callable[[bytearray], Frame]) -> None:
        """What copies a large body out of the buffer that it was made in: to where the shell wants it."""
        self._parts.publishing.keep = keep

    @property
    def has_unsent(self) -> bool:
        """Whether `flush` has something to send."""
        return self._parts.publishing.has_unsent or self._parts.assuring.has_unsent

    @property
    def is_full(self) -> bool:
        """Whether what was `select`ed should leave now."""
        return self._parts.selecting.is_full

    def flush(self, now: float) -> None:
        """Send what was published."""
        if self._parts.publishing.has_unsent:
            self._actions += self._parts.publishing.flush(now)
            if self._parts.routes.has_changes:
                self._actions += self._duties.note_routes(now)
        if self._parts.assuring.has_unsent:
            self._emit(self._parts.assuring.flush(now), now)

    def set_addresses(self, addresses: Sequence[str]) -> None:
        """Where this peer can be dialled; call before `start`."""
        self._parts.telling.addresses = list(addresses)

    def set_attributes(self, attributes: Mapping[str, object], now: float) -> None:
        """Say what this site is; replaces what was said before."""
        row = self._parts.selections.site_attributes(attributes)
        telling = self._parts.telling
        self._actions += telling.become(row, now)
        if telling.sites_due is not None:
            self._parts.timers.set_earliest(("sites", 0), telling.sites_due)
        self._actions.append(SubscribersChanged())
        self._after(now)

    def use_profile(self, profile: Profile) -> None:
        """Choose paths by what was learned about links; in a secured mesh only what a peer of it signed.

        UsageError where the signature does not hold.
        """
        verifier = self._parts.verifier
        if not verifier.is_open and not (
            verifier.learn(profile.origin, profile.credential)
            and verifier.verify_lasting(profile.origin, profile.signed_bytes(), profile.signature)
        ):
            who = f"by {profile.origin!r} " if profile.origin else ""
            raise UsageError(
                f"profile: not signed {who}so that this mesh believes it: sign it with one of its identities"
            )
        self._parts.routes.believe(Beliefs(profile))

    def inspect(self, link: LinkId, token: int, now: float) -> None:
        """Ask a neighbour for its own view; `Reported` brings the answer."""
        self._actions.append(SendControl(link, encode_control(Kind.INSPECT, Inspect(token))))
        self._after(now)

    def leave(self, now: float) -> None:
        """Say farewell on every link; nothing is dialled again."""
        self.flush(now)
        self._actions += self._parts.replies.leave(now)
        self._actions += self._parts.telling.withdrawal(now)
        self._actions += self._parts.sessions.leave(now)
        if self._parts.sessions.recording:
            self._actions.append(Write(describing.control_record(self._parts, now)))
        self._duties.end()
        self._parts.sessions.take_changes()
        self._parts.telling.refresh_own_links()

    def destinations(
        self, topic: str, attributes: Mapping[str, object] | None = None, to: str | None = None
    ) -> tuple[str, ...]:
        """The peers (ourselves included) that want a topic and can be reached now; with attributes or a
        selection of sites, those that such a publication is for."""
        reachable = self.reachable()
        if attributes is None and to is None:
            peers = self._parts.matching.possible_peers(topic)
        else:
            peers = self._parts.selecting.receivers(topic, attributes, to)
        return tuple(peer for peer in peers if peer == self.peer or peer in reachable)

    def delivery_record(self, run: DeliveredRun) -> DeliveryRecord:
        """For the logs: a `Deliver` makes no `Write`, so that the application gets its messages first."""
        return describing.delivery_record(self._parts, run)

    def control_record(self, now: float) -> ControlRecord:
        """All counters, as they stand."""
        return describing.control_record(self._parts, now)

    def reachable(self) -> set[str]:
        """The other peers that can be reached; a light client takes its peer's word for it."""
        if self.config.role is not Role.CLIENT:
            return self._parts.routes.reachable()
        return set(self._parts.spreading.book.origins()) - {self.peer} if self._parts.links.by_peer else set()

    def report(self, now: float) -> dict[str, object]:
        """This peer's own view: links, routes, known peers, counters."""
        return describing.report(self._parts, now)

    def check_invariants(self) -> None:
        """What must hold after every input; AssertionError is a bug of ours."""
        describing.check_invariants(self._parts)

    # Inside

    def _announce_interests(self, now: float) -> None:
        if self._parts.local.patterns() != self._parts.interests.patterns_of(self.peer):
            self._actions += self._parts.telling.interests(self._parts.local.patterns(), now)
            self._actions.append(SubscribersChanged())
        if self._parts.durables.own and self._parts.plain_patterns() != self._parts.durables.plain:
            self._tell_durables(now)
        self._after(now)

    def _after(self, now: float) -> None:
        self._actions += self._duties.conclude(now)
