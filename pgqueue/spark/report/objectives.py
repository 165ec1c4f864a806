"""Were the objectives met? Attainment and burn of each SLO over the reported week and over all weeks.

An *objective* is a share of jobs that succeed in time. The *burn* is the speed at which the rest, the error budget, is
spent: (1 - attained) / (1 - objective). At 1 the budget lasts exactly as long as the objective's period; at 2 it lasts
half as long (Google, "The Site Reliability Workbook", 2018, chapter 5, "Alerting on SLOs").
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812 - its usual name

from pgqueue.spark.report import words
from pgqueue.spark.report.rollups import Rollups
from pgqueue.spark.report.section import ReportColumn, ReportTable, Section, SectionState, ValueKind

if TYPE_CHECKING:
    from pyspark.sql import Row

COLUMNS = (
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
)


def section(rollups: Rollups) -> Section:
    """The answer."""
    rows = _rows(rollups)
    if not rows:
        return _section(
            SectionState.UNKNOWN,
            "No objectives are set, or no job of theirs ended in the reported week. Set one with [[slo]] in pipeline.toml, "
            "and roll up again.",
        )
    sentences = tuple(sentence(row) for row in rows)
    missed = [said for row, said in zip(rows, sentences, strict=True) if row.burn > 1]
    answer = (
        f"{len(missed)} of {words.some(len(rows), 'objective')} missed. {missed[0]}"
        if missed
        else f"All {words.some(len(rows), 'objective')} met. The closest: {sentences[0]}"
    )
    return _section(
        SectionState.LOOK if missed else SectionState.OK,
        answer,
        findings=sentences,
        tables=(_table(rows, sentences),),
    )


def sentence(row: "Row") -> str:
    """A sentence that says how an objective was kept."""
    kept = f"{words.share(row.attained)} of {words.some(row.jobs, 'job')} in queue {words.clean(row.queue)} kept it"
    worst = f", most of the misses by {words.clean(row.worst_task)}" if row.worst_missed else ""
    return (
        f"{kept} ({words.share(row.objective)} promised): the error budget is spent at {words.number(row.burn)} times "
        f"the speed at which it lasts{worst}."
    )


def _rows(rollups: Rollups) -> list["Row"]:
    now = F.col("at") >= rollups.period.begin
    by_task = (
        rollups.hours.where(F.col("slo_total") > 0)
        .groupBy("queue", F.col("slo_objective").alias("objective"), "task")
        .agg(
            F.sum(F.when(now, F.col("slo_total"))).alias("total"),
            F.sum(F.when(now, F.col("slo_good"))).alias("good"),
            F.sum(F.when(~now, F.col("slo_total"))).alias("former_total"),
            F.sum(F.when(~now, F.col("slo_good"))).alias("former_good"),
        )
    )
    task_missed = F.coalesce(F.col("total") - F.col("good"), F.lit(0))
    summed = by_task.groupBy("queue", "objective").agg(
        *(F.sum(name).alias(name) for name in ("total", "good", "former_total", "former_good")),
        F.max(F.struct(task_missed.alias("missed"), "task")).alias("worst"),
    )
    attained = F.col("good") / F.col("total")
    answer = summed.where(F.col("total") > 0).select(
        "queue",
        "objective",
        attained.alias("attained"),
        F.col("total").alias("jobs"),
        (F.col("total") - F.col("good")).alias("missed"),
        ((1 - attained) / (1 - F.col("objective"))).alias("burn"),
        F.col("worst.task").alias("worst_task"),
        F.col("worst.missed").alias("worst_missed"),
        F.when(F.col("former_total") > 0, F.col("former_good") / F.col("former_total")).alias(
            "attained_before"
        ),
    )
    return answer.orderBy(F.col("burn").desc(), "queue").collect()


def _table(rows: Sequence["Row"], sentences: Sequence[str]) -> ReportTable:
    return ReportTable(
        name="objectives",
        caption="Objectives, the one that spends its budget fastest first",
        columns=COLUMNS,
        rows=tuple((*row, said) for row, said in zip(rows, sentences, strict=True)),
    )


def _section(state: SectionState, answer: str, **more: Any) -> Section:  # noqa: ANN401 - the section's own fields
    more.setdefault("tables", (_table((), ()),))
    return Section(
        name="objectives",
        title="Were the objectives met?",
        state=state,
        answer=answer,
        compared=(
            "The share of jobs that succeeded within the promised times, in the reported week, with what is promised; "
            "cancelled jobs do not count. A burn of 1 spends the error budget (the share that may miss) exactly over the "
            "period it is meant for; 2 spends it twice as fast."
        ),
        advice=(
            "Above a burn of 1, look first at the task that missed most. Long waits: add workers or raise the priority. "
            "Long run times: see the section on deploys. Failures: see their reasons."
        ),
        **more,
    )
