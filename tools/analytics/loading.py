"""Reads the logs of peers: sound rows by kind, and bad ones apart, each with its reason.

Everything is written to Parquet once, by `compact`; jobs read that.
"""

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as PySpark's users call it
from pyspark.sql.types import MapType, StringType, StructField, StructType

from anabranch.overlay.errors import UsageError
from anabranch.tools.analytics.schema import CORRUPT, KINDS, columns_of, line_schema, required_of

FILES = "{*.jsonl,*.jsonl.part,*.jsonl.gz}"
"""Whole files; what a crashed peer left unfinished; what somebody packed."""
PACKED = 10
"""So many times smaller are packed logs, roughly."""
BAD = "bad"
"""The partition of rows that could not be used."""
_WHERE = ("run", "file")
_NOT_NEGATIVE = ("seq", "rtt_us", "waited_us", "delay_us", "jitter_us", "cost_us", "age_us", "deadline_us")


def read_lines(spark: SparkSession, directory: str) -> DataFrame:
    """Each line of each log below the directory, with `run` (the directory it is in) and `file`."""
    schema = StructType([*line_schema().fields, StructField(CORRUPT, StringType())])
    lines = (
        spark.read.schema(schema)
        .option("columnNameOfCorruptRecord", CORRUPT)
        .option("recursiveFileLookup", "true")
        .option("pathGlobFilter", FILES)
        .json(directory)
    )
    return with_place(lines, directory)


def with_place(lines: DataFrame, directory: str) -> DataFrame:
    """Adds `run`, the directory of the file below the logs' own ("." for that one), and `file`."""
    whole = F.col("_metadata.file_path")
    path = F.when(F.startswith(whole, F.lit("file:///")), F.substring(whole, len("file://") + 1, 1 << 20))
    path = path.otherwise(F.regexp_replace(whole, "^[a-z0-9]+:/+", "/"))
    below = F.substring(path, len(_plain_path(directory)) + 2, 1 << 20)
    file = F.substring_index(path, "/", -1)
    run = F.left(below, F.length(below) - F.length(file) - 1)
    return lines.select(
        "*", F.when(run == "", ".").otherwise(_decoded(run)).alias("run"), _decoded(file).alias("file")
    )


def _decoded(part: Column) -> Column:
    """Looked at for every row: most paths have nothing to decode."""
    return F.when(F.contains(part, F.lit("%")), F.url_decode(part)).otherwise(part)


def _plain_path(directory: str) -> str:
    """As Spark will name it, without scheme and host of a local file."""
    if "://" in directory:
        return "/" + directory.partition("://")[2].strip("/")
    return quote(str(Path(directory).resolve()))


def check_directory(directory: str) -> None:
    """UsageError for a local directory that is not there; other file systems answer when they are read."""
    if "://" not in directory and not Path(directory).is_dir():
        raise UsageError(f"{directory!r} is no directory: name the one that peers wrote to, as log_dir")


def bytes_of(directory: str) -> int | None:
    """About how much a local directory holds, unpacked; None where only Spark can look."""
    if "://" in directory:
        return None
    files = (each for each in Path(directory).rglob("*.jsonl*") if each.is_file())
    return sum(each.stat().st_size * (PACKED if each.suffix == ".gz" else 1) for each in files)


def judged(lines: DataFrame) -> DataFrame:
    """`reason`: why a row cannot be used; null for sound ones. The column `kind` of others becomes `bad`."""
    reason = F.when(F.col(CORRUPT).isNotNull(), _unreadable(F.col(CORRUPT)))
    reason = reason.when(F.col("kind").isNull(), "no kind")
    reason = reason.when(
        ~F.col("kind").isin(*KINDS), F.concat(F.lit("unknown kind "), F.substring("kind", 1, 40))
    )
    for kind in KINDS:
        reason = reason.when(F.col("kind") == kind, _wrong_in(kind))
    text = F.coalesce(F.col(CORRUPT), F.to_json(F.struct(*line_schema().fieldNames())))
    return (
        lines.withColumn("reason", reason)
        .withColumn(
            "text", F.when(F.col("reason").isNotNull(), F.make_valid_utf8(F.substring(text, 1, 1000)))
        )
        .withColumn("kind", F.when(F.col("reason").isNotNull(), BAD).otherwise(F.col("kind")))
        .drop(CORRUPT)
    )


def _wrong_in(kind: str) -> Column:
    """What is wrong with a row of this kind; null for a sound one."""
    columns = columns_of(kind)
    checks = [(F.col(name).isNull(), f"{name} is missing") for name in required_of(kind)]
    checks.append((F.col("ts") <= 0, "ts is impossible"))
    checks += [(F.col(name) < 0, f"{name} is impossible") for name in _NOT_NEGATIVE if name in columns]
    if "count" in columns:
        checks.append((F.col("count") < 1, "count is impossible"))
    for name in ("loss", "availability"):
        if name in columns:
            outside = ~F.col(name).between(0.0, 1.0) | F.isnan(name)
            checks.append((outside, f"{name} is impossible"))
    first, *others = checks
    wrong = F.when(*first)
    for check in others:
        wrong = wrong.when(*check)
    return wrong


