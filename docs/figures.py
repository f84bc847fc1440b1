"""Figures of the pages that are counted from the code itself: `python docs/figures.py` draws them again.

`tests/unit/test_docs.py` fails while one differs from what this makes.
"""

import math
from collections.abc import Sequence
from pathlib import Path

from anabranch.overlay.reductions import filter_count, filters
from anabranch.overlay.reductions_generic import Generic

OPEN_RANGES = Path(__file__).parent / "open_ranges.svg"
ATTRIBUTES_MAX = 12
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 650, 360, 80, 180, 20, 50
DECADES = 6


def growth() -> list[tuple[int, int, int, int]]:
    """Attributes; comparisons in the filters of one site by G^g with open ranges, and without; values in the
    record that a site spreads here."""
    names = [f"v{number}" for number in range(ATTRIBUTES_MAX)]
    generic = Generic(dict.fromkeys(names, "number"))
    rows = []
    for count in range(1, ATTRIBUTES_MAX + 1):
        terms = []
        for has_open in (True, False):
            tree = generic.tree(names[:count], has_open=has_open)
            terms.append(filter_count(tree) * len(next(filters(tree))))
        rows.append((count, terms[0], terms[1], count))
    return rows


def open_ranges() -> str:
    """What a site has to announce, by the number of its attributes, as SVG."""
    rows = growth()
    lines = [
        ("G^g with open ranges", "#b3261e", [row[1] for row in rows]),
        ("G^g, closed ranges only", "#6b6b6b", [row[2] for row in rows]),
        ("here: any expression", "#1d6b3a", [row[3] for row in rows]),
    ]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        'font-size="12">',
        "<title>What a site announces, by its number of attributes</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
    ]
    for decade in range(DECADES + 1):
        y = _y(10**decade)
        parts.append(f'<path d="M{LEFT} {y}H{WIDTH - RIGHT}" stroke="#dddddd"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{10**decade:,}</text>')
    parts += [
        f'<text x="{_x(count)}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{count}</text>'
        for count, *_ in rows
    ]
    parts.append(
        f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 10}" text-anchor="middle">'
        "attributes of a site (values and comparisons announced, logarithmic)</text>"
    )
    for label, colour, values in lines:
        parts.append(f'<polyline points="{_points(values)}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts.append(
            f'<text x="{WIDTH - RIGHT + 8}" y="{_y(values[-1]) + 4:.1f}" fill="{colour}">{label}</text>'
        )
    return "\n".join([*parts, "</svg>"]) + "\n"


def _points(values: Sequence[int]) -> str:
    return " ".join(f"{_x(number)},{_y(value)}" for number, value in enumerate(values, 1))


def _x(count: int) -> float:
    return round(LEFT + (WIDTH - LEFT - RIGHT) * count / (ATTRIBUTES_MAX + 0.5), 1)


def _y(value: int) -> float:
    return round(HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * math.log10(value) / DECADES, 1)


if __name__ == "__main__":
    OPEN_RANGES.write_text(open_ranges(), encoding="utf-8")
