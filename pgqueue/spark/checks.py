"""Checks of the quality of ended jobs in the lake; their results are rows of its table ``checks``.

A check is a condition that at most a share of a day's jobs may meet. One pass over a day counts for all checks. A day is checked
again when its rows or the checks have changed. DuckDB reads the files through Arrow, in this process, with the memory of some
batches of rows, so large days need no Spark.
"""

import hashlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime

import duckdb
import pyarrow as pa

from pgqueue.errors import ConfigurationError
from pgqueue.spark.config import Check, HiddenColumns
from pgqueue.spark.lake import checksum
from pgqueue.spark.lake.columns import ENDED, ENDED_TABLE, named_in, require_shown
from pgqueue.spark.lake.lake import Lake
from pgqueue.spark.lake.records import EndedDay
from pgqueue.spark.lake.steps import lake_step
from pgqueue.store.connections.database import Database

CHECKS = "checks"
SCHEMA = pa.schema(
    [
        ("day", pa.date32()),
        ("name", pa.string()),
        ("task", pa.string()),
        ("jobs", pa.int64()),
        ("found", pa.int64()),
        ("most", pa.float64()),
        ("passed", pa.bool_()),
        ("example", pa.int64()),
        ("checked_at", pa.timestamp("us", "UTC")),
    ]
)
SKEW = "interval '1 minute'"
"""How much the clocks of workers and database may differ: a job's times come from both."""
OWN = (
    Check(name="another_day", where="(ended_at at time zone 'UTC')::date <> day"),
    Check(name="ended_before_its_start", where=f"ended_at < started_at - {SKEW}"),
    Check(name="started_before_it_was_enqueued", where=f"started_at < created_at - {SKEW}"),
    Check(name="succeeded_without_an_attempt", where="outcome = 'succeeded' and attempts < 1"),
    Check(
        name="dead_without_an_error", where="outcome = 'dead' and coalesce(json_array_length(errors), 0) = 0"
    ),
    Check(name="errors_are_no_list", where="errors is not null and json_type(errors) <> 'ARRAY'"),
    Check(name="unknown_outcome", where="outcome not in ('succeeded', 'cancelled', 'dead')"),
    Check(name="doubled", where="pgqueue_number > 1"),
)
"""The checks of every lake. ``pgqueue_number`` counts the rows of the same job that ended in the same transaction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """The result of a check of a day.

    Attributes:
        day: the UTC day.
        name: the check's name.
        task: the task whose jobs were checked; None: of all tasks.
        jobs: how many jobs were checked.
        found: how many of them meet the condition.
        most: the allowed share.
        passed: whether no more do.
        example: the lowest id of them; None: there is none.
        checked_at: the time, in UTC.
    """

    day: date
    name: str
    task: str | None
    jobs: int
    found: int
    most: float
    passed: bool
    example: int | None
    checked_at: datetime


def check(
    database: Database,
    lake: Lake,
    checks: Sequence[Check] = (),
    *,
    days: Collection[date] | None = None,
) -> list[CheckResult]:
    """Check the days of the lake that changed since they were checked, and write the results to its table ``checks``.

    Args:
        database: the lake's.
        lake: the lake.
        checks: the user's own checks, besides those of every lake.
        days: these days only, also if they have not changed.

    Returns:
        The results, oldest day first.

    Raises:
        ConfigurationError: DuckDB refuses a check's condition.
        PipelineError: another process is writing to the lake.
        LakeError: there is no lake, or a file cannot be read; or a check names a column that the lake hides.
    """
    for one in checks:
        _require(one)
    wanted = [*_of(lake.choice), *checks]
    for one in checks:
        require_shown(one.where, lake.choice)
    rules = hashlib.sha256(repr(wanted).encode()).hexdigest()[:12]
    found: list[CheckResult] = []
    with lake_step(database, lake, "check") as (lock, size):
        made = {entry.day: entry.made_from for entry in lake.entries(CHECKS)}
        for entry in lake.days():
            made_from = {ENDED: str(entry.generation), "rules": rules}
            is_due = entry.day in days if days is not None else made.get(entry.day) != made_from
            if is_due:
                results = _run_checks(lake, entry, wanted)
                lock.require_held()
                rows = pa.Table.from_pylist([_row(one) for one in results], SCHEMA)
                lake.replace_days(CHECKS, [entry.day], rows, made_from={entry.day: made_from})
                found += results
                size.days, size.rows = size.days + 1, size.rows + entry.rows
    return found


def _of(choice: HiddenColumns) -> list[Check]:
    return [one for one in OWN if not named_in(one.where, choice.names)]


def _require(one: Check) -> None:
    try:
        _count_jobs(ENDED_TABLE.empty_table(), [one])
    except duckdb.Error as error:
        said = str(error).partition("\n")[0]
        raise ConfigurationError(
            f"check {one.name!r}: where = {one.where!r} cannot be used ({said}); it is an expression of DuckDB over these "
            f"columns: {', '.join(ENDED_TABLE.names)}"
        ) from error


def _run_checks(lake: Lake, entry: EndedDay, wanted: Sequence[Check]) -> list[CheckResult]:
    now = datetime.now(UTC)
    with checksum.errors():
        counts = _count_jobs(lake.dataset(ENDED, ENDED_TABLE, [entry.day]), wanted)
    return [
        CheckResult(
            day=entry.day,
            name=one.name,
            task=one.task,
            jobs=jobs,
            found=found,
            most=one.most,
            passed=found <= one.most * jobs,
            example=example,
            checked_at=now,
        )
        for one, (jobs, found, example) in zip(wanted, counts, strict=True)
    ]


def _count_jobs(rows: object, wanted: Iterable[Check]) -> list[tuple[int, int, int | None]]:
    """Return for each check: the jobs that it looks at, those that meet its condition, and the lowest id of these."""
    figures, values = [], []
    for one in wanted:
        of_task = "true" if one.task is None else "task = ?"
        asked = [] if one.task is None else [one.task]
        met = f"filter (where {of_task} and ({one.where}\n))"
        figures += [f"count(*) filter (where {of_task})", f"count(*) {met}", f"min(id) {met}"]
        values += asked * 3
    numbered = "row_number() over (partition by id, ended_in)"
    statement = f"select {', '.join(figures)} from (select *, {numbered} as pgqueue_number from ended)"
    with checksum.engine_for_conditions() as engine:
        engine.register("ended", rows)
        found = engine.execute(statement, values).fetchone()
    assert found is not None  # noqa: S101 - an aggregate without groups has one row
    return [tuple(found[place : place + 3]) for place in range(0, len(found), 3)]


def _row(one: CheckResult) -> dict[str, object]:
    return {name: getattr(one, name) for name in SCHEMA.names}
