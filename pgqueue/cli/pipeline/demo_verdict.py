"""Checks that the lake holds every ended job once, with its outcome: compares ids, without Spark or PostgreSQL.

The expected ids are known before: those of the real jobs, and the planned ids of made-up ones. The ids in the lake are
read from the files that count.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from pgqueue.spark.made_up.days import Story

if TYPE_CHECKING:
    from pgqueue.spark.lake.lake import Lake

MOST_NAMED = 5


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The result of the comparison.

    Attributes:
        ended: how many jobs ended, real or made up.
        in_lake: how many rows the lake has.
        lost: expected ids that are not in the lake.
        doubled: ids that are in the lake more than once.
        unknown: ids in the lake that are not expected.
        otherwise: ids of real jobs that have another outcome in the lake.
    """

    ended: int
    in_lake: int
    lost: list[int]
    doubled: list[int]
    unknown: list[int]
    otherwise: list[int]

    def complaints(self) -> list[str]:
        """The errors, one line each; empty: all jobs are there once."""
        named = {
            "not in the lake": self.lost,
            "in the lake more than once": self.doubled,
            "in the lake but were not expected": self.unknown,
            "in the lake with another outcome": self.otherwise,
        }
        return [
            f"{len(ids):,} jobs are {what}, such as {', '.join(map(str, ids[:MOST_NAMED]))}"
            for what, ids in named.items()
            if ids
        ]


def judge(real: Mapping[int, str], planned: Story, found: Sequence[tuple[int, str]]) -> Verdict:
    """Compare the expected jobs with those in the lake.

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
    """Id and outcome of every row in the files that count, read without Spark."""
    from pyarrow import parquet  # noqa: PLC0415 - heavy

    found: list[tuple[int, str]] = []
    root = lake.uri.removeprefix("file://")
    for day in lake.days():
        for file in day.files:
            table = parquet.read_table(f"{root}/{file.path}", columns=["id", "outcome"], partitioning=None)
            found += zip(table["id"].to_pylist(), table["outcome"].to_pylist(), strict=True)
    return found
