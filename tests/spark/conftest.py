"""One Spark session for the suite: two threads, no UI, UTC, ANSI."""

from typing import TYPE_CHECKING

import pytest

from pgqueue.spark.session import session

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[SparkSession]":
    """The session, with our data source registered; it starts in seconds, so there is one for all tests."""
    warehouse: Path = tmp_path_factory.mktemp("spark")
    started = session(
        master="local[2]",
        settings={
            "spark.sql.warehouse.dir": str(warehouse),
            "spark.sql.shuffle.partitions": "2",
            "spark.default.parallelism": "2",
        },
    )
    yield started
    started.stop()
