"""What happened? Jobs, waits and run times of each queue in the reported week."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812 - its usual name

from pgqueue.spark.report import words
from pgqueue.spark.report.plots import hourly
from pgqueue.spark.report.rollups import WEEK_DAYS, Rollups
from pgqueue.spark.report.section import Plot, ReportColumn, ReportTable, Section, SectionState, ValueKind

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

MOST = 500
DRAWN = 5
OTHERS = "all others"
RANKS = (0.5, 0.9, 0.99)
COLUMNS = (
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
)


def section(rollups: Rollups) -> Section:
    """The answer."""
    rows = _rows(rollups)
    days = words.some(len(rollups.period.reported), "day")
    if not rows:
        return _section(SectionState.INFO, f"No job ended in the {days} reported on.")
    jobs, dead, retries = (sum(row[name] for row in rows) for name in ("jobs", "dead", "retries"))
    first = rows[0]
    answer = (
        f"{words.some(jobs, 'job')} ended in {days}, {words.some(dead, 'of them', 'of them')} dead, with "
        f"{words.some(retries, 'retry', 'retries')}. The busiest queue, {words.clean(first.queue)}, had "
        f"{words.share(first.jobs / jobs)} of the jobs; half of them waited less than {words.span(first.wait_p50)}."
    )
    if len(rollups.period.reported) < WEEK_DAYS:
        answer += f" The lake holds only {days} of this week."
    return _section(SectionState.INFO, answer, tables=(_table(rows),), plots=(_plot(rollups, rows),))


def _rows(rollups: Rollups) -> list["Row"]:
    begin = rollups.period.begin
    former_days = len(rollups.period.days) - len(rollups.period.reported)
    now = rollups.hours.where(F.col("at") >= begin)
    counts = ("jobs", "succeeded", "cancelled", "dead", "retries")
    by_queue = now.groupBy("queue").agg(
        *(F.sum(name).alias(name) for name in counts),
        *(_merge_sketches(f"{what}_sketch") for what in ("wait", "run")),
    )
    former = rollups.hours.where(F.col("at") < begin).groupBy("queue").agg(F.sum("jobs").alias("former"))
    a_week = F.col("former") * (WEEK_DAYS / former_days) if former_days else F.lit(None)
    return (
        by_queue.join(former, "queue", "left")
        .select(
            "queue",
            *counts,
            *(_quantile(what, rank) for what in ("wait", "run") for rank in RANKS),
            a_week.cast("double").alias("former"),
        )
        .orderBy(F.col("jobs").desc(), "queue")
        .limit(MOST)
        .collect()
    )


def _merge_sketches(sketch: str) -> Any:  # noqa: ANN401 - a Column, of which Spark has two kinds
    return F.when(F.count(sketch) > 0, F.kll_merge_agg_double(sketch)).alias(sketch)


def _quantile(what: str, rank: float) -> Any:  # noqa: ANN401 - a Column has two kinds
    sketch = F.col(f"{what}_sketch")
    value = F.when(sketch.isNotNull(), F.kll_sketch_get_quantile_double(sketch, F.lit(rank)))
    return value.alias(f"{what}_p{rank * 100:.0f}")


def _table(rows: Sequence["Row"]) -> ReportTable:
    return ReportTable(
        name="overview",
        caption="Queues in the reported week, busiest first",
        columns=COLUMNS,
        rows=tuple(
            (row.queue, row.jobs, row.succeeded / row.jobs, row.cancelled, row.dead, row.retries, *row[6:])
            for row in rows
        ),
    )


def _plot(rollups: Rollups, rows: Sequence["Row"]) -> Plot:
    period, drawn = rollups.period, [row.queue for row in rows[:DRAWN]]
    label = F.when(F.col("queue").isin(drawn), F.col("queue")).otherwise(OTHERS)
    by_hour: DataFrame = (
        rollups.hours.where(F.col("at") >= period.begin)
        .groupBy(label.alias("label"), "at")
        .agg(F.sum("jobs").alias("jobs"))
    )
    lines: dict[str, dict[int, float]] = {name: {} for name in drawn}
    for row in by_hour.collect():
        lines.setdefault(row.label, {})[row.at] = row.jobs
    return Plot(
        title="Jobs that ended, by hour",
        says="A line for each of the busiest queues: how many of its jobs ended in each hour of the reported week.",
        draw=hourly(period.begin, period.end, lines, "jobs an hour"),
    )


def _section(state: SectionState, answer: str, **more: Any) -> Section:  # noqa: ANN401 - the section's own fields
    more.setdefault("tables", (_table(()),))
    return Section(
        name="overview",
        title="What happened?",
        state=state,
        answer=answer,
        compared=(
            "All jobs that ended in the reported week. A job waits from when it was due until its last attempt starts, and "
            "runs from then until it ends. Percentiles come from sketches, off by at most 1.33% of the ranks."
        ),
        **more,
    )
