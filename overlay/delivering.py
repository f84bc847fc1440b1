"""What happens to a bundle that arrived: passed on without a look inside, delivered, or dropped."""

from collections.abc import Sequence

import msgspec

from anabranch.overlay.actions import Action, Deliver, DeliveredRun, SelectedDelivery, SendBundle
from anabranch.overlay.assured import decode_progress
from anabranch.overlay.assuring import Assuring
from anabranch.overlay.bundles import OutBundle
from anabranch.overlay.codec import Frame, decode_runs, decode_selected
from anabranch.overlay.config import Config
from anabranch.overlay.congestion import Congestions
from anabranch.overlay.counters import Counters
from anabranch.overlay.discovery import Discovery
from anabranch.overlay.errors import DropReason, PeerError, UsageError
from anabranch.overlay.forwarding import Familiar, Forwarding, ForwardPlan
from anabranch.overlay.headers import BUNDLE_HEADER, Flag, Run, SelectedRun
from anabranch.overlay.hops import ACK_EVERY_BYTES, Hops
from anabranch.overlay.identifiers import SubscriptionId
from anabranch.overlay.identity import Identity
from anabranch.overlay.links import Link, LinkTable
from anabranch.overlay.matching import Matching
from anabranch.overlay.ordering import Arrival, Streams, Verdict
from anabranch.overlay.patterns import check_topic
from anabranch.overlay.qos import Demand, Role
from anabranch.overlay.recovering import Recovery
from anabranch.overlay.replies import Replies
from anabranch.overlay.routes import Routes
from anabranch.overlay.sealing import Sealing
from anabranch.overlay.selections import Selections
from anabranch.overlay.taking import Taking

HEADER_BYTES = BUNDLE_HEADER.size
_unpack_header = BUNDLE_HEADER.unpack_from
SEQUENCE_MAX = 2**62
RESENT_HOLD_S = 0.6
"""How long a gap is held that a link is filling again: enough for some attempts."""
REPAIR_HOLD_S = 0.6
"""How long a gap after a change of route is held while recovery is on: a relay of the old route may have to
notice a dead link of its own before what it holds takes another way."""
_ACK_SOON = int(Flag.ACK_SOON)
_GAP_MAY_FILL = int(Flag.GAP_MAY_FILL)
_ABOUT_REPLIES = int(Flag.REQUEST | Flag.REPLY)
_REQUEST = int(Flag.REQUEST)
_SELECTED = int(Flag.SELECTED)
_ASSURED = int(Flag.ASSURED)
_CONFIRMS = int(Flag.CONFIRMS)
_LETTER = int(Flag.LETTER)
_END_TO_END = _ASSURED | _CONFIRMS | _ABOUT_REPLIES | _LETTER
OVERHEAD_MAX_BYTES = 256 * 1024
"""What a bundle may weigh beyond its largest payload."""


