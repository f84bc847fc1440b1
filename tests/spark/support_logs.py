"""Logs made by hand and by chance, and plain computations of what they mean."""

import random
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import msgspec

from anabranch.overlay.records import (
    ControlRecord,
    DeliveryRecord,
    LinkRecord,
    LogRecord,
    ProbeRecord,
    RouteRecord,
)

BASE = 1_600_000_000_000_000
EPOCH = BASE - 1_000_000
END = tuple[str, str]
"""A peer and its neighbour."""


def at(seconds: float) -> int:
    """µs since 1970 of a moment of a run."""
    return BASE + round(seconds * 1e6)


def probe(peer: str, neighbour: str, second: float, seq: int, rtt_us: int | None, **more: int) -> ProbeRecord:
    waited = 0 if rtt_us is not None else 600_000
    return ProbeRecord(
        ts=at(second),
        peer=peer,
        epoch=EPOCH,
        neighbour=neighbour,
        seq=seq,
        rtt_us=rtt_us,
        delay_us=10_000,
        jitter_us=more.pop("jitter_us", 1_000),
        loss=0.0,
        availability=1.0,
        connection=more.pop("connection", 1),
        waited_us=waited,
    )


def link(peer: str, neighbour: str, second: float, state: str, cause: str, epoch: int = EPOCH) -> LinkRecord:
    return LinkRecord(ts=at(second), peer=peer, epoch=epoch, neighbour=neighbour, state=state, cause=cause)


def delivery(peer: str, second: float, seq: int, age_us: int, **more: object) -> DeliveryRecord:
    given: dict[str, object] = {
        "topic": "t",
        "origin": "a",
        "publisher": 1,
        "count": 1,
        "path": ["a", peer],
        "deadline_us": 50_000,
        "origin_epoch": EPOCH,
    }
    given |= more
    given["late"] = 0 < int(str(given["deadline_us"])) < age_us
    made = {"ts": at(second), "peer": peer, "epoch": EPOCH, "seq": seq, "age_us": age_us, **given}
    return msgspec.convert(made, DeliveryRecord)


def route(second: float, path: list[str], cause: str) -> RouteRecord:
    return RouteRecord(
        ts=at(second),
        peer=path[0],
        epoch=EPOCH,
        destination=path[-1],
        path=path,
        copies=[],
        cost_us=1,
        cause=cause,
    )


def control(
    peer: str, second: float, variant: str = "hand", epoch: int = EPOCH, **counters: int
) -> ControlRecord:
    named = {name.replace("__", "."): value for name, value in counters.items()}
    return ControlRecord(ts=at(second), peer=peer, epoch=epoch, counters=named, variant=variant)


def as_lines(records: Iterable[LogRecord]) -> bytes:
    return b"".join(msgspec.json.encode(record) + b"\n" for record in records)


def write(directory: Path, records: Iterable[LogRecord], *, more: bytes = b"", number: int = 0) -> None:
    """A file per peer, as `LogWriter` names them; `more` goes to the end of the last one."""
    directory.mkdir(parents=True, exist_ok=True)
    by_peer: dict[str, list[LogRecord]] = defaultdict(list)
    for record in records:
        by_peer[record.peer].append(record)
    for peer, written in by_peer.items():
        (directory / f"{peer}-{EPOCH}-{number:05d}.jsonl").write_bytes(as_lines(written))
    if more:
        with (directory / f"{peer}-{EPOCH}-{number:05d}.jsonl").open("ab") as file:
            file.write(more)


def by_hand() -> list[LogRecord]:
    """Three peers for thirty seconds; tests/spark/test_by_hand.py says what it means."""
    records: list[LogRecord] = [
        link("a", "b", 0, "up", "hello"),
        link("b", "a", 0, "up", "hello"),
        link("a", "c", 0, "up", "hello"),
        link("c", "a", 0, "up", "hello"),
    ]
    for second in range(1, 31):
        is_lost = second in (5, 6, 7) or second == 20
        slow = 60_000 if 12 <= second <= 15 else 20_000
        sent = probe("a", "b", second + (0.6 if is_lost else 0.0), second, None if is_lost else slow)
        records += [sent, probe("b", "a", second, second, 20_000)]
    records += [
        link("a", "c", 10.0, "suspect", "silent"),
        link("a", "c", 10.4, "down", "silent"),
        link("c", "a", 10.1, "suspect", "silent"),
        link("c", "a", 10.6, "down", "silent"),
        link("a", "c", 15.0, "up", "hello"),
        link("c", "a", 15.0, "up", "hello"),
        link("a", "c", 25.0, "down", "closed by neighbour"),  # c says farewell and ends
        control("c", 25.0),
    ]
    for seq in (0, 1, 2, 3, 5, 6, 7, 8, 9):  # 4 is lost
        path = ["a", "c", "b"] if seq >= 7 else ["a", "b"]
        age_us = 60_000 if seq == 3 else 10_000
        records.append(
            delivery("b", 1 + seq, seq, age_us, path=path, has_copies=seq == 9, repeated=2 if seq == 9 else 0)
        )
    records += [
        route(1, ["a", "b"], "new"),
        route(7, ["a", "c", "b"], "broken"),
        control("a", 10, published=5, sent__control_bytes=100, sent__probe_bytes=100, sent__data_bytes=1000),
        control(
            "a",
            29,
            published=10,
            sent__control_bytes=300,
            sent__probe_bytes=200,
            sent__ack_bytes=100,
            sent__data_bytes=2000,
        ),
        control("b", 29, delivered=9, sent__control_bytes=100, sent__ack_bytes=100, dropped__duplicate=2),
    ]
    return records


