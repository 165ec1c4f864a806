"""The checksum of ended jobs, in DuckDB for days that are small, and in Spark. PostgreSQL has it in ``sql/pipeline/lake_checksum.sql``.

A row is written as text, column by column; 60 bits of the text's MD5 are a number; the numbers are added up. So the sum
does not depend on the rows' order or place, and the sums of parts add up to the sum of the whole. A row that is doubled
or lost changes both the sum and the count.

DuckDB runs in this process, and reads the lake's files through Arrow, on a disk or in an object store: no Spark session is started.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import duckdb
import pyarrow as pa
from pyarrow import dataset

from pgqueue.errors import LakeError
from pgqueue.spark.lake.files import rows_of
from pgqueue.store.pipeline.extract_where import TABLES, ColumnKind
from pgqueue.store.pipeline.lake import NOTHING, Checksum

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

SEPARATOR, NULL = "\x1f", "\x1e"
ENDED = TABLES["ended"].columns
SPELLED = [name for name in ENDED if name != "day"]
IS_DEAD = "outcome = 'dead'"
MOST_ROWS = 2_000_000
"""A day with more rows is left to Spark: DuckDB takes about 2 s for a million on one core, and has the cores of one machine."""


class InFiles(NamedTuple):
    """What files of ended jobs hold.

    Attributes:
        pruned: the rows of the history whose transactions are below a number.
        standing: the other rows of the history.
        dead: the dead jobs.
    """

    pruned: Checksum = NOTHING
    standing: Checksum = NOTHING
    dead: Checksum = NOTHING

    @property
    def history(self) -> Checksum:
        """All rows of the history."""
        return self.pruned + self.standing


def in_files(location: str, files: Iterable[str], schema: pa.Schema, pruned_below: int) -> InFiles:
    """The counts and the checksums of the rows in files.

    Args:
        location: the folder of the table of ended jobs, as :func:`pgqueue.spark.lake.folder.open_location` takes it.
        files: paths below it.
        schema: the columns of ended jobs; one that a file does not have is null.
        pruned_below: the number of a transaction, which divides the history's rows.

    Raises:
        LakeError: a file cannot be read.
    """
    with errors():
        return of_rows(rows_of(location, files, schema), pruned_below)


def of_rows(rows: dataset.Dataset | pa.Table, pruned_below: int) -> InFiles:
    """The counts and the checksums of ended jobs; see :func:`in_files`."""
    with duckdb.connect() as engine:
        engine.register("ended", rows)
        found = engine.execute(_statement(pruned_below)).fetchall()
    return InFiles(**{named: Checksum(count, checksum) for named, count, checksum in found})


def not_among(dead: Iterable[pa.RecordBatch], ended: dataset.Dataset, most: int) -> list[int]:
    """The ids, in order, of dead jobs that are missing among a day's ended jobs, or have other values there.

    Args:
        dead: the dead jobs.
        ended: the ended jobs.
        most: at most how many ids.
    """
    digests = f"select id, {_digest()} as digest"
    with duckdb.connect() as engine:
        engine.register("dead", pa.RecordBatchReader.from_batches(ended.schema, dead))
        engine.register("ended", ended)
        found = engine.execute(
            f"from ({digests} from dead) anti join ({digests} from ended where {IS_DEAD}) using (id, digest) "
            f"select id order by id limit {most}"
        )
        return [row[0] for row in found.fetchall()]


def of_frame(ended: "DataFrame", pruned_below: int) -> InFiles:
    """The counts and the checksums of ended jobs, in Spark.

    Args:
        ended: rows in the shape of the lake's ended jobs.
        pruned_below: the number of a transaction, which divides the history's rows.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415 - heavy

    by_part = (
        ended.select(f.expr(_part(pruned_below)).alias("part"), _digest_in_spark().alias("digest"))
        .groupBy("part")
        .agg(f.count("*").alias("rows"), f.sum("digest").cast("string").alias("checksum"))
    )
    return InFiles(**{row["part"]: Checksum(row["rows"], row["checksum"]) for row in by_part.collect()})


def _digest_in_spark() -> "Column":
    """60 bits of a row's MD5, as a decimal number."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - heavy

    spelled = [f.coalesce(_spark_text(name), f.lit(NULL)) for name in SPELLED]
    return f.conv(f.substring(f.md5(f.concat_ws(SEPARATOR, *spelled)), 1, 15), 16, 10).cast("decimal(20, 0)")


@contextmanager
def engine_for_conditions() -> Iterator[duckdb.DuckDBPyConnection]:
    """DuckDB without access to files and networks: a user's expression sees the rows that it is given, and nothing else."""
    with duckdb.connect() as engine:
        engine.execute("set enable_external_access = false")
        yield engine


@contextmanager
def errors() -> Iterator[None]:
    """Errors of DuckDB, of Arrow and of the file system become ours.

    Raises:
        LakeError: a file cannot be read.
    """
    try:
        yield
    except (duckdb.Error, pa.ArrowException, OSError) as error:
        raise LakeError(f"a file cannot be read: {' '.join(str(error).split())}") from error


def _part(pruned_below: int) -> str:
    """SQL for the name of a row's part, among those of :class:`InFiles`."""
    return (
        f"case when {IS_DEAD} then 'dead' when ended_in >= {pruned_below} then 'standing' else 'pruned' end"
    )


def _statement(pruned_below: int) -> str:
    return f"select {_part(pruned_below)}, count(*), sum({_digest()})::varchar from ended group by 1"


def _digest() -> str:
    """SQL of DuckDB for 60 bits of a row's MD5."""
    words = ", ".join(f"coalesce({_duckdb_text(name)}, chr({ord(NULL)}))" for name in SPELLED)
    return f"('0x' || substr(md5(concat_ws(chr({ord(SEPARATOR)}), {words})), 1, 15))::bigint"


def _duckdb_text(name: str) -> str:
    """Return a column as text; an instant as microseconds since 1970."""
    return f'epoch_us("{name}")::varchar' if ENDED[name] is ColumnKind.TIMESTAMP else f'"{name}"::varchar'


def _spark_text(name: str) -> "Column":
    """Return a column as text; an instant as microseconds since 1970."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - heavy

    return (f.unix_micros(f.col(name)) if ENDED[name] is ColumnKind.TIMESTAMP else f.col(name)).cast("string")
