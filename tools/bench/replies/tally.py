"""From the replies of many runs to the row of a bench: percentiles, how many came, distributions."""

from collections.abc import Sequence
from typing import Any

import msgspec

CDF_POINTS = 100
TAUS_MS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000)
"""Silences for which it is told how much would have come before the first of them."""

Row = dict[str, Any]


class Run(msgspec.Struct, frozen=True):
    """One request."""

    taken_s: float
    """Until its result was there."""
    reply_s: list[float]
    """Until each reply came; empty where they came merged."""
    answered: int
    is_complete: bool
    root_messages: int
    """What the publisher's peer got about it."""


def row_of(scenario: str, protocol: str, load: float, expected: int, runs: Sequence[Run]) -> Row:
    """What is told of all runs of one scenario by one protocol."""
    taken = sorted(run.taken_s for run in runs)
    replies = sorted(time for run in runs for time in run.reply_s)
    row: Row = {
        "scenario": scenario,
        "protocol": protocol,
        "load": load,
        "runs": len(runs),
        "complete_runs": sum(run.is_complete and run.answered == expected for run in runs),
        "delivered": round(sum(run.answered for run in runs) / (expected * len(runs)), 6),
        "p50_ms": milliseconds(quantile(taken, 0.5)),
        "p99_ms": milliseconds(quantile(taken, 0.99)),
        "root_messages": max(run.root_messages for run in runs),
    }
    if replies:
        row["reply_p50_ms"] = milliseconds(quantile(replies, 0.5))
        row["reply_p99_ms"] = milliseconds(quantile(replies, 0.99))
    shown = replies or taken
    row["cdf_ms"] = [milliseconds(quantile(shown, step / CDF_POINTS)) for step in range(CDF_POINTS + 1)]
    if replies:
        row["by_tau"] = [[tau, _before_silence(runs, tau / 1e3, expected)] for tau in TAUS_MS]
    return row


def quantile(ordered: Sequence[float], share: float) -> float:
    """The value below which this share of the ordered values lie (nearest rank)."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def milliseconds(seconds: float) -> float:
    """For the tables."""
    return round(seconds * 1e3, 3)


def _before_silence(runs: Sequence[Run], tau_s: float, expected: int) -> float:
    """Which share of the replies came before the first silence of so long."""
    came = 0
    for run in runs:
        last = 0.0
        for time in sorted(run.reply_s):
            if time - last > tau_s:
                break
            came += 1
            last = time
    return round(came / (expected * len(runs)), 4)
