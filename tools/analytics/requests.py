"""Per request: when it was complete, how many sites answered, which were missing. Functions of DataFrames."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as PySpark's users call it


def requests(replies: DataFrame) -> DataFrame:
    """One row per request, from its last record."""
    return replies.groupBy("run", "peer", "epoch", "request").agg(
        *(
            F.max_by(name, "ts").alias(name)
            for name in replies.columns
            if name not in ("run", "peer", "epoch", "request", "ts")
        ),
        F.max("ts").alias("ts"),
    )
