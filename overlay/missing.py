"""What a subscription asked to be told of: messages that are late, missing, or should have come."""

from collections.abc import Sequence

import msgspec

STREAMS_MAX = 1024
"""Publishers followed by one subscription; the least recently heard is forgotten."""

StreamKey = tuple[str, str, int]
"""(topic, origin, publisher)."""


class Missed(msgspec.Struct, frozen=True):
    """Messages that were not there in time."""

    kind: str
    """`late`: they came after their deadline, and are delivered. `gap`: they are missing, a later one came.
    `silence`: none came for as long as the subscription allows."""
    topic: str
    """Of a silence: the subscription's pattern, or the topic last heard."""
    origin: str
    """Empty for a silence in which nobody was ever heard."""
    publisher: int
    sequence: int
    """The first of them; of a silence the one that is expected."""
    count: int
    """0 for a silence."""
    seconds: float
    """Late: their age. Silence: how long."""


class Watch:
    """One subscription's view of its publishers. Takes each run, says what is wrong with it."""

    def __init__(self, pattern: str, silence_s: float, now: float) -> None:
        self._pattern = pattern
        self._silence_s = silence_s
        self._next: dict[StreamKey, int] = {}
        self._heard: StreamKey = (pattern, "", 0)
        self._heard_at = now

    def take(
        self,
        key: StreamKey,
        first: int,
        payloads: Sequence[object],
        age_s: float,
        deadline_s: float,
        now: float,
    ) -> list[Missed]:
        """A run was delivered."""
        found: list[Missed] = []
        topic, origin, publisher = key
        expected = self._next.pop(key, first)
        count = len(payloads)
        if first > expected:
            found.append(Missed("gap", topic, origin, publisher, expected, first - expected, 0.0))
        if 0 < deadline_s < age_s:
            found.append(Missed("late", topic, origin, publisher, first, count, age_s))
        if len(self._next) >= STREAMS_MAX:
            del self._next[next(iter(self._next))]
        self._next[key] = first + count
        self._heard, self._heard_at = key, now
        return found

    def due(self) -> float | None:
        """When a silence will have lasted too long; None where none was asked about."""
        return self._heard_at + self._silence_s if self._silence_s else None

    def expire(self, now: float) -> list[Missed]:
        """It has: say so, and again after as long."""
        due = self.due()
        if due is None or now < due:
            return []
        self._heard_at = now
        topic, origin, publisher = self._heard
        expected = self._next.get(self._heard, 0)
        return [Missed("silence", topic, origin, publisher, expected, 0, self._silence_s)]
