"""Who wants what: the interests that every peer announced, and the local subscriptions."""

from collections.abc import Callable, Container, Iterable
from collections.abc import Set as AbstractSet
from typing import Generic, TypeVar

from anabranch.overlay.attributes import NO_ATTRIBUTES, Row
from anabranch.overlay.covering import announced
from anabranch.overlay.expressions import Expression
from anabranch.overlay.filterindex import FilterIndex
from anabranch.overlay.identifiers import SubscriptionId
from anabranch.overlay.patterns import PatternTrie
from anabranch.overlay.selections import Selections

Interest = str | tuple[str, str]
"""A pattern, or a pattern and the filter that publications must pass."""


V = TypeVar("V", str, SubscriptionId)


def in_order(interests: Iterable[Interest]) -> list[Interest]:
    """Sorted by pattern, then by filter."""
    return sorted(interests, key=lambda each: (each, "") if isinstance(each, str) else each)


def shown(interest: Interest) -> str:
    """An interest for people."""
    return interest if isinstance(interest, str) else f"{interest[0]} where {interest[1]}"


class Interests:
    """Announced interests by peer. `version` grows with every change."""

    def __init__(self, selections: Selections) -> None:
        self.version = 0
        self._interests: dict[str, frozenset[Interest]] = {}
        self._wanted: Wanted[str] = Wanted()
        self._selections = selections

    def patterns_of(self, origin: str) -> frozenset[Interest]:
        """What a peer announced."""
        return self._interests.get(origin, frozenset())

    def set_patterns(self, origin: str, interests: frozenset[Interest]) -> bool:
        """Take a peer's announcement, of checked interests; whether it differs from the last."""
        old = self._interests.get(origin, frozenset())
        if old == interests:
            return False
        for interest in old - interests:
            self._wanted.remove(*self._parsed(interest), origin)
        for interest in interests - old:
            self._wanted.add(*self._parsed(interest), origin)
        if interests:
            self._interests[origin] = interests
        else:
            self._interests.pop(origin, None)
        self.version += 1
        return True

    def find(self, topic: str) -> tuple[str, ...]:
        """The peers that want a topic's publications without attributes, sorted."""
        return self._wanted.find(topic).by(NO_ATTRIBUTES)

    def wants(self, topic: str) -> "Wants[str]":
        """Who wants a topic, some with filters."""
        return self._wanted.find(topic)

    def _parsed(self, interest: Interest) -> tuple[str, Expression | None]:
        if isinstance(interest, str):
            return interest, None
        pattern, where = interest
        return pattern, self._selections.foreign(where)


class LocalSubscriptions:
    """The subscriptions of this peer's own application."""

    def __init__(self) -> None:
        self.version = 0
        self._pattern_of: dict[SubscriptionId, tuple[str, Expression | None]] = {}
        self._wanted: Wanted[SubscriptionId] = Wanted()
        self._announced: frozenset[Interest] = frozenset()
        self._announced_version = 0

    def __len__(self) -> int:
        return len(self._pattern_of)

    def add(self, subscription: SubscriptionId, pattern: str, where: Expression | None = None) -> None:
        """The application subscribed."""
        self._pattern_of[subscription] = (pattern, where)
        self._wanted.add(pattern, where, subscription)
        self.version += 1

    def remove(self, subscription: SubscriptionId) -> None:
        """The application unsubscribed; an unknown one changes nothing."""
        known = self._pattern_of.pop(subscription, None)
        if known is not None:
            self._wanted.remove(*known, subscription)
            self.version += 1

    def patterns(self) -> frozenset[Interest]:
        """What to announce."""
        if self._announced_version != self.version:
            self._announced_version, self._announced = self.version, announced(self._pattern_of.values())
        return self._announced

    def patterns_besides(self, left_out: Container[SubscriptionId]) -> frozenset[Interest]:
        """What all but these subscriptions want."""
        return announced(
            wanted for subscription, wanted in self._pattern_of.items() if subscription not in left_out
        )

    def wants(self, topic: str) -> "Wants[SubscriptionId]":
        """The subscriptions that want a topic, some with filters."""
        return self._wanted.find(topic)


class Wants(Generic[V]):
    """Who wants a topic: some whatever is published there, others by filters."""

    __slots__ = ("_filters", "_may", "always")

    def __init__(
        self, always: Iterable[V], filters: list[FilterIndex[V]], may: Callable[[V], bool] | None = None
    ) -> None:
        self.always: tuple[V, ...] = tuple(sorted(always))
        """Whatever is published; sorted."""
        self._filters: list[FilterIndex[V]] = filters
        self._may: Callable[[V], bool] | None = may

    def only(self, may: Callable[[V], bool]) -> "Wants[V]":
        """Those of them that may have it."""
        return Wants(filter(may, self.always), self._filters, may)

    def by(self, row: Row) -> tuple[V, ...]:
        """Those that want a publication with these attributes, sorted."""
        if not self._filters:
            return self.always
        found = set(self.always)
        for index in self._filters:
            found |= self._allowed(index.find(row))
        return tuple(sorted(found))

    def possibly(self) -> tuple[V, ...]:
        """Those that want some publications, sorted."""
        found = set(self.always)
        for index in self._filters:
            found |= self._allowed(index.owners())
        return tuple(sorted(found))

    def _allowed(self, owners: AbstractSet[V]) -> AbstractSet[V]:
        return owners if self._may is None else set(filter(self._may, owners))


class Wanted(Generic[V]):
    """Owners under patterns, with filters or without."""

    def __init__(self) -> None:
        self._plain: PatternTrie[V] = PatternTrie()
        self._filtered: PatternTrie[str] = PatternTrie()
        self._indexes: dict[str, FilterIndex[V]] = {}

    def add(self, pattern: str, where: Expression | None, owner: V) -> None:
        """An owner wants what matches both."""
        if where is None:
            self._plain.add(pattern, owner)
            return
        index = self._indexes.get(pattern)
        if index is None:
            index = self._indexes[pattern] = FilterIndex()
            self._filtered.add(pattern, pattern)
        index.add(where, owner)

    def remove(self, pattern: str, where: Expression | None, owner: V) -> None:
        """It no longer does."""
        if where is None:
            self._plain.remove(pattern, owner)
            return
        index = self._indexes[pattern]
        index.remove(where, owner)
        if not index:
            del self._indexes[pattern]
            self._filtered.remove(pattern, pattern)

    def find(self, topic: str) -> Wants[V]:
        """Who wants a topic, for as long as nothing changes."""
        filters = [self._indexes[pattern] for pattern in self._filtered.find(topic)]
        return Wants(self._plain.find(topic), filters)
