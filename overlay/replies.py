"""Requests and replies at one peer: what application, neighbours and clock bring, to whom it concerns.

The one entrance to `harvests` (our own requests), `converging` (those of others) and `siting` (our answers).
"""

from collections.abc import Sequence

import msgspec

from anabranch.overlay.actions import Action, SubscribersChanged, Write
from anabranch.overlay.asking import Expectation, Protocol, RequestKey
from anabranch.overlay.codec import Frame, decode_value
from anabranch.overlay.config import Config
from anabranch.overlay.converging import Converging
from anabranch.overlay.counters import Counters
from anabranch.overlay.errors import DropReason, PeerError, UsageError
from anabranch.overlay.forwarding import ForwardPlan
from anabranch.overlay.gathering import reply_record
from anabranch.overlay.harvests import Harvests
from anabranch.overlay.headers import Flag, Record, RecordKind
from anabranch.overlay.identifiers import SubscriptionId
from anabranch.overlay.identity import Identity
from anabranch.overlay.links import Link, LinkTable
from anabranch.overlay.matching import Matching
from anabranch.overlay.merging import Merges
from anabranch.overlay.polling import Polling
from anabranch.overlay.qos import Role
from anabranch.overlay.recovering import Recovery
from anabranch.overlay.replywire import Prompt, Report, Request, decode_items, encode_value
from anabranch.overlay.reporting import Reporting
from anabranch.overlay.routes import Routes
from anabranch.overlay.sealing import Sealing
from anabranch.overlay.selections import Selections
from anabranch.overlay.sessions import Sessions, TimerKey
from anabranch.overlay.siting import Siting
from anabranch.overlay.spreading import Spreading
from anabranch.overlay.telling import Telling
from anabranch.overlay.tending import DECLINED, Tending
from anabranch.overlay.timers import Timers

Branches = tuple[tuple[str, bytes], ...]
_REQUEST = int(Flag.REQUEST)
_STATELESS = int(Flag.STATELESS)


