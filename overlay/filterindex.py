"""Many filters against one row of attributes: only filters that can hold for the row are looked at.

Each filter is taken apart into conjunctions of conditions on single attributes (`conditions.py`). A tree
sorts them: by the value that an equality asks for, by the place of an interval, attribute after attribute.
Whatever it finds is then decided by the filter itself, so the tree need only never miss one.
"""

from collections.abc import Hashable, Iterable, Iterator
from math import floor, frexp, ldexp
from typing import Any, Generic, NamedTuple, TypeVar

from anabranch.overlay.attributes import NUMBER, Row, Value
from anabranch.overlay.conditions import Condition, Conjunction, Interval, OneOf, key_of, necessary
from anabranch.overlay.expressions import Expression

V = TypeVar("V", bound=Hashable)
LEAF_MAX = 12
"""Conjunctions that stay together unsorted: looking at them costs less than another level."""
VALUES_MAX = 16
"""Values of one condition that it is sorted under; with more, it is no better than none."""


class FilterIndex(Generic[V]):
    """Owners under filters; `find(row)` gives those with a filter that holds, each once."""

    def __init__(self) -> None:
        self._filters: dict[Expression, _Filter[V]] = {}
        self._root: _Node[V] = _Node(None)

    def __len__(self) -> int:
        """Number of different filters."""
        return len(self._filters)

    def add(self, expression: Expression, owner: V) -> None:
        """Let an owner have a filter."""
        known = self._filters.get(expression)
        if known is None:
            known = self._filters[expression] = _Filter(expression)
            for conjunction in necessary(expression.tree):
                self._root.add(_Entry(known, conjunction))
        known.owners[owner] = None

    def remove(self, expression: Expression, owner: V) -> None:
        """Take it away; what is not there changes nothing."""
        known = self._filters.get(expression)
        if known is None or owner not in known.owners:
            return
        del known.owners[owner]
        if not known.owners:
            del self._filters[expression]
            for entry in known.entries:
                for leaf in entry.leaves:
                    leaf.discard(entry)

    def owners(self) -> set[V]:
        """Everybody who has a filter."""
        return {owner for known in self._filters.values() for owner in known.owners}

    def find(self, row: Row) -> set[V]:
        """The owners of the filters that hold."""
        found: set[V] = set()
        for known in self.candidates(row):
            if known.matches(row):
                found.update(known.owners)
        return found

    def candidates(self, row: Row) -> "set[_Filter[V]]":
        """The filters that must be asked: what the tree cannot rule out."""
        found: set[_Filter[V]] = set()
        nodes = [self._root]
        while nodes:
            node = nodes.pop()
            for entry in node.entries:
                found.add(entry.filter)
            partitions = node.partitions
            for name in partitions if len(partitions) <= len(row) else row:
                value, partition = row.get(name), partitions.get(name)
                if value is not None and partition is not None:
                    partition.reach(value, nodes)
        return found


class _Filter(Generic[V]):
    """One filter and who has it."""

    __slots__ = ("entries", "matches", "owners")

    def __init__(self, expression: Expression) -> None:
        self.matches = expression.matches
        self.owners: dict[V, None] = {}
        self.entries: list[_Entry[V]] = []


class _Entry(Generic[V]):
    """One conjunction of a filter, and the nodes where it lies."""

    __slots__ = ("conjunction", "filter", "leaves")

    def __init__(self, filter_: _Filter[V], conjunction: Conjunction) -> None:
        self.filter = filter_
        self.conjunction = conjunction
        self.leaves: list[_Node[V]] = []
        filter_.entries.append(self)

    def sharpness(self, name: str) -> float:
        """How much its condition on an attribute rules out; 0 if nothing can be sorted by it."""
        condition = self.conjunction[name]
        return condition.sharpness if _is_sortable(condition) else 0.0


