"""When something is due: named timers on one heap. Knows times, decides nothing."""

import heapq
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
SLACK = 64
"""Disarmed timers that may stay on the heap beside as many as are armed."""


class Timers(Generic[K]):
    """A table of deadlines by key. Setting a key again moves it."""

    def __init__(self) -> None:
        self._due: dict[K, float] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._counter = 0
        self._is_changed = False

    def set(self, key: K, due: float) -> None:
        """Arm a timer, or move it."""
        self._due[key] = due
        self._counter += 1
        self._is_changed = True
        heapq.heappush(self._heap, (due, self._counter, key))

    def set_earliest(self, key: K, due: float) -> None:
        """Arm a timer unless it is due earlier anyway."""
        current = self._due.get(key)
        if current is None or due < current:
            self.set(key, due)

    def cancel(self, key: K) -> None:
        """Disarm a timer; an unknown key changes nothing."""
        self._due.pop(key, None)
        if len(self._heap) > 2 * len(self._due) + SLACK:
            self._heap = [entry for entry in self._heap if self._due.get(entry[2]) == entry[0]]
            heapq.heapify(self._heap)

    def next(self) -> float | None:
        """When the earliest timer is due."""
        heap = self._heap
        while heap and self._due.get(heap[0][2]) != heap[0][0]:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def news(self) -> float | None:
        """When the earliest timer is due, if any was armed or some were taken since the last call."""
        if not self._is_changed:
            return None
        self._is_changed = False
        return self.next()

    def are_due(self, now: float) -> list[K]:
        """The timers that are due, in no order; they stay armed."""
        armed = self._due
        return [key for due, _, key in self._heap if due <= now and armed.get(key) == due]

    def pop_due(self, now: float) -> list[tuple[float, K]]:
        """The timers that are due, disarmed, in order of their time."""
        due: list[tuple[float, K]] = []
        self._is_changed = True
        while (first := self.next()) is not None and first <= now:
            _, _, key = heapq.heappop(self._heap)
            del self._due[key]
            due.append((first, key))
        return due
