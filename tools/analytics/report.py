"""The report: one HTML file that needs nothing else. The same summary gives the same bytes."""

from collections.abc import Sequence
from html import escape
from typing import Any

from anabranch.tools.analytics import plots
from anabranch.tools.analytics.summary import Summary, opening

RUNS_SHOWN = 6
"""With maps and timelines of their own; tables have all."""
_STYLE = """
body{font:15px/1.45 system-ui,sans-serif;color:#222;max-width:1180px;margin:2em auto;padding:0 1em}
h1{font-size:1.5em}h2{font-size:1.15em;margin-top:2em;border-bottom:1px solid #ddd}h3{font-size:1em}
table{border-collapse:collapse;font-size:13px;width:100%;display:block;overflow-x:auto}
th,td{padding:3px 9px;text-align:right;border-bottom:1px solid #eee;white-space:nowrap}
th{background:#f6f6f6}td.t,th.t{text-align:left}svg{width:100%;max-width:980px;height:auto}
svg text{font-size:12px;fill:#333}
.bad{color:#c0392b}.key span{display:inline-block;width:12px;height:12px;margin:0 5px 0 14px}
p.note{color:#666}
"""
_MS, _S, _SHARE, _COUNT, _TEXT = "ms", "s", "share", "count", "text"

Column = tuple[str, str, str]
"""Key, heading, how it is shown."""

_LINKS: tuple[Column, ...] = (
    ("run", "run", _TEXT), ("link", "link", _TEXT), ("availability", "availability", _SHARE),
    ("outages", "outages", _COUNT), ("down_s", "down", _S), ("loss", "loss", _SHARE),
    ("delay_p50_us", "median delay", _MS), ("delay_asymmetry", "slower to faster end", "number"),
    ("loss_asymmetry", "loss, ends differ by", _SHARE),
    ("is_flapping", "flaps", _TEXT), ("observed_s", "watched", _S),
)  # fmt: skip
_OUTAGES: tuple[Column, ...] = (
    ("run", "run", _TEXT), ("link", "link", _TEXT), ("start", "begins", "at"), ("seconds", "lasts", _S),
    ("cause", "cause", _TEXT),
)  # fmt: skip
_SLOW: tuple[Column, ...] = (
    ("run", "run", _TEXT), ("link", "link", _TEXT), ("start", "begins", "at"), ("seconds", "lasts", _S),
    ("delay_us", "delay", _MS), ("usual_us", "usual", _MS), ("loss", "loss", _SHARE),
)  # fmt: skip
_FLOWS: tuple[Column, ...] = (
    ("run", "run", _TEXT), ("topic", "topic", _TEXT), ("origin", "from", _TEXT), ("subscriber", "to", _TEXT),
    ("delivered", "messages", _COUNT), ("delivery_ratio", "delivered", _SHARE),
    ("age_p50_us", "median age", _MS), ("age_p99_us", "p99", _MS), ("deadline_us", "deadline", _MS),
    ("deadline_hit_ratio", "deadline met", _SHARE), ("late_share", "late", _SHARE),
    ("repeated_share", "repeated", _SHARE), ("copies_share", "with copies", _SHARE),
    ("paths", "paths", _COUNT),
    ("main_path", "main path", _TEXT), ("main_path_share", "on it", _SHARE),
)  # fmt: skip
_PATHS: tuple[Column, ...] = (
    ("run", "run", _TEXT), ("origin", "from", _TEXT), ("destination", "to", _TEXT),
    ("changes", "changes", _COUNT), ("faster", "faster", _COUNT), ("budget", "budget", _COUNT),
    ("broken", "broken", _COUNT), ("unreachable", "unreachable", _COUNT), ("copies", "copies", _COUNT),
    ("trouble", "trouble", _COUNT), ("healthy", "healthy again", _COUNT),
)  # fmt: skip
_REQUESTS: tuple[Column, ...] = (
    ("run", "run", _TEXT), ("topic", "topic", _TEXT), ("protocol", "protocol", _TEXT),
    ("merge", "merge", _TEXT), ("requests", "requests", _COUNT), ("complete", "complete", _COUNT),
    ("asked", "asked", _COUNT), ("answered", "answered", _COUNT), ("declined", "declined", _COUNT),
    ("missing", "missing", _COUNT), ("missing_most", "most often", _TEXT),
    ("p50_duration_us", "median time", _MS), ("p99_duration_us", "p99", _MS),
    ("duration_max_us", "longest", _MS),
)  # fmt: skip
_CLOCKS: tuple[Column, ...] = (
    ("run", "run", _TEXT), ("peer", "peer", _TEXT), ("offset_us", "ahead by", _MS),
    ("error_us", "give or take", _MS),
)  # fmt: skip
_PEERS: tuple[Column, ...] = (
    ("run", "run", _TEXT), ("peer", "peer", _TEXT), ("starts", "starts", _COUNT), ("ran_s", "ran", _S),
    ("published", "published", _COUNT), ("delivered", "delivered", _COUNT),
    ("forwarded", "forwarded", _COUNT),
    ("lost", "lost", _COUNT), ("dropped", "dropped", _COUNT), ("data_bytes", "data B", _COUNT),
    ("control_bytes", "control B", _COUNT), ("records", "records", _COUNT),
)  # fmt: skip
_FATE: tuple[Column, ...] = (
    ("a_link", "link", _TEXT), ("b_link", "and link", _TEXT), ("together", "failed together", _COUNT),
    ("by_chance", "by chance", "number"), ("lift", "times chance", "number"), ("overlap", "overlap", _SHARE),
    ("shares_fate", "shared fate", _TEXT),
)  # fmt: skip
_ODD: tuple[Column, ...] = (
    ("run", "run", _TEXT), ("what", "what", _TEXT), ("metric", "metric", _TEXT), ("slots", "slots", _COUNT),
    ("value", "worst", _MS), ("usual", "usual", _MS), ("sigmas", "standard deviations", "number"),
)  # fmt: skip
_METRICS = (
    ("delivery_ratio", "Delivered", 100.0, " %"),
    ("deadline_hit_ratio", "Deadline met", 100.0, " %"),
    ("age_mean_us", "Mean age", 0.001, " ms"),
    ("control_bytes_s", "Control", 0.001, " kB/s"),
    ("data_bytes_s", "Data", 0.001, " kB/s"),
)


