"""Plays a trace back: which node stands for which peer, and which delays change when. Moves no frames.

Asked by the simulator's stage and by the testbed, which carry the changes out.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from anabranch.overlay.errors import UsageError
from anabranch.tools.scenarios.schema import Pair, Recorded, Scenario
from anabranch.tools.traces.reading import Reading, load_trace
from anabranch.tools.traces.trace import DEFAULT_SLICE_S, Floats, Trace, held

Step = tuple[float | None, float]
"""What a direction is like from now on: its one-way delay in seconds (None: nothing arrives), its loss."""

SAME_PLACE_S = 0.0005
"""One way between two peers at the same node of the trace."""
CHANGE_S = 1e-5
"""A smaller change of a delay is none."""


def trace_of(table: Recorded) -> Trace:
    """The trace that a scenario names, without the slices that it leaves out."""
    zero: str | float = table.zero if isinstance(table.zero, str) else table.zero / 1e3
    how = Reading(table.unit, table.measure, table.slice_s, zero)
    return load_trace(Path(table.file), how).window(table.first_slice, table.last_slice)


class Playback:
    """The trace of one run. Which nodes take part is drawn by the seed, unless the scenario names them."""

    def __init__(self, scenario: Scenario, peers: Sequence[str], ways: Sequence[Pair], seed: int) -> None:
        assert scenario.trace is not None
        table = scenario.trace
        self._trace = trace = trace_of(table)
        self._start_s = scenario.run.warmup_s
        self.slice_s = table.slice_s or trace.slice_s or DEFAULT_SLICE_S
        self._missing_is_down = table.missing == "down"
        self.nodes = dict(zip(peers, self._choose(table, peers, seed), strict=True))
        """The node of the trace that each peer stands for."""
        self._ways = list(ways)

    @property
    def end_s(self) -> float:
        """When the last slice is over."""
        return self._start_s + self._trace.slices * self.slice_s

    def _choose(self, table: Recorded, peers: Sequence[str], seed: int) -> list[str]:
        if table.nodes:
            if len(table.nodes) != len(peers):
                raise UsageError(f"trace.nodes names {len(table.nodes)} nodes for {len(peers)} peers")
            for node in table.nodes:
                self._trace.index(node)
            return list(table.nodes)
        if len(peers) > len(self._trace.measured_nodes()):
            return self._trace.spread(len(peers))
        return self._trace.choose(len(peers), seed)

    def steps(self) -> Iterator[tuple[float, dict[Pair, Step]]]:
        """(when, what changes), in order of time. The first one is at time 0 and has every direction."""
        delays, losses = self._series()
        before: list[Step | None] = [None] * len(self._ways)
        for number in range(self._trace.slices):
            changes: dict[Pair, Step] = {}
            for index, way in enumerate(self._ways):
                delay, loss = float(delays[number, index]), float(losses[number, index])
                step: Step = (None if np.isnan(delay) else delay, min(loss, 1.0))
                if _differs(before[index], step):
                    before[index] = changes[way] = step
            if changes:
                yield (self._start_s + number * self.slice_s if number else 0.0), changes

    def _series(self) -> tuple[Floats, Floats]:
        delays = np.empty((self._trace.slices, len(self._ways)), dtype=np.float32)
        losses = np.zeros_like(delays)
        for index, (source, target) in enumerate(self._ways):
            a, b = self.nodes[source], self.nodes[target]
            if a == b:
                delays[:, index] = SAME_PLACE_S
                continue
            there, lost = self._trace.series(a, b)
            back, _ = self._trace.series(b, a)
            if self._missing_is_down:
                delays[:, index] = there
            else:  # what was never measured is as it was the other way
                delays[:, index] = held(back if np.isnan(there).all() else there)
            losses[:, index] = lost
        return delays, losses


def _differs(before: Step | None, now: Step) -> bool:
    if before is None or (before[0] is None) != (now[0] is None) or abs(before[1] - now[1]) > 1e-4:
        return True
    return before[0] is not None and now[0] is not None and abs(before[0] - now[0]) > CHANGE_S
