"""Per link: delay, loss, outages, degradation, flapping, asymmetry. Functions of DataFrames.

A link is seen from both its ends; rows are (run, peer, neighbour) unless they say `link`, which is both.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - as PySpark's users call it

from anabranch.tools.analytics.bins import bin_of, percentiles
from anabranch.tools.analytics.slots import in_slots

END = ["run", "peer", "neighbour"]
LOST_LEAST = 3
"""So many probes lost in a row make an outage."""
SLACK_US = 500_000
"""Outages closer than this are one."""
DEGRADED_RATIO, DEGRADED_US, DEGRADED_LOSS = 1.5, 3_000, 0.05
"""A slot is degraded beyond this multiple of the usual delay and this much more, or with this loss."""
FLAPPING_OUTAGES, FLAPPING_WINDOW_US = 3, 600_000_000
LEFT_US = 3_000_000
"""A neighbour whose log ends within this time of a silence was gone, not the link."""


def link_name() -> Column:
    """Both ends in the order of their names, as in `a - b`."""
    return F.concat_ws(" - ", F.least("peer", "neighbour"), F.greatest("peer", "neighbour"))


def spans(*records: DataFrame) -> DataFrame:
    """From when to when each start of a peer wrote: run, peer, epoch, first_ts, last_ts, rows."""
    parts = [
        rows.groupBy("run", "peer", "epoch").agg(
            F.min("ts").alias("first_ts"), F.max("ts").alias("last_ts"), F.count("*").alias("rows")
        )
        for rows in records
    ]
    everything = parts[0]
    for part in parts[1:]:
        everything = everything.unionByName(part)
    return everything.groupBy("run", "peer", "epoch").agg(
        F.min("first_ts").alias("first_ts"), F.max("last_ts").alias("last_ts"), F.sum("rows").alias("rows")
    )


def delay_bins(probes: DataFrame) -> DataFrame:
    """One-way delays (half of the round trip) in bins: END, bin, n."""
    answered = probes.where(F.col("rtt_us").isNotNull())
    return answered.groupBy(*END, bin_of(F.col("rtt_us") / 2).alias("bin")).agg(F.count("*").alias("n"))


def link_slots(probes: DataFrame, widths: DataFrame) -> DataFrame:
    """Per slot of time: probes, lost, mean, least and most delay, mean jitter."""
    return (
        in_slots(probes, widths)
        .groupBy(*END, "slot_us", "slot")
        .agg(
            F.count("*").alias("probes"),
            F.sum(F.col("rtt_us").isNull().cast("long")).alias("lost"),
            F.sum(F.col("rtt_us") / 2).alias("delay_sum_us"),
            F.min(F.col("rtt_us") / 2).alias("delay_min_us"),
            F.max(F.col("rtt_us") / 2).alias("delay_max_us"),
            F.sum("jitter_us").alias("jitter_sum_us"),
        )
        .withColumn("delay_us", F.col("delay_sum_us") / (F.col("probes") - F.col("lost")))
    )


def lost_runs(probes: DataFrame) -> DataFrame:
    """Probes lost one after another: END, start, end, cause. Looks at lost rows alone, which are few."""
    lost = probes.where(F.col("rtt_us").isNull())
    keys = [*END, "epoch", "connection"]
    island = F.col("seq") - F.row_number().over(Window.partitionBy(*keys).orderBy("seq"))
    sent = F.col("ts") - F.coalesce("waited_us", F.lit(0))
    return (
        lost.withColumn("island", island)
        .groupBy(*keys, "island")
        .agg(F.min(sent).alias("start"), F.max("ts").alias("end"), F.count("*").alias("lost"))
        .where(F.col("lost") >= LOST_LEAST)
        .select(*END, "start", "end", F.lit("probes lost").alias("cause"), F.lit(1).alias("rank"))
    )


def states_down(links: DataFrame, spans: DataFrame) -> DataFrame:
    """From a link's leaving `up` to its next `up`, or to the end of its peer's log."""
    # A connection that replaces another tells `down` and `up` with the same time: `up` counts as the later.
    ordered = Window.partitionBy(*END).orderBy("ts", F.when(F.col("state") == "up", 1).otherwise(0))
    before = ordered.rowsBetween(Window.unboundedPreceding, -1)
    ups = F.coalesce(F.sum((F.col("state") == "up").cast("int")).over(before), F.lit(0))
    ends = spans.groupBy("run", "peer").agg(F.max("last_ts").alias("log_end"))
    changes = (
        links.withColumn("island", ups)
        .withColumn("next_ts", F.lead("ts").over(ordered))
        .where((F.col("state") != "up") & (F.col("island") > 0))
        .join(ends, ["run", "peer"])
    )
    return (
        changes.withColumn("until", F.coalesce("next_ts", "log_end"))
        .groupBy(*END, "island")
        .agg(
            F.min("ts").alias("start"),
            F.max("until").alias("end"),
            F.max_by("cause", F.struct((F.col("state") == "down").cast("int"), "ts")).alias("cause"),
        )
        .select(*END, "start", "end", "cause", F.lit(2).alias("rank"))
    )


def merged(intervals: DataFrame, keys: list[str], slack_us: int = SLACK_US) -> DataFrame:
    """Intervals that touch become one; the cause of the highest rank stays."""
    ordered = Window.partitionBy(*keys).orderBy("start", "end")
    reach = F.max("end").over(ordered.rowsBetween(Window.unboundedPreceding, -1))
    begins = (reach.isNull() | (F.col("start") > reach + slack_us)).cast("int")
    return (
        intervals.withColumn("begins", begins)
        .withColumn("island", F.sum("begins").over(ordered.rowsBetween(Window.unboundedPreceding, 0)))
        .groupBy(*keys, "island")
        .agg(
            F.min("start").alias("start"),
            F.max("end").alias("end"),
            F.max_by("cause", F.struct("rank", F.negative("start"))).alias("cause"),
            F.max("rank").alias("rank"),
        )
        .drop("island")
    )


def outages(links: DataFrame, probes: DataFrame, spans: DataFrame) -> DataFrame:
    """END, link, start, end, seconds, cause, fault (`link`, `peer` or `left`), is_open.

    `peer`: the neighbour's own log stops there, so the link was not to blame. `left`: it said farewell.
    """
    both = merged(states_down(links, spans).unionByName(lost_runs(probes)), END)
    stops = spans.select(
        "run",
        F.col("peer").alias("neighbour"),
        F.col("last_ts").alias("stopped"),
        F.col("epoch").alias("died"),
    )
    run_end = spans.groupBy("run").agg(F.max("last_ts").alias("run_end"))
    own_end = spans.groupBy("run", "peer").agg(F.max("last_ts").alias("own_end"))
    near = (F.col("stopped") - F.col("start")).between(-LEFT_US, LEFT_US)
    judged = (
        both.join(run_end, "run")
        .join(own_end, ["run", "peer"])
        .join(stops, ["run", "neighbour"], "left")
        .groupBy(*END, "start", "end", "cause", "run_end", "own_end")
        .agg(F.max(near.cast("int")).alias("stops"))
    )
    said_farewell = F.col("cause").isin("closed by neighbour", "leaving")
    is_end = F.col("run_end") - F.col("start") < LEFT_US
    fault = (
        F.when((F.col("stops") == 1) & said_farewell, "left")
        .when((F.col("stops") == 1) & ~is_end, "peer")
        .when(F.col("cause") == "restarted", "peer")
        .when((F.col("stops") == 1) & is_end, "left")
        .otherwise("link")
    )
    return judged.select(
        *END,
        link_name().alias("link"),
        "start",
        "end",
        ((F.col("end") - F.col("start")) / 1e6).alias("seconds"),
        "cause",
        fault.alias("fault"),
        (F.col("end") >= F.col("own_end")).alias("is_open"),
    )


def observed(links: DataFrame, probes_first: DataFrame, spans: DataFrame) -> DataFrame:
    """For how long each end watched its link: END, observed_s; without the time in which it did not run."""
    first = links.where("state = 'up'").select(*END, "ts").unionByName(probes_first)
    first = first.groupBy(*END).agg(F.min("ts").alias("first_ts"))
    lives = spans.select("run", "peer", F.col("first_ts").alias("born"), "last_ts")
    lived = F.greatest(F.lit(0), F.col("last_ts") - F.greatest("born", "first_ts"))
    return first.join(lives, ["run", "peer"]).groupBy(*END).agg((F.sum(lived) / 1e6).alias("observed_s"))


def flapping(outages: DataFrame) -> DataFrame:
    """END, flaps: the most outages that began within ten minutes."""
    window = Window.partitionBy(*END).orderBy("start").rangeBetween(-FLAPPING_WINDOW_US, 0)
    return (
        outages.where("fault = 'link'")
        .withColumn("recent", F.count("*").over(window))
        .groupBy(*END)
        .agg(F.max("recent").alias("flaps"))
    )


def usual(slots: DataFrame) -> DataFrame:
    """END, usual_us: the delay that a fifth of the slots stay below, which lasting trouble does not move."""
    return slots.groupBy(*END).agg(F.percentile("delay_us", F.lit(0.2)).alias("usual_us"))


def degradations(slots: DataFrame) -> DataFrame:
    """Two or more slots on end in which a link was much slower than usual, or lost much."""
    slow = F.col("delay_us") > DEGRADED_RATIO * F.col("usual_us") + DEGRADED_US
    lossy = (
        (F.col("lost") >= DEGRADED_LOSS * F.col("probes"))
        & (F.col("lost") > 0)
        & (F.col("lost") < F.col("probes"))
    )
    bad = slots.join(usual(slots), END).where(F.coalesce(slow, F.lit(False)) | lossy)
    ordered = Window.partitionBy(*END).orderBy("slot")
    island = F.col("slot") - F.row_number().over(ordered) * F.col("slot_us")
    return (
        bad.withColumn("island", island)
        .groupBy(*END, "island", "usual_us", "slot_us")
        .agg(
            F.min("slot").alias("start"),
            (F.max("slot") + F.col("slot_us")).alias("end"),
            F.count("*").alias("slots"),
            (F.sum("delay_sum_us") / (F.sum("probes") - F.sum("lost"))).alias("delay_us"),
            (F.sum("lost") / F.sum("probes")).alias("loss"),
        )
        .where("slots >= 2")
        .select(*END, link_name().alias("link"), "start", "end", "delay_us", "usual_us", "loss")
    )


def link_ends(slots: DataFrame, bins: DataFrame, outages: DataFrame, observed: DataFrame) -> DataFrame:
    """One row per link and end: what it was like."""
    measured = slots.groupBy(*END).agg(
        F.sum("probes").alias("probes"),
        F.sum("lost").alias("lost"),
        (F.sum("lost") / F.sum("probes")).alias("loss"),
        (F.sum("delay_sum_us") / (F.sum("probes") - F.sum("lost"))).alias("delay_mean_us"),
        F.min("delay_min_us").alias("delay_min_us"),
        F.max("delay_max_us").alias("delay_max_us"),
        (F.sum("jitter_sum_us") / F.sum("probes")).alias("jitter_us"),
    )
    troubled = (
        outages.where("fault = 'link'")
        .groupBy(*END)
        .agg(
            F.count("*").alias("outages"),
            F.sum("seconds").alias("down_s"),
            F.max("seconds").alias("longest_s"),
        )
    )
    joined = (
        observed.join(measured, END, "left")
        .join(percentiles(bins, END), END, "left")
        .join(troubled, END, "left")
        .join(flapping(outages), END, "left")
    )
    filled = joined.fillna(0, ["outages", "down_s", "longest_s", "flaps", "probes", "lost"])
    return filled.select(
        *END,
        link_name().alias("link"),
        "observed_s",
        "probes",
        "lost",
        "loss",
        "delay_min_us",
        "delay_mean_us",
        F.col("p50_us").alias("delay_p50_us"),
        F.col("p90_us").alias("delay_p90_us"),
        F.col("p99_us").alias("delay_p99_us"),
        "delay_max_us",
        "jitter_us",
        "outages",
        "down_s",
        "longest_s",
        F.greatest(F.lit(0.0), 1 - F.col("down_s") / F.col("observed_s")).alias("availability"),
        "flaps",
        (F.col("flaps") >= FLAPPING_OUTAGES).alias("is_flapping"),
    )


def links_whole(ends: DataFrame, outages: DataFrame) -> DataFrame:
    """One row per link, both ends together; an outage that either end saw counts. Asymmetry between them."""
    keys = ["run", "link"]
    down = (
        merged(outages.where("fault = 'link'").withColumn("rank", F.lit(1)), keys)
        .groupBy(*keys)
        .agg(
            F.count("*").alias("outages"),
            (F.sum(F.col("end") - F.col("start")) / 1e6).alias("down_s"),
        )
    )
    whole = ends.groupBy(*keys).agg(
        F.min(F.least("peer", "neighbour")).alias("a"),
        F.max(F.greatest("peer", "neighbour")).alias("b"),
        F.max("observed_s").alias("observed_s"),
        F.sum("probes").alias("probes"),
        (F.sum("lost") / F.sum("probes")).alias("loss"),
        F.avg("delay_p50_us").alias("delay_p50_us"),
        (F.max("loss") - F.min("loss")).alias("loss_asymmetry"),
        (F.max("delay_p50_us") / F.min("delay_p50_us")).alias("delay_asymmetry"),
        (F.max("availability") - F.min("availability")).alias("availability_asymmetry"),
        F.max("is_flapping").alias("is_flapping"),
        F.count("*").alias("ends"),
    )
    filled = whole.join(down, keys, "left").fillna(0, ["outages", "down_s"])
    return filled.withColumn(
        "availability", F.greatest(F.lit(0.0), 1 - F.col("down_s") / F.col("observed_s"))
    )
