"""One expression against many sites: each condition gives the set of sites for which it holds, as the bits of
one whole number, so that `and`, `or` and `not` cost the same few operations whatever stands below them.
"""

from bisect import bisect_left, bisect_right
from itertools import compress
from typing import Any

from anabranch.overlay.attributes import BOOLEAN, KIND_OF, NUMBER, SET, Row, Value
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

BLOCK_MAX = 256
"""Values in one block of a sorted column."""
FEW = 200
"""So many bits are picked one by one."""


class SiteIndex:
    """Rows of attributes by name; `find(expression)` gives the names whose row it holds for."""

    def __init__(self) -> None:
        self.rows: dict[str, Row] = {}
        """What is held; to be changed by `set` and `remove` only."""
        self._slots: dict[str, int] = {}
        self._names: list[str] = []
        self._free: list[int] = []
        self._all = 0
        self._columns: dict[str, _Column] = {}

    def set(self, name: str, row: Row) -> None:
        """A site has these attributes now."""
        old = self.rows.get(name, {})
        slot = self._slots.get(name)
        if slot is None:
            slot = self._slots[name] = self._take_slot(name)
        self.rows[name] = row
        self._replace(slot, old, row)

    def remove(self, name: str) -> None:
        """A site is gone; an unknown one changes nothing."""
        row = self.rows.pop(name, None)
        if row is not None:
            slot = self._slots.pop(name)
            self._replace(slot, row, {})
            self._all &= ~(1 << slot)
            self._free.append(slot)

    def find(self, expression: Expression) -> frozenset[str]:
        """The sites for which it holds."""
        return frozenset(self._named(self._holding(expression.tree, self._all)))

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
                    self._columns[name] = _Column()
                self._columns[name].add(value, slot, bit)

    def _named(self, bits: int) -> list[str]:
        if bits.bit_count() > FEW:
            return list(compress(self._names, map("1".__eq__, bin(bits)[:1:-1])))
        return [self._names[slot] for slot in _slots_of(bits)]

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
        for slot in _slots_of(among):
            if holds(rows[names[slot]]):
                found |= 1 << slot
        return found

    def _column(self, name: str) -> "_Column":
        return self._columns.get(name, _EMPTY)


class _Column:
    """One attribute of all sites."""

    __slots__ = ("elements", "false", "numbers", "present", "sets", "texts", "true")

    def __init__(self) -> None:
        self.present = 0
        self.true = 0
        self.false = 0
        self.sets = 0
        self.numbers = _Sorted()
        self.texts = _Sorted()
        self.elements: dict[int | float | str, int] = {}

    def add(self, value: Value, slot: int, bit: int) -> None:
        """A site has this value."""
        self.present |= bit
        if isinstance(value, frozenset):
            self.sets |= bit
            for each in value:
                self.elements[each] = self.elements.get(each, 0) | bit
        elif isinstance(value, bool):
            if value:
                self.true |= bit
            else:
                self.false |= bit
        else:
            self.sorted_of(KIND_OF[type(value)]).add(value, slot, bit)

    def remove(self, value: Value, slot: int, bit: int) -> None:
        """It no longer has."""
        self.present &= ~bit
        if isinstance(value, frozenset):
            self.sets &= ~bit
            for each in value:
                left = self.elements[each] & ~bit
                if left:
                    self.elements[each] = left
                else:
                    del self.elements[each]
        elif isinstance(value, bool):
            self.true &= ~bit
            self.false &= ~bit
        else:
            self.sorted_of(KIND_OF[type(value)]).remove(value, slot, bit)

    def of_kind(self, kind: str) -> int:
        """The sites where it is of a kind."""
        if kind == BOOLEAN:
            return self.true | self.false
        return self.sets if kind == SET else self.sorted_of(kind).bits

    def sorted_of(self, kind: str) -> "_Sorted":
        """The numbers, or the texts."""
        return self.numbers if kind == NUMBER else self.texts

    def compared(self, op: str, value: Any) -> int:
        """The sites where it compares so with a number, text or boolean."""
        kind = KIND_OF[type(value)]
        if kind == BOOLEAN:
            return self.true if value is (op == "=") else self.false
        column = self.sorted_of(kind)
        match op:
            case "=":
                return column.between(value, value)
            case "!=":
                return column.bits & ~column.between(value, value)
            case "<":
                return column.bits & ~column.between(value, None)
            case "<=":
                return column.between(None, value)
            case ">":
                return column.bits & ~column.between(None, value)
        return column.between(value, None)

    def related(self, op: str, wanted: frozenset[int | float | str], negated: bool) -> int:
        """The sites where it is a set in this relation to another."""
        found = self.sets
        if op == "intersects":
            found = 0
            for each in wanted:
                found |= self.elements.get(each, 0)
        else:
            if op != "subset":
                for each in wanted:
                    found &= self.elements.get(each, 0)
            if op != "superset":
                for each, bits in self.elements.items():
                    if each not in wanted:
                        found &= ~bits
        return self.sets & ~found if negated or op == "!=" else found


