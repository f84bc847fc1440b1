"""From text to tree: a small Pratt parser with columns and bounds. Kept here because the core needs no other
parser, errors must point at the column, and what a stranger sends must be bounded in time and memory.
"""

import math
import re

import msgspec

from anabranch.overlay.attributes import (
    ELEMENTS_MAX,
    INTEGER_MAX,
    INTEGER_MIN,
    NAME_MAX_CHARS,
    Scalar,
)
from anabranch.overlay.errors import ExpressionError
from anabranch.overlay.expressions_tree import (
    COMPARISONS,
    KEYWORDS,
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
    children,
    negated,
)

TEXT_MAX_CHARS = 8192
NODES_MAX = 1024
DEPTH_MAX = 48
_TOKEN = re.compile(
    r"""\s*(?:
      (?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)
    | (?P<word>[A-Za-z_][A-Za-z0-9_.]*)
    | (?P<text>'(?:[^']|'')*')
    | (?P<quoted>"(?:[^"]|"")*")
    | (?P<symbol><>|<=|>=|!=|==|&&|\|\||[-=<>+*/%(){},!])
    )""",
    re.VERBOSE | re.ASCII,
)
_INSTEAD = {"==": "=", "&&": "and", "||": "or", "!": "not"}
_BINDING = {"or": 1, "and": 2, "+": 5, "-": 5, "*": 6, "/": 6, "%": 6}
_NOT, _COMPARISON, _SIGN = 3, 4, 7


class Token(msgspec.Struct, frozen=True):
    """A word of an expression."""

    kind: str
    """`number`, `name`, `text`, `symbol` (keywords too) or `end`."""
    value: str
    at: int


