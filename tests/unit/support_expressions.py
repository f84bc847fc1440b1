"""Random expressions and rows, and SQLite's opinion of them."""

import json
import math
import random
import sqlite3
from collections.abc import Sequence

from anabranch.overlay.attributes import Row, Value
from anabranch.overlay.expressions_tree import (
    COMPARISONS,
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
)

NAMES = ("a", "b", "c", "d", "e", "odd name")
WORDS = ("", "a", "b", "ab", "abc", "A", "a%c", "a_c", "naïve", "北", "zz")
PATTERNS = ("%", "a%", "%c", "_b_", "a!%c", "%b%", "", "A", "%_%", "a!_%", "%a%b%c%")
NUMBERS = (0, 1, 2, 3, -1, 7, 10, 0.5, -2.5, 1.0, 3.25, 1e6, 2**40, -(2**33))


def random_value(rng: random.Random) -> Value:
    """A number, text, boolean or set; small enough a choice that they meet."""
    kind = rng.randrange(8)
    if kind < 4:
        return rng.choice(NUMBERS)
    if kind < 6:
        return rng.choice(WORDS)
    return rng.random() < 0.5 if kind == 6 else random_set(rng)


def random_set(rng: random.Random) -> frozenset[int | float | str]:
    """A set of some numbers and texts."""
    return frozenset(rng.sample((1, 2, 3, "a", "b", "c", 0.5), rng.randint(0, 4)))


def random_row(rng: random.Random) -> dict[str, Value]:
    """A row in which much is missing."""
    return {name: random_value(rng) for name in NAMES if rng.random() < 0.7}


def random_tree(rng: random.Random, depth: int = 4) -> Node:
    """A well-typed condition."""
    kind = rng.randrange(12)
    if depth > 0 and kind < 5:
        operands = [random_tree(rng, depth - 1) for _ in range(rng.randint(2, 3))]
        if kind < 2:
            return And(tuple(operands))
        return Or(tuple(operands)) if kind < 4 else Not(operands[0])
    negated = rng.random() < 0.4
    if kind == 5:
        return Exists(rng.choice(NAMES))
    if kind == 6:
        return Name(rng.choice(NAMES)) if rng.random() < 0.9 else Literal(negated)
    if kind == 7:
        value = rng.choice((_number, _text))(rng)
        options: Node = Name(rng.choice(NAMES))
        if rng.random() < 0.7:
            wanted = WORDS if isinstance(value, Literal) and isinstance(value.value, str) else NUMBERS
            both = (*wanted, *rng.sample((*WORDS, *NUMBERS), 2))
            options = Literal(frozenset((rng.choice(wanted), *rng.sample(both, 2))))
        return Within(value, options, negated)
    if kind == 8:
        pattern = rng.choice(PATTERNS)
        return Like(_text(rng), pattern, "!" if "!" in pattern else "", negated)
    if kind == 9:
        make = rng.choice((_number, _text))
        return Between(make(rng), make(rng), make(rng), negated)
    if kind == 10:
        return Compare(rng.choice(SET_RELATIONS), _set(rng), _set(rng), negated)
    make = rng.choice((_number, _number, _text, _set, _truth))
    ops = COMPARISONS if make in (_number, _text) else ("=", "!=")
    return Compare(rng.choice(ops), make(rng), make(rng))


class Oracle:
    """Rows in an SQLite table, and what it says of a condition.

    SQL has three truth values and one null; here a comparison without a value is false. So each comparison is
    written as IFNULL(..., 0), and an attribute of another kind than its place needs as null. Nothing else of
    SQL is bent: comparing, arithmetic, LIKE, IN and BETWEEN are SQLite's own.
    """

    def __init__(self, rows: Sequence[Row]) -> None:
        self._base = sqlite3.connect(":memory:")
        self._base.execute("PRAGMA case_sensitive_like = ON")
        self._base.create_function("real_remainder", 2, _remainder, deterministic=True)
        columns = ", ".join(f'"{name}"' for name in NAMES)
        self._base.execute(f"CREATE TABLE site (number, {columns})")
        marks = ", ".join("?" * (len(NAMES) + 1))
        for number, row in enumerate(rows):
            cells = (_cell(row[name]) if name in row else None for name in NAMES)
            self._base.execute(f"INSERT INTO site VALUES ({marks})", (number, *cells))

    def matching(self, tree: Node) -> set[int]:
        """The numbers of the rows for which it holds."""
        found = self._base.execute(f"SELECT number FROM site WHERE {_condition(tree)}").fetchall()
        return {number for (number,) in found}


def _remainder(a: float | None, b: float | None) -> float | None:
    return math.fmod(a, b) if a is not None and b else None


def _cell(value: Value) -> object:
    if isinstance(value, bool):
        return b"\1" if value else b"\0"
    if isinstance(value, frozenset):
        return b"S" + json.dumps(sorted(value, key=repr)).encode()
    return value


def _condition(node: Node) -> str:
    match node:
        case And():
            return "(" + " AND ".join(map(_condition, node.operands)) + ")"
        case Or():
            return "(" + " OR ".join(map(_condition, node.operands)) + ")"
        case Not():
            return f"(NOT {_condition(node.operand)})"
        case Exists():
            return f'("{node.name}" IS NOT NULL)'
        case Name() | Literal():
            return f"IFNULL({_as(node, 'boolean')}, 0)"
        case Like():
            escape = f" ESCAPE '{node.escape}'" if node.escape else ""
            no = "NOT " if node.negated else ""
            return f"IFNULL({_as(node.value, 'text')} {no}LIKE {_constant(node.pattern)}{escape}, 0)"
        case Between():
            no = "NOT " if node.negated else ""
            sides = (node.value, node.low, node.high)
            return _either(
                f"({_as(sides[0], kind)} {no}BETWEEN {_as(sides[1], kind)} AND {_as(sides[2], kind)})"
                # SQL may decide NOT BETWEEN by one bound when the other is null: here both are needed
                + "".join(f" AND {_as(each, kind)} IS NOT NULL" for each in sides[1:])
                for kind in ("number", "text")
            )
        case Within():
            return _within(node)
        case Compare():
            return _compare(node)
    raise AssertionError(node)


