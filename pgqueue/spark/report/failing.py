"""Why do jobs fail, and did retries come in storms?

The first answer has the reasons of most failed attempts of the reported week, and which of them are new. The second compares a
task's retries with their usual number; the rule is ``rule_burst``. A retry counts in the hour in which its job ended, like all
figures of the roll-ups.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from pgqueue.spark.report import rule_burst, words
from pgqueue.spark.report.plots import storm_hours
from pgqueue.spark.report.rollups import DAY, RECENT_DAYS, WEEK_DAYS, Rollups
from pgqueue.spark.report.rule_burst import FEWEST_HOURS, Storm
from pgqueue.spark.report.rule_unusual import FEWEST_JOBS, MATTERS_WAIT, MATTERS_WAIT_RATIO
from pgqueue.spark.report.section import Plot, Question, ReportColumn, Section, SectionState, Value, ValueKind

MOST = 500
NEW_SHARE = 0.05
DRAWN = 1
STORMY = pa.schema(
    [("storm", pa.int32()), ("queue", pa.string()), ("task", pa.string()), ("hour", pa.int64())]
)
FAILURES = Question(
    name="failures",
    title="Why do jobs fail?",
    compared=(
        "Failed attempts of jobs that ended in the reported week, grouped by task, error and message; numbers, "
        "identifiers and quoted text in messages are replaced first, so that one cause counts as one reason. Beside "
        "it, how often the same reason was seen in an earlier week on average."
    ),
    advice=(
        "First fix reasons that are new and reasons that make jobs dead. `pgqueue dead list` shows the jobs with their tracebacks; "
        "`pgqueue dead retry` runs them again."
    ),
    caption="Reasons for failed attempts, most frequent first",
    columns=(
        ReportColumn("queue", "Queue", ValueKind.TEXT),
        ReportColumn("task", "Task", ValueKind.TEXT),
        ReportColumn("error_type", "Error", ValueKind.TEXT),
        ReportColumn("reason", "Reason", ValueKind.TEXT),
        ReportColumn("failures", "Failed attempts", ValueKind.COUNT),
        ReportColumn("share", "Of all", ValueKind.SHARE),
        ReportColumn("dead", "Jobs dead", ValueKind.COUNT),
        ReportColumn("former_week", "In a former week", ValueKind.NUMBER),
        ReportColumn("news", "", ValueKind.TEXT),
        ReportColumn("sample", "For example", ValueKind.TEXT),
    ),
)
STORMS = Question(
    name="storms",
    title="Did retries come in storms?",
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
    caption="Retry storms, largest first",
    columns=(
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
    ),
)


def failures(rollups: Rollups) -> Section:
    """Why do jobs fail?"""
    rows = _reasons(rollups)
    if not rows:
        return FAILURES.answered(SectionState.OK, "No attempt failed in the reported week.")
    first = rows[0]
    new = [row for row in rows if row.news == "new" and row.share >= NEW_SHARE]
    said = f" New this week: {_reason_sentence(new[0])}" if new and new[0] is not first else ""
    return FAILURES.answered(
        SectionState.LOOK if new else SectionState.OK,
        f"Most often: {_reason_sentence(first)}{said}",
        rows,
        findings=map(_reason_sentence, rows),
    )


def _reason_sentence(row: Any) -> str:  # noqa: ANN401 - a row of the statement
    dead = f", {words.some(row.dead, 'job')} dead of it" if row.dead else ""
    news = "; it was never seen in former weeks" if row.news == "new" else ""
    return (
        f"{words.clean(row.error_type)}: {words.clean(row.reason)} in {words.task_of(row.queue, row.task)}, "
        f"{words.some(row.failures, 'failed attempt')}{dead} ({words.share(row.share)} of all){news}."
    )


def _reasons(rollups: Rollups) -> list[Any]:
    former_days = len(rollups.period.days) - len(rollups.period.reported)
    values = {
        "begin": rollups.period.begin,
        "former_weeks": WEEK_DAYS / former_days if former_days else None,
        "knows_former": former_days >= WEEK_DAYS,
        "most": MOST,
    }
    return rollups.rows("reasons", values)


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


def storms(rollups: Rollups) -> Section:
    """Did retries come in storms?"""
    found = _find_storms(rollups)
    if not found:
        return STORMS.answered(*_nothing_found(rollups))
    reasons, late = _storm_reasons(rollups, found), _slowed_tasks(rollups, found)
    told = [
        StormReport(
            queue=queue, task=task, storm=storm, slowed=late.get(number, ()), **reasons.get(number, {})
        )
        for number, (queue, task, storm) in enumerate(found)
    ]
    sentences = tuple(_storm_sentence(one) for one in told)
    new = sum(1 for one in told if one.storm.last >= rollups.period.begin)
    answer = (
        f"{words.some(len(told), 'retry storm')} in {RECENT_DAYS} days, {new} of them in the reported week."
    )
    return STORMS.answered(
        SectionState.LOOK if new else SectionState.OK,
        f"{answer} The largest: {sentences[0]}",
        findings=sentences,
        rows=map(_row, told, sentences),
        plots=_plots(rollups, told[:DRAWN]),
    )


def _storm_sentence(one: StormReport) -> str:
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
    found = [
        (queue, task, storm)
        for (queue, task), hours in rollups.groups("task_hours")
        for storm in rule_burst.storms(
            hours["hour"], hours["jobs"], hours["retries"], begin=rollups.period.recent
        )
    ]
    return sorted(found, key=lambda one: (one[2].expected - one[2].retries, one[2].first, *one[:2]))[:MOST]


def _storm_reasons(rollups: Rollups, found: Sequence[tuple[str, str, Storm]]) -> dict[int, dict[str, Any]]:
    """By the storm's number: the most frequent reason, and its share."""
    return {
        row.storm: {
            "error_type": row.most["error_type"],
            "reason": row.most["reason"],
            "share": row.share,
        }
        for row in rollups.rows("storm_reasons", stormy=_hours(found))
    }


