"""The parts of one node, made once and wired together. Holds them, decides nothing."""

from collections.abc import Sequence

from anabranch.overlay.assuring import Assuring
from anabranch.overlay.audiences import Audiences
from anabranch.overlay.config import Config
from anabranch.overlay.congestion import Congestions
from anabranch.overlay.consigning import Consigning
from anabranch.overlay.counters import Counters
from anabranch.overlay.delivering import Delivering
from anabranch.overlay.discovery import Discovery
from anabranch.overlay.doubting import Doubting
from anabranch.overlay.durables import Durables
from anabranch.overlay.hops import Hops
from anabranch.overlay.identity import Identity, Rng
from anabranch.overlay.interests import Interest, Interests, LocalSubscriptions
from anabranch.overlay.matching import Matching
from anabranch.overlay.posting import Posting
from anabranch.overlay.publishing import Publishing
from anabranch.overlay.recovering import Recovery
from anabranch.overlay.replies import Replies
from anabranch.overlay.restricting import Restricting
from anabranch.overlay.routes import Routes
from anabranch.overlay.sealing import Sealing
from anabranch.overlay.selecting import Selecting
from anabranch.overlay.selections import Selections
from anabranch.overlay.sessions import Sessions, TimerKey
from anabranch.overlay.sites import Sites
from anabranch.overlay.spreading import Spreading
from anabranch.overlay.taking import Taking
from anabranch.overlay.telling import Telling
from anabranch.overlay.timers import Timers
from anabranch.overlay.topology import Topology
from anabranch.security.entitlement import Rights
from anabranch.security.signing import Signer, Verifier


class Parts:
    """What a node consists of."""

    def __init__(
        self,
        identity: Identity,
        config: Config,
        rng: Rng,
        addresses: Sequence[str],
        signer: Signer,
        verifier: Verifier,
        rights: Rights,
    ) -> None:
        self.identity = identity
        self.config = config
        self.rng = rng
        self.counters = counters = Counters()
        self.timers: Timers[TimerKey] = Timers()
        self.signer, self.verifier = signer, verifier
        self.sessions = Sessions(identity, config, rng, counters, self.timers, signer, verifier)
        self.links = links = self.sessions.links
        self.topology = Topology(config.spread_change_ratio, config.spread_change_s)
        self.selections = Selections(config)
        self.sites = Sites(config.cache_max)
        self.interests = Interests(self.selections)
        self.local = LocalSubscriptions()
        self.rights = rights
        self.restricting = Restricting(identity.peer, rights, counters, verifier)
        self.matching = Matching(
            self.interests, self.local, config.cache_max, self.sites, identity.peer, self.restricting
        )
        self.routes = routes = Routes(identity, config, self.topology)
        self.congestion = Congestions(identity.peer, links)
        self.spreading = Spreading(identity, config, links, counters, signer, verifier)
        self.durables = durables = Durables()
        self.telling = Telling(
            identity,
            config,
            links,
            self.topology,
            self.interests,
            self.sites,
            self.selections,
            routes,
            self.spreading,
            addresses,
            durables,
            rights,
        )
        self.sealing: Sealing | None = None
        if not verifier.is_open:
            self.sealing = Sealing(identity, signer, verifier, counters, config.records_max)
            self.restricting.is_sealed = True
        posting = Posting(config, links, routes, self.sealing)
        self.discovery = Discovery(
            identity,
            config,
            links,
            routes,
            self.spreading.book,
            posting,
            signer,
            verifier,
            counters,
            self.timers,
        )
        common = (counters, self.timers)
        self.taking = Taking(identity, config, self.matching, self.selections, durables, posting, *common)
        self.audiences = audiences = Audiences(identity, self.matching, durables, counters)
        doubting = Doubting(config, routes, counters, verifier)
        consigning = Consigning(identity, config, posting, self.taking, doubting, *common)
        self.assuring = Assuring(identity, config, audiences, consigning, doubting, *common)
        shared = (identity, config, links, self.matching, routes, self.congestion, counters)
        self.publishing = Publishing(*shared, self.sealing)
        self.hops = Hops(config, self.sessions, counters, self.timers)
        self.recovery = Recovery(identity, config, links, routes, counters)
        self.replies = Replies(
            identity,
            config,
            links,
            self.matching,
            self.selections,
            routes,
            self.recovery,
            self.spreading,
            self.telling,
            self.sessions,
            counters,
            self.timers,
            self.sealing,
        )
        self.delivering = Delivering(
            *shared,
            self.hops,
            self.recovery,
            self.selections,
            self.taking,
            self.assuring,
            self.replies,
            self.discovery,
            self.sealing,
        )
        self.selecting = Selecting(
            identity, config, self.publishing, self.matching, self.selections, counters
        )

    def plain_patterns(self) -> frozenset[Interest]:
        """The patterns of our application's subscriptions that are not durable."""
        durable = {each.subscription for each in self.durables.own.values() if each.subscription is not None}
        return self.local.patterns_besides(durable)
