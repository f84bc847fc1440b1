"""One expression against many sites: each condition gives the set of sites for which it holds, as the bits of
one whole number, so that `and`, `or` and `not` cost the same few operations whatever stands below them.
"""

from itertools import compress, islice

from anabranch.overlay.attributes import KIND_OF, NO_ATTRIBUTES, Row
from anabranch.overlay.conditions import MIRRORED
from anabranch.overlay.expressions import Expression
from anabranch.overlay.expressions_code import compile_test
from anabranch.overlay.expressions_tree import (
    And,
    Between,
    Compare,
    Exists,
    Literal,
    Name,
    Node,
    Not,
    Or,
    Within,
    names_in,
)
from anabranch.overlay.sitecolumns import FEW, Column, slots_of

ABSORB_MAX = 256
"""Changed rows that one search takes into the columns; it asks the others one by one."""


class SiteIndex:
    """Rows of attributes by name; `find(expression)` gives the names whose row it holds for.

    A change is noted only; searches take changes into the columns. So a peer that never searches does not pay
    for the changes of others, and one search never pays for many at once.
    """

    def __init__(self) -> None:
        self.rows: dict[str, Row] = {}
        """What is held; to be changed by `set` and `remove` only."""
        self._slots: dict[str, int] = {}
        self._names: list[str] = []
        self._free: list[int] = []
        self._all = 0
        self._columns: dict[str, Column] = {}
        self._changed: dict[str, Row] = {}
        """Rows that the columns know as they were before: what they were."""
        self._changed_bits = 0

    def set(self, name: str, row: Row) -> None:
        """A site has these attributes now."""
        slot = self._slots.get(name)
        if slot is None:
            slot = self._slots[name] = self._take_slot(name)
        if name not in self._changed:
            self._changed[name] = self.rows.get(name, NO_ATTRIBUTES)
            self._changed_bits |= 1 << slot
        self.rows[name] = row

    def remove(self, name: str) -> None:
        """A site is gone; an unknown one changes nothing."""
        row = self.rows.get(name)
        if row is not None:
            self._absorb(name, self._changed.pop(name, row), NO_ATTRIBUTES)
            del self.rows[name]
            slot = self._slots.pop(name)
            self._all &= ~(1 << slot)
            self._free.append(slot)

    def find(self, expression: Expression) -> frozenset[str]:
        """The sites for which it holds."""
        changed, rows = self._changed, self.rows
        for name in list(islice(changed, ABSORB_MAX)):
            self._absorb(name, changed.pop(name), rows[name])
        found = self._named(self._holding(expression.tree, self._all & ~self._changed_bits))
        if changed:
            found += [name for name in changed if expression.matches(rows[name])]
        return frozenset(found)

    def _absorb(self, name: str, old: Row, new: Row) -> None:
        slot = self._slots[name]
        self._replace(slot, old, new)
        self._changed_bits &= ~(1 << slot)

    def _take_slot(self, name: str) -> int:
        if self._free:
            slot = self._free.pop()
            self._names[slot] = name
        else:
            slot = len(self._names)
            self._names.append(name)
        self._all |= 1 << slot
        return slot

    def _replace(self, slot: int, old: Row, new: Row) -> None:
        bit = 1 << slot
        for name, value in old.items():
            known = new.get(name)
            if known != value or type(known) is not type(value):
                column = self._columns[name]
                column.remove(value, slot, bit)
                if not column.present:
                    del self._columns[name]
        for name, value in new.items():
            before = old.get(name)
            if before != value or type(before) is not type(value):
                if name not in self._columns:
                    self._columns[name] = Column()
                self._columns[name].add(value, slot, bit)

    def _named(self, bits: int) -> list[str]:
        if bits.bit_count() > FEW:
            return list(compress(self._names, map("1".__eq__, bin(bits)[:1:-1])))
        return [self._names[slot] for slot in slots_of(bits)]

    # Which of these sites a condition holds for

    def _holding(self, node: Node, among: int) -> int:
        match node:
            case And():
                for each in sorted(node.operands, key=_is_slow):
                    among = self._holding(each, among)
                return among
            case Or():
                found = 0
                for each in node.operands:
                    found |= self._holding(each, among & ~found)
                return found
            case Not():
                return among & ~self._holding(node.operand, among)
            case Literal():
                return among if node.value is True else 0
            case Exists():
                return among & self._column(node.name).present
            case Name():
                return among & self._column(node.name).true
        found_fast = self._fast(node)
        return among & found_fast if found_fast is not None else self._one_by_one(node, among)

    def _fast(self, node: Node) -> int | None:
        """The sites by the columns; None for what must be asked of each."""
        match node:
            case Compare():
                left, right, op = node.left, node.right, node.op
                if isinstance(left, Literal) and isinstance(right, Name):
                    left, right, op = right, left, MIRRORED.get(op, op)
                if isinstance(left, Name) and isinstance(right, Literal):
                    column = self._column(left.name)
                    if isinstance(right.value, frozenset):
                        return column.related(op, right.value, node.negated)
                    return column.compared(op, right.value)
            case Between():
                if (
                    isinstance(node.value, Name)
                    and isinstance(node.low, Literal)
                    and isinstance(node.high, Literal)
                ):
                    column = self._column(node.value.name)
                    kind = KIND_OF[type(node.low.value)]
                    found = column.sorted_of(kind).between(node.low.value, node.high.value)
                    return column.of_kind(kind) & ~found if node.negated else found
            case Within():
                return self._within(node)
        return None

    def _within(self, node: Within) -> int | None:
        value, options = node.value, node.options
        if isinstance(value, Name) and isinstance(options, Literal):
            assert isinstance(options.value, frozenset)
            column = self._column(value.name)
            found = kinds = 0
            for each in options.value:
                found |= column.compared("=", each)
                kinds |= column.of_kind(KIND_OF[type(each)])
            return kinds & ~found if node.negated else found
        if isinstance(value, Literal) and isinstance(options, Name):
            column = self._column(options.name)
            found = column.elements.get(value.value, 0)  # type: ignore[arg-type]  # a number or a text
            return column.sets & ~found if node.negated else found
        return None

    def _one_by_one(self, node: Node, among: int) -> int:
        for name in names_in(node):  # nothing compares as true with what is missing
            among &= self._column(name).present
        holds = compile_test(node)
        names, rows = self._names, self.rows
        found = 0
        for slot in slots_of(among):
            if holds(rows[names[slot]]):
                found |= 1 << slot
        return found

    def _column(self, name: str) -> "Column":
        return self._columns.get(name, _EMPTY)


_EMPTY = Column()


def _is_slow(node: Node) -> bool:
    """Whether it may have to be asked of each site: better of few."""
    match node:
        case Compare():
            return not (
                (isinstance(node.left, Name) and isinstance(node.right, Literal))
                or (isinstance(node.left, Literal) and isinstance(node.right, Name))
            )
        case And() | Or():
            return any(map(_is_slow, node.operands))
        case Not():
            return _is_slow(node.operand)
        case Within() | Name() | Exists() | Literal():
            return False
    return True
