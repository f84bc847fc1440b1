"""`anabranch replay`: a mesh over a recorded network. Parses options and prints the comparison."""

import json
import sys
import time
from pathlib import Path
from typing import Annotated, Any, get_args

import msgspec
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from typer.core import TyperGroup

from anabranch.overlay.errors import UsageError
from anabranch.tools.scenarios.narrowing import variants_of
from anabranch.tools.scenarios.running import make_jobs, run_jobs, share_meshes
from anabranch.tools.scenarios.schema import Preset, Recorded, Scenario
from anabranch.tools.scenarios.simulating import Job, RunResult
from anabranch.tools.scenarios.summary import Summary, summarize

RUNS_MAX = 1000


class _RunUnlessNamed(TyperGroup):
    """`anabranch replay TRACE` is `anabranch replay run TRACE`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in (*self.commands, "-h", "--help"):
            args = ["run", *args]
        return super().parse_args(ctx, args)


replay_app = typer.Typer(
    cls=_RunUnlessNamed, no_args_is_help=True, help="Run a mesh over a recorded network."
)


@replay_app.command("run")
def run(
    trace: Annotated[Path, typer.Argument(help="The recording: .npz, or .csv (.gz).")],
    peers: Annotated[int, typer.Option(help="Peers, each at a node of the recording drawn by seed.")] = 10,
    subsets: Annotated[int, typer.Option(help="How many draws of nodes to run, one after the other.")] = 1,
    seed: Annotated[int, typer.Option(help="Of the first draw; each further one takes the next.")] = 1,
    variants: Annotated[
        str, typer.Option(help="Variants to compare, separated by commas.")
    ] = "dp,bp,bp+qos,bp+qos+mp,adaptive",
    slice_s: Annotated[
        float | None,
        typer.Option(help="Seconds per slice; default: what the recording says, or 3.75 (--real: 15)."),
    ] = None,
    slices: Annotated[str | None, typer.Option(help="Which slices, as in 0:50; default: all.")] = None,
    unit: Annotated[
        str | None, typer.Option(help="Unit of its values if it doesn't say: s, cs, ms, us.")
    ] = None,
    measure: Annotated[
        str | None, typer.Option(help="What its values are if it doesn't say: rtt or delay.")
    ] = None,
    zero: Annotated[str, typer.Option(help="What 0 means: missing, or a one-way delay in ms.")] = "missing",
    missing: Annotated[
        str, typer.Option(help="Without a measurement a pair: hold (keeps its delay) or down.")
    ] = "hold",
    mesh: Annotated[str, typer.Option(help="Links: full, random or join.")] = "full",
    links_per_peer: Annotated[int, typer.Option(help="With --mesh random.")] = 4,
    publishers: Annotated[
        int | None, typer.Option(help="How many of the peers publish; default: all.")
    ] = None,
    rate: Annotated[float, typer.Option(help="Messages per second of each.")] = 1.0,
    size: Annotated[int, typer.Option(help="Bytes of each message.")] = 64,
    deadline_ms: Annotated[float | None, typer.Option(help="Deadline of each message.")] = None,
    loss: Annotated[float | None, typer.Option(help="Loss of every link, on top.")] = None,
    loss_after_loss: Annotated[
        float | None, typer.Option(help="Share lost after a lost frame: losses in bursts.")
    ] = None,
    outage_every_s: Annotated[
        float | None, typer.Option(help="Draw outages of links this often, on top.")
    ] = None,
    outage_share: Annotated[float, typer.Option(help="Probability of an outage per draw and link.")] = 0.02,
    outage_s: Annotated[float, typer.Option(help="How long an outage lasts.")] = 10.0,
    crash_share: Annotated[
        float, typer.Option(help="Let this share of the peers crash half way: some that only receive.")
    ] = 0.0,
    preset: Annotated[str, typer.Option(help="Timing: default, local, lan, wan or harmony.")] = "default",
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="A setting of all peers, KEY=VALUE; repeatable.")
    ] = None,
    real: Annotated[
        bool, typer.Option("--real", help="In real time, with real peers on the testbed.")
    ] = False,
    backend: Annotated[str, typer.Option(help="With --real: auto, namespaces, netem or proxies.")] = "auto",
    plot: Annotated[Path | None, typer.Option(help="Draw the comparison: .svg, .png or .pdf.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")] = False,
    log_dir: Annotated[
        Path | None, typer.Option(help="Write the peers' records below this directory, by variant and seed.")
    ] = None,
) -> None:
    """Replay a recorded network under a mesh, and compare with what was possible.

    In virtual time unless --real is given. Latencies stand beside two bounds of the same recording: the
    direct link, and an oracle that knows the whole network and its future.
    """
    try:
        from anabranch.tools.traces.composing import PLAYED_SLICE_S, Wishes, can_share, compose
        from anabranch.tools.traces.plotting import check_plot_file, draw
        from anabranch.tools.traces.trace import DEFAULT_SLICE_S
    except ModuleNotFoundError as error:
        raise UsageError(f"replay needs {error.name}: pip install 'anabranch[replay]'") from None
    if plot is not None:
        check_plot_file(plot)
    if not 1 <= subsets <= RUNS_MAX:
        raise UsageError(f"--subsets {subsets}: from 1 to {RUNS_MAX:,}")
    if preset not in get_args(Preset):
        raise UsageError(f"--preset {preset}: one of {', '.join(get_args(Preset))}")
    first, last = _slices(slices)
    document = {
        "file": str(trace),
        "slice_s": slice_s,
        "unit": unit,
        "measure": measure,
        "zero": zero if zero == "missing" else _number("--zero", zero),
        "missing": missing,
        "first_slice": first,
        "last_slice": last,
    }
    try:
        recorded = msgspec.convert(document, Recorded)
    except msgspec.ValidationError as error:
        raise UsageError(f"replay: {error}") from None
    wishes = Wishes(
        trace=recorded,
        peers=peers,
        publishers=publishers,
        rate_per_s=rate,
        size_bytes=size,
        deadline_ms=deadline_ms,
        mesh=mesh,
        links_per_peer=links_per_peer,
        subsets=subsets,
        seed=seed,
        preset=preset,  # type: ignore[arg-type] # looked up above
        config=_config(settings or []),
        loss=loss,
        loss_after_loss=loss_after_loss,
        outage_every_s=outage_every_s,
        outage_share=outage_share,
        outage_s=outage_s,
        crash_share=crash_share,
        unsaid_slice_s=DEFAULT_SLICE_S if real else PLAYED_SLICE_S,
    )
    scenario = compose(wishes, trace.name)
    chosen = variants_of(scenario, variants)

    def complete(summary: Summary) -> None:
        summary["compared"] = compared(summary, peers)
        if plot is not None:
            draw(summary["compared"], plot, scenario.name)

    if real:
        from anabranch.tools.commands.testbed import run_scenario

        code = run_scenario(
            scenario,
            backend=backend,
            variants=chosen,
            seed=seed,
            runs=subsets,
            log_dir=log_dir,
            as_json=as_json,
            show=lambda summary: _print(scenario, summary),
            complete=complete,
        )
        sys.exit(code)
    jobs = make_jobs(scenario, variants=chosen, seed=seed, runs=subsets, log_dir=log_dir)
    if log_dir is None and can_share(wishes, chosen):
        jobs = share_meshes(jobs)
    begin = time.perf_counter()
    results = _run(jobs, scenario.name)
    summary = summarize(scenario, results, time.perf_counter() - begin)
    complete(summary)
    if as_json:
        sys.stdout.write(json.dumps(summary, indent=2) + "\n")
    else:
        _print(scenario, summary)


@replay_app.command("record")
def record(
    log_dir: Annotated[Path, typer.Argument(help="Where peers wrote their records (--log-dir).")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The recording to write.")] = Path(
        "trace.npz"
    ),
    slice_s: Annotated[float, typer.Option(help="Seconds per slice.")] = 5.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object about it.")] = False,
) -> None:
    """Make a recording of the probes in the logs of a mesh, for `anabranch replay`."""
    try:
        from anabranch.tools.traces.reading import save_trace
        from anabranch.tools.traces.recording import record as make
    except ModuleNotFoundError as error:
        raise UsageError(f"replay needs {error.name}: pip install 'anabranch[replay]'") from None
    if output.suffix != ".npz":
        raise UsageError(f"--output {str(output)!r}: its name must end with .npz")
    made = make(log_dir, slice_s)
    save_trace(made.trace, output)
    facts = {
        "file": str(output),
        "nodes": len(made.trace.nodes),
        "slices": made.trace.slices,
        "slice_s": slice_s,
        "probes": made.probes,
        "unreadable_lines": made.torn,
    }
    if as_json:
        sys.stdout.write(json.dumps(facts) + "\n")
    else:
        sys.stdout.write(
            f"{output}: {facts['nodes']} peers, {facts['slices']} slices of {slice_s:g} s, "
            f"{made.probes:,} probes\n"
        )


def compared(summary: Summary, peers: int) -> dict[str, Summary]:
    """The variants side by side; traffic in relation to one path (`bp`), where that was run.

    Traffic is in bundles where they were counted, as in virtual time, else in bytes of data.
    """

    def carried(numbers: Summary) -> int:
        return int(numbers["bundles"] or numbers["data_bytes"])

    one_path = carried(summary["variants"]["bp"]) if "bp" in summary["variants"] else 0
    return {
        variant: {
            **numbers["bounds"],
            "loss": numbers["loss"],
            "loss_where_path_existed": numbers["loss_where_path_existed"],
            "late_share": numbers["late_share"],
            "p99_ms": numbers["latency_ms"]["p99"],
            "traffic_over_one_path": round(carried(numbers) / one_path, 3) if one_path else None,
            "control_bytes_per_s_and_peer": round(numbers["control_bytes_per_s"] / peers, 1),
        }
        for variant, numbers in summary["variants"].items()
    }


def _print(scenario: Scenario, summary: Summary) -> None:
    table = Table(
        title=f"{scenario.name}: {summary['runs']} x {scenario.peers[0].count} peers", title_justify="left"
    )
    headings = ("variant", "mean ms", "x oracle", "p99 ms", "lost", "late", "traffic", "control B/s/peer")
    for heading in headings:
        table.add_column(heading, justify="left" if heading == "variant" else "right")
    first = next(iter(summary["compared"].values()))
    table.add_row("oracle", _shown(first["oracle_ms"]), "1.00", "", "", "", "", "")
    for variant, numbers in summary["compared"].items():
        table.add_row(
            variant,
            _shown(numbers["mean_ms"]),
            _shown(numbers["mean_over_oracle"]),
            _shown(numbers["p99_ms"]),
            f"{numbers['loss_where_path_existed']:.3%}",
            f"{numbers['late_share']:.2%}",
            _shown(numbers["traffic_over_one_path"]),
            _shown(numbers["control_bytes_per_s_and_peer"]),
        )
    over = _shown(first["direct_over_oracle"])
    table.add_row("direct link", _shown(first["direct_ms"]), over, "", "", "", "", "")
    console = Console()
    console.print(table)
    performance = summary["performance"]
    events = f"{performance['events']:,} events in " if performance["events"] else ""
    console.print(f"lost: of what a path existed for; {events}{performance['wall_s']:.0f} s")


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:,.2f}"


def _run(jobs: list[Job], name: str) -> list[RunResult]:
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"))
    with Progress(
        *columns, TimeElapsedColumn(), console=console, disable=not console.is_terminal
    ) as progress:
        task = progress.add_task(f"{name}, {len(jobs)} runs", total=1.0)
        return run_jobs(jobs, lambda share: progress.update(task, completed=share))


def _slices(text: str | None) -> tuple[int, int | None]:
    if text is None:
        return 0, None
    first, colon, last = text.partition(":")
    try:
        numbers = int(first or 0), int(last) if last else None
    except ValueError:
        numbers = (-1, None)
    if numbers[0] < 0 or not colon or (numbers[1] is not None and numbers[1] <= numbers[0]):
        raise UsageError(f"--slices {text!r}: first and last (excluded), as in 0:50")
    return numbers


def _number(option: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UsageError(f"{option} {text!r}: missing, or a number of milliseconds") from None


def _config(settings: list[str]) -> dict[str, object]:
    found: dict[str, object] = {}
    for each in settings:
        key, equals, text = each.partition("=")
        if not equals:
            raise UsageError(f"--set {each!r}: KEY=VALUE, as in probe_interval_s=0.5")
        try:
            found[key] = msgspec.json.decode(text)
        except msgspec.DecodeError:
            found[key] = text
    return found
