"""Roll-ups with DuckDB, for days that are small: no Spark session is started for them.

DuckDB runs in this process, and reads the lake's files through Arrow, on a disk or in an object store. Macros give it the
functions of Spark that the statements use.

Percentiles come from KLL sketches of Apache DataSketches, which Spark uses, too. They merge: a day's come from its hours' sketches,
and so can those of any other span. A sketch's answer is off by at most 1.33 % of the ranks with a probability of 99 % (k = 200; the
table "single-sided error" of https://datasketches.apache.org/docs/KLL/KLLAccuracyAndSize.html; the algorithm is Karnin, Lang,
Liberty: Optimal Quantile Approximation in Streams, https://arxiv.org/abs/1603.05346): asked for the 90th percentile of a million run
times, it names one between the 88.67th and the 91.33th. With up to 200 values it is exact.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date
from itertools import count, pairwise
from typing import TYPE_CHECKING

import datasketches  # type: ignore[import-untyped]  # it has no types
import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pgqueue.errors import LakeError
from pgqueue.spark.lake.columns import ENDED, ENDED_TABLE, WORKER_SCHEMA, WORKERS
from pgqueue.spark.rollup.attempts import DEFAULT, FAILED, READS, failed_attempts
from pgqueue.spark.rollup.tables import SCHEMAS, folder, statement
from pgqueue.values.redaction import Redaction

if TYPE_CHECKING:
    from pgqueue.spark.lake.lake import Lake

MOST_ROWS = 10_000_000
"""A day with more rows is left to Spark: DuckDB takes about 3 s and 160 MB for a million, and has the cores of one machine."""
ROWS_AT_ONCE = 2_000_000
"""Days are computed in batches of about this many rows, or one by one if they have more."""
AT_ONCE = 10_000
"""Jobs whose failed attempts are in memory at once."""
MACROS = (
    "unix_micros(instant) as epoch_us(instant)",
    "timestamp_micros(number) as make_timestamptz(cast(number as bigint))",
    "unix_date(day) as date_diff('day', date '1970-01-01', day)",
    "date_from_unix_date(number) as date '1970-01-01' + number",
    "pmod(number, divisor) as ((number % divisor) + divisor) % divisor",
    "explode(list) as unnest(list)",
    "sequence(first, last, step := 1) as generate_series(first, last, step)",
    "get_json_object(json, path) as json_extract_string(json, path)",
    "kll_sketch_agg_double(value) as pgqueue_sketched(list(value) filter (where value is not null))",
    "kll_merge_agg_double(sketch) as pgqueue_merged(list(sketch) filter (where sketch is not null))",
    "kll_sketch_get_quantile_double(sketch, rank) as pgqueue_quantile(sketch, rank)",
)
"""Functions of Spark, for DuckDB."""
K = 200
"""The size of a sketch; Spark's default."""
PATH = "path"
"""The value that is a JSON path."""
KEY = re.compile(r"\['([^']+)'\]")
VALUE = re.compile(r":([a-z]+)\b")


@contextmanager
def open_engine(lake: "Lake", redaction: Redaction = DEFAULT) -> Iterator["InDuckdb"]:
    """An engine with a DuckDB of its own, until the block ends; ``redaction`` hides the secrets in messages.

    Raises:
        LakeError: a file of the lake cannot be read.
    """
    try:
        with duckdb.connect() as connection:
            yield InDuckdb(lake, connection, redaction)
    except (duckdb.Error, pa.ArrowException, OSError) as error:
        raise LakeError(f"{lake.uri} cannot be rolled up: {' '.join(str(error).split())}") from error