class _Node(Generic[V]):
    """Entries that no attribute on the way sorts any further, and partitions by further attributes."""

    __slots__ = ("entries", "limit", "parent", "partitions", "used")

    def __init__(self, parent: "_Branch[V] | None", used: frozenset[str] = frozenset()) -> None:
        self.parent = parent
        self.used = used
        """The attributes that entries here were sorted by already."""
        self.entries: dict[_Entry[V], None] = {}
        self.partitions: dict[str, _Partition[V]] = {}
        self.limit = LEAF_MAX

    def add(self, entry: _Entry[V]) -> None:
        """Put an entry here or below."""
        known = [(entry.sharpness(name), name) for name in entry.conjunction if name in self.partitions]
        sharpest, name = max(known, default=(0.0, ""))
        if sharpest:
            self.partitions[name].add(entry, entry.conjunction[name])
            return
        self.entries[entry] = None
        entry.leaves.append(self)
        if len(self.entries) > self.limit:
            self._sort()

    def discard(self, entry: _Entry[V]) -> None:
        """Take an entry away; what is empty goes."""
        del self.entries[entry]
        if not self.entries and not self.partitions and self.parent is not None:
            self.parent.prune(self)

    def prune(self, name: str) -> None:
        """A partition is empty."""
        del self.partitions[name]
        if not self.entries and not self.partitions and self.parent is not None:
            self.parent.prune(self)

    def _sort(self) -> None:
        """Each entry under that of its attributes which sorts the most: few partitions, if few names do."""
        weights: dict[str, float] = {}
        for entry in self.entries:
            for name in entry.conjunction.keys() - self.used:
                weights[name] = weights.get(name, 0.0) + entry.sharpness(name)
        for entry in list(self.entries):
            sortable = [name for name in entry.conjunction if name in weights and entry.sharpness(name)]
            if not sortable:
                continue
            name = max(sortable, key=lambda each: (weights[each], each))
            partition = self.partitions.get(name)
            if partition is None:
                partition = self.partitions[name] = _Partition(self, name)
            del self.entries[entry]
            entry.leaves.remove(self)
            partition.add(entry, entry.conjunction[name])
        self.limit = max(LEAF_MAX, 2 * len(self.entries))


class _Branch(Generic[V]):
    """What a node hangs on."""

    __slots__ = ()

    def prune(self, node: _Node[V]) -> None:
        """The node is empty."""
        raise NotImplementedError


class _Partition(_Branch[V]):
    """Entries of one node by their condition on one attribute: under the values that it asks for, under the
    cells that its interval touches, or in a tree of spans where it has one bound only."""

    __slots__ = ("keys", "name", "node", "scales", "spans", "values")

    def __init__(self, node: _Node[V], name: str) -> None:
        self.node = node
        self.name = name
        self.values: dict[Hashable, _Node[V]] = {}
        self.keys: dict[_Node[V], Hashable] = {}
        self.scales: dict[int, int] = {}
        """The widths of cells in use, as exponents of 2, and how many there are of each."""
        self.spans: dict[str, _Span[V]] = {}

    def add(self, entry: _Entry[V], condition: Condition) -> None:
        """Put an entry under what its condition asks for."""
        if isinstance(condition, OneOf):
            keys: Iterable[Hashable] = condition.keys
        elif cells := _cells_of(condition):
            keys = cells
        else:
            span = self.spans.get(condition.kind)
            if span is None:
                span = self.spans[condition.kind] = _Span(self, None, self.below())
            span.add(entry, condition)
            return
        for key in keys:
            node = self.values.get(key)
            if node is None:
                node = self.values[key] = _Node(self, self.below())
                self.keys[node] = key
                if isinstance(key, _Cell):
                    self.scales[key.scale] = self.scales.get(key.scale, 0) + 1
            node.add(entry)

    def below(self) -> frozenset[str]:
        """What entries under this are sorted by."""
        return self.node.used | {self.name}

    def reach(self, value: Value, nodes: list[_Node[V]]) -> None:
        """Add the nodes whose entries' conditions may hold for a value."""
        for key in _keys_of(value):
            node = self.values.get(key)
            if node is not None:
                nodes.append(node)
        if self.scales and not isinstance(value, str | frozenset):
            for scale in self.scales:
                cell = _cell_of(value, scale)
                if cell is not None and (node := self.values.get(cell)) is not None:
                    nodes.append(node)
        if self.spans:
            kind, point = key_of(value)
            span = self.spans.get(kind)
            if span is not None:
                span.reach(point, nodes)

    def prune(self, node: _Node[V]) -> None:
        """The node is empty."""
        key = self.keys.pop(node)
        del self.values[key]
        if isinstance(key, _Cell):
            self.scales[key.scale] -= 1
            if not self.scales[key.scale]:
                del self.scales[key.scale]
        self.check()

    def check(self) -> None:
        """Go if nothing is left."""
        if not self.values and not self.spans:
            self.node.prune(self.name)


