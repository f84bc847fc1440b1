"""Virtual time: one heap of events, one clock, one trace. Knows nothing of peers or frames."""

import gc
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from heapq import heappop, heappush
from itertools import count
from typing import Any

from anabranch.overlay.errors import UsageError
from anabranch.transport.simulator.metering import Meter
from anabranch.transport.simulator.trace import Trace

GARBAGE_MIN_OBJECTS = 500_000
"""New objects between two collections of garbage during a run."""

Handler = Callable[[float, Any, Any], None]
"""Called as handler(time, subject, detail)."""


class Engine:
    """Runs handlers in the order of their time; at the same time, in the order they were scheduled."""

    def __init__(self, seed: int, check_every: int) -> None:
        self.seed = seed
        self.now = 0.0
        self.heap: list[tuple[float, int, Handler, Any, Any]] = []
        self.serial = count()
        self.events = 0
        """Frames received, timers fired and steps of applications so far."""
        self.trace = Trace()
        self.meter: Meter | None = None
        self.check_every = check_every
        """Check a peer's invariants after every n-th event; 0 never."""
        self.network_rng = self.rng("network")

    def rng(self, purpose: str) -> random.Random:
        """A source of randomness of its own for each purpose, so that one doesn't shift the others."""
        return random.Random(f"{self.seed}/{purpose}")  # noqa: S311 - must be repeatable

    def at(self, time: float, handler: Handler, subject: Any = None, detail: Any = None) -> None:
        """Schedule a call; a time in the past means now."""
        heappush(
            self.heap, (time if time > self.now else self.now, next(self.serial), handler, subject, detail)
        )

    def run_until(self, time: float) -> None:
        """Let everything happen that is due by then; the clock stands there afterwards."""
        if time < self.now:
            raise UsageError(f"run_until({time}): the clock already stands at {self.now} s")
        heap = self.heap
        handler: Handler | None = None
        try:
            with _few_collections():
                while heap and heap[0][0] <= time:
                    now, _, handler, subject, detail = heappop(heap)
                    self.now = now
                    handler(now, subject, detail)
        except Exception as error:
            error.add_note(
                f"simulation with seed {self.seed} at {self.now:.6f} s, after {self.events} events, "
                f"in {getattr(handler, '__qualname__', handler)}"
            )
            raise
        self.now = time


@contextmanager
def _few_collections() -> Iterator[None]:
    """A large mesh is a large heap of live objects: looking through it all the time costs a third."""
    thresholds = gc.get_threshold()
    gc.set_threshold(GARBAGE_MIN_OBJECTS, *thresholds[1:])
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
