"""From `put` to bundles: publications of one turn that take the same route leave together."""

from collections.abc import Callable

import msgspec

from anabranch.overlay.actions import Action, Deliver, DeliveredRun, SendBundle
from anabranch.overlay.bundles import OutBundle, Queued
from anabranch.overlay.codec import Frame, decode_value, encode_runs, encode_runs_into
from anabranch.overlay.config import Config
from anabranch.overlay.congestion import Congestions
from anabranch.overlay.counters import Counters
from anabranch.overlay.errors import DropReason
from anabranch.overlay.headers import MICROSECONDS_MAX, Run
from anabranch.overlay.identifiers import SubscriptionId
from anabranch.overlay.identity import Identity
from anabranch.overlay.links import LinkTable
from anabranch.overlay.matching import Matching
from anabranch.overlay.outlets import MESSAGE_BYTES, Flow, Outlet, Reach
from anabranch.overlay.qos import Demand, Role
from anabranch.overlay.routes import Route, Routes
from anabranch.overlay.sealing import Sealing

LARGE_BODY_BYTES = 64 * 1024
"""By the size that its parcel counts: above, growing a new buffer would move what it holds several times."""


class Parcel(msgspec.Struct):
    """What leaves over one route with one deadline."""

    route: Route
    deadline_s: float
    started_at: float
    runs: list[Run]
    frames: list[Frame]
    size: int
    messages: int
    flags: int = 0
    owner: Queued | None = None
    """Whose limit it counts for: it never travels with others' then."""

    def detach(self, run: Run, large: list[int]) -> None:
        """Move large payloads out of a run into frames of their own."""
        run.large = []
        for index in large:
            payload = run.payloads[index]
            is_value = type(payload) is msgspec.Raw
            self.frames.append(memoryview(payload) if is_value else payload)  # type: ignore[arg-type]
            run.large.append((index, len(self.frames), is_value))
            run.payloads[index] = None

    def join(self, other: "Parcel") -> None:
        """Let another parcel travel with this one."""
        offset = len(self.frames)
        for run in other.runs:
            run.large = [(index, number + offset, is_value) for index, number, is_value in run.large]
        self.runs += other.runs
        self.frames += other.frames
        self.size += other.size
        self.messages += other.messages
        self.started_at = min(self.started_at, other.started_at)


