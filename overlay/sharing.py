"""Bundles of several origins that wait for one link: each origin has its turn, counted in bytes.

Deficit round robin. Has the part of a deque's interface that `queues` uses; order is kept within an origin.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping

from anabranch.overlay.bundles import OutBundle

TURN_BYTES = 64 * 1024
"""What an origin may send in one turn; what it sends beyond is taken off its next ones."""


class SharedQueue:
    """As long as more than one origin waits, or did since it was last empty."""

    __slots__ = ("_credit", "_waiting")

    def __init__(self, bundles: Iterable[OutBundle]) -> None:
        self._waiting: dict[str, deque[OutBundle]] = {}
        """By origin; whose turn it is comes first."""
        self._credit: dict[str, int] = {}
        self.extend(bundles)

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def __iter__(self) -> Iterator[OutBundle]:
        for waiting in self._waiting.values():
            yield from waiting

    def __getitem__(self, index: int) -> OutBundle:
        """The next one to leave; there is no other index than 0."""
        assert index == 0
        return self._waiting[self._next()][0]

    def append(self, bundle: OutBundle) -> None:
        """Let one more wait."""
        waiting = self._waiting.get(bundle.origin)
        if waiting is None:
            self._waiting[bundle.origin] = deque((bundle,))
            self._credit[bundle.origin] = TURN_BYTES
        else:
            waiting.append(bundle)

    def extend(self, bundles: Iterable[OutBundle]) -> None:
        """Let them wait."""
        for bundle in bundles:
            self.append(bundle)

    def clear(self) -> None:
        """Nothing waits any more."""
        self._waiting.clear()
        self._credit.clear()

    def popleft(self) -> OutBundle:
        """Take the next one off."""
        origin = self._next()
        bundle = self._waiting[origin].popleft()
        self._credit[origin] -= bundle.size
        self._note_empty(origin)
        return bundle

    def pop(self, origin: str) -> OutBundle:
        """Take the newest of an origin off."""
        bundle = self._waiting[origin].pop()
        self._note_empty(origin)
        return bundle

    def origins(self) -> Iterable[str]:
        """Whose bundles wait."""
        return self._waiting

    def holds(self, origin: str) -> bool:
        """Whether something of this origin waits."""
        return origin in self._waiting

    def _next(self) -> str:
        """Whose turn it is."""
        while True:
            origin = next(iter(self._waiting))
            if self._credit[origin] > 0 or len(self._waiting) == 1:
                return origin
            self._waiting[origin] = self._waiting.pop(origin)  # to the end
            self._credit[origin] += TURN_BYTES

    def _note_empty(self, origin: str) -> None:
        if not self._waiting[origin]:
            del self._waiting[origin], self._credit[origin]


Waiting = deque[OutBundle] | SharedQueue
"""Bundles that wait, of one origin or of several."""


def joined_by(waiting: Waiting, bundle: OutBundle) -> Waiting:
    """The queue with one bundle more: another queue, if it is the first of a second origin."""
    if type(waiting) is deque and waiting and waiting[-1].origin != bundle.origin:
        waiting = SharedQueue(waiting)
    waiting.append(bundle)
    return waiting


def newest_of(
    queues: Iterable[Waiting], least_bytes: int, origin: str | None, bytes_of: Mapping[str, int]
) -> list[OutBundle]:
    """Take so much off, the newest first: of this origin, or of whichever has most waiting."""
    gone: list[OutBundle] = []
    for queue in queues:
        while queue and least_bytes > 0:
            if isinstance(queue, SharedQueue):
                whose = origin if origin is not None else max(queue.origins(), key=bytes_of.__getitem__)
                if not queue.holds(whose):
                    break
                gone.append(queue.pop(whose))
            elif origin is not None and queue[-1].origin != origin:
                break
            else:
                gone.append(queue.pop())
            least_bytes -= gone[-1].size
    return gone
