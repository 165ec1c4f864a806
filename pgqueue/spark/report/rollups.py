"""Reads the report's data: the roll-up tables of some weeks, and nothing else.

Hours and days become whole numbers counted from 1970 in UTC, so no time zone of a driver or a session can shift them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 - its usual name
from pyspark.sql.pandas.types import from_arrow_schema

from pgqueue.errors import InvalidOption, LakeError
from pgqueue.spark.report.rule_unusual import WEEK, Flags
from pgqueue.spark.report.words import day_number, day_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyspark.sql import Column, DataFrame, SparkSession

    from pgqueue.spark.lake.lake import Lake

DAY = 24
WEEK_DAYS = 7
RECENT_DAYS = 28
MOST_WEEKS = 52
HOURS: Mapping[str, str] = {
    "queue": "string",
    "task": "string",
    "jobs": "bigint",
    "succeeded": "bigint",
    "cancelled": "bigint",
    "dead": "bigint",
    "attempts": "bigint",
    "retries": "bigint",
    "run_seconds": "double",
    "wait_seconds": "double",
    "busy_seconds": "double",
    "wait_p90": "double",
    "run_p50": "double",
    "run_p90": "double",
    "wait_sketch": "binary",
    "run_sketch": "binary",
    "slo_good": "bigint",
    "slo_total": "bigint",
    "slo_objective": "double",
}
FAILURES: Mapping[str, str] = {
    "queue": "string",
    "task": "string",
    "error_type": "string",
    "reason": "string",
    "failures": "bigint",
    "dead": "bigint",
    "sample": "string",
}
TENANTS: Mapping[str, str] = {
    "queue": "string",
    "tenant": "string",
    "jobs": "bigint",
    "run_seconds": "double",
    "wait_seconds": "double",
    "cost": "double",
}
WORKERS: Mapping[str, str] = {
    "worker_id": "string",
    "concurrency": "int",
    "alive_seconds": "double",
    "busy_seconds": "double",
}


@dataclass(frozen=True, kw_only=True)
class Period:
    """The reported week, and the earlier weeks with which it is compared.

    Attributes:
        until: the last day, counted from 1970.
        weeks: the number of earlier weeks.
        days: the days of all these weeks that the lake holds, ascending.
    """

    until: int
    weeks: int
    days: tuple[int, ...]

    @property
    def end(self) -> int:
        """The hour after the last one."""
        return (self.until + 1) * DAY

    @property
    def begin(self) -> int:
        """The first hour of the reported week."""
        return self.end - WEEK

    @property
    def start(self) -> int:
        """The first hour of the first earlier week."""
        return self.end - (self.weeks + 1) * WEEK

    def around(self, first: int, last: int) -> tuple[int, int]:
        """The range of a picture around some hours: its first hour, and the hour after its last."""
        begin = max(self.start, first // DAY * DAY - 2 * DAY)
        return begin, min(self.end, (last // DAY + 3) * DAY)

    @property
    def recent(self) -> int:
        """The first hour in which the report looks for deploys, storms and crowding."""
        return max(self.start, self.end - RECENT_DAYS * DAY)

    @property
    def first_day(self) -> int:
        """The first day of the reported week."""
        return self.until + 1 - WEEK_DAYS

    @property
    def known(self) -> Flags:
        """For every hour of all weeks, whether the lake holds its day."""
        there = np.isin(np.arange(self.start // DAY, self.until + 1), np.asarray(self.days, dtype=np.int64))
        return np.repeat(there, DAY)

    @property
    def reported(self) -> tuple[int, ...]:
        """The days of the reported week that the lake holds."""
        return tuple(day for day in self.days if day >= self.first_day)


@dataclass(frozen=True, kw_only=True)
class Rollups:
    """The tables. ``at`` is the hour, counted from 1970; ``hours`` has no row for an hour in which no job ended.

    Attributes:
        spark: the session that reads them.
        period: their weeks.
        hours: by queue and task.
        busy: by hour only: ``busy_seconds``, also of hours in which no job ended.
        failures: by queue, task and reason.
        tenants: by queue and tenant; null: jobs without one.
        workers: by worker.
        deploys: ``at`` and ``version``, of any time.
        currency: the currency of costs; may be empty.
    """

    spark: "SparkSession"
    period: Period
    hours: "DataFrame"
    busy: "DataFrame"
    failures: "DataFrame"
    tenants: "DataFrame"
    workers: "DataFrame"
    deploys: "DataFrame"
    currency: str = ""


def period(lake: "Lake", until: date | None, weeks: int) -> Period | None:
    """The days to report on; None: the lake is empty.

    Args:
        lake: the lake with the roll-ups.
        until: the last day; the newest by default.
        weeks: the number of earlier weeks to compare with.

    Raises:
        InvalidOption: the lake has no roll-ups of that day, or ``weeks`` is out of range.
        LakeError: there are jobs in the lake and no roll-ups of them.
    """
    if not 1 <= weeks <= MOST_WEEKS:
        raise InvalidOption(f"weeks={weeks}: compare with 1 to {MOST_WEEKS} former weeks")
    days = sorted(day_number(entry.day) for entry in lake.entries("rollup/hours") if entry.day is not None)
    if not days:
        if lake.days():
            raise LakeError(
                f"{lake.uri} has jobs and no roll-ups of them: run `pgqueue pipeline rollup` first"
            )
        return None
    last = days[-1] if until is None else day_number(until)
    if last not in days:
        raise InvalidOption(
            f"until={day_of(last)}: the lake has roll-ups of {day_of(days[0])} to {day_of(days[-1])}, and not of that day"
        )
    first = last + 1 - (weeks + 1) * WEEK_DAYS
    return Period(until=last, weeks=weeks, days=tuple(day for day in days if first <= day <= last))


def read(spark: "SparkSession", lake: "Lake", weeks: Period, currency: str = "") -> Rollups:
    """The tables of these weeks. Nothing is computed yet."""
    hours = _read(spark, lake, "hours", HOURS, weeks)
    return Rollups(
        spark=spark,
        period=weeks,
        hours=hours.where(F.col("jobs") > 0),
        busy=hours.groupBy("at").agg(F.sum("busy_seconds").alias("busy_seconds")),
        failures=_read(spark, lake, "failures", FAILURES, weeks),
        tenants=_read(spark, lake, "tenants", TENANTS, weeks),
        workers=_read(spark, lake, "workers", WORKERS, weeks),
        deploys=lake.deploys(spark).select(_hour("deployed_at"), "version"),
        currency=currency,
    )


def judged(
    hours: "DataFrame",
    keys: Sequence[str],
    rule: "Callable[[pa.Table], Iterable[tuple[object, ...]]]",
    finding: pa.Schema,
) -> "DataFrame":
    """A row for each finding of a rule, which Spark's executors run on the hours of one task, or of one tenant of a queue.

    Args:
        hours: what the rule judges.
        keys: the columns that name the task, or the tenant and the queue.
        rule: finds in one group's hours.
        finding: the columns of a finding, in order.
    """
    schema = pa.schema([*((key, pa.string()) for key in keys), *finding])

    def judge(group: pa.Table) -> pa.Table:
        named = [group[key][0].as_py() for key in keys]
        found = [(*named, *one) for one in rule(group)]
        columns = zip(*found, strict=True) if found else [()] * len(schema)
        arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
        return pa.Table.from_arrays(arrays, schema=schema)

    return hours.groupBy(*keys).applyInArrow(judge, from_arrow_schema(schema))


def _read(
    spark: "SparkSession", lake: "Lake", name: str, columns: Mapping[str, str], weeks: Period
) -> "DataFrame":
    table = f"rollup/{name}"
    if not lake.entries(table):
        schema = ", ".join(f"{column} {kind}" for column, kind in {"at": "bigint", **columns}.items())
        return spark.createDataFrame([], schema)
    days = [day_of(day) for day in weeks.days]
    return lake.day_table(spark, table, days).select(_hour("hour"), *columns)


def _hour(instant: str) -> "Column":
    return F.floor(F.unix_seconds(instant) / 3_600).cast("bigint").alias("at")
