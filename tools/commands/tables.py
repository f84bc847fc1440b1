"""Views of a peer as tables for people: refreshed on a terminal, one after another in a file."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

from rich import box
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

View = dict[str, Any]
FILE_WIDTH = 160
"""Columns when the output is no terminal: nothing there wants short lines."""
_COLOURS = {"up": "green", "suspect": "yellow", "opening": "cyan", "down": "red"}


@contextlib.contextmanager
def open_board() -> Iterator[Callable[[View, str], None]]:
    """A function that shows a view and a note about it, in place of what it showed before."""
    console = Console(highlight=False, width=None if sys.stdout.isatty() else FILE_WIDTH)
    if not console.is_terminal:
        yield lambda view, note: console.print(table_of(view, note))
        return
    with Live(console=console, auto_refresh=False) as live:
        yield lambda view, note: live.update(table_of(view, note), refresh=True)


def table_of(view: View, note: str = "") -> Table:
    """The table of a view of links, of the mesh or of routes."""
    if "links" in view:
        table = _links(view)
    elif "mesh" in view:
        table = _mesh(view)
    else:
        table = _routes(view)
    if note:
        table.caption = Text(note, style="yellow")
    return table


def _links(view: View) -> Table:
    numbers = ("delay ms", "jitter ms", "loss", "availability", "silent s")
    table = _table(f"links of {view['peer']}", ("peer", "role", "state"), numbers)
    for link in view["links"]:
        state = Text(link["state"], style=_COLOURS.get(link["state"], ""))
        table.add_row(
            link["peer"],
            link["role"],
            state,
            f"{link['delay_ms']:.3f}",
            f"{link['jitter_ms']:.3f}",
            _share(link["loss"]),
            _share(link["availability"]),
            f"{link['silent_s']:.1f}",
        )
    return _or_note(table, "no links")


def _mesh(view: View) -> Table:
    table = _table(
        f"links of the mesh, as {view['peer']} knows them",
        ("from", "to"),
        ("delay ms", "loss", "availability"),
    )
    for edge in view["mesh"]:
        delay = f"{edge['delay_ms']:.3f}"
        table.add_row(edge["from"], edge["to"], delay, _share(edge["loss"]), _share(edge["availability"]))
    return _or_note(table, "no links")


def _routes(view: View) -> Table:
    table = _table(
        f"routes of {view['peer']} ({view['variant']})", ("destination", "path"), ("hops", "delay ms")
    )
    for route in view["routes"]:
        path = route["path"]
        table.add_row(route["destination"], " > ".join(path), str(len(path) - 1), f"{route['delay_ms']:.3f}")
    return _or_note(table, "none in use: a path is chosen when there is something to send")


def _table(title: str, texts: tuple[str, ...], numbers: tuple[str, ...]) -> Table:
    table = Table(title=title, title_justify="left", caption_justify="left", box=box.SIMPLE_HEAD)
    for heading in texts:
        table.add_column(heading, overflow="fold")
    for heading in numbers:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def _or_note(table: Table, note: str) -> Table:
    if not table.row_count:
        table.caption = note
    return table


def _share(fraction: float) -> str:
    return f"{fraction * 100:.2f} %"
