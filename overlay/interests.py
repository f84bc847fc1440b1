"""Who wants what: the patterns that every peer announced, and the local subscriptions."""

from collections.abc import Container

from anabranch.overlay.identifiers import SubscriptionId
from anabranch.overlay.patterns import PatternTrie


class Interests:
    """Announced patterns by peer. `version` grows with every change."""

    def __init__(self) -> None:
        self.version = 0
        self._patterns: dict[str, frozenset[str]] = {}
        self._trie: PatternTrie[str] = PatternTrie()

    def patterns_of(self, origin: str) -> frozenset[str]:
        """What a peer announced."""
        return self._patterns.get(origin, frozenset())

    def set_patterns(self, origin: str, patterns: frozenset[str]) -> bool:
        """Take a peer's announcement; whether it differs from the last."""
        old = self._patterns.get(origin, frozenset())
        if old == patterns:
            return False
        for pattern in old - patterns:
            self._trie.remove(pattern, origin)
        for pattern in patterns - old:
            self._trie.add(pattern, origin)
        if patterns:
            self._patterns[origin] = patterns
        else:
            self._patterns.pop(origin, None)
        self.version += 1
        return True

    def find(self, topic: str) -> tuple[str, ...]:
        """The peers that want a topic, sorted."""
        return tuple(sorted(self._trie.find(topic)))


class LocalSubscriptions:
    """The subscriptions of this peer's own application."""

    def __init__(self) -> None:
        self.version = 0
        self._pattern_of: dict[SubscriptionId, str] = {}
        self._trie: PatternTrie[SubscriptionId] = PatternTrie()

    def __len__(self) -> int:
        return len(self._pattern_of)

    def add(self, subscription: SubscriptionId, pattern: str) -> None:
        """The application subscribed."""
        self._pattern_of[subscription] = pattern
        self._trie.add(pattern, subscription)
        self.version += 1

    def remove(self, subscription: SubscriptionId) -> None:
        """The application unsubscribed; an unknown one changes nothing."""
        pattern = self._pattern_of.pop(subscription, None)
        if pattern is not None:
            self._trie.remove(pattern, subscription)
            self.version += 1

    def patterns(self) -> frozenset[str]:
        """What to announce."""
        return frozenset(self._pattern_of.values())

    def patterns_besides(self, left_out: Container[SubscriptionId]) -> frozenset[str]:
        """What all but these subscriptions want."""
        return frozenset(
            pattern for subscription, pattern in self._pattern_of.items() if subscription not in left_out
        )

    def find(self, topic: str) -> tuple[SubscriptionId, ...]:
        """The subscriptions that want a topic, in the order they were made."""
        return tuple(sorted(self._trie.find(topic)))
