"""Which tenants crowd others? Run time and waits by tenant and hour of each queue; the rule is ``rule_crowd``."""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from pgqueue.spark.report import words
from pgqueue.spark.report.plots import draw_crowding
from pgqueue.spark.report.rollups import RECENT_DAYS, Rollups
from pgqueue.spark.report.rule_crowd import BIG_SHARE, FEWEST_KNOWN, Crowding, Sharing, judge
from pgqueue.spark.report.section import Plot, ReportColumn, ReportTable, Section, SectionState, ValueKind
from pgqueue.spark.report.verdicts import verdicts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MOST = 500
DRAWN = 1
FOUND = (
    "queue string, tenant string, hours array<bigint>, big bigint, share double, wait double, usual double, "
    "cost double, others bigint"
)
COLUMNS = (
    ReportColumn("tenant", "Tenant", ValueKind.TEXT),
    ReportColumn("queue", "Queue", ValueKind.TEXT),
    ReportColumn("hours", "Hours in which others were slowed", ValueKind.COUNT),
    ReportColumn("big_hours", "Its big hours", ValueKind.COUNT),
    ReportColumn("share", "Run time it took in them", ValueKind.SHARE),
    ReportColumn("others_wait", "Others waited", ValueKind.SECONDS),
    ReportColumn("others_usual_wait", "Usually", ValueKind.SECONDS),
    ReportColumn("others_jobs", "Jobs of others", ValueKind.COUNT),
    ReportColumn("extra_wait_seconds", "Waited longer in all", ValueKind.SECONDS),
    ReportColumn("finding", "", ValueKind.TEXT),
)


class CrowdingTenant(NamedTuple):
    """A tenant that crowds others in a queue."""

    queue: str
    tenant: str
    crowding: Crowding


def section(rollups: Rollups) -> Section:
    """The answer."""
    tenants = rollups.tenants.agg(
        F.countDistinct("tenant").alias("tenants"), F.countDistinct("at").alias("hours")
    ).first()
    if tenants is None or not tenants.tenants:
        return _section(
            SectionState.UNKNOWN,
            'No job has a tenant. Say in pipeline.toml where a job\'s arguments name one, such as tenant = "$.tenant", '
            "and roll up again.",
        )
    if tenants.hours < FEWEST_KNOWN:
        return _section(
            SectionState.UNKNOWN,
            f"Not enough to tell: jobs ended in fewer than {FEWEST_KNOWN} different hours.",
        )
    found = _crowding_tenants(rollups)
    if not found:
        counted = words.some(tenants.tenants, "tenant")
        return _section(
            SectionState.OK, f"No tenant crowded others in {RECENT_DAYS} days ({counted} looked at)."
        )
    sentences = tuple(sentence(one) for one in found)
    new = any(one.crowding.hours[-1] >= rollups.period.begin for one in found)
    when = f"in {RECENT_DAYS} days" if new else "in former weeks, none in the reported week"
    return _section(
        SectionState.LOOK if new else SectionState.OK,
        f"{words.some(len({one.tenant for one in found}), 'tenant')} crowded others {when}. Most of all: {sentences[0]}",
        findings=sentences,
        tables=(_table(found, sentences),),
        plots=tuple(_plots(rollups, found[:DRAWN])),
    )


def sentence(one: CrowdingTenant) -> str:
    """A sentence that says what happened."""
    what = one.crowding
    first = words.hour(what.hours[0])
    when = (
        f"{words.some(len(what.hours), 'hour')}, the first on {first}"
        if len(what.hours) > 1
        else f"the hour of {first}"
    )
    return (
        f"{words.clean(one.tenant)} took {words.share(what.share)} of the run time of queue {words.clean(one.queue)} in "
        f"{when}; jobs of others then waited {words.span(what.wait)} on average instead of {words.span(what.usual)}."
    )


def sharing(rollups: Rollups) -> "DataFrame":
    """Every hour of each queue and each tenant that ever takes half of its run time: the tenant's and the others' figures."""
    by_hour = rollups.tenants.groupBy("queue", "at").agg(
        F.sum("run_seconds").alias("all_run"),
        F.sum("jobs").alias("all_jobs"),
        F.sum("wait_seconds").alias("all_wait"),
    )
    joined = rollups.tenants.join(by_hour, ["queue", "at"])
    leads = (
        F.col("tenant").isNotNull()
        & (F.col("run_seconds") > 0)
        & (F.col("run_seconds") >= BIG_SHARE * F.col("all_run"))
    )
    leaders = joined.where(leads).select("queue", "tenant").distinct()
    own = rollups.tenants.select(
        "queue",
        "at",
        "tenant",
        F.col("run_seconds").alias("run"),
        F.col("jobs").alias("own"),
        F.col("wait_seconds").alias("wait"),
    )
    every = by_hour.join(F.broadcast(leaders), "queue").join(own, ["queue", "at", "tenant"], "left")
    run, jobs, wait = (F.coalesce(name, F.lit(0)) for name in ("run", "own", "wait"))
    return every.select(
        "queue",
        "tenant",
        "at",
        run.cast("double").alias("own_run"),
        F.greatest(F.col("all_run") - run, F.lit(0.0)).alias("other_run"),
        (F.col("all_jobs") - jobs).cast("double").alias("other_jobs"),
        F.greatest(F.col("all_wait") - wait, F.lit(0.0)).alias("other_wait"),
    )


