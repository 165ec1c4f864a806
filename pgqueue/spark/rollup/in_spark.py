"""Roll-ups with Spark, for days that are large: its executors share a day.

Every Spark task sums up its own rows before it sends them, so a queue with nearly all jobs of a day is shared by several tasks.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 - its usual name
from pyspark.sql.pandas.types import from_arrow_schema

from pgqueue.spark.rollup.attempts import DEFAULT, FAILED, READS, failed_attempts
from pgqueue.spark.rollup.tables import SCHEMAS, folder, statement
from pgqueue.spark.session import with_settings
from pgqueue.values.redaction import Redaction

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pgqueue.spark.lake.lake import Lake

SETTINGS = {
    # Sketches are objects. Above this number of groups in a task, Spark sorts the rows instead of looking each group
    # up; its default of 128 is less than the hours of six tasks. The two sketches of a group take about 10 KB.
    "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "4096",
}


class InSpark:
    """An engine whose tables are frames, computed when they are written or fetched."""

    def __init__(self, lake: "Lake", spark: "SparkSession", redaction: Redaction = DEFAULT) -> None:
        self._lake = lake
        self._failed = partial(failed_attempts, redaction=redaction)
        self._spark = spark

    def ended(self, days: Iterable[date]) -> "DataFrame":
        """Ended jobs of some days."""
        return self._lake.ended(self._spark, days)

    def failed(self, days: Iterable[date]) -> "DataFrame":
        """Their failed attempts, found in Python processes."""
        jobs = self._lake.ended(self._spark, days).where(F.col("errors").isNotNull())
        return jobs.select(*READS).mapInArrow(self._failed, from_arrow_schema(FAILED))

    def of_days(self, table: str, days: Iterable[date]) -> "DataFrame":
        """A roll-up table's rows of some days."""
        wanted = list(days)
        if not wanted:
            return self.small(SCHEMAS[table].empty_table())
        return self._lake.day_table(self._spark, folder(table), wanted)

    def workers(self) -> "DataFrame":
        """All workers that ever ran."""
        return self._lake.workers(self._spark)

    def small(self, rows: pa.Table) -> "DataFrame":
        """Rows that are made in this process."""
        return self._spark.createDataFrame(
            rows, from_arrow_schema(rows.schema)
        )  # Connect asks for it if there are none

    def run(
        self, name: str, /, values: Mapping[str, object] | None = None, **tables: "DataFrame"
    ) -> "DataFrame":
        """The result of a statement, computed when it is fetched or written."""
        return self._spark.sql(statement(name), args=None if values is None else dict(values), **tables)

    @contextmanager
    def kept(self, rows: "DataFrame") -> Iterator["DataFrame"]:
        """The same rows, kept by the executors until the block ends."""
        found = rows.persist()
        try:
            yield found
        finally:
            found.unpersist()

    def fetched(self, rows: "DataFrame") -> pa.Table:
        """Rows in this process."""
        with with_settings(self._spark, SETTINGS):
            return rows.toArrow()

    def replace(
        self, table: str, days: Sequence[date], rows: "DataFrame", made_from: Mapping[date, Mapping[str, str]]
    ) -> None:
        """Replace some days of a roll-up table with rows, in one commit."""
        with with_settings(self._spark, SETTINGS):
            self._lake.replace_days(
                folder(table), days, rows.select(*SCHEMAS[table].names), made_from=made_from
            )
