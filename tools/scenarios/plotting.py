"""Pictures of a comparison, as SVG files: loss, latency, one pair in detail, traffic.

After figures 2, 4, 5, 6 and 7 of Harmony's evaluation, with the scenario's [reference] numbers beside ours.
matplotlib is an extra and loaded only here.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from anabranch.overlay.errors import UsageError
from anabranch.tools.scenarios.measuring import BINS_PER_S, PairCounts
from anabranch.tools.scenarios.schema import Scenario
from anabranch.tools.scenarios.simulating import RunResult

STYLES = {
    "dp": ("#c44e52", ":"),
    "bp": ("#dd8452", "-."),
    "bp+qos": ("#937860", "--"),
    "bp+qos+mp": ("#4c72b0", "-"),
    "adaptive": ("#55a868", "-"),
}
OTHER_STYLES = (("#8172b3", "-"), ("#da8bc3", "--"), ("#64b5cd", "-."), ("#8c8c8c", ":"))
PART_COLORS = {"control": "#c44e52", "header": "#dd8452", "payload": "#4c72b0"}
CDF_POINTS = 120
TIME_POINTS = 200
TIME_VARIANTS = ("dp", "bp+qos")
"""What figure 5 compares; without them the first two."""
LEAST_LOSS = 1e-6
"""Where a logarithmic axis ends: nothing lost."""

Axes = Any
Figures = dict[str, Callable[[], Any]]


def check_plot_place(out: Path) -> None:
    """UsageError where pictures could not be made, before anything is run."""
    load_pyplot()
    if out.exists() and not out.is_dir():
        raise UsageError(f"--plot {str(out)!r}: is a file; name a directory, in which pictures are made")
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"--plot {str(out)!r}: {error.strerror}; name a directory that can be made"
        ) from None


def plot(scenario: Scenario, results: Sequence[RunResult], out: Path) -> list[Path]:
    """Make the pictures in a directory; the same results give the same bytes."""
    pyplot = load_pyplot()
    pictures = Pictures(scenario, results, pyplot)
    written = []
    settings = {
        "svg.hashsalt": scenario.name,
        "svg.fonttype": "none",
        "font.size": 9,
        "axes.grid": True,
        "grid.alpha": 0.3,
        "axes.axisbelow": True,
        "path.simplify_threshold": 1.0,
    }
    with pyplot.rc_context(settings):
        for name, draw in pictures.figures().items():
            figure = draw()
            path = out / f"{name}.svg"
            figure.savefig(path, metadata={"Date": None}, bbox_inches="tight")
            pyplot.close(figure)
            written.append(path)
    return written


def load_pyplot() -> Any:
    """matplotlib, set to draw SVG; UsageError where it is not installed."""
    try:
        import matplotlib
    except ImportError:
        raise UsageError("--plot needs matplotlib: pip install 'anabranch[plot]'") from None
    matplotlib.use("svg")
    from matplotlib import pyplot

    return pyplot


class Pictures:
    """The figures that a comparison has data for."""

    def __init__(self, scenario: Scenario, results: Sequence[RunResult], pyplot: Any) -> None:
        self._scenario = scenario
        self._reference = scenario.reference
        self._results = results
        self._pyplot = pyplot
        self._variants = list(dict.fromkeys(result.variant for result in results))
        self._pairs: dict[str, dict[str, PairCounts]] = {variant: {} for variant in self._variants}
        for result in results:
            for key, counts in result.measured.pairs.items():
                self._pairs[result.variant].setdefault(key, PairCounts()).add(counts)
        self._keys = sorted({key for pairs in self._pairs.values() for key in pairs})

    def figures(self) -> Figures:
        """Names and what draws them."""
        if not self._keys:
            return {}
        found: Figures = {"loss": self.loss, "latency": self.latency, "cdf": self.cdf}
        if any(result.measured.samples.get(self._pair()) for result in self._results):
            found["time"] = self.over_time
        found["traffic"] = self.traffic
        return found

    def loss(self) -> Any:
        """Loss of each pair, as figure 6 (a)."""
        figure, axes = self._by_pair(lambda counts: _loss(counts) or LEAST_LOSS)
        axes.set_yscale("log")
        axes.set_ylim(LEAST_LOSS, 1)
        axes.set_ylabel(f"share lost ({LEAST_LOSS:g}: none)")
        ranges: dict[tuple[float, float], list[str]] = {}
        for variant, told in self._reference.loss_by_variant.items() if self._reference else ():
            ranges.setdefault(told, []).append(variant)
        for (least, most), variants in ranges.items():
            axes.axhspan(max(least, LEAST_LOSS), most, color=self._style(variants[0])[0], alpha=0.12, lw=0)
            text = f"paper, {', '.join(variants)}:\n{least:.1%} to {most:.1%}"
            axes.annotate(text, (1.01, most), xycoords=("axes fraction", "data"), fontsize=7, va="top")
        return self._done(figure, "messages lost")

    def latency(self) -> Any:
        """Mean latency of each pair, as figures 2 and 6 (b)."""
        figure, axes = self._by_pair(_mean_ms)
        axes.set_ylabel("mean latency in ms")
        return self._done(figure, "mean latency of what arrived")

    def cdf(self) -> Any:
        """How the latencies of one pair are spread, as figure 4."""
        figure, axes = self._pyplot.subplots(figsize=(6, 3.4), layout="constrained")
        pair = self._pair()
        for variant in self._variants:
            counts = self._pairs[variant].get(pair, PairCounts())
            points = _cdf(counts)
            color, line = self._style(variant)
            axes.step(
                [ms for ms, _ in points],
                [share for _, share in points],
                where="post",
                color=color,
                ls=line,
                label=variant,
            )
        if self._reference is not None and self._reference.late_ms is not None:
            for variant, (least, most) in self._reference.late_by_variant.items():
                share = 1 - (least + most) / 2
                axes.plot([self._reference.late_ms], [share], "o", color=self._style(variant)[0], ms=5)
                text = f"paper, {variant}: {1 - share:.0%} above"
                axes.annotate(text, (self._reference.late_ms, share), (6, -3), textcoords="offset points")
        axes.set_xlabel("latency in ms")
        axes.set_ylabel("share of what arrived")
        axes.set_xlim(0)
        axes.set_ylim(0, 1.03)
        return self._done(figure, f"latency of {pair}")

    def over_time(self) -> Any:
        """Latency of one pair during the run that disturbed it most, as figure 5."""
        figure, axes = self._pyplot.subplots(figsize=(6.5, 3), layout="constrained")
        pair = self._pair()
        chosen = [each for each in TIME_VARIANTS if each in self._variants] or self._variants[:2]
        seed = self._seed_of_most_trouble(chosen[0], pair)
        for variant in chosen:
            run = next(each for each in self._results if (each.variant, each.seed) == (variant, seed))
            samples = run.measured.samples.get(pair, [])
            color = self._style(variant)[0]
            samples = samples[:: max(1, len(samples) // TIME_POINTS)]
            points = [put for put, _ in samples], [latency * 1e3 for _, latency in samples]
            axes.plot(*points, "." if variant == chosen[0] else "+", color=color, label=variant, ms=3)
        axes.set_xlabel("virtual time in s")
        axes.set_ylabel("latency in ms")
        axes.set_ylim(0)
        return self._done(figure, f"latency of {pair} over time, seed {seed}")

    def traffic(self) -> Any:
        """Control, and data by size of payload, as figure 7; each has a scale of its own."""
        sizes = list(dict.fromkeys(result.size_bytes for result in self._results))
        width = 1.6 * (1 + len(sizes)) + 0.3 * len(self._variants)
        figure, row = self._pyplot.subplots(1, 1 + len(sizes), figsize=(width, 3), layout="constrained")
        self._draw_control(row[0], sizes[0])
        for axes, size in zip(row[1:], sizes, strict=True):
            self._draw_data(axes, size)
        for axes in row:
            axes.set_xticks(range(len(self._variants)), self._variants, rotation=90, fontsize=7)
            axes.set_ylim(0)
        row[0].set_ylabel("KB/s, all peers, all hops")
        return self._done(figure, "traffic")

    def _draw_control(self, axes: Axes, size: int | None) -> None:
        heights = [self._bytes_per_s(variant, size)["control"] / 1e3 for variant in self._variants]
        axes.bar(range(len(heights)), heights, color=PART_COLORS["control"], label="control")
        axes.set_title("control", fontsize=8)
        told = self._reference.control_by_variant if self._reference is not None else {}
        for number, variant in enumerate(self._variants):
            if variant in told:
                middle = sum(told[variant]) / 2e3
                axes.plot([number], [middle], "D", color="black", ms=5, label="paper")
                axes.annotate(
                    f"{middle:g}",
                    (number, middle),
                    (0, -10),
                    textcoords="offset points",
                    ha="center",
                    fontsize=7,
                )

    def _draw_data(self, axes: Axes, size: int | None) -> None:
        rows = [self._bytes_per_s(variant, size) for variant in self._variants]
        below = [0.0] * len(rows)
        for part in ("header", "payload"):
            heights = [row[part] / 1e3 for row in rows]
            axes.bar(range(len(rows)), heights, bottom=below, color=PART_COLORS[part], label=part)
            below = [a + b for a, b in zip(below, heights, strict=True)]
        known = self._payload_bytes(size)
        axes.set_title("data" if known is None else f"payload {known} B", fontsize=8)
        told = self._reference.data_by_variant if self._reference is not None else {}
        if "bp+qos" not in self._variants:
            return
        unit = below[self._variants.index("bp+qos")]
        for variant, (least, most) in told.items():
            if variant in self._variants:
                at = self._variants.index(variant)
                middle, reach = (least + most) / 2 * unit, (most - least) / 2 * unit
                axes.errorbar([at], [middle], [reach], color="black", capsize=4, label="paper")

    # Inside

    def _by_pair(self, value: Callable[[PairCounts], float]) -> tuple[Any, Axes]:
        figure, axes = self._pyplot.subplots(figsize=(7, 3.2), layout="constrained")
        width = 0.8 / len(self._variants)
        for number, variant in enumerate(self._variants):
            places = [at + (number - (len(self._variants) - 1) / 2) * width for at in range(len(self._keys))]
            heights = [value(self._pairs[variant].get(key, PairCounts())) for key in self._keys]
            axes.bar(places, heights, width, color=self._style(variant)[0], label=variant)
        axes.set_xticks(range(len(self._keys)), self._keys)
        return figure, axes

    def _done(self, figure: Any, what: str) -> Any:
        """Title, legend, and where the paper's numbers come from: around the picture, not in it."""
        runs = len({result.seed for result in self._results})
        title = f"{self._scenario.name}, preset {self._scenario.preset}: {what} ({runs} run{'s'[: runs > 1]})"
        figure.suptitle(title, fontsize=9, x=0.01, ha="left")
        labelled: dict[str, Any] = {}
        for axes in figure.axes:
            for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
                labelled.setdefault(label, handle)
        figure.legend(
            labelled.values(), labelled.keys(), fontsize=7, loc="outside lower right", ncols=len(labelled)
        )
        if self._reference is not None:
            figure.text(0.01, 0.01, f"paper: {self._reference.source}", fontsize=6)
        return figure

    def _style(self, variant: str) -> tuple[str, str]:
        others = [each for each in self._variants if each not in STYLES]
        known = STYLES.get(variant)
        return known or OTHER_STYLES[others.index(variant) % len(OTHER_STYLES) if variant in others else 0]

    def _pair(self) -> str:
        """The pair that the reference names; otherwise the one that the first variant served worst."""
        named = self._reference.pair if self._reference is not None else None
        if named in self._keys:
            return str(named)
        first = self._pairs[self._variants[0]]
        return max(self._keys, key=lambda key: _trouble(first.get(key, PairCounts())))

    def _seed_of_most_trouble(self, variant: str, pair: str) -> int:
        runs = [each for each in self._results if each.variant == variant]
        return max(runs, key=lambda each: _trouble(each.measured.pairs.get(pair, PairCounts()))).seed

    def _bytes_per_s(self, variant: str, size: int | None) -> dict[str, float]:
        measured = [
            each.measured for each in self._results if (each.variant, each.size_bytes) == (variant, size)
        ]
        seconds = sum(each.measured_s for each in measured)
        payload = (self._payload_bytes(size) or 0) * sum(each.bundles for each in measured)
        return {
            "control": sum(each.control_bytes for each in measured) / seconds,
            "header": (sum(each.data_bytes for each in measured) - payload) / seconds,
            "payload": payload / seconds,
        }

    def _payload_bytes(self, size: int | None) -> int | None:
        """What each message carries; None where flows differ: headers are not told apart then."""
        in_file = {flow.size_bytes for flow in self._scenario.flows}
        return size if size is not None else (next(iter(in_file)) if len(in_file) == 1 else None)


def _loss(counts: PairCounts) -> float:
    return 1 - counts.delivered / counts.published if counts.published else 0.0


def _trouble(counts: PairCounts) -> int:
    return counts.published - counts.delivered + counts.late


def _mean_ms(counts: PairCounts) -> float:
    total = sum(counts.latencies.values())
    summed = sum(number * count for number, count in counts.latencies.items())
    return summed * 1e3 / BINS_PER_S / total if total else 0.0


def _cdf(counts: PairCounts) -> list[tuple[float, float]]:
    """(milliseconds, share up to there): at most so many points, and the steps where most happens."""
    bins = Counter(counts.latencies)
    total = bins.total()
    if not total:
        return []
    numbers = sorted(bins)
    shares = list(accumulate(bins[number] / total for number in numbers))
    points = [(numbers[0] * 1e3 / BINS_PER_S, 0.0)]
    for number, share in zip(numbers, shares, strict=True):
        if share - points[-1][1] >= 1 / CDF_POINTS or share >= 1 - 1e-12:
            points.append((number * 1e3 / BINS_PER_S, share))
    return points
