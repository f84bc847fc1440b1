"""Who gets a topic: peers by their announced interests, local subscriptions by their patterns and filters.
Cached per topic; what filters and sites say is asked for each publication that has attributes or selects.
"""

from collections.abc import Callable
from typing import Generic, TypeVar

from anabranch.overlay.advertisements import restricted_id
from anabranch.overlay.attributes import NO_ATTRIBUTES
from anabranch.overlay.identifiers import SubscriptionId
from anabranch.overlay.interests import Interests, LocalSubscriptions, Wants
from anabranch.overlay.restricting import Restricting
from anabranch.overlay.selections import Selected
from anabranch.overlay.sites import Sites

V = TypeVar("V", str, SubscriptionId)


class Matching:
    """Answers from a cache that lives until interests or subscriptions change."""

    def __init__(
        self,
        interests: Interests,
        local: LocalSubscriptions,
        cache_max: int,
        sites: Sites,
        me: str,
        restricting: Restricting,
    ) -> None:
        self.interests = interests
        self.local = local
        self.sites = sites
        self._me = me
        self.restricting = restricting
        may = restricting.may_subscribe
        self._peers: _Cache[str] = _Cache(interests, cache_max, may)
        self._subscriptions: _Cache[SubscriptionId] = _Cache(
            local, cache_max, lambda _, topic: may(me, topic)
        )

    def peers(self, topic: str) -> tuple[str, ...]:
        """The peers that want a topic's publications without attributes, sorted."""
        return self._peers.get(topic)[0]

    def subscriptions(self, topic: str) -> tuple[SubscriptionId, ...]:
        """The local subscriptions that want a topic's publications without attributes."""
        return self._subscriptions.get(topic)[0]

    def possible_peers(self, topic: str) -> tuple[str, ...]:
        """The peers that want a topic, some of them with filters; sorted."""
        return self._peers.get(topic)[1].possibly()

    def possible_subscriptions(self, topic: str) -> tuple[SubscriptionId, ...]:
        """The local subscriptions that want a topic, some of them with filters."""
        return self._subscriptions.get(topic)[1].possibly()

    def selected_peers(self, topic: str, selected: Selected) -> tuple[str, ...]:
        """The peers that one publication is for, sorted."""
        peers = self._peers.get(topic)[1].by(selected.attributes)
        return peers if selected.to is None else self.sites.among(peers, selected.to)

    def selected_subscriptions(self, topic: str, selected: Selected) -> tuple[SubscriptionId, ...]:
        """The local subscriptions that one publication is for, by what this site is now."""
        if selected.to is not None and not selected.to.matches(self.sites.of(self._me)):
            return ()
        return self._subscriptions.get(topic)[1].by(selected.attributes)


class _Cache(Generic[V]):
    """By topic: who wants a publication without attributes, and who wants what."""

    def __init__(
        self, table: Interests | LocalSubscriptions, cache_max: int, may: Callable[[V, str], bool]
    ) -> None:
        self._table = table
        self._may: Callable[[V, str], bool] = may
        self._cache_max = cache_max
        self._found: dict[str, tuple[tuple[V, ...], Wants[V]]] = {}
        self._version = -1

    def __len__(self) -> int:
        return len(self._found)

    def get(self, topic: str) -> tuple[tuple[V, ...], Wants[V]]:
        """What is known of a topic."""
        if self._version != self._table.version:
            self._found.clear()
            self._version = self._table.version
        found = self._found.get(topic)
        if found is None:
            if len(self._found) >= self._cache_max:
                del self._found[next(iter(self._found))]
            wants: Wants[V] = self._table.wants(topic)  # type: ignore[assignment]  # each table has its own kind
            if restricted_id(topic) is not None:
                wants = wants.only(lambda owner: self._may(owner, topic))
            found = self._found[topic] = (wants.by(NO_ATTRIBUTES), wants)
        return found