def report_of(summary: Summary) -> str:
    """The whole file."""
    begun = {run["run"]: run["start"] for run in summary["runs"]}
    many = len(summary["runs"]) > 1

    def section(title: str, body: str) -> str:
        return f"<h2>{escape(title)}</h2>{body}" if body else ""

    def table(columns: Sequence[Column], rows: Sequence[dict[str, Any]]) -> str:
        return _table([each for each in columns if many or each[0] != "run"], rows, begun)

    records = summary["records"]
    found = "".join(f"<li>{escape(line)}</li>" for line in summary["findings"])
    intake = opening(summary)
    if records["bad"] or records["repeated"]:
        intake += f"; {records['bad']:,} bad lines kept apart, {records['repeated']:,} repeated ones left out"
    deadline_us = max((flow["deadline_us"] for flow in summary["flows"]), default=0)
    parts = [
        f"<h1>What happened in the mesh</h1><p>{escape(intake)}.</p>",
        section("Findings", f'<ul id="findings">{found}</ul>' if found else "<p>No trouble was found.</p>"),
        *(_of_run(summary, run, many) for run in summary["runs"][:RUNS_SHOWN]),
        section("Ages of messages", plots.curves(summary["ages"], deadline_us)),
        section("Topics and subscribers", table(_FLOWS, summary["flows"])),
        section("Changes of paths", table(_PATHS, summary["path_changes"])),
        section("Requests", table(_REQUESTS, summary["requests"])),
        section("Links", table(_LINKS, summary["links"])),
        section("Outages", table(_OUTAGES, summary["outages"])),
        section("Degradations", table(_SLOW, summary["degradations"])),
        section("Links that failed at the same time", table(_FATE, summary["shared_fate"])),
        section("Variants", _variants(summary["variants"])),
        section("Unlike the beginning", table(_ODD, summary["anomalies"])),
        section("Peers", table(_PEERS, summary["peers"])),
        section("Clocks that were put right", table(_CLOCKS, summary["clocks"])),
        section("Control traffic", _control(summary["control"])),
        section("Lines that could not be used", _bad(summary["intake"])),
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Anabranch report</title>'
        f"<style>{_STYLE}</style></head><body>{''.join(parts)}</body></html>\n"
    )


