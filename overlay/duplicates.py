"""Sequence numbers seen lately, within a bounded window."""

WINDOW_BITS = 1024
_MASK = (1 << WINDOW_BITS) - 1


class SequenceWindow:
    """Remembers which of the last 1,024 sequence numbers were seen; older ones count as seen."""

    __slots__ = ("_highest", "_seen")

    def __init__(self) -> None:
        self._highest = -1
        self._seen = 0

    def is_new(self, sequence: int) -> bool:
        """Whether this number is seen for the first time; it counts as seen afterwards."""
        ahead = sequence - self._highest
        if ahead == 1:
            self._seen = (self._seen << 1 | 1) & _MASK
            self._highest = sequence
            return True
        if ahead > 0:
            self._seen = (self._seen << ahead | 1) & _MASK if ahead < WINDOW_BITS else 1
            self._highest = sequence
            return True
        if -ahead >= WINDOW_BITS:
            return False
        bit = 1 << -ahead
        if self._seen & bit:
            return False
        self._seen |= bit
        return True
