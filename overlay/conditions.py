"""Expressions as alternatives of conjunctions of conditions on single attributes.

What comes out always holds where the expression does (it is necessary); where it is also enough, it is marked
exact. Indexes rule out by the first, covering and merging of interests compare by the second.
"""

from collections.abc import Hashable, Mapping
from itertools import product
from typing import Any

import msgspec

from anabranch.overlay.attributes import BOOLEAN, KIND_OF, NUMBER, TEXT, Value
from anabranch.overlay.expressions_tree import (
    And,
    Between,
    Compare,
    Like,
    Literal,
    Name,
    Node,
    Or,
    Within,
)

ALTERNATIVES_MAX = 16
"""Conjunctions of one expression; one that needs more counts as one that says nothing."""
ELEMENT = "element"
MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "subset": "superset", "superset": "subset"}

Key = tuple[str, Hashable]
"""(kind, value), or (`element`, member of a set)."""


class OneOf(msgspec.Struct, frozen=True):
    """The attribute has one of these values, or is a set with one of these elements."""

    keys: frozenset[Key]
    exact: bool = True

    @property
    def sharpness(self) -> float:
        """How much it rules out: sorting begins with what rules out most."""
        return 1.0 / len(self.keys)


class Interval(msgspec.Struct, frozen=True):
    """The attribute is a number, or a text, between two bounds; None is no bound."""

    kind: str
    low: Any
    high: Any
    low_open: bool = False
    high_open: bool = False
    exact: bool = True

    @property
    def sharpness(self) -> float:
        """See `OneOf`."""
        return 0.4 if self.low is not None and self.high is not None else 0.1

    @property
    def middle(self) -> Any:
        """A point in it to split at."""
        if self.low is None or self.high is None:
            return self.high if self.low is None else self.low
        return (self.low + self.high) / 2 if self.kind == NUMBER else self.low

    def side_of(self, split: Any) -> int:
        """-1 when it lies below a point, 1 above, 0 when it reaches it."""
        if self.high is not None and self.high < split:
            return -1
        return 1 if self.low is not None and self.low > split else 0


Condition = OneOf | Interval
Conjunction = Mapping[str, Condition]


class Alternatives(msgspec.Struct, frozen=True):
    """At least one of these conjunctions holds where the expression does."""

    conjunctions: tuple[Conjunction, ...]
    exact: bool
    """Whether the expression also holds wherever one of them does."""


_ANYTHING = Alternatives(({},), False)
_NEVER = Alternatives((), True)


def key_of(value: Value) -> Key:
    """A value as conditions compare it: 1 and 1.0 are one value, 1 and true are not."""
    return KIND_OF[type(value)], value


def necessary(tree: Node) -> tuple[Conjunction, ...]:
    """Conjunctions of which one holds wherever the expression does."""
    return alternatives(tree).conjunctions


def alternatives(tree: Node) -> Alternatives:
    """An expression taken apart."""
    match tree:
        case Or():
            parts = [alternatives(each) for each in tree.operands]
            together = tuple(each for part in parts for each in part.conjunctions)
            if len(together) > ALTERNATIVES_MAX:
                return _ANYTHING
            return Alternatives(together, all(part.exact for part in parts))
        case And():
            return _both([alternatives(each) for each in tree.operands])
        case Literal():
            return Alternatives(({},), True) if tree.value is True else _NEVER
        case Name():
            return _single(tree.name, OneOf(frozenset(((BOOLEAN, True),))))
        case Compare():
            return _compare(tree)
        case Between():
            return _between(tree)
        case Within():
            return _within(tree)
        case Like():
            return _like(tree)
    return _ANYTHING


