"""Per topic and subscriber: what arrived, how late, over which paths. Functions of DataFrames.

One pass over the deliveries makes cells (`delivery_cells`); all tables are made of those.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as PySpark's users call it

from anabranch.tools.analytics.bins import bin_of, percentiles
from anabranch.tools.analytics.slots import in_slots

FLOW = ["run", "topic", "origin", "subscriber"]
_STREAM = [*FLOW, "epoch", "origin_epoch", "publisher"]


def delivery_cells(deliveries: DataFrame) -> DataFrame:
    """Messages per stream, path, deadline and bin of age."""
    met = (F.col("deadline_us") > 0) & (F.col("age_us") <= F.col("deadline_us"))
    return (
        deliveries.withColumn("subscriber", F.col("peer"))
        .withColumn("origin_epoch", F.coalesce("origin_epoch", F.lit(0)))
        .withColumn("deadline_us", F.coalesce("deadline_us", F.lit(0)))
        .groupBy(
            *_STREAM,
            F.concat_ws(" > ", "path").alias("path"),
            "deadline_us",
            F.coalesce("has_copies", F.lit(False)).alias("has_copies"),
            bin_of(F.col("age_us")).alias("bin"),
        )
        .agg(
            F.sum("count").alias("n"),
            F.count("*").alias("runs"),
            F.sum(F.when(F.col("late"), F.col("count")).otherwise(0)).alias("late"),
            F.sum(F.when(met, F.col("count")).otherwise(0)).alias("in_time"),
            F.sum(F.coalesce("repeated", F.lit(0))).alias("repeated"),
            F.sum(F.col("age_us") * F.col("count")).alias("age_sum_us"),
            F.max("age_us").alias("age_max_us"),
            F.min("seq").alias("first_seq"),
            F.max(F.col("seq") + F.col("count")).alias("end_seq"),
            F.min("ts").alias("first_ts"),
            F.max("ts").alias("last_ts"),
        )
    )


def flows(cells: DataFrame) -> DataFrame:
    """One row per topic, origin and subscriber.

    `expected` is what was published between the first and the last message that arrived; what a publisher
    put before or after nobody here can know.
    """
    streams = cells.groupBy(*_STREAM).agg(
        (F.max("end_seq") - F.min("first_seq")).alias("expected"),
        F.max("deadline_us").alias("stream_deadline_us"),
    )
    expected = streams.groupBy(*FLOW).agg(
        F.sum("expected").alias("expected"),
        F.sum(F.when(F.col("stream_deadline_us") > 0, F.col("expected")).otherwise(0)).alias("with_deadline"),
    )
    sums = cells.groupBy(*FLOW).agg(
        F.sum("n").alias("delivered"),
        F.sum("late").alias("late"),
        F.sum("in_time").alias("in_time"),
        F.sum("repeated").alias("repeated"),
        F.sum(F.when(F.col("has_copies"), F.col("n")).otherwise(0)).alias("with_copies"),
        (F.sum("age_sum_us") / F.sum("n")).alias("age_mean_us"),
        F.max("age_max_us").alias("age_max_us"),
        F.max("deadline_us").alias("deadline_us"),
        F.count_distinct("path").alias("paths"),
        (F.sum(F.col("n") * (F.size(F.split("path", " > ")) - 1)) / F.sum("n")).alias("hops_mean"),
        F.min("first_ts").alias("first_ts"),
        F.max("last_ts").alias("last_ts"),
    )
    main = (
        cells.groupBy(*FLOW, "path")
        .agg(F.sum("n").alias("n"))
        .groupBy(*FLOW)
        .agg(F.max_by("path", F.struct("n", "path")).alias("main_path"), F.max("n").alias("on_main"))
    )
    binned = cells.groupBy(*FLOW, "bin").agg(F.sum("n").alias("n"))
    joined = sums.join(expected, FLOW).join(main, FLOW).join(percentiles(binned, FLOW, "age_us"), FLOW)
    return joined.select(
        *FLOW,
        "delivered",
        "expected",
        (F.col("delivered") / F.col("expected")).alias("delivery_ratio"),
        F.col("p50_age_us").alias("age_p50_us"),
        F.col("p90_age_us").alias("age_p90_us"),
        F.col("p99_age_us").alias("age_p99_us"),
        "age_mean_us",
        "age_max_us",
        "deadline_us",
        "with_deadline",
        "in_time",
        F.when(F.col("with_deadline") > 0, F.col("in_time") / F.col("with_deadline")).alias(
            "deadline_hit_ratio"
        ),
        (F.col("late") / F.col("delivered")).alias("late_share"),
        (F.col("repeated") / (F.col("delivered") + F.col("repeated"))).alias("repeated_share"),
        (F.col("with_copies") / F.col("delivered")).alias("copies_share"),
        "hops_mean",
        "paths",
        "main_path",
        (F.col("on_main") / F.col("delivered")).alias("main_path_share"),
        "first_ts",
        "last_ts",
    )


def age_bins(cells: DataFrame) -> DataFrame:
    """FLOW, bin, n: the distribution of ages."""
    return cells.groupBy(*FLOW, "bin").agg(F.sum("n").alias("n"))


def path_changes(routes: DataFrame) -> DataFrame:
    """Per publisher's peer and receiver: how often its paths changed, and why."""
    return routes.groupBy("run", F.col("peer").alias("origin"), "destination").agg(
        F.sum((F.col("cause") != "new").cast("long")).alias("changes"),
        *(
            F.sum((F.col("cause") == cause).cast("long")).alias(cause)
            for cause in ("faster", "budget", "broken", "unreachable", "copies", "trouble", "healthy")
        ),
    )


def topic_slots(deliveries: DataFrame, widths: DataFrame) -> DataFrame:
    """Per flow and slot of time: messages, late ones, mean age."""
    return (
        in_slots(deliveries.withColumn("subscriber", F.col("peer")), widths)
        .groupBy(*FLOW, "slot_us", "slot")
        .agg(
            F.sum("count").alias("delivered"),
            F.sum(F.when(F.col("late"), F.col("count")).otherwise(0)).alias("late"),
            (F.sum(F.col("age_us") * F.col("count")) / F.sum("count")).alias("age_us"),
        )
    )
