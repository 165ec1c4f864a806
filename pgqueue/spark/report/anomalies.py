"""Which hours were unusual? Each task against the same weekday and hour of earlier weeks; the rule is ``rule_unusual``.

Spark runs the rule on each task's hours on the executors, and only unusual hours come back to the driver.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from pgqueue.spark.report import words
from pgqueue.spark.report.plots import usual_week
from pgqueue.spark.report.rollups import Period, Rollups, judged
from pgqueue.spark.report.rule_unusual import (
    FAILED,
    FEWEST_WEEKS,
    JOBS,
    MATTERS_JOBS,
    SILENCE,
    WAIT,
    Hours,
    UnusualHour,
    count_week,
    judge,
)
from pgqueue.spark.report.section import Plot, Question, ReportColumn, Section, SectionState, Value, ValueKind

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MOST_HOURS = 5_000
"""The most unusual hours that are sent to the driver, those with the highest scores."""

COMMON_CAUSE = 3
DRAWN = 3
FINDING = pa.schema(
    [
        ("metric", pa.string()),
        ("hour", pa.int64()),
        *((name, pa.float64()) for name in ("value", "usual", "low", "high", "score")),
        ("weeks", pa.int32()),
    ]
)
QUESTION = Question(
    name="anomalies",
    title="What was unusual?",
    compared=(
        "Each hour of each task in the reported week with the median of the same weekday and hour of former weeks: "
        "how many jobs ended, how long one in ten of them waited, which share of attempts failed, and whether a task "
        "that runs by the clock did not run. An hour counts if it is six times as far from the usual value as this "
        "task's hours normally are, and if the difference matters: 20 jobs and 30%; 5 seconds and twice; 5 "
        "percentage points and 5 attempts."
    ),
    advice=(
        "For silence, check that the enqueuer runs and that workers serve the queue. For longer waits, see the "
        "sections on crowding and capacity. For failures, see their reasons below."
    ),
    caption="Times at which a task was out of line, worst first",
    columns=(
        ReportColumn("queue", "Queue", ValueKind.TEXT),
        ReportColumn("task", "Task", ValueKind.TEXT),
        ReportColumn("first_hour", "From (UTC)", ValueKind.HOUR),
        ReportColumn("hours", "Hours", ValueKind.COUNT),
        ReportColumn("metric", "", ValueKind.TEXT),
        ReportColumn("value", "", ValueKind.NUMBER),
        ReportColumn("usual", "", ValueKind.NUMBER),
        ReportColumn("lowest", "", ValueKind.NUMBER),
        ReportColumn("highest", "", ValueKind.NUMBER),
        ReportColumn("score", "", ValueKind.NUMBER),
        ReportColumn("former_weeks", "Former weeks", ValueKind.COUNT),
        ReportColumn("last_hour", "", ValueKind.HOUR),
        ReportColumn("finding", "What happened", ValueKind.TEXT),
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """Unusual hours in a row, of one task and one kind.

    Attributes:
        queue: the task's queue.
        task: the task's name.
        first: the first hour.
        last: the last hour.
        hours: how many of them are unusual.
        peak: the hour with the highest score.
    """

    queue: str
    task: str
    first: int
    last: int
    hours: int
    peak: UnusualHour

    @property
    def better(self) -> bool:
        """Whether it is an improvement."""
        return self.peak.metric in {WAIT, FAILED} and self.peak.score < 0

    @property
    def rank(self) -> tuple[bool, float]:
        """Sorts changes for the worse first, then by score and length."""
        return self.better, -abs(self.peak.score) * self.hours**0.5


def findings(rollups: Rollups) -> "DataFrame":
    """Every unusual hour of the reported week: queue, task, and the columns of ``UnusualHour``."""
    known, start = rollups.period.known, rollups.period.start
    return judged(
        _tasks(rollups), ("queue", "task"), lambda table: judge(_hours(table), known, start), FINDING
    )


def unusual_hours(rollups: Rollups) -> list[tuple[str, str, UnusualHour]]:
    """The unusual hours with the highest scores: queue, task, finding."""
    rows = (
        findings(rollups).orderBy(F.abs("score").desc(), "hour", "queue", "task").limit(MOST_HOURS).collect()
    )
    return [(row.queue, row.task, UnusualHour(*row[2:])) for row in rows]


def section(rollups: Rollups) -> Section:
    """The answer."""
    if not _comparable(rollups.period):
        return QUESTION.answered(
            SectionState.UNKNOWN,
            f"Not enough weeks to tell: an hour is compared with the same weekday and hour of {FEWEST_WEEKS} former weeks "
            f"or more, and the lake holds {words.some(len(rollups.period.days), 'day')} up to now.",
        )
    found = unusual_hours(rollups)
    episodes = sorted(merge_hours(found), key=lambda one: one.rank)
    if not episodes:
        return QUESTION.answered(
            SectionState.OK, "No task had an hour out of line with the same weekday and hour of former weeks."
        )
    sentences = tuple(sentence(one) for one in episodes)
    bad = sum(1 for one in episodes if not one.better)
    better = f" {words.some(len(episodes) - bad, 'change')} for the better." if bad < len(episodes) else ""
    often = (
        ("Never was a task", "Once, a task was")[bad] if bad <= 1 else f"{words.count(bad)} times, a task was"
    )
    answer = f"{often} out of line with former weeks.{better}{_together(found)}"
    return QUESTION.answered(
        SectionState.LOOK if bad else SectionState.OK,
        f"{answer} First: {sentences[0]}",
        findings=sentences,
        rows=_rows(episodes, sentences),
        plots=_plots(rollups, episodes),
    )


def merge_hours(found: Iterable[tuple[str, str, UnusualHour]]) -> list[Episode]:
    """Joins consecutive unusual hours of one task and kind into episodes."""
    lines: dict[tuple[str, str, str, bool], list[UnusualHour]] = {}
    for queue, task, one in found:
        lines.setdefault((queue, task, one.metric, one.score > 0), []).append(one)
    episodes = []
    for (queue, task, *_), line in lines.items():
        run: list[UnusualHour] = []
        for one in sorted(line, key=lambda one: one.hour):
            if run and one.hour > run[-1].hour + 1:
                episodes.append(_episode(queue, task, run))
                run = []
            run.append(one)
        episodes.append(_episode(queue, task, run))
    return episodes


def sentence(one: Episode) -> str:
    """A sentence that says what happened."""
    peak, where = one.peak, words.task_of(one.queue, one.task)
    when, most = words.hours(one.first, one.last), "" if one.hours == 1 else " at the peak"
    if peak.metric == SILENCE:
        return f"{where} was silent, {when}: no job ended; usually {words.some(peak.usual, 'job')} in such an hour."
    if peak.metric == JOBS:
        more = "more" if peak.score > 0 else "fewer"
        return (
            f"{where} ended {more} jobs than usual, {when}: {words.count(peak.value)} in an hour{most}; "
            f"usually {words.count(peak.usual)}."
        )
    if peak.metric == WAIT:
        longer = "longer" if peak.score > 0 else "less"
        return (
            f"Jobs of {where} waited {longer} than usual, {when}: one in ten over {words.span(peak.value)}{most}; "
            f"usually {words.span(peak.usual)}."
        )
    often = "more" if peak.score > 0 else "less"
    return (
        f"{where} failed {often} often than usual, {when}: {words.share(peak.value)} of attempts{most}; "
        f"usually {words.share(peak.usual)}."
    )


def _episode(queue: str, task: str, run: Sequence[UnusualHour]) -> Episode:
    peak = max(run, key=lambda one: abs(one.score))
    return Episode(queue=queue, task=task, first=run[0].hour, last=run[-1].hour, hours=len(run), peak=peak)


def _comparable(period: Period) -> bool:
    """Whether any weekday of the reported week has enough earlier weeks."""
    return any(
        sum(day - 7 * week in period.days for week in range(1, period.weeks + 1)) >= FEWEST_WEEKS
        for day in period.reported
    )


def _tasks(rollups: Rollups) -> "DataFrame":
    return rollups.hours.select(
        "queue",
        "task",
        "at",
        F.col("jobs").cast("double").alias("jobs"),
        F.col("attempts").cast("double").alias("attempts"),
        (F.col("retries") + F.col("dead")).cast("double").alias("failed"),
        F.coalesce("wait_p90", F.lit(float("nan"))).alias("wait"),
    )


def _hours(table: pa.Table) -> Hours:
    jobs, attempts, failed, wait = (
        np.asarray(table[name], dtype=np.float64) for name in ("jobs", "attempts", "failed", "wait")
    )
    hour = np.asarray(table["at"], dtype=np.int64)
    return Hours(hour=hour, jobs=jobs, attempts=attempts, failed=failed, wait=wait)


def _together(found: Iterable[tuple[str, str, UnusualHour]]) -> str:
    """Return a sentence if many tasks were out of line in the same hour; else empty."""
    tasks: Counter[int] = Counter()
    for hour in {(one.hour, queue, task) for queue, task, one in found}:
        tasks[hour[0]] += 1
    hour_number, most = min(tasks.items(), key=lambda item: (-item[1], item[0]))
    if most < COMMON_CAUSE:
        return ""
    return (
        f" {words.count(most)} tasks were so at once on {words.hour(hour_number)}: look there for one cause, such as "
        "workers that were down, a slow database or a service that they all call."
    )


def _rows(episodes: Sequence[Episode], sentences: Sequence[str]) -> Iterable[tuple[Value, ...]]:
    for one, said in zip(episodes, sentences, strict=True):
        peak = one.peak
        yield (
            *(one.queue, one.task, one.first, one.hours, peak.metric, peak.value, peak.usual),
            *(peak.low, peak.high, peak.score, peak.weeks, one.last, said),
        )


def _drawable(peak: UnusualHour) -> bool:
    # One job a night makes no picture.
    return peak.metric in {JOBS, SILENCE} and max(peak.usual, peak.value) >= MATTERS_JOBS


def _plots(rollups: Rollups, episodes: Sequence[Episode]) -> Iterable[Plot]:
    period = rollups.period
    wanted = list(dict.fromkeys((one.queue, one.task) for one in episodes if _drawable(one.peak)))
    chosen = wanted[:DRAWN]
    if not chosen:
        return
    keys = rollups.spark.createDataFrame(chosen, "queue string, task string")
    rows = _tasks(rollups).join(F.broadcast(keys), ["queue", "task"]).toArrow()
    for queue, task in chosen:
        own = (np.asarray(rows["queue"]) == queue) & (np.asarray(rows["task"]) == task)
        hours = _hours(rows.filter(pa.array(own)))
        where = words.task_of(queue, task)
        marked = [
            hour
            for one in episodes
            if (one.queue, one.task) == (queue, task) and _drawable(one.peak)
            for hour in range(one.first, one.last + 1)
        ]
        yield Plot(
            title=f"{where}: jobs that ended, by hour",
            says=f"The reported week of {where} as a line, on the band of what is usual; marked where it leaves it.",
            draw=usual_week(period.begin, count_week(hours, period.known, period.start), marked),
        )
