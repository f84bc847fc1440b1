"""How much bulk may be under way on a link: about what it carries within some milliseconds.

What a socket and the kernel have taken in can't be overtaken. So bulk waits in the link's queue instead,
where it can: the window follows the time that acknowledgements take, more closely while urgent bundles pass.
"""

from math import inf

FIRST_BYTES = 256 * 1024
LEAST_BYTES = 32 * 1024
MOST_BYTES = 4 * 1024 * 1024
"""So much is enough for the fastest links; more is not counted."""
URGENT_WAIT_S = 0.01
"""While urgent bundles pass, what is under way in front of them shall take about this long."""
USUAL_WAIT_S = 0.02
"""The same while none do: the first one that comes finds no more."""
BUNDLES = 4
"""The window holds so many bundles of bulk at least, so that one of them is no obstacle either."""
ASKS = 4
"""So many acknowledgements are asked for in each window."""
BASE_MEMORY_S = 10.0
"""What an acknowledgement takes at least is measured again after this long: the network may have changed."""


class Window:
    """Bytes of bulk that may be under way."""

    __slots__ = ("_base_at", "_base_s", "_measuring_from", "_since_judged", "bytes")

    def __init__(self) -> None:
        self.bytes = FIRST_BYTES
        self._base_s = inf
        """What an acknowledgement takes with little under way."""
        self._base_at = 0.0
        """When that was measured."""
        self._measuring_from = inf
        """Since when little is let go, for measuring."""
        self._since_judged = 0
        """Bytes acknowledged since it was last made smaller."""

    @property
    def room_bytes(self) -> float:
        """Bulk may leave while less than this is under way."""
        if self._measuring_from < inf:
            return max(LEAST_BYTES, self.ask_bytes)
        return self.bytes if self.bytes < MOST_BYTES else inf

    @property
    def ask_bytes(self) -> int:
        """After so many bytes an acknowledgement is asked for: the window moves on before it is full."""
        return self.bytes // ASKS

    @property
    def bundle_max_bytes(self) -> int:
        """How large a bundle of bulk should be."""
        return self.bytes // BUNDLES

    def acknowledged(self, size: int, asked_at: float, now: float, was_full: bool, wait_s: float) -> None:
        """Bytes arrived; the last of them that asked to be told at once left at `asked_at`. Waiting shall
        take `wait_s`."""
        took_s = now - asked_at
        if asked_at >= self._measuring_from or took_s < self._base_s or self.bytes == LEAST_BYTES:
            self._base_s, self._base_at, self._measuring_from = took_s, now, inf
        elif was_full and now - self._base_at > BASE_MEMORY_S and self._measuring_from == inf:
            self._measuring_from = now
        if self._measuring_from < inf:
            return
        self._since_judged += size
        wanted_s = self._base_s + wait_s
        if took_s <= wanted_s:
            if was_full:
                self.bytes = min(MOST_BYTES, self.bytes + size)
        elif self._since_judged * 2 >= self.bytes:  # once for those that were under way together
            self.bytes = max(LEAST_BYTES, int(self.bytes * max(0.5, wanted_s / took_s)))
            self._since_judged = 0
