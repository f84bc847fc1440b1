"""What this peer tells about itself, when it is worth telling, and what the records of others mean.

Link state is told when it changed enough (`spread_change_ratio`, `spread_change_s`), at most every
`spread_min_interval_s`; a link that came up or went down is told at once.
"""

from collections.abc import Iterable, Sequence
from itertools import islice

from anabranch.overlay.actions import Action
from anabranch.overlay.attributes import Row, plain
from anabranch.overlay.codec import decode_revocations, encode_body
from anabranch.overlay.config import Config
from anabranch.overlay.counters import Counters
from anabranch.overlay.durables import DurableEntry, Durables, decode_durables
from anabranch.overlay.entitling import Entitling
from anabranch.overlay.errors import DropReason, PeerError, UsageError
from anabranch.overlay.headers import Record, RecordKind, RolesBody
from anabranch.overlay.identifiers import is_peer_name
from anabranch.overlay.identity import Identity, Rng
from anabranch.overlay.interests import Interest, Interests, in_order
from anabranch.overlay.linknews import LinkNews, entry_of
from anabranch.overlay.links import Link, LinkTable
from anabranch.overlay.patterns import check_pattern
from anabranch.overlay.qos import LinkState, Role
from anabranch.overlay.readings import said_attributes, said_interests, said_links, said_roles
from anabranch.overlay.routes import Routes
from anabranch.overlay.selections import Selections
from anabranch.overlay.sites import Sites
from anabranch.overlay.spreading import Spreading
from anabranch.overlay.topology import Topology
from anabranch.security.entitlement import Rights

OWN_PAUSE_MAX_S = 60.0
"""While those whom we chose ourselves do not answer, we try further ones this often at least."""


