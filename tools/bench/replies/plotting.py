"""Pictures of `anabranch bench replies`: distributions of reply times, and what a silence cuts off.

After figures 5 to 8 of Cugola et al. matplotlib is an extra and loaded only here.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from anabranch.tools.bench.replies.tally import CDF_POINTS, Row
from anabranch.tools.scenarios.plotting import check_plot_place, load_pyplot

STYLES = {
    "converge": ("#4c72b0", "-"),
    "merge": ("#55a868", "-"),
    "stateless": ("#8172b3", "--"),
    "publish": ("#937860", "-."),
    "direct": ("#dd8452", "--"),
    "datagram": ("#c44e52", ":"),
}
COLUMNS = 3

__all__ = ["check_plot_place", "plot"]


def plot(rows: Sequence[Row], out: Path) -> list[Path]:
    """Make the pictures in a directory."""
    pyplot = load_pyplot()
    out.mkdir(parents=True, exist_ok=True)
    written = []
    settings = {
        "svg.hashsalt": "replies",
        "svg.fonttype": "none",
        "font.size": 8,
        "axes.grid": True,
        "grid.alpha": 0.3,
    }
    with pyplot.rc_context(settings):
        for load in dict.fromkeys(row["load"] for row in rows):
            chosen = [row for row in rows if row["load"] == load]
            written.append(_saved(pyplot, _cdfs(pyplot, chosen, load), out / f"replies-load-{load:g}.svg"))
            waiting = [row for row in chosen if row["protocol"] in ("publish", "direct", "datagram")]
            if waiting:
                figure = _taus(pyplot, waiting, load)
                written.append(_saved(pyplot, figure, out / f"replies-tau-load-{load:g}.svg"))
    return written


def _cdfs(pyplot: Any, rows: Sequence[Row], load: float) -> Any:
    """One field per scenario: which share of the replies was there, by time; merged ones all at once."""
    figure, fields = _fields(pyplot, rows)
    for axes, scenario in fields:
        for row in (row for row in rows if row["scenario"] == scenario):
            color, line = STYLES[row["protocol"]]
            shares = [row["delivered"] * 100 * step / CDF_POINTS for step in range(CDF_POINTS + 1)]
            axes.step(row["cdf_ms"], shares, where="post", color=color, ls=line, label=row["protocol"])
    return _labelled(figure, fields, "ms since the request", load)


def _taus(pyplot: Any, rows: Sequence[Row], load: float) -> Any:
    """Per scenario: what would have come before the first silence of tau."""
    figure, fields = _fields(pyplot, rows)
    for axes, scenario in fields:
        for row in (row for row in rows if row["scenario"] == scenario and "by_tau" in row):
            color, line = STYLES[row["protocol"]]
            taus, shares = zip(*row["by_tau"], strict=True)
            axes.plot(taus, [share * 100 for share in shares], color=color, ls=line, label=row["protocol"])
    return _labelled(figure, fields, "tau in ms", load)


def _labelled(figure: Any, fields: list[tuple[Any, str]], across: str, load: float) -> Any:
    for axes, scenario in fields:
        axes.set_xscale("log")
        axes.set_ylim(0, 103)
        axes.set_xlabel(across)
        axes.set_ylabel("% of the replies")
        axes.set_title(f"{scenario}, load {load:g}/s", loc="left", fontsize=8)
    fields[0][0].legend(fontsize=6, loc="lower right")
    return figure


def _fields(pyplot: Any, rows: Sequence[Row]) -> tuple[Any, list[tuple[Any, str]]]:
    scenarios = list(dict.fromkeys(row["scenario"] for row in rows))
    columns = min(COLUMNS, len(scenarios))
    lines = -(-len(scenarios) // columns)
    figure, grid = pyplot.subplots(lines, columns, figsize=(3.4 * columns, 2.5 * lines), squeeze=False)
    cells = list(grid.flat)
    for axes in cells[len(scenarios) :]:
        axes.set_visible(False)
    figure.tight_layout(pad=2.0)
    return figure, list(zip(cells, scenarios, strict=False))


def _saved(pyplot: Any, figure: Any, path: Path) -> Path:
    figure.savefig(path, metadata={"Date": None}, bbox_inches="tight")
    pyplot.close(figure)
    return path
