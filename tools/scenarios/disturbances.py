"""What the network does now: the conditions of the file under whatever disturbs them. Moves no frames."""

from collections.abc import Iterable, Mapping

from anabranch.tools.scenarios.layout import Layout, to_conditions
from anabranch.tools.scenarios.schema import ConditionKeys, Pair
from anabranch.tools.scenarios.timeline import Happening
from anabranch.transport.simulator import Conditions

Changed = dict[Pair, Conditions]
"""Directions whose conditions are others now."""


class Disturbances:
    """Conditions by direction. Several disturbances of one direction add up, the later ones on top."""

    def __init__(self, layout: Layout) -> None:
        self._default = layout.default
        self._base = dict(layout.conditions)
        self._active: dict[Pair, dict[int, Happening]] = {}

    def begin(self, number: int, happening: Happening) -> Changed:
        """A `degrade`, `fail`, `restore` or `set` happens; `number` is its own, for `end`."""
        for way in happening.ways:
            if happening.do == "restore":
                self._active.pop(way, None)
            elif happening.do == "set":
                assert happening.changes is not None
                self._base[way] = to_conditions(happening.changes, self._base.get(way, self._default))
            else:
                self._active.setdefault(way, {})[number] = happening
        return self._now(happening.ways)

    def rebase(self, steps: Mapping[Pair, tuple[float | None, float]]) -> Changed:
        """A recorded network goes on: delays (None: nothing arrives) and losses that disturbances top."""
        for way, (delay_s, loss) in steps.items():
            base = self._base.get(way, self._default)
            if delay_s is None:
                self._base[way] = base.replace(blackhole=True)
            else:
                loss = loss or self._default.loss
                self._base[way] = base.replace(blackhole=False, delay_s=delay_s, loss=loss)
        return self._now(steps)

    def end(self, number: int, happening: Happening) -> Changed:
        """Its time is over; one that was restored already changes nothing."""
        over = [way for way in happening.ways if self._active.get(way, {}).pop(number, None) is not None]
        return self._now(over)

    def _now(self, ways: Iterable[Pair]) -> Changed:
        return {way: self._conditions(way) for way in ways}

    def _conditions(self, way: Pair) -> Conditions:
        conditions = self._base.get(way, self._default)
        for happening in self._active.get(way, {}).values():
            if happening.do == "fail":
                conditions = conditions.replace(blackhole=True)
            else:
                conditions = to_conditions(happening.changes or ConditionKeys(), conditions)
        return conditions
