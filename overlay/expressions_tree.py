"""The tree of an expression, and its canonical text. Knows neither how it was written nor how it is run."""

import re
from collections.abc import Iterator

import msgspec

from anabranch.overlay.attributes import INTEGER_MIN, Value, listed

COMPARISONS = ("=", "!=", "<=", ">=", "<", ">")
SET_RELATIONS = ("subset", "superset", "intersects")
KEYWORDS = frozenset(
    ("and", "or", "not", "between", "in", "like", "escape", "exists", "true", "false", *SET_RELATIONS)
)
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*\Z")


class Literal(msgspec.Struct, frozen=True):
    """A constant: number, text, boolean or set."""

    value: Value
    at: int = 0
    """The column where it stands in the text it was parsed from."""


class Name(msgspec.Struct, frozen=True):
    """An attribute; where a condition is expected, a boolean one that is true."""

    name: str
    at: int = 0


class Negative(msgspec.Struct, frozen=True):
    """-x."""

    operand: "Node"
    at: int = 0


class Arithmetic(msgspec.Struct, frozen=True):
    """x + y, and so on."""

    op: str
    left: "Node"
    right: "Node"
    at: int = 0


class Compare(msgspec.Struct, frozen=True):
    """x < y, and so on; or a relation of two sets."""

    op: str
    left: "Node"
    right: "Node"
    negated: bool = False
    """Of set relations only: `not subset`."""
    at: int = 0


class Between(msgspec.Struct, frozen=True):
    """x between low and high, both included."""

    value: "Node"
    low: "Node"
    high: "Node"
    negated: bool = False
    at: int = 0


class Within(msgspec.Struct, frozen=True):
    """x in (1, 2), or x in tags."""

    value: "Node"
    options: "Node"
    """A set literal or the name of a set."""
    negated: bool = False
    at: int = 0


class Like(msgspec.Struct, frozen=True):
    """x like 'a%'."""

    value: "Node"
    pattern: str
    escape: str = ""
    negated: bool = False
    at: int = 0


class Exists(msgspec.Struct, frozen=True):
    """exists(x)."""

    name: str
    at: int = 0


class Not(msgspec.Struct, frozen=True):
    """not x."""

    operand: "Node"
    at: int = 0


class And(msgspec.Struct, frozen=True):
    """x and y and ..."""

    operands: tuple["Node", ...]
    at: int = 0


class Or(msgspec.Struct, frozen=True):
    """x or y or ..."""

    operands: tuple["Node", ...]
    at: int = 0


Node = Literal | Name | Negative | Arithmetic | Compare | Between | Within | Like | Exists | Not | And | Or


def render(node: Node) -> str:
    """The canonical text: parsing it gives the same tree."""
    return _render(node, 0)


def children(node: Node) -> tuple[Node, ...]:
    """The nodes right below."""
    match node:
        case And() | Or():
            return node.operands
        case Not() | Negative():
            return (node.operand,)
        case Arithmetic() | Compare():
            return (node.left, node.right)
        case Between():
            return (node.value, node.low, node.high)
        case Within():
            return (node.value, node.options)
        case Like():
            return (node.value,)
    return ()


def negated(number: int | float) -> int | float:
    """-x, within 64 bits if it is a whole number."""
    return -number if number != INTEGER_MIN else -float(number)


def names_in(node: Node) -> Iterator[str]:
    """Every attribute it looks at, some more than once."""
    if isinstance(node, Name | Exists):
        yield node.name
    for child in children(node):
        yield from names_in(child)


_OR, _AND, _NOT, _COMPARISON, _SUM, _PRODUCT, _SIGN, _ATOM = range(1, 9)


def _render(node: Node, around: int) -> str:
    text, level = _rendered(node)
    return f"({text})" if level < around else text


def _rendered(node: Node) -> tuple[str, int]:
    match node:
        case Literal():
            negative = type(node.value) in (int, float) and str(node.value).startswith("-")
            return _constant(node.value), _SIGN if negative else _ATOM
        case Name():
            return _name(node.name), _ATOM
        case Exists():
            return f"exists({_name(node.name)})", _ATOM
        case Or():
            return " or ".join(_render(each, _OR) for each in node.operands), _OR
        case And():
            return " and ".join(_render(each, _AND) for each in node.operands), _AND
        case Not():
            return f"not {_render(node.operand, _NOT)}", _NOT
        case Negative():
            return f"-{_render(node.operand, _ATOM)}", _SIGN
        case Arithmetic():
            level = _SUM if node.op in "+-" else _PRODUCT
            return f"{_render(node.left, level)} {node.op} {_render(node.right, level + 1)}", level
    return _rendered_condition(node), _COMPARISON


def _rendered_condition(node: Compare | Between | Within | Like) -> str:
    no = "not " if node.negated else ""
    match node:
        case Compare():
            return f"{_render(node.left, _SUM)} {no}{node.op} {_render(node.right, _SUM)}"
        case Between():
            low, high = _render(node.low, _SUM), _render(node.high, _SUM)
            return f"{_render(node.value, _SUM)} {no}between {low} and {high}"
        case Like():
            escape = f" escape {_constant(node.escape)}" if node.escape else ""
            return f"{_render(node.value, _SUM)} {no}like {_constant(node.pattern)}{escape}"
    options = node.options
    if isinstance(options, Literal):
        assert isinstance(options.value, frozenset)
        shown = f"({', '.join(map(_constant, listed(options.value)))})" if options.value else "{}"
    else:
        shown = _render(options, _SUM)
    return f"{_render(node.value, _SUM)} {no}in {shown}"


def _constant(value: Value) -> str:
    if isinstance(value, frozenset):
        return f"{{{', '.join(map(_constant, listed(value)))}}}"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value)


def _name(name: str) -> str:
    if _PLAIN_NAME.match(name) and name.lower() not in KEYWORDS:
        return name
    return '"' + name.replace('"', '""') + '"'
