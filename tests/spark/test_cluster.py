"""The same jobs on a cluster: a master and two workers of the installed PySpark, on this machine."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest
import support_logs as logs
from pyspark.sql import Row, SparkSession

from anabranch.tools import submit
from anabranch.tools.analytics import links, loading, topics
from anabranch.tools.analytics.session import find_java, make_session
from anabranch.tools.analytics.slots import slot_widths

HOME = Path(pyspark.__file__).parent
MAIN = "from anabranch.tools.cli import main; main()"
SLOW = pytest.mark.skipif("ANALYTICS_SLOW" not in os.environ, reason="whole analyses: ANALYTICS_SLOW=1")
ROWS = 3000
Rows = dict[str, list[Row]]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for_port(port: int) -> None:
    deadline = time.monotonic() + 120
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        assert time.monotonic() < deadline
        time.sleep(0.2)


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    """The address of a standalone master with two workers."""
    port = free_port()
    url = f"spark://127.0.0.1:{port}"
    find_java()
    local = ["--host", "127.0.0.1", "--webui-port", str(free_port())]
    # Whatever Python the workers' hosts have, it is not needed.
    environment = os.environ | {
        "SPARK_HOME": str(HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "512m",
        "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1",
        "PYSPARK_PYTHON": "/bin/false",
    }
    with contextlib.ExitStack() as stack:

        def begin(*arguments: str) -> None:
            log = stack.enter_context((tmp_path / f"{len(list(tmp_path.iterdir()))}.log").open("wb"))
            process = subprocess.Popen(
                [HOME / "bin/spark-class", *arguments], env=environment, stdout=log, stderr=log
            )
            stack.callback(process.wait, 30)
            stack.callback(process.terminate)

        begin("org.apache.spark.deploy.master.Master", *local, "--port", str(port))
        wait_for_port(port)
        for number in range(2):
            place = ["--work-dir", str(tmp_path / f"worker-{number}"), "--cores", "1", "--memory", "1g"]
            begin("org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1", *place, url)
        yield url


SETTINGS = {
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.driver.host": "127.0.0.1",
}


def jobs_of(session: SparkSession, source: Path, out: Path) -> Rows:
    """Reading, and the jobs that most others build on."""
    logs_read = loading.compact(session, str(source), str(out))
    probes, changes, deliveries = (logs_read.records(kind) for kind in ("probe", "link", "delivery"))
    spans = links.spans(probes, changes, deliveries)
    frames = {
        "bad": logs_read.bad(),
        "slots": links.link_slots(probes, slot_widths(spans)),
        "outages": links.outages(changes, probes, spans),
        "flows": topics.flows(topics.delivery_cells(deliveries)),
    }
    return {name: sorted(frame.collect(), key=repr) for name, frame in frames.items()}


def test_two_workers_find_what_one_process_finds(spark: SparkSession, master: str, tmp_path: Path) -> None:
    """The session of all tests ends here; its Java, which is warm, goes on with the cluster."""
    source = tmp_path / "logs"
    logs.write(source / "hand", logs.by_hand(), more=logs.DIRTY)
    logs.write(source / "chance", logs.by_chance(ROWS))
    embedded = jobs_of(spark, source, tmp_path / "embedded")
    spark.stop()
    cluster = make_session(master=master, settings=SETTINGS, name="tests on a cluster")
    try:
        assert cluster.sparkContext.master == master
        assert jobs_of(cluster, source, tmp_path / "cluster") == embedded
        assert all(embedded.values())
    finally:
        cluster.stop()
    assert [len(list((tmp_path / f"worker-{n}").glob("app-*"))) for n in range(2)] == [1, 1]


def analyzed(source: Path, out: Path, *options: str) -> dict[str, object]:
    command = [sys.executable, "-c", MAIN, "analyze", str(source), "--out", str(out), "--json", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found


@SLOW
@pytest.mark.timeout(600)
def test_a_cluster_finds_what_one_process_finds(master: str, tmp_path: Path) -> None:
    source = tmp_path / "logs"
    logs.write(source / "hand", logs.by_hand(), more=logs.DIRTY)
    logs.write(source / "chance", logs.by_chance(ROWS))
    embedded = analyzed(source, tmp_path / "embedded", "--master", "local[2]")
    settings = [part for pair in SETTINGS.items() for part in ("--conf", "=".join(pair))]
    spread = analyzed(source, tmp_path / "cluster", "--master", master, *settings)
    submitted = subprocess.run(
        [
            HOME / "bin/spark-submit",
            "--master",
            master,
            *settings,
            submit.__file__,
            source,
            "--out",
            tmp_path / "submitted",
            "--json",
        ],
        env=os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
        stdout=subprocess.PIPE,
        timeout=500,
        check=True,
    )
    assert spread == embedded == json.loads(submitted.stdout)
    places = ("embedded", "cluster", "submitted")
    assert len({(tmp_path / place / "report.html").read_bytes() for place in places}) == 1
    assert [len(list((tmp_path / f"worker-{n}").glob("app-*"))) for n in range(2)] == [2, 2]


@SLOW
@pytest.mark.timeout(600)
def test_a_connect_server_finds_what_one_process_finds(tmp_path: Path) -> None:
    pytest.importorskip("grpc", reason="pip install 'pyspark[connect]'")
    source, port = tmp_path / "logs", free_port()
    logs.write(source / "hand", logs.by_hand(), more=logs.DIRTY)
    embedded = analyzed(source, tmp_path / "embedded", "--master", "local[2]")
    find_java()
    server = [HOME / "bin/spark-submit", "--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    for key, value in {
        "master": "local[2]",
        "driver.host": "127.0.0.1",
        "connect.grpc.binding.address": "127.0.0.1",
        "connect.grpc.binding.port": str(port),
    }.items():
        server += ["--conf", f"spark.{key}={value}"]
    process = subprocess.Popen(
        [*server, "spark-internal"],
        env=os.environ | {"SPARK_HOME": str(HOME), "SPARK_LOCAL_IP": "127.0.0.1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_for_port(port)
        assert analyzed(source, tmp_path / "remote", "--remote", f"sc://127.0.0.1:{port}") == embedded
    finally:
        process.terminate()
        process.wait(30)
