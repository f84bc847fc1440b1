"""What the tables say, small enough to show: for the terminal, for --json, for the report."""

from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812 - as PySpark's users call it

from anabranch.tools.analytics.jobs import Analysis
from anabranch.tools.analytics.loading import summary_of

ROWS_MAX = 200
"""Of each table, the worst first; the Parquet tables have the rest."""
POINTS_MAX = 60
"""Of each distribution."""
DELAYS_MAX, RUNS_MAX, SLOTS_MAX = 9, 6, 180
"""Links whose delays are drawn, per run; runs; points of each."""

Summary = dict[str, Any]


def summarize(analysis: Analysis, source: str) -> Summary:
    """Everything that is shown. The same logs give the same summary."""
    table = analysis.table
    links = _rows(table("links").orderBy("availability", F.desc("loss"), "run", "link"))
    outages = _rows(
        _episodes(table("outages").where("fault = 'link'"), F.max("cause").alias("cause")).orderBy(
            F.desc("seconds"), "run", "link", "start"
        )
    )
    degradations = _rows(
        _episodes(
            table("degradations"),
            F.max("delay_us").alias("delay_us"),
            F.min("usual_us").alias("usual_us"),
            F.max("loss").alias("loss"),
        ).orderBy(F.desc("seconds"), "run", "link", "start")
    )
    summary: Summary = {
        "source": source,
        "records": dict(summary_of(analysis.intake)),
        "intake": analysis.intake,
        "runs": _rows(table("runs").orderBy("run")),
        "links": links,
        "outages": outages,
        "degradations": degradations,
        "shared_fate": _rows(table("shared_fate").orderBy(F.desc("together"), "a_link", "b_link")),
        "flows": _rows(table("flows").orderBy("delivery_ratio", "run", "topic", "origin", "subscriber")),
        "peers": _rows(table("peers").orderBy("run", "peer")),
        "control": _rows(
            table("control")
            .groupBy("kind")
            .agg(F.sum("bytes").alias("bytes"))
            .orderBy(F.desc("bytes"), "kind")
        ),
        "variants": _rows(table("variants").orderBy("metric", "variant")),
        "anomalies": _rows(_worst(table("anomalies")).orderBy(F.desc("slots"), "run", "what")),
        "clocks": _rows(table("clocks").where("is_used").orderBy("run", "peer")),
        "ages": _distributions(table("age_bins"), ["topic", "subscriber"]),
        "path_changes": _rows(
            table("path_changes").orderBy(F.desc("changes"), "run", "origin", "destination")
        ),
        "requests": _rows(
            table("request_topics").orderBy(F.desc("missing"), "run", "topic", "protocol", "merge")
        ),
        "delays": _delays(table("link_slots"), links, degradations),
        "profile": analysis.profile,
    }
    summary["findings"] = findings(summary)
    return summary


def findings(summary: Summary) -> list[str]:
    """The trouble in plain words, the worst of each kind first."""
    lines = []
    for link in summary["links"]:
        if link["outages"]:
            times = "once" if link["outages"] == 1 else f"{link['outages']} times"
            causes = [each["cause"] for each in summary["outages"] if each["link"] == link["link"]]
            cause = f", cause: {causes[0]}" if causes else ""
            lines.append(
                f"{link['link']} was down {times}, for {link['down_s']:.1f} s in all "
                f"({100 * (1 - link['availability']):.2f} % of the time){cause}{_where(summary, link)}"
            )
        if link["is_flapping"]:
            lines.append(f"{link['link']} flaps{_where(summary, link)}")
    for each in summary["degradations"]:
        slow = f"{each['delay_us'] / 1000:.1f} ms instead of {each['usual_us'] / 1000:.1f} ms"
        lost = f", {100 * each['loss']:.1f} % of probes lost" if each["loss"] else ""
        lines.append(
            f"{each['link']} was degraded for {each['seconds']:.1f} s: {slow}{lost}{_where(summary, each)}"
        )
    lines += [
        f"{each['a_link']} and {each['b_link']} fail together ({each['together']} times)"
        for each in summary["shared_fate"]
        if each["shares_fate"]
    ]
    for each in summary["flows"]:
        ratio = each["deadline_hit_ratio"]
        if ratio is not None and ratio < 0.99:
            lines.append(
                f"{each['topic']} from {each['origin']} to {each['subscriber']} met its deadline for "
                f"{100 * ratio:.2f} % of its messages{_where(summary, each)}"
            )
    for each in summary["requests"]:
        if each["complete"] < each["requests"]:
            most = f", most often {each['missing_most']}" if each["missing_most"] else ""
            lines.append(
                f"{each['requests'] - each['complete']} of {each['requests']} requests on {each['topic']} "
                f"stayed incomplete{most}{_where(summary, each)}"
            )
    lines += [
        f"the clock of {clock['peer']} is off by {clock['offset_us'] / 1e6:.1f} s; corrected"
        for clock in summary["clocks"]
    ]
    bad = summary["records"]["bad"]
    if bad:
        lines.append(f"{bad:,} lines of the logs could not be used")
    return lines[:ROWS_MAX]