def _unreadable(text: Column) -> Column:
    return (
        F.when(~F.startswith(F.ltrim(text), F.lit("{")), "no JSON object")
        .when(~F.endswith(F.rtrim(text), F.lit("}")), "torn line")
        .otherwise("a field of the wrong type, or broken JSON")
    )


def compact(spark: SparkSession, directory: str, out: str) -> "Logs":
    """Write all rows to `out/records`, one partition per kind, and open them."""
    judged(read_lines(spark, directory)).write.mode("overwrite").partitionBy("kind").parquet(f"{out}/records")
    return Logs(spark, f"{out}/records")


class Logs:
    """The compacted rows."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        fields = [*line_schema().fields]
        fields += [StructField(name, StringType()) for name in ("run", "file", "reason", "text")]
        self._rows = spark.read.schema(StructType(fields)).parquet(path)
        self._twice: set[str] | None = None
        self._offsets: DataFrame | None = None

    def bad(self) -> DataFrame:
        """What could not be used: run, file, reason, text."""
        return self._rows.where(F.col("kind") == BAD).select("run", "file", "reason", "text")

    def written(self, kind: str) -> DataFrame:
        """The sound rows of a kind as they were read, lines that stand twice included."""
        return self._rows.where(F.col("kind") == kind).select(*_WHERE, *columns_of(kind))

    def records(self, kind: str) -> DataFrame:
        """The sound rows of a kind, each once, on one clock (see `correct`)."""
        rows = self.written(kind)
        if self._twice is None or kind in self._twice:
            rows = once(rows, kind)
        if self._offsets is not None:
            offsets = self._offsets.where("is_used").select("run", "peer", "offset_us")
            rows = rows.join(F.broadcast(offsets), ["run", "peer"], "left")
            rows = rows.withColumn("ts", F.col("ts") - F.coalesce("offset_us", F.lit(0))).drop("offset_us")
        return rows.drop("file")

    def correct(self, offsets: DataFrame) -> None:
        """From now on shift each peer's times by its offset, where that `is_used`."""
        self._offsets = offsets if offsets.where("is_used").head(1) else None

    def intake(self) -> list[dict[str, object]]:
        """How many rows of each kind there are, how many stand twice, and how many are bad for which reason.

        Afterwards only kinds with repeated rows pay for leaving them out.
        """
        counts = {
            row["kind"]: int(row["n"])
            for row in self._rows.groupBy("kind").agg(F.count("*").alias("n")).collect()
        }
        found: list[dict[str, object]] = []
        twice = set()
        for kind in sorted(KINDS):
            rows, repeated = counts.get(kind, 0), 0
            if rows and may_repeat(self.written(kind), kind):
                repeated = rows - once(self.written(kind), kind).count()
            if repeated:
                twice.add(kind)
            found.append({"kind": kind, "reason": "", "rows": rows, "repeated": repeated})
        self._twice = twice
        reasons = self.bad().groupBy("reason").agg(F.count("*").alias("n")).orderBy("reason").collect()
        bad = [
            {"kind": BAD, "reason": row["reason"], "rows": int(row["n"]), "repeated": 0} for row in reasons
        ]
        return [*found, *bad]


_NUMBERED = {
    "probe": ("run", "peer", "epoch", "neighbour", "connection"),
    "delivery": ("run", "peer", "epoch", "origin", "origin_epoch", "publisher"),
}
"""Kinds with a `seq` that does not repeat within these columns: there may be very many of them."""


def may_repeat(rows: DataFrame, kind: str) -> bool:
    """Whether a row may stand twice: sets of sequence numbers as bitmaps tell it in one cheap pass."""
    if kind not in _NUMBERED:
        return True
    sets = rows.groupBy(*_NUMBERED[kind], F.bitmap_bucket_number("seq").alias("bucket")).agg(
        F.count("*").alias("n"),
        F.bitmap_count(F.bitmap_construct_agg(F.bitmap_bit_position("seq"))).alias("distinct"),
    )
    return bool(sets.where(F.col("n") > F.col("distinct")).head(1))


def once(rows: DataFrame, kind: str) -> DataFrame:
    """Each record once, however many files hold it."""
    columns = {**columns_of(kind)}
    plain = [name for name, column in columns.items() if not isinstance(column, MapType)]
    return rows.dropDuplicates(["run", *plain])


def summary_of(intake: list[dict[str, object]]) -> Mapping[str, int]:
    """Sound rows, repeated ones and bad ones in all."""
    sound = sum(int(str(row["rows"])) for row in intake if row["kind"] != BAD)
    repeated = sum(int(str(row["repeated"])) for row in intake)
    bad = sum(int(str(row["rows"])) for row in intake if row["kind"] == BAD)
    return {"rows": sound - repeated, "repeated": repeated, "bad": bad}
