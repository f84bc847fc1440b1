"""From single measurements to what a bench prints: the best variant, medians over runs, ratios."""

import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from anabranch.overlay.errors import UsageError
from anabranch.tools.bench.scenarios import Row
from anabranch.tools.bench.systems import RIVALS

SIZE_MAX_BYTES = 16 * 1024 * 1024
_SUMMED = ("sent", "received", "lost", "round_trips")


def parse_sizes(text: str) -> list[int]:
    """`64,1024` to sizes in bytes; each once, in the order given."""
    sizes = []
    for part in text.split(","):
        try:
            size = int(part)
        except ValueError:
            size = 0
        if not 1 <= size <= SIZE_MAX_BYTES:
            raise UsageError(
                f"--size {text!r}: {part.strip()!r} is not a payload size; give whole numbers of bytes "
                f"from 1 to {SIZE_MAX_BYTES}, separated by commas, such as 64,1024"
            )
        sizes.append(size)
    return list(dict.fromkeys(sizes))


def parse_against(text: str) -> list[str]:
    """`raw,zenoh` to the names of systems; `none` to no one."""
    if text.strip() == "none":
        return []
    names = [part.strip() for part in text.split(",")]
    for name in names:
        if name not in RIVALS:
            raise UsageError(
                f"--against {text!r}: {name!r} is not a known system; choose from {', '.join(RIVALS)}, "
                "separated by commas, or none"
            )
    return list(dict.fromkeys(names))


def parse_number(option: str, value: float, least: float, most: float) -> float:
    """The value, if it lies within its limits."""
    if not least <= value <= most:
        raise UsageError(f"{option} {value:g}: must be from {least:g} to {most:g}")
    return value


def best_variant(rows: Sequence[Row], key: str, *, highest: bool, unranked: Sequence[str] = ()) -> Row:
    """The row of the variant that did best, with what each of them reached, unranked ones included."""
    ranked = [row for row in rows if row["variant"] not in unranked]
    best = (max if highest else min)(ranked, key=lambda row: row[key])
    if len(rows) == 1:
        return best
    return {**best, "variants": {row["variant"]: round(row[key], 3) for row in rows}}


def median_rows(rows: Iterable[Row], cell: Sequence[str], values: Sequence[str]) -> list[Row]:
    """One row for each cell (the same in all `cell` keys): medians of the values, sums of the counts.

    With more than one run, what each of them gave is in the row's `runs`.
    """
    cells: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        cells.setdefault(tuple(row[key] for key in cell), []).append(row)
    return [_median_row(group, cell, values) for group in cells.values()]


def ratios(
    rows: Sequence[Row], key: str, *, by: str, of: Any, same: Sequence[str], also: Sequence[str] = ()
) -> list[Row]:
    """The value of row `of` divided by that of every other, among rows that agree in the keys `same`.

    `by` is the key that tells the rows apart. Each key in `also` gives a further `…_ratio`.
    """
    found = []
    for mine in rows:
        if mine[by] != of:
            continue
        for other in rows:
            if other[by] == of or any(other[name] != mine[name] for name in same):
                continue
            ratio: Row = {"to": other[by], **{name: mine[name] for name in same}}
            ratio["ratio"] = _divide(mine[key], other[key])
            for name in also:
                ratio[f"{name.removesuffix('_us')}_ratio"] = _divide(mine[name], other[name])
            found.append(ratio)
    return found


def _median_row(group: Sequence[Row], cell: Sequence[str], values: Sequence[str]) -> Row:
    row: Row = {key: group[0][key] for key in cell}
    for key in values:
        row[key] = round(statistics.median(one[key] for one in group), 3)
    for key in _SUMMED:
        if key in group[0]:
            row[key] = sum(one[key] for one in group)
    middle = min(group, key=lambda one: abs(one[values[0]] - row[values[0]]))
    if "variant" in middle:
        row["variant"] = middle["variant"]
    if len(group) > 1:
        row["runs"] = [
            {
                key: round(value, 3) if isinstance(value, float) else value
                for key, value in one.items()
                if key not in cell
            }
            for one in group
        ]
    return row


def _divide(value: float, by: float) -> float | None:
    return round(value / by, 4) if by else None
