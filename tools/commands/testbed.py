"""`anabranch testbed`: a scenario on real peers over an emulated network. Parses options, prints results."""

import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from anabranch.overlay.errors import AnabranchError, UsageError
from anabranch.tools.commands.running import CommandError, run_to_end, unfinished
from anabranch.tools.scenarios.narrowing import narrowed, variants_of
from anabranch.tools.scenarios.printing import print_summary
from anabranch.tools.scenarios.reading import load_scenario
from anabranch.tools.scenarios.running import make_jobs
from anabranch.tools.scenarios.schema import Scenario
from anabranch.tools.scenarios.simulating import Job, RunResult
from anabranch.tools.scenarios.summary import Summary, summarize
from anabranch.tools.testbed import load
from anabranch.tools.testbed.backends import BackendKind, make_backend, why_not
from anabranch.tools.testbed.emulating import Course, Emulating
from anabranch.tools.testbed.gathering import gather
from anabranch.tools.testbed.validity import Validity, judge

testbed_app = typer.Typer(no_args_is_help=True, help="Run real peers over an emulated network.")


@testbed_app.command("doctor")
def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object instead of a table.")] = False,
) -> None:
    """Tell which ways of emulating a network work here, and why the others don't.

    Exit code 0 if at least one of them does.
    """
    reasons = {kind: why_not(kind) for kind in BackendKind}
    chosen = next(
        kind
        for kind in (BackendKind.NAMESPACES, BackendKind.PROXIES)
        if kind is BackendKind.PROXIES or not reasons[kind]
    )
    if as_json:
        found = {kind.value: {"works": not reason, "why_not": reason} for kind, reason in reasons.items()}
        document = {
            "backends": found,
            "auto": chosen.value,
            "cpus": os.cpu_count(),
            "root": os.geteuid() == 0,
        }
        sys.stdout.write(json.dumps(document, indent=2) + "\n")
        return
    table = Table(title="ways to emulate a network", title_justify="left")
    for heading in ("backend", "works", "what it is, or why it does not work"):
        table.add_column(heading, overflow="fold")
    for kind, reason in reasons.items():
        table.add_row(kind.value, "no" if reason else "yes", reason or _WHAT[kind])
    console = Console()
    console.print(table)
    console.print(f"`anabranch testbed run` takes {chosen.value} unless told otherwise")


_WHAT = {
    BackendKind.NAMESPACES: "a network namespace per host, a network in user space between them",
    BackendKind.NETEM: "a network namespace per host, the kernel's netem between them",
    BackendKind.PROXIES: "processes on loopback, a TCP proxy per link; no privilege; delays less exact",
}


@testbed_app.command("run")
def run(
    file: Annotated[Path, typer.Argument(help="A scenario file (TOML), as for `anabranch sim`.")],
    backend: Annotated[
        str, typer.Option(help="What emulates the network: auto, namespaces, netem or proxies.")
    ] = "auto",
    variants: Annotated[str | None, typer.Option(help="Variants to compare, separated by commas.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of what is drawn: faults, losses, nodes.")] = None,
    runs: Annotated[int | None, typer.Option(help="Runs per variant, one after the other.")] = None,
    seconds: Annotated[float | None, typer.Option(help="Seconds, instead of the file's.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")] = False,
    log_dir: Annotated[
        Path | None, typer.Option(help="Write the peers' records below this directory, by variant and seed.")
    ] = None,
) -> None:
    """Run a scenario in real time: each peer a process on an emulated host, over real sockets."""
    scenario = load_scenario(file)
    if seconds is not None:
        scenario = narrowed(scenario, seconds)
    results = run_scenario(
        scenario,
        backend=backend,
        variants=scenario.run.variants if variants is None else variants_of(scenario, variants),
        seed=scenario.run.seed if seed is None else seed,
        runs=scenario.run.runs if runs is None else runs,
        log_dir=log_dir,
        as_json=as_json,
        show=_show,
    )
    if results:
        sys.exit(results)


def run_scenario(
    scenario: Scenario,
    *,
    backend: str,
    variants: list[str],
    seed: int,
    runs: int,
    log_dir: Path | None,
    as_json: bool,
    show: Callable[[Summary], None],
    complete: Callable[[Summary], None] | None = None,
) -> int:
    """Run all its jobs, print the summary; the exit code.

    `complete` may add to the summary before it is printed: as JSON, or for people by `show`.
    """
    jobs = make_jobs(scenario, variants=variants, seed=seed, runs=runs, log_dir=log_dir)
    with tempfile.TemporaryDirectory(prefix="anabranch-testbed-", ignore_cleanup_errors=True) as scratch:
        return run_to_end(
            _run_all(scenario, jobs, backend, Path(scratch), None if as_json else show, complete), unfinished
        )


async def _run_all(
    scenario: Scenario,
    jobs: list[Job],
    backend: str,
    scratch: Path,
    show: Callable[[Summary], None] | None,
    complete: Callable[[Summary], None] | None,
) -> int:
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"))
    results, judged = [], []
    said: list[Summary] = []
    begin = time.perf_counter()
    with Progress(
        *columns, TimeElapsedColumn(), console=console, disable=not console.is_terminal
    ) as progress:
        for number, job in enumerate(jobs):
            task = progress.add_task(f"{scenario.name}, {job.variant}, seed {job.seed}", total=1.0)
            place = scratch / str(number)
            place.mkdir()
            before = load.cpu()
            course = await _run_one(job, backend, place, partial(progress.update, task))
            assert course.emulation is not None
            said += [
                {"variant": job.variant, "seed": job.seed, "peer": peer, "line": line}
                for peer, line in course.said
            ]
            judged.append(judge(course.emulation, load.foreign_share(before, load.cpu())))
            measured = await asyncio.to_thread(gather, scenario, course)
            results.append(
                RunResult(job.variant, job.seed, measured, 0, "", load.own_seconds(before), job.size_bytes)
            )
    summary = summarize(scenario, results, time.perf_counter() - begin)
    summary["emulation"] = [msgspec.to_builtins(each) for each in judged]
    summary["said"] = said
    if complete is not None:
        complete(summary)
    if show is None:
        sys.stdout.write(json.dumps(summary, indent=2) + "\n")
    else:
        show(summary)
        for each in judged:
            _say(each)
    return 0


def _show(summary: Summary) -> None:
    console = Console()
    if any(numbers["pairs"] for numbers in summary["variants"].values()):
        print_summary(summary, console)
    for each in summary["said"]:
        console.print(f"{each['peer']}: {each['line']}", markup=False, highlight=False, soft_wrap=True)


async def _run_one(job: Job, backend: str, scratch: Path, update: Callable[..., None]) -> Course:
    try:
        emulating = Emulating(job, make_backend(backend, scratch), scratch)
        return await emulating.run(lambda share: update(completed=share))
    except UsageError:
        raise
    except AnabranchError as error:
        raise CommandError(str(error)) from None


def _say(judged: Validity) -> None:
    emulation = judged.emulation
    text = f"network: {emulation.backend}"
    if emulation.lateness_p99_ms is not None:
        text += f", packets late by p50 {emulation.lateness_p50_ms} ms, p99 {emulation.lateness_p99_ms} ms"
    text += f", {emulation.refused} refused; others used {judged.foreign_cpu:.2f} cores"
    Console().print(text, markup=False)
    for doubt in judged.doubts:
        Console(stderr=True).print(f"this run is not valid as a measurement: {doubt}", markup=False)