def opening(summary: Summary) -> str:
    """What was looked at."""
    peers, runs = len(summary["peers"]), len(summary["runs"])
    return (
        f"{summary['records']['rows']:,} records of {peers:,} {'peer' if peers == 1 else 'peers'} "
        f"in {runs:,} {'run' if runs == 1 else 'runs'}"
    )


def _where(summary: Summary, row: dict[str, Any]) -> str:
    return f" (run {row['run']})" if len(summary["runs"]) > 1 else ""


def _episodes(rows: DataFrame, *values: Any) -> DataFrame:
    """Episodes of both ends of a link, where they overlap, as one."""
    from anabranch.tools.analytics.links import merged  # the same rule as for the tables

    keys = ["run", "link"]
    whole = merged(rows.withColumn("rank", F.lit(1)).withColumn("cause", F.lit("")), keys)
    whole = whole.select(*keys, F.col("start").alias("from"), F.col("end").alias("to"))
    inside = rows.join(whole, keys).where((F.col("start") >= F.col("from")) & (F.col("start") <= F.col("to")))
    return (
        inside.groupBy(*keys, F.col("from").alias("start"), F.col("to").alias("end"))
        .agg(*values)
        .withColumn("seconds", (F.col("end") - F.col("start")) / 1e6)
    )


def _worst(anomalies: DataFrame) -> DataFrame:
    return anomalies.groupBy("run", "what", "metric").agg(
        F.count("*").alias("slots"),
        F.min("slot").alias("first"),
        F.max_by("value", F.abs("sigmas")).alias("value"),
        F.max("usual").alias("usual"),
        F.max(F.abs("sigmas")).alias("sigmas"),
    )


def _delays(
    slots: DataFrame, links: list[dict[str, Any]], slow: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Delay over time of the links with most trouble, by run."""
    from anabranch.tools.analytics.links import link_name

    troubled = {(each["run"], each["link"]) for each in slow}
    chosen: dict[str, list[str]] = {}
    for link in sorted(
        links,
        key=lambda each: (
            each["outages"] == 0,
            (each["run"], each["link"]) not in troubled,
            -(each["delay_p50_us"] or 0),
            each["link"],
        ),
    ):
        if len(chosen.setdefault(link["run"], [])) < DELAYS_MAX:
            chosen[link["run"]].append(link["link"])
    shown = [(run, link) for run in sorted(chosen)[:RUNS_MAX] for link in chosen[run]]
    if not shown:
        return []
    named = slots.select(
        "run", link_name().alias("link"), "slot", "slot_us", "delay_sum_us", "probes", "lost"
    )
    wanted = F.concat_ws("\n", "run", "link").isin([f"{run}\n{link}" for run, link in shown])
    rows = (
        named.where(wanted)
        .groupBy("run", "link", "slot", "slot_us")
        .agg((F.sum("delay_sum_us") / F.nullif(F.sum(F.col("probes") - F.col("lost")), F.lit(0))).alias("us"))
    )
    curves: dict[tuple[str, str], list[tuple[int, float | None]]] = {each: [] for each in shown}
    for row in rows.orderBy("run", "link", "slot").collect():
        us = None if row["us"] is None else float(f"{row['us']:.6g}")
        curves[row["run"], row["link"]].append((row["slot"] + row["slot_us"] // 2, us))
    return [
        {"run": run, "link": link, "points": points[:: max(1, -(-len(points) // SLOTS_MAX))]}
        for (run, link), points in curves.items()
    ]


def _distributions(bins: DataFrame, keys: list[str]) -> list[dict[str, Any]]:
    """Per key a list of (µs, share that is at most so old), thinned for drawing."""
    from anabranch.tools.analytics.bins import cumulated, middle_of

    whole = bins.groupBy(*keys, "bin").agg(F.sum("n").alias("n"))
    busiest = whole.groupBy(*keys).agg(F.sum("n").alias("all")).orderBy(F.desc("all"), *keys).limit(12)
    rows = cumulated(whole.join(busiest, keys), keys).select(
        *keys, middle_of(F.col("bin")).alias("us"), (F.col("upto") / F.col("total")).alias("share")
    )
    curves: dict[tuple[str, ...], list[tuple[float, float]]] = {}
    for row in rows.orderBy(*keys, "us").collect():
        curves.setdefault(tuple(row[key] for key in keys), []).append((row["us"], row["share"]))
    return [{"name": " to ".join(name), "points": _thinned(points)} for name, points in curves.items()]


def _thinned(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    step = max(1, -(-len(points) // POINTS_MAX))
    kept = points[::step]
    return kept if kept[-1] == points[-1] else [*kept, points[-1]]


def _rows(frame: DataFrame) -> list[dict[str, Any]]:
    return [_plain(row) for row in frame.limit(ROWS_MAX).collect()]


def _plain(row: Row) -> dict[str, Any]:
    """Without digits that depend on the order of additions."""
    return {
        name: float(f"{value:.9g}") if isinstance(value, float) else value
        for name, value in row.asDict().items()
    }
