"""How replies become one value: merges by name, associative and commutative, so the tree does not matter.

A merge lifts each reply to a state that msgpack can carry, merges states, and makes the result of the last.
"""

import hashlib
from collections.abc import Callable
from functools import reduce
from typing import Any

import msgspec

from anabranch.overlay.asking import Expectation
from anabranch.overlay.errors import UsageError

State = Any
TOP_DEFAULT = 10
TOP_MAX = 1000
QUANTILES_DEFAULT = (0.5, 0.9, 0.99)
ACCURACY = 0.01
"""Relative error of quantiles."""
DISTINCT_KEPT = 1024
"""Smallest hashes kept to estimate a distinct count: exact below, within about 3 % above."""
_encode = msgspec.msgpack.Encoder(order="deterministic").encode
_decode = msgspec.msgpack.decode


class Merge(msgspec.Struct, frozen=True):
    """One way to make one value of many."""

    name: str
    lift: Callable[[object, str, int], State]
    """(value, site, subscriber) to a state."""
    merge: Callable[[State, State], State]
    finish: Callable[[State], object]
    empty: object = None
    """The result when nobody replied with a value."""
    expects: Expectation = []
    """What it can work with."""
    merge_many: Callable[[list[State]], State] | None = None
    """The same as `merge` of one after the other, where that can be done in one go."""


class Merges:
    """The merges that one peer knows: those built in, and what its application registered."""

    def __init__(self, registered_max: int = 256) -> None:
        self._registered: dict[str, Merge] = {}
        self._registered_max = registered_max

    def register(
        self,
        name: str,
        merge: Callable[[Any, Any], Any],
        lift: Callable[[Any], Any] | None = None,
        finish: Callable[[Any], Any] | None = None,
    ) -> None:
        """Make a merge known under a name; it replaces an earlier one of that name."""
        if not name or ":" in name or name in _BUILT_IN:
            raise UsageError(f"merge {name!r}: choose another name, without ':' and not one of {_names()}")
        if len(self._registered) >= self._registered_max and name not in self._registered:
            raise UsageError(f"merge {name!r}: {self._registered_max} are registered already")
        self._registered[name] = Merge(
            name, _lifted(lift), merge, finish if finish is not None else lambda state: state
        )

    def get(self, text: str) -> Merge | None:
        """The merge of this name, with its option after a colon as in `top:5`; None when it is not known."""
        try:
            return self.parse(text)
        except UsageError:
            return None

    def parse(self, text: str) -> Merge:
        """The same; UsageError names what is wrong."""
        known = self._registered.get(text)
        if known is not None:
            return known
        name, _, option = text.partition(":")
        make = _BUILT_IN.get(name)
        if make is None:
            registered = ", ".join(self._registered) or "none"
            raise UsageError(
                f"merge {text!r}: one of {_names()}; or register it first (registered: {registered})"
            )
        return make(option)


def merge_all(merge: Merge, states: list[State]) -> State:
    """One state of several; None when there is none."""
    if not states:
        return None
    if merge.merge_many is not None:
        return merge.merge_many(states)
    return reduce(merge.merge, states)


def _lifted(lift: Callable[[Any], Any] | None) -> Callable[[object, str, int], State]:
    if lift is None:
        return lambda value, _s, _n: value
    own = lift
    return lambda value, _s, _n: own(value)


def _names() -> str:
    return ", ".join(_BUILT_IN)


def _plain(option: str, name: str) -> None:
    if option:
        raise UsageError(f"merge '{name}:{option}': {name} takes no option")


# Counting


def _histogram(option: str) -> Merge:
    _plain(option, "histogram")
    return Merge(
        "histogram",
        lambda value, _s, _n: {_encode(value): 1},
        _add_counts,
        _as_histogram,
        {},
        ["scalar"],
        _add_all_counts,
    )


def _add_counts(a: dict[Any, int], b: dict[Any, int]) -> dict[Any, int]:
    return _add_all_counts([a, b])


def _add_all_counts(states: list[dict[Any, int]]) -> dict[Any, int]:
    total: dict[Any, int] = {}
    for state in states:
        for key, count in state.items():
            total[key] = total.get(key, 0) + count
    return total


def _as_histogram(state: dict[bytes, int]) -> dict[object, int]:
    found: dict[object, int] = {}
    for key in sorted(state):
        value = _decode(key)
        found[value] = found.get(value, 0) + state[key]
    return found


def _count(option: str) -> Merge:
    _plain(option, "count")
    return Merge(
        "count", lambda _v, _s, _n: 1, lambda a, b: a + b, lambda state: state, 0, merge_many=_add_up
    )


def _add_up(states: list[int]) -> int:
    return sum(states)


def _distinct(option: str) -> Merge:
    _plain(option, "distinct")

    def lift(value: object, _site: str, _subscriber: int) -> State:
        return [int.from_bytes(hashlib.blake2b(_encode(value), digest_size=7).digest(), "big")]

    def merge(a: list[int], b: list[int]) -> State:
        return sorted({*a, *b})[:DISTINCT_KEPT]

    def finish(state: list[int]) -> object:
        if len(state) < DISTINCT_KEPT:
            return len(state)
        return round((DISTINCT_KEPT - 1) * 2**56 / (state[-1] + 1))

    return Merge("distinct", lift, merge, finish, 0)


