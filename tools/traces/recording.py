"""Makes a trace of what peers noted about their links in their logs: a mesh's own past, to be replayed."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from anabranch.overlay.errors import UsageError
from anabranch.tools.traces.trace import NODES_MAX, VALUES_MAX, Trace


class _Probe(msgspec.Struct):
    """What is read of a record; others have other fields."""

    kind: str
    ts: int
    peer: str
    neighbour: str = ""
    rtt_us: int | None = None


class Recording(msgspec.Struct):
    """A trace and what it was made of."""

    trace: Trace
    probes: int
    torn: int
    """Lines that were no records, such as the last one of a crashed peer."""
    begins_us: int


def record(directory: Path, slice_s: float) -> Recording:
    """The trace of all probes below a directory; slices without any at the end are left out."""
    if not directory.is_dir():
        raise UsageError(f"log directory {str(directory)!r}: there is no such directory")
    if not 0 < slice_s < math.inf:
        raise UsageError(f"--slice-s {slice_s}: seconds above 0")
    torn = 0
    probes: list[_Probe] = []
    for line in _lines(directory):
        if b'"probe"' not in line:
            continue
        try:
            each = msgspec.json.decode(line, type=_Probe)
        except msgspec.MsgspecError:
            torn += 1
            continue
        if each.kind == "probe" and each.neighbour:
            probes.append(each)
    if not probes:
        raise UsageError(
            f"log directory {str(directory)!r}: no probe records in *.jsonl; run peers with --log-dir DIR"
        )
    begin = min(each.ts for each in probes)
    names = {each.peer for each in probes} | {each.neighbour for each in probes}
    nodes = {name: index for index, name in enumerate(sorted(names))}
    slices = int((max(each.ts for each in probes) - begin) / 1e6 // slice_s) + 1
    if len(nodes) > NODES_MAX or slices * len(nodes) ** 2 > VALUES_MAX:
        raise UsageError(
            f"{slices:,} slices of {len(nodes):,} peers are too many; take longer ones with --slice-s"
        )
    return Recording(_trace(probes, nodes, slices, begin, slice_s), len(probes), torn, begin)


def _trace(probes: list[_Probe], nodes: dict[str, int], slices: int, begin: int, slice_s: float) -> Trace:
    shape = (slices, len(nodes), len(nodes))
    sums, hits, tries = (np.zeros(shape) for _ in range(3))
    for each in probes:
        where: Any = (int((each.ts - begin) / 1e6 // slice_s), nodes[each.peer], nodes[each.neighbour])
        tries[where] += 1
        if each.rtt_us is not None:
            hits[where] += 1
            sums[where] += each.rtt_us
    with np.errstate(invalid="ignore", divide="ignore"):
        delays = (sums / hits / 2e6).astype(np.float32)
        losses = np.nan_to_num(1 - hits / tries).astype(np.float32)
    return Trace(list(nodes), delays, losses=losses if losses.any() else None, slice_s=slice_s)


def _lines(directory: Path) -> Iterator[bytes]:
    paths = sorted([*directory.rglob("*.jsonl"), *directory.rglob("*.jsonl.part")])
    for path in paths:
        with path.open("rb") as file:
            yield from file
