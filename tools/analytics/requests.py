"""Per request: when it was complete, how many sites answered, which were missing. Functions of DataFrames."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as PySpark's users call it

from anabranch.tools.analytics.bins import bin_of, percentiles

KEYS = ["run", "topic", "protocol", "merge"]


def requests(replies: DataFrame) -> DataFrame:
    """One row per request."""
    return replies.select(
        "run",
        "peer",
        "epoch",
        "number",
        "topic",
        "protocol",
        "merge",
        "ts",
        "asked",
        "answered",
        "declined",
        "complete",
        "missing",
        "duration_us",
    )


def request_topics(replies: DataFrame) -> DataFrame:
    """Per topic, protocol and merge: how many, how complete, how long; and who is missing most often."""
    sums = replies.groupBy(*KEYS).agg(
        F.count("*").alias("requests"),
        F.sum(F.col("complete").cast("long")).alias("complete"),
        F.sum("asked").alias("asked"),
        F.sum("answered").alias("answered"),
        F.sum("declined").alias("declined"),
        F.sum(F.size("missing")).alias("missing"),
        F.max("duration_us").alias("duration_max_us"),
    )
    binned = replies.groupBy(*KEYS, bin_of(F.col("duration_us")).alias("bin")).agg(F.count("*").alias("n"))
    absent = (
        replies.select(*KEYS, F.explode("missing").alias("site"))
        .groupBy(*KEYS, "site")
        .agg(F.count("*").alias("times"))
        .groupBy(*KEYS)
        .agg(F.max_by("site", F.struct("times", "site")).alias("missing_most"))
    )
    return sums.join(percentiles(binned, KEYS, "duration_us"), KEYS).join(absent, KEYS, "left")
