"""One stream with a guarantee as one consumer takes it: what comes next, what waits for earlier messages."""

from typing import Protocol

from anabranch.overlay.assured import Progress, State, StreamKey

HELD_RUNS_MAX = 1024
"""Runs of one stream that may wait for earlier ones; its publisher sends again what is refused."""
REFUSED_MAX = 64
"""Pieces of one stream that were not for this site any more, until the publisher is known to know of them."""


class Held(Protocol):
    """A run, as far as this has to know it."""

    first_sequence: int


class Intake:
    """Where a consumer stands with a stream. `confirmed` <= `handed` <= `expected`."""

    __slots__ = (
        "_held",
        "confirmed",
        "consumer",
        "expected",
        "handed",
        "has_room_again",
        "is_busy",
        "is_closed",
        "is_durable",
        "origin",
        "refused",
        "stream",
        "topic",
    )

    def __init__(self, origin: str, stream: StreamKey, consumer: str, topic: str, first: int) -> None:
        self.origin = origin
        self.stream = stream
        self.consumer = consumer
        self.topic = topic
        self.is_durable = bool(consumer)
        self.expected = first
        """The next message to pass on."""
        self.handed = first
        """The next message to be queued for the application."""
        self.confirmed = first
        """Of a durable one: the next to be accepted; else the same as `handed`."""
        self.is_busy = False
        """The application had no room the last time."""
        self.has_room_again = False
        """It had none, has some now, and the publisher does not know yet."""
        self.is_closed = False
        self.refused: list[tuple[int, int]] = []
        """What was taken although it was not for this site any more: told until the publisher knows."""
        self._held: list[tuple[Held, int]] = []

    def progress(self) -> Progress:
        """What to tell the publisher; called once for each time it is told."""
        state = State.BUSY if self.is_busy else State.AGAIN if self.has_room_again else State.FINE
        self.has_room_again = False
        gap_end = self._held[0][0].first_sequence if self._held else 0
        return Progress(
            self.stream, self.consumer, int(state), self.handed, self.confirmed, gap_end, list(self.refused)
        )

    def refuse(self, end: int) -> bool:
        """What comes next, up to here, is for others now; False when it must come again later."""
        if self.refused and self.refused[-1][1] == self.handed:
            self.refused[-1] = (self.refused[-1][0], end)
        elif len(self.refused) < REFUSED_MAX:
            self.refused.append((self.handed, end))
        else:
            return False
        self.handed = self.confirmed = end
        return True

    def settled(self, floor: int) -> None:
        """The publisher knows what became of all before this."""
        if self.refused and self.refused[0][1] <= floor:
            self.refused = [each for each in self.refused if each[1] > floor]

    def hold(self, run: Held, size: int) -> bool:
        """Keep a run until what is missing before it has come; False if it cannot, or need not."""
        if len(self._held) >= HELD_RUNS_MAX:
            return False
        if any(each.first_sequence == run.first_sequence for each, _ in self._held):
            return False
        self._held.append((run, size))
        self._held.sort(key=lambda each: each[0].first_sequence)
        return True

    def release(self) -> tuple[Held | None, int]:
        """The first run that nothing is missing before any more, if there is one, and the bytes it held."""
        if self._held and self._held[0][0].first_sequence <= self.expected:
            run, size = self._held.pop(0)
            return run, size
        return None, 0

    def start_over(self) -> int:
        """Expect again what was not queued, and hold nothing; the bytes that were held."""
        freed = sum(size for _, size in self._held)
        self._held.clear()
        self.expected = self.handed
        return freed

    def skip_to(self, sequence: int) -> int:
        """What is missing before this will not come any more; the bytes that were held."""
        freed = self.start_over()
        self.expected = max(self.expected, sequence)
        if self.confirmed == self.handed:
            self.confirmed = self.expected
        self.handed = self.expected
        return freed
