"""`anabranch bench analytics`: the whole set of jobs over made-up logs, and the same three queries in DuckDB.

DuckDB makes the rows, and writes them as JSON lines, as peers do.
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
BASE = 1_600_000_000_000_000
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
        raise BenchError("needs DuckDB: pip install 'anabranch[bench]'") from error
    rows = []
    session = make_session(settings={"spark.driver.memory": memory}, name="anabranch bench")
    with tempfile.TemporaryDirectory(prefix="anabranch-bench-") as scratch:
        for size in sizes:
            source, out = Path(scratch) / "logs", Path(scratch) / "out"
            tell(f"{size:,} rows: making logs")
            make_logs(duckdb, source, size)
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


def make_logs(duckdb: Any, directory: Path, rows: int) -> None:
    """Half probes of ninety links with losses, half deliveries of fifty streams, as files of JSON lines."""
    directory.mkdir(parents=True)
    half = rows // 2
    with duckdb.connect() as db:
        db.execute("set preserve_insertion_order = false")
        for name, query in (("probes", _PROBES), ("deliveries", _DELIVERIES)):
            part = directory / name
            db.execute(
                f"copy ({query.format(half=half)}) to '{part}' "
                "(format json, per_thread_output true, file_size_bytes '128MB')"
            )
    for number, file in enumerate(sorted(directory.glob("*/*.json"))):
        file.rename(directory / f"p-1-{number:05d}.jsonl")


_PROBES = f"""
with drawn as (
  select id, id % {LINKS} as link, id // {LINKS} as number, (hash(id) % 1000000)::bigint as noise
  from range({{half}}) t(id)),
named as (
  select *, link // 9 as peer, link % 9 as other,
    noise % 100 = 0 or hash(number // 5, link) % 1000 = 0 as is_lost from drawn)
select 'probe' as kind, {BASE} + number * 250000 + noise % 1000 as ts, 'p' || peer as peer, {BASE} as epoch,
  'p' || case when other >= peer then other + 1 else other end as neighbour, number + 1 as seq,
  case when not is_lost then 20000 + link * 500 + noise // 100 end as rtt_us, 10000 as delay_us,
  noise % 3000 as jitter_us, 0.0 as loss, 1.0 as availability, 1 as connection,
  case when is_lost then 600000 else 0 end as waited_us
from named"""
_DELIVERIES = f"""
with drawn as (
  select id % {STREAMS} as stream, id // {STREAMS} as turn,
    20000 + ((hash(id) % 1000000) // 20)::bigint as age from range({{half}}) t(id))
select 'delivery' as kind, {BASE} + turn * 140000 as ts, 'p' || stream % 10 as peer, {BASE} as epoch,
  'topic/' || stream as topic, 'q' as origin, stream as publisher, turn as seq, 1 as "count", age as age_us,
  age > 60000 as late, ['q', 'p' || stream % 10] as path, {BASE} as origin_epoch, 60000 as deadline_us,
  false as has_copies, 0 as repeated
from drawn"""


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
