"""Trees to closures: what is asked of a row at run time. No text is ever executed.

A value that is missing, of another kind than its place needs, or not a finite number makes the comparison it
stands in false, negated comparisons (`!=`, `not in`) included; `not` in front of a condition turns it around.
Whole numbers beyond 64 bits go on as floating-point ones.
"""

import math
import operator
from collections.abc import Callable
from typing import Any

from anabranch.overlay.attributes import INTEGER_MAX, INTEGER_MIN, KIND_OF, NUMBER, TEXT, Row, Value
from anabranch.overlay.expressions_tree import (
    SET_RELATIONS,
    And,
    Arithmetic,
    Between,
    Compare,
    Exists,
    Like,
    Literal,
    Name,
    Negative,
    Node,
    Not,
    Or,
    Within,
    negated,
)

Test = Callable[[Row], bool]
_Getter = Callable[[Row], Any]
"""A value, or None for no value."""
_NUMBERS = frozenset((int, float))
_ORDERED = frozenset((NUMBER, TEXT))
_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "subset": operator.le,
    "superset": operator.ge,
    "intersects": lambda a, b: not a.isdisjoint(b),
}
_MIRRORED = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def compile_test(node: Node) -> Test:
    """A function from a row to whether the condition holds. The tree was checked before."""
    match node:
        case And():
            return _all_of([compile_test(each) for each in node.operands])
        case Or():
            return _any_of([compile_test(each) for each in node.operands])
        case Not():
            inner = compile_test(node.operand)
            return lambda row: not inner(row)
        case Exists():
            name = node.name
            return lambda row: name in row
        case Name():
            name = node.name
            return lambda row: row.get(name) is True
        case Literal():
            constant = node.value is True
            return lambda _: constant
        case Compare():
            return _compare(node)
        case Between():
            return _between(node)
        case Within():
            return _within(node)
        case Like():
            get, like, is_negated = _value(node.value), like_test(node.pattern, node.escape), node.negated
            return lambda row: type(value := get(row)) is str and like(value) is not is_negated
    raise AssertionError(f"{node}: the type check lets no such condition through")


def like_test(pattern: str, escape: str = "") -> Callable[[str], bool]:
    """Whether a text fits a pattern: `%` any characters, `_` one. Its time never grows exponentially."""
    parts = _like_parts(pattern, escape)
    if len(parts) == 1:
        only = parts[0]
        return lambda text: len(text) == len(only) and _at(text, 0, only)
    first, *middle, last = parts

    def fits(text: str) -> bool:
        end = len(text) - len(last)
        if end < len(first) or not _at(text, 0, first) or not _at(text, end, last):
            return False
        begin = len(first)
        for part in middle:  # the leftmost fit leaves most for what follows
            begin = _find(text, part, begin, end)
            if begin < 0:
                return False
            begin += len(part)
        return True

    return fits


_Part = list[str | None]
"""Characters; None stands for any one."""


def _like_parts(pattern: str, escape: str) -> list[_Part]:
    parts: list[_Part] = [[]]
    characters = iter(pattern)
    for each in characters:
        if escape and each == escape:
            parts[-1].append(next(characters, escape))
        elif each == "%":
            parts.append([])
        else:
            parts[-1].append(None if each == "_" else each)
    return parts


def _at(text: str, at: int, part: _Part) -> bool:
    return all(each is None or text[at + index] == each for index, each in enumerate(part))


def _find(text: str, part: _Part, begin: int, end: int) -> int:
    if None not in part:
        return text.find("".join(part), begin, end)  # type: ignore[arg-type]  # no None is in it
    return next((at for at in range(begin, end - len(part) + 1) if _at(text, at, part)), -1)


def _all_of(tests: list[Test]) -> Test:
    if len(tests) == 2:
        first, second = tests
        return lambda row: first(row) and second(row)
    if len(tests) == 3:
        first, second, third = tests
        return lambda row: first(row) and second(row) and third(row)

    def test(row: Row) -> bool:
        for each in tests:  # noqa: SIM110 - a generator costs more than the tests
            if not each(row):
                return False
        return True

    return test


def _any_of(tests: list[Test]) -> Test:
    def test(row: Row) -> bool:
        for each in tests:  # noqa: SIM110 - a generator costs more than the tests
            if each(row):
                return True
        return False

    return test


