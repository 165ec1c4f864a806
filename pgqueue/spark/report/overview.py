"""What happened, by queue, and were the objectives met?

An *objective* is a share of jobs that succeed in time. The *burn* is the speed at which the rest, the error budget, is
spent: (1 - attained) / (1 - objective). At 1 the budget lasts exactly as long as the objective's period; at 2 it lasts
half as long (Google, "The Site Reliability Workbook", 2018, chapter 5, "Alerting on SLOs").
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from pgqueue.spark.report import words
from pgqueue.spark.report.plots import hourly
from pgqueue.spark.report.rollups import WEEK_DAYS, Rollups
from pgqueue.spark.report.section import Plot, Question, ReportColumn, Section, SectionState, ValueKind
from pgqueue.spark.rollup.in_duckdb import quantiles_of

MOST = 500
DRAWN = 5
OTHERS = "all others"
RANKS = (0.5, 0.9, 0.99)
OVERVIEW = Question(
    name="overview",
    title="What happened?",
    compared=(
        "All jobs that ended in the reported week. A job waits from when it was due until its last attempt starts, and "
        "runs from then until it ends. Percentiles come from sketches, off by at most 1.33% of the ranks."
    ),
    caption="Queues in the reported week, busiest first",
    columns=(
        ReportColumn("queue", "Queue", ValueKind.TEXT),
        ReportColumn("jobs", "Jobs", ValueKind.COUNT),
        ReportColumn("succeeded", "Succeeded", ValueKind.SHARE),
        ReportColumn("cancelled", "Cancelled", ValueKind.COUNT),
        ReportColumn("dead", "Dead", ValueKind.COUNT),
        ReportColumn("retries", "Retries", ValueKind.COUNT),
        ReportColumn("wait_p50", "Half waited over", ValueKind.SECONDS),
        ReportColumn("wait_p90", "1 in 10 waited over", ValueKind.SECONDS),
        ReportColumn("wait_p99", "1 in 100 waited over", ValueKind.SECONDS),
        ReportColumn("run_p50", "Half ran over", ValueKind.SECONDS),
        ReportColumn("run_p90", "1 in 10 ran over", ValueKind.SECONDS),
        ReportColumn("run_p99", "1 in 100 ran over", ValueKind.SECONDS),
        ReportColumn("jobs_former_week", "Jobs in a former week", ValueKind.COUNT),
    ),
)
OBJECTIVES = Question(
    name="objectives",
    title="Were the objectives met?",
    compared=(
        "The share of jobs that succeeded within the promised times, in the reported week, with what is promised; "
        "cancelled jobs do not count. A burn of 1 spends the error budget (the share that may miss) exactly over the "
        "period it is meant for; 2 spends it twice as fast."
    ),
    advice=(
        "Above a burn of 1, look first at the task that missed most. Long waits: add workers or raise the priority. "
        "Long run times: see the section on deploys. Failures: see their reasons."
    ),
    caption="Objectives, the one that spends its budget fastest first",
    columns=(
        ReportColumn("queue", "Queue", ValueKind.TEXT),
        ReportColumn("objective", "Promised", ValueKind.SHARE),
        ReportColumn("attained", "Kept in the week", ValueKind.SHARE),
        ReportColumn("jobs", "Jobs", ValueKind.COUNT),
        ReportColumn("missed", "Missed", ValueKind.COUNT),
        ReportColumn("burn", "Burn", ValueKind.NUMBER),
        ReportColumn("worst_task", "Task that missed most", ValueKind.TEXT),
        ReportColumn("worst_missed", "of which it missed", ValueKind.COUNT),
        ReportColumn("attained_before", "Kept in former weeks", ValueKind.SHARE),
        ReportColumn("finding", "", ValueKind.TEXT),
    ),
)


def overview(rollups: Rollups) -> Section:
    """What happened?"""
    rows = _queues(rollups)
    days = words.some(len(rollups.period.reported), "day")
    if not rows:
        return OVERVIEW.answered(SectionState.INFO, f"No job ended in the {days} reported on.")
    jobs, dead, retries = (sum(getattr(row, name) for row in rows) for name in ("jobs", "dead", "retries"))
    first, waits, runs = rows[0], _quantiles(rollups, "wait_sketch"), _quantiles(rollups, "run_sketch")
    answer = (
        f"{words.some(jobs, 'job')} ended in {days}, {words.some(dead, 'of them', 'of them')} dead, with "
        f"{words.some(retries, 'retry', 'retries')}. The busiest queue, {words.clean(first.queue)}, had "
        f"{words.share(first.jobs / jobs)} of the jobs; half of them waited less than {words.span(waits[first.queue][0])}."
    )
    if len(rollups.period.reported) < WEEK_DAYS:
        answer += f" The lake holds only {days} of this week."
    cells = (
        (
            *(row.queue, row.jobs, row.succeeded / row.jobs, row.cancelled, row.dead, row.retries),
            *(waits[row.queue] + runs[row.queue]),
            row.former,
        )
        for row in rows
    )
    return OVERVIEW.answered(SectionState.INFO, answer, cells, plots=[_plot(rollups, rows)])


def _queues(rollups: Rollups) -> list[Any]:
    former_days = len(rollups.period.days) - len(rollups.period.reported)
    values = {
        "begin": rollups.period.begin,
        "former_weeks": WEEK_DAYS / former_days if former_days else None,
        "most": MOST,
    }
    return rollups.rows("queues", values)


def _quantiles(rollups: Rollups, column: str) -> Mapping[str, tuple[float | None, ...]]:
    """The values of RANKS in the reported week, by queue."""
    merged = rollups.merged(column, ("queue",), rollups.period.begin, rollups.period.end)
    found = {queue: tuple(quantiles_of(sketch, RANKS)) for (queue,), sketch in merged.items()}
    return defaultdict(lambda: (None,) * len(RANKS), found)


def _plot(rollups: Rollups, rows: Sequence[Any]) -> Plot:
    period, drawn = rollups.period, [row.queue for row in rows[:DRAWN]]
    lines: dict[str, dict[int, float]] = {name: {} for name in drawn}
    for row in rollups.rows("jobs_by_hour", {"begin": period.begin, "queues": drawn, "others": OTHERS}):
        lines.setdefault(row.label, {})[row.hour] = row.jobs
    return Plot(
        title="Jobs that ended, by hour",
        says="A line for each of the busiest queues: how many of its jobs ended in each hour of the reported week.",
        draw=hourly(period.begin, period.end, lines, "jobs an hour"),
    )


def objectives(rollups: Rollups) -> Section:
    """Were the objectives met?"""
    rows = rollups.rows("objectives", {"begin": rollups.period.begin})
    if not rows:
        return OBJECTIVES.answered(
            SectionState.UNKNOWN,
            "No objectives are set, or no job of theirs ended in the reported week. Set one with [[slo]] in pipeline.toml, "
            "and roll up again.",
        )
    sentences = tuple(_objective_sentence(row) for row in rows)
    missed = [said for row, said in zip(rows, sentences, strict=True) if row.burn > 1]
    answer = (
        f"{len(missed)} of {words.some(len(rows), 'objective')} missed. {missed[0]}"
        if missed
        else f"All {words.some(len(rows), 'objective')} met. The closest: {sentences[0]}"
    )
    return OBJECTIVES.answered(
        SectionState.LOOK if missed else SectionState.OK,
        answer,
        ((*row, said) for row, said in zip(rows, sentences, strict=True)),
        findings=sentences,
    )


def _objective_sentence(row: Any) -> str:  # noqa: ANN401 - a row of the statement
    kept = f"{words.share(row.attained)} of {words.some(row.jobs, 'job')} in queue {words.clean(row.queue)} kept it"
    worst = f", most of the misses by {words.clean(row.worst_task)}" if row.worst_missed else ""
    return (
        f"{kept} ({words.share(row.objective)} promised): the error budget is spent at {words.number(row.burn)} times "
        f"the speed at which it lasts{worst}."
    )
