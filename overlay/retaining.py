"""What was sent over a link and is not acknowledged yet: for sending again what got lost, or another way.

Bounded by bytes: beyond, the oldest are trusted to have arrived. Knows nothing of time-outs.
"""

from collections import deque
from collections.abc import Callable

from anabranch.overlay.bundles import OutBundle

BITS = 64
"""How far before the highest number an acknowledgement tells each one."""


class Retained:
    """Bundles under way on one link, oldest first."""

    __slots__ = ("_bytes_max", "_sent", "acknowledged_to", "bytes", "on_first")

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._sent: deque[tuple[int, float, OutBundle, bool]] = deque()
        """Hop sequence, when it left, what, and whether it asked for an acknowledgement at once."""
        self.bytes = 0
        """Bytes under way, as far as they are remembered."""
        self.acknowledged_to = 0
        """The hop sequence that the neighbour expects next, by what it last said."""
        self.on_first: Callable[[float], None] | None = None
        """Told the time when something is under way while nothing was before."""

    def __len__(self) -> int:
        return len(self._sent)

    @property
    def oldest_at(self) -> float:
        """When the oldest was sent; there must be one."""
        return self._sent[0][1]

    def add(self, sequence: int, bundle: OutBundle, now: float, asked: bool = False) -> None:
        """A bundle was handed to the socket under this hop sequence; `asked`: to be acknowledged at once."""
        sent = self._sent
        if not sent and self.on_first is not None:
            self.on_first(now)
        sent.append((sequence, now, bundle, asked))
        self.bytes += bundle.size
        while self.bytes > self._bytes_max and len(sent) > 1:
            self.bytes -= sent.popleft()[2].size

    def acknowledge(self, arrived_to: int, bits: int) -> tuple[list[OutBundle], int, float]:
        """The neighbour tells what arrived: (those that did not, bytes no longer under way, when the last of
        them left that asked for this; 0 if none did)."""
        sent = self._sent
        lost: list[OutBundle] = []
        before = self.bytes
        asked_at = 0.0
        if arrived_to > self.acknowledged_to:
            self.acknowledged_to = arrived_to
        while sent and sent[0][0] < arrived_to:
            sequence, sent_at, bundle, asked = sent.popleft()
            if asked:
                asked_at = sent_at
            self.bytes -= bundle.size
            behind = arrived_to - 1 - sequence
            if 0 < behind <= BITS and not bits >> (behind - 1) & 1:
                lost.append(bundle)
        return lost, before - self.bytes, asked_at

    def take_older(self, sent_before: float) -> list[OutBundle]:
        """Those sent before a time: they count as lost."""
        taken = []
        while self._sent and self._sent[0][1] < sent_before:
            bundle = self._sent.popleft()[2]
            self.bytes -= bundle.size
            taken.append(bundle)
        return taken

    def take(self, wanted: Callable[[OutBundle], bool]) -> list[OutBundle]:
        """Those that somebody else takes care of from now on."""
        taken = [bundle for _, _, bundle, _ in self._sent if wanted(bundle)]
        if taken:
            gone = {id(bundle) for bundle in taken}
            self._sent = deque(entry for entry in self._sent if id(entry[2]) not in gone)
            self.bytes -= sum(bundle.size for bundle in taken)
        return taken