def _compare(node: Compare) -> Test:
    op, left, right = node.op, node.left, node.right
    if op in SET_RELATIONS:
        return _relation(node)
    if isinstance(left, Literal) and isinstance(right, Name):
        left, right, op = right, left, _MIRRORED[op]
    holds = _OPERATORS[op]
    if isinstance(left, Name) and isinstance(right, Literal):
        return _against_constant(left.name, holds, right.value)
    first, second = _value(left), _value(right)
    any_kind = op in ("=", "!=")

    def test(row: Row) -> bool:
        a, b = first(row), second(row)
        kind = KIND_OF.get(type(a))
        if kind is None or kind != KIND_OF.get(type(b)):
            return False
        return (any_kind or kind in _ORDERED) and holds(a, b)

    return test


def _against_constant(name: str, holds: Callable[[Any, Any], bool], constant: Value) -> Test:
    kind = type(constant)
    if kind in _NUMBERS:
        return lambda row: type(value := row.get(name)) in _NUMBERS and holds(value, constant)
    return lambda row: type(value := row.get(name)) is kind and holds(value, constant)


def _relation(node: Compare) -> Test:
    first, second, holds, is_negated = (
        _value(node.left),
        _value(node.right),
        _OPERATORS[node.op],
        node.negated,
    )

    def test(row: Row) -> bool:
        a, b = first(row), second(row)
        return type(a) is frozenset and type(b) is frozenset and holds(a, b) is not is_negated

    return test


def _between(node: Between) -> Test:
    is_negated = node.negated
    get = _value(node.value)
    if isinstance(node.low, Literal) and isinstance(node.high, Literal):
        low: Any = node.low.value
        high: Any = node.high.value
        kinds = _NUMBERS if type(low) in _NUMBERS else frozenset((str,))
        return lambda row: type(value := get(row)) in kinds and (low <= value <= high) is not is_negated
    get_low, get_high = _value(node.low), _value(node.high)

    def test(row: Row) -> bool:
        value, low, high = get(row), get_low(row), get_high(row)
        kind = KIND_OF.get(type(value))
        if kind not in _ORDERED or kind != KIND_OF.get(type(low)) or kind != KIND_OF.get(type(high)):
            return False
        return (low <= value <= high) is not is_negated

    return test


def _within(node: Within) -> Test:
    is_negated = node.negated
    get = _value(node.value)
    options = node.options
    if isinstance(options, Literal):
        known: Any = options.value
        kinds = frozenset(type(each) for each in known)
        kinds |= _NUMBERS if kinds & _NUMBERS else frozenset()
        return lambda row: type(value := get(row)) in kinds and (value in known) is not is_negated
    get_set = _value(options)

    def test(row: Row) -> bool:
        value, elements = get(row), get_set(row)
        if type(elements) is not frozenset or KIND_OF.get(type(value)) not in _ORDERED:
            return False
        return (value in elements) is not is_negated

    return test


def _value(node: Node) -> _Getter:
    match node:
        case Literal():
            constant = node.value
            return lambda _: constant
        case Name():
            name = node.name
            return lambda row: row.get(name)
        case Negative():
            operand = _value(node.operand)
            return lambda row: negated(value) if type(value := operand(row)) in _NUMBERS else None
        case Arithmetic():
            return _arithmetic(node)
    raise AssertionError(f"{node}: the type check lets no such value through")


def _arithmetic(node: Arithmetic) -> _Getter:
    left, right, work = _value(node.left), _value(node.right), _WORK[node.op]

    def compute(row: Row) -> int | float | None:
        a, b = left(row), right(row)
        if type(a) not in _NUMBERS or type(b) not in _NUMBERS:
            return None
        found = work(a, b)
        if type(found) is int and not INTEGER_MIN <= found <= INTEGER_MAX:
            found = work(float(a), float(b))
        return found if found is not None and math.isfinite(found) else None

    return compute


def _divide(a: int | float, b: int | float) -> float | None:
    return float(a) / float(b) if b else None


def _remainder(a: float, b: float) -> float | None:
    if not b:
        return None
    if type(a) is int and type(b) is int:
        rest = abs(a) % abs(b)
        return -rest if a < 0 else rest
    return math.fmod(a, b)


_WORK: dict[str, Callable[[Any, Any], int | float | None]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _divide,
    "%": _remainder,
}