def _of_run(summary: Summary, run: dict[str, Any], many: bool) -> str:
    if not any(link["run"] == run["run"] for link in summary["links"]):
        return ""
    key = (
        f'<p class="key"><span style="background:{plots.DOWN}"></span>down'
        f'<span style="background:{plots.SLOW}"></span>degraded'
        f'<span style="background:{plots.FINE}"></span>fine</p>'
    )
    drawn = plots.delays([each for each in summary["delays"] if each["run"] == run["run"]], run)
    title = f"Links over time: run {escape(str(run['run']))}" if many else "Links over time"
    return (
        f"<h2>{title}</h2>{key}"
        + plots.timeline(summary["links"], summary["outages"], summary["degradations"], run)
        + plots.mesh(summary["links"], summary["degradations"], run)
        + (f"<h3>Delays, those with most trouble first</h3>{drawn}" if drawn else "")
    )


def _variants(rows: Sequence[dict[str, Any]]) -> str:
    """Nothing to compare without a second one."""
    if len({row["variant"] for row in rows}) < 2:
        return ""
    parts = [
        f"<h3>{title}</h3>{plots.bars(rows, metric, unit, suffix)}"
        for metric, title, unit, suffix in _METRICS
        if any(row["metric"] == metric for row in rows)
    ]
    note = '<p class="note">Means over runs; where there are several, with 95 % confidence intervals.</p>'
    return note + "".join(parts) if parts else ""


def _control(rows: Sequence[dict[str, Any]]) -> str:
    total = sum(row["bytes"] for row in rows) or 1
    shown = [{**row, "share": row["bytes"] / total} for row in rows]
    return _table(
        (("kind", "kind", _TEXT), ("bytes", "bytes", _COUNT), ("share", "share", _SHARE)), shown, {}
    )


def _bad(intake: Sequence[dict[str, Any]]) -> str:
    rows = [row for row in intake if row["reason"]]
    return _table((("reason", "reason", _TEXT), ("rows", "lines", _COUNT)), rows, {})


def _table(columns: Sequence[Column], rows: Sequence[dict[str, Any]], begun: dict[str, int]) -> str:
    if not rows:
        return ""
    heads = "".join(f'<th class="{"t" if how == _TEXT else "n"}">{head}</th>' for _, head, how in columns)
    lines = []
    for row in rows:
        cells = "".join(
            f'<td class="{"t" if how == _TEXT else "n"}">{escape(shown(row.get(key), how, row, begun))}</td>'
            for key, _, how in columns
        )
        lines.append(f"<tr>{cells}</tr>")
    return f"<table><tr>{heads}</tr>{''.join(lines)}</table>"


def shown(value: Any, how: str, row: dict[str, Any], begun: dict[str, int]) -> str:
    """A value as people read it."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else ""
    if how == "at":
        return f"{(value - begun.get(row['run'], value)) / 1e6:.1f} s"
    if how == _MS:
        return f"{value / 1000:.1f} ms" if value else ""
    if how == _S:
        return f"{value:.1f} s"
    if how == _SHARE:
        return f"{100 * value:.4g} %"
    if how == "number":
        return f"{value:.3g}"
    return f"{value:,}" if how == _COUNT else str(value)
