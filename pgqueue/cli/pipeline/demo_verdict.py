"""Whether the lake holds every job that ended, once, as it ended: a comparison of ids, without Spark or PostgreSQL.

What must be there is known beforehand: the ids that were handed out to real jobs, and the planned ids of made-up ones.
What is there is read from the files that the manifests name.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from pgqueue.spark.made_up.days import Story

if TYPE_CHECKING:
    from pgqueue.spark.lake.lake import Lake

MOST_NAMED = 5


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What was found.

    Attributes:
        ended: how many jobs ended, really or made up.
        in_lake: how many rows the lake has.
        lost: ids that are not in it.
        doubled: ids that are in it more than once.
        unknown: ids in it that nobody knows.
        otherwise: ids of real jobs that ended otherwise than they are in it.
    """

    ended: int
    in_lake: int
    lost: list[int]
    doubled: list[int]
    unknown: list[int]
    otherwise: list[int]

    def complaints(self) -> list[str]:
        """What is wrong, a line each; none: all is well."""
        named = {
            "not in the lake": self.lost,
            "in the lake more than once": self.doubled,
            "in the lake, and nobody knows them": self.unknown,
            "not in the lake as they ended": self.otherwise,
        }
        return [
            f"{len(ids):,} jobs are {what}, such as {', '.join(map(str, ids[:MOST_NAMED]))}"
            for what, ids in named.items()
            if ids
        ]


def judge(real: Mapping[int, str], planned: Story, found: Sequence[tuple[int, str]]) -> Verdict:
    """Compare what must be in the lake with what is.

    Args:
        real: how each real job ended, by its id.
        planned: the made-up history.
        found: id and outcome of each row in the lake.
    """
    wanted = set(real)
    for day in planned.days:
        wanted.update(range(day.first_id + 1, day.first_id + 1 + day.rows))
    seen: set[int] = set()
    doubled: list[int] = []
    for job, _ in found:
        if job in seen:
            doubled.append(job)
        seen.add(job)
    return Verdict(
        ended=len(wanted),
        in_lake=len(found),
        lost=sorted(wanted - seen),
        doubled=sorted(set(doubled)),
        unknown=sorted(seen - wanted),
        otherwise=sorted({job for job, outcome in found if real.get(job, outcome) != outcome}),
    )


def in_lake(lake: "Lake") -> list[tuple[int, str]]:
    """Id and outcome of every row in the files that the manifests name, read without Spark."""
    from pyarrow import parquet  # noqa: PLC0415 - heavy

    found: list[tuple[int, str]] = []
    root = lake.uri.removeprefix("file://")
    for day in lake.days():
        for file in day.files:
            table = parquet.read_table(f"{root}/{file.path}", columns=["id", "outcome"], partitioning=None)
            found += zip(table["id"].to_pylist(), table["outcome"].to_pylist(), strict=True)
    return found