def _both(parts: list[Alternatives]) -> Alternatives:
    exact = all(part.exact for part in parts)
    count = 1
    for part in parts:
        count *= len(part.conjunctions)
    if count > ALTERNATIVES_MAX:  # the one that says most, alone
        parts = [part for part in parts if 0 < len(part.conjunctions) <= ALTERNATIVES_MAX]
        parts.sort(key=lambda part: len(part.conjunctions))
        kept: list[Alternatives] = []
        count = 1
        for part in parts:
            if count * len(part.conjunctions) <= ALTERNATIVES_MAX:
                kept.append(part)
                count *= len(part.conjunctions)
        parts, exact = kept, False
    found = []
    for chosen in product(*(part.conjunctions for part in parts)):
        joined: dict[str, Condition] = {}
        for conjunction in chosen:
            for name, condition in conjunction.items():
                known = joined.get(name)
                both = condition if known is None else _narrowed(known, condition)
                if both is None:
                    exact = False  # two conditions on one attribute that are not one: the first is kept
                else:
                    joined[name] = both
        found.append(joined)
    return Alternatives(tuple(found), exact)


def _narrowed(one: Condition, other: Condition) -> Condition | None:
    """Both conditions as one; None if that cannot be said in one."""
    if isinstance(one, Interval) and isinstance(other, Interval) and one.kind == other.kind:
        low, low_open = max(
            ((each.low, each.low_open) for each in (one, other) if each.low is not None),
            default=(None, False),
        )
        high, not_open = min(
            ((each.high, not each.high_open) for each in (one, other) if each.high is not None),
            default=(None, True),
        )
        return Interval(one.kind, low, high, low_open, not not_open)
    if isinstance(one, OneOf) and isinstance(other, OneOf):
        keys = one.keys & other.keys
        if keys and not any(kind == ELEMENT for kind, _ in one.keys | other.keys):
            return OneOf(keys)
    return None


def _single(name: str, condition: Condition) -> Alternatives:
    return Alternatives(({name: condition},), condition.exact)


def _compare(node: Compare) -> Alternatives:
    left, right, op = node.left, node.right, node.op
    if isinstance(left, Literal) and isinstance(right, Name):
        left, right = right, left
        op = MIRRORED.get(op, op)
    if not (isinstance(left, Name) and isinstance(right, Literal)) or node.negated:
        return _ANYTHING
    value = right.value
    if isinstance(value, frozenset):
        keys = frozenset((ELEMENT, each) for each in value)
        if op == "intersects":
            return _single(left.name, OneOf(keys)) if keys else _NEVER
        if op in ("superset", "=") and keys:  # one of its elements is enough to sort by
            exact = op == "superset" and len(keys) == 1
            return _single(left.name, OneOf(frozenset((min(keys, key=repr),)), exact))
        return _ANYTHING
    if op == "=":
        return _single(left.name, OneOf(frozenset((key_of(value),))))
    if op == "!=" or isinstance(value, bool):
        return _ANYTHING
    kind, is_open = KIND_OF[type(value)], op in ("<", ">")
    if op in ("<", "<="):
        return _single(left.name, Interval(kind, None, value, False, is_open))
    return _single(left.name, Interval(kind, value, None, is_open, False))


def _between(node: Between) -> Alternatives:
    value, low, high = node.value, node.low, node.high
    if node.negated or not (
        isinstance(value, Name) and isinstance(low, Literal) and isinstance(high, Literal)
    ):
        return _ANYTHING
    return _single(value.name, Interval(KIND_OF[type(low.value)], low.value, high.value))


def _within(node: Within) -> Alternatives:
    if node.negated:
        return _ANYTHING
    value, options = node.value, node.options
    if isinstance(value, Name) and isinstance(options, Literal):
        assert isinstance(options.value, frozenset)
        keys = frozenset(key_of(each) for each in options.value)
        return _single(value.name, OneOf(keys)) if keys else _NEVER
    if isinstance(value, Literal) and isinstance(options, Name):
        return _single(options.name, OneOf(frozenset(((ELEMENT, value.value),))))
    return _ANYTHING


def _like(node: Like) -> Alternatives:
    if node.negated or node.escape or not isinstance(node.value, Name):
        return _ANYTHING
    begin = node.pattern.replace("_", "%").split("%")[0]
    if not begin:
        return _ANYTHING
    if begin == node.pattern:
        return _single(node.value.name, OneOf(frozenset(((TEXT, begin),))))
    last = ord(begin[-1])
    above = begin[:-1] + chr(last + 1) if last < 0x10FFFF else None
    return _single(node.value.name, Interval(TEXT, begin, above, False, above is not None, exact=False))
