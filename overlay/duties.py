"""What a node does because time has passed or an input came: probe, dial, refresh, expire, tell.

Called by the node, which emits the actions.
"""

from collections.abc import Callable

from anabranch.overlay import describing
from anabranch.overlay.actions import Action, SubscribersChanged, Write
from anabranch.overlay.identifiers import LinkId
from anabranch.overlay.links import Link
from anabranch.overlay.parts import Parts
from anabranch.overlay.qos import LinkState

EXPIRE_INTERVAL_S = 1.0
CONTROL_INTERVAL_S = 10.0
"""Counters are written to the logs this often."""


class Duties:
    """Sets the node's regular timers and acts when they fire."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        config = parts.config
        self._regular: dict[str, tuple[float, Callable[[float], list[Action]]]] = {
            "expire": (EXPIRE_INTERVAL_S, self._expire),
            "refresh": (config.record_refresh_s, self._refresh),
            "control": (CONTROL_INTERVAL_S, self._control),
        }
        if config.neighbours_target:
            self._regular["mesh"] = (config.dial_interval_s, self._mesh)
        if config.search_interval_s > 0:
            self._regular["search"] = (config.search_interval_s, self._search)
        if config.spread_interval_s > 0:
            self._regular["spread"] = (config.spread_interval_s, parts.telling.links_now)

    def begin(self, now: float) -> None:
        """Arm what comes again and again; refreshes of peers that started together spread out."""
        for name, (interval_s, _) in self._regular.items():
            share = self._parts.rng.uniform(0.8, 1.0) if name == "refresh" else 1.0
            self._parts.timers.set((name, 0), now + interval_s * share)

    def end(self) -> None:
        """Dial nobody any more."""
        for name in ("dial", "mesh"):
            self._parts.timers.cancel((name, 0))

    def fire(self, name: str, number: int, at: float, now: float) -> list[Action]:
        """A timer is due."""
        parts = self._parts
        if name == "probe":
            link = parts.links.get(LinkId(number))
            return parts.sessions.probe(link, at, now) if link is not None else []
        if name in ("ack", "watch"):
            link = parts.links.get(LinkId(number))
            if link is None:
                return []
            return self._watch(link, now) if name == "watch" else parts.hops.ack_due(link, now)
        if name == "hello":
            return parts.sessions.hello_overdue(LinkId(number), now)
        if name == "hold":
            return parts.delivering.expire(now)
        if name == "replies":
            return parts.replies.due(now)
        if name == "links":
            return parts.telling.links_again(now)
        if name == "sites":
            return parts.telling.sites_now(now) if parts.telling.sites_due is not None else []
        if name == "assure":
            return parts.assuring.fire(now)
        if name == "confirm":
            return parts.taking.fire(now) + self.confirm_ourselves(now)
        if name == "questions":
            return parts.discovery.look(now)
        if name == "dial":
            return []  # whom to dial is looked up after every input
        interval_s, act = self._regular[name]
        parts.timers.set((name, 0), now + interval_s)
        return act(now)

    def _watch(self, link: Link, now: float) -> list[Action]:
        hops, recovery = self._parts.hops, self._parts.recovery
        actions = hops.watch(link, now)
        for lossy, bundle in hops.take_stranded():
            around = recovery.around(lossy, bundle, now)
            actions += hops.resend(lossy, [bundle]) if around is None else around
        return actions

    def conclude(self, now: float) -> list[Action]:
        """After every input: act on links that changed, see what is to be told, dialled and awaited."""
        parts = self._parts
        timers, sessions = parts.timers, parts.sessions
        actions = self._act_on_changes(now) if sessions.has_changes else []
        if sessions.has_measured or actions:
            measured = sessions.take_measured()
            parts.routes.set_quiet(sessions.quiet)
            for link in sessions.take_quiet():
                actions += parts.recovery.rescue(link, now)
            if (due := parts.telling.links_due(measured, now)) is not None:
                timers.set_earliest(("links", 0), due)
        if len(parts.replies.harvests):
            actions += parts.replies.look(now)
        if parts.telling.entitling.has_changed():
            parts.local.version += 1
            actions.append(SubscribersChanged())
        actions += parts.discovery.look(now)
        if parts.assuring.is_stale:
            actions += parts.assuring.look_again(now)
        if parts.routes.has_changes:
            actions += self.note_routes(now)
        if (dial := sessions.dialling.next_timeout()) is not None:
            if dial <= now:
                actions += sessions.dial_due(now)
            else:
                timers.set_earliest(("dial", 0), dial)
        if parts.delivering.streams.is_holding and (
            (hold := parts.delivering.streams.next_timeout()) is not None
        ):
            timers.set_earliest(("hold", 0), hold)
        return actions

    def _act_on_changes(self, now: float) -> list[Action]:
        """Links came, went, or fell silent."""
        parts = self._parts
        telling, timers = parts.telling, parts.timers
        actions: list[Action] = []
        for change in parts.sessions.take_changes():
            if parts.sessions.recording:
                actions.append(Write(describing.link_record(parts, change, now)))
            telling.refresh_own_links()
            actions.append(SubscribersChanged())
            if change.state is LinkState.UP and change.cause == "hello":
                timers.cancel(("links", 0))
                actions += parts.spreading.show_credential(change.link, now)
                actions += telling.links_now(now)
                actions += parts.spreading.opened(change.link)
            elif change.state is LinkState.DOWN:
                parts.spreading.closed(change.link.id)
                actions += telling.links_now(now)
                actions += parts.recovery.rescue(change.link, now)
                parts.replies.neighbour_lost(change.link.peer, now)
            elif change.state is LinkState.SUSPECT:
                actions += parts.recovery.rescue(change.link, now)
        return actions

    def confirm_ourselves(self, now: float) -> list[Action]:
        """What our own application took of our own publishers."""
        parts = self._parts
        told, parts.taking.for_ourselves = parts.taking.for_ourselves, []
        return parts.assuring.progress(parts.identity.peer, parts.identity.epoch, told, now) if told else []

    def note_routes(self, now: float) -> list[Action]:
        """Write path changes to the logs."""
        parts = self._parts
        if not parts.routes.has_changes:
            return []
        changes = parts.routes.take_changes()
        if not parts.sessions.recording:
            return []
        return [Write(describing.route_record(parts, change, now)) for change in changes]

    def evict(self, now: float) -> list[Action]:
        """Part with peers whose credential ended: their links, and all they said."""
        parts = self._parts
        if parts.verifier.is_open:
            return []
        actions = parts.sessions.evict(now)
        if parts.telling.forget_untrusted():
            actions.append(SubscribersChanged())
        return actions

    def _expire(self, now: float) -> list[Action]:
        self._parts.congestion.expire(now)
        self._parts.rights.expire()
        self._parts.replies.sweep(now)
        actions = self.evict(now)
        return [*actions, SubscribersChanged()] if self._parts.telling.expire(now) else actions

    def _refresh(self, now: float) -> list[Action]:
        return self._parts.telling.everything(self._parts.local.patterns(), now)

    def _mesh(self, now: float) -> list[Action]:
        parts = self._parts
        for address in parts.telling.wanted_neighbours(parts.rng, now):
            parts.sessions.dialling.add(address, False, now)
        return []

    def _search(self, now: float) -> list[Action]:
        del now
        self._parts.routes.search()
        return []

    def _control(self, now: float) -> list[Action]:
        parts = self._parts
        return [Write(describing.control_record(parts, now))] if parts.sessions.recording else []
