"""Plots as SVG text: curves, timelines, the map of the mesh, bars. The same input gives the same bytes."""

import math
from collections.abc import Sequence
from html import escape
from itertools import pairwise
from typing import Any

WIDTH = 900
COLOURS = ("#1f6fb4", "#d9772b", "#2e8b57", "#b23a48", "#7b5ea7", "#8c6d46", "#c65b9b", "#6b7280", "#9aa21f")
DOWN, SLOW, FINE = "#c0392b", "#e69f00", "#2e8b57"

Row = dict[str, Any]


def curves(series: Sequence[Row], deadline_us: float = 0.0) -> str:
    """Shares of messages by age, on a logarithmic axis."""
    height, left, right, top, bottom = 320, 60, 240, 15, 45
    points = [point for each in series for point in each["points"]]
    if not points:
        return ""
    low = 10 ** math.floor(math.log10(max(1.0, min(us for us, _ in points))))
    high = 10 ** math.ceil(math.log10(max(us for us, _ in points) + 1))

    def x(us: float) -> float:
        return left + (math.log10(max(us, low)) - math.log10(low)) / math.log10(high / low) * (
            WIDTH - left - right
        )

    def y(share: float) -> float:
        return top + (1 - share) * (height - top - bottom)

    parts = []
    for share in (0, 0.25, 0.5, 0.75, 1):
        parts.append(_line(left, y(share), WIDTH - right, y(share), "#ddd"))
        parts.append(_text(left - 8, y(share) + 4, f"{share:.0%}".replace("%", " %"), "end"))
    decade = low
    while decade <= high:
        parts.append(_line(x(decade), y(0), x(decade), y(1), "#ddd"))
        parts.append(_text(x(decade), height - bottom + 18, f"{decade / 1000:g} ms", "middle"))
        decade *= 10
    if low < deadline_us < high:
        parts.append(_line(x(deadline_us), y(0), x(deadline_us), y(1), DOWN, dash=True))
        parts.append(_text(x(deadline_us) + 4, y(0) - 4, "deadline", "start"))
    for number, each in enumerate(series):
        colour = COLOURS[number % len(COLOURS)]
        steps = [f"{x(each['points'][0][0]):.1f},{y(0):.1f}"]
        before = 0.0
        for us, share in each["points"]:
            steps += [f"{x(us):.1f},{y(before):.1f}", f"{x(us):.1f},{y(share):.1f}"]
            before = share
        parts.append(
            f'<polyline fill="none" stroke="{colour}" stroke-width="1.6" points="{" ".join(steps)}">'
            f"<title>{escape(each['name'])}</title></polyline>"
        )
        at = top + 14 + 18 * number
        parts.append(_line(WIDTH - right + 14, at - 4, WIDTH - right + 34, at - 4, colour, 3))
        parts.append(_text(WIDTH - right + 40, at, each["name"], "start"))
    return _svg(height, parts, "Shares of messages by age")


def timeline(links: Sequence[Row], outages: Sequence[Row], slow: Sequence[Row], run: Row) -> str:
    """One row per link of a run: when it was down, when it was degraded."""
    left, right, row_height = 190, 20, 22
    start, seconds = run["start"], max(run["seconds"], 1e-6)
    rows = sorted({link["link"] for link in links if link["run"] == run["run"]})
    height = 30 + row_height * len(rows) + 20

    def x(ts: float) -> float:
        share = min(1.0, max(0.0, (ts - start) / 1e6 / seconds))
        return float(left + share * (WIDTH - left - right))

    parts = []
    for number in range(6):
        at = left + number / 5 * (WIDTH - left - right)
        parts.append(_line(at, 20, at, height - 22, "#ddd"))
        parts.append(_text(at, height - 6, f"{seconds * number / 5:.0f} s", "middle"))
    for number, name in enumerate(rows):
        top = 22 + number * row_height
        parts.append(_text(left - 8, top + 13, name, "end"))
        parts.append(_box(left, top + 3, WIDTH - left - right, row_height - 9, "#dfeee5"))
        for episodes, colour, word in ((slow, SLOW, "degraded"), (outages, DOWN, "down")):
            for each in episodes:
                if each["link"] == name and each["run"] == run["run"]:
                    begin, end = x(each["start"]), x(each["end"])
                    title = f"{name} {word} for {each['seconds']:.1f} s"
                    box = _box(begin, top + 3, max(2.0, end - begin), row_height - 9, colour, title)
                    parts.append(box.replace("<rect", f'<rect class="{word}" data-link="{escape(name)}"', 1))
    return _svg(height, parts, f"Links over time, run {run['run']}")


def delays(series: Sequence[Row], run: Row) -> str:
    """Delay over time, a line per link; a gap where nothing came back."""
    height, left, right, top, bottom = 300, 60, 190, 15, 40
    values = [us for each in series for _, us in each["points"] if us is not None]
    if not values:
        return ""
    start, seconds, most = run["start"], max(run["seconds"], 1e-6), max(values) * 1.05

    def x(ts: float) -> float:
        share = min(1.0, max(0.0, (ts - start) / 1e6 / seconds))
        return float(left + share * (WIDTH - left - right))

    def y(us: float) -> float:
        return float(top + (1 - us / most) * (height - top - bottom))

    parts = []
    for number in range(6):
        at, us = left + number / 5 * (WIDTH - left - right), most * number / 5
        parts.append(_line(at, y(0), at, y(most), "#ddd"))
        parts.append(_text(at, height - bottom + 18, f"{seconds * number / 5:.0f} s", "middle"))
        parts.append(_line(left, y(us), WIDTH - right, y(us), "#ddd"))
        parts.append(_text(left - 8, y(us) + 4, f"{us / 1000:.3g} ms", "end"))
    for number, each in enumerate(series):
        colour = COLOURS[number % len(COLOURS)]
        for piece in _pieces(each["points"]):
            points = " ".join(f"{x(ts):.1f},{y(us):.1f}" for ts, us in piece)
            parts.append(
                f'<polyline class="delay" fill="none" stroke="{colour}" stroke-width="1.6" '
                f'stroke-linecap="round" points="{points}"><title>{escape(each["link"])}</title></polyline>'
            )
        at = top + 14 + 18 * number
        parts.append(_line(WIDTH - right + 14, at - 4, WIDTH - right + 34, at - 4, colour, 3))
        parts.append(_text(WIDTH - right + 40, at, each["link"], "start"))
    return _svg(height, parts, f"Delays of links, run {run['run']}")


