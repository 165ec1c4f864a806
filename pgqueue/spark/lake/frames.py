"""How ended jobs are distributed over files."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def arranged(frame: "DataFrame", queues: Mapping[str, int], rows_per_file: int) -> "DataFrame":
    """Rows distributed so that a large queue makes several files and a small one makes one.

    Args:
        frame: ended jobs.
        queues: how many rows each queue has.
        rows_per_file: about the most rows in a file.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415 - heavy

    large = {queue: -(-rows // rows_per_file) for queue, rows in queues.items() if rows > rows_per_file}
    small = sum(rows for queue, rows in queues.items() if queue not in large)
    shared = max(1, -(-small // rows_per_file))
    place, first = f.pmod(f.xxhash64("queue"), f.lit(shared)), shared
    for queue, files in large.items():
        spread = f.lit(first) + f.pmod(f.xxhash64("id"), f.lit(files))
        place, first = f.when(f.col("queue") == queue, spread).otherwise(place), first + files
    return frame.repartitionById(first, place.cast("int")).sortWithinPartitions(
        "day", "queue", "task", "ended_at", "id"
    )
