"""Requests of our own: who was asked, what came, who is still to come, who cannot; what it all amounts to.

Knows every site by name: nothing counts twice, nobody is forgotten. Asks again where the way back broke.
"""

from itertools import pairwise

import msgspec

from anabranch.overlay.actions import Action, HarvestOver, RepliesArrived
from anabranch.overlay.asking import UNREACHED, Expectation, Protocol
from anabranch.overlay.config import Config
from anabranch.overlay.counters import Counters
from anabranch.overlay.errors import PeerError, UsageError
from anabranch.overlay.gathering import Harvest
from anabranch.overlay.headers import RecordKind
from anabranch.overlay.identity import Identity
from anabranch.overlay.merging import Merge
from anabranch.overlay.paths import Path
from anabranch.overlay.qos import Role
from anabranch.overlay.recordbook import RecordBook
from anabranch.overlay.replywire import (
    NOBODY,
    SITES_MAX,
    Merged,
    Prompt,
    Report,
    Request,
    bits,
    encode_value,
    mask_bytes,
    mask_of,
    version_of,
)
from anabranch.overlay.reporting import Reporting, size_of
from anabranch.overlay.routes import Route, Routes
from anabranch.overlay.timers import Timers

ASK_AGAIN_AFTER_S = 0.05
"""What breaks together is asked for together."""
ASK_AGAIN_PAUSE_S = 0.2
"""Between two askings of one site; doubled each time."""
ASK_AGAIN_PAUSE_MAX_S = 4.0


