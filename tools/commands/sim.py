"""`anabranch sim`: a scenario in virtual time. Parses options; `tools/scenarios` does the work."""

import json
import sys
import time
from pathlib import Path
from typing import Annotated, get_args

import msgspec
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from anabranch.overlay.errors import UsageError
from anabranch.tools.scenarios.builtin import five_peers
from anabranch.tools.scenarios.checks import check_scenario
from anabranch.tools.scenarios.narrowing import narrowed, variants_of
from anabranch.tools.scenarios.plotting import check_plot_place, plot
from anabranch.tools.scenarios.printing import print_summary
from anabranch.tools.scenarios.reading import load_scenario
from anabranch.tools.scenarios.running import make_jobs, run_jobs
from anabranch.tools.scenarios.schema import Preset
from anabranch.tools.scenarios.simulating import Job, RunResult
from anabranch.tools.scenarios.summary import summarize

RUNS_MAX = 1000


def sim(
    file: Annotated[
        Path | None, typer.Argument(help="A scenario file (TOML); five peers with faults without one.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Seed of the first run; the same seed repeats a run exactly.")
    ] = None,
    runs: Annotated[
        int | None, typer.Option(help="Runs per variant, with seeds that follow each other.")
    ] = None,
    variants: Annotated[str | None, typer.Option(help="Variants to compare, separated by commas.")] = None,
    seconds: Annotated[float | None, typer.Option(help="Simulated seconds, instead of the file's.")] = None,
    preset: Annotated[
        str | None, typer.Option(help="Timing instead of the file's: default, local, lan, wan or harmony.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")] = False,
    plot_dir: Annotated[
        Path | None,
        typer.Option(
            "--plot", metavar="OUT", help="Make pictures (SVG) in this directory; needs matplotlib."
        ),
    ] = None,
    log_dir: Annotated[
        Path | None, typer.Option(help="Write the peers' records below this directory, by variant and seed.")
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Assert every peer's invariants after every event; slower.")
    ] = False,
) -> None:
    """Run a scenario in virtual time and print what was delivered, lost and late."""
    scenario = load_scenario(file) if file is not None else five_peers()
    if programs := [peer.name for peer in scenario.peers if peer.program]:
        raise UsageError(
            f"{file}: {', '.join(programs)} run programs, which need real time: anabranch testbed run {file}"
        )
    if seconds is not None:
        scenario = narrowed(scenario, seconds)
    if preset is not None:
        if preset not in get_args(Preset):
            raise UsageError(f"--preset {preset}: one of {', '.join(get_args(Preset))}")
        scenario = msgspec.structs.replace(scenario, preset=preset)
        check_scenario(scenario)
    count = scenario.run.runs if runs is None else runs
    if not 1 <= count <= RUNS_MAX:
        raise UsageError(f"--runs {count}: from 1 to {RUNS_MAX:,}")
    jobs = make_jobs(
        scenario,
        variants=scenario.run.variants if variants is None else variants_of(scenario, variants),
        seed=scenario.run.seed if seed is None else seed,
        runs=count,
        check=check,
        log_dir=log_dir,
    )
    if plot_dir is not None:
        check_plot_place(plot_dir)
    begin = time.perf_counter()
    results = _run(jobs, scenario.name)
    summary = summarize(scenario, results, time.perf_counter() - begin)
    if plot_dir is not None:
        for path in plot(scenario, results, plot_dir):
            sys.stderr.write(f"made {path}\n")
    if as_json:
        sys.stdout.write(json.dumps(summary, indent=2) + "\n")
    else:
        print_summary(summary, Console())


def _run(jobs: list[Job], name: str) -> list[RunResult]:
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"))
    with Progress(
        *columns, TimeElapsedColumn(), console=console, disable=not console.is_terminal
    ) as progress:
        task = progress.add_task(f"{name}, {len(jobs)} runs", total=1.0)
        return run_jobs(jobs, lambda share: progress.update(task, completed=share))
