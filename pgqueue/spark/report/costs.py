"""What does each tenant cost? Run time by tenant, at the price in ``pipeline.toml``, against the week before."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812 - its usual name

from pgqueue.spark.report import words
from pgqueue.spark.report.rollups import Rollups
from pgqueue.spark.report.rule_unusual import WEEK
from pgqueue.spark.report.section import ReportColumn, ReportTable, Section, SectionState, ValueKind

if TYPE_CHECKING:
    from pyspark.sql import Row

MOST = 500


def section(rollups: Rollups) -> Section:
    """The answer."""
    rows = _rows(rollups)
    if not rows:
        return _section(
            SectionState.UNKNOWN,
            "No job of the reported week has a tenant, so no cost can be told apart. Say in pipeline.toml where a job's "
            'arguments name one, such as tenant = "$.tenant", and roll up again.',
        )
    first = rows[0]
    counted = words.some(len(rows), "tenant") if len(rows) < MOST else f"the {MOST} largest tenants"
    total = sum(row.cost or 0.0 for row in rows)
    priced = f"{counted} together: {_price(total, rollups)}." if total else f"{counted} had jobs."
    return _section(
        SectionState.INFO,
        f"Most run time: {sentence(first, rollups)} {priced}",
        findings=tuple(sentence(row, rollups) for row in rows),
        tables=(_table(rows, rollups.currency),),
    )


def sentence(row: "Row", rollups: Rollups) -> str:
    """A sentence that says what a tenant used."""
    price = f" for {_price(row.cost, rollups)}" if row.cost is not None else ""
    return (
        f"{words.clean(row.tenant)} used {words.span(row.run_seconds)} of run time{price}, {words.share(row.share)} of all, "
        f"in {words.some(row.jobs, 'job')}."
    )


def _price(value: float, rollups: Rollups) -> str:
    return f"{value:,.2f} {words.clean(rollups.currency)}".rstrip()


def _rows(rollups: Rollups) -> list["Row"]:
    begin = rollups.period.begin
    now = F.col("at") >= begin
    before = (F.col("at") < begin) & (F.col("at") >= begin - WEEK)
    by_tenant = (
        rollups.tenants.where(F.col("tenant").isNotNull())
        .groupBy("tenant")
        .agg(
            F.sum(F.when(now, F.col("jobs"))).alias("jobs"),
            F.sum(F.when(now, F.col("run_seconds"))).alias("run_seconds"),
            F.sum(F.when(now, F.col("cost"))).alias("cost"),
            F.sum(F.when(before, F.col("run_seconds"))).alias("run_seconds_before"),
        )
    )
    total = by_tenant.agg(F.sum("run_seconds").alias("all"))
    share = F.when(F.col("all") > 0, F.col("run_seconds") / F.col("all"))
    return (
        by_tenant.where(F.col("jobs") > 0)
        .crossJoin(F.broadcast(total))
        .select("tenant", "jobs", "run_seconds", share.alias("share"), "cost", "run_seconds_before")
        .orderBy(F.col("run_seconds").desc(), "tenant")
        .limit(MOST)
        .collect()
    )


def _table(rows: Sequence["Row"], currency: str = "") -> ReportTable:
    currency = words.clean(currency)
    columns = (
        ReportColumn("tenant", "Tenant", ValueKind.TEXT),
        ReportColumn("jobs", "Jobs", ValueKind.COUNT),
        ReportColumn("run_seconds", "Run time", ValueKind.SECONDS),
        ReportColumn("share", "Of all", ValueKind.SHARE),
        ReportColumn("cost", f"Cost, {currency}" if currency else "Cost", ValueKind.MONEY),
        ReportColumn("run_seconds_before", "Run time the week before", ValueKind.SECONDS),
    )
    return ReportTable(
        name="costs",
        caption="Tenants, most run time first",
        columns=columns,
        rows=tuple(tuple(row) for row in rows),
    )


def _section(state: SectionState, answer: str, **more: Any) -> Section:  # noqa: ANN401 - the section's own fields
    more.setdefault("tables", (_table(()),))
    return Section(
        name="costs",
        title="What does each tenant cost?",
        state=state,
        answer=answer,
        compared=(
            "Run time of last attempts in the reported week, by the tenant in each job's arguments; jobs without one are "
            "left out. The cost is the run time at the price per second that pipeline.toml gives."
        ),
        **more,
    )
