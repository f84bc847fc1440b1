"""Runs the jobs of a scenario in this process or on several cores; results come in the order of the jobs."""

import multiprocessing
import os
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from anabranch.tools.scenarios.schema import Scenario
from anabranch.tools.scenarios.simulating import Job, RunResult, simulate

POOL_WORTH_S = 60.0
"""Simulated seconds in all below which starting processes costs more than it saves."""


def make_jobs(
    scenario: Scenario,
    *,
    variants: Sequence[str],
    seed: int,
    runs: int,
    check: bool = False,
    log_dir: Path | None = None,
) -> list[Job]:
    """Every variant with every seed; the logs of each go to `log_dir/variant/seed-N`."""
    sizes: list[int | None] = [*scenario.run.sizes_bytes] or [None]
    return [
        Job(
            scenario,
            variant,
            number,
            check,
            str(_log_place(log_dir, variant, number, size)) if log_dir is not None else None,
            size,
        )
        for variant in variants
        for size in sizes
        for number in range(seed, seed + runs)
    ]


def _log_place(log_dir: Path, variant: str, seed: int, size: int | None) -> Path:
    place = log_dir / variant / f"seed-{seed}"
    return place if size is None else place / f"size-{size}"


def run_jobs(
    jobs: Sequence[Job], on_progress: Callable[[float], None], processes: int | None = None
) -> list[RunResult]:
    """Run them all; `on_progress` gets the share that is done. The results don't depend on `processes`."""
    cores = processes or min(len(jobs), os.cpu_count() or 1)
    worth = processes is not None or sum(job.scenario.end_s for job in jobs) >= POOL_WORTH_S
    if cores > 1 and worth:
        return _run_on_cores(jobs, on_progress, cores)
    results = []
    for number, job in enumerate(jobs):
        results.append(simulate(job, lambda share, number=number: on_progress((number + share) / len(jobs))))  # type: ignore[misc]
    return results


def _run_on_cores(jobs: Sequence[Job], on_progress: Callable[[float], None], cores: int) -> list[RunResult]:
    context = multiprocessing.get_context("spawn")  # a forked copy of a threaded process may hang
    results = []
    with ProcessPoolExecutor(cores, mp_context=context, initializer=_end_on_interrupt) as pool:
        for result in pool.map(simulate, jobs):
            results.append(result)
            on_progress(len(results) / len(jobs))
    return results


def _end_on_interrupt() -> None:
    """Ctrl-C reaches every process of the terminal: those that simulate end at once, without a word."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
