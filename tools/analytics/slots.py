"""Slots of time, as wide as suits the length of each run."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as PySpark's users call it

WIDTHS_S = (1, 5, 15, 60, 300, 3600)
TARGET = 720
"""Slots that a run is cut into at most, where the list above allows."""


def slot_widths(spans: DataFrame) -> DataFrame:
    """run, slot_us."""
    seconds = (F.max("last_ts") - F.min("first_ts")) / 1e6
    width = F.lit(WIDTHS_S[-1])
    for each in reversed(WIDTHS_S[:-1]):
        width = F.when(seconds <= each * TARGET, each).otherwise(width)
    return spans.groupBy("run").agg((width * 1_000_000).cast("long").alias("slot_us"))


def in_slots(records: DataFrame, widths: DataFrame) -> DataFrame:
    """Records with `slot_us`, and with `slot`, the µs at which theirs begins."""
    begin: Column = F.floor(F.col("ts") / F.col("slot_us")) * F.col("slot_us")
    return records.join(F.broadcast(widths), "run").withColumn("slot", begin)