def _slowed_tasks(rollups: Rollups, found: Sequence[tuple[str, str, Storm]]) -> dict[int, tuple[str, ...]]:
    """By the storm's number: the tasks that waited longer in its hours than usual at that hour of the day."""
    values = {
        "fewest_jobs": FEWEST_JOBS,
        "ratio": MATTERS_WAIT_RATIO,
        "seconds": MATTERS_WAIT,
        "most": MOST * 10,
    }
    told: dict[int, tuple[str, ...]] = {}
    for row in rollups.rows("slowed_tasks", values, stormy=_hours(found)):
        wait, usual = words.span(row.worst["wait"]), words.span(row.worst["usual"])
        said = f"{words.task_of(row.queue, row.task)} {wait} instead of {usual}"
        told[row.storm] = (*told.get(row.storm, ()), said)
    return told


def _hours(found: Sequence[tuple[str, str, Storm]]) -> pa.Table:
    """The stormy hours, with the storms' numbers."""
    rows = [
        {"storm": number, "queue": queue, "task": task, "hour": hour}
        for number, (queue, task, storm) in enumerate(found)
        for hour in storm.hours
    ]
    return pa.Table.from_pylist(rows, STORMY)


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


def _row(one: StormReport, said: str) -> tuple[Value, ...]:
    storm = one.storm
    return (
        *(one.queue, one.task, storm.first, storm.last, len(storm.hours)),
        *(storm.jobs, storm.retries, storm.expected, one.error_type, one.reason, one.share),
        *("; ".join(one.slowed) or None, said),
    )


def _plots(rollups: Rollups, told: Sequence[StormReport]) -> Iterable[Plot]:
    for one in told:
        begin, end = rollups.period.around(one.storm.first, one.storm.last)
        own = {"queue": one.queue, "task": one.task, "first": begin, "last": end}
        retries = {row.hour: row.retries for row in rollups.rows("retries", own)}
        where = words.task_of(one.queue, one.task)
        yield Plot(
            title=f"{where}: retries by hour",
            says=f"Retries of {where} in the days around the storm, whose hours are marked.",
            draw=storm_hours(begin, end, retries, one.storm.hours),
        )
