"""Sequence numbers seen lately, within a bounded window."""

WINDOW_BITS = 1024
_MASK = (1 << WINDOW_BITS) - 1
_ACKNOWLEDGED = (1 << 65) - 1


class SequenceWindow:
    """Remembers which of the last 1,024 sequence numbers were seen; older ones count as seen."""

    __slots__ = ("_seen", "next")

    def __init__(self) -> None:
        self.next = 0
        """The number after the highest that was seen. Read-only outside of this class."""
        self._seen = 0

    @property
    def bits(self) -> int:
        """Which of the 64 numbers before the highest were seen; bit 0 is the one just before."""
        return (self._seen & _ACKNOWLEDGED) >> 1

    def is_new(self, sequence: int) -> bool:
        """Whether this number is seen for the first time; it counts as seen afterwards."""
        ahead = sequence - self.next + 1
        if ahead == 1:
            self._seen = (self._seen << 1 | 1) & _MASK
            self.next = sequence + 1
            return True
        if ahead > 0:
            self._seen = (self._seen << ahead | 1) & _MASK if ahead < WINDOW_BITS else 1
            self.next = sequence + 1
            return True
        if -ahead >= WINDOW_BITS:
            return False
        bit = 1 << -ahead
        if self._seen & bit:
            return False
        self._seen |= bit
        return True
