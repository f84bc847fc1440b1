"""Reads recorded networks: matrices per slice (npz, CSV), ping series and aggregates of pairs (CSV).

Decides what a file is by its content; each complaint names the file, the place in it and what would do.
"""

import csv
import gzip
import re
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from anabranch.overlay.errors import UsageError
from anabranch.tools.traces.trace import NODES_MAX, VALUES_MAX, Floats, Trace

UNITS = {"s": 1.0, "cs": 1e-2, "centisec": 1e-2, "ms": 1e-3, "us": 1e-6}
"""What ends a name, as in `rtt_ms`, and what it makes of a value."""
_VALUE = re.compile(r"(?P<measure>rtt|delay)_(?P<unit>s|cs|centisec|ms|us)")
_SOURCES = ("source", "src", "from", "node_a", "peer")
_TARGETS = ("target", "destination", "dst", "dest", "to", "node_b", "neighbour")
_TIMES = {
    "time_s": 1.0,
    "time": 1.0,
    "timestamp": 1.0,
    "ts": 1.0,
    "time_ms": 1e-3,
    "ts_us": 1e-6,
    "slice": 0.0,
}
"""Columns that tell when; `slice` counts slices."""
_VALUES = ("rtt", "avg", "mean", "delay", "latency", "ping")
ROWS_MAX = 50_000_000
DELAY_MAX_S = 3600.0

FORMS = (
    "an .npz with one array of slices x nodes x nodes named like rtt_ms or delay_s; a .csv with columns "
    "source, target and rtt_ms, and time_s for a series; or a .csv of square matrices, one after the other"
)


class Reading(NamedTuple):
    """How to read a file where the file does not say it."""

    unit: str | None = None
    """Of the values: s, cs, ms or us."""
    measure: str | None = None
    """`rtt`: there and back, halved for each way; `delay`: one way."""
    slice_s: float | None = None
    zero: str | float = "missing"
    """What a value of 0 means: `missing`, or a one-way delay in seconds."""


def load_trace(path: Path, how: Reading | None = None) -> Trace:
    """The trace in a file; UsageError if it cannot be read or does not make sense."""
    how = how or Reading()
    try:
        changed = path.stat().st_mtime_ns
    except OSError as error:
        raise UsageError(f"trace {str(path)!r}: {error.strerror}; name {FORMS}") from None
    return _load(path, how, changed)


@lru_cache(maxsize=2)
def _load(path: Path, how: Reading, changed: int) -> Trace:
    del changed  # a file that was written again is read again
    try:
        if path.is_dir():
            raise UsageError("a directory; make a trace of logs with `anabranch replay record LOGDIR`")
        trace = _read_npz(path, how) if path.suffix == ".npz" else _read_csv(path, how)
        _check(trace)
    except UsageError as error:
        raise UsageError(f"trace {str(path)!r}: {error}") from None
    except (OSError, EOFError, zlib.error) as error:
        raise UsageError(f"trace {str(path)!r}: cannot be read: {error}; name {FORMS}") from None
    return trace


def save_trace(trace: Trace, path: Path) -> None:
    """Write a trace as .npz that `load_trace` reads again."""
    arrays: dict[str, Any] = {"delay_s": trace.delays_s, "nodes": np.array(trace.nodes)}
    if trace.losses is not None:
        arrays["loss"] = trace.losses
    if trace.slice_s is not None:
        arrays["slice_s"] = np.float64(trace.slice_s)
    try:
        with path.open("wb") as file:
            np.savez_compressed(file, **arrays)
    except OSError as error:
        raise UsageError(f"{str(path)!r} cannot be written: {error.strerror}") from None


# npz


