"""Reports and prompts on their way out: gathered within a turn, one bundle per next peer."""

import msgspec

from anabranch.overlay.actions import Action, SendAside, SendBundle
from anabranch.overlay.asking import RequestKey
from anabranch.overlay.bundles import OutBundle
from anabranch.overlay.codec import Frame, decode_tail, encode_tail
from anabranch.overlay.config import Config
from anabranch.overlay.counters import Counters
from anabranch.overlay.headers import Flag, Record, Subtree, Tail
from anabranch.overlay.identity import Identity
from anabranch.overlay.links import LinkTable
from anabranch.overlay.qos import Role
from anabranch.overlay.recovering import Recovery
from anabranch.overlay.replywire import Item, Merged, Report, Request, encode_items, mask_bytes, mask_of
from anabranch.overlay.routes import Route, Routes
from anabranch.overlay.sealing import Sealing
from anabranch.overlay.trees import receivers_in
from anabranch.overlay.vouching import Entry, Vouching

URGENCY_US = 1_000_000
"""Requests and replies overtake bulk in link queues, as bundles with this deadline do."""
ENTRY_BYTES = 32


class _Batch(msgspec.Struct):
    """What goes to one place together."""

    items: list[Item] = []
    reports: dict[RequestKey, Report] = {}
    size: int = 0


