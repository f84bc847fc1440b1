"""How benches tell what they measured: tables or one JSON object; progress and failures on stderr."""

import json
import os
import platform
import sys
from collections.abc import Callable
from typing import Any, Literal, TypeVar

import typer
from rich.console import Console
from rich.table import Table

from anabranch.tools.bench.jobs import BenchError
from anabranch.tools.bench.scenarios import Row

_HEADINGS = {
    "messages_per_second": "messages/s",
    "sender_cpu_us_per_message": "sender CPU us",
    "cpu_us_per_message_per_link": "CPU us/link",
    "per_link_cost": "per link",
    "complete_runs": "complete",
    "root_messages": "at root",
    "times_slowest": "x slowest",
}
_UNSHOWN = (
    *("sent", "received", "variant"),  # the table has the losses
    *("cdf_ms", "by_tau", "reply_p50_ms", "reply_p99_ms", "repliers", "children", "slowest_round_trip_ms"),
)
"""Told in the JSON form only."""
_TEXTS = ("system", "to", "mode", "role", "change", "scenario", "protocol", "algorithm")

T = TypeVar("T")

progress = Console(stderr=True, highlight=False)
PIPED_WIDTH = 140
"""Of tables that go to a file or another program."""


def guarded(scenario: Callable[..., T], *arguments: Any) -> T:
    """A failed measurement ends the bench with code 1 and the output of the process that failed."""
    try:
        return scenario(*arguments)
    except BenchError as error:
        progress.print(f"error: {error}", markup=False)
        raise typer.Exit(1) from error


def print_results(bench: str, rows: list[Row], found: list[Row], skipped: list[Row], as_json: bool) -> None:
    """What was measured, ratios of it, and systems that were not there."""
    if as_json:
        machine = {"cpus": os.cpu_count(), "python": platform.python_version(), "system": platform.system()}
        result = {"bench": bench, "results": rows, "ratios": found, "skipped": skipped, "machine": machine}
        sys.stdout.write(json.dumps(result, indent=2) + "\n")
        return
    console = Console()
    if not console.is_terminal:
        console = Console(width=PIPED_WIDTH)
    console.print(_table(bench, rows))
    if found:
        console.print(_table("ratios", found))


def _table(title: str, rows: list[Row]) -> Table:
    table = Table(title=title, title_justify="left")
    keys = dict.fromkeys(key for row in rows for key in row)
    columns = [key for key in keys if key not in _UNSHOWN and not _nested(rows, key)]
    for column in columns:
        justify: Literal["left", "right"] = "left" if column in _TEXTS else "right"
        table.add_column(_HEADINGS.get(column, column.replace("_", " ")), justify=justify, no_wrap=True)
    for row in rows:
        table.add_row(*(_cell(row.get(column)) for column in columns))
    return table


def _nested(rows: list[Row], key: str) -> bool:
    return any(isinstance(row.get(key), list | dict) for row in rows)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:,.3f}"
    return f"{value:,}" if isinstance(value, int) else str(value)
