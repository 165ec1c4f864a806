"""What the demo takes through the pipeline, into which folder, and whether the lake holds each ended job once.

The steps are those of a user, except that the export runs with tomorrow's date. The verdict compares ids, without Spark or
PostgreSQL: those of the real jobs and the planned ids of made-up ones are known before, and those in the lake are read from the files
that count.
"""

import shlex
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, time, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from pgqueue.errors import ConfigurationError
from pgqueue.spark.demo.planned import PlannedHistory
from pgqueue.spark.pipeline_jobs import WORK, Surroundings, Work

if TYPE_CHECKING:
    from pgqueue.spark.lake.lake import Lake

SOON_AFTER = time(0, 5)
MOST_NAMED = 5
MARK = "made-by-pgqueue-pipeline-demo"
CONFIG = """# The demo's configuration of the pipeline.
tenant = "$.tenant"

[cost]
per_run_second = 0.00002
currency = "USD"

[[slo]]
queue = "mail"
wait = "30s"
objective = 0.99

[[slo]]
queue = "webhooks"
wait = "10s"
run = "5s"
objective = 0.95
"""


def fresh(folder: Path) -> Path:
    """The folder, emptied, with the demo's mark and configuration.

    Args:
        folder: where the lake and the report will be.

    Raises:
        ConfigurationError: it holds files that the demo did not make.
    """
    folder = folder.absolute()
    if folder.exists() and any(folder.iterdir()):
        if not (folder / MARK).exists():
            raise ConfigurationError(
                f"{folder} is not empty, and not from an earlier demo: give another folder"
            )
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MARK).write_text("The next `pgqueue pipeline demo` empties this folder.\n")
    (folder / "pipeline.toml").write_text(CONFIG)
    return folder


def duckdb_line(lake: Path) -> str:
    """A line for a shell that opens the lake in DuckDB, and shows how the jobs of each queue ended."""
    shown = "select queue, outcome, count(*) as jobs, avg(started_at - run_at) as wait from ended group by all order by all"
    program = (
        "import duckdb; from deltalake import DeltaTable; "
        f"ended = DeltaTable({str(lake / 'ended')!r}).to_pyarrow_dataset(); "
        f"duckdb.sql('{shown}').show()"
    )
    return shlex.join([sys.executable, "-c", program])


def tomorrow(now: datetime) -> datetime:
    """A few minutes after the next midnight, in UTC: then the jobs of ``now`` are closed history."""
    return datetime.combine(now.astimezone(UTC).date() + timedelta(days=1), SOON_AFTER, tzinfo=UTC)


def work(
    now: datetime, written: Callable[[str], object], answered: Callable[[str, str], object]
) -> Mapping[str, Work]:
    """What the steps do.

    Args:
        now: the time for the export, in place of the database's clock.
        written: called with the report's path.
        answered: called with each question that has findings, and its answer.
    """

    def export(given: Surroundings) -> str:
        from pgqueue.spark.lake.export import ExportOptions  # noqa: PLC0415 - PySpark
        from pgqueue.spark.lake.export import export as export_days  # noqa: PLC0415 - PySpark

        options = ExportOptions(now=now)
        done = export_days(given.session, given.database, given.lake, options=options, tell=given.check)
        files, size = sum(one.files for one in done), sum(one.bytes for one in done)
        rows = sum(one.history + one.dead for one in done)
        return f"{len(done)} days, {rows:,} rows, {files:,} files, {size / 1e6:,.0f} MB"

    def report(given: Surroundings) -> str:
        from pgqueue.spark.report.report import answers, write  # noqa: PLC0415 - DuckDB

        # The real jobs ran within seconds: compared with the shop's days, that day looks idle.
        until = (now - timedelta(days=2)).date()
        found = write(answers(given.lake, given.config, until=until), given.lake)
        for section in found.sections.values():
            if section.state == "look":
                answered(section.title, section.answer)
        written(found.html)
        return "1 page"

    return {**WORK, "export": export, "report": report}


class DemoComparison(msgspec.Struct, frozen=True, kw_only=True):
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


def judge(
    real: Mapping[int, str], planned: PlannedHistory, found: Sequence[tuple[int, str]]
) -> DemoComparison:
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
    return DemoComparison(
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