def parse_tree(text: str) -> Node:
    """The tree of a text; ExpressionError points at what is wrong."""
    if not isinstance(text, str):
        raise ExpressionError(repr(text), 1, "an expression is a text, such as \"region = 'north'\"")
    if len(text) > TEXT_MAX_CHARS:
        raise ExpressionError(text, TEXT_MAX_CHARS + 1, f"longer than {TEXT_MAX_CHARS} characters")
    return _Parser(text).parse()


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0
        self._depth = 0
        self._nodes = 0
        self._token = self._next()

    def parse(self) -> Node:
        """The whole text as one node."""
        node = self._expression(0)
        if self._token.kind != "end":
            raise self._unexpected("the end, or an operator")
        self._check_height(node)
        return node

    def _check_height(self, tree: Node) -> None:
        """What is made of a tree may go down it by recursion."""
        below = [tree]
        for _ in range(2 * DEPTH_MAX):
            below = [child for node in below for child in children(node)]
        if below:
            raise self._error(below[0].at, f"operations within operations, more than {2 * DEPTH_MAX} deep")

    def _expression(self, binding: int) -> Node:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise self._error(self._token.at, f"nested deeper than {DEPTH_MAX} levels")
        left = self._prefix()
        chain = 0
        while True:
            token = self._token
            if token.kind != "symbol":
                break
            strength = _BINDING.get(token.value, _COMPARISON if self._opens_comparison() else 0)
            if strength <= binding:
                break
            if token.value in ("and", "or"):
                left = self._junction(token, left, strength)
            elif strength == _COMPARISON:
                left = self._comparison(left)
                if self._opens_comparison():
                    raise self._error(
                        self._token.at, "comparisons do not follow one another: join two with 'and'"
                    )
            else:
                chain += 1
                if self._depth + chain > DEPTH_MAX:
                    raise self._error(token.at, f"a chain of more than {DEPTH_MAX} operations")
                self._advance()
                left = self._made(Arithmetic(token.value, left, self._expression(strength), token.at))
        self._depth -= 1
        return left

    def _junction(self, token: Token, left: Node, strength: int) -> Node:
        operands = [left]
        while self._token.kind == "symbol" and self._token.value == token.value:
            self._advance()
            operands.append(self._expression(strength))
        kind = And if token.value == "and" else Or
        flat: list[Node] = []
        for each in operands:
            flat += each.operands if isinstance(each, kind) else (each,)
        return self._made(kind(tuple(flat), token.at))

    def _prefix(self) -> Node:
        token = self._token
        if token.kind == "name":
            self._advance()
            return self._made(Name(token.value, token.at))
        if token.kind == "number" or token.kind == "text":
            self._advance()
            return self._made(Literal(self._constant(token), token.at))
        if token.kind == "symbol":
            match token.value:
                case "(":
                    self._advance()
                    inner = self._expression(0)
                    self._expect(")")
                    return inner
                case "{":
                    return self._made(Literal(self._elements("{", "}"), token.at))
                case "-" | "+":
                    return self._signed(token)
                case "not":
                    self._advance()
                    return self._made(Not(self._expression(_NOT - 1), token.at))
                case "true" | "false":
                    self._advance()
                    return self._made(Literal(token.value == "true", token.at))
                case "exists":
                    return self._exists(token)
        raise self._unexpected("an attribute, a constant, 'not' or '('")

    def _signed(self, token: Token) -> Node:
        self._advance()
        number = self._token
        if number.kind == "number":
            self._advance()
            return self._made(Literal(self._constant(number, token.value), token.at))
        operand = self._expression(_SIGN)
        if token.value == "+":
            return operand
        if isinstance(operand, Literal) and type(operand.value) in (int, float):
            return self._made(Literal(negated(operand.value), token.at))  # type: ignore[arg-type]
        return self._made(Negative(operand, token.at))

    def _exists(self, token: Token) -> Node:
        self._advance()
        self._expect("(")
        name = self._token
        if name.kind != "name":
            raise self._unexpected("the name of an attribute")
        self._advance()
        self._expect(")")
        return self._made(Exists(name.value, token.at))

    def _opens_comparison(self) -> bool:
        token = self._token
        return token.kind == "symbol" and (
            token.value in COMPARISONS
            or token.value in SET_RELATIONS
            or token.value in ("not", "between", "in", "like")
        )

    def _comparison(self, left: Node) -> Node:
        token = self._token
        at = token.at
        is_negated = token.value == "not"
        self._advance()
        if is_negated:
            token = self._token
            if token.kind != "symbol" or token.value not in ("between", "in", "like", *SET_RELATIONS):
                raise self._unexpected("'between', 'in', 'like', 'subset', 'superset' or 'intersects'")
            self._advance()
        if token.value == "between":
            low = self._expression(_COMPARISON)
            self._expect("and")
            return self._made(Between(left, low, self._expression(_COMPARISON), is_negated, at))
        if token.value == "like":
            return self._like(left, is_negated, at)
        if token.value == "in":
            return self._made(Within(left, self._options(), is_negated, at))
        return self._made(Compare(token.value, left, self._expression(_COMPARISON), is_negated, at))

    def _like(self, left: Node, is_negated: bool, at: int) -> Node:
        pattern = self._quoted("a pattern in quotes, such as 'north%'")
        escape = ""
        if self._token.kind == "symbol" and self._token.value == "escape":
            self._advance()
            column = self._token.at
            escape = self._quoted("a character in quotes")
            if len(escape) != 1:
                raise self._error(column, "'escape' takes one character")
            if escape in "%_" or pattern.replace(escape * 2, "").endswith(escape):
                raise self._error(
                    column, "an escape character stands before another one, and is no '%' or '_'"
                )
        return self._made(Like(left, pattern, escape, is_negated, at))

    def _quoted(self, wanted: str) -> str:
        token = self._token
        if token.kind != "text":
            raise self._unexpected(wanted)
        self._advance()
        return token.value

    def _options(self) -> Node:
        token = self._token
        if token.kind == "name":
            self._advance()
            return self._made(Name(token.value, token.at))
        if token.kind == "symbol" and token.value in "({":
            elements = self._elements(token.value, ")" if token.value == "(" else "}")
            return self._made(Literal(elements, token.at))
        raise self._unexpected("a list such as (1, 2), or the name of a set")

    def _elements(self, opening: str, closing: str) -> frozenset[int | float | str]:
        begin = self._token.at
        self._expect(opening)
        elements: set[int | float | str] = set()
        while not (self._token.kind == "symbol" and self._token.value == closing):
            if elements:
                self._expect(",", f"',' or {closing!r}")
            sign = ""
            if self._token.kind == "symbol" and self._token.value in "+-":
                sign = self._token.value
                self._advance()
            token = self._token
            if token.kind != "number" and (sign or token.kind != "text"):
                raise self._unexpected("a number" if sign else "a number or a text in quotes")
            self._advance()
            elements.add(self._constant(token, sign))
            if len(elements) > ELEMENTS_MAX:
                raise self._error(token.at, f"a set of more than {ELEMENTS_MAX} elements")
        self._advance()
        if not elements and opening == "(":
            raise self._error(begin, "an empty list: nothing is in it")
        return frozenset(elements)

    def _constant(self, token: Token, sign: str = "") -> int | float | str:
        if token.kind == "text":
            return token.value
        number: Scalar
        text = sign + token.value
        if token.value.isdigit():
            if len(token.value.lstrip("0")) > 19 or not INTEGER_MIN <= (number := int(text)) <= INTEGER_MAX:
                raise self._error(token.at, "a whole number of more than 64 bits")
            return number
        number = float(text)
        if not math.isfinite(number):
            raise self._error(token.at, "too large a number")
        return number

    def _made(self, node: Node) -> Node:
        self._nodes += 1
        if self._nodes > NODES_MAX:
            raise self._error(node.at, f"more than {NODES_MAX} parts")
        return node

    def _expect(self, symbol: str, wanted: str = "") -> None:
        if self._token.kind != "symbol" or self._token.value != symbol:
            raise self._unexpected(wanted or repr(symbol))
        self._advance()

    def _advance(self) -> None:
        self._token = self._next()

    def _next(self) -> Token:
        text, position = self._text, self._position
        found = _TOKEN.match(text, position)
        if found is None:
            rest = text[position:].lstrip()
            column = len(text) - len(rest) + 1
            if not rest:
                return Token("end", "", len(text) + 1)
            if rest[0] in "'\"":
                raise self._error(column, "a quote that is never closed")
            raise self._error(column, f"{rest[0]!r} means nothing here")
        self._position = found.end()
        kind = found.lastgroup or ""
        value = found[kind]
        at = found.start(kind) + 1
        if kind == "number" and re.match(r"[A-Za-z_]", text[self._position : self._position + 1]):
            raise self._error(at, f"{value + text[self._position]!r} is neither a number nor a name")
        if kind == "word":
            lower = value.lower()
            if lower in KEYWORDS:
                return Token("symbol", lower, at)
            kind = "name"
        elif kind == "text":
            value = value[1:-1].replace("''", "'")
        elif kind == "quoted":
            kind, value = "name", value[1:-1].replace('""', '"')
        elif kind == "symbol":
            if value in _INSTEAD:
                raise self._error(at, f"{value!r} is not used here: write {_INSTEAD[value]!r}")
            value = "!=" if value == "<>" else value
        if kind == "name" and not (0 < len(value) <= NAME_MAX_CHARS and value.isprintable()):
            raise self._error(at, f"a name has 1 to {NAME_MAX_CHARS} printable characters")
        return Token(kind, value, at)

    def _unexpected(self, wanted: str) -> ExpressionError:
        token = self._token
        found = "the text ends" if token.kind == "end" else f"found {token.value[:40]!r}"
        return self._error(token.at, f"expected {wanted}, {found}")

    def _error(self, column: int, what: str) -> ExpressionError:
        return ExpressionError(self._text, column, what)
