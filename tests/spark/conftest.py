"""One Spark session for the whole run: a start takes longer than all the jobs."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from anabranch.tools.analytics.session import make_session

sys.path.insert(0, str(Path(__file__).parent))

ONE_CORE = {
    "spark.driver.memory": "1g",
    "spark.default.parallelism": "1",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "1",
}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Embedded, on one core."""
    session = make_session(master="local[1]", settings=ONE_CORE, name="tests", few=True)
    yield session
    session.stop()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The cluster comes last: it takes the session away."""
    items.sort(key=lambda item: item.path.name == "test_cluster.py")
