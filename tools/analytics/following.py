"""`analyze --follow`: tables per minute that grow with the logs, by Structured Streaming.

Files arrive whole, by rename; each is counted once, across restarts too, by the checkpoint below `out`.
"""

import signal
import threading
from collections.abc import Callable, Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as PySpark's users call it
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StringType, StructField, StructType

from anabranch.tools.analytics.loading import BAD, judged, with_place
from anabranch.tools.analytics.schema import CORRUPT, line_schema

WATERMARK = "10 minutes"
"""How late rows may come: files are open for a minute, and a crashed peer's come with its restart."""
TRIGGER_S = 2
FUTURE_US = 600_000_000
"""Times so far ahead of this host's are refused: by one of them, everything else would come too late."""
_POLL_S = 0.5


def lines_as_they_come(spark: SparkSession, directory: str) -> DataFrame:
    """Each line of each whole file, once."""
    schema = StructType([*line_schema().fields, StructField(CORRUPT, StringType())])
    lines = (
        spark.readStream.schema(schema)
        .option("columnNameOfCorruptRecord", CORRUPT)
        .option("recursiveFileLookup", "true")
        .option("pathGlobFilter", "*.jsonl")
        .json(directory)
    )
    rows = judged(with_place(lines, directory))
    now = F.unix_micros(F.current_timestamp())
    is_ahead = (F.col("kind") != BAD) & (F.col("ts") > now + FUTURE_US)
    return rows.withColumn(
        "reason", F.when(is_ahead, "ts is in the future").otherwise(F.col("reason"))
    ).withColumn("kind", F.when(F.col("reason").isNotNull(), BAD).otherwise(F.col("kind")))


def link_minutes(rows: DataFrame) -> DataFrame:
    """minute, run, peer, neighbour: probes, lost, mean and most delay."""
    return (
        _timed(rows, "probe")
        .groupBy("minute", "run", "peer", "neighbour")
        .agg(
            F.count("*").alias("probes"),
            F.sum(F.col("rtt_us").isNull().cast("long")).alias("lost"),
            F.avg(F.col("rtt_us") / 2).alias("delay_us"),
            F.max(F.col("rtt_us") / 2).alias("delay_max_us"),
        )
    )


def topic_minutes(rows: DataFrame) -> DataFrame:
    """minute, run, topic, origin, subscriber: messages, late ones, mean and most age."""
    return (
        _timed(rows, "delivery")
        .groupBy("minute", "run", "topic", "origin", F.col("peer").alias("subscriber"))
        .agg(
            F.sum("count").alias("delivered"),
            F.sum(F.when(F.col("late"), F.col("count")).otherwise(0)).alias("late"),
            (F.sum(F.col("age_us") * F.col("count")) / F.sum("count")).alias("age_us"),
            F.max("age_us").alias("age_max_us"),
        )
    )


def bad_lines(rows: DataFrame) -> DataFrame:
    """run, file, reason, text: lines that could not be used."""
    return rows.where(F.col("kind") == BAD).select("run", "file", "reason", "text")


def _timed(rows: DataFrame, kind: str) -> DataFrame:
    at = F.timestamp_micros("ts")
    return (
        rows.where(F.col("kind") == kind)
        .withColumn("at", at)
        .withWatermark("at", WATERMARK)
        .withColumn("minute", F.window("at", "1 minute").start)
    )


TABLES = {"link_minutes": link_minutes, "topic_minutes": topic_minutes, "bad_lines": bad_lines}


def start(
    spark: SparkSession, directory: str, out: str, *, trigger_s: float = TRIGGER_S
) -> list[StreamingQuery]:
    """One query per table. A batch goes to `out/follow/TABLE/batch=N`, over a former try."""
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    rows = lines_as_they_come(spark, directory)
    return [
        table(rows)
        .writeStream.queryName(name)
        .outputMode("append" if name == "bad_lines" else "update")
        .option("checkpointLocation", f"{out}/follow/checkpoints/{name}")
        .trigger(processingTime=f"{trigger_s:g} seconds")
        .foreachBatch(_writer(f"{out}/follow/{name}"))
        .start()
        for name, table in TABLES.items()
    ]


def _writer(path: str) -> Callable[[DataFrame, int], None]:
    def write(batch: DataFrame, number: int) -> None:
        # A batch that was cut short is run again with the same number and rows, and replaces what it left.
        batch.coalesce(1).write.mode("overwrite").parquet(f"{path}/batch={number:09d}")

    return write


def read_table(spark: SparkSession, out: str, name: str) -> DataFrame:
    """A table as it stands: of each row the newest version."""
    batches = spark.read.parquet(f"{out}/follow/{name}")
    if name == "bad_lines":
        return batches.drop("batch")
    keys = {
        "link_minutes": ["minute", "run", "peer", "neighbour"],
        "topic_minutes": ["minute", "run", "topic", "origin", "subscriber"],
    }[name]
    values = [column for column in batches.columns if column not in (*keys, "batch")]
    newest = batches.groupBy(*keys).agg(F.max_by(F.struct(*values), F.col("batch").cast("long")).alias("row"))
    return newest.select(*keys, "row.*")


def follow_logs(spark: SparkSession, directory: str, out: str, tell: Callable[[str], None]) -> None:
    """Until Ctrl-C or SIGTERM. A restart with the same `out` goes on where this one stopped."""
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    queries = start(spark, directory, out)
    tell(f"following {directory}; tables per minute in {out}/follow; stop with Ctrl-C")
    seen = {query.name: -1 for query in queries}
    while not stop.wait(_POLL_S):
        for query in queries:
            if (failed := query.exception()) is not None:
                raise failed
            for progress in query.recentProgress:
                if progress["batchId"] > seen[query.name] and progress["numInputRows"]:
                    seen[query.name] = progress["batchId"]
                    tell(f"{query.name}: {progress['numInputRows']:,} lines{late_of(progress)}")
    for query in queries:
        query.stop()


def late_of(progress: Mapping[str, Any]) -> str:
    """Watermarks drop what comes too late; that is told. Spark counts rows of the table, not lines."""
    late = sum(int(each["numRowsDroppedByWatermark"]) for each in progress["stateOperators"])
    return f"; what came more than {WATERMARK} late, for {late:,} rows, is left out" if late else ""