def _read_npz(path: Path, how: Reading) -> Trace:
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except (ValueError, zipfile.BadZipFile, KeyError) as error:
        raise UsageError(f"not an .npz of plain arrays ({error}); expected {FORMS}") from None
    shown = ", ".join(f"{name} {array.shape}" for name, array in arrays.items()) or "nothing"
    square = {
        name: array
        for name, array in arrays.items()
        if array.ndim in (2, 3) and array.shape[-1] == array.shape[-2] and name != "loss"
    }
    if len(square) != 1:
        raise UsageError(
            f"holds {shown}; expected one array of slices x nodes x nodes, named like rtt_ms or delay_s"
        )
    ((name, values),) = square.items()
    if not (np.issubdtype(values.dtype, np.integer) or np.issubdtype(values.dtype, np.floating)):
        raise UsageError(f"array {name!r} is of type {values.dtype}; expected numbers")
    if values.ndim == 2:
        values = values[np.newaxis]
    if values.size > VALUES_MAX or values.shape[1] > NODES_MAX:
        raise UsageError(
            f"array {name!r} of shape {values.shape} is too large: {VALUES_MAX:,} values at most"
        )
    nodes = [str(each) for each in arrays["nodes"]] if "nodes" in arrays else _numbered(values.shape[1])
    delays = _to_delays(values, name, how)
    losses = arrays.get("loss")
    if losses is not None and losses.shape != delays.shape:
        raise UsageError(f"array 'loss' has the shape {losses.shape}; expected {delays.shape}, as {name!r}")
    stated = float(arrays["slice_s"]) if "slice_s" in arrays else None
    return Trace(
        nodes,
        delays,
        losses=None if losses is None else losses.astype(np.float32),
        slice_s=how.slice_s or stated,
    )


def _to_delays(values: Any, name: str, how: Reading) -> Floats:
    found = _VALUE.search(name)
    unit = how.unit or (found["unit"] if found else None)
    measure = how.measure or (found["measure"] if found else "rtt")
    if unit is None:
        raise UsageError(
            f"{name!r} does not say its unit: name it like rtt_ms, or say --unit s, cs, ms or us"
        )
    factor = UNITS[unit] / (2.0 if measure == "rtt" else 1.0)
    if np.issubdtype(values.dtype, np.floating) and np.isinf(values).any():
        raise UsageError(f"{name!r} holds infinite values; leave out (NaN) what was not measured")
    delays: Floats = values.astype(np.float32)
    if (delays < 0).any():
        where = tuple(int(each) for each in np.argwhere(delays < 0)[0])
        raise UsageError(f"{name!r}{list(where)} = {float(delays[where]):g}: expected 0 or more")
    nothing = delays == 0
    delays *= np.float32(factor)
    delays[nothing] = np.nan if how.zero == "missing" else float(how.zero)
    return delays


def _check(trace: Trace) -> None:
    largest = float(np.nanmax(trace.delays_s)) if not np.isnan(trace.delays_s).all() else 0.0
    if largest > DELAY_MAX_S:
        raise UsageError(f"a delay of {largest:,.0f} s: is the unit right? Say --unit s, cs, ms or us")
    if not trace.measured_nodes():
        raise UsageError("holds no measurement between two different nodes")


def _numbered(count: int) -> list[str]:
    return [f"n{number}" for number in range(1, count + 1)]


# CSV


def _read_csv(path: Path, how: Reading) -> Trace:
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8", newline="") as file:
        try:
            rows = enumerate(csv.reader(file), 1)
            number, first = next(((n, row) for n, row in rows if any(row)), (0, []))
            if not first:
                raise UsageError(f"is empty; expected {FORMS}")
            header = [cell.strip().lower() for cell in first]
            if any(name in header for name in _SOURCES) and any(name in header for name in _TARGETS):
                return _read_series(header, rows, how)
            return _read_matrices(number, first, rows, how)
        except UnicodeDecodeError:
            raise UsageError(f"is not text in UTF-8; expected {FORMS}") from None
        except csv.Error as error:
            raise UsageError(f"is not CSV: {error}; expected {FORMS}") from None


class _Series:
    """Sums of samples by (slice, source, target)."""

    def __init__(self) -> None:
        self.nodes: dict[str, int] = {}
        self.slices: list[int] = []
        self.sources: list[int] = []
        self.targets: list[int] = []
        self.values: list[float] = []

    def add(self, number: int, source: str, target: str, value: float) -> None:
        self.slices.append(number)
        self.sources.append(self.nodes.setdefault(source, len(self.nodes)))
        self.targets.append(self.nodes.setdefault(target, len(self.nodes)))
        self.values.append(value)

    def trace(self, factor: float, slice_s: float | None, zero: str | float) -> Trace:
        """Means of what arrived; the share of what did not, as loss."""
        count = len(self.nodes)
        first = min(self.slices)
        shape = (max(self.slices) - first + 1, count, count)
        if count > NODES_MAX or shape[0] * count * count > VALUES_MAX:
            raise UsageError(
                f"{shape[0]:,} slices of {count:,} nodes are too many; take longer slices with --slice-s"
            )
        where = (np.array(self.slices) - first, np.array(self.sources), np.array(self.targets))
        values = np.array(self.values, dtype=np.float64)
        values[values == 0] = np.nan if zero == "missing" else float(zero) / factor
        arrived = ~np.isnan(values)
        sums, hits, tries = (np.zeros(shape, dtype=np.float64) for _ in range(3))
        np.add.at(tries, where, 1)
        np.add.at(hits, where, arrived)
        np.add.at(sums, where, np.where(arrived, values, 0.0))
        with np.errstate(invalid="ignore", divide="ignore"):
            delays = (sums / hits * factor).astype(np.float32)
            losses = (1 - hits / tries).astype(np.float32)
        return Trace(list(self.nodes), delays, losses=losses if (losses > 0).any() else None, slice_s=slice_s)


