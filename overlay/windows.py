"""How much bulk may be under way on a link that urgent bundles use too: no more than it carries at once.

What a socket and the kernel have taken in can't be overtaken. While urgent bundles pass, bulk waits in the
link's queue instead, where it can: the window follows the time that acknowledgements take.
"""

from math import inf

FIRST_BYTES = 64 * 1024
LEAST_BYTES = 16 * 1024
MOST_BYTES = 8 * 1024 * 1024
DELAY_WANTED_S = 0.004
"""What waits in front of an urgent bundle shall take about this long."""
BUNDLES = 4
"""The window is filled by so many bundles of bulk at least, so that one of them is no obstacle either."""


class Window:
    """Bytes of bulk that may be under way."""

    __slots__ = ("_base_s", "_grown", "bytes")

    def __init__(self) -> None:
        self.bytes = FIRST_BYTES
        self._base_s = inf
        """The least time that an acknowledgement took."""
        self._grown = 0
        """Bytes acknowledged since the window was last judged."""

    @property
    def bundle_max_bytes(self) -> int:
        """How large a bundle of bulk should be."""
        return max(LEAST_BYTES // BUNDLES, self.bytes // BUNDLES)

    def acknowledged(self, size: int, took_s: float, was_full: bool) -> None:
        """Bytes arrived, the last of them this long after they were sent."""
        self._base_s = min(self._base_s, took_s)
        self._grown += size
        wanted_s = self._base_s + DELAY_WANTED_S
        if took_s > wanted_s:
            if self._grown * 2 >= self.bytes:  # not for each of those that were under way together
                self.bytes = max(LEAST_BYTES, int(self.bytes * max(0.5, wanted_s / took_s)))
                self._grown = 0
        elif was_full:
            self.bytes = min(MOST_BYTES, self.bytes + size)
            self._grown = 0
