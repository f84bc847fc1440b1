"""What to announce for many filters: those that others cover are left out, those that make one are merged.

Everything here is exact: what is announced lets pass what one of the filters lets pass, nothing else. Only
a pattern with more than `FILTERS_MAX` different filters is announced whole; its peer filters on arrival.
"""

from collections.abc import Iterable

from anabranch.overlay.attributes import BOOLEAN
from anabranch.overlay.conditions import (
    ELEMENT,
    Alternatives,
    Condition,
    Conjunction,
    Interval,
    OneOf,
    alternatives,
)
from anabranch.overlay.expressions import Expression
from anabranch.overlay.expressions_tree import And, Compare, Literal, Name, Node, Within
from anabranch.overlay.patterns import matches

FILTERS_MAX = 64
"""Filters announced for one pattern."""


def announced(wanted: Iterable[tuple[str, Expression | None]]) -> frozenset[str | tuple[str, str]]:
    """The interests that stand for these patterns and filters."""
    whole: dict[str, None] = {}
    filters: dict[str, dict[Expression, None]] = {}
    for pattern, where in wanted:
        if where is None:
            whole[pattern] = None
        else:
            filters.setdefault(pattern, {})[where] = None
    found: set[str | tuple[str, str]] = set(whole)
    for pattern, several in filters.items():
        if any(is_covered(pattern, by) for by in whole):
            continue
        kept = reduced(list(several)) if len(several) > 1 else list(several)
        if len(kept) > FILTERS_MAX:
            found.add(pattern)
        else:
            found.update((pattern, each.text) for each in kept)
    return frozenset(found)


def is_covered(pattern: str, by: str) -> bool:
    """Whether every topic under a pattern is under another. It may say no although it is so."""
    return by in (pattern, "**") or ("**" not in pattern.split("/") and matches(by, pattern))


def reduced(filters: list[Expression]) -> list[Expression]:
    """As few filters as we can tell that let pass the same."""
    parts: list[tuple[Expression, Alternatives]] = []
    for each in filters:
        parts = _with(parts, each)
    return [each for each, _ in parts]


def _with(
    parts: list[tuple[Expression, Alternatives]], new: Expression
) -> list[tuple[Expression, Alternatives]]:
    taken = alternatives(new.tree)
    if any(implies(taken, known) for _, known in parts):
        return parts
    parts = [(each, known) for each, known in parts if not implies(known, taken)]
    for number, (_, known) in enumerate(parts):
        union = _union(known, taken)
        if union is not None:
            return _with(parts[:number] + parts[number + 1 :], union)
    return [*parts, (new, taken)]


def implies(one: Alternatives, other: Alternatives) -> bool:
    """Whether the second surely holds where the first does."""
    return other.exact and all(
        any(_is_inside(conjunction, around) for around in other.conjunctions)
        for conjunction in one.conjunctions
    )


def _is_inside(one: Conjunction, other: Conjunction) -> bool:
    return all(name in one and _is_within(one[name], condition) for name, condition in other.items())


def _is_within(one: Condition, other: Condition) -> bool:
    if isinstance(one, OneOf):
        if isinstance(other, OneOf):
            return one.keys <= other.keys
        return all(kind == other.kind and _holds(other, value) for kind, value in one.keys)
    if isinstance(other, OneOf) or one.kind != other.kind:
        return False
    return _begins_no_earlier(one, other) and _ends_no_later(one, other)


def _holds(interval: Interval, value: object) -> bool:
    point = Interval(interval.kind, value, value)
    return _begins_no_earlier(point, interval) and _ends_no_later(point, interval)


def _begins_no_earlier(one: Interval, other: Interval) -> bool:
    if other.low is None:
        return True
    if one.low is None or one.low < other.low:
        return False
    return bool(one.low > other.low or one.low_open or not other.low_open)


def _ends_no_later(one: Interval, other: Interval) -> bool:
    if other.high is None:
        return True
    if one.high is None or one.high > other.high:
        return False
    return bool(one.high < other.high or one.high_open or not other.high_open)


def _union(one: Alternatives, other: Alternatives) -> Expression | None:
    """Two filters as one, when they differ in a single condition whose union is a condition again."""
    if not (one.exact and other.exact and len(one.conjunctions) == len(other.conjunctions) == 1):
        return None
    first, second = one.conjunctions[0], other.conjunctions[0]
    if set(first) != set(second):
        return None
    different = [name for name in first if first[name] != second[name]]
    if len(different) != 1:
        return None
    together = _joined(first[different[0]], second[different[0]])
    if together is None:
        return None
    nodes: list[Node] = []
    for name, condition in sorted({**first, different[0]: together}.items()):
        nodes += _nodes(name, condition)
    return Expression(nodes[0] if len(nodes) == 1 else And(tuple(nodes)))


def _joined(one: Condition, other: Condition) -> Condition | None:
    if isinstance(one, OneOf) and isinstance(other, OneOf):
        kinds = {kind for kind, _ in one.keys | other.keys}
        if BOOLEAN in kinds or (ELEMENT in kinds and len(kinds) > 1):
            return None
        return OneOf(one.keys | other.keys)
    if isinstance(one, Interval) and isinstance(other, Interval) and one.kind == other.kind:
        if not _begins_no_earlier(other, one):
            one, other = other, one  # now `one` begins first
        if one.high is not None and (other.low is None or other.low > one.high):
            return None
        if one.high is not None and other.low == one.high and one.high_open and other.low_open:
            return None
        last = one if _ends_no_later(other, one) else other
        if one.low is None and last.high is None:
            return None  # any number: that is no condition of this kind
        return Interval(one.kind, one.low, last.high, one.low_open, last.high_open)
    return None


def _nodes(name: str, condition: Condition) -> list[Node]:
    attribute = Name(name)
    if isinstance(condition, OneOf):
        values = frozenset(value for _, value in condition.keys)
        if any(kind == ELEMENT for kind, _ in condition.keys):
            return [Compare("intersects", attribute, Literal(values))]  # type: ignore[arg-type]  # elements
        if len(values) > 1:
            return [Within(attribute, Literal(values))]  # type: ignore[arg-type]  # numbers and texts
        return [Compare("=", attribute, Literal(next(iter(values))))]  # type: ignore[arg-type]  # a scalar
    nodes: list[Node] = []
    if condition.low is not None:
        nodes.append(Compare(">" if condition.low_open else ">=", attribute, Literal(condition.low)))
    if condition.high is not None:
        nodes.append(Compare("<" if condition.high_open else "<=", attribute, Literal(condition.high)))
    return nodes