class InDuckdb:
    """An engine whose tables are views and tables in a DuckDB of its own."""

    def __init__(self, lake: "Lake", connection: duckdb.DuckDBPyConnection, redaction: Redaction) -> None:
        self._lake = lake
        self._redaction = redaction
        self._connection = connection
        self._numbers = count()
        for name, function, parameters, returned in FUNCTIONS:
            connection.create_function(  # type: ignore[call-overload]  # names of its enumerations do, too
                name, function, parameters, returned, type="arrow", null_handling="special"
            )
        for macro in MACROS:
            connection.execute(f"create macro {macro}")

    def ended(self, days: Iterable[date]) -> str:
        """Ended jobs of some days, read when a statement needs them."""
        return self._registered(self._lake.dataset(ENDED, ENDED_TABLE, days))

    def failed(self, days: Iterable[date]) -> str:
        """Their failed attempts. They are read only once, so only one statement can have them."""
        jobs = self._lake.dataset(ENDED, ENDED_TABLE, days)
        batches = jobs.to_batches(
            columns=list(READS), batch_size=AT_ONCE, filter=pc.field("errors").is_valid()
        )
        found = failed_attempts(batches, self._redaction)
        return self._registered(pa.RecordBatchReader.from_batches(FAILED, found))

    def of_days(self, table: str, days: Iterable[date]) -> str:
        """A roll-up table's rows of some days."""
        return self._registered(self._lake.dataset(folder(table), SCHEMAS[table], days))

    def workers(self) -> str:
        """All workers that ever ran."""
        return self._registered(self._lake.rows(WORKERS, WORKER_SCHEMA))

    def small(self, rows: pa.Table) -> str:
        """Rows that are made in this process."""
        return self._registered(rows)

    def run(self, name: str, /, values: Mapping[str, object] | None = None, **tables: str) -> str:
        """The result of a statement, computed when it is fetched or written."""
        text = statement(name).format(**tables)
        made = self._name()
        if values is None:
            self._connection.execute(f"create temp view {made} as {text}")
        else:  # a view cannot have values
            named = VALUE.sub(r"$\1", text)
            given = {name: path_of(value) if name == PATH else value for name, value in values.items()}
            self._connection.execute(f"create temp table {made} as {named}", given)
        return made

    @contextmanager
    def kept(self, rows: str) -> Iterator[str]:
        """The same rows in a table, until the block ends."""
        made = self._name()
        self._connection.execute(f"create temp table {made} as from {rows}")
        try:
            yield made
        finally:
            self._connection.execute(f"drop table {made}")

    def fetched(self, rows: str) -> pa.Table:
        """Rows in this process."""
        return self._connection.sql(f"from {rows}").to_arrow_table()

    def replace(
        self, table: str, days: Sequence[date], rows: str, made_from: Mapping[date, Mapping[str, str]]
    ) -> None:
        """Replace some days of a roll-up table with rows, in one commit."""
        schema = SCHEMAS[table]
        names = ", ".join(schema.names)
        found = self._connection.sql(f"select {names} from {rows}").to_arrow_table()
        self._lake.replace_days(folder(table), days, found.cast(schema), made_from=made_from)

    def _registered(self, rows: object) -> str:
        name = self._name()
        self._connection.register(name, rows)
        return name

    def _name(self) -> str:
        return f"pgqueue_{next(self._numbers)}"


def path_of(path: object) -> object:
    """A JSON path as DuckDB writes it: ``."key"``, where Spark writes ``['key']``."""
    return (
        path
        if path is None
        else KEY.sub(lambda found: f".{json.dumps(found[1], ensure_ascii=False)}", str(path))
    )


def new_sketch() -> datasketches.kll_doubles_sketch:
    """A sketch without values."""
    return datasketches.kll_doubles_sketch(K)


def read_sketch(sketch: bytes) -> datasketches.kll_doubles_sketch:
    """A sketch as a roll-up table holds it."""
    return datasketches.kll_doubles_sketch.deserialize(sketch)


def quantile_of(sketch: datasketches.kll_doubles_sketch, rank: float) -> float:
    """The value at a rank of a sketch that has values."""
    return float(sketch.get_quantile(rank, True))  # noqa: FBT003 - up to and with the rank, as Spark


def quantiles_of(sketch: datasketches.kll_doubles_sketch, ranks: Sequence[float]) -> list[float]:
    """The values at some ranks of a sketch that has values."""
    return list(sketch.get_quantiles(ranks, True))  # noqa: FBT003 - as for one rank


def make_sketches(groups: pa.ChunkedArray) -> pa.Array:
    """A sketch of each list of doubles; null for null."""
    made = (None if values is None else _of(values) for values in _lists(groups))
    return pa.array(made, pa.binary())


def merge_sketches(groups: pa.ChunkedArray) -> pa.Array:
    """One sketch for each list of sketches; null for null."""
    found = (None if group is None else _union(group) for group in groups.to_pylist())
    return pa.array(found, pa.binary())


def quantiles(sketches: pa.ChunkedArray, ranks: pa.ChunkedArray) -> pa.Array:
    """The value at a rank of each sketch; null for null."""
    asked = zip(sketches.to_pylist(), ranks.to_pylist(), strict=True)
    return pa.array(
        [None if one is None else quantile_of(read_sketch(one), rank) for one, rank in asked], pa.float64()
    )


def _lists(groups: pa.ChunkedArray) -> Iterator[np.ndarray | None]:
    """The values of each list, without a copy of each."""
    for chunk in groups.chunks:
        values = np.array(chunk.values)  # a sketch reads only arrays that can be written to
        there = chunk.is_valid().to_pylist()
        for is_there, (first, after) in zip(there, pairwise(chunk.offsets.to_pylist()), strict=True):
            yield values[first:after] if is_there else None


def _of(values: np.ndarray) -> bytes:
    sketch = new_sketch()
    sketch.update(values)
    return bytes(sketch.serialize())


def _union(sketches: list[bytes]) -> bytes:
    if len(sketches) == 1:
        return sketches[0]
    union = new_sketch()
    for one in sketches:
        union.merge(read_sketch(one))
    return bytes(union.serialize())


FUNCTIONS = (
    ("pgqueue_sketched", make_sketches, ["double[]"], "blob"),
    ("pgqueue_merged", merge_sketches, ["blob[]"], "blob"),
    ("pgqueue_quantile", quantiles, ["blob", "double"], "double"),
)
"""Functions in Python that the macros call. Each takes and returns an Arrow column."""
