"""Who gets a topic: peers by their announced interests, local subscriptions by their patterns. Cached."""

from anabranch.overlay.identifiers import SubscriptionId
from anabranch.overlay.interests import Interests, LocalSubscriptions


class Matching:
    """Answers from a cache that lives until interests or subscriptions change."""

    def __init__(self, interests: Interests, local: LocalSubscriptions, cache_max: int) -> None:
        self.interests = interests
        self.local = local
        self._cache_max = cache_max
        self._peers: dict[str, tuple[str, ...]] = {}
        self._peers_version = -1
        self._subscriptions: dict[str, tuple[SubscriptionId, ...]] = {}
        self._subscriptions_version = -1

    def peers(self, topic: str) -> tuple[str, ...]:
        """The peers that want a topic, sorted."""
        if self._peers_version != self.interests.version:
            self._peers.clear()
            self._peers_version = self.interests.version
        found = self._peers.get(topic)
        if found is None:
            if len(self._peers) >= self._cache_max:
                del self._peers[next(iter(self._peers))]
            found = self._peers[topic] = self.interests.find(topic)
        return found

    def subscriptions(self, topic: str) -> tuple[SubscriptionId, ...]:
        """The local subscriptions that want a topic."""
        if self._subscriptions_version != self.local.version:
            self._subscriptions.clear()
            self._subscriptions_version = self.local.version
        found = self._subscriptions.get(topic)
        if found is None:
            if len(self._subscriptions) >= self._cache_max:
                del self._subscriptions[next(iter(self._subscriptions))]
            found = self._subscriptions[topic] = self.local.find(topic)
        return found
