"""``spark.readStream.format("pgqueue").option("results", run)``: the results of a run as a stream, each when its job has ended.

Offsets are those of :mod:`pgqueue.spark.reading.stream`: ranges of transactions that have ended. Which jobs are of the run is asked
when a batch is planned. A write is recorded in the transaction that enqueues its jobs, so a job that ended is known by then, and a
batch that is read again has the same rows, whatever was written to the run since.
"""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from psycopg import sql
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from pgqueue.spark.options import TRUE_OR_FALSE, Options, count, truth
from pgqueue.spark.reading.columns import Shape
from pgqueue.spark.reading.fetching import fetch
from pgqueue.spark.reading.options import EARLIEST, ROWS_PER_BATCH, ReadSource, StreamOptions
from pgqueue.spark.reading.result_rows import COLUMNS, shape_of_results
from pgqueue.spark.reading.results import (
    COMMON,
    ResultOptions,
    key_where_wanted,
    of_ids,
    result_options,
)
from pgqueue.spark.reading.stream import Chosen, StreamReader
from pgqueue.store.insight import runs
from pgqueue.store.insight.runs import WrittenRun
from pgqueue.store.pipeline import extract
from pgqueue.store.pipeline import extract_where as where
from pgqueue.store.pipeline.extract import Planner

OPTIONS = (*COMMON, "maxRowsPerBatch", "failOnDataLoss")


def result_stream(options: Options, schema: StructType) -> "ResultStreamReader":
    """The reader of a stream of results.

    Raises:
        ConfigurationError: an option is unknown or out of its range, or no database is named.
        InvalidOption: the schema does not fit the run.
    """
    given = result_options(options, OPTIONS)
    loss = options.read("failOnDataLoss", truth, TRUE_OR_FALSE)
    source = ReadSource(dsn=given.dsn, schema=given.schema, name="ended", columns=None, only={})
    streamed = StreamOptions(
        source=source,
        starting=EARLIEST,
        rows_per_batch=options.read("maxRowsPerBatch", count, "a number of rows, from 1 on")
        or ROWS_PER_BATCH,
        rows_per_partition=given.rows_per_partition,
        fail_on_data_loss=loss is not False,
    )
    return ResultStreamReader(given, streamed, schema)


class ResultStreamReader(StreamReader):
    """Reads the results of a run as its jobs end."""

    def __init__(self, results: ResultOptions, options: StreamOptions, schema: StructType) -> None:
        self._results = results
        super().__init__(options, schema)

    def _shaped(self, schema: StructType) -> Shape:
        return self._shaped_by(schema, self._results.written())

    def _shaped_by(self, schema: StructType, written: WrittenRun | None) -> Shape:
        """Return the shape; before the first write of the run, the schema says what its key is."""
        run = self._results.run
        if written is None:
            key = StructType([field for field in schema.fields if field.name not in COLUMNS])
        else:
            key = key_where_wanted(run, written, schema)
        return shape_of_results(run, schema, key, self._results.app)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Where a new query begins: with the first job that ended since the day of the first write."""
        with self._planning() as planner:
            state = planner.run(extract.look())
            planner.run(extract.check_numbers(state))
            written = planner.run(runs.written(self._results.run))
            horizon = (
                state.horizon if written is None else self._first_of(planner, written.first_at.date(), state)
            )
            return self._plain_offset(planner, state, horizon)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a part of a batch, in a task."""
        for batch in fetch(self._results.dsn, partition.value or ()):
            yield self._shape.fitted(batch)

    def _chosen(self, planner: Planner) -> Chosen:
        written = planner.run(runs.written(self._results.run))
        if written is None:
            return Chosen(where.RESULTS, [sql.SQL("false")])
        self._shaped_by(self._shape.schema, written)  # the run may be written since, with another key
        of_run = of_ids(written.ids) if written.ids else sql.SQL("false")
        return Chosen(where.RESULTS, [sql.SQL("ended_at is not null"), of_run])
