"""The checksum of ended jobs, in DuckDB, for days that are small: no Spark session is started for them.

DuckDB runs in this process, and reads the lake's files through Arrow, on a disk or in an object store. The sums are those of
:mod:`pgqueue.spark.lake.checksum`.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import duckdb
import pyarrow as pa
from pyarrow import dataset

from pgqueue.errors import LakeError
from pgqueue.spark.lake.checksum import ENDED, NULL, SEPARATOR, SPELLED, InFiles, part
from pgqueue.spark.lake.files import rows_of
from pgqueue.store.pipeline.extract_tables import ColumnKind
from pgqueue.store.pipeline.lake import Checksum

MOST_ROWS = 2_000_000
"""A day with more rows is left to Spark: DuckDB takes about 2 s for a million on one core, and has the cores of one machine."""


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


def _statement(pruned_below: int) -> str:
    words = ", ".join(f"coalesce({_column_text(name)}, chr({ord(NULL)}))" for name in SPELLED)
    return f"""
        select {part(pruned_below)}, count(*), sum(('0x' || substr(md5(concat_ws(chr({ord(SEPARATOR)}), {words})), 1, 15))::hugeint)::varchar
        from ended group by 1"""


def _column_text(name: str) -> str:
    """Return a column as text; an instant as microseconds since 1970."""
    return f'epoch_us("{name}")::varchar' if ENDED[name] is ColumnKind.TIMESTAMP else f'"{name}"::varchar'
