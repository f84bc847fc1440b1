"""`anabranch bench analytics`: the whole set of jobs over made-up logs, and the same three queries in DuckDB.

Rows are made by Spark itself and written as JSON lines, as peers write them.
"""

import resource
import shutil
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from anabranch.overlay.errors import UsageError
from anabranch.tools.bench.jobs import BenchError

Row = dict[str, Any]
ROWS_MAX = 1_000_000_000
LINKS = 90
STREAMS = 50
_POLL_S = 0.2


def parse_rows(text: str) -> list[int]:
    """`10000000,50000000` to numbers of rows; each once, in the order given."""
    sizes = []
    for part in text.split(","):
        try:
            rows = int(part.replace("_", ""))
        except ValueError:
            rows = 0
        if not 10_000 <= rows <= ROWS_MAX:
            raise UsageError(
                f"--rows {text!r}: {part.strip()!r} is not a number of rows; give whole ones from 10000 to "
                f"{ROWS_MAX}, separated by commas, such as 10000000,50000000"
            )
        sizes.append(rows)
    return list(dict.fromkeys(sizes))


def analytics(sizes: list[int], memory: str, tell: Any) -> list[Row]:
    """One row per size: seconds and rows/s of reading and of all jobs, driver memory; DuckDB's seconds."""
    from anabranch.tools.analytics import bins, links, topics
    from anabranch.tools.analytics.jobs import analyze
    from anabranch.tools.analytics.loading import Logs
    from anabranch.tools.analytics.session import make_session

    try:
        import duckdb
    except ImportError as error:
        raise BenchError("needs DuckDB: pip install duckdb") from error
    rows = []
    session = make_session(settings={"spark.driver.memory": memory}, name="anabranch bench")
    with tempfile.TemporaryDirectory(prefix="anabranch-bench-") as scratch:
        for size in sizes:
            source, out = Path(scratch) / "logs", Path(scratch) / "out"
            tell(f"{size:,} rows: making logs")
            make_logs(session, str(source), size)
            tell(f"{size:,} rows: all jobs")
            with _Memory(session) as used:
                begin = time.perf_counter()
                times: dict[str, float] = {}

                def note(job: str, times: dict[str, float] = times) -> None:
                    times[job] = time.perf_counter()

                analyze(session, str(source), str(out), on_progress=note)
                seconds = time.perf_counter() - begin
                logs = Logs(session, f"{out}/records")
                logs.intake()
                begin = time.perf_counter()
                probes, deliveries = logs.records("probe"), logs.records("delivery")
                bins.percentiles(links.delay_bins(probes), links.END).collect()
                links.lost_runs(probes).collect()
                topics.flows(topics.delivery_cells(deliveries)).collect()
                three = time.perf_counter() - begin
            tell(f"{size:,} rows: DuckDB")
            rows.append(
                {
                    "rows": size,
                    "seconds": round(seconds, 2),
                    "reading_s": round(times["clocks"] - times["reading the logs"], 2),
                    "rows_per_second": round(size / seconds),
                    "driver_mb": round(used.most_mb),
                    "three_queries_s": round(three, 2),
                    "duckdb_s": round(_duckdb_seconds(duckdb, out), 2),
                }
            )
            shutil.rmtree(source)
            shutil.rmtree(out)
    session.stop()
    return rows


def growth(rows: list[Row]) -> list[Row]:
    """How much longer than in proportion the larger sizes take, against the smallest; and against DuckDB."""
    least = min(rows, key=lambda row: int(row["rows"]))
    return [
        {
            "rows": row["rows"],
            "against_linear": round(row["seconds"] / least["seconds"] / (row["rows"] / least["rows"]), 3),
            "times_duckdb": round(row["three_queries_s"] / max(row["duckdb_s"], 0.01), 2),
        }
        for row in rows
    ]


