"""A summary as tables for people: per variant the pairs, the totals and what happened when."""

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from anabranch.tools.scenarios.summary import Summary

EVENTS_SHOWN_MAX = 40
PAIRS_SHOWN_MAX = 60
AGAIN_SHOWN_MAX = 6
"""The slowest ones."""


def print_summary(summary: Summary, console: Console) -> None:
    """Print it all; long lists are cut, with a line that says so (the JSON form has everything)."""
    for variant, numbers in summary["variants"].items():
        console.print(_pairs_table(f"{summary['scenario']}: {variant}", numbers))
        console.print(_traffic_line(numbers), markup=False)
        if numbers["events"]:
            console.print(_events_table(numbers["events"]))
        for trace in numbers["traces"]:
            console.print(
                f"seed {trace['seed']}: {trace['events']:,} events, trace {trace['hash']}", soft_wrap=True
            )
        console.print()
    performance = summary["performance"]
    if not performance["events"]:
        return  # in real time there is nothing to tell of
    console.print(
        f"{performance['events']:,} events in {performance['wall_s']:.1f} s, "
        f"{performance['events_per_s']:,} events per second of CPU"
    )


def _pairs_table(title: str, numbers: Summary) -> Group:
    table = Table(title=title, title_justify="left", padding=(0, 0, 0, 1))
    table.add_column("pair", overflow="fold")
    for heading in ("put", "delivered", "loss", "late", "p50 ms", "p99 ms", "max ms", "switches"):
        table.add_column(heading, justify="right", no_wrap=True)
    shown = list(numbers["pairs"].items())[:PAIRS_SHOWN_MAX]
    for name, counts in shown:
        table.add_row(name, *_cells(counts))
    table.add_section()
    table.add_row("all", *_cells(numbers))
    return Group(table, *_cut(len(numbers["pairs"]) - len(shown), "pairs"))


def _cells(counts: Summary) -> list[str]:
    latency = counts["latency_ms"]
    return [
        f"{counts['published']:,}",
        f"{counts['delivered']:,}",
        _share(counts["loss"]),
        _share(counts["late_share"]),
        *("-" if latency[name] is None else f"{latency[name]:.2f}" for name in ("p50", "p99", "max")),
        f"{counts['switches']:,}",
    ]


def _share(value: float) -> str:
    return f"{value:.2%}" if value else "0"


def _traffic_line(numbers: Summary) -> str:
    reroute = numbers["recover_s"]
    text = f"data {numbers['data_bytes']:,} B, control {numbers['control_bytes_per_s']:,.0f} B/s"
    if reroute["count"]:
        text += f"; {reroute['count']} flows hit by a fault on their path"
    if reroute["p50"] is not None:
        text += f", again after p50 {reroute['p50']:.2f} s, p99 {reroute['p99']:.2f} s"
    if reroute["never"]:
        text += f", {reroute['never']} not again"
    return text


def _events_table(events: list[Summary]) -> Group:
    table = Table(
        title="what happened, and how long until a flow it hit delivered again", title_justify="left"
    )
    several = len({event["run_seed"] for event in events}) > 1
    if several:
        table.add_column("seed", justify="right")
    table.add_column("at s", justify="right")
    table.add_column("what")
    table.add_column("again after")
    for event in events[:EVENTS_SHOWN_MAX]:
        seed = [str(event["run_seed"])] if several else []
        table.add_row(*seed, f"{event['at_s']:.1f}", Text(event["what"]), Text(_again(event["again_s"])))
    return Group(table, *_cut(len(events) - EVENTS_SHOWN_MAX, "events"))


def _again(times: dict[str, float | None]) -> str:
    slowest = sorted(times.items(), key=lambda each: (each[1] is not None, -(each[1] or 0.0)))
    parts = [f"{pair} {'never' if took is None else f'{took:.2f} s'}" for pair, took in slowest]
    more = f" and {len(parts) - AGAIN_SHOWN_MAX} more" if len(parts) > AGAIN_SHOWN_MAX else ""
    return ", ".join(parts[:AGAIN_SHOWN_MAX]) + more or "-"


def _cut(count: int, what: str) -> list[Text]:
    return [Text(f"... and {count:,} more {what}; --json has them all")] if count > 0 else []
