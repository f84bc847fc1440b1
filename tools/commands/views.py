"""`anabranch links` and `anabranch routes`: how a running peer sees its links, its mesh and its routes."""

import asyncio
import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import typer

from anabranch.overlay.errors import UsageError
from anabranch.tools.commands.options import OBSERVER, checked_number, with_settings
from anabranch.tools.commands.running import CommandError, make_observer, nobody_answered, run_to_end
from anabranch.transport.settings import Settings

View = dict[str, Any]
AsJson = Annotated[bool, typer.Option("--json", help="Print a JSON object; with --watch one per line.")]
Watch = Annotated[bool, typer.Option("--watch", help="Go on, and show it again and again.")]
Interval = Annotated[float, typer.Option("--interval", help="Seconds between two looks of --watch.")]
Timeout = Annotated[float, typer.Option("--timeout", help="Seconds to wait for the peer's answer.")]


@with_settings(*OBSERVER)
def links(
    settings: Settings,
    mesh: Annotated[
        bool, typer.Option("--mesh", help="All links of the mesh, as that peer knows them.")
    ] = False,
    as_json: AsJson = False,
    watch: Watch = False,
    interval: Interval = 1.0,
    timeout: Timeout = 5.0,
) -> int:
    """Show the links of the peer at --join (tcp://127.0.0.1:7400 by default) as it measures them."""
    return _look(settings, mesh_view if mesh else links_view, as_json, watch, interval, timeout)


@with_settings(*OBSERVER)
def routes(
    settings: Settings,
    as_json: AsJson = False,
    watch: Watch = False,
    interval: Interval = 1.0,
    timeout: Timeout = 5.0,
) -> int:
    """Show the routes in use at the peer at --join (tcp://127.0.0.1:7400 by default).

    A peer chooses the path to another when it has something to send there.
    """
    return _look(settings, routes_view, as_json, watch, interval, timeout)


def links_view(report: View, observer: str) -> View:
    """The links of a peer, without the one of the observer."""
    return {"peer": report["peer"], "links": [each for each in report["links"] if each["peer"] != observer]}


def mesh_view(report: View, observer: str) -> View:
    """Each announced direction of each link of the mesh, without the observer's."""
    rows = [
        {"from": peer, "to": neighbour, **edge}
        for peer, neighbours in report["mesh"].items()
        for neighbour, edge in neighbours.items()
        if observer not in (peer, neighbour)
    ]
    return {"peer": report["peer"], "mesh": rows}


def routes_view(report: View, observer: str) -> View:
    """The paths in use, without those to the observer."""
    rows = [each for each in report["routes"] if each["destination"] != observer]
    return {
        "peer": report["peer"],
        "variant": report["variant"],
        "switches": report["switches"],
        "routes": rows,
    }


def _look(
    settings: Settings,
    view: Callable[[View, str], View],
    as_json: bool,
    watch: bool,
    interval: float,
    timeout: float,
) -> int:
    checked_number("--interval", interval, 0.05, 86400.0)
    checked_number("--timeout", timeout, 0.05, 86400.0)
    observer = make_observer(settings)

    async def look() -> View:
        try:
            await observer.wait_for_links(timeout=timeout)
            report = await observer.inspect(timeout=timeout)
        except (TimeoutError, UsageError):  # no link, or one that went meanwhile
            raise nobody_answered(settings, timeout) from None
        return view(report, str(observer.name))

    async def work() -> int:
        async with observer:
            found = await look()
            with _board(as_json) as show:
                show(found, "")
                while watch:
                    await asyncio.sleep(interval)
                    try:
                        found = await look()
                        show(found, "")
                    except CommandError:
                        show(found, f"no answer for {timeout:g} s; this is how it was before")
            return 0

    return run_to_end(work(), when_stopped=lambda _: 0)


@contextlib.contextmanager
def _board(as_json: bool) -> Iterator[Callable[[View, str], None]]:
    """What shows a view, and a note about it."""
    if as_json:

        def print_line(found: View, note: str) -> None:
            line = {**found, "stale": True} if note else found
            sys.stdout.write(json.dumps(line) + "\n")
            sys.stdout.flush()

        yield print_line
        return
    from anabranch.tools.commands.tables import open_board

    with open_board() as show:
        yield show
