"""Site-Select reduced to content filters, as the paper does it: what a message asks of sites becomes its
attributes, what a site is becomes a filter over them. Not how this overlay works: what it is compared with.
"""

from collections.abc import Collection, Iterator, Mapping
from itertools import product

import msgspec

from anabranch.overlay.attributes import (
    KIND_OF,
    Row,
    Value,
    check_name,
)
from anabranch.overlay.errors import ExpressionError, UsageError
from anabranch.overlay.expressions import Expression
from anabranch.overlay.expressions_code import compile_test
from anabranch.overlay.expressions_tree import (
    And,
    Arithmetic,
    Between,
    Compare,
    Literal,
    Name,
    Negative,
    Node,
    Not,
    Or,
    Within,
    names_in,
    render,
)
from anabranch.overlay.expressions_types import check_types

TRUE, FALSE = Literal(True), Literal(False)


class Specified:
    """G^x of one form of expression: its constants become attributes of the messages.

    Registered at all sites by its `text`, at any time; serves every expression of the same form.
    """

    def __init__(self, name: str, form: Expression) -> None:
        self.name = check_name(name)
        self.constants: list[Value] = []
        """Of the expression that it was made of."""
        self.tree = self._replaced(form.tree)
        self.text = render(self.tree)
        """G^x: over attributes of the site and of the message."""
        self.message_names = frozenset(self._name(number) for number in range(len(self.constants)))
        if clash := form.names & self.message_names:
            raise UsageError(f"form {name!r}: attribute {min(clash)!r} belongs to its messages; rename it")
        self._options = {
            self._name(number): _kinds(constant)
            for number, constant in enumerate(self.constants)
            if isinstance(constant, frozenset)
        }

    def message(self, expression: Expression) -> Row:
        """What a message carries for this expression; UsageError if it is of another form."""
        other = self if expression.tree is self.tree else Specified(self.name, expression)
        if other.text != self.text or other.kinds != self.kinds:
            raise UsageError(f"{expression.text!r:.200} is not of the form {self.name!r}: {self.text!r:.200}")
        return {self._name(number): value for number, value in enumerate(other.constants)}

    def filter(self, site: Row) -> Expression:
        """What a site with these attributes subscribes to."""
        return Expression(_reduced(self.tree, site, self.message_names, self._options))

    @property
    def kinds(self) -> list[object]:
        """Of the constants, in their order."""
        return [
            _kinds(value) if isinstance(value, frozenset) else KIND_OF[type(value)]
            for value in self.constants
        ]

    def _name(self, number: int) -> str:
        return f"{self.name}:{number}"

    def _constant(self, value: Value) -> Name:
        self.constants.append(value)
        return Name(check_name(self._name(len(self.constants) - 1)))

    def _replaced(self, node: Node) -> Node:
        match node:
            case Literal():
                return self._constant(node.value)
            case And() | Or():
                return type(node)(tuple(self._condition(each) for each in node.operands))
            case Not():
                return Not(self._condition(node.operand))
            case Negative():
                return Negative(self._replaced(node.operand))
            case Arithmetic():
                return Arithmetic(node.op, self._replaced(node.left), self._replaced(node.right))
            case Compare():
                return Compare(node.op, self._replaced(node.left), self._replaced(node.right), node.negated)
            case Between():
                sides = [self._replaced(each) for each in (node.value, node.low, node.high)]
                return Between(sides[0], sides[1], sides[2], node.negated)
            case Within():
                return self._within(node)
        return node

    def _condition(self, node: Node) -> Node:
        return node if isinstance(node, Literal) else self._replaced(node)

    def _within(self, node: Within) -> Node:
        if isinstance(node.options, Literal):
            return Within(self._replaced(node.value), self._constant(node.options.value), node.negated)
        if isinstance(node.value, Literal):  # as sets: a list that stands in a filter says less than a set
            element = frozenset((node.value.value,))
            return Compare("subset", self._constant(element), node.options, node.negated)  # type: ignore[arg-type]
        return node


def filters(tree: Node) -> Iterator[tuple[Node, ...]]:
    """The conjunctive filters that a broker without disjunctions needs for it, one after the other."""
    match tree:
        case Or():
            for each in tree.operands:
                yield from filters(each)
        case And():
            for chosen in product(*(list(filters(each)) for each in tree.operands)):
                yield tuple(term for terms in chosen for term in terms)
        case Not(operand=And() | Or() as inner):
            other = Or if isinstance(inner, And) else And
            yield from filters(other(tuple(Not(each) for each in inner.operands)))
        case Not(operand=Not() as inner):
            yield from filters(inner.operand)
        case _:
            yield (tree,)


def filter_count(tree: Node) -> int:
    """How many those are, without making them."""
    match tree:
        case Or():
            return sum(map(filter_count, tree.operands))
        case And():
            count = 1
            for each in tree.operands:
                count *= filter_count(each)
            return count
        case Not(operand=And() | Or() as inner):
            other = Or if isinstance(inner, And) else And
            return filter_count(other(tuple(Not(each) for each in inner.operands)))
        case Not(operand=Not() as inner):
            return filter_count(inner.operand)
    return 1


def _reduced(
    node: Node, site: Row, message_names: frozenset[str], options: Mapping[str, frozenset[str]]
) -> Node:
    """G|RR: a condition over the message alone."""
    names = frozenset(names_in(node))
    if not names & message_names:
        return TRUE if compile_test(node)(site) else FALSE
    match node:
        case And() | Or():
            return type(node)(tuple(_reduced(each, site, message_names, options) for each in node.operands))
        case Not():
            return Not(_reduced(node.operand, site, message_names, options))
    if any(name not in site for name in names - message_names):
        return FALSE
    if isinstance(node, Within) and isinstance(node.options, Name) and node.options.name in options:
        kinds = options[node.options.name]
        own = site.get(node.value.name) if isinstance(node.value, Name) else None
        if not kinds or (own is not None and KIND_OF[type(own)] not in kinds):
            return FALSE
    known = _filled(node, site, message_names)
    try:
        check_types("", known, None)
    except ExpressionError:  # kinds that are never comparable: false, negated or not
        return FALSE
    return known


def _filled(node: Node, site: Row, message_names: frozenset[str]) -> Node:
    if isinstance(node, Name):
        return node if node.name in message_names else Literal(site[node.name])
    if not isinstance(node, Negative | Arithmetic | Compare | Between | Within):
        return node
    changed = {
        field: _filled(part, site, message_names)
        for field in node.__struct_fields__
        if isinstance(part := getattr(node, field), Node)
    }
    return msgspec.structs.replace(node, **changed)


def _kinds(values: Collection[Value]) -> frozenset[str]:
    return frozenset(KIND_OF[type(each)] for each in values)
