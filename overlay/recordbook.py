"""Every record held: the newest of each (origin, kind), with its age. Checks no signature, floods nothing."""

from collections.abc import Iterator

import msgspec

from anabranch.overlay.errors import DropReason
from anabranch.overlay.headers import Record

RecordKey = tuple[str, int]
"""(origin, kind)."""


class Held(msgspec.Struct):
    """A record and when, on our clock, its origin made it."""

    record: Record
    made_at: float


class RecordBook:
    """The newest record of each origin and kind, at most `records_max` in all."""

    def __init__(self, records_max: int, lifetime_s: float) -> None:
        self._held: dict[RecordKey, Held] = {}
        self._oldest_at = float("inf")
        self._records_max = records_max
        self._lifetime_s = lifetime_s

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[Record]:
        return (held.record for held in self._held.values())

    def get(self, origin: str, kind: int) -> Record | None:
        """The record held for this origin and kind."""
        held = self._held.get((origin, kind))
        return held.record if held else None

    def judge(self, record: Record) -> DropReason | None:
        """Why this record would not be taken; None when it would."""
        if record.age_ms >= self._lifetime_s * 1000:
            return DropReason.STALE
        held = self._held.get((record.origin, record.kind))
        if held is None:
            return DropReason.TABLE_FULL if len(self._held) >= self._records_max else None
        known = held.record
        if (record.epoch, record.sequence) <= (known.epoch, known.sequence):
            return DropReason.STALE
        return None

    def put(self, record: Record, now: float) -> None:
        """Hold a record that was judged and whose signature holds."""
        made_at = now - record.age_ms / 1000
        self._held[record.origin, record.kind] = Held(record, made_at)
        if made_at < self._oldest_at:
            self._oldest_at = made_at

    def remove(self, origin: str) -> list[int]:
        """Forget an origin; the kinds that were held."""
        kinds = [kind for held_origin, kind in self._held if held_origin == origin]
        for kind in kinds:
            del self._held[origin, kind]
        return kinds

    def origins(self) -> set[str]:
        """Whose records are held."""
        return {origin for origin, _ in self._held}

    def expired(self, now: float) -> list[RecordKey]:
        """Records past their lifetime."""
        limit = now - self._lifetime_s
        if self._oldest_at > limit:
            return []
        self._oldest_at = min((held.made_at for held in self._held.values()), default=float("inf"))
        return [key for key, held in self._held.items() if held.made_at <= limit]

    def forget(self, key: RecordKey) -> None:
        """Drop one record."""
        self._held.pop(key, None)

    def digest(self, kinds: frozenset[int]) -> list[tuple[str, int, int, int]]:
        """(origin, kind, epoch, sequence) of all records of these kinds."""
        return [
            (origin, kind, held.record.epoch, held.record.sequence)
            for (origin, kind), held in self._held.items()
            if kind in kinds
        ]

    def aged(self, key: RecordKey, now: float) -> Record | None:
        """A copy to send, with its present age."""
        held = self._held.get(key)
        if held is None:
            return None
        age_ms = max(0, int((now - held.made_at) * 1000))
        return msgspec.structs.replace(held.record, age_ms=age_ms)
