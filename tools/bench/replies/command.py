"""`anabranch bench replies`: its options, and what it runs in which order."""

from pathlib import Path
from typing import Annotated

import typer

from anabranch.overlay.asking import Protocol
from anabranch.overlay.errors import UsageError
from anabranch.tools.bench.printing import guarded, print_results, progress
from anabranch.tools.bench.replies import layout
from anabranch.tools.bench.replies.costs import cost_rows
from anabranch.tools.bench.replies.plotting import check_plot_place, plot
from anabranch.tools.bench.replies.real import mesh_rows, processes_for, star_row
from anabranch.tools.bench.replies.simulated import recorded, simulated_rows
from anabranch.tools.bench.replies.tally import Row
from anabranch.tools.bench.summary import median_rows, parse_number, ratios
from anabranch.tools.bench.systems import RIVALS

ROUNDS = 3
"""Systems that are compared take turns this often; medians count."""
VARIANTS = {"zenoh": ("callback", "direct_callback"), "nats": ("callback",)}
STAR_PROTOCOLS = ("converge",)


def replies(
    scenario: Annotated[
        str, typer.Option("--scenario", help="Repliers per peer, times peers that have some, of 50.")
    ] = ",".join(layout.SCENARIOS),
    protocol: Annotated[
        str, typer.Option("--protocol", help="How replies travel; they take turns.")
    ] = ",".join(Protocol),
    load: Annotated[
        str, typer.Option("--load", help="Messages per second from each peer, each to 5 % of the others.")
    ] = "0",
    runs: Annotated[int, typer.Option("--runs", help="Requests per scenario, protocol and load.")] = 20,
    tau: Annotated[
        float, typer.Option("--tau", help="Silence that ends publish, direct and datagram, in seconds.")
    ] = 1.0,
    processes: Annotated[
        int, typer.Option("--processes", help="That share the replying peers; 0: one per core.")
    ] = 0,
    delays: Annotated[
        Path | None,
        typer.Option(
            "--delays",
            metavar="TRACE",
            help="In virtual time instead, over the delays of a recorded network.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Which 50 of its places.")] = 1,
    against: Annotated[
        str,
        typer.Option("--against", help="Ten repliers next to the publisher too, and: zenoh, nats, or none."),
    ] = "none",
    costs: Annotated[
        bool, typer.Option("--costs", help="Only the cost model: messages, bytes and state per depth.")
    ] = False,
    plot_to: Annotated[
        Path | None, typer.Option("--plot", metavar="DIR", help="Draw distributions into this directory.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")] = False,
) -> None:
    """How soon all replies are there, and whether all are, by each protocol; next to Zenoh and NATS."""
    if costs:
        print_results("reply costs", guarded(cost_rows), [], [], as_json)
        return
    scenarios = layout.chosen("--scenario", scenario, layout.SCENARIOS)
    protocols = layout.chosen("--protocol", protocol, list(Protocol))
    loads = _loads(load)
    parse_number("--runs", runs, 1, 100_000)
    parse_number("--tau", tau, 0.001, 600)
    parse_number("--processes", processes, 0, layout.PEERS)
    systems = [] if against == "none" else layout.chosen("--against", against, list(VARIANTS))
    if plot_to is not None:
        check_plot_place(plot_to)
    rows: list[Row] = []
    if delays is not None:
        plan, one_way = recorded(delays, seed)
        asked = {name: plan.repliers(name) for name in scenarios}
        for each in loads:
            rows += guarded(simulated_rows, plan, one_way, asked, protocols, each, runs, tau, _tell)
    else:
        plan = layout.tree(*layout.made_up(seed))
        asked = {name: plan.repliers(name) for name in scenarios}
        shared = processes or processes_for(layout.PEERS - 1)
        for each in loads:
            rows += guarded(mesh_rows, plan, asked, protocols, each, runs, tau, shared, _tell)
    found = ratios(
        [row for row in rows if "merge" in protocols],
        "p50_ms",
        by="protocol",
        of="merge",
        same=("scenario", "load"),
    )
    skipped: list[Row] = []
    if systems:
        stars, star_ratios, skipped = _stars(systems, runs, processes or processes_for(layout.STAR))
        rows += stars
        found += star_ratios
    if plot_to is not None:
        for path in plot([row for row in rows if "cdf_ms" in row], plot_to):
            progress.print(f"  wrote {path}", markup=False)
    print_results("replies", rows, found, skipped, as_json)


def _stars(names: list[str], runs: int, processes: int) -> tuple[list[Row], list[Row], list[Row]]:
    """Ten repliers next to the publisher, by every system, in turns."""
    skipped = [{"system": name, "reason": reason} for name in names if (reason := RIVALS[name].missing())]
    for each in skipped:
        progress.print(f"skipped {each['system']}: {each['reason']}", markup=False)
    plan = layout.star(layout.STAR)
    scenario = f"1x{layout.STAR}"
    asked = {scenario: dict.fromkeys(range(1, layout.STAR + 1), 1)}
    measured: list[Row] = []
    for _ in range(ROUNDS):
        measured += guarded(mesh_rows, plan, asked, STAR_PROTOCOLS, 0.0, runs, 1.0, processes, _tell)
        for name in names:
            if name not in {each["system"] for each in skipped}:
                for variant in VARIANTS[name]:
                    measured.append(guarded(star_row, name, variant, layout.STAR, runs, processes))
                    _tell(measured[-1])
    for row in measured:
        row["scenario"] = f"star {scenario}"
    cells = ("system", "scenario", "protocol", "load")
    values = ("p50_ms", "p99_ms", "delivered")
    medians = median_rows(measured, cells, values)
    for row in medians:
        mine = [one for one in measured if all(one[key] == row[key] for key in cells)]
        row["runs"] = sum(one["runs"] for one in mine)
        row["complete_runs"] = sum(one["complete_runs"] for one in mine)
    best: dict[str, Row] = {}
    for row in medians:
        if row["system"] not in best or row["p50_ms"] < best[row["system"]]["p50_ms"]:
            best[row["system"]] = row
    found = ratios(
        list(best.values()),
        "p50_ms",
        by="system",
        of="anabranch",
        same=("scenario",),
        also=("p50_ms", "p99_ms"),
    )
    return medians, found, skipped


def _tell(row: Row) -> None:
    progress.print(
        f"  {row['system']}, {row['scenario']} by {row['protocol']}, load {row['load']:g}: "
        f"p50 {row['p50_ms']:,.2f} ms, p99 {row['p99_ms']:,.2f} ms, {row['complete_runs']} of {row['runs']} "
        f"complete, delivered {row['delivered']:.4f}",
        markup=False,
    )


def _loads(text: str) -> list[float]:
    found = []
    for part in text.split(","):
        try:
            rate = float(part)
        except ValueError:
            rate = -1.0
        if not 0 <= rate <= 1000:
            raise UsageError(
                f"--load {text!r}: {part.strip()!r} is no number of messages per second; give numbers from 0 "
                "to 1000, separated by commas, such as 0,0.5,1"
            )
        found.append(rate)
    return list(dict.fromkeys(found))
