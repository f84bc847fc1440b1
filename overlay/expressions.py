"""The one expression language, for content filters (over a publication's attributes) and site selection (over
a site's): parsed once, checked, bounded, compiled to closures. `docs/addressing.md` tells the rules.
"""

from anabranch.overlay.attributes import Model, Row
from anabranch.overlay.errors import ExpressionError
from anabranch.overlay.expressions_code import Test, compile_test
from anabranch.overlay.expressions_parser import parse_tree
from anabranch.overlay.expressions_tree import Node, names_in, render
from anabranch.overlay.expressions_types import check_types


class Expression:
    """A condition over named attributes. Made by `parse`; equal when the canonical texts are."""

    __slots__ = ("matches", "names", "text", "tree")

    def __init__(self, tree: Node) -> None:
        self.tree = tree
        self.text = render(tree)
        """The canonical text."""
        self.names = frozenset(names_in(tree))
        """The attributes it looks at."""
        self.matches: Test = compile_test(tree)
        """Whether the condition holds for a row of attributes."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Expression) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"Expression({self.text!r})"


def parse(text: str, model: Model | None = None) -> Expression:
    """The expression of a text; ExpressionError points at the column of what is wrong.

    With a model, names that it lacks, and comparisons with another kind than it declares, are errors too.
    """
    tree = parse_tree(text)
    check_types(text, tree, model)
    return Expression(tree)


class Expressions:
    """Parsed ones by their text, for texts that come again and again; at most so many, the oldest goes."""

    def __init__(self, cache_max: int, model: Model | None = None) -> None:
        self._cache_max = cache_max
        self._model = model
        self._known: dict[str, Expression | ExpressionError] = {}

    def get(self, text: str) -> Expression:
        """The expression of a text; ExpressionError, remembered too, if it is none."""
        found = self._known.get(text)
        if found is None:
            if len(self._known) >= self._cache_max:
                del self._known[next(iter(self._known))]
            try:
                found = parse(text, self._model)
            except ExpressionError as error:
                found = error
            self._known[text] = found
        if isinstance(found, ExpressionError):
            raise ExpressionError(text, found.column, found.what)
        return found

    def matches(self, text: str, row: Row) -> bool:
        """Whether the expression of a text holds for a row."""
        return self.get(text).matches(row)
