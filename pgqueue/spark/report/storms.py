"""Did retries come in storms? A task's retries against their usual number; the rule is ``rule_burst``.

A retry counts in the hour in which its job ended, like all figures of the roll-ups.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from pgqueue.spark.report import words
from pgqueue.spark.report.plots import storm_hours
from pgqueue.spark.report.rollups import DAY, RECENT_DAYS, Rollups
from pgqueue.spark.report.rule_burst import FEWEST_HOURS, Storm, storms
from pgqueue.spark.report.rule_unusual import FEWEST_JOBS, MATTERS_WAIT, MATTERS_WAIT_RATIO
from pgqueue.spark.report.section import Plot, ReportColumn, ReportTable, Section, SectionState, ValueKind
from pgqueue.spark.report.verdicts import verdicts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MOST_STORMS = 500
DRAWN = 1
FOUND = (
    "queue string, task string, first bigint, last bigint, hours array<bigint>, jobs bigint, retries bigint, "
    "expected double"
)
COLUMNS = (
    ReportColumn("queue", "Queue", ValueKind.TEXT),
    ReportColumn("task", "Task", ValueKind.TEXT),
    ReportColumn("first_hour", "From (UTC)", ValueKind.HOUR),
    ReportColumn("last_hour", "", ValueKind.HOUR),
    ReportColumn("hours", "Hours", ValueKind.COUNT),
    ReportColumn("jobs", "Jobs", ValueKind.COUNT),
    ReportColumn("retries", "Retries", ValueKind.COUNT),
    ReportColumn("expected", "Usually", ValueKind.NUMBER),
    ReportColumn("error_type", "Most failed with", ValueKind.TEXT),
    ReportColumn("reason", "Reason", ValueKind.TEXT),
    ReportColumn("reason_share", "Share", ValueKind.SHARE),
    ReportColumn("slowed", "Who waited meanwhile", ValueKind.TEXT),
    ReportColumn("finding", "", ValueKind.TEXT),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StormReport:
    """A storm, its main reason, and the tasks that waited meanwhile.

    Attributes:
        queue: the task's queue.
        task: the task's name.
        storm: its hours.
        error_type: the error type of most failures; None: none is recorded.
        reason: the reason of these failures.
        share: their share of all failures.
        slowed: tasks that waited longer than usual in the same hours, tasks of the same queue first.
    """

    queue: str
    task: str
    storm: Storm
    error_type: str | None = None
    reason: str | None = None
    share: float | None = None
    slowed: tuple[str, ...] = ()


def section(rollups: Rollups) -> Section:
    """The answer."""
    found = _find_storms(rollups)
    if not found:
        return _section(*_nothing_found(rollups))
    reasons, late = _reasons(rollups, found), slowed_tasks(rollups, found)
    told = [
        StormReport(
            queue=queue, task=task, storm=storm, slowed=late.get(number, ()), **reasons.get(number, {})
        )
        for number, (queue, task, storm) in enumerate(found)
    ]
    sentences = tuple(sentence(one) for one in told)
    new = sum(1 for one in told if one.storm.last >= rollups.period.begin)
    answer = (
        f"{words.some(len(told), 'retry storm')} in {RECENT_DAYS} days, {new} of them in the reported week."
    )
    return _section(
        SectionState.LOOK if new else SectionState.OK,
        f"{answer} The largest: {sentences[0]}",
        findings=sentences,
        tables=(_table(told, sentences),),
        plots=tuple(_plots(rollups, told[:DRAWN])),
    )


def sentence(one: StormReport) -> str:
    """A sentence that says what happened."""
    storm = one.storm
    why = ""
    if one.reason is not None and one.share is not None:
        reason = f"{words.clean(one.error_type or '')}: {words.clean(one.reason)}"
        why = f" The reason of {words.share(one.share)} of its failures: {reason}."
    slowed = (
        f" Meanwhile others waited longer than usual: {words.list_text(one.slowed)}." if one.slowed else ""
    )
    return (
        f"{words.task_of(one.queue, one.task)}, {words.hours(storm.first, storm.last)}: "
        f"{words.some(storm.retries, 'retry', 'retries')} for {words.some(storm.jobs, 'job')}; usually "
        f"{words.number(storm.expected)}.{why}{slowed}"
    )


def _find_storms(rollups: Rollups) -> list[tuple[str, str, Storm]]:
    tasks = rollups.hours.select(
        "queue",
        "task",
        "at",
        F.col("jobs").cast("double").alias("jobs"),
        F.col("retries").cast("double").alias("retries"),
    )
    found: DataFrame = tasks.groupBy("queue", "task").applyInArrow(_judge_tasks(rollups.period.recent), FOUND)
    rows = found.orderBy((F.col("retries") - F.col("expected")).desc(), "first").limit(MOST_STORMS).collect()
    return [
        (
            row.queue,
            row.task,
            Storm(row["first"], row["last"], tuple(row.hours), row.jobs, row.retries, row.expected),
        )
        for row in rows
    ]


def _judge_tasks(begin: int) -> "Callable[[pa.Table], pa.Table]":
    def judged(table: pa.Table) -> pa.Table:
        jobs, retries = (np.asarray(table[name], dtype=np.float64) for name in ("jobs", "retries"))
        found = storms(np.asarray(table["at"], dtype=np.int64), jobs, retries, begin=begin)
        return verdicts(table, found, _ARROW)

    return judged


_ARROW = {
    "queue": pa.string(),
    "task": pa.string(),
    "first": pa.int64(),
    "last": pa.int64(),
    "hours": pa.list_(pa.int64()),
    "jobs": pa.int64(),
    "retries": pa.int64(),
    "expected": pa.float64(),
}


def _reasons(rollups: Rollups, found: Sequence[tuple[str, str, Storm]]) -> dict[int, dict[str, Any]]:
    """By the storm's number: the most frequent reason, and its share."""
    hours = [
        (number, queue, task, at) for number, (queue, task, storm) in enumerate(found) for at in storm.hours
    ]
    stormy = rollups.spark.createDataFrame(hours, "storm int, queue string, task string, at bigint")
    by_reason = (
        rollups.failures.join(F.broadcast(stormy), ["queue", "task", "at"])
        .groupBy("storm", "error_type", "reason")
        .agg(F.sum("failures").alias("failures"))
    )
    first = F.struct("failures", "error_type", "reason")
    rows = (
        by_reason.groupBy("storm").agg(F.max(first).alias("first"), F.sum("failures").alias("all")).collect()
    )
    return {
        row.storm: {
            "error_type": row["first"].error_type,
            "reason": row["first"].reason,
            "share": row["first"].failures / row["all"],
        }
        for row in rows
    }


