"""A recorded network: one-way delays (and losses) between nodes, slice by slice. Reads and writes no files.

Made by `reading.py`, or by `recording.py` from peers' logs; played back by `playback.py`.
"""

import random
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from anabranch.overlay.errors import UsageError

Floats = npt.NDArray[np.float32]

NODES_MAX = 5000
VALUES_MAX = 200_000_000
"""Slices times nodes squared: what is larger does not fit into memory."""
DEFAULT_SLICE_S = 15.0
"""For traces that don't say how long their slices are."""


class Trace:
    """`delays_s[slice, source, target]` is the one-way delay in seconds; NaN where nothing was measured."""

    def __init__(
        self,
        nodes: Sequence[str],
        delays_s: Floats,
        *,
        losses: Floats | None = None,
        slice_s: float | None = None,
    ) -> None:
        if delays_s.ndim != 3 or delays_s.shape[1:] != (len(nodes), len(nodes)) or not len(delays_s):
            raise UsageError(
                f"a trace of {len(nodes)} nodes needs matrices of {len(nodes)} × {len(nodes)}, "  # noqa: RUF001
                f"one per slice; these have the shape {delays_s.shape}"
            )
        if len(set(nodes)) != len(nodes):
            twice = next(name for name in nodes if list(nodes).count(name) > 1)
            raise UsageError(f"node {twice!r} stands twice in the trace: names are unique")
        self.nodes = list(nodes)
        self.delays_s = delays_s
        self.losses = losses
        """Shares of lost probes in the same form; None when the trace has no losses."""
        self.slice_s = slice_s
        """How long a slice lasts; None when the trace does not say."""

    @property
    def slices(self) -> int:
        """How many there are."""
        return len(self.delays_s)

    def choose(self, count: int, seed: int) -> list[str]:
        """So many nodes, drawn by seed among those that were measured at all, in the order of the trace."""
        known = self.measured_nodes()
        if count > len(known):
            raise UsageError(f"{count} peers: the trace has {len(known)} nodes with measurements")
        rng = random.Random(f"{seed}/nodes")  # noqa: S311 - must be repeatable
        return [known[index] for index in sorted(rng.sample(range(len(known)), count))]

    def spread(self, count: int) -> list[str]:
        """So many peers over all nodes: several peers at one node when there are more peers than nodes."""
        known = self.measured_nodes()
        return [known[number % len(known)] for number in range(count)]

    def measured_nodes(self) -> list[str]:
        """The nodes with at least one measurement towards another node."""
        seen = np.array(~np.isnan(self.delays_s).all(axis=0))
        np.fill_diagonal(seen, val=False)
        has = np.atleast_1d(np.logical_or(seen.any(axis=1), seen.any(axis=0)))
        return [name for name, there in zip(self.nodes, has, strict=True) if there]

    def series(self, source: str, target: str) -> tuple[Floats, Floats]:
        """(delays, losses) of one direction over all slices."""
        a, b = self.index(source), self.index(target)
        delays = self.delays_s[:, a, b]
        losses = self.losses[:, a, b] if self.losses is not None else np.zeros_like(delays)
        return delays, np.nan_to_num(losses)

    def index(self, node: str) -> int:
        """The row of a node."""
        try:
            return self.nodes.index(node)
        except ValueError:
            shown = ", ".join(self.nodes[:8]) + (", ..." if len(self.nodes) > 8 else "")
            raise UsageError(f"no node {node!r} in the trace: one of {shown}") from None

    def window(self, first: int, last: int | None) -> "Trace":
        """The slices from `first` on, up to `last` (excluded)."""
        stop = self.slices if last is None else min(last, self.slices)
        if not 0 <= first < stop:
            raise UsageError(f"slices {first} to {last}: the trace has slices 0 to {self.slices - 1}")
        return Trace(
            self.nodes,
            self.delays_s[first:stop],
            losses=None if self.losses is None else self.losses[first:stop],
            slice_s=self.slice_s,
        )


def held(values: Floats) -> Floats:
    """A series in which what is missing keeps the last value; before the first one, the first."""
    known = ~np.isnan(values)
    if not known.any():
        return values
    last = np.maximum.accumulate(np.where(known, np.arange(len(values)), -1))
    last[last < 0] = int(np.argmax(known))
    return values[last]
