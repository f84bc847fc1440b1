"""One Spark session for the whole run: a start takes longer than all the jobs."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from anabranch.tools.analytics.session import make_session

sys.path.insert(0, str(Path(__file__).parent))

QUICK = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.default.parallelism": "1",
    "spark.sql.parquet.compression.codec": "uncompressed",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "1",
}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Embedded, on one core."""
    session = make_session(master="local[1]", settings=QUICK, name="tests")
    yield session
    session.stop()