class _Sorted:
    """Values of one kind in order, in blocks that know their sites as bits."""

    __slots__ = ("bits", "blocks", "firsts")

    def __init__(self) -> None:
        self.bits = 0
        self.firsts: list[Any] = []
        self.blocks: list[_Block] = []

    def add(self, value: Any, slot: int, bit: int) -> None:
        """A site has this value."""
        self.bits |= bit
        if not self.blocks:
            self.blocks.append(_Block([value], [slot], bit))
            self.firsts.append(value)
            return
        number = max(0, bisect_right(self.firsts, value) - 1)
        block = self.blocks[number]
        at = bisect_right(block.values, value)
        block.values.insert(at, value)
        block.slots.insert(at, slot)
        block.bits |= bit
        self.firsts[number] = block.values[0]
        if len(block.values) > BLOCK_MAX:
            half = BLOCK_MAX // 2
            rest = _Block(block.values[half:], block.slots[half:], 0)
            del block.values[half:], block.slots[half:]
            for each in rest.slots:
                rest.bits |= 1 << each
            block.bits &= ~rest.bits
            self.blocks.insert(number + 1, rest)
            self.firsts.insert(number + 1, rest.values[0])

    def remove(self, value: Any, slot: int, bit: int) -> None:
        """It no longer has."""
        self.bits &= ~bit
        number = max(0, bisect_left(self.firsts, value) - 1)
        while not self.blocks[number].bits & bit:
            number += 1
        block = self.blocks[number]
        at = block.slots.index(slot)
        del block.values[at], block.slots[at]
        block.bits &= ~bit
        if block.values:
            self.firsts[number] = block.values[0]
        else:
            del self.blocks[number], self.firsts[number]

    def between(self, low: Any, high: Any) -> int:
        """The sites from one value to another, both included; None is no bound."""
        found = 0
        number = 0 if low is None else max(0, bisect_left(self.firsts, low) - 1)
        for block in self.blocks[number:]:
            values = block.values
            if high is not None and values[0] > high:
                break
            begin = 0 if low is None or values[0] >= low else bisect_left(values, low)
            end = len(values) if high is None or values[-1] <= high else bisect_right(values, high)
            if begin == 0 and end == len(values):
                found |= block.bits
            elif end - begin <= len(values) // 2:
                for slot in block.slots[begin:end]:
                    found |= 1 << slot
            else:
                outside = 0
                for slot in block.slots[:begin] + block.slots[end:]:
                    outside |= 1 << slot
                found |= block.bits & ~outside
        return found


class _Block:
    __slots__ = ("bits", "slots", "values")

    def __init__(self, values: list[Any], slots: list[int], bits: int) -> None:
        self.values = values
        self.slots = slots
        self.bits = bits


_EMPTY = _Column()


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


def _slots_of(bits: int) -> list[int]:
    if bits.bit_count() > FEW:
        return [slot for slot, each in enumerate(bin(bits)[:1:-1]) if each == "1"]
    found = []
    while bits:
        low = bits & -bits
        found.append(low.bit_length() - 1)
        bits ^= low
    return found