class _Span(_Branch[V]):
    """Intervals of one kind: those around the split, those below it, those above. A tree of spans."""

    __slots__ = ("above", "around", "below", "parent", "partition", "split", "used")

    def __init__(self, partition: _Partition[V], parent: "_Span[V] | None", used: frozenset[str]) -> None:
        self.partition = partition
        self.parent = parent
        self.used = used
        self.split: Any = None
        """None as long as all lie together in `around`."""
        self.around: _Gathering[V] = _Gathering(self, used)
        self.below: _Span[V] | None = None
        self.above: _Span[V] | None = None

    def add(self, entry: _Entry[V], interval: Interval) -> None:
        """Put an entry where its interval lies."""
        span = self
        while span.split is not None:
            side = interval.side_of(span.split)
            if not side:
                break
            span = span._child(side)
        span.around.add(entry)

    def reach(self, point: Any, nodes: list[_Node[V]]) -> None:
        """Add the nodes with intervals that may hold a point."""
        span: _Span[V] | None = self
        while span is not None:
            if span.around.entries or span.around.partitions:
                nodes.append(span.around)
            if span.split is None or point == span.split:
                return
            span = span.below if point < span.split else span.above

    def divide(self) -> bool:
        """Split what lies together; False when no split would part it."""
        name = self.partition.name
        if self.split is not None:
            return False
        intervals = [each.conjunction[name] for each in self.around.entries]
        middles = sorted(each.middle for each in intervals if isinstance(each, Interval))
        split = middles[len(middles) // 2]
        if (
            sum(1 for each in intervals if isinstance(each, Interval) and each.side_of(split))
            < len(intervals) // 4
        ):
            return False
        self.split = split
        for entry in list(self.around.entries):
            interval = entry.conjunction[name]
            assert isinstance(interval, Interval)
            side = interval.side_of(split)
            if side:
                del self.around.entries[entry]
                entry.leaves.remove(self.around)
                self._child(side).add(entry, interval)
        return True

    def prune(self, node: _Node[V]) -> None:
        """The intervals around the split are gone."""
        del node
        self.check()

    def check(self) -> None:
        """Go if nothing is left."""
        if self.below is None and self.above is None and not (self.around.entries or self.around.partitions):
            parent = self.parent
            if parent is None:
                partition = self.partition
                partition.spans = {kind: span for kind, span in partition.spans.items() if span is not self}
                partition.check()
            else:
                if parent.below is self:
                    parent.below = None
                else:
                    parent.above = None
                parent.check()

    def _child(self, side: int) -> "_Span[V]":
        child = self.below if side < 0 else self.above
        if child is None:
            child = _Span(self.partition, self, self.used)
            if side < 0:
                self.below = child
            else:
                self.above = child
        return child


class _Gathering(_Node[V]):
    """The node of a span: it rather splits the span than sorts by another attribute."""

    __slots__ = ("span",)

    def __init__(self, span: _Span[V], used: frozenset[str]) -> None:
        super().__init__(span, used)
        self.span = span

    def _sort(self) -> None:
        if not self.span.divide() or len(self.entries) > self.limit:
            super()._sort()


def _is_sortable(condition: Condition) -> bool:
    return isinstance(condition, Interval) or (
        isinstance(condition, OneOf) and len(condition.keys) <= VALUES_MAX
    )


class _Cell(NamedTuple):
    """A piece of the line of numbers: from `place` times its width on; the width is 2 to the `scale`."""

    scale: int
    place: int


def _cells_of(interval: Interval) -> list[_Cell]:
    """The one or two cells, up to twice as wide as the interval, that it touches; none without two bounds."""
    if interval.kind != NUMBER or interval.low is None or interval.high is None:
        return []
    length = interval.high - interval.low
    scale = frexp(length)[1] if 0 < length < float("inf") else 0
    first, last = _cell_of(interval.low, scale), _cell_of(max(interval.low, interval.high), scale)
    if first is None or last is None or last.place - first.place > VALUES_MAX:
        return []
    return [_Cell(scale, place) for place in range(first.place, last.place + 1)]


def _cell_of(value: float, scale: int) -> _Cell | None:
    try:
        return _Cell(scale, floor(ldexp(value, -scale)))
    except OverflowError:  # so far out that no cell of this width is there
        return None


def _keys_of(value: Value) -> Iterable[Hashable]:
    if isinstance(value, frozenset):
        return _element_keys(value)
    return (key_of(value),)


def _element_keys(elements: frozenset[int | float | str]) -> Iterator[Hashable]:
    for each in elements:
        yield ("element", each)
