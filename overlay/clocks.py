"""A clock that neighbours agree on well enough to tell the two directions of a link apart. Knows no links.

Every peer moves its own clock by the median of what its links seem to be askew. Comparing paths needs no
more: on all paths between the same two peers the errors of the clocks add up to the same.
"""

from statistics import median

ADJUST_INTERVAL_S = 0.2
FAR_S = 0.05
"""Further apart than this, clocks meet quickly; then slowly, so that what was told stays comparable."""
QUICK_SHARE, SLOW_SHARE = 0.5, 0.1
CLOSE_S = 0.005
"""After some looks in a row that found it no further off, a clock is trusted, until it is far off again."""
LOOKS_TO_SETTLE = 4


class MeshClock:
    """Starts at the wall clock's time of the peer's epoch, runs with its monotonic clock."""

    def __init__(self, epoch_us: int) -> None:
        self._base_s = epoch_us / 1e6
        self._first: float | None = None
        self._adjusted_at = -1e9
        self._close_looks = 0

    @property
    def is_settled(self) -> bool:
        """Whether it agrees with the neighbours' clocks."""
        return self._close_looks >= LOOKS_TO_SETTLE

    def read(self, now: float) -> float:
        """What it shows."""
        if self._first is None:
            self._first = now
        return self._base_s + (now - self._first)

    def is_due(self, now: float) -> bool:
        """Whether `adjust` may move it again."""
        return now - self._adjusted_at >= ADJUST_INTERVAL_S

    def adjust(self, offsets: list[float], now: float) -> float:
        """By how much it moved; `offsets` are how much later than ours the neighbours' clocks seem to be."""
        if not offsets or not self.is_due(now):
            return 0.0
        self._adjusted_at = now
        apart = median(offsets)
        if abs(apart) > FAR_S:
            self._close_looks = 0
        elif not self.is_settled:
            self._close_looks = self._close_looks + 1 if abs(apart) <= CLOSE_S else 0
        step = apart * (QUICK_SHARE if not self.is_settled else SLOW_SHARE)
        self._base_s += step
        return step
