"""A picture of a replay: latencies of the variants between their two bounds, losses, traffic."""

from pathlib import Path
from typing import Any

from anabranch.overlay.errors import UsageError

FORMATS = (".svg", ".png", ".pdf")


def check_plot_file(path: Path) -> None:
    """UsageError where the picture could not be made, before anything is run."""
    _load()
    if path.suffix not in FORMATS:
        raise UsageError(f"--plot {str(path)!r}: its name must end with {', '.join(FORMATS)}")
    if not path.parent.is_dir():
        raise UsageError(f"--plot {str(path)!r}: there is no such directory")


def draw(compared: dict[str, dict[str, Any]], path: Path, title: str) -> None:
    """Write the picture; the same numbers give the same bytes."""
    matplotlib = _load()
    with matplotlib.rc_context({"svg.hashsalt": title, "font.size": 9}):
        figure = matplotlib.figure.Figure(figsize=(9, 3), layout="constrained")
        latency, loss, traffic = figure.subplots(1, 3)
        names = list(compared)
        first = compared[names[0]]
        latency.bar(names, [compared[name]["mean_ms"] or 0.0 for name in names], color="#4c72b0")
        for bound, style in (("oracle_ms", "--"), ("direct_ms", ":")):
            if first[bound] is not None:
                latency.axhline(first[bound], linestyle=style, color="black", label=bound.removesuffix("_ms"))
        latency.set(title="mean latency, ms")
        latency.legend(fontsize=7)
        loss.bar(names, [100 * compared[name]["loss_where_path_existed"] for name in names], color="#c44e52")
        loss.set(title="lost where a path existed, %")
        traffic.bar(
            names, [compared[name]["traffic_over_one_path"] or 0.0 for name in names], color="#55a868"
        )
        traffic.set(title="messages on links, one path = 1")
        for axes in (latency, loss, traffic):
            axes.tick_params(axis="x", labelrotation=30)
        figure.suptitle(title)
        metadata = {"Date": None} if path.suffix == ".svg" else None
        figure.savefig(path, metadata=metadata)


def _load() -> Any:
    try:
        import matplotlib
        import matplotlib.figure
    except ModuleNotFoundError:
        raise UsageError("--plot needs matplotlib: pip install 'anabranch[plot]'") from None
    return matplotlib
