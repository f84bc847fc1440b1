"""Whether what the peers report is what may be expected after the harm that was done to them.

States the promises: survivors go on, a flow through a victim is away for a bounded time, nothing comes twice
or out of order, and what did not come was counted.
"""

import json
import time
from collections.abc import Iterator
from pathlib import Path

from chaos_mesh import Harm, Mesh
from chaos_messages import FlowReport, Report

DETECTION_S = 1.0
"""`down_after_s`: the silence after which a link is given up."""
REROUTED_S = DETECTION_S + 0.9
"""Longest silence of a flow that passed a victim: detection, a probe interval, the news through the mesh, and
what two busy cores add."""
STEADY_S = 0.6
"""Longest silence of any other flow between survivors: what two busy cores and a starting interpreter add."""
BACK_S = 5.0
"""A victim is back in all flows within this time."""
ORDERLY_END_S = 3.0
CLOCK_SLACK_S = 0.02
"""Between the clock of records and the one of reports."""
HARMLESS = ("debug", "info", "warning")
"""Levels of log lines that tell of no fault of ours."""

Choice = tuple[float, tuple[str, ...]]
"""From when on a path was in use."""


def judge(mesh: Mesh, reports: dict[str, Report]) -> list[str]:
    """What went wrong, in words; empty when all is well. Call when the processes have ended."""
    faults = list(mesh.violations)
    chosen = chosen_paths(mesh.directory)
    for receiver, report in reports.items():
        for flow in report.flows:
            faults += _judge_flow(mesh, receiver, flow, chosen.get((flow.source, receiver), []))
        faults += _judge_account(receiver, report, reports, mesh.incarnations)
    return faults


def judge_end(mesh: Mesh) -> list[str]:
    """What went wrong when the processes were told to end, and in anything that any of them wrote."""
    faults = [
        f"{name}-{incarnation} ended with {code} after {took_s:.1f} s"
        for name, incarnation, code, took_s in mesh.exits
        if code != 0 or took_s > ORDERLY_END_S
    ]
    for path in sorted(mesh.directory.glob("*.stderr")):
        faults += [f"{path.name}: {text}"] if (text := path.read_text(errors="replace").strip()) else []
    for path in sorted(mesh.directory.glob("*.log")):
        lines = path.read_text().splitlines()
        faults += [f"{path.name}: {line}" for line in lines if json.loads(line)["level"] not in HARMLESS]
    return faults


def _judge_flow(mesh: Mesh, receiver: str, flow: FlowReport, chosen: list[Choice]) -> Iterator[str]:
    troubles = [(*silence, 0) for silence in flow.silences]
    troubles += [(gap.since, gap.until, gap.next - gap.first) for gap in flow.gaps]
    for since, until, missing in troubles:
        paths = _paths_between(flow, chosen, since, until)
        harms = [harm for harm in mesh.harms if _explains(mesh, harm, flow, receiver, since, until, paths)]
        may_lose = any(harm.kind != "nap" or len(paths) > 1 for harm in harms)
        limit_s = max((_longest(mesh, harm, flow, receiver) for harm in harms), default=STEADY_S)
        if until - since > limit_s or (missing and not may_lose):
            yield (
                f"{flow.source}-{flow.incarnation} to {receiver}: {missing} lost in a silence of "
                f"{until - since:.2f} s (at most {limit_s:.2f}), paths {paths}, harm {_near(mesh, since)}"
            )


def _explains(
    mesh: Mesh,
    harm: Harm,
    flow: FlowReport,
    receiver: str,
    since: float,
    until: float,
    paths: list[tuple[str, ...]],
) -> bool:
    """Whether a silence may come from a harm: an end of the flow was not back, or it passed the victim."""
    if harm.start > until:
        return False
    if harm.victim in (flow.source, receiver) or mesh.is_cut(flow.source, receiver, harm.victim):
        return since <= harm.back
    return since <= harm.start + REROUTED_S and any(harm.victim in path for path in paths)


def _longest(mesh: Mesh, harm: Harm, flow: FlowReport, receiver: str) -> float:
    """How long a flow may be silent by a harm that explains it."""
    if harm.kind == "nap":
        return harm.end - harm.start + STEADY_S
    ends = (flow.source, receiver)
    if harm.victim in ends or mesh.is_cut(*ends, harm.victim):
        return harm.back - harm.start + STEADY_S
    return REROUTED_S


def _judge_account(
    receiver: str, report: Report, reports: dict[str, Report], incarnations: dict[str, int]
) -> Iterator[str]:
    counters = report.counters
    missing = sum(gap.next - gap.first for flow in report.flows for gap in flow.gaps)
    if counters.get("lost", 0) != missing:
        yield f"{receiver}: {missing} missing, counted as lost {counters.get('lost', 0)}"
    for name in ("dropped.subscription_full", "dropped.malformed", "dropped.conflict", "dropped.replayed"):
        if counters.get(name):
            yield f"{receiver}: {name} = {counters[name]}"
    for flow in report.flows:
        holes = sum(gap.next - gap.first for gap in flow.gaps)
        if flow.received + holes != flow.last + 1 - flow.first:
            yield f"{receiver}: {flow.source}-{flow.incarnation} does not add up: {flow}"
        is_present = flow.incarnation == incarnations[flow.source]
        if is_present and flow.last + 1 != reports[flow.source].published:
            yield f"{receiver}: {flow.source} put {reports[flow.source].published}, last {flow.last}"


def chosen_paths(directory: Path) -> dict[tuple[str, str], list[Choice]]:
    """The paths that sources chose, by source and receiver, from their records."""
    wall_s = time.time() - time.monotonic()
    chosen: dict[tuple[str, str], list[Choice]] = {}
    for path in directory.glob("*.jsonl"):
        for line in path.read_bytes().splitlines():
            if line.startswith(b'{"kind":"route"') and line.endswith(b"}"):
                record = json.loads(line)
                choice = (record["ts"] / 1e6 - wall_s, tuple(record["path"]))
                chosen.setdefault((record["peer"], record["destination"]), []).append(choice)
    for choices in chosen.values():
        choices.sort()
    return chosen


def _paths_between(
    flow: FlowReport, chosen: list[Choice], since: float, until: float
) -> list[tuple[str, ...]]:
    """The paths that a flow took or was given within a time: what is lost tells not which way it went."""
    paths: dict[tuple[str, ...], None] = {}
    for choices in (flow.paths, chosen):
        before = [path for at, path in choices if at <= since - CLOCK_SLACK_S]
        within = [path for at, path in choices if since - CLOCK_SLACK_S < at <= until + CLOCK_SLACK_S]
        paths.update(dict.fromkeys(before[-1:] + within))
    return list(paths)


def _near(mesh: Mesh, when: float) -> list[str]:
    return [
        f"{harm.kind} {harm.victim} {harm.start - when:+.2f}, {harm.end - when:+.2f}, {harm.back - when:+.2f}"
        for harm in mesh.harms
        if harm.start - 6 < when < harm.back + 3
    ]