def slowed_tasks(rollups: Rollups, found: Sequence[tuple[str, str, Storm]]) -> dict[int, tuple[str, ...]]:
    """By the storm's number: the tasks that waited longer in its hours than usual at that hour of the day."""
    hours = [
        (number, queue, task, at) for number, (queue, task, storm) in enumerate(found) for at in storm.hours
    ]
    stormy = rollups.spark.createDataFrame(hours, "storm int, of_queue string, of_task string, at bigint")
    waits = rollups.hours.where(F.col("jobs") >= FEWEST_JOBS).select(
        "queue", "task", "at", (F.col("at") % DAY).alias("time"), F.col("wait_p90").alias("wait")
    )
    then = waits.join(F.broadcast(stormy), "at").where(
        (F.col("queue") != F.col("of_queue")) | (F.col("task") != F.col("of_task"))
    )
    keys = ["queue", "task", "time"]
    usual = (
        waits.join(then.select(*keys).distinct(), keys, "left_semi")
        .groupBy(*keys)
        .agg(F.median("wait").alias("usual"))
    )
    late = (F.col("wait") >= MATTERS_WAIT_RATIO * F.col("usual")) & (
        F.col("wait") - F.col("usual") >= MATTERS_WAIT
    )
    worst = F.max(F.struct("wait", "usual")).alias("worst")
    rows = (
        then.join(usual, keys)
        .where(late)
        .groupBy("storm", "queue", "task", (F.col("queue") == F.col("of_queue")).alias("beside"))
        .agg(worst)
        .orderBy(F.col("beside").desc(), F.col("worst.wait").desc())
        .limit(MOST_STORMS * 10)
        .collect()
    )
    told: dict[int, tuple[str, ...]] = {}
    for row in rows:
        said = f"{words.task_of(row.queue, row.task)} {words.span(row.worst.wait)} instead of {words.span(row.worst.usual)}"
        told[row.storm] = (*told.get(row.storm, ()), said)
    return told


def _nothing_found(rollups: Rollups) -> tuple[SectionState, str]:
    if DAY * len(rollups.period.days) < FEWEST_HOURS:
        return (
            SectionState.UNKNOWN,
            f"Not enough days to tell: what is usual is learnt from {FEWEST_HOURS} hours or more.",
        )
    return (
        SectionState.OK,
        f"No retry storms in {RECENT_DAYS} days: no task had hours with many times its usual retries.",
    )


def _section(state: SectionState, answer: str, **more: Any) -> Section:  # noqa: ANN401 - the section's own fields
    more.setdefault("tables", (_table((), ()),))
    return Section(
        name="storms",
        title="Did retries come in storms?",
        state=state,
        answer=answer,
        compared=(
            "Retries of each task and hour with what its jobs usually need, over all weeks but the worst tenth of the "
            "hours. A storm has 20 retries or more, five times the usual, and six standard deviations more than it. A "
            "retry counts in the hour in which its job ended. Others count as slowed if one in ten of their jobs waited twice as "
            "long as usual at that hour of the day, and 5 seconds longer; in the same queue the storm is a likely "
            "cause, elsewhere only a possible one."
        ),
        advice=(
            "Fix the cause that the reason names. Then spread the retries: use a longer, growing delay with jitter, and "
            "fewer attempts. Give a task that depends on an external service its own queue, so that it does not delay others."
        ),
        **more,
    )


def _table(told: Sequence[StormReport], sentences: Sequence[str]) -> ReportTable:
    rows = tuple(
        (
            *(one.queue, one.task, one.storm.first, one.storm.last, len(one.storm.hours)),
            *(one.storm.jobs, one.storm.retries, one.storm.expected, one.error_type, one.reason, one.share),
            *("; ".join(one.slowed) or None, said),
        )
        for one, said in zip(told, sentences, strict=True)
    )
    return ReportTable(name="storms", caption="Retry storms, largest first", columns=COLUMNS, rows=rows)


def _plots(rollups: Rollups, told: Sequence[StormReport]) -> Iterable[Plot]:
    for one in told:
        begin, end = rollups.period.around(one.storm.first, one.storm.last)
        own = (F.col("queue") == one.queue) & (F.col("task") == one.task) & F.col("at").between(begin, end)
        retries = {
            row.at: float(row.retries) for row in rollups.hours.where(own).select("at", "retries").collect()
        }
        where = words.task_of(one.queue, one.task)
        yield Plot(
            title=f"{where}: retries by hour",
            says=f"Retries of {where} in the days around the storm, whose hours are marked.",
            draw=storm_hours(begin, end, retries, one.storm.hours),
        )
