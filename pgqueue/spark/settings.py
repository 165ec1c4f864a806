"""Settings of a Spark session for the length of a block: other code may own the session."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FOR_FEW_ROWS: Mapping[str, str] = {
    # Of few rows most of the time goes into plans: Java code made for each of them is run once.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "2",
}


@contextmanager
def with_settings(spark: "SparkSession", wanted: Mapping[str, str]) -> Iterator[None]:
    """Use settings for the length of the block; the former ones are restored."""
    former: dict[str, str | None] = {name: spark.conf.get(name, None) for name in wanted}
    for name, value in wanted.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, was in former.items():
            if was is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, was)
