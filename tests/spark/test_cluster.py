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

from anabranch.tools.analytics.session import find_java

pytestmark = [
    pytest.mark.skipif(
        "ANALYTICS_SLOW" not in os.environ, reason="starts Spark five times: ANALYTICS_SLOW=1"
    ),
    pytest.mark.timeout(900),
]
MAIN = "from anabranch.tools.cli import main; main()"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    """The address of a standalone master with two workers."""
    port = free_port()
    url = f"spark://127.0.0.1:{port}"
    java = [find_java(), "-Xmx512m", "-cp", f"{Path(pyspark.__file__).parent}/jars/*"]
    local = ["--host", "127.0.0.1", "--webui-port", str(free_port())]
    environment = os.environ | {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    with contextlib.ExitStack() as stack:

        def begin(*arguments: str) -> None:
            log = stack.enter_context((tmp_path / f"{len(list(tmp_path.iterdir()))}.log").open("wb"))
            process = subprocess.Popen([*java, *arguments], env=environment, stdout=log, stderr=log)
            stack.callback(process.wait, 30)
            stack.callback(process.terminate)

        begin("org.apache.spark.deploy.master.Master", *local, "--port", str(port))
        deadline = time.monotonic() + 60
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            assert time.monotonic() < deadline
            time.sleep(0.2)
        for number in range(2):
            place = ["--work-dir", str(tmp_path / f"worker-{number}"), "--cores", "1", "--memory", "1g"]
            begin("org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1", *place, url)
        yield url


def analyzed(source: Path, out: Path, *options: str) -> dict[str, object]:
    command = [sys.executable, "-c", MAIN, "analyze", str(source), "--out", str(out), "--json", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found


def test_a_cluster_finds_what_one_process_finds(master: str, tmp_path: Path) -> None:
    source = tmp_path / "logs"
    logs.write(source / "hand", logs.by_hand(), more=logs.DIRTY)
    logs.write(source / "chance", logs.by_chance(3000))
    embedded = analyzed(source, tmp_path / "embedded", "--master", "local[2]")
    settings = ["--conf", "spark.executor.memory=512m", "--conf", "spark.driver.host=127.0.0.1"]
    spread = analyzed(source, tmp_path / "cluster", "--master", master, *settings)
    assert spread == embedded
    reports = [(tmp_path / place / "report.html").read_bytes() for place in ("embedded", "cluster")]
    assert reports[0] == reports[1]
    assert len(list((tmp_path / "worker-0").glob("app-*"))) == 1
    assert len(list((tmp_path / "worker-1").glob("app-*"))) == 1