DIRTY = b"\n".join(
    (
        b'{"kind":"link","ts":1600000003000000,"peer":"a","epoch":7,"neighbour":"b","state":"up"}',
        b'{"kind":"probe","ts":1600000003000000,"peer":"a","epoch":7,"neighbour":"b","seq":"x"}',
        b'{"kind":"poetry","ts":1600000003000000,"peer":"a","epoch":7}',
        b'{"ts":1600000003000000,"peer":"a","epoch":7}',
        b'{"kind":"link","ts":-5,"peer":"a","epoch":7,"neighbour":"b","state":"up","cause":"hello"}',
        b"\xff\xfe\x00 no text at all",
        b"[1, 2",
        b'{"kind":"control","ts":1600000003000001,"peer":"a","epoch":7,"counters":{},"newer":[1]}',  # sound
        b'{"kind":"delivery","ts":1600000004000000,"peer":"a","epoch":7,"topic":"t","ori',
    )
)


def by_chance(rows: int, seed: int = 1) -> list[LogRecord]:
    """Four peers, all linked, with losses, outages, slow times, and deliveries in runs."""
    rng = random.Random(seed)
    peers = ("p1", "p2", "p3", "p4")
    records: list[LogRecord] = []
    ends = [(a, b) for a in peers for b in peers if a != b]
    each = rows // 2 // len(ends)
    for a, b in ends:
        records.append(link(a, b, 0.0, "up", "hello"))
        second, seq, losing, connection = 0.1, 0, False, 1
        for _ in range(each):
            second += rng.uniform(0.2, 0.3)
            seq += 1
            losing = rng.random() < (0.7 if losing else 0.01)
            rtt = None if losing else int(rng.lognormvariate(10, 0.4))
            records.append(
                probe(a, b, second, seq, rtt, jitter_us=rng.randrange(5_000), connection=connection)
            )
            if rng.random() < 0.001:
                records.append(link(a, b, second + 0.01, "suspect", "silent"))
                if rng.random() < 0.5:
                    records.append(link(a, b, second + 0.02, "down", "silent"))
                    connection += 1
                    seq = 0
                second += rng.uniform(0.5, 20)
                records.append(link(a, b, second, "up", "hello"))
    for a, b in ends:
        seq, second = 0, 0.5
        for _ in range(each):
            count = rng.choice((1, 1, 1, 2, 5))
            seq += rng.choice((0,) * 50 + (1, 3))
            second += rng.uniform(0.2, 0.3)
            age_us = int(rng.lognormvariate(10, 0.6))
            others = [peer for peer in peers if peer not in (a, b)]
            path = [a, b] if rng.random() < 0.9 else [a, rng.choice(others), b]
            records.append(
                delivery(b, second, seq, age_us, count=count, origin=a, path=path, repeated=rng.randrange(2))
            )
            seq += count
    return records


def outages_of(records: Iterable[LogRecord], slack_us: int = 500_000) -> dict[END, list[tuple[int, int]]]:
    """When each link was out, as its peer saw it: read the log from its start to its end, as people would."""
    last: dict[str, int] = {}
    by_end: dict[END, list[LogRecord]] = defaultdict(list)
    for record in records:
        last[record.peer] = max(record.ts, last.get(record.peer, 0))
        if isinstance(record, ProbeRecord | LinkRecord):
            by_end[record.peer, record.neighbour].append(record)
    found = {}
    for end, mine in by_end.items():
        spells: list[tuple[int, int]] = []
        down_since: int | None = None
        for record in sorted(mine, key=lambda each: each.ts):
            if isinstance(record, LinkRecord):
                if record.state == "up" and down_since is not None:
                    spells.append((down_since, record.ts))
                    down_since = None
                elif record.state != "up" and down_since is None:
                    down_since = record.ts
        if down_since is not None:
            spells.append((down_since, last[end[0]]))
        lost: list[ProbeRecord] = []
        probes = [each for each in mine if isinstance(each, ProbeRecord)]
        for record in [*sorted(probes, key=lambda each: (each.connection, each.seq)), None]:
            if (
                record is not None
                and record.rtt_us is None
                and (
                    not lost or (record.connection == lost[-1].connection and record.seq == lost[-1].seq + 1)
                )
            ):
                lost.append(record)
                continue
            if len(lost) >= 3:
                spells.append((min(e.ts - e.waited_us for e in lost), max(e.ts for e in lost)))
            lost = [record] if record is not None and record.rtt_us is None else []
        whole: list[tuple[int, int]] = []
        for start, stop in sorted(spells):
            if whole and start <= whole[-1][1] + slack_us:
                whole[-1] = (whole[-1][0], max(stop, whole[-1][1]))
            else:
                whole.append((start, stop))
        found[end] = whole
    return found