def make_logs(session: Any, directory: str, rows: int) -> None:
    """Half probes of ninety links with losses, half deliveries of fifty streams."""
    from pyspark.sql import functions as F  # noqa: N812 - as PySpark's users call it

    base = 1_600_000_000_000_000
    half = rows // 2
    ids = session.range(half)
    link = F.col("id") % LINKS
    number = F.floor(F.col("id") / LINKS)
    peer, other = F.floor(link / 9), F.floor(link % 9)
    noise = F.pmod(F.xxhash64("id"), F.lit(1_000_000))
    lost = (noise % 100 == 0) | (F.pmod(F.xxhash64(F.floor(number / 5), link), F.lit(1000)) == 0)
    name = F.concat(F.lit("p"), F.col("peer_number").cast("string"))
    probes = ids.withColumn("peer_number", peer).select(
        F.lit("probe").alias("kind"),
        (F.lit(base) + number * 250_000 + noise % 1000).alias("ts"),
        name.alias("peer"),
        F.lit(base).alias("epoch"),
        F.concat(F.lit("p"), (F.when(other >= peer, other + 1).otherwise(other)).cast("string")).alias(
            "neighbour"
        ),
        (number + 1).alias("seq"),
        F.when(lost, None).otherwise((20_000 + link * 500 + noise / 100).cast("long")).alias("rtt_us"),
        F.lit(10_000).alias("delay_us"),
        (noise % 3000).alias("jitter_us"),
        F.lit(0.0).alias("loss"),
        F.lit(1.0).alias("availability"),
        F.lit(1).alias("connection"),
        F.when(lost, 600_000).otherwise(0).alias("waited_us"),
    )
    stream, turn = F.col("id") % STREAMS, F.floor(F.col("id") / STREAMS)
    age = (20_000 + noise / 20).cast("long")
    deliveries = ids.select(
        F.lit("delivery").alias("kind"),
        (F.lit(base) + turn * 140_000).alias("ts"),
        F.concat(F.lit("p"), (stream % 10).cast("string")).alias("peer"),
        F.lit(base).alias("epoch"),
        F.concat(F.lit("topic/"), stream.cast("string")).alias("topic"),
        F.lit("q").alias("origin"),
        stream.alias("publisher"),
        turn.alias("seq"),
        F.lit(1).alias("count"),
        age.alias("age_us"),
        (age > 60_000).alias("late"),
        F.array(F.lit("q"), F.concat(F.lit("p"), (stream % 10).cast("string"))).alias("path"),
        F.lit(base).alias("origin_epoch"),
        F.lit(60_000).alias("deadline_us"),
        F.lit(False).alias("has_copies"),
        F.lit(0).alias("repeated"),
    )
    for frame, kind in ((probes, "probes"), (deliveries, "deliveries")):
        files = max(2, half // 1_000_000)
        frame.repartition(files).write.option("ignoreNullFields", "false").json(f"{directory}/{kind}-part")
    _gather(Path(directory))


def _gather(directory: Path) -> None:
    """One directory with files named as peers name them."""
    for number, file in enumerate(sorted(directory.glob("*-part/*.json"))):
        file.rename(directory / f"p-1-{number:05d}.jsonl")
    for part in directory.glob("*-part"):
        shutil.rmtree(part)


def _duckdb_seconds(duckdb: Any, out: Path) -> float:
    """Percentiles per link, runs of lost probes, ages and deadlines per flow: over the same Parquet files."""
    probes, deliveries = (
        f"read_parquet('{out}/records/kind={kind}/*.parquet')" for kind in ("probe", "delivery")
    )
    begin = time.perf_counter()
    with duckdb.connect() as db:
        for query in (
            f"""with b as (select peer, neighbour, floor(ln(greatest(rtt_us / 2.0, 1)) / ln(1.02)) as bin,
                  count(*) as n from {probes} where rtt_us is not null group by all)
                select peer, neighbour, min(case when upto >= 0.5 * t then bin end),
                  min(case when upto >= 0.99 * t then bin end)
                from (select *, sum(n) over (partition by peer, neighbour order by bin) as upto,
                  sum(n) over (partition by peer, neighbour) as t from b) group by all""",
            f"""select peer, neighbour, min(ts), max(ts), count(*) from (select *, seq - row_number() over
                  (partition by peer, neighbour, epoch, connection order by seq) as island from {probes}
                  where rtt_us is null) group by peer, neighbour, epoch, connection, island
                having count(*) >= 3""",
            f"""with c as (select topic, origin, peer, publisher, path,
                  floor(ln(greatest(age_us, 1)) / ln(1.02)) as bin, sum("count") as n,
                  sum(case when age_us <= deadline_us then "count" else 0 end) as in_time, min(seq) as a,
                  max(seq + "count") as z from {deliveries} group by all)
                select topic, origin, peer, sum(n), sum(in_time), max(z) - min(a), count(distinct path)
                from c group by all""",
        ):
            db.execute(query).fetchall()
    return time.perf_counter() - begin


class _Memory:
    """The most that the driver's Java holds resident, looked at five times a second."""

    def __init__(self, session: Any) -> None:
        self.most_mb = 0.0
        self._pid = int(session._jvm.ProcessHandle.current().pid())  # noqa: SLF001 - embedded: it is there
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "_Memory":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        page = resource.getpagesize()
        while not self._done.wait(_POLL_S):
            pages = int(Path(f"/proc/{self._pid}/statm").read_text().split()[1])
            self.most_mb = max(self.most_mb, pages * page / 1e6)