def _read_series(header: list[str], rows: Iterator[tuple[int, list[str]]], how: Reading) -> Trace:
    source = _column(header, _SOURCES)
    target = _column(header, _TARGETS)
    when = next((name for name in _TIMES if name in header), None)
    value, factor = _value_column(header, how)
    slice_s = how.slice_s
    if when not in (None, "slice") and slice_s is None:
        slice_s = 15.0
    series = _Series()
    needed = max(source, target, value, header.index(when) if when else 0)
    for number, row in islice(rows, ROWS_MAX):
        if not any(row):
            continue
        if len(row) <= needed:
            raise UsageError(f"line {number} has {len(row)} columns; expected {len(header)}")
        at = 0
        if when is not None:
            time = _number(row[header.index(when)], number, when, may_lack=False)
            at = int(time) if when == "slice" else int(time * _TIMES[when] // (slice_s or 15.0))
        took = _number(row[value], number, header[value], may_lack=True)
        if took < 0:
            raise UsageError(f"line {number}: {header[value]} = {row[value]}: expected 0 or more")
        if row[source] != row[target]:
            series.add(at, row[source].strip(), row[target].strip(), took)
    if not series.values:
        raise UsageError("holds no measurement between two different nodes")
    return series.trace(factor, slice_s, how.zero)


def _column(header: list[str], names: Iterable[str]) -> int:
    return next(header.index(name) for name in names if name in header)


def _value_column(header: list[str], how: Reading) -> tuple[int, float]:
    """The column of the values and the factor that makes one-way seconds of them."""
    for index, name in enumerate(header):
        if found := _VALUE.fullmatch(name):
            return index, UNITS[how.unit or found["unit"]] / (
                2.0 if (how.measure or found["measure"]) == "rtt" else 1.0
            )
    for name in _VALUES:
        if name in header:
            measure = how.measure or ("delay" if name in ("delay", "latency") else "rtt")
            return header.index(name), UNITS[how.unit or "ms"] / (2.0 if measure == "rtt" else 1.0)
    raise UsageError(f"columns {', '.join(header)}: none is named like rtt_ms, delay_ms or avg")


def _number(text: str, line: int, column: str, *, may_lack: bool) -> float:
    text = text.strip()
    if may_lack and text.lower() in ("", "nan", "-", "none", "null", "*", "timeout", "lost"):
        return float("nan")
    try:
        value = float(text)
    except ValueError:
        raise UsageError(f"line {line}: {column} = {text!r}: expected a number") from None
    if not np.isfinite(value):
        raise UsageError(f"line {line}: {column} = {text!r}: expected a finite number")
    return value


def _read_matrices(
    number: int, first: list[str], rows: Iterator[tuple[int, list[str]]], how: Reading
) -> Trace:
    """Square matrices one after the other; a first line of names, or of numbers already."""
    names: list[str] | None = None
    lines = [(number, first)]
    try:
        [float(cell or "nan") for cell in first]
    except ValueError:
        names = [cell.strip() for cell in first]
        lines = []
    matrix: list[list[float]] = []
    for line, row in [*lines, *islice(rows, ROWS_MAX)]:
        if not any(cell.strip() for cell in row):
            continue
        width = len(names) if names is not None else len(first)
        if len(row) != width:
            raise UsageError(f"line {line} has {len(row)} columns; expected {width}, as the first one")
        matrix.append([_number(cell, line, f"column {n}", may_lack=True) for n, cell in enumerate(row, 1)])
    count = len(names) if names is not None else len(first)
    if not matrix or len(matrix) % count:
        raise UsageError(f"{len(matrix)} lines of {count} columns are no square matrices; expected {FORMS}")
    values = np.array(matrix).reshape(-1, count, count)
    if how.unit is None:
        raise UsageError("matrices in CSV do not say their unit: say --unit s, cs, ms or us")
    return Trace(names or _numbered(count), _to_delays(values, "matrix", how), slice_s=how.slice_s)
