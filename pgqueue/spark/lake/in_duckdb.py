"""The checksum of ended jobs, in DuckDB, for days that are small: no Spark session is started for them.

DuckDB runs in this process, and reads the lake's files through Arrow, on a disk or in an object store. The sums are those of
:mod:`pgqueue.spark.lake.checksum`.
"""

from collections.abc import Iterable

import duckdb
import pyarrow as pa

from pgqueue.errors import LakeError
from pgqueue.spark.lake.checksum import ENDED, IS_DEAD, NULL, SEPARATOR, SPELLED
from pgqueue.spark.lake.files import rows_of
from pgqueue.store.pipeline.extract_tables import Kind
from pgqueue.store.pipeline.lake import Share

MOST_ROWS = 2_000_000
"""A day with more rows is left to Spark: DuckDB takes about 2 s for a million on one core, and has the cores of one machine."""


def shares(location: str, files: Iterable[str], schema: pa.Schema) -> tuple[Share, Share]:
    """The count and the checksum of the history's rows, and those of the dead jobs.

    Args:
        location: the folder of the table of ended jobs, as :func:`pgqueue.spark.lake.folder.opened` takes it.
        files: paths below it.
        schema: the columns of ended jobs; one that a file does not have is null.

    Raises:
        LakeError: a file cannot be read.
    """
    try:
        rows = rows_of(location, files, schema)
        with duckdb.connect() as engine:
            engine.register("ended", rows)
            found = engine.execute(_statement()).fetchall()
    except (duckdb.Error, pa.ArrowException, OSError) as error:
        raise LakeError(f"a file cannot be read: {' '.join(str(error).split())}") from error
    by_table = {is_dead: Share(count, checksum) for is_dead, count, checksum in found}
    return by_table.get(False, Share()), by_table.get(True, Share())


def _statement() -> str:
    spelled = [f"coalesce({_spelled(name)}, chr({ord(NULL)}))" for name in SPELLED]
    words = ", ".join([*spelled, _spelled("meta")])  # concat_ws leaves a null meta out, as in Spark
    return f"""
        select {IS_DEAD}, count(*), sum(('0x' || substr(md5(concat_ws(chr({ord(SEPARATOR)}), {words})), 1, 15))::hugeint)::varchar
        from ended group by 1"""


def _spelled(name: str) -> str:
    """A column as text; an instant as microseconds since 1970."""
    return f'epoch_us("{name}")::varchar' if ENDED[name] is Kind.TIMESTAMP else f'"{name}"::varchar'
