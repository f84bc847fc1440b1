"""Runs the jobs of a scenario in this process or on several cores; results come in the order of the jobs."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import msgspec

from anabranch.tools.scenarios.schema import Scenario
from anabranch.tools.scenarios.simulating import Job, RunResult, simulate_together

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


def share_meshes(jobs: Sequence[Job]) -> list[Job]:
    """One job for all variants of a seed, on one mesh: see `Job.together`."""
    by_seed: dict[int, list[Job]] = {}
    for job in jobs:
        by_seed.setdefault(job.seed, []).append(job)
    return [
        msgspec.structs.replace(
            some[0], variant=some[-1].variant, together=tuple(job.variant for job in some)
        )
        for some in by_seed.values()
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
        results += simulate_together(
            job,
            lambda share, number=number: on_progress((number + share) / len(jobs)),  # type: ignore[misc]
        )
    return results


def _run_on_cores(jobs: Sequence[Job], on_progress: Callable[[float], None], cores: int) -> list[RunResult]:
    context = multiprocessing.get_context("spawn")  # a forked copy of a threaded process may hang
    results: list[RunResult] = []
    with ProcessPoolExecutor(cores, mp_context=context, initializer=_end_with_the_command) as pool:
        for number, some in enumerate(pool.map(simulate_together, jobs), start=1):
            results += some
            on_progress(number / len(jobs))
    return results


def _end_with_the_command() -> None:
    """Ctrl-C reaches every process of the terminal: those that simulate end at once, without a word. When the
    command itself is killed, nobody tells them: they look."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    threading.Thread(target=_outlive_nobody, daemon=True).start()


def _outlive_nobody() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
