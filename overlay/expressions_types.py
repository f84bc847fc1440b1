"""Whether an expression can be true at all: the kinds of what it compares, and the attributes a model has."""

from anabranch.overlay.attributes import BOOLEAN, KIND_OF, NUMBER, SET, TEXT, Model, suggest
from anabranch.overlay.errors import ExpressionError
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
)

_ORDERED = frozenset((NUMBER, TEXT))


def check_types(text: str, tree: Node, model: Model | None) -> None:
    """ExpressionError where kinds don't fit, or where a name is not in the model (if there is one)."""
    _Checker(text, model).condition(tree)


class _Checker:
    def __init__(self, text: str, model: Model | None) -> None:
        self._text = text
        self._model = model

    def condition(self, node: Node) -> None:
        """Something that is true or false."""
        match node:
            case And() | Or():
                for each in node.operands:
                    self.condition(each)
            case Not():
                self.condition(node.operand)
            case Exists():
                self._declared(node.name, node.at)
            case Compare():
                self._compare(node)
            case Between():
                kinds = [self._value(each) for each in (node.value, node.low, node.high)]
                self._agree([node.value, node.low, node.high], kinds, _ORDERED, "between")
            case Within():
                self._within(node)
            case Like():
                self._wanted(node.value, TEXT, "'like' takes a text on its left")
            case Name() | Literal():
                self._wanted(node, BOOLEAN, "a value is no condition: compare it with something")
            case _:
                raise self._error(node, "a number is no condition: compare it with something")

    def _value(self, node: Node) -> str | None:
        """The kind of a value; None while it is not known."""
        match node:
            case Literal():
                return KIND_OF[type(node.value)]
            case Name():
                return self._declared(node.name, node.at)
            case Negative():
                self._wanted(node.operand, NUMBER, "'-' takes a number")
                return NUMBER
            case Arithmetic():
                for each in (node.left, node.right):
                    self._wanted(each, NUMBER, f"{node.op!r} takes numbers")
                return NUMBER
        raise self._error(node, "a condition is no value: join conditions with 'and', 'or' and 'not'")

    def _compare(self, node: Compare) -> None:
        sides = [node.left, node.right]
        kinds = [self._value(each) for each in sides]
        if node.op in SET_RELATIONS:
            for side, kind in zip(sides, kinds, strict=True):
                if kind not in (None, SET):
                    raise self._error(side, f"{node.op!r} takes sets, such as {{'a', 'b'}}; this is a {kind}")
        elif node.op in ("=", "!="):
            self._agree(sides, kinds, None, node.op)
        else:
            self._agree(sides, kinds, _ORDERED, node.op)

    def _within(self, node: Within) -> None:
        kind = self._value(node.value)
        if kind in (BOOLEAN, SET):
            raise self._error(node.value, f"'in' takes a number or a text on its left; this is a {kind}")
        if isinstance(node.options, Name):
            self._wanted(node.options, SET, "'in' takes a list or a set on its right")
            return
        assert isinstance(node.options, Literal)
        assert isinstance(node.options.value, frozenset)
        inside = {KIND_OF[type(each)] for each in node.options.value}
        if kind is not None and inside and kind not in inside:
            raise self._error(node.options, f"no {kind} in this list: it is compared with a {kind}")

    def _agree(
        self, nodes: list[Node], kinds: list[str | None], allowed: frozenset[str] | None, op: str
    ) -> None:
        first: str | None = None
        for node, kind in zip(nodes, kinds, strict=True):
            if kind is None:
                continue
            if allowed is not None and kind not in allowed:
                raise self._error(node, f"{op!r} takes numbers or texts; this is a {kind}")
            if first is not None and kind != first:
                raise self._error(node, f"a {kind} is compared with a {first}")
            first = kind

    def _wanted(self, node: Node, kind: str, trouble: str) -> None:
        found = self._value(node)
        if found not in (None, kind):
            raise self._error(node, f"{trouble}; this is a {found}")

    def _declared(self, name: str, at: int) -> str | None:
        if not self._model:
            return None
        kind = self._model.get(name)
        if kind is None:
            raise ExpressionError(
                self._text, at, f"attribute {name!r} is not declared: {suggest(name, self._model)}"
            )
        return kind

    def _error(self, node: Node, what: str) -> ExpressionError:
        return ExpressionError(self._text, node.at, what)
