"""What happens when: the file's events and the faults drawn by seed, as one list in order of time.

Pure: the same seed gives the same list for every variant. The simulator (or a testbed) carries it out.
"""

import random
from collections.abc import Iterator
from itertools import pairwise

import msgspec

from anabranch.tools.scenarios.layout import Layout
from anabranch.tools.scenarios.schema import (
    ConditionKeys,
    Crash,
    Degrade,
    Event,
    Fail,
    Heal,
    Leave,
    Pair,
    Partition,
    Pause,
    RandomCrash,
    RandomDegrade,
    RandomFail,
    RandomFaults,
    RandomPause,
    Restart,
    Restore,
    Resume,
    Scenario,
    SetConditions,
)

LinkHappenings = ("degrade", "fail", "restore", "set")
FAULTS = ("degrade", "fail", "crash", "pause", "leave", "partition")
"""What disturbs flows; everything else ends a disturbance or just changes the network."""


class Happening(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that happens at `at_s`, and is undone at `until_s` unless that is None."""

    at_s: float
    do: str
    """As in the file."""
    until_s: float | None = None
    ways: tuple[Pair, ...] = ()
    """Directions of links."""
    changes: ConditionKeys | None = None
    peers: tuple[str, ...] = ()
    groups: tuple[tuple[str, ...], ...] = ()
    reset: bool = False

    @property
    def is_fault(self) -> bool:
        """Whether flows may suffer from it."""
        return self.do in FAULTS

    def hits(self, path: tuple[str, ...]) -> bool:
        """Whether a message on this path meets it."""
        if self.groups:
            side = {name: number for number, group in enumerate(self.groups) for name in group}
            return len({side.get(name, -1) for name in path}) > 1
        hops = pairwise(path)
        return any(name in self.peers for name in path) or any(hop in self.ways for hop in hops)

    def __str__(self) -> str:
        parts = [self.do, self._whom(), self._how()]
        if self.until_s is not None:
            parts.append(f"for {self.until_s - self.at_s:g} s")
        return " ".join(part for part in parts if part)

    def _whom(self) -> str:
        if self.groups:
            return " | ".join(" ".join(group) for group in self.groups)
        if self.peers:
            return " ".join(self.peers)
        both = [way for way in self.ways if way[::-1] in self.ways]
        pairs = [f"{a}-{b}" for a, b in both if both.index((a, b)) < both.index((b, a))]
        pairs += [f"{a}>{b}" for a, b in self.ways if (a, b) not in both]
        return " ".join(pairs)

    def _how(self) -> str:
        names = ConditionKeys.__struct_fields__ if self.changes else ()
        values = ((name, getattr(self.changes, name)) for name in names)
        return ", ".join(f"{name} {value:g}" for name, value in values if value is not None)


def timeline(scenario: Scenario, layout: Layout, seed: int) -> list[Happening]:
    """Everything that happens in a run, in order of time; at the same time, in the order of the file."""
    found = [_happening(event, layout) for event in scenario.events]
    for number, faults in enumerate(scenario.random_faults):
        rng = random.Random(f"{seed}/faults/{number}")  # noqa: S311 - must be repeatable
        found += _drawn(faults, scenario.run.duration_s, layout, rng)
    return sorted((each for each in found if each.at_s <= scenario.end_s), key=lambda each: each.at_s)


def _happening(event: Event, layout: Layout) -> Happening:
    until = None
    if isinstance(event, Degrade | Fail | Crash | Pause | Partition) and event.for_s is not None:
        until = event.at_s + event.for_s
    do = str(type(event).__struct_config__.tag)
    if isinstance(event, Partition):
        groups = tuple(
            tuple(name for pattern in group for name in layout.peers(pattern)) for group in event.groups
        )
        return Happening(at_s=event.at_s, do=do, until_s=until, groups=groups)
    if isinstance(event, Heal):
        return Happening(at_s=event.at_s, do=do)
    if isinstance(event, Crash | Restart | Pause | Resume | Leave):
        peers = tuple(layout.peers(event.peer))
        reset = isinstance(event, Crash) and event.reset
        return Happening(at_s=event.at_s, do=do, until_s=until, peers=peers, reset=reset)
    assert isinstance(event, Degrade | Fail | Restore | SetConditions)
    ways = layout.ways(event.between, event.direction)
    changes = _changes(event) if isinstance(event, Degrade | SetConditions) else None
    return Happening(at_s=event.at_s, do=do, until_s=until, ways=ways, changes=changes)


def _drawn(faults: RandomFaults, end_s: float, layout: Layout, rng: random.Random) -> Iterator[Happening]:
    do = str(type(faults).__struct_config__.tag)
    lasts = faults.every_s if faults.for_s is None else faults.for_s
    at = faults.every_s if faults.start_s is None else faults.start_s
    rounds = faults.rounds
    while at < end_s and rounds != 0:
        if isinstance(faults, RandomDegrade | RandomFail):
            changes = _changes(faults) if isinstance(faults, RandomDegrade) else None
            for pair in _links(faults, layout):
                if rng.random() < faults.probability:
                    ways = (pair, pair[::-1])
                    yield Happening(at_s=at, do=do, until_s=at + lasts, ways=ways, changes=changes)
        else:
            assert isinstance(faults, RandomCrash | RandomPause)
            reset = isinstance(faults, RandomCrash) and faults.reset
            for name in layout.peers(faults.peer):
                if rng.random() < faults.probability:
                    yield Happening(at_s=at, do=do, until_s=at + lasts, peers=(name,), reset=reset)
        at += faults.every_s
        rounds = None if rounds is None else rounds - 1


def _links(faults: RandomDegrade | RandomFail, layout: Layout) -> list[Pair]:
    pairs: dict[frozenset[str], Pair] = {}
    for way in layout.ways(faults.between, "there"):
        pairs.setdefault(frozenset(way), way)
    return list(pairs.values())


def _changes(event: ConditionKeys) -> ConditionKeys:
    return ConditionKeys(**{name: getattr(event, name) for name in ConditionKeys.__struct_fields__})
