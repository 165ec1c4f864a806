"""Why do jobs fail? The reasons of most failed attempts of the reported week, and which of them are new."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812 - its usual name

from pgqueue.spark.report import words
from pgqueue.spark.report.rollups import WEEK_DAYS, Rollups
from pgqueue.spark.report.section import ReportColumn, ReportTable, Section, SectionState, ValueKind

if TYPE_CHECKING:
    from pyspark.sql import Row

MOST = 500
NEW_SHARE = 0.05
COLUMNS = (
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
)


def section(rollups: Rollups) -> Section:
    """The answer."""
    rows = _rows(rollups)
    if not rows:
        return _section(SectionState.OK, "No attempt failed in the reported week.")
    first = rows[0]
    new = [row for row in rows if row.news == "new" and row.share >= NEW_SHARE]
    said = f" New this week: {sentence(new[0])}" if new and new[0] is not first else ""
    return _section(
        SectionState.LOOK if new else SectionState.OK,
        f"Most often: {sentence(first)}{said}",
        findings=tuple(sentence(row) for row in rows),
        tables=(_table(rows),),
    )


def sentence(row: "Row") -> str:
    """A sentence about a reason."""
    dead = f", {words.some(row.dead, 'job')} dead of it" if row.dead else ""
    news = "; it was never seen in former weeks" if row.news == "new" else ""
    return (
        f"{words.clean(row.error_type)}: {words.clean(row.reason)} in {words.task_of(row.queue, row.task)}, "
        f"{words.some(row.failures, 'failed attempt')}{dead} ({words.share(row.share)} of all){news}."
    )


def _rows(rollups: Rollups) -> list["Row"]:
    now = F.col("at") >= rollups.period.begin
    former_days = len(rollups.period.days) - len(rollups.period.reported)
    keys = ["queue", "task", "error_type", "reason"]
    by_reason = rollups.failures.groupBy(*keys).agg(
        F.coalesce(F.sum(F.when(now, F.col("failures"))), F.lit(0)).alias("failures"),
        F.coalesce(F.sum(F.when(now, F.col("dead"))), F.lit(0)).alias("dead"),
        F.coalesce(F.sum(F.when(~now, F.col("failures"))), F.lit(0)).alias("former"),
        F.max_by("sample", F.struct(now, "at")).alias("sample"),
    )
    total = by_reason.agg(F.sum("failures").alias("all"))
    a_week = F.col("former") * (WEEK_DAYS / former_days) if former_days else F.lit(None).cast("double")
    new = F.when((F.col("former") == 0) & F.lit(former_days >= WEEK_DAYS), F.lit("new"))
    answer = by_reason.where(F.col("failures") > 0).crossJoin(F.broadcast(total))
    return (
        answer.select(
            *keys,
            "failures",
            (F.col("failures") / F.col("all")).alias("share"),
            "dead",
            a_week.alias("former_week"),
            new.alias("news"),
            "sample",
        )
        .orderBy(F.col("failures").desc(), *keys)
        .limit(MOST)
        .collect()
    )


def _table(rows: Sequence["Row"]) -> ReportTable:
    caption = "Reasons for failed attempts, most frequent first"
    return ReportTable(
        name="failures", caption=caption, columns=COLUMNS, rows=tuple(tuple(row) for row in rows)
    )


def _section(state: SectionState, answer: str, **more: Any) -> Section:  # noqa: ANN401 - the section's own fields
    more.setdefault("tables", (_table(()),))
    return Section(
        name="failures",
        title="Why do jobs fail?",
        state=state,
        answer=answer,
        compared=(
            "Failed attempts of jobs that ended in the reported week, grouped by task, error and message; numbers, "
            "identifiers and quoted text in messages are replaced first, so that one cause counts as one reason. Beside "
            "it, how often the same reason was seen in an earlier week on average."
        ),
        advice=(
            "First fix reasons that are new and reasons that make jobs dead. `pgqueue dead list` shows the jobs with their tracebacks; "
            "`pgqueue dead retry` runs them again."
        ),
        **more,
    )
