"""G^g of the paper: the filter that serves every selection of one closed and one open range per attribute.

What a site needs of it grows exponentially with the open ranges; `docs/addressing.md` shows it.
"""

import sys
from collections.abc import Collection, Iterator, Mapping

from anabranch.overlay.attributes import (
    BOOLEAN,
    NUMBER,
    SET,
    TEXT,
    Model,
    Row,
    Value,
    check_attributes,
    check_model,
)
from anabranch.overlay.errors import UsageError
from anabranch.overlay.expressions import Expression
from anabranch.overlay.expressions_tree import And, Between, Compare, Literal, Name, Node, Or, render
from anabranch.overlay.expressions_types import check_types

TRUE, FALSE = Literal(True), Literal(False)
LOWEST: dict[str, Value] = {NUMBER: -sys.float_info.max, TEXT: "", BOOLEAN: 0}
HIGHEST: dict[str, Value] = {NUMBER: sys.float_info.max, TEXT: "\U0010ffff", BOOLEAN: 1}
"""Bounds that bound nothing. The last code point is no character: no text begins with it."""


class Generic:
    """G^g of an attribute model: one closed and one open range, or set relations, per attribute.

    `elements`: the members that each declared set may have. Beside the paper's attributes a message says
    which attributes it asks about at all, because a site may lack some.
    """

    def __init__(
        self, model: Model, elements: Mapping[str, Collection[int | float | str]] | None = None
    ) -> None:
        check_model("model", model)
        self._model = dict(model)
        self._elements = {
            name: tuple(sorted((elements or {}).get(name, ()), key=repr))
            for name, kind in model.items()
            if kind == SET
        }

    def tree(self, names: Collection[str] | None = None, *, has_open: bool = True) -> Node:
        """G^g itself, over attributes of the site (members of sets as numbers) and of the message."""
        parts: list[Node] = []
        for name in self._model if names is None else names:
            parts += self._terms(name, None, has_open)
        return _all(parts)

    def filter(self, site: Mapping[str, object], *, has_open: bool = True) -> Expression:
        """What a site with these attributes subscribes to."""
        row = check_attributes(site, self._model)
        parts: list[Node] = []
        for name in self._model:
            if name in row:
                parts += self._terms(name, row[name], has_open)
            else:
                parts.append(Compare("=", Name(f"asks.{name}"), FALSE))
        return Expression(_all(parts))

    def message(self, expression: Expression) -> Row:
        """What a message carries for this expression; UsageError if G^g has no place for it."""
        row: dict[str, Value] = {}
        for name, kind in self._model.items():
            row[f"asks.{name}"] = False
            row.update(self._idle(name, kind))
        opened: set[str] = set()
        tree = expression.tree
        check_types(expression.text, tree, self._model)
        for node in tree.operands if isinstance(tree, And) else (tree,):
            self._ask(node, row, opened)
        return row

    # Inside

    def _terms(self, name: str, value: Value | None, has_open: bool) -> list[Node]:
        """The conjuncts of one attribute; with the name itself where no value is given."""
        if self._model[name] == SET:
            return self._set_terms(name, value, has_open)
        here: Node = Name(name)
        if value is not None:
            if isinstance(value, str) and value.startswith("\U0010ffff"):
                raise UsageError(f"attribute {name!r}: a text that begins with U+10FFFF")
            here = Literal(int(value) if isinstance(value, bool) else value)
        parts: list[Node] = [
            Compare("<=", Name(f"closed_low.{name}"), here),
            Compare(">=", Name(f"closed_high.{name}"), here),
        ]
        if has_open:
            above = Compare(">", Name(f"open_high.{name}"), here)
            parts.append(Or((above, Compare("<", Name(f"open_low.{name}"), here))))
        return parts

    def _set_terms(self, name: str, value: Value | None, has_open: bool) -> list[Node]:
        known = self._elements[name]
        if isinstance(value, frozenset) and (unknown := value - frozenset(known)):
            raise UsageError(f"attribute {name!r}: {min(unknown, key=repr)!r} is no declared member")
        parts: list[Node] = []
        outside: list[Node] = [Compare("=", Name(f"nsub.{name}"), FALSE)]
        for number, element in enumerate(known):
            here: Node = Name(f"{name}.{number}")
            if isinstance(value, frozenset):
                here = Literal(int(element in value))
            parts.append(Compare("<=", Name(f"sub.{name}.{number}"), here))
            parts.append(Compare(">=", Name(f"sup.{name}.{number}"), here))
            outside.append(Compare(">", Name(f"nsub.{name}.{number}"), here))
            outside.append(Compare("<", Name(f"nsup.{name}.{number}"), here))
        return [*parts, Or(tuple(outside))] if has_open else parts

    def _idle(self, name: str, kind: str) -> Iterator[tuple[str, Value]]:
        if kind == SET:
            yield f"nsub.{name}", False
            for number in range(len(self._elements[name])):
                for part, value in (("sub", 0), ("sup", 1), ("nsub", 0), ("nsup", 1)):
                    yield f"{part}.{name}.{number}", value
            return
        low, high = LOWEST[kind], HIGHEST[kind]
        yield f"closed_low.{name}", low
        yield f"closed_high.{name}", high
        yield f"open_low.{name}", -1 if kind == BOOLEAN else low
        yield f"open_high.{name}", 2 if kind == BOOLEAN else high

    def _ask(self, node: Node, row: dict[str, Value], opened: set[str]) -> None:
        """Put one conjunct into the row."""
        match node:
            case Name():
                node = Compare("=", node, TRUE)
            case Between(value=Name() as name, low=Literal() as low, high=Literal() as high):
                if node.negated:
                    self._open(name.name, low.value, high.value, row, opened)
                else:
                    self._close(name.name, low.value, high.value, row)
                return
            case Or(
                operands=(
                    Compare(op="<", left=Name() as name, right=Literal() as low),
                    Compare(op=">", left=Name() as same, right=Literal() as high),
                )
            ) if name.name == same.name:
                self._open(name.name, low.value, high.value, row, opened)
                return
            case Literal(value=True):
                return
        match node:
            case Compare(left=Name() as name, right=Literal() as constant):
                if isinstance(constant.value, frozenset):
                    self._relate(node, name.name, constant.value, row, opened)
                else:
                    self._compare(node, name.name, constant.value, row, opened)
            case _:
                raise _no_place(node)

    def _compare(
        self, node: Compare, name: str, value: Value, row: dict[str, Value], opened: set[str]
    ) -> None:
        if isinstance(value, bool):
            value = int(value)
        kind = self._model.get(name)
        match node.op:
            case "=":
                self._close(name, value, value, row)
            case "<=":
                self._close(name, None, value, row)
            case ">=":
                self._close(name, value, None, row)
            case "!=":
                self._open(name, value, value, row, opened)
            case "<":
                self._open(name, value, HIGHEST.get(kind or ""), row, opened)
            case _:
                self._open(name, LOWEST.get(kind or ""), value, row, opened)

    def _close(self, name: str, low: Value | None, high: Value | None, row: dict[str, Value]) -> None:
        self._asks(name, row)
        if low is not None:
            row[f"closed_low.{name}"] = max(row[f"closed_low.{name}"], low)
        if high is not None:
            row[f"closed_high.{name}"] = min(row[f"closed_high.{name}"], high)

    def _open(
        self, name: str, below: Value | None, above: Value | None, row: dict[str, Value], opened: set[str]
    ) -> None:
        """Below the one or above the other."""
        self._asks(name, row)
        self._once(name, opened)
        assert below is not None
        assert above is not None
        row[f"open_high.{name}"], row[f"open_low.{name}"] = below, above

    def _relate(
        self,
        node: Compare,
        name: str,
        wanted: frozenset[int | float | str],
        row: dict[str, Value],
        opened: set[str],
    ) -> None:
        if node.op not in ("subset", "superset") or name not in self._elements:
            raise _no_place(node)
        known = self._elements[name]
        if unknown := wanted - frozenset(known):
            raise UsageError(f"{render(node)!r:.200}: {min(unknown, key=repr)!r} is no declared member")
        self._asks(name, row)
        if node.negated:
            self._once(name, opened)
            row[f"nsub.{name}"] = True
        for number, element in enumerate(known):
            if node.op == "superset":  # what is wanted is a subset of what the site has
                part, is_marked, mark = ("nsub" if node.negated else "sub"), element in wanted, 1
            else:
                part, is_marked, mark = ("nsup" if node.negated else "sup"), element not in wanted, 0
            if is_marked:
                row[f"{part}.{name}.{number}"] = mark

    def _asks(self, name: str, row: dict[str, Value]) -> None:
        if name not in self._model:
            raise UsageError(f"attribute {name!r} is not in the model")
        row[f"asks.{name}"] = True

    def _once(self, name: str, opened: set[str]) -> None:
        if name in opened:
            raise UsageError(f"attribute {name!r}: a second open range; register a form for it")
        opened.add(name)


def _all(parts: list[Node]) -> Node:
    if not parts:
        return TRUE
    return parts[0] if len(parts) == 1 else And(tuple(parts))


def _no_place(node: Node) -> UsageError:
    return UsageError(f"{render(node)!r:.200} has no place in the generic filter: register a form for it")