# Numbers. Sums are kept exactly, as a whole number times a power of two: then their order does not matter.


def _exact(value: Any) -> list[object]:
    if isinstance(value, int):
        return [hex(value), 0, 0]
    numerator, denominator = value.as_integer_ratio()
    return [hex(numerator), denominator.bit_length() - 1, 1]


def _add_exact(a: list[Any], b: list[Any]) -> list[object]:
    shift = max(a[1], b[1])
    total = (int(a[0], 16) << (shift - a[1])) + (int(b[0], 16) << (shift - b[1]))
    if total == 0:
        shift = 0
    while shift and not total & 1:
        total >>= 1
        shift -= 1
    return [hex(total), shift, a[2] | b[2]]


def _value_of(state: list[Any], count: int = 1) -> float | int:
    total = int(state[0], 16)
    if not state[2] and count == 1:
        return total
    try:
        return float(total / ((1 << state[1]) * count))
    except OverflowError:
        return float("inf") if total > 0 else float("-inf")


def _sum(option: str) -> Merge:
    _plain(option, "sum")
    return Merge("sum", lambda v, _s, _n: _exact(v), _add_exact, _value_of, 0, ["float"])


def _mean(option: str) -> Merge:
    _plain(option, "mean")
    return Merge(
        "mean",
        lambda value, _s, _n: [1, *_exact(value)],
        lambda a, b: [a[0] + b[0], *_add_exact(a[1:], b[1:])],
        lambda state: float(_value_of([state[1], state[2], 1], state[0])),
        None,
        ["float"],
    )


def _least(option: str) -> Merge:
    _plain(option, "min")
    return Merge("min", lambda v, _s, _n: v, _smaller, lambda state: state, None, ["float"])


def _most(option: str) -> Merge:
    _plain(option, "max")
    return Merge("max", lambda v, _s, _n: v, _larger, lambda state: state, None, ["float"])


def _smaller(a: Any, b: Any) -> Any:
    return min(a, b, key=_order)


def _larger(a: Any, b: Any) -> Any:
    return max(a, b, key=_order)


def _order(value: Any) -> tuple[Any, bytes]:
    """Equal numbers of different types (1 and 1.0) must not depend on who comes first."""
    return value, _encode(value)


def _top(option: str) -> Merge:
    k = TOP_DEFAULT
    if option:
        if not option.isdecimal() or not 1 <= int(option) <= TOP_MAX:
            raise UsageError(f"merge 'top:{option}': a number from 1 to {TOP_MAX}, as in top:5")
        k = int(option)

    def key(entry: list[Any]) -> tuple[object, ...]:
        return (-entry[0], entry[1], entry[2], _encode(entry[0]))

    return Merge(
        "top",
        lambda value, site, subscriber: [[value, site, subscriber]],
        lambda a, b: sorted([*a, *b], key=key)[:k],
        lambda state: [(value, site) for value, site, _ in state],
        [],
        ["float"],
    )


def _quantiles(option: str) -> Merge:
    try:
        wanted = tuple(float(each) for each in option.split(",")) if option else QUANTILES_DEFAULT
    except ValueError:
        wanted = (-1.0,)
    if not all(0 <= each <= 1 for each in wanted):
        raise UsageError(f"merge 'quantiles:{option}': shares from 0 to 1, as in quantiles:0.5,0.99")
    try:
        from ddsketch.mapping import LogarithmicMapping
    except ImportError:
        raise UsageError("merge 'quantiles' needs ddsketch: pip install 'anabranch[sketches]'") from None
    mapping = LogarithmicMapping(ACCURACY)

    def lift(value: Any, _site: str, _subscriber: int) -> State:
        magnitude = abs(value)
        if magnitude < mapping.min_possible:
            return {"0": 1}
        return {("+" if value > 0 else "-") + str(mapping.key(magnitude)): 1}

    def finish(state: dict[str, int]) -> object:
        ordered = sorted((_bin_value(mapping, name), count) for name, count in state.items())
        return {each: _quantile(ordered, each) for each in wanted}

    return Merge("quantiles", lift, _add_counts, finish, None, ["float"], _add_all_counts)


def _bin_value(mapping: Any, name: str) -> float:
    if name == "0":
        return 0.0
    value = float(mapping.value(int(name[1:])))
    return value if name[0] == "+" else -value


def _quantile(ordered: list[tuple[float, int]], share: float) -> float:
    rank = share * (sum(count for _, count in ordered) - 1)
    seen = 0
    for value, count in ordered:
        seen += count
        if seen > rank:
            return value
    return ordered[-1][0]


def _collect(option: str) -> Merge:
    _plain(option, "collect")

    def key(entry: list[Any]) -> tuple[object, ...]:
        return (entry[0], entry[1], _encode(entry[2]))

    return Merge(
        "collect",
        lambda value, site, subscriber: [[site, subscriber, value]],
        lambda a, b: sorted([*a, *b], key=key),
        lambda state: [(site, value) for site, _, value in state],
        [],
    )


_BUILT_IN: dict[str, Callable[[str], Merge]] = {
    "histogram": _histogram,
    "count": _count,
    "sum": _sum,
    "min": _least,
    "max": _most,
    "mean": _mean,
    "top": _top,
    "quantiles": _quantiles,
    "distinct": _distinct,
    "collect": _collect,
}
