"""``spark.read.format("pgqueue").option("results", run)``: what became of the rows that were written under a name, a row for each.

The record of a write has the ids of its jobs, so each task reads a range of ids by the primary keys of the tables of live, dead and
ended jobs, in one statement: a job that ends meanwhile is in one of them. What is in none has no record any more: its history was
dropped or erased, or it was purged. It is a row, too, with the state ``gone``.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
from psycopg import sql
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from pgqueue.errors import InvalidOption
from pgqueue.spark.options import Options, count
from pgqueue.spark.reading.fetching import Fetch, fetch
from pgqueue.spark.reading.options import BATCH, ROWS_PER_PARTITION, STREAM, database_of, names
from pgqueue.spark.reading.result_rows import COLUMNS, ID, ResultShape, result_schema, shape_of_results
from pgqueue.store.connections.database import Database
from pgqueue.store.insight import runs
from pgqueue.store.insight.runs import Ids, WrittenRun
from pgqueue.store.pipeline import extract
from pgqueue.store.pipeline.extract import Planner
from pgqueue.store.pipeline.extract_where import RESULTS, UNQUEUED, SparkTable
from pgqueue.store.pipeline.extract_where import statement as statement_of

COMMON = ("results", "app", "columns", "dsn", "schema", "rowsPerPartition")
COLUMNS_FORM = "names, each once, with commas between them, such as order_id, state"


@dataclass(frozen=True, kw_only=True)
class ResultOptions:
    """Which results are read, and from where.

    Attributes:
        run: the run's name.
        dsn: where the database is.
        schema: where pgqueue's tables are.
        app: the ``module:attribute`` of the queue that has the task; None: not given.
        columns: which columns; None: all.
        rows_per_partition: about how many rows a task reads.
    """

    run: str
    dsn: str
    schema: str
    app: str | None
    columns: tuple[str, ...] | None
    rows_per_partition: int

    def database(self) -> Database:
        """The database."""
        return Database(self.dsn, schema=self.schema)

    def written(self) -> WrittenRun | None:
        """What was written by this name; None: nothing yet."""
        with extract.open_planner(self.database()) as planner:
            return planner.run(runs.written(self.run))


class Chunk(NamedTuple):
    """What a task reads: a statement, and the ids of the jobs that must come of it."""

    fetch: Fetch
    ids: tuple[Ids, ...]


def result_options(options: Options, known: Sequence[str] = COMMON) -> ResultOptions:
    """The options of a read of results.

    Raises:
        ConfigurationError: an option is unknown or out of its range, or no database is named.
    """
    options.check_known(known, elsewhere={*BATCH, *STREAM}, why="does not go with results")
    run = options.get("results")
    if not run:
        raise InvalidOption('option "results" is empty: give the name of a run')
    return ResultOptions(
        run=run,
        dsn=database_of(options),
        schema=options.get("schema") or "pgqueue",
        app=options.get("app"),
        columns=options.read("columns", names, COLUMNS_FORM),
        rows_per_partition=options.read("rowsPerPartition", count, "a number of rows, from 1 on")
        or ROWS_PER_PARTITION,
    )


def schema_of_results(options: ResultOptions) -> StructType:
    """The schema of a run's results.

    Raises:
        InvalidOption: there is no such run, or no such column.
    """
    written = options.written()
    if written is None:
        raise runs.unknown(options.run)
    if options.columns is not None and {*options.columns} <= COLUMNS.keys():
        return result_schema(StructType(), options.columns)
    return result_schema(key_of(options.run, written), options.columns)


def key_of(run: str, written: WrittenRun | None) -> StructType:
    """The key columns of a run.

    Raises:
        InvalidOption: its writes named different ones.
    """
    if written is None:
        return StructType()
    keys = [StructType.fromJson(json.loads(one)) if one else StructType() for one in written.keys]
    if len(keys) > 1:
        said = ", ".join(sorted(one.simpleString() for one in keys))
        raise InvalidOption(
            f"the writes of run {run!r} keep different key columns: {said}; give the columns that you need, "
            'without them: option("columns", "job_id, state, result")'
        )
    return keys[0]


class ResultReader(DataSourceReader):
    """Reads the results of a run once."""

    def __init__(self, options: ResultOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        """Decide what is read, and by how many tasks.

        Raises:
            PgQueueError: there is no such run, or the schema does not fit it; no task has started.
        """
        options = self._options
        with extract.open_planner(options.database()) as planner:
            written = planner.run(runs.written(options.run))
            if written is None:
                raise runs.unknown(options.run)
            shape = self._shape(written)
            chunks = [
                Chunk(_fetch(planner, shape, of_ids(ids)), ids)
                for ids in portions(written.ids, options.rows_per_partition)
            ]
            if written.unqueued:
                of_run = sql.SQL("run = {}").format(sql.Literal(options.run))
                chunks.append(Chunk(_fetch(planner, shape, of_run, UNQUEUED), ()))
        return [InputPartition((shape, chunk)) for chunk in chunks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a part, in a task."""
        if partition.value is None:
            return
        shape, chunk = partition.value
        yield from read_chunk(self._options.dsn, shape, chunk)

    def _shape(self, written: WrittenRun) -> ResultShape:
        options = self._options
        return shape_of_results(
            options.run, self._schema, key_where_wanted(options.run, written, self._schema), options.app
        )


def key_where_wanted(run: str, written: WrittenRun | None, schema: StructType) -> StructType:
    """The key columns of a run; none, where its writes differ in them and none is wanted."""
    try:
        return key_of(run, written)
    except InvalidOption:
        result_schema(StructType(), schema.names)
        return StructType()


def read_chunk(dsn: str, shape: ResultShape, chunk: Chunk) -> Iterator[pa.RecordBatch]:
    """The rows of a chunk, and those of jobs that should have come of it and did not."""
    seen: set[int] = set()
    for batch in fetch(dsn, (chunk.fetch,)):
        if chunk.ids:
            seen.update(batch.column(ID).to_pylist())
        yield shape.fitted(batch)
    gone = [one for first, last in chunk.ids for one in range(first, last + 1) if one not in seen]
    if gone:
        yield shape.gone(gone)


def portions(ids: Sequence[Ids], most: int) -> Iterator[tuple[Ids, ...]]:
    """Divide ranges of ids into portions of ``most`` ids; the last one may have fewer."""
    portion: list[Ids] = []
    room = most
    for first, last in ids:
        start = first
        while start <= last:
            end = min(last, start + room - 1)
            portion.append((start, end))
            room -= end - start + 1
            start = end + 1
            if not room:
                yield tuple(portion)
                portion, room = [], most
    if portion:
        yield tuple(portion)


def of_ids(ids: Sequence[Ids]) -> sql.Composable:
    """Rows of jobs with these ids; the bounds are for the indices."""
    bounds = sql.SQL("id >= {} and id <= {}").format(sql.Literal(ids[0][0]), sql.Literal(ids[-1][1]))
    if len(ids) == 1:
        return bounds
    several = "{" + ",".join(f"[{first},{last}]" for first, last in ids) + "}"
    return sql.SQL("{} and id <@ {}::int8multirange").format(bounds, sql.Literal(several))


def _fetch(
    planner: Planner, shape: ResultShape, condition: sql.Composable, table: SparkTable = RESULTS
) -> Fetch:
    return Fetch(planner.text(statement_of(table, shape.wanted, [condition], planner.catalogue)))