class Reporting:
    """Everything that concerns replies and leaves this peer."""

    def __init__(
        self,
        identity: Identity,
        config: Config,
        links: LinkTable,
        routes: Routes,
        recovery: Recovery,
        counters: Counters,
        sealing: Sealing | None,
    ) -> None:
        self._sealing = sealing
        self.vouching = Vouching(sealing, counters)
        self._identity = identity
        self._config = config
        self._links = links
        self._routes = routes
        self._recovery = recovery
        self._counters = counters
        self._bundles = 0
        self._next: dict[str, list[_Batch]] = {}
        self._straight: dict[str, list[_Batch]] = {}
        self._own: list[Report] = []
        self._aside: list[Action] = []
        self.is_pending = False
        """Whether anything waits for `flush`."""
        self._known: dict[tuple[str, bytes], tuple[str, ...]] = {}
        """Sites by next peer and tail."""
        self._tail: tuple[int, bytes] = (-1, b"")

    def is_linked(self, peer: str) -> bool:
        """Whether a peer is a neighbour now."""
        return peer in self._links.by_peer

    def take_own(self) -> list[Report]:
        """Reports for requests of our own."""
        own, self._own = self._own, []
        return own

    # Gathering; `to` is the next peer, or empty for the straight way to the publisher

    def entry(self, to: str, key: RequestKey, entry: Entry) -> None:
        """A single reply."""
        self._report(to, key, len(entry[3]) + len(entry[4]) + ENTRY_BYTES).entries.append(entry)

    def ended(self, to: str, key: RequestKey, ended: tuple[int, int, bytes]) -> None:
        """A site has said all."""
        self._report(to, key, len(ended[2]) + ENTRY_BYTES).ended.append(ended)

    def merged(self, to: str, key: RequestKey, merged: Merged) -> None:
        """Merged replies."""
        self._report(to, key, len(merged.state) + len(merged.mask) + ENTRY_BYTES).merged.append(merged)

    def lost(self, to: str, key: RequestKey, mask: int, where: str, why: str) -> None:
        """Sites that need another way."""
        if mask:
            self._report(to, key, ENTRY_BYTES).lost.append((mask_bytes(mask), where, why))

    def done(self, to: str, key: RequestKey, mask: int, *, checked: bool = False) -> None:
        """Sites that we bring no more."""
        report = self._report(to, key, ENTRY_BYTES)
        report.done = mask_bytes(mask_of(report.done) | mask)
        report.checked = report.checked or checked

    def record(self, to: str, key: RequestKey, record: Record) -> None:
        """Something the publisher must know before the reply."""
        report = self._report(to, key, len(record.body) + ENTRY_BYTES)
        if all(known.origin != record.origin for known in report.records):
            report.records.append(record)

    def way_back(self, to: str, key: RequestKey, back: list[str]) -> None:
        """The next peers may keep no state: name the rest of the way."""
        self._report(to, key, 0).back = back

    def item(self, to: str, item: Item) -> None:
        """A prompt, or a report that is complete."""
        batch = self._batch(to, item.origin, ENTRY_BYTES)
        if batch is None:
            assert isinstance(item, Report)
            self._own.append(item)
        else:
            batch.items.append(item)

    def aside(self, reply: SendAside) -> None:
        """A reply that goes past the mesh."""
        self.is_pending = True
        self._aside.append(reply)

    # Leaving

    def flush(self, now: float) -> list[Action]:
        """Everything gathered, as bundles; `take_own` comes first."""
        actions, self._aside = self._aside, []
        self.is_pending = False
        next_peers, self._next = self._next, {}
        for peer, batches in next_peers.items():
            for batch in batches:
                self._to_neighbour(peer, batch, actions, now)
        straight, self._straight = self._straight, {}
        for origin, batches in straight.items():
            route = self._route((origin,))
            if route.unreached:
                self._counters.add("replies_unsent", sum(len(batch.items) for batch in batches))
                continue
            for batch in batches:
                self._ship(route, batch.items, Flag.REPLY, actions, now)
        return actions

    def send_request(self, request: Request, route: Route, now: float) -> tuple[list[Action], list[str]]:
        """A request along this route; which next peers it cannot go to."""
        actions: list[Action] = []
        gone = self._ship(route, [request], Flag.REQUEST, actions, now)
        return actions, gone

    def route(self, sites: tuple[str, ...]) -> Route:
        """The way to these sites."""
        return self._route(sites)

    def behind(self, branches: tuple[tuple[str, bytes], ...]) -> dict[str, tuple[str, ...]]:
        """The sites of each next peer of a tree; PeerError when it cannot be read."""
        return {peer: self._receivers(peer, tail) for peer, tail in branches}

    # Inside

    def _receivers(self, peer: str, encoded: bytes) -> tuple[str, ...]:
        known = self._known.get((peer, encoded))
        if known is None:
            tail = decode_tail(encoded)
            known = receivers_in(peer, Subtree(tail.deliver, tail.branches))
            if len(self._known) >= self._config.cache_max:
                del self._known[next(iter(self._known))]
            self._known[peer, encoded] = known
        return known

    def _report(self, to: str, key: RequestKey, size: int) -> Report:
        batch = self._batch(to, key.origin, size)
        if batch is None:
            for report in self._own:
                if report.key == key and not report.poll:
                    return report
            own = Report(*key)
            self._own.append(own)
            return own
        found = batch.reports.get(key)
        if found is None:
            found = batch.reports[key] = Report(*key)
            batch.items.append(found)
        return found

    def _batch(self, to: str, origin: str, size: int) -> _Batch | None:
        """Where to put something of this size; None when it is for ourselves."""
        self.is_pending = True
        if origin == self._identity.peer and not to:
            return None
        batches = self._next.setdefault(to, []) if to else self._straight.setdefault(origin, [])
        if not batches or (batches[-1].size and batches[-1].size + size > self._config.bundle_max_bytes):
            batches.append(_Batch())
        batches[-1].size += size
        return batches[-1]

    def _to_neighbour(self, peer: str, batch: _Batch, actions: list[Action], now: float) -> None:
        link = self._links.by_peer.get(peer)
        if link is None:
            for item in batch.items:
                if isinstance(item, Report) and not item.poll:
                    self.item("", item)
            return
        body: list[Frame] = [encode_items(batch.items)]
        if self._sealing is not None:
            body = self._sealing.seal(body, (peer,), int(Flag.REPLY), URGENCY_US)
        self._bundles += 1
        bundle = OutBundle(
            self._bundles, now, URGENCY_US, self._hop_tail(), body, len(body[0]), 1, int(Flag.REPLY)
        )
        if link.is_quiet:
            actions += self._recovery.detour(peer, bundle)
        else:
            actions.append(SendBundle(link.id, bundle))

    def _ship(
        self, route: Route, items: list[Item], flag: Flag, actions: list[Action], now: float
    ) -> list[str]:
        body: list[Frame] = [encode_items(items)]
        if self._sealing is not None:
            body = self._sealing.seal(body, route.receivers, int(flag), URGENCY_US)
        gone = []
        self._bundles += 1
        for peer, tail in route.branches:
            link = self._links.by_peer.get(peer)
            if link is None:
                gone.append(peer)
                continue
            bundle = OutBundle(self._bundles, now, URGENCY_US, tail, body, len(body[0]), 1, int(flag))
            actions.append(SendBundle(link.id, bundle))
        return gone

    def _route(self, sites: tuple[str, ...]) -> Route:
        if self._config.role is not Role.CLIENT:
            return self._routes.route(sites)
        for peer, link in self._links.by_peer.items():
            if link.is_usable():
                return self._routes.attached_route(sites, peer)
        return Route(0, (), 0, sites)

    def _hop_tail(self) -> bytes:
        me = self._identity
        if self._tail[0] != me.epoch:
            tail = Tail(me.peer, me.epoch, 0, [me.peer], True, [])
            self._tail = (me.epoch, encode_tail(tail))
        return self._tail[1]


def size_of(report: Report) -> int:
    """What its replies count for where they are kept."""
    size = 0
    for _, _, _, raw, _ in report.entries:
        size += len(raw) + ENTRY_BYTES
    for merged in report.merged:
        size += len(merged.state) + len(merged.mask) + ENTRY_BYTES
    return size
