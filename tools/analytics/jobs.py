"""Runs every job over a directory of logs and writes the tables. The order of the jobs, and nothing else."""

from collections.abc import Callable

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as PySpark's users call it
from pyspark.sql.types import StructType

from anabranch.overlay.errors import UsageError
from anabranch.tools.analytics import clocks, fate, links, loading, mesh, requests, topics
from anabranch.tools.analytics.profiling import profile_of
from anabranch.tools.analytics.schema import KINDS
from anabranch.tools.analytics.slots import slot_widths

Row = dict[str, object]


class Analysis(msgspec.Struct):
    """What came out; the tables are Parquet below `out/tables`."""

    out: str
    intake: list[Row]
    profile: Row
    tables: "Tables"

    def table(self, name: str) -> DataFrame:
        """One of the tables."""
        return self.tables.read(name)


def analyze(
    spark: SparkSession,
    directory: str,
    out: str,
    *,
    baseline_s: float | None = None,
    on_progress: Callable[[str], None] = lambda _: None,
) -> Analysis:
    """Read `directory`, write `out/records` (sound and bad rows) and `out/tables`."""
    loading.check_directory(directory)
    on_progress("reading the logs")
    logs = loading.compact(spark, directory, out)
    intake = logs.intake()
    if not loading.summary_of(intake)["rows"]:
        bad = loading.summary_of(intake)["bad"]
        what = f"{bad:,} unusable lines and no sound one" if bad else "no log records (files *.jsonl)"
        raise UsageError(f"{directory!r} holds {what}: name the directory that peers wrote to, as log_dir")
    tables = Tables(spark, out, on_progress)
    deliveries, ups = logs.records("delivery"), logs.records("link")
    tables.write("clocks", clocks.offsets(spark, clocks.pair_differences(ups, deliveries)))
    logs.correct(tables.read("clocks"))
    _links(tables, logs)
    _topics(tables, logs, baseline_s)
    profile = profile_of(tables.read("links"), tables.read("outages"), tables.read("shared_fate"))
    return Analysis(out, intake, profile, tables)


def _links(tables: "Tables", logs: loading.Logs) -> None:
    probes, changes = logs.records("probe"), logs.records("link")
    spans = tables.write("spans", links.spans(*(logs.records(kind) for kind in KINDS)))
    slots = tables.write("link_slots", links.link_slots(probes, slot_widths(spans)), by_run=True)
    bins = tables.write("delay_bins", links.delay_bins(probes), by_run=True)
    outages = tables.write("outages", links.outages(changes, probes, spans))
    firsts = slots.groupBy(*links.END).agg(F.min("slot").alias("ts"))
    ends = tables.write(
        "link_ends", links.link_ends(slots, bins, outages, links.observed(changes, firsts, spans))
    )
    whole = tables.write("links", links.links_whole(ends, outages))
    tables.write("degradations", links.degradations(slots))
    tables.write("shared_fate", fate.coincidences(outages, whole))


def _topics(tables: "Tables", logs: loading.Logs, baseline_s: float | None) -> None:
    deliveries = logs.records("delivery")
    cells = tables.write("delivery_cells", topics.delivery_cells(deliveries), by_run=True)
    flows = tables.write("flows", topics.flows(cells))
    tables.write("age_bins", topics.age_bins(cells))
    tables.write("path_changes", topics.path_changes(logs.records("route")))
    spans = tables.read("spans")
    slots = tables.write("topic_slots", topics.topic_slots(deliveries, slot_widths(spans)), by_run=True)
    controls = logs.records("control")
    counters = tables.write("counters", mesh.last_counters(controls))
    tables.write("peers", mesh.peers(spans, counters))
    tables.write("control", mesh.control(counters, spans))
    runs = tables.write("runs", mesh.runs(flows, counters, controls, spans))
    tables.write("variants", mesh.variants(runs))
    if "reply" in KINDS:
        replies = logs.records("reply")
        tables.write("requests", requests.requests(replies))
        tables.write("request_topics", requests.request_topics(replies))
    base_us = None if baseline_s is None else int(baseline_s * 1e6)
    of_links = mesh.anomalies(tables.read("link_slots"), links.END, "delay_us", base_us)
    of_topics = mesh.anomalies(slots, topics.FLOW, "age_us", base_us)
    tables.write("anomalies", of_links.unionByName(of_topics))


class Tables:
    """Writes tables and reads them back, so that no job computes another one's result again."""

    def __init__(self, spark: SparkSession, out: str, on_progress: Callable[[str], None]) -> None:
        self._spark = spark
        self._out = out
        self._on_progress = on_progress
        self._schemas: dict[str, StructType] = {}
        """Known from writing: to find them out again costs a job each time."""

    def write(self, name: str, frame: DataFrame, *, by_run: bool = False) -> DataFrame:
        """Write a table and return it as it is on disk. Large ones are partitioned by run."""
        self._on_progress(name.replace("_", " "))
        path = f"{self._out}/tables/{name}"
        if by_run:
            # The value of a partition is read back as whatever it looks like: keep the column itself as well.
            frame.withColumn("of_run", F.col("run")).write.mode("overwrite").partitionBy("of_run").parquet(
                path
            )
        else:
            frame.coalesce(1).write.mode("overwrite").parquet(path)
        self._schemas[name] = frame.schema
        return self.read(name)

    def read(self, name: str) -> DataFrame:
        """A table that was written."""
        return self._spark.read.schema(self._schemas[name]).parquet(f"{self._out}/tables/{name}")
