"""What a run came to: one object for programs, tables for people."""

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from anabranch.tools.demo.board import Board, FlowRow, Happening, show_path
from anabranch.tools.demo.mesh import Outcome
from anabranch.tools.demo.scenario import DEADLINE_S, Trouble

Row = dict[str, Any]

_TRY_NEXT = (
    ("anabranch demo --seconds 60", "longer: kill one of its peers"),
    ("anabranch demo --json", "one object, with every path taken"),
    ("anabranch bench rtt --against raw", "next to bare ZeroMQ"),
    ("anabranch --help", "peers and topics of your own"),
)


def summarise(board: Board, outcome: Outcome, seconds: float, log_dir: Path) -> Row:
    """The summary as plain JSON values."""
    emulation = outcome.emulation
    return {
        "demo": {"seconds": seconds, "deadline_ms": DEADLINE_S * 1e3, "log_dir": str(log_dir)},
        "ok": not board.problems,
        "problems": board.problems,
        "flows": [_flow(board, row) for row in board.flows.values()],
        "events": [_event(board, happening) for happening in board.happenings],
        "links": [
            {
                "link": link.name,
                "state": row.state,
                "set_ms": row.set_delay_s * 1e3,
                "delay_ms": row.mean("delay_ms"),
                "jitter_ms": row.mean("jitter_ms"),
                "loss": row.mean("loss"),
            }
            for link, row in board.links.items()
        ],
        "emulation": {
            "lateness_p50_ms": _ms(emulation.lateness_p50_s if emulation else None),
            "lateness_p99_ms": _ms(emulation.lateness_p99_s if emulation else None),
        },
        "counters": board.counters,
        "processes": outcome.pids,
        "wrote": outcome.wrote,
    }


def print_summary(console: Console, summary: Row) -> None:
    """The summary for people."""
    if any(flow["sent"] for flow in summary["flows"]):
        console.print(_flows_table(summary["flows"]))
        console.print()
    if summary["events"]:
        console.print(_events_table(summary["events"]))
        console.print()
    for problem in summary["problems"]:
        console.print(Text(f"problem: {problem}", "bold red"), soft_wrap=True)
    lateness = summary["emulation"]["lateness_p99_ms"]
    if lateness is not None and lateness > 1.0:
        text = f"note: this machine was busy; the emulated links were up to {lateness:.1f} ms late (p99)"
        console.print(Text(text, "yellow"))
    for path in summary["wrote"]:
        console.print(Text(f"note: something was written to {path}", "yellow"), soft_wrap=True)
    if summary["ok"]:
        console.print(Text("every flow was delivering at the end", "bold green"))
    console.print(Text.assemble(("logs      ", "dim"), summary["demo"]["log_dir"]), soft_wrap=True)
    console.print(Text("          one JSON record per line: probes, links, routes, deliveries", "dim"))
    for index, (command, what) in enumerate(_TRY_NEXT):
        head = "try next" if index == 0 else ""
        console.print(Text.assemble((f"{head:10}", "dim"), f"{command:35}", (what, "dim")), soft_wrap=True)


def _flow(board: Board, row: FlowRow) -> Row:
    view = row.view
    begun = board.started_at or 0.0
    received = view.received if view else 0
    return {
        "topic": row.flow.topic,
        "from": row.flow.source,
        "to": row.flow.destination,
        "delivering": bool(row.delivering),
        "sent": row.sent,
        "delivered": received,
        "lost": max(0, row.sent - received),
        "disordered": view.disordered if view else 0,
        "late": view.late if view else 0,
        "late_share": round(view.late / received, 5) if view and received else None,
        "told_late": view.told_late if view else 0,
        "p50_ms": view.p50_ms if view else None,
        "p99_ms": view.p99_ms if view else None,
        "age_p50_ms": view.age_p50_ms if view else None,
        "age_p99_ms": view.age_p99_ms if view else None,
        "longest_gap_ms": view.longest_gap_ms if view else None,
        "reroutes": view.reroutes if view else 0,
        "path": list(row.path),
        "paths": [{"at_s": round(at - begun, 3), "path": list(path)} for at, path in row.history],
    }


def _event(board: Board, happening: Happening) -> Row:
    step = happening.step
    return {
        "at_s": round(happening.at - (board.started_at or 0.0), 3),
        "kind": step.trouble.value,
        "link": step.link.name,
        "affected": [flow.name for flow in happening.affected],
        "noticed_s": _rounded(happening.noticed_s),
        "moved": [
            {
                "topic": reaction.flow.topic,
                "to": reaction.flow.destination,
                "path": list(reaction.path),
                "after_s": round(reaction.after_s, 3),
            }
            for reaction in happening.moved
        ],
        "reaction_s": _rounded(happening.reaction_s),
    }


def _flows_table(flows: list[Row]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    table.add_column("flow", no_wrap=True)
    for head in ("delivered", "lost", "late", "p50 ms", "p99 ms", "moves", "longest gap"):
        table.add_column(head, justify="right", no_wrap=True)
    for flow in flows:
        gap = flow["longest_gap_ms"]
        table.add_row(
            f"{flow['topic']} {flow['from']} to {flow['to']}",
            f"{flow['delivered']:,}",
            Text(f"{flow['lost']:,}", "yellow" if flow["lost"] else "dim"),
            "·" if flow["late_share"] is None else f"{flow['late_share']:.1%}",
            "·" if flow["p50_ms"] is None else f"{flow['p50_ms']:.1f}",
            "·" if flow["p99_ms"] is None else f"{flow['p99_ms']:.1f}",
            str(flow["reroutes"]),
            "·" if gap is None else f"{gap:.0f} ms",
        )
    return table


def _events_table(events: list[Row]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    table.add_column("at", justify="right", no_wrap=True)
    table.add_column("link", no_wrap=True)
    table.add_column("what the mesh did")
    for event in events:
        table.add_row(f"{event['at_s']:.1f} s", f"{event['link']} {event['kind']}", _story(event))
    return table


def _story(event: Row) -> Text:
    parts = []
    if event["noticed_s"] is not None:
        what = "up again" if event["kind"] == Trouble.RESTORED else "noticed"
        parts.append(f"{what} after {event['noticed_s']:.2f} s")
    parts += [
        f"{move['topic']} to {move['to']} took {show_path(tuple(move['path']))} after {move['after_s']:.2f} s"
        for move in event["moved"]
    ]
    if not event["affected"]:
        is_back = event["kind"] == Trouble.RESTORED
        parts.append("no flow had left it" if is_back else "no flow used it")
    elif len(event["moved"]) < len(event["affected"]):
        moved = {f"{move['topic']} to {move['to']}" for move in event["moved"]}
        stayed = [name for name in event["affected"] if name not in moved]
        is_back = event["kind"] == Trouble.RESTORED
        parts.append(f"{', '.join(stayed)} {'not yet back' if is_back else 'did not move'}")
    return Text("; ".join(parts))


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1e3, 3)