class Delivering:
    """Bundles from neighbours."""

    def __init__(
        self,
        identity: Identity,
        config: Config,
        links: LinkTable,
        matching: Matching,
        routes: Routes,
        congestion: Congestions,
        counters: Counters,
        hops: Hops,
        recovery: Recovery,
        selections: Selections,
        taking: Taking,
        assuring: Assuring,
        replies: Replies,
        discovery: Discovery,
        sealing: Sealing | None,
    ) -> None:
        repair_s = REPAIR_HOLD_S if config.recovery else 0.0
        self.streams = Streams(config.streams_max, config.held_runs_max, config.reorder_hold_s, repair_s)
        self._sealing = sealing
        self._forgotten: dict[str, None] = {}
        if sealing is not None:
            self.streams.forgotten = taking.forgotten = self._forgotten
        self._identity = identity
        self._config = config
        self._links = links
        self._matching = matching
        self._routes = routes
        self._congestion = congestion
        self._counters = counters
        self._hops = hops
        self._recovery = recovery
        self._selections = selections
        self._taking = taking
        self._assuring = assuring
        self._replies = replies
        self._discovery = discovery
        self._restricting = matching.restricting
        self._forwarding = Forwarding(identity.peer, config.cache_max, config.links_max)
        self._plans = self._forwarding.plans
        self._local = matching.local
        self._sound_topics: set[str] = set()
        self._is_client = config.role is Role.CLIENT
        self._bytes_max = config.payload_max_bytes + config.bundle_max_bytes + OVERHEAD_MAX_BYTES

    def receive(self, link: Link, frames: Sequence[Frame], now: float) -> list[Action]:
        """Take a bundle; PeerError when it breaks the protocol."""
        head = frames[0]
        size = head_bytes = len(head)
        if size <= HEADER_BYTES:
            raise PeerError(DropReason.MALFORMED, "bundle")
        _, _, flags, tail_bytes, hop_sequence, sequence, elapsed_us, deadline_us, arrived_to, bits = (
            _unpack_header(head)
        )
        body_at = HEADER_BYTES + tail_bytes
        if len(frames) == 1 and body_at < head_bytes:
            body: list[Frame] = [head[body_at:]]
        elif len(frames) > 1 and body_at == head_bytes:
            body = list(frames[1:])
            size = sum(map(len, frames))
        else:
            raise PeerError(DropReason.MALFORMED, "bundle")
        if size > self._bytes_max:
            raise PeerError(DropReason.OVERSIZED)
        queue = link.queue
        arrived = queue.arrived
        ahead = hop_sequence - arrived.next
        if hop_sequence >= SEQUENCE_MAX:
            raise PeerError(DropReason.MALFORMED, "hop sequence")
        if not arrived.is_new(hop_sequence):
            raise PeerError(DropReason.REPLAYED)
        if not queue.owed_bytes:
            link.owed_since = now
        queue.owed_bytes += size
        actions: list[Action] = []
        if (
            ahead
            or flags & _ACK_SOON
            or not link.owes_ack
            or queue.owed_bytes >= ACK_EVERY_BYTES
            or queue.retained is None
            or arrived_to != queue.retained.acknowledged_to
        ):
            actions = self._hops.arrived(link, ahead, flags, arrived_to, bits, now)
        tail = bytes(head[HEADER_BYTES:body_at])
        plan = self._plans.get(tail) or self._forwarding.plan(tail)
        if plan.path[-2] != link.peer or (link.is_client and plan.origin != link.peer):
            raise PeerError(DropReason.CONFLICT, "a bundle comes from the last peer on its path")
        started_at = now - elapsed_us / 1e6 - link.estimate.back_s
        deliver = plan.deliver
        branches = plan.branches
        if plan.destinations:
            deliver, branches = self._route_for_client(link, tail, plan, Demand(deadline_us / 1e6))
        runs: Sequence[Run] = ()
        is_looked_at = branches or flags & _END_TO_END
        if is_looked_at and not self._restricting.admits(plan.origin, flags, body):
            return actions
        content, number = body, 0
        if self._sealing is not None and (deliver or flags & _REQUEST):
            if self._forgotten:
                self._sealing.forgot(self._forgotten)
                self._forgotten.clear()
            number, content = self._sealing.open(
                plan.origin, plan.epoch, body, flags, deadline_us, link.peer, deliver
            )
        if flags & _END_TO_END:
            if flags & _ABOUT_REPLIES:
                answers, flags = self._replies.receive(
                    link, plan, deliver, branches, content, flags, started_at, now
                )
                actions += answers
            elif deliver:
                may_begin = self._may_begin(plan, number)
                actions += self._end_to_end(flags, plan, content, may_begin, started_at, deadline_us, now)
        elif deliver:
            runs = decode_selected(content) if flags & _SELECTED else decode_runs(content)
        if len(runs) == 1 and not branches and not flags & _SELECTED:
            delivered = self._take_familiar(runs[0], plan, started_at, deadline_us, now)
            if delivered is not None:
                actions.append(delivered)
                return actions
        self._check_runs(runs)
        if link.hole_until > now:
            flags |= _GAP_MAY_FILL
        if branches and not self._is_client:
            self._counters.add("forwarded")
            flags &= ~_ACK_SOON
            for peer, child_tail in branches:
                next_link = self._links.by_peer.get(peer)
                bundle = OutBundle(
                    sequence, started_at, deadline_us, child_tail, body, size, 0, flags, origin=plan.origin
                )
                if next_link is None or next_link.is_quiet:
                    actions += self._recovery.detour(peer, bundle)
                    continue
                actions.append(SendBundle(next_link.id, bundle))
                if (
                    next_link.backlog_s
                    and (not deadline_us or next_link.queue.is_full_of_urgent)
                    and next_link.queue.is_crowded_by(plan.origin)
                ):
                    backlog_s = next_link.backlog_s
                    actions += self._congestion.met(link, plan.path, peer, backlog_s, now, deadline_us > 0)
        hold_s = RESENT_HOLD_S if flags & _GAP_MAY_FILL else 0.0
        for run in runs:
            self._take_run(run, plan, number, started_at, deadline_us / 1e6, hold_s, actions, now)
        return actions

    def _end_to_end(
        self,
        flags: int,
        plan: ForwardPlan,
        body: Sequence[Frame],
        may_begin: bool,
        started_at: float,
        deadline_us: int,
        now: float,
    ) -> list[Action]:
        """Messages that ask for confirmation, or confirmations of ours."""
        if flags & _LETTER:
            return self._discovery.letter(plan.origin, bytes(body[0]), now)
        if flags & _CONFIRMS:
            return self._assuring.progress(plan.origin, plan.epoch, decode_progress(body), now)
        return self._taking.receive(plan.origin, plan.path, body, started_at, deadline_us, now, may_begin)

    def _take_familiar(
        self, run: Run, plan: ForwardPlan, started_at: float, deadline_us: int, now: float
    ) -> Deliver | None:
        """The short way for the next run of a stream that the last one with this tail belonged to."""
        known = plan.familiar
        if known is None or run.publisher != known.publisher or run.topic != known.topic:
            return None
        stream = known.stream
        count = len(run.payloads)
        if run.first_sequence != stream.next_sequence or stream.held or not count or not stream.is_known:
            return None
        if known.version != self._local.version:
            return None
        stream.next_sequence += count
        stream.generation = plan.generation
        stream.was_heard = True
        repeated, stream.repeated = stream.repeated, 0
        self._counters["delivered"] += count
        age_s = now - started_at
        return Deliver(
            known.subscriptions,
            DeliveredRun(
                run.topic,
                plan.origin,
                run.publisher,
                run.first_sequence,
                run.payloads,
                age_s if age_s > 0 else 0.0,
                now,
                deadline_us / 1e6,
                plan.path,
                plan.epoch,
                plan.has_copies,
                repeated,
            ),
        )

    def _check_runs(self, runs: Sequence[Run]) -> None:
        """PeerError unless every run is sound."""
        for run in runs:
            if not run.payloads or not 0 <= run.first_sequence < SEQUENCE_MAX:
                raise PeerError(DropReason.MALFORMED, "run")
            if run.topic not in self._sound_topics:
                self._check_topic(run.topic)
            if isinstance(run, SelectedRun):
                self._selections.read(run.attributes, run.to)

    def _check_topic(self, topic: str) -> None:
        try:
            check_topic(topic)
        except UsageError:
            raise PeerError(DropReason.MALFORMED, "topic") from None
        if len(self._sound_topics) >= self._config.cache_max:
            self._sound_topics.clear()
        self._sound_topics.add(topic)

    def _route_for_client(
        self, link: Link, tail: bytes, plan: ForwardPlan, demand: Demand
    ) -> tuple[bool, tuple[tuple[str, bytes], ...]]:
        """Whether we are a receiver, and the next peers, of a bundle that a light client left us to route."""
        if not link.is_client:
            raise PeerError(DropReason.CONFLICT, "routing is done for attached clients only")
        me = self._identity.peer
        others = tuple(sorted({peer for peer in plan.destinations if peer not in (me, link.peer)}))
        route = self._routes.route(others, demand)
        if route.unreached:
            self._counters.drop(DropReason.NO_ROUTE, len(route.unreached))
        return me in plan.destinations, self._forwarding.attached_branches(tail, plan, route)

    def expire(self, now: float) -> list[Action]:
        """Deliver what waited long enough for earlier messages."""
        actions: list[Action] = []
        for verdict in self.streams.expire(now):
            self._settle(verdict, actions, now)
        return actions

    def _take_run(
        self,
        run: Run,
        plan: ForwardPlan,
        number: int,
        started_at: float,
        deadline_s: float,
        hold_s: float,
        actions: list[Action],
        now: float,
    ) -> None:
        first = run.first_sequence
        count = len(run.payloads)
        if not self._restricting.may_publish(plan.origin, run.topic):
            self._restricting.denied(plan.origin, run.topic, count)
            return
        subscriptions = self._matching.subscriptions(run.topic)
        if not subscriptions and not isinstance(run, SelectedRun):
            self._counters.drop(DropReason.NO_SUBSCRIBER, count)
            return
        key = (plan.origin, plan.epoch, run.publisher)
        if self.streams.get(key) is None and not self._may_begin(plan, number):
            self._counters.drop(DropReason.REPLAYED, count)
            return
        delivered = DeliveredRun(
            run.topic,
            plan.origin,
            run.publisher,
            first,
            run.payloads,
            max(0.0, now - started_at),
            now,
            deadline_s,
            plan.path,
            plan.epoch,
            plan.has_copies,
        )
        if isinstance(run, SelectedRun):
            selected = self._selections.read(run.attributes, run.to)
            delivered = SelectedDelivery(*msgspec.structs.astuple(delivered), selected=selected)
        if self.streams.advance(key, first, count, plan.generation):
            delivered.repeated = self.streams.take_repeated(key)
            self._hand_over(delivered, subscriptions, actions)
        else:
            patience_s = max(0.0, deadline_s - delivered.age_s) / 2 if deadline_s else float("inf")
            may_fill = plan.has_copies or hold_s > 0
            arrival = Arrival(first, count, plan.generation, delivered, may_fill, patience_s)
            self._settle(self.streams.offer(key, arrival, now, hold_s), actions, now)
        stream = self.streams.get(key)
        if stream is not None and not isinstance(run, SelectedRun):
            plan.familiar = Familiar(run.topic, run.publisher, stream, subscriptions, self._local.version)

    def _may_begin(self, plan: ForwardPlan, number: int) -> bool:
        """Whether a bundle is late enough to begin a stream that is not known."""
        return self._sealing is None or self._sealing.may_begin(plan.origin, plan.epoch, number)

    def _settle(self, verdict: Verdict, actions: list[Action], now: float) -> None:
        for reason, count in verdict.refused:
            self._counters.drop(reason, count)
        if verdict.lost:
            self._counters.add("lost", verdict.lost)
        for arrival, skip in verdict.ready:
            run = arrival.item
            assert isinstance(run, DeliveredRun)
            run.age_s += now - run.received_at
            run.received_at = now
            if skip:
                run.payloads = run.payloads[skip:]
                run.first_sequence += skip
            self._hand_over(run, self._matching.subscriptions(run.topic), actions)

    def _hand_over(
        self, run: DeliveredRun, subscriptions: tuple[SubscriptionId, ...], actions: list[Action]
    ) -> None:
        if isinstance(run, SelectedDelivery):  # whom it is for is decided by what holds at this moment
            subscriptions = self._matching.selected_subscriptions(run.topic, run.selected)
            if not subscriptions:
                self._counters.drop(DropReason.NOT_SELECTED, len(run.payloads))
                return
        self._counters["delivered"] += len(run.payloads)
        actions.append(Deliver(subscriptions, run))