class Publishing:
    """Open publishers and what they put since the last flush."""

    def __init__(
        self,
        identity: Identity,
        config: Config,
        links: LinkTable,
        matching: Matching,
        routes: Routes,
        congestion: Congestions,
        counters: Counters,
        sealing: Sealing | None,
    ) -> None:
        self._identity = identity
        self._me = identity.peer
        self._sealing = sealing
        self._is_client = config.role is Role.CLIENT
        self._inline_max = config.inline_max_bytes
        self._bundle_max = config.bundle_max_bytes
        self._links = links
        self._matching = matching
        self._routes = routes
        self._congestion = congestion
        self._counters = counters
        self._dirty: list[Outlet] = []
        self.parcels: list[Parcel] = []
        """What leaves first with the next flush: what is for selected receivers, what was put before it."""
        self.ready: list[Action] = []
        """The same for our own application."""
        self._publishers = 0
        self._bundles = 0
        self._buffer = bytearray()
        """Large bodies are made here: it has grown once, and stays cached."""
        self.keep: Callable[[bytearray], Frame] = bytes
        """Makes a frame of it; a shell may have memory of its own for that."""

    def open(self, topic: str, demand: Demand) -> Outlet:
        """A new publisher; numbers are never used twice in an epoch."""
        self._publishers += 1
        return Outlet(topic, self._publishers, demand)

    def new_flow(self) -> Flow:
        """A stream for one set of receivers, numbered like a publisher."""
        self._publishers += 1
        return Flow(self._publishers)

    def reach(self, outlet: Outlet) -> Reach:
        """Whom a publisher reaches now, and how."""
        reach = outlet.reach
        if reach is None or reach.stamp != self._stamp():
            reach = outlet.reach = self._reach(outlet.topic, outlet.demand)
            self._note_shortfall(outlet.demand, reach.route)
        return reach

    def publish(self, outlet: Outlet, payload: object, size: int, now: float) -> None:
        """Take one publication; it leaves with the next flush."""
        if not outlet.payloads:
            outlet.started_at = now
            outlet.room_first = self._room_for(outlet)
            outlet.room = outlet.room_first - size - MESSAGE_BYTES
            self._dirty.append(outlet)
            if size <= self._inline_max:
                outlet.reserve(size)
        else:
            outlet.settle()
            outlet.room -= size + MESSAGE_BYTES
        if size > self._inline_max:
            outlet.large.append(len(outlet.payloads))
        outlet.payloads.append(payload)

    def express(self, outlet: Outlet, payload: object, now: float) -> SendBundle | None:
        """One publication that has nobody to wait for and one way to go; None when it must be `publish`ed."""
        reach = outlet.reach
        if reach is None or reach.only is None or self.has_unsent or self._congestion.any_known:
            return None
        peer, tail = reach.only
        link = self._links.by_peer.get(peer)
        if link is None or reach.stamp != self._stamp():
            return None
        first = outlet.next_sequence
        outlet.next_sequence = first + 1
        self._counters["published"] += 1
        self._bundles += 1
        body: list[Frame] = [encode_runs([Run(outlet.topic, outlet.publisher, first, [payload])])]
        if self._sealing is not None:
            assert reach.route is not None
            body = self._sealing.seal(body, reach.route.receivers, 0, outlet.deadline_us)
        return SendBundle(
            link.id,
            OutBundle(
                self._bundles, now, outlet.deadline_us, tail, body, len(body[0]), 1, owner=outlet.queued
            ),
        )

    def pause_until(self, outlet: Outlet) -> float:
        """Until when a publisher that can wait shall wait, by what is known now."""
        reach = outlet.reach
        if reach is None or not self._congestion.any_known:
            return 0.0
        hops = reach.route.hops if reach.route is not None else ()
        urgent = outlet.deadline_us > 0
        own = self._congestion.pause_until(((self._me, self._me),), urgent) if reach.subscriptions else 0.0
        return max(self._congestion.pause_until(hops, urgent), own)

    def seal(self) -> None:
        """No outlet takes another message without a look at whether it may."""
        for outlet in self._dirty:
            outlet.seal()

    @property
    def has_unsent(self) -> bool:
        """Whether anything was put since the last flush."""
        return bool(self._dirty or self.parcels or self.ready)

    def flush(self, now: float) -> list[Action]:
        """Everything put since the last flush, as bundles and local deliveries."""
        actions, self.ready = self.ready, []
        if self.parcels:
            held, self.parcels = self.parcels, []
            for parcel in held:
                self._ship(parcel, actions)
        dirty, self._dirty = self._dirty, []
        if len(dirty) == 1:
            only = self._empty(dirty[0], actions, now)
            if only is not None:
                self._ship(only, actions)
            return actions
        parcels: dict[tuple[int, float], Parcel] = {}
        for outlet in dirty:
            emptied = self._empty(outlet, actions, now)
            if emptied is not None:
                if emptied.owner is not None or outlet.is_restricted:
                    self._ship(emptied, actions)
                    continue
                key = (emptied.route.generation, emptied.deadline_s)
                first = parcels.get(key)
                if first is not None and first.size + emptied.size <= self._bundle_max:
                    first.join(emptied)
                    continue
                if first is not None:
                    self._ship(first, actions)
                parcels[key] = emptied
        for parcel in parcels.values():
            self._ship(parcel, actions)
        return actions

    def close_run(self, outlet: Outlet, now: float) -> None:
        """What an outlet holds leaves before all that is put from now on."""
        if outlet.payloads:
            self._dirty.remove(outlet)
            parcel = self._empty(outlet, self.ready, now)
            if parcel is not None:
                self.parcels.append(parcel)

    def note_pause(self, outlet: Outlet, route: Route | None, is_own: bool) -> None:
        """Remember until when the outlet's publisher should pause, by where its publications go."""
        if not self._congestion.any_known:
            return
        urgent = outlet.deadline_us > 0
        hops = route.hops if route is not None else ()
        own = self._congestion.pause_until(((self._me, self._me),), urgent) if is_own else 0.0
        outlet.pause_until = max(self._congestion.pause_until(hops, urgent), own)

    def _room_for(self, outlet: Outlet) -> int:
        """How large its next bundle may become: less without a deadline where urgent ones share the link."""
        reach = outlet.reach
        if outlet.deadline_us or reach is None or reach.route is None:
            return self._bundle_max
        room = self._bundle_max
        for peer, _ in reach.route.branches:
            link = self._links.by_peer.get(peer)
            if link is not None and link.queue.bulk_bundle_max_bytes < room:
                room = link.queue.bulk_bundle_max_bytes
        return room

    def _empty(self, outlet: Outlet, actions: list[Action], now: float) -> Parcel | None:
        """Deliver what an outlet holds to our own application; what is to leave for other peers."""
        size, large = outlet.held_bytes, outlet.large
        payloads = outlet.empty()
        count = len(payloads)
        first = outlet.next_sequence
        outlet.next_sequence = first + count
        self._counters["published"] += count
        reach = self.reach(outlet)
        route = reach.route
        if self._congestion.any_known:
            hops = route.hops if route else ()
            outlet.pause_until = self._congestion.pause_until(hops, outlet.deadline_us > 0)
        if reach.subscriptions:
            self._deliver(outlet, reach.subscriptions, first, payloads, actions, now)
        if route is None:
            if not reach.subscriptions:
                self._counters.add("published_unwanted", count)
                if not self._matching.restricting.may_publish(self._me, outlet.topic):
                    self._counters.drop(DropReason.DENIED, count)
            outlet.large = []
            return None
        if route.unreached:
            self._counters.drop(DropReason.NO_ROUTE, count * len(route.unreached))
        run = Run(outlet.topic, outlet.publisher, first, payloads)
        began = outlet.started_at
        parcel = Parcel(route, outlet.demand.deadline_s, began, [run], [], size, count, 0, outlet.queued)
        if large:
            outlet.large = []
            parcel.detach(run, large)
        return parcel

    def _stamp(self) -> tuple[int, int, int, int]:
        matching, routes = self._matching, self._routes
        return matching.interests.version, matching.local.version, routes.topology.version, routes.searches

    def _note_shortfall(self, demand: Demand, route: Route | None) -> None:
        if route is None or route.hops is None:
            return
        if route.availability < demand.availability:
            self._counters.add("availability_short")

    def _reach(self, topic: str, demand: Demand) -> Reach:
        me = self._me
        may = self._matching.restricting.may_publish(me, topic)
        destinations = self._matching.peers(topic) if may else ()
        if me in destinations:
            destinations = tuple(peer for peer in destinations if peer != me)
        subscriptions = self._matching.subscriptions(topic) if may else ()
        route = self.route(destinations, demand) if destinations else None
        # A light client's attachment has no version: it looks each time.
        stamp = (-1, -1, -1, -1) if self._is_client else self._stamp()
        is_single = route is not None and len(route.branches) == 1 and not route.unreached
        only = route.branches[0] if route is not None and is_single and not subscriptions else None
        return Reach(stamp, subscriptions, route, only)

    def _deliver(
        self,
        outlet: Outlet,
        subscriptions: tuple[SubscriptionId, ...],
        first: int,
        payloads: list[object],
        actions: list[Action],
        now: float,
    ) -> None:
        me = self._me
        values = [decode_value(memoryview(p)) if type(p) is msgspec.Raw else p for p in payloads]
        age_s = now - outlet.started_at
        run = DeliveredRun(
            outlet.topic,
            me,
            outlet.publisher,
            first,
            values,
            age_s,
            now,
            outlet.demand.deadline_s,
            (me,),
            self._identity.epoch,
        )
        actions.append(Deliver(subscriptions, run))
        if self._congestion.any_known:
            own = self._congestion.pause_until(((me, me),), outlet.deadline_us > 0)
            outlet.pause_until = max(outlet.pause_until, own)

    def route(self, destinations: tuple[str, ...], demand: Demand) -> Route:
        """The way to these peers; a light client's peer knows it."""
        if not self._is_client:
            return self._routes.route(destinations, demand)
        attached = next((peer for peer, link in self._links.by_peer.items() if link.is_usable()), None)
        if attached is None:
            return Route(0, (), 0, destinations)
        return self._routes.attached_route(destinations, attached)

    def _encode(self, parcel: Parcel) -> Frame:
        if parcel.size < LARGE_BODY_BYTES:
            return encode_runs(parcel.runs)
        encode_runs_into(parcel.runs, self._buffer)
        return self.keep(self._buffer)

    def _ship(self, parcel: Parcel, actions: list[Action]) -> None:
        body: list[Frame] = [self._encode(parcel), *parcel.frames]
        deadline_us = min(int(parcel.deadline_s * 1e6), MICROSECONDS_MAX)
        if self._sealing is not None:
            body = self._sealing.seal(body, parcel.route.receivers, parcel.flags, deadline_us)
        self._bundles += 1
        size = sum(map(len, body))
        for peer, tail in parcel.route.branches:
            link = self._links.by_peer.get(peer)
            if link is None:
                self._counters.drop(DropReason.NO_LINK, parcel.messages)
                continue
            began, messages, flags = parcel.started_at, parcel.messages, parcel.flags
            bundle = OutBundle(
                self._bundles, began, deadline_us, tail, body, size, messages, flags, 0, parcel.owner
            )
            actions.append(SendBundle(link.id, bundle))
