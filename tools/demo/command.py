"""`anabranch demo`: a mesh of five peers that shows itself working. The job of `make run`."""

import asyncio
import contextlib
import datetime
import io
import json
import signal
import sys
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.live import Live
from rich.text import Text

from anabranch.overlay.errors import UsageError
from anabranch.tools.demo import scenario, screen
from anabranch.tools.demo.board import Board, Line
from anabranch.tools.demo.mesh import Mesh
from anabranch.tools.demo.summary import Row, print_summary, summarise

LOG_ROOT = Path("anabranch-logs")
_FRAME_S = 0.25
_PROGRESS_S = 2.0


def demo(
    seconds: Annotated[
        float, typer.Option("--seconds", help="How long the flows run; what happens is spread over it.")
    ] = scenario.SECONDS,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object at the end; progress goes to stderr.")
    ] = False,
    log_dir: Annotated[
        Path | None,
        typer.Option("--log-dir", help="Where to write logs.", show_default="anabranch-logs/TIME"),
    ] = None,
) -> None:
    """Run a local mesh of five peers, degrade one link, kill another, and watch the flows move."""
    scenario.timeline(seconds)
    directory = _make_log_dir(log_dir)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # arrows on a terminal that has none
    out, err = Console(highlight=False), Console(stderr=True, highlight=False)
    show: _Show = _Plain(err, seconds) if as_json else _Plain(out, seconds)
    if not as_json and _can_draw(out):
        show = _Screen(out, seconds)
    try:
        board, summary = asyncio.run(_run(show, seconds, directory))
    except (KeyboardInterrupt, asyncio.CancelledError) as stopped:
        err.print(f"stopped; logs are in {directory}", soft_wrap=True, markup=False)
        number = signal.SIGINT if isinstance(stopped, KeyboardInterrupt) else signal.SIGTERM
        raise typer.Exit(128 + number) from None
    (directory / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
    if as_json:
        sys.stdout.write(json.dumps(summary, indent=2) + "\n")
    else:
        print_summary(out, summary)
    if board.problems:
        raise typer.Exit(1)


async def _run(show: "_Show", seconds: float, directory: Path) -> tuple[Board, Row]:
    """Run it all while it is shown; SIGTERM ends it like Ctrl-C."""
    board = Board(show.line)
    mesh = Mesh(board, directory, seconds)
    running = asyncio.current_task()
    assert running is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, running.cancel)
    drawing = asyncio.create_task(show.draw(board))
    try:
        await mesh.run()
    finally:
        drawing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await drawing
    return board, summarise(board, mesh.outcome, seconds, directory)


class _Show:
    """How a run is shown while it goes on."""

    def __init__(self, console: Console, seconds: float) -> None:
        self._console = console
        self._seconds = seconds

    def line(self, line: Line) -> None:
        """A line of the story was written."""

    async def draw(self, board: Board) -> None:
        """Until cancelled."""
        raise NotImplementedError


class _Screen(_Show):
    """A live picture in a terminal, gone when the run is over."""

    async def draw(self, board: Board) -> None:
        with Live(console=self._console, auto_refresh=False, transient=True) as live:
            while True:
                width, height = self._console.size
                picture = screen.render(board, self._seconds, time.monotonic(), width, height)
                live.update(picture, refresh=True)
                await asyncio.sleep(_FRAME_S)


class _Plain(_Show):
    """Lines of text, for pipes and files."""

    def __init__(self, console: Console, seconds: float) -> None:
        super().__init__(console, seconds)
        self._board: Board | None = None

    def line(self, line: Line) -> None:
        self._print(line.at, line.text)

    async def draw(self, board: Board) -> None:
        self._board = board
        while True:
            await asyncio.sleep(min(_PROGRESS_S, self._seconds / 5))
            now = time.monotonic()
            self._print(now, _progress(board))

    def _print(self, at: float, text: str) -> None:
        begun = self._board and self._board.started_at
        clock = f"{max(0.0, at - begun):6.1f} s  " if begun else " " * 10
        self._console.print(Text(clock + text), soft_wrap=True)


def _progress(board: Board) -> str:
    links = f"{board.links_up()} of {len(scenario.LINKS)} links up"
    if board.started_at is None:
        return f"{board.phase}: {links}"
    if board.hushed:
        return board.phase
    views = [row.view for row in board.flows.values() if row.view is not None]
    delivering = sum(view.rate >= 0.5 * scenario.RATE for view in views)
    worst = max((view.recent_p99_ms for view in views if view.recent_p99_ms is not None), default=0.0)
    lost = sum(view.missed for view in views)
    rate = sum(view.rate for view in views)
    flows = f"{delivering} of {len(board.flows)} flows deliver {rate:.0f} messages/s"
    return f"{flows}, slowest p99 {worst:.1f} ms, {lost} lost so far, {links}"


def _can_draw(console: Console) -> bool:
    width, height = console.size
    drawable = console.is_terminal and not console.is_dumb_terminal
    return drawable and width >= screen.WIDTH_MIN and height >= screen.HEIGHT_MIN


def _make_log_dir(wanted: Path | None) -> Path:
    now = datetime.datetime.now().astimezone()
    directory = wanted or LOG_ROOT / f"{now:%Y%m%d-%H%M%S}"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        marker = directory / "summary.json"
        marker.write_text("{}\n")
    except OSError as error:
        raise UsageError(
            f"--log-dir {directory}: cannot be written ({error.strerror}); name another directory"
        ) from None
    return directory
