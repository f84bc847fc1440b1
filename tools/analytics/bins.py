"""Distributions as counts in log-spaced bins: one pass, and percentiles within 1 % of the exact value."""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - as PySpark's users call it

GROWTH = 1.02
"""Each bin is this much wider than the one before; a value differs from its bin's middle by 1 % at most."""
PERCENTILES = {"p50": 0.50, "p90": 0.90, "p99": 0.99}


def bin_of(value: Column) -> Column:
    """The number of the bin of a value in µs; 0 and 1 share the first."""
    return F.floor(F.log(F.greatest(value, F.lit(1))) / F.log(F.lit(GROWTH))).cast("int")


def middle_of(number: Column) -> Column:
    """The value that stands for a bin."""
    return F.pow(F.lit(GROWTH), number + F.lit(0.5))


def cumulated(binned: DataFrame, keys: Sequence[str]) -> DataFrame:
    """`upto` and `total` for each row of (keys, bin, n)."""
    ordered = Window.partitionBy(*keys).orderBy("bin")
    return binned.withColumn(
        "upto", F.sum("n").over(ordered.rowsBetween(Window.unboundedPreceding, Window.currentRow))
    ).withColumn("total", F.sum("n").over(Window.partitionBy(*keys)))


def percentiles(binned: DataFrame, keys: Sequence[str], suffix: str = "us") -> DataFrame:
    """p50, p90, p99 (with a suffix) from rows of (keys, bin, n): the least value that so many reach."""
    rows = cumulated(binned, keys)
    return rows.groupBy(*keys).agg(
        *(
            middle_of(F.min(F.when(F.col("upto") >= share * F.col("total"), F.col("bin")))).alias(
                f"{name}_{suffix}"
            )
            for name, share in PERCENTILES.items()
        )
    )