def _within(node: Within) -> str:
    no = "NOT " if node.negated else ""
    options = node.options
    if isinstance(options, Literal):
        found = []
        for kind, types in (("number", (int, float)), ("text", (str,))):
            listed = [_constant(each) for each in options.value if isinstance(each, types)]  # type: ignore[union-attr]
            if listed:
                found.append(f"{_as(node.value, kind)} {no}IN ({', '.join(listed)})")
        return _either(found)
    elements = f"(SELECT value FROM json_each({_as(options, 'set')}))"
    guard = f"{_as(options, 'set')} IS NOT NULL AND {{0}} IS NOT NULL AND {{0}} {no}IN {elements}"
    return _either(guard.format(_as(node.value, kind)) for kind in ("number", "text"))


def _compare(node: Compare) -> str:
    if node.op in SET_RELATIONS:
        return f"IFNULL({_relation(node.op, node.left, node.right, node.negated)}, 0)"
    kinds = ("number", "text") if node.op not in ("=", "!=") else ("number", "text", "boolean")
    sides = [f"{_as(node.left, kind)} {node.op} {_as(node.right, kind)}" for kind in kinds]
    if node.op in ("=", "!="):
        same = " AND ".join(_relation(op, node.left, node.right, False) for op in ("subset", "superset"))
        left, right = _as(node.left, "set"), _as(node.right, "set")
        no = "NOT " if node.op == "!=" else ""
        sides.append(f"{left} IS NOT NULL AND {right} IS NOT NULL AND {no}({same})")
    return _either(sides)


def _relation(op: str, left: Node, right: Node, negated: bool) -> str:
    first, second = _as(left, "set"), _as(right, "set")
    if op == "superset":
        first, second = second, first
    of_first, of_second = (
        f"(SELECT value FROM json_each({first}))",
        f"(SELECT value FROM json_each({second}))",
    )
    if op == "intersects":
        holds = f"EXISTS (SELECT 1 FROM {of_first} AS x WHERE x.value IN {of_second})"
    else:
        holds = f"NOT EXISTS (SELECT 1 FROM {of_first} AS x WHERE x.value NOT IN {of_second})"
    no = "NOT " if negated else ""
    return f"({first} IS NOT NULL AND {second} IS NOT NULL AND {no}({holds}))"


def _either(conditions) -> str:  # type: ignore[no-untyped-def]
    return "(" + " OR ".join(f"IFNULL({each}, 0)" for each in conditions) + ")"


_KIND_GUARD = {
    "number": "CASE WHEN typeof({0}) IN ('integer', 'real') THEN {0} END",
    "text": "CASE WHEN typeof({0}) = 'text' THEN {0} END",
    "boolean": "CASE {0} WHEN x'00' THEN 0 WHEN x'01' THEN 1 END",
    "set": "CASE WHEN typeof({0}) = 'blob' AND length({0}) > 1 THEN CAST(substr({0}, 2) AS TEXT) END",
}


def _as(node: Node, kind: str) -> str:
    """A value where this kind is needed; null when it is of another one."""
    match node:
        case Name():
            return "(" + _KIND_GUARD[kind].format(f'"{node.name}"') + ")"
        case Literal():
            fits = {
                "number": type(node.value) in (int, float),
                "text": isinstance(node.value, str),
                "boolean": isinstance(node.value, bool),
                "set": isinstance(node.value, frozenset),
            }
            return _constant(node.value) if fits[kind] else "NULL"
        case Negative():
            return f"(-{_as(node.operand, 'number')})" if kind == "number" else "NULL"
        case Arithmetic():
            if kind != "number":
                return "NULL"
            a, b = _as(node.left, "number"), _as(node.right, "number")
            if node.op == "/":
                return f"(CAST({a} AS REAL) / {b})"
            if node.op == "%":
                whole = f"typeof({a}) = 'integer' AND typeof({b}) = 'integer'"
                return f"(CASE WHEN {whole} THEN {a} % {b} ELSE real_remainder({a}, {b}) END)"
            return f"({a} {node.op} {b})"
    raise AssertionError(node)


def _constant(value: Value) -> str:
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, frozenset):
        return _constant(json.dumps(sorted(value, key=repr)))
    return repr(value)


def _number(rng: random.Random, depth: int = 2) -> Node:
    kind = rng.randrange(7)
    if depth and kind < 2:
        return Arithmetic(rng.choice("+-*/%"), _number(rng, depth - 1), _number(rng, depth - 1))
    if kind == 2:
        return Negative(Name(rng.choice(NAMES)))
    return Name(rng.choice(NAMES)) if kind < 5 else Literal(rng.choice(NUMBERS))


def _text(rng: random.Random) -> Node:
    return Name(rng.choice(NAMES)) if rng.random() < 0.7 else Literal(rng.choice(WORDS))


def _truth(rng: random.Random) -> Node:
    return Name(rng.choice(NAMES)) if rng.random() < 0.7 else Literal(rng.random() < 0.5)


def _set(rng: random.Random) -> Node:
    return Name(rng.choice(NAMES)) if rng.random() < 0.6 else Literal(random_set(rng))