class Replies:
    """Everything about replies."""

    def __init__(
        self,
        identity: Identity,
        config: Config,
        links: LinkTable,
        matching: Matching,
        selections: Selections,
        routes: Routes,
        recovery: Recovery,
        spreading: Spreading,
        telling: Telling,
        sessions: Sessions,
        counters: Counters,
        timers: Timers[TimerKey],
        sealing: Sealing | None,
    ) -> None:
        self.merges = Merges()
        self.tending = Tending(config.harvests_max, config.harvest_max_bytes)
        self.reporting = Reporting(identity, config, links, routes, recovery, counters, sealing)
        self.siting = Siting(
            identity, config, spreading.book, matching, selections, self.tending, self.reporting, counters
        )
        self.harvests = Harvests(identity, config, routes, spreading.book, self.reporting, counters)
        self._converging = Converging(
            identity, config, self.merges, self.tending, self.siting, self.reporting, counters
        )
        self._polling = Polling(self.harvests, self.siting, self.reporting)
        self._identity = identity
        self._config = config
        self._matching = matching
        self._selections = selections
        self._routes = routes
        self._spreading = spreading
        self._telling = telling
        self._sessions = sessions
        self._counters = counters
        self._timers = timers
        self._begun: dict[int, float] = {}
        self._now = 0.0
        self._is_client = config.role is Role.CLIENT

    # The application

    def request(
        self,
        topic: str,
        payload: object,
        protocol: Protocol,
        merge_text: str,
        expects: list[Expectation],
        within_s: float,
        tau_s: float,
        to: str | None,
        reply_to: str,
        now: float,
    ) -> tuple[int, list[Action]]:
        """Ask everybody who wants the topic, or those of them that `to` selects; the request's number."""
        self._now = now
        merge = self.merges.parse(merge_text) if merge_text else None
        selected = self._selections.selected(None, to)
        sites = self._matching.selected_peers(topic, selected)
        asks = [*expects, merge.expects] if merge is not None and merge.expects else list(expects)
        harvest, actions = self.harvests.begin(
            topic,
            encode_value(payload),
            sites,
            protocol,
            merge,
            merge_text,
            asks,
            within_s,
            tau_s,
            reply_to,
            selected.wire[1],
            now,
        )
        self._begun[harvest.number] = now
        if self._identity.peer in harvest.index:
            path = (self._identity.peer,)
            request = msgspec.structs.replace(harvest.request)
            actions += self._admit(request, path, {}, True, False, now, now)
        self._arm()
        return harvest.number, self._after(actions, now)

    def reply(self, key: RequestKey, subscriber: int, value: object, declines: bool, now: float) -> bool:
        """A subscriber answers; False when nobody waits for it any more."""
        self._now = now
        state = self.tending.get(key)
        if state is None or subscriber >= len(state.own):
            self._counters.add("replies_late")
            return False
        if state.own[subscriber] is not None:
            raise UsageError(
                f"request {key.number} of {key.origin} was answered before: reply or decline once"
            )
        raw = DECLINED if declines else self.siting.checked(state, value)
        self.siting.answer(state, subscriber, raw)
        if not state.unanswered:
            self._converging.conclude(state)
            self._arm()
        return True

    def snapshot(self, number: int, wait_s: float, now: float) -> int:
        """Poll for what there is; `SnapshotTaken` brings it under this token, 0 when it has ended."""
        self._now = now
        harvest = self.harvests.get(number)
        if harvest is None:
            return 0
        token = self._polling.begin(harvest, self.tending.get(harvest.request.key), wait_s, now)
        self._arm()
        return token

    def close(self, number: int, now: float) -> list[Action]:
        """End a request of ours; what comes after that is discarded."""
        self._now = now
        return self._after(self.harvests.close(number), now)

    def unsubscribed(self, subscription: SubscriptionId, now: float) -> None:
        """A subscription is gone."""
        self._now = now
        for state in self.siting.unsubscribed(subscription):
            self._converging.conclude(state)

    def arrived_aside(self, frame: bytes, now: float) -> list[Action]:
        """Replies that came past the mesh."""
        self._now = now
        self._note_taken(len(frame))
        actions: list[Action] = []
        try:
            for item in decode_items(frame):
                if isinstance(item, Report) and item.origin == self._identity.peer:
                    actions += self._learn(item.records, None, now)
                    actions += self.harvests.take(item, "", now)
        except PeerError as error:
            self._counters.drop(error.reason)
        self._arm()
        return self._after(actions, now)

    # The mesh

    def receive(
        self,
        link: Link,
        plan: ForwardPlan,
        is_receiver: bool,
        branches: Branches,
        body: Sequence[Frame],
        flags: int,
        started_at: float,
        now: float,
    ) -> tuple[list[Action], int]:
        """A bundle that concerns replies; the flags for those that it is passed on to."""
        self._now = now
        if len(body) != 1:
            raise PeerError(DropReason.MALFORMED, "replies in several frames")
        actions: list[Action] = []
        if flags & _REQUEST:
            self._counters["request_bytes"] += len(body[0])
        elif is_receiver:
            self._note_taken(len(body[0]))
        for item in decode_items(body[0]):
            if isinstance(item, Request) and flags & _REQUEST:
                actions += self._request(link, plan, is_receiver, branches, item, flags, started_at, now)
                keeps = item.protocol.follows_tree and item.attempt == 0 and self._keeps_state
                flags = flags & ~_STATELESS if keeps else flags | _STATELESS
            elif isinstance(item, Report) and is_receiver:
                actions += self._report(item, plan.origin, link, now)
            elif isinstance(item, Prompt) and is_receiver:
                self._prompt(item, plan.origin, now)
        if self._polling.is_busy:
            actions += self._polling.due(now)
        self._arm()
        return self._after(actions, now), flags

    def neighbour_lost(self, peer: str, now: float) -> None:
        """A link went down."""
        self._now = now
        self._converging.neighbour_lost(peer, now)
        self.harvests.neighbour_lost(peer, now)
        self._arm()

    def leave(self, now: float) -> list[Action]:
        """We leave: nothing of what others wait for stays here."""
        self._now = now
        self._converging.hand_over()
        return self.flush()

    def look(self, now: float) -> list[Action]:
        """After every input that may have changed the topology, while there are requests of our own."""
        self._now = now
        actions = self.harvests.look(now)
        self._arm()
        return self._after(actions, now)

    def due(self, now: float) -> list[Action]:
        """Some time is over."""
        self._now = now
        for state in self.tending.take_due(now):
            self._converging.look(state, now)
        actions = self.harvests.due(now) + self._polling.due(now)
        self._arm()
        return self._after(actions, now)

    def sweep(self, now: float) -> None:
        """Regularly: free what belongs to publishers that are gone."""
        if not len(self.tending):
            return
        self._now = now
        book = self._spreading.book
        reachable = book.origins() if self._is_client else self._routes.reachable()
        roles = (book.get(state.key.origin, int(RecordKind.ROLES)) for state in self.tending)
        epochs = {role.origin: role.epoch for role in roles if role is not None}
        self._converging.sweep(reachable, epochs, now)
        self._arm()

    def flush(self) -> list[Action]:
        """What was gathered in this turn leaves."""
        now = self._now
        actions: list[Action] = []
        while own := self.reporting.take_own():
            for report in own:
                actions += self.harvests.take(report, "", now)
        actions += self.reporting.flush(now)
        return self._after(actions, now)

    def check_invariants(self) -> None:
        """What must hold after every input."""
        self.tending.check_invariants()
        self.harvests.check_invariants()

    # Inside

    @property
    def _keeps_state(self) -> bool:
        return self._config.reply_state and not self._is_client

    def _request(
        self,
        link: Link,
        plan: ForwardPlan,
        is_receiver: bool,
        branches: Branches,
        request: Request,
        flags: int,
        started_at: float,
        now: float,
    ) -> list[Action]:
        if request.origin != plan.origin or request.epoch != plan.epoch:
            raise PeerError(DropReason.CONFLICT, "a request of somebody else")
        if request.protocol.leaves_mesh and not self._spreading.verifier.is_open:
            raise PeerError(DropReason.UNTRUSTED, "replies would leave the secured mesh")
        if request.origin == self._identity.peer:
            return []
        actions = self._learn(request.records, link, now)
        self.tending.advance(request.origin, request.epoch, request.open_from)
        behind: dict[str, tuple[str, ...]] = {}
        is_followed = request.protocol.follows_tree and request.attempt == 0 and self._keeps_state
        if is_followed or plan.destinations:
            behind = self.reporting.behind(branches)
        if plan.destinations:
            self._converging.tell_unreached(request, plan.destinations, behind, link.peer)
        if not is_followed:
            behind = {}
        if is_receiver or behind:
            names_way = bool(flags & _STATELESS)
            actions += self._admit(request, plan.path, behind, is_receiver, names_way, started_at, now)
        return actions

    def _admit(
        self,
        request: Request,
        path: tuple[str, ...],
        behind: dict[str, tuple[str, ...]],
        is_site: bool,
        names_way: bool,
        started_at: float,
        now: float,
    ) -> list[Action]:
        if is_site and self._identity.peer not in request.audience.places:
            raise PeerError(DropReason.MALFORMED, "we are not among the sites of the request")
        payload = decode_value(memoryview(request.payload)) if is_site else None
        if is_site and request.to:
            self._selections.foreign(request.to)
        state = self._converging.take_over(
            request, path, behind, is_site, names_way=names_way, started_at=started_at, now=now
        )
        if state is None or not is_site:
            return []
        subscriptions = self.siting.subscribers(request)
        self.siting.admit(state, subscriptions)
        if not subscriptions:
            self._converging.conclude(state)
        self._counters.add("requests_received", len(subscriptions))
        return self.siting.deliveries(state, payload, path, max(0.0, now - started_at), now)

    def _report(self, report: Report, sender: str, link: Link, now: float) -> list[Action]:
        actions = self._learn(report.records, link, now)
        if report.origin == self._identity.peer:
            return actions + self.harvests.take(report, sender, now)
        if report.poll:
            self._polling.take(report, sender)
        else:
            self._converging.take(report, sender, now)
        return actions

    def _note_taken(self, size: int) -> None:
        self._counters["reply_bundles"] += 1
        self._counters["reply_bytes"] += size

    def _prompt(self, prompt: Prompt, sender: str, now: float) -> None:
        state = self.tending.get(prompt.key)
        if prompt.what == "check":
            self._converging.check(prompt, sender)
        elif prompt.what == "close" and (state is None or state.parent == sender):
            self._converging.close(prompt.key)
        elif prompt.what == "poll" and state is not None:
            self._polling.pass_on(prompt, sender, state, now)

    def _learn(self, records: list[Record], link: Link | None, now: float) -> list[Action]:
        """What travelled along because it may not have been heard of yet."""
        if not records:
            return []
        source = link or next(iter(self._sessions.links.by_peer.values()), None)
        if source is None:
            return []
        fresh, actions = self._spreading.receive(records, source, now)
        if fresh and self._telling.apply(fresh, self._counters):
            actions.append(SubscribersChanged())
        return actions

    def _after(self, actions: list[Action], now: float) -> list[Action]:
        """Free what belonged to requests of ours that have ended, and write them to the logs."""
        if not self.harvests.ended:
            return actions
        ended, self.harvests.ended = self.harvests.ended, []
        for over in ended:
            key = RequestKey(self._identity.peer, self._identity.epoch, over.number)
            state = self.tending.get(key)
            if state is not None:
                self.siting.withdraw(state)
                self.tending.free(state)
            begun = self._begun.pop(over.number, now)
            if self._sessions.recording:
                actions.append(Write(reply_record(self._identity, over, begun, now)))
        return actions

    def _arm(self) -> None:
        for due in (self.tending.times.news(), self.harvests.times.news(), self._polling.next_timeout()):
            if due is not None:
                self._timers.set_earliest(("replies", 0), due)
