"""The summary on a terminal."""

from rich import box
from rich.console import Console
from rich.table import Table

from anabranch.tools.analytics.summary import Summary, opening

ROWS_SHOWN = 12


def print_summary(summary: Summary, console: Console, places: dict[str, str]) -> None:
    """Findings, links, flows, where the rest is."""
    records = summary["records"]
    line = opening(summary)
    if records["bad"]:
        line += f", [red]{records['bad']:,} bad lines[/red]"
    if records["repeated"]:
        line += f", {records['repeated']:,} repeated lines"
    console.print(line)
    for finding in summary["findings"][:ROWS_SHOWN]:
        console.print(f"  {finding}", markup=False)
    if not summary["findings"]:
        console.print("  no trouble was found")
    flows = Table(title="topics and subscribers", title_justify="left", box=box.SIMPLE_HEAD)
    for heading in ("topic", "from", "to"):
        flows.add_column(heading, overflow="fold")
    for heading in ("messages", "delivered", "p50 ms", "p99 ms", "deadline met"):
        flows.add_column(heading, justify="right", no_wrap=True)
    for flow in summary["flows"][:ROWS_SHOWN]:
        met = flow["deadline_hit_ratio"]
        flows.add_row(
            flow["topic"],
            flow["origin"],
            flow["subscriber"],
            f"{flow['delivered']:,}",
            f"{100 * flow['delivery_ratio']:.2f} %",
            f"{flow['age_p50_us'] / 1000:.1f}",
            f"{flow['age_p99_us'] / 1000:.1f}",
            "" if met is None else f"{100 * met:.2f} %",
        )
    if summary["flows"]:
        console.print(flows)
    for what, place in places.items():
        console.print(f"{what}: {place}", soft_wrap=True, markup=False)