class Harvests:
    """All requests of this peer that are open."""

    def __init__(
        self,
        identity: Identity,
        config: Config,
        routes: Routes,
        book: RecordBook,
        reporting: Reporting,
        counters: Counters,
    ) -> None:
        self._identity = identity
        self._config = config
        self._routes = routes
        self._book = book
        self._reporting = reporting
        self._counters = counters
        self._last = 0
        self._open: dict[int, Harvest] = {}
        self.bytes = 0
        """Replies kept for all of them."""
        self.times: Timers[int] = Timers()
        """When `due` has something to do."""
        self.ended: list[HarvestOver] = []
        """What has ended and was not looked at since."""
        self._seen_version = -1
        self._is_client = config.role is Role.CLIENT
        self._planned: tuple[Route, tuple[str, ...], dict[str, Path], dict[str, int]] | None = None
        """Of the last request: its route, sites, their paths, and by next peer the sites that it brings."""

    def __len__(self) -> int:
        return len(self._open)

    def get(self, number: int) -> Harvest | None:
        """An open one."""
        return self._open.get(number)

    def begin(
        self,
        topic: str,
        payload: msgspec.Raw,
        sites: tuple[str, ...],
        protocol: Protocol,
        merge: Merge | None,
        merge_text: str,
        expects: list[Expectation],
        within_s: float,
        tau_s: float,
        reply_to: str,
        to: str,
        now: float,
    ) -> tuple[Harvest, list[Action]]:
        """Ask these sites. When there are none, it is over at once."""
        if len(self._open) >= self._config.harvests_max:
            raise UsageError(f"{len(self._open)} requests are open: close some or raise harvests_max")
        if len(sites) > SITES_MAX:
            raise UsageError(f"{len(sites)} sites want {topic!r}: one request may ask {SITES_MAX}")
        self._last += 1
        me = self._identity
        request = Request(
            me.peer,
            me.epoch,
            self._last,
            topic,
            payload,
            encode_value(sites),
            protocol,
            merge_text,
            expects,
            int(within_s * 1e6),
            next(iter(self._open), self._last),
            reply_to=reply_to,
            to=to,
            known=[version_of(self._book.get(site, int(RecordKind.INTERESTS))) for site in sites],
        )
        if protocol is Protocol.PUBLISH:
            own = self._book.get(me.peer, int(RecordKind.INTERESTS))
            request.records = [own] if own is not None else []
        harvest = Harvest(request, request.audience if sites else NOBODY, merge, now, tau_s)
        self._counters.add("requests")
        if not sites:
            self.ended.append(over := harvest.over(harvest.result()))
            return harvest, [over]
        self._open[harvest.number] = harvest
        actions: list[Action] = []
        others = tuple(site for site in sites if site != me.peer)
        if others:
            route = self._reporting.route(others)
            actions, gone = self._reporting.send_request(request, route, now)
            self._note_tree(harvest, route, gone, now)
        self._rearm(harvest)
        return harvest, actions

    # What comes back

    def take(self, report: Report, sender: str, now: float) -> list[Action]:
        """A report about a request of ours."""
        harvest = self._open.get(report.number)
        if harvest is None or report.epoch != harvest.request.epoch:
            self._counters.add("replies_late", len(report.entries) + len(report.merged))
            return []
        if report.poll:
            harvest.poll_answered(report, sender)
            return []
        harvest.heard_at = now
        self._reporting.vouching.sift(report, harvest.request)
        if not self._has_room(harvest, report):
            return self._conclude(harvest)
        fresh = [reply for entry in report.entries if (reply := harvest.take_entry(entry, self._counters))]
        for site, subscribers, _ in report.ended:
            harvest.end(site, subscribers)
        for merged in report.merged:
            self._take_merged(harvest, merged, now)
        for mask_text, where, why in report.lost:
            mask = mask_of(mask_text) & harvest.open_mask
            for site in bits(mask):
                harvest.trouble[site] = (where, why)
                if self._is_client and why == UNREACHED:
                    harvest.unreached_since.setdefault(site, now)
            harvest.settle(mask)
            self._again(harvest, mask, ASK_AGAIN_AFTER_S, now)
        done = mask_of(report.done)
        if report.checked:
            astray = done & harvest.open_mask & harvest.awaited.get(sender, 0)
            self._again(harvest, astray, ASK_AGAIN_AFTER_S, now)
        harvest.settle(done | harvest.coverage.mask)
        actions: list[Action] = [RepliesArrived(harvest.number, fresh)] if fresh else []
        if not harvest.open_mask:
            actions += self._end(harvest, "")
        elif harvest.again or harvest.unreached_since:
            self._rearm(harvest)  # what only arrived makes nothing due earlier
        return actions

    def _has_room(self, harvest: Harvest, report: Report) -> bool:
        """Whether what it brings can be kept; else the sites concerned are missing, and say why."""
        size = size_of(report)
        if self.bytes + size <= self._config.harvest_max_bytes:
            harvest.held_bytes += size
            self.bytes += size
            return True
        self._counters.add("replies_refused", len(report.entries) + len(report.merged))
        harvest.lack_room(report)
        return False

    def _take_merged(self, harvest: Harvest, merged: Merged, now: float) -> None:
        before = harvest.coverage.mask
        mask = mask_of(merged.mask) & harvest.all
        try:
            part = harvest.part(merged)
        except PeerError as error:
            self._counters.drop(error.reason)
            for site in bits(mask & harvest.open_mask):
                if site in harvest.asked or not harvest.request.protocol.is_repaired:
                    harvest.refuse(site)
            self._again(harvest, mask, ASK_AGAIN_AFTER_S, now)  # whoever spoilt it, perhaps not the site
            return
        if not harvest.take_merged(part):
            self._counters.add("replies_repeated")
            if mask & ~before:
                self._again(harvest, mask & ~before, ASK_AGAIN_AFTER_S, now)

    # Trouble

    def look(self, now: float) -> list[Action]:
        """The topology may have changed: who is out of reach, whose way back broke."""
        version = self._routes.topology.version
        if version == self._seen_version or not self._open or self._is_client:
            return []
        self._seen_version = version
        reachable = self._routes.reachable()
        graph = self._routes.topology.graph()
        actions: list[Action] = []
        for harvest in list(self._open.values()):
            again = 0
            for site in bits(harvest.all & ~harvest.coverage.mask & ~harvest.unreadable):
                name = harvest.sites[site]
                if name == self._identity.peer:
                    continue
                if name not in reachable:
                    harvest.unreached_since.setdefault(site, now)
                    continue
                was_out = harvest.unreached_since.pop(site, None) is not None
                was_missing = harvest.missing.pop(site, None) is not None
                broken = [
                    (here, there)
                    for here, there in pairwise(harvest.paths.get(name, ()))
                    if there not in graph.get(here, {})
                ]
                if broken:
                    harvest.trouble[site] = (">".join(broken[0]), "a link broke")
                if was_out or was_missing or broken:
                    again |= 1 << site
            if again and harvest.request.protocol.is_repaired:
                self._again(harvest, again, ASK_AGAIN_AFTER_S, now)
            self._rearm(harvest)
        return actions

    def neighbour_lost(self, peer: str, now: float) -> None:
        """A link of ours went down: what was to come over it needs another way."""
        for harvest in self._open.values():
            mask = harvest.awaited.pop(peer, 0) & harvest.open_mask
            if mask and harvest.request.protocol.is_repaired:
                for site in bits(mask):
                    harvest.trouble[site] = (f"{self._identity.peer}>{peer}", "a link broke")
                self._again(harvest, mask, ASK_AGAIN_AFTER_S, now)
                self._rearm(harvest)

    def due(self, now: float) -> list[Action]:
        """Times that are over: deadlines, silence, sites out of reach, sites to be asked again."""
        actions: list[Action] = []
        for _, number in self.times.pop_due(now):
            harvest = self._open.get(number)
            if harvest is None:
                continue
            harvest.due(self._config)  # replies may have moved it
            if now >= harvest.expires_at or (harvest.tau_s and now >= harvest.heard_at + harvest.tau_s):
                why = "no answer in time" if now >= harvest.expires_at else "nothing came for tau"
                actions += self._end(harvest, why)
                continue
            self._judge_unreached(harvest, now)
            actions += self._ask_again(harvest, now)
            self._check(harvest, now)
            actions += self._conclude(harvest)
        return actions

    def _judge_unreached(self, harvest: Harvest, now: float) -> None:
        for site, since in harvest.unreached_since.items():
            if now >= since + self._config.reply_missing_after_s and not harvest.coverage.mask >> site & 1:
                harvest.missing.setdefault(site, harvest.where(site, UNREACHED))
                harvest.again.pop(site, None)

    def _again(self, harvest: Harvest, mask: int, delay_s: float, now: float) -> None:
        """Ask these sites for an answer straight to us, soon."""
        if not harvest.request.protocol.is_repaired:
            return
        for site in bits(mask & harvest.open_mask):
            if harvest.sites[site] == self._identity.peer:
                continue
            asked_at, tries = harvest.asked.get(site, (-1e9, 0))
            pause_s = min(ASK_AGAIN_PAUSE_S * 2**tries, ASK_AGAIN_PAUSE_MAX_S)
            due = max(now + delay_s, asked_at + pause_s)
            harvest.again[site] = min(due, harvest.again.get(site, due))

    def _ask_again(self, harvest: Harvest, now: float) -> list[Action]:
        due = [site for site, at in harvest.again.items() if at <= now and harvest.open_mask >> site & 1]
        for site in list(harvest.again):
            if harvest.again[site] <= now:
                del harvest.again[site]
        if not due:
            return []
        attempt = 0
        for site in due:
            _, tries = harvest.asked.get(site, (0.0, 0))
            harvest.asked[site] = (now, tries + 1)
            attempt = max(attempt, tries + 1)
        names = tuple(sorted(harvest.sites[site] for site in due))
        route = self._reporting.route(names)
        self._counters.add("asked_again", len(names))
        request = msgspec.structs.replace(harvest.request, attempt=attempt)
        actions, gone = self._reporting.send_request(request, route, now)
        unreached = set(route.unreached) | {site for site in names if gone and self._is_client}
        for site in due:
            if harvest.sites[site] in unreached:
                harvest.unreached_since.setdefault(site, now)
                self._again(harvest, 1 << site, self._config.reply_missing_after_s, now)
                hearsay = None if self._is_client else self._routes.hearsay(harvest.sites[site])
                if hearsay is not None:
                    actions += self._reporting.send_request(request, hearsay, now)[0]
        return actions

    def _check(self, harvest: Harvest, now: float) -> None:
        """Ask next peers that bring nothing; ask sites again that nobody is to bring any more."""
        if not harvest.request.protocol.is_repaired:
            return
        if harvest.silent_at is not None and now >= harvest.silent_at:
            harvest.checks += 1
            harvest.checked_at = now
            awaited = 0
            for peer, mask in harvest.awaited.items():
                awaited |= mask
                if mask & harvest.open_mask and peer:
                    self._reporting.item(peer, Prompt(*harvest.request.key, "check", mask_bytes(mask)))
            self._again(harvest, harvest.open_mask & ~awaited, 0.0, now)

    def _note_tree(self, harvest: Harvest, route: Route, gone: list[str], now: float) -> None:
        """Who brings whom, and who cannot be asked."""
        if self._is_client:
            for peer, _ in route.branches:
                harvest.awaited[peer] = harvest.all & ~harvest.mask_of((self._identity.peer,))
        else:
            harvest.paths, awaited = self._plan(harvest, route)
            if harvest.request.protocol.follows_tree:
                harvest.awaited.update(awaited)
        for peer in gone:
            self._again(harvest, harvest.awaited.pop(peer, 0), ASK_AGAIN_AFTER_S, now)
        for name in route.unreached:
            site = harvest.index[name]
            harvest.unreached_since[site] = now
            self._again(harvest, 1 << site, self._config.reply_missing_after_s / 2, now)

    def _plan(self, harvest: Harvest, route: Route) -> tuple[dict[str, Path], dict[str, int]]:
        planned = self._planned
        if planned is None or planned[0] is not route or planned[1] != harvest.sites:
            me = self._identity.peer
            paths = {site: self._routes.path(site) for site in harvest.sites if site != me}
            behind = self._reporting.behind(route.branches)
            awaited = {peer: harvest.mask_of(names) for peer, names in behind.items()}
            self._planned = planned = (route, harvest.sites, paths, awaited)
        return planned[2], planned[3]

    # The end

    def close(self, number: int, why: str = "closed by the application") -> list[Action]:
        """No more replies are wanted."""
        harvest = self._open.get(number)
        return self._end(harvest, why) if harvest is not None else []

    def _conclude(self, harvest: Harvest) -> list[Action]:
        if not harvest.open_mask:
            return self._end(harvest, "")
        self._rearm(harvest)
        return []

    def _end(self, harvest: Harvest, why: str) -> list[Action]:
        for site in bits(harvest.open_mask):
            harvest.missing[site] = harvest.where(site, why)
        del self._open[harvest.number]
        self.bytes -= harvest.held_bytes
        self.times.cancel(harvest.number)
        if why:
            for peer, mask in harvest.awaited.items():
                if mask and peer:
                    self._reporting.item(peer, Prompt(*harvest.request.key, "close"))
        result = harvest.result()
        self._counters.add("harvests_complete" if result.complete else "harvests_partial")
        self.ended.append(over := harvest.over(result))
        return [over]

    def check_invariants(self) -> None:
        """What must hold after every input."""
        assert self.bytes == sum(harvest.held_bytes for harvest in self._open.values())
        for harvest in self._open.values():
            harvest.check_invariants()

    def _rearm(self, harvest: Harvest) -> None:
        self.times.set_earliest(harvest.number, harvest.due(self._config))