class Telling:
    """Records about ourselves out, records about others into the tables."""

    def __init__(
        self,
        identity: Identity,
        config: Config,
        links: LinkTable,
        topology: Topology,
        interests: Interests,
        sites: Sites,
        selections: Selections,
        routes: Routes,
        spreading: Spreading,
        addresses: Sequence[str],
        durables: Durables,
        rights: Rights,
    ) -> None:
        self.addresses = list(addresses)
        """Where we can be dialled."""
        self.unsound = 0
        """Interests of others that are none."""
        self.reclaimed_at = -1e9
        """When we last had to outbid a later record under our own name."""
        self.addresses_of: dict[str, Sequence[str]] = {}
        """Where other peers can be dialled."""
        self.sites_due: float | None = None
        """When to tell what this site has become since it was last told; None while there is nothing new."""
        self.has_revoked = False
        """Whether a revocation list came that is not told on yet."""
        self._identity = identity
        self._config = config
        self._links = links
        self._topology = topology
        self._interests = interests
        self._sites = sites
        self._selections = selections
        self._routes = routes
        self._spreading = spreading
        self._durables = durables
        self.entitling = Entitling(config, rights, interests, spreading)
        """Who may use restricted topics."""
        self.services: list[str] = []
        """What we do for others, see `RolesBody`."""
        self.services_of: dict[str, tuple[str, ...]] = {}
        self._attributes: Row | None = None
        self._news = LinkNews(config, links)
        self._sites_told_at = -1e9
        self._own_due = 0.0
        self._own_pause_s = 0.0
        self._looked: tuple[int, int, tuple[str, ...]] = (-1, -1, ())
        """What decides who is reached, when that was last looked at."""
        self._unreached_since: dict[str, float] = {}

    # About ourselves

    def everything(self, patterns: frozenset[Interest], now: float) -> list[Action]:
        """All records about ourselves."""
        actions = self.introduce(now)
        actions += self.roles(now)
        actions += self.links_now(now)
        actions += self.interests(patterns, now)
        actions += self.sites_now(now)
        if self._durables.own:
            actions += self.durables_now(now)
        return actions + self.entitling.tell(now)

    def roles(self, now: float) -> list[Action]:
        """Tell where we can be dialled and what we do for others."""
        roles = RolesBody(self._config.role.value, self.addresses, self.services)
        return self._spreading.originate(RecordKind.ROLES, encode_body(roles), now)

    def introduce(self, now: float) -> list[Action]:
        """What proves our records, and what proves that others can't be believed any more."""
        spreading = self._spreading
        actions: list[Action] = []
        if spreading.signer.credential:
            actions += spreading.originate(RecordKind.CREDENTIAL, spreading.signer.credential, now)
            actions += spreading.originate(RecordKind.EXCHANGE, spreading.signer.exchange, now)
        if lists := spreading.verifier.revocations():
            body = encode_body(lists)
            if len(body) <= self._config.record_body_max_bytes:  # larger ones go by file alone
                actions += spreading.originate(RecordKind.REVOCATIONS, body, now)
        return actions

    def withdrawal(self, now: float) -> list[Action]:
        """Tell that we leave: no interests, no links."""
        actions = self.interests(frozenset(), now)
        if self._config.role is not Role.CLIENT:
            actions += self._spreading.originate(RecordKind.LINKS, encode_body([]), now)
        return actions

    def interests(self, patterns: frozenset[Interest], now: float) -> list[Action]:
        """Tell which topics we want."""
        if len(patterns) > self._config.patterns_max:
            raise UsageError(
                f"{len(patterns)} different patterns: patterns_max = {self._config.patterns_max}; "
                "subscribe to a wider pattern, or raise it on every peer"
            )
        body = encode_body(in_order(patterns))
        if len(body) > self._config.record_body_max_bytes:
            raise UsageError(
                f"{len(patterns)} patterns of {len(body)} B in all: "
                f"record_body_max_bytes = {self._config.record_body_max_bytes}; "
                "subscribe to a wider pattern, or raise it on every peer"
            )
        self._interests.set_patterns(self._identity.peer, patterns)
        return self._spreading.originate(RecordKind.INTERESTS, body, now)

    def become(self, attributes: Row, now: float) -> list[Action]:
        """This site is something else now: told at once, or with the changes that follow; see `sites_due`."""
        try:
            body = encode_body(plain(attributes))
        except (TypeError, ValueError) as error:
            raise UsageError(f"attributes cannot be encoded ({error}): use numbers, texts, lists") from None
        if len(body) > self._config.record_body_max_bytes:
            raise UsageError(f"attributes of {len(body)} B: {self._config.record_body_max_bytes} at most")
        is_news = self._sites.set(self._identity.peer, attributes) or self._attributes is None
        self._attributes = attributes
        if not is_news:
            return []
        if now < self._sites_told_at + self._config.attributes_interval_s:
            self.sites_due = self._sites_told_at + self._config.attributes_interval_s
            return []
        return self.sites_now(now)

    def sites_now(self, now: float) -> list[Action]:
        """Tell what this site is, if it ever said so."""
        self.sites_due = None
        if self._attributes is None:
            return []
        self._sites_told_at = now
        return self._spreading.originate(RecordKind.SITES, encode_body(plain(self._attributes)), now)

    def durables_now(self, now: float) -> list[Action]:
        """Tell our durable subscriptions."""
        return self._spreading.originate(RecordKind.DURABLES, encode_body(self._durables.entries()), now)

    def links_now(self, now: float) -> list[Action]:
        """Tell our links, changed or not."""
        if self._config.role is Role.CLIENT:
            return []
        entries = [entry_of(link) for link in self._links.by_peer.values()]
        self._news.told(entries, now)
        self.refresh_own_links()
        return self._spreading.originate(RecordKind.LINKS, encode_body(entries), now)

    def refresh_own_links(self) -> None:
        """Let our own routes see our own links as they are: suspect ones are avoided before they are told."""
        if self._config.role is Role.CLIENT:
            return
        usable = [entry_of(link) for link in self._links.by_peer.values() if link.state is LinkState.UP]
        self._topology.set_own(self._identity.peer, usable)

    def links_due(self, measured: Iterable[Link], now: float) -> float | None:
        """When to tell link state because these links changed; None while there is nothing new."""
        if self._config.role is Role.CLIENT:
            return None
        return self._news.due(measured, now)

    def links_again(self, now: float) -> list[Action]:
        """Tell our links, if what was to be told is still news."""
        return self.links_now(now) if self._news.is_any else []

    # About others

    def apply(self, records: list[Record], counters: Counters) -> bool:
        """Take over what fresh records say; whether interests or reachability may have changed."""
        changed = False
        for record in records:
            try:
                changed |= self._apply_one(record)
            except PeerError as error:
                counters.drop(error.reason)
        if self.unsound:
            counters.drop(DropReason.MALFORMED, self.unsound)
            self.unsound = 0
        return changed

    def _apply_one(self, record: Record) -> bool:
        origin = record.origin
        if record.kind == RecordKind.LINKS:
            edges, most = said_links(record.body), 4 * self._config.links_max
            if len(edges) > most:
                edges = dict(islice(edges.items(), most))
            return self._topology.set_edges(origin, edges)
        if record.kind == RecordKind.INTERESTS:
            patterns = said_interests(record.body)[: self._config.patterns_max]
            sound = frozenset(each for each in patterns if self._is_interest(each))
            return self._interests.set_patterns(origin, sound)
        if record.kind == RecordKind.ROLES:
            is_new = origin not in self.addresses_of
            self.addresses_of[origin], self.services_of[origin] = said_roles(record.body)
            return is_new
        if record.kind == RecordKind.RIGHTS:
            self.entitling.take(record)
            return False
        if record.kind == RecordKind.DURABLES:
            self._durables.set_others(origin, filter(_is_durable, decode_durables(record.body)))
            return False
        if record.kind == RecordKind.REVOCATIONS:
            for each in decode_revocations(record.body):
                self.has_revoked |= self._spreading.verifier.revoke(each)
            return False
        if record.kind == RecordKind.CREDENTIAL:
            return False  # learnt when it was checked
        if record.kind == RecordKind.EXCHANGE:
            if not self._spreading.verifier.know_exchange(origin, record.body):
                raise PeerError(DropReason.MALFORMED, "exchange key")
            return False
        return self._sites.set(origin, said_attributes(record.body))

    def _is_interest(self, interest: Interest) -> bool:
        try:
            if isinstance(interest, str):
                check_pattern(interest)
            else:
                check_pattern(interest[0])
                self._selections.foreign(interest[1])
        except (UsageError, PeerError):
            self.unsound += 1
            return False
        return True

    def wanted_neighbours(self, rng: Rng, now: float) -> list[str]:
        """Addresses to dial so that this peer has enough links; at most one more each time."""
        if self._config.role is Role.CLIENT:
            return [addresses[0] for addresses in self.addresses_of.values() if addresses]
        linked = [link for link in self._links.by_peer.values() if not link.is_client]
        if len(linked) >= self._config.neighbours_target and not self._lacks_own(linked, now):
            return []
        me = self._identity.peer
        candidates = sorted(
            peer
            for peer, addresses in self.addresses_of.items()
            if addresses and peer != me and peer not in self._links.by_peer
        )
        if not candidates:
            return []
        return list(self.addresses_of[candidates[rng.randrange(len(candidates))]][:1])

    def _lacks_own(self, linked: list[Link], now: float) -> bool:
        """Whether others dialled nearly all of our links, and it is time to try one of our own again."""
        wanted = min(self._config.neighbours_own_target, self._config.neighbours_target // 2)
        if sum(link.address is not None for link in linked) >= wanted:
            self._own_pause_s = 0.0
            return False
        if now < self._own_due:
            return False
        self._own_pause_s = min(OWN_PAUSE_MAX_S, max(self._config.dial_interval_s, 2 * self._own_pause_s))
        self._own_due = now + self._own_pause_s
        return True

    def forget_untrusted(self) -> bool:
        """Forget what peers said whose credential ended; whether anything was."""
        is_trusted, me = self._spreading.verifier.is_trusted, self._identity.peer
        changed = False
        for origin in sorted(self._spreading.book.origins()):
            if origin != me and not is_trusted(origin):
                for kind in self._spreading.book.remove(origin):
                    changed |= self._unapply(origin, kind)
        return changed

    def expire(self, now: float) -> bool:
        """Forget records past their lifetime, and peers that no path has reached for long."""
        changed = False
        me = self._identity.peer
        for origin, kind in self._spreading.book.expired(now):
            if origin != me:
                self._spreading.book.forget((origin, kind))
                changed |= self._unapply(origin, kind)
        if self._config.role is Role.CLIENT:
            return changed
        looked = (self._topology.version, len(self._spreading.book), tuple(self._links.by_peer))
        if looked == self._looked and not self._unreached_since:
            return changed
        self._looked = looked
        reached = self._routes.reachable()
        gone = {
            origin
            for origin in self._spreading.book.origins()
            if origin != me and origin not in reached and origin not in self._links.by_peer
        }
        self._unreached_since = {origin: self._unreached_since.get(origin, now) for origin in sorted(gone)}
        for origin, since in list(self._unreached_since.items()):
            if now - since >= self._config.orphan_grace_s:
                for kind in self._spreading.book.remove(origin):
                    changed |= self._unapply(origin, kind)
        return changed

    def _unapply(self, origin: str, kind: int) -> bool:
        if kind == RecordKind.LINKS:
            return self._topology.remove(origin)
        if kind == RecordKind.INTERESTS:
            return self._interests.set_patterns(origin, frozenset())
        if kind == RecordKind.ROLES:
            self.addresses_of.pop(origin, None)
            self.services_of.pop(origin, None)
        elif kind == RecordKind.RIGHTS:
            self.entitling.forget(origin)
        elif kind == RecordKind.DURABLES:
            self._durables.set_others(origin, ())
        elif kind == RecordKind.SITES:
            return self._sites.remove(origin)
        return False


def _is_durable(entry: DurableEntry) -> bool:
    return is_peer_name(entry.name) and _is_pattern(entry.pattern)


def _is_pattern(text: str) -> bool:
    try:
        check_pattern(text)
    except UsageError:
        return False
    return True
