"""The checksum of ended jobs, in Spark. PostgreSQL has the same one in ``sql/pipeline/lake_checksum.sql``, DuckDB in ``in_duckdb.py``.

A row is written as text, column by column; 60 bits of the text's MD5 are a number; the numbers are added up. So the sum
does not depend on the rows' order or place, and the sums of parts add up to the sum of the whole. A row that is doubled
or lost changes both the sum and the count.
"""

from typing import TYPE_CHECKING

from pgqueue.store.pipeline.extract_tables import TABLES, Kind
from pgqueue.store.pipeline.lake import Share

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

SEPARATOR, NULL = "\x1f", "\x1e"
ENDED = TABLES["ended"].columns
SPELLED = [name for name in ENDED if name not in {"meta", "day"}]
IS_DEAD = "outcome = 'dead'"


def digest() -> "Column":
    """60 bits of a row's MD5, as a decimal number."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - heavy

    spelled = [f.coalesce(_spelled(name), f.lit(NULL)) for name in SPELLED]
    words = f.concat_ws(
        SEPARATOR, *spelled, _spelled("meta")
    )  # a null meta is left out, so older days keep their sum
    return f.conv(f.substring(f.md5(words), 1, 15), 16, 10).cast("decimal(20, 0)")


def shares(ended: "DataFrame") -> tuple[Share, Share]:
    """The count and the checksum of the history's rows, and those of the dead jobs.

    Args:
        ended: rows in the shape of the lake's ended jobs.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415 - heavy

    by_table = (
        ended.select(f.expr(IS_DEAD).alias("is_dead"), digest().alias("digest"))
        .groupBy("is_dead")
        .agg(f.count("*").alias("rows"), f.sum("digest").cast("string").alias("checksum"))
    )
    found = {row["is_dead"]: Share(row["rows"], row["checksum"]) for row in by_table.collect()}
    return found.get(False, Share()), found.get(True, Share())


def _spelled(name: str) -> "Column":
    """A column as text; an instant as microseconds since 1970."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - heavy

    return (f.unix_micros(f.col(name)) if ENDED[name] is Kind.TIMESTAMP else f.col(name)).cast("string")
