"""The checksum of ended jobs, in Spark. PostgreSQL has the same one in ``sql/pipeline/lake_checksum.sql``, DuckDB in ``in_duckdb.py``.

A row is written as text, column by column; 60 bits of the text's MD5 are a number; the numbers are added up. So the sum
does not depend on the rows' order or place, and the sums of parts add up to the sum of the whole. A row that is doubled
or lost changes both the sum and the count.
"""

from typing import TYPE_CHECKING, NamedTuple

from pgqueue.store.pipeline.extract_tables import TABLES, ColumnKind
from pgqueue.store.pipeline.lake import NOTHING, Checksum

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

SEPARATOR, NULL = "\x1f", "\x1e"
ENDED = TABLES["ended"].columns
SPELLED = [name for name in ENDED if name != "day"]
IS_DEAD = "outcome = 'dead'"


def digest() -> "Column":
    """60 bits of a row's MD5, as a decimal number."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - heavy

    spelled = [f.coalesce(_column_text(name), f.lit(NULL)) for name in SPELLED]
    return f.conv(f.substring(f.md5(f.concat_ws(SEPARATOR, *spelled)), 1, 15), 16, 10).cast("decimal(20, 0)")


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


def part(pruned_below: int) -> str:
    """SQL for the name of a row's part, among those of :class:`InFiles`."""
    return (
        f"case when {IS_DEAD} then 'dead' when ended_in >= {pruned_below} then 'standing' else 'pruned' end"
    )


def in_files(ended: "DataFrame", pruned_below: int) -> InFiles:
    """The counts and the checksums of rows.

    Args:
        ended: rows in the shape of the lake's ended jobs.
        pruned_below: the number of a transaction, which divides the history's rows.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415 - heavy

    by_part = (
        ended.select(f.expr(part(pruned_below)).alias("part"), digest().alias("digest"))
        .groupBy("part")
        .agg(f.count("*").alias("rows"), f.sum("digest").cast("string").alias("checksum"))
    )
    return InFiles(**{row["part"]: Checksum(row["rows"], row["checksum"]) for row in by_part.collect()})


def _column_text(name: str) -> "Column":
    """Return a column as text; an instant as microseconds since 1970."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - heavy

    return (f.unix_micros(f.col(name)) if ENDED[name] is ColumnKind.TIMESTAMP else f.col(name)).cast("string")
