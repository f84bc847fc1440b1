"""What many sites say of one attribute, value by value: each question gives the set of sites as the bits of a
whole number. `siteindex.py` puts the questions together.
"""

from bisect import bisect_left, bisect_right
from typing import Any

from anabranch.overlay.attributes import BOOLEAN, KIND_OF, NUMBER, SET, Value

BLOCK_MAX = 256
"""Values in one block of a sorted column."""
FEW = 200
"""So many bits are picked one by one."""


class Column:
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


def slots_of(bits: int) -> list[int]:
    """The numbers of the bits that are set, lowest first."""
    if bits.bit_count() > FEW:
        return [slot for slot, each in enumerate(bin(bits)[:1:-1]) if each == "1"]
    found = []
    while bits:
        low = bits & -bits
        found.append(low.bit_length() - 1)
        bits ^= low
    return found
