"""How busy the machine was with something else. Reads /proc where there is one."""

import os
import time
from pathlib import Path

import msgspec


class Cpu(msgspec.Struct, frozen=True):
    """Counts at a time."""

    at: float
    busy_s: float | None
    """Of all cores; None where the system does not tell."""
    own_s: float
    """Of this process and of its children that have ended."""


def cpu() -> Cpu:
    """Now."""
    times = os.times()
    own = times.user + times.system + times.children_user + times.children_system
    busy = None
    stat = Path("/proc/stat")
    if stat.exists():
        fields = [int(each) for each in stat.read_text().split("\n", 1)[0].split()[1:9]]
        busy = (sum(fields) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")
    return Cpu(time.monotonic(), busy, own)


def foreign_share(before: Cpu, after: Cpu) -> float:
    """Cores that others used in between; 0 where it cannot be told."""
    if before.busy_s is None or after.busy_s is None or after.at <= before.at:
        return 0.0
    others = (after.busy_s - before.busy_s) - (after.own_s - before.own_s)
    return max(0.0, others / (after.at - before.at))


def own_seconds(before: Cpu) -> float:
    """CPU time of this process and its ended children since then."""
    return cpu().own_s - before.own_s