def _pieces(points: Sequence[tuple[float, float | None]]) -> list[list[tuple[float, float]]]:
    """What lies between gaps, where nothing came back or nothing was sent; a point alone is a short line."""
    step = min((later - ts for (ts, _), (later, _) in pairwise(points)), default=0.0)
    pieces: list[list[tuple[float, float]]] = [[]]
    before = -math.inf
    for ts, us in points:
        if us is None or ts - before > 3 * step:
            pieces.append([])
        if us is not None:
            pieces[-1].append((ts, us))
        before = ts
    return [piece if len(piece) > 1 else piece * 2 for piece in pieces if piece]


def mesh(links: Sequence[Row], slow: Sequence[Row], run: Row) -> str:
    """Peers on a circle; links coloured by what happened to them."""
    mine = [link for link in links if link["run"] == run["run"]]
    peers = sorted({peer for link in mine for peer in (link["a"], link["b"])})
    height, radius = 460, 180
    degraded = {each["link"] for each in slow if each["run"] == run["run"]}
    place = {
        peer: (
            WIDTH / 2 + radius * math.sin(2 * math.pi * number / len(peers)),
            height / 2 - radius * math.cos(2 * math.pi * number / len(peers)),
        )
        for number, peer in enumerate(peers)
    }
    parts = []
    for link in sorted(mine, key=lambda each: str(each["link"])):
        (ax, ay), (bx, by) = place[link["a"]], place[link["b"]]
        word = "down" if link["outages"] else "degraded" if link["link"] in degraded else "fine"
        colour = {"down": DOWN, "degraded": SLOW, "fine": FINE}[word]
        delay = "" if link["delay_p50_us"] is None else f", {link['delay_p50_us'] / 1000:.1f} ms"
        title = f"{link['link']}: up {100 * link['availability']:.3f} %{delay}"
        line = _line(ax, ay, bx, by, colour, 1.5 if word == "fine" else 4)
        parts.append(
            line.replace("<line", f'<line class="{word}"', 1).replace(
                "/>", f"><title>{escape(title)}</title></line>"
            )
        )
    for peer, (px, py) in place.items():
        parts.append(f'<circle cx="{px:.1f}" cy="{py:.1f}" r="5" fill="#333"/>')
        if len(peers) <= 60:
            outside = 1 + 22 / radius
            at_x, at_y = WIDTH / 2 + (px - WIDTH / 2) * outside, height / 2 + (py - height / 2) * outside
            parts.append(_text(at_x, at_y + 4, peer, "middle"))
    return _svg(height, parts, f"The mesh, run {run['run']}")


def bars(rows: Sequence[Row], metric: str, unit: float, suffix: str) -> str:
    """Means of one metric by variant, with their confidence intervals."""
    mine = [row for row in rows if row["metric"] == metric]
    if not mine:
        return ""
    left, right, row_height = 190, 130, 26
    most = max(row["high"] if row["high"] is not None else row["mean"] for row in mine) or 1.0
    height = row_height * len(mine) + 10

    def x(value: float) -> float:
        return left + max(0.0, value) / most * (WIDTH - left - right)

    parts = []
    for number, row in enumerate(sorted(mine, key=lambda each: str(each["variant"]))):
        top = 5 + number * row_height
        parts.append(_text(left - 8, top + 16, row["variant"] or "(none named)", "end"))
        parts.append(_box(left, top + 4, max(1.0, x(row["mean"]) - left), row_height - 10, COLOURS[0]))
        label = f"{row['mean'] * unit:.4g}{suffix}"
        if row["low"] is not None:
            middle = top + row_height / 2 - 1
            parts.append(_line(x(row["low"]), middle, x(row["high"]), middle, "#111", 2))
            label += f" ± {(row['high'] - row['mean']) * unit:.2g}"
        parts.append(_text(max(x(row["mean"]), x(row["high"] or 0.0)) + 8, top + 16, label, "start"))
    return _svg(height, parts, metric)


def _svg(height: float, parts: Sequence[str], title: str) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" xmlns="http://www.w3.org/2000/svg">'
        f"<title>{escape(title)}</title>{''.join(parts)}</svg>"
    )


def _line(
    x1: float, y1: float, x2: float, y2: float, colour: str, width: float = 1, *, dash: bool = False
) -> str:
    dashes = ' stroke-dasharray="5 4"' if dash else ""
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" '
        f'stroke-width="{width:g}"{dashes}/>'
    )


def _box(x: float, y: float, width: float, height: float, colour: str, title: str = "") -> str:
    shape = f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{colour}"'
    return f"{shape}><title>{escape(title)}</title></rect>" if title else f"{shape}/>"


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
