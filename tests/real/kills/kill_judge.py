"""Reads the notes of all processes: did every message that was put arrive, once, in order?"""

from collections import Counter
from pathlib import Path
from typing import NamedTuple


class Tale(NamedTuple):
    """What one process noted."""

    put: set[tuple[int, int]]
    """(number, life) of every message whose put returned."""
    got: dict[str, dict[int, tuple[int, int]]]
    """By origin and sequence."""
    repeats: int
    """Messages that were in hand when the process was killed, not accepted yet, and came again."""
    is_done: bool


def read(path: Path, name: str) -> Tale:
    """AssertionError where a message came after it was accepted, or not in its turn."""
    put: set[tuple[int, int]] = set()
    got: dict[str, dict[int, tuple[int, int]]] = {}
    accepted: Counter[str] = Counter()
    at: dict[str, int] = {}
    repeats, done = 0, False
    for line in path.read_text().splitlines():
        word, *rest = line.split()
        if word == "start":
            at = {}
        elif word == "put":
            put.add((int(rest[0]), int(rest[1])))
        elif word == "done":
            done = True
        elif word == "accepted":
            accepted[rest[0]] = int(rest[1]) + 1
        elif word == "got":
            origin, sequence = rest[0], int(rest[1])
            content = (int(rest[2]), int(rest[3]))
            seen = got.setdefault(origin, {})
            assert sequence >= accepted[origin], f"{name}: {line}, after it was accepted"
            if origin in at:
                assert sequence == at[origin] + 1, f"{name}: {line}, after {at[origin]}"
            else:
                assert sequence <= len(seen), f"{name}: {line}: something before it is missing"
            at[origin] = sequence
            if sequence in seen:
                repeats += 1
                assert seen[sequence] == content, f"{name}: {line}, and {seen[sequence]} before"
            seen[sequence] = content
    return Tale(put, got, repeats, done)


def is_over(tales: dict[str, Tale], readers: dict[str, list[str]]) -> bool:
    """Whether everything was put and is there."""
    return all(tale.is_done for tale in tales.values()) and all(
        tales[origin].put <= set(tales[reader].got.get(origin, {}).values())
        for origin, names in readers.items()
        for reader in names
    )


def judge(tales: dict[str, Tale], readers: dict[str, list[str]], count: int) -> int:
    """AssertionError unless all arrived; how many messages were repeated because they were not accepted."""
    for origin, names in readers.items():
        put = tales[origin].put
        assert {number for number, _ in put} == set(range(count)), f"{origin} did not finish"
        for reader in names:
            seen = tales[reader].got.get(origin, {})
            assert sorted(seen) == list(range(len(seen))), f"{reader}: gaps in the stream of {origin}"
            times = Counter(seen.values())
            missing = sorted(put - set(times))
            assert not missing, f"{reader} lacks {len(missing)} of {origin}: {missing[:5]}"
            twice = [content for content, many in times.items() if many > 1]
            assert not twice, f"{reader} got {twice[:5]} of {origin} twice"
            order = [seen[sequence] for sequence in sorted(seen) if seen[sequence] in put]
            assert order == sorted(order), f"{reader}: messages of {origin} out of order"
    return sum(tale.repeats for tale in tales.values())
