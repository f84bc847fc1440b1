"""`analyze --follow`: every file counts once, whatever ends in the middle."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import duckdb
import pytest
import support_logs as logs
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as PySpark's users call it

from anabranch.tools.analytics.following import read_table, start

PER_FILE = 40


def put(directory: Path, number: int) -> None:
    """A whole file, by rename, with as many probes and one line that is broken."""
    directory.mkdir(exist_ok=True)
    lines = logs.as_lines([logs.probe("a", "b", 3 * n, 1000 * number + n, 20_000) for n in range(PER_FILE)])
    part = directory / f"a-1-{number:05d}.jsonl.part"
    part.write_bytes(lines + b'{"kind":"pro\n')
    part.rename(part.with_suffix(""))


def test_queries_that_end_in_the_middle_go_on_and_count_nothing_twice(
    spark: SparkSession, tmp_path: Path
) -> None:
    source, out = tmp_path / "logs", str(tmp_path / "out")
    for number in range(3):
        put(source, number)
    ahead = logs.as_lines([logs.probe("a", "b", 3e9, 1, 20_000)])
    (source / "a-2-00000.jsonl").write_bytes(ahead)  # must not make all others late
    for _ in range(2):
        queries = start(spark, str(source), out, trigger_s=0)
        for query in queries:
            query.processAllAvailable()
            query.stop()
        put(source, 3)
    rows = read_table(spark, out, "link_minutes").agg(F.sum("probes"), F.count("*")).head()
    assert rows is not None
    assert tuple(rows) == (4 * PER_FILE, 3)
    bad = read_table(spark, out, "bad_lines").groupBy("reason").count().collect()
    assert {row["reason"]: row["count"] for row in bad} == {"torn line": 4, "ts is in the future": 1}


def counted(out: Path) -> int:
    """Probes in the table, read without Spark: of each row the newest batch."""
    files = str(out / "follow/link_minutes/batch=*/*.parquet")
    query = f"""select coalesce(sum(probes), 0) from (select arg_max(probes, batch) as probes
        from read_parquet('{files}', hive_partitioning=true) group by minute, run, peer, neighbour)"""
    try:
        with duckdb.connect() as db:
            (found,) = db.execute(query).fetchall()
    except duckdb.Error:  # nothing there yet, or just being replaced
        return 0
    return int(found[0])


def wait_for(out: Path, files: int, limit_s: float) -> float:
    """Until so many files are counted; how long that took."""
    begin = time.monotonic()
    while counted(out) < files * PER_FILE:
        assert time.monotonic() - begin < limit_s, f"waited {limit_s} s in vain"
        time.sleep(0.2)
    return time.monotonic() - begin


@pytest.mark.skipif("ANALYTICS_SLOW" not in os.environ, reason="starts Spark three times: ANALYTICS_SLOW=1")
@pytest.mark.timeout(600)
def test_a_killed_follower_loses_nothing_and_a_new_file_is_seen_within_ten_seconds(tmp_path: Path) -> None:
    source, out = tmp_path / "logs", tmp_path / "out"
    put(source, 0)
    begin = "from anabranch.tools.cli import main; main()"
    command = [sys.executable, "-c", begin, "analyze", str(source), "--out", str(out), "--follow"]
    command += ["--master", "local[1]"]
    total = 1
    for kill in (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM):
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        try:
            wait_for(out, total, 150)
            put(source, total)
            total += 1
            taken = wait_for(out, total, 60)
            assert taken < float(os.environ.get("FOLLOW_LIMIT_S", "10"))
            put(source, total)  # is under way, or not, when it ends
            total += 1
            time.sleep(1.0)
        finally:
            process.send_signal(kill)
            process.wait(60)
    assert counted(out) in ((total - 1) * PER_FILE, total * PER_FILE)
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        wait_for(out, total, 150)
        time.sleep(5)
        assert counted(out) == total * PER_FILE
    finally:
        process.terminate()
        process.wait(60)