def _crowding_tenants(rollups: Rollups) -> list[CrowdingTenant]:
    judged = (
        sharing(rollups).groupBy("queue", "tenant").applyInArrow(_judge_tenants(rollups.period.recent), FOUND)
    )
    rows = judged.orderBy(F.col("cost").desc(), "queue", "tenant").limit(MOST).collect()
    return [CrowdingTenant(row.queue, row.tenant, Crowding(tuple(row.hours), *row[3:])) for row in rows]


def _judge_tenants(begin: int) -> "Callable[[pa.Table], pa.Table]":
    def judged(table: pa.Table) -> pa.Table:
        hour = np.asarray(table["at"], dtype=np.int64)
        names = ("own_run", "other_run", "other_jobs", "other_wait")
        run, other, jobs, wait = (np.asarray(table[name], dtype=np.float64) for name in names)
        one = judge(
            Sharing(hour=hour, own_run=run, other_run=other, other_jobs=jobs, other_wait=wait), begin=begin
        )
        return verdicts(table, [one] if one else [], _ARROW)

    return judged


_ARROW = {
    "queue": pa.string(),
    "tenant": pa.string(),
    "hours": pa.list_(pa.int64()),
    "big": pa.int64(),
    "share": pa.float64(),
    "wait": pa.float64(),
    "usual": pa.float64(),
    "cost": pa.float64(),
    "others": pa.int64(),
}


def _section(state: SectionState, answer: str, **more: Any) -> Section:  # noqa: ANN401 - the section's own fields
    more.setdefault("tables", (_table((), ()),))
    return Section(
        name="crowding",
        title="Do tenants crowd each other?",
        state=state,
        answer=answer,
        compared=(
            "Hours of the last 28 days in which one tenant took at least half of a queue's run time, and twice what it "
            "usually takes at that hour of the day. The others' mean wait in them is compared with the usual wait at "
            "the same hour of the day. A tenant is named if others were slowed (twice the wait, and 5 seconds) in three "
            "such hours (or in fewer, if ten times), in half of them, and three times as often as in other hours; hours in which the others brought "
            "1.5 times their usual work are left out. This shows what happened together; it does not prove why."
        ),
        advice=(
            "Give the tenant's large batches a lower priority or a separate queue, or enqueue them in slices. Add "
            "workers if all tenants must be served at once."
        ),
        **more,
    )


def _table(found: Sequence[CrowdingTenant], sentences: Sequence[str]) -> ReportTable:
    rows = tuple(
        (
            *(one.tenant, one.queue, len(one.crowding.hours), one.crowding.big, one.crowding.share),
            *(one.crowding.wait, one.crowding.usual, one.crowding.others, one.crowding.cost, said),
        )
        for one, said in zip(found, sentences, strict=True)
    )
    return ReportTable(name="crowding", caption="Tenants that crowded others", columns=COLUMNS, rows=rows)


def _plots(rollups: Rollups, found: Sequence[CrowdingTenant]) -> Iterable[Plot]:
    for one in found:
        begin, end = rollups.period.around(one.crowding.hours[0], one.crowding.hours[-1])
        own = (
            (F.col("queue") == one.queue)
            & (F.col("tenant") == one.tenant)
            & (F.col("at").between(begin, end))
        )
        rows = sharing(rollups).where(own).collect()
        who, queue = words.clean(one.tenant), words.clean(one.queue)
        yield Plot(
            title=f"Queue {queue}: what {who} took, and how long the others waited",
            says=f"The share of run time that {who} took in queue {queue}, hour by hour, over the mean wait of the others.",
            draw=draw_crowding(
                begin,
                end,
                {
                    row.at: row.own_run / (row.own_run + row.other_run)
                    for row in rows
                    if row.own_run + row.other_run
                },
                {row.at: row.other_wait / row.other_jobs for row in rows if row.other_jobs},
                one.tenant,
            ),
        )
