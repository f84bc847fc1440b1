"""The live table of the demonstration, made to fit terminals from 80 by 24 upwards."""

from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from anabranch.tools.demo.board import Board, FlowRow, LinkRow, show_path
from anabranch.tools.demo.scenario import DEADLINE_S, LINKS, RATE, Flow, Trouble

WIDTH_MIN = 78
HEIGHT_MIN = 22
"""Below this the plain form is used."""
_WIDE = 96
_TALL = 34
_CHANGED_S = 3.0
"""A path that changed is marked for this long."""
_MARGIN = 3
"""Kept free at the end of lines: a terminal's own ^C must not wrap, or the picture moves."""
_TONES = {"plain": "", "good": "green", "bad": "red"}


def render(board: Board, seconds: float, now: float, width: int, height: int) -> RenderableType:
    """The whole picture for a terminal of this size."""
    roomy = width >= _WIDE and height >= _TALL
    width = min(width, 110)
    parts: list[RenderableType] = [_header(board, seconds, width), Text()]
    links = _links_wide(board) if roomy else _links_narrow(board)
    flows = _flows(board, now, wide=width >= _WIDE)
    parts += [links, Text(), flows, Text()]
    used = 4 + (len(LINKS) if roomy else (len(LINKS) + 1) // 2) + 1 + len(board.flows) + 2
    parts.append(_story(board, max(1, height - used - 1), width))
    return Group(*parts)


def _header(board: Board, seconds: float, width: int) -> RenderableType:
    running = board.started_at is not None
    elapsed = min(max(board.elapsed_s, 0.0), seconds)
    clock = f"{elapsed:4.1f} of {seconds:g} s" if running else ""
    left = Text.assemble(("anabranch demo", "bold"), "  ", (_phase(board), "dim"))
    grid = Table.grid(expand=False, padding=(0, 1))
    room = max(10, width - left.cell_len - len(clock) - 4)
    grid.add_column(no_wrap=True)
    grid.add_column(width=min(40, room))
    grid.add_column(no_wrap=True)
    bar: RenderableType = ProgressBar(total=seconds, completed=elapsed) if running else Text()
    grid.add_row(left, bar, clock)
    return grid


def _phase(board: Board) -> str:
    if board.phase == "running":
        return f"deadline {DEADLINE_S * 1e3:.0f} ms"
    if board.started_at is None and board.addresses:
        return f"{board.phase}: {board.links_up()} of {len(LINKS)} links up"
    return board.phase


# Links


def _links_wide(board: Board) -> Table:
    table = _table("link", "state", ">set ms", ">measured", ">jitter", ">loss", "carries")
    for row in board.links.values():
        carried = [flow.flow for flow in board.flows.values() if row.link.is_on(flow.path)]
        jitter, loss = _number(row.mean("jitter_ms")), _share(row.mean("loss"))
        table.add_row(*_link_cells(row), jitter, loss, _names(carried))
    return table


def _links_narrow(board: Board) -> Table:
    halves = [_table("link", "state", ">set", ">delay", ">loss") for _ in range(2)]
    per_half = (len(board.links) + 1) // 2
    for index, row in enumerate(board.links.values()):
        halves[index // per_half].add_row(*_link_cells(row), _share(row.mean("loss")))
    both = Table.grid(padding=(0, 4))
    both.add_row(*halves)
    return both


def _link_cells(row: LinkRow) -> list[Text]:
    marked = {Trouble.DEGRADED: "bold yellow", Trouble.DEAD: "bold red"}
    style = marked[row.trouble] if row.trouble is not None else ""
    states = {"up": "green", "suspect": "yellow", "down": "red"}
    state = Text(f"{row.state or '·':7}", states.get(row.state, "dim"))
    laid = "none" if row.trouble is Trouble.DEAD else f"{row.set_delay_s * 1e3:.0f}"
    return [Text(row.link.name, style), state, Text(f"{laid:>4}", style), _number(row.mean("delay_ms"))]


def _names(flows: Iterable[Flow]) -> Text:
    by_topic: dict[str, list[str]] = {}
    for flow in flows:
        by_topic.setdefault(flow.topic, []).append(flow.destination)
    return Text(", ".join(f"{topic} to {'+'.join(to)}" for topic, to in by_topic.items()), "cyan")


# Flows


def _flows(board: Board, now: float, *, wide: bool) -> Table:
    heads = ["topic", "route", ">msg/s", ">p50 ms", ">p99 ms", ">late", ">lost"]
    table = _table(*heads, *([">moves", ">delivered"] if wide else []))
    table.columns[1].min_width = 14
    for row in board.flows.values():
        cells = [Text(row.flow.topic), _route(row, now), *_flow_cells(row)]
        if wide:
            view = row.view
            moves = Text(str(view.reroutes) if view else "·", "yellow" if view and view.reroutes else "dim")
            cells += [moves, Text(f"{view.received:,}" if view else "·")]
        table.add_row(*cells)
    return table


def _route(row: FlowRow, now: float) -> Text:
    if not row.path:
        return Text(f"{row.flow.source}→{row.flow.destination}", "dim")
    style = "" if row.path == row.home else "yellow"
    text = Text(show_path(row.path), style)
    if len(row.history) > 1 and now - row.history[-1][0] < _CHANGED_S:
        text.stylize("bold")
        text.append(" *", "bold yellow")
    return text


def _flow_cells(row: FlowRow) -> list[Text]:
    view = row.view
    if view is None or not view.received:
        return [Text("·", "dim")] * 5
    rate = Text(f"{view.rate:.0f}", "bold red" if view.rate < 0.8 * RATE else "")
    return [
        rate,
        _latency(view.recent_p50_ms),
        _latency(view.recent_p99_ms),
        Text(f"{view.late / view.received:.1%}", "yellow" if view.late else "dim"),
        Text(str(view.missed), "yellow" if view.missed else "dim"),
    ]


def _latency(value_ms: float | None) -> Text:
    text = _number(value_ms)
    if value_ms is not None and value_ms > DEADLINE_S * 1e3:
        text.stylize("bold red")
    return text


# Story


def _story(board: Board, lines_max: int, width: int) -> RenderableType:
    begun = board.begun_at if board.started_at is None else board.started_at
    lines = []
    for line in list(board.lines)[-lines_max:]:
        clock = f"{line.at - begun:5.1f}".replace("-0.0", " 0.0")
        text = Text(f"{clock} s  {line.text}", _TONES[line.tone], no_wrap=True)
        text.truncate(width - _MARGIN, overflow="ellipsis")
        lines.append(text)
    return Group(*lines)


def _table(*heads: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    for head in heads:
        table.add_column(head.lstrip(">"), justify="right" if head.startswith(">") else "left", no_wrap=True)
    return table


def _number(value: float | None) -> Text:
    return Text("·", "dim") if value is None else Text(f"{value:.1f}")


def _share(value: float | None) -> Text:
    return Text("·", "dim") if value is None else Text(f"{value:.0%}", "yellow" if value >= 0.005 else "dim")
