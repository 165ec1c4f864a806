"""Which tenants crowd others, and what does each cost?

The first answer compares run time and waits by tenant and hour of each queue; the rule is ``rule_crowd``. The second has the run
time by tenant, at the price in ``pipeline.toml``, against the week before.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from pgqueue.spark.report import words
from pgqueue.spark.report.plots import draw_crowding
from pgqueue.spark.report.rollups import RECENT_DAYS, Rollups
from pgqueue.spark.report.rule_crowd import BIG_SHARE, FEWEST_KNOWN, Crowding, Sharing, judge
from pgqueue.spark.report.rule_expected import WEEK
from pgqueue.spark.report.section import Plot, Question, ReportColumn, Section, SectionState, Value, ValueKind

MOST = 500
DRAWN = 1
CROWDING = Question(
    name="crowding",
    title="Do tenants crowd each other?",
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
    caption="Tenants that crowded others",
    columns=(
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
    ),
)
COSTS = Question(
    name="costs",
    title="What does each tenant cost?",
    compared=(
        "Run time of last attempts in the reported week, by the tenant in each job's arguments; jobs without one are "
        "left out. The cost is the run time at the price per second that pipeline.toml gives."
    ),
    caption="Tenants, most run time first",
    columns=(
        ReportColumn("tenant", "Tenant", ValueKind.TEXT),
        ReportColumn("jobs", "Jobs", ValueKind.COUNT),
        ReportColumn("run_seconds", "Run time", ValueKind.SECONDS),
        ReportColumn("share", "Of all", ValueKind.SHARE),
        ReportColumn("cost", "Cost", ValueKind.MONEY),
        ReportColumn("run_seconds_before", "Run time the week before", ValueKind.SECONDS),
    ),
)


class CrowdingTenant(NamedTuple):
    """A tenant that crowds others in a queue."""

    queue: str
    tenant: str
    crowding: Crowding


def crowding(rollups: Rollups) -> Section:
    """Do tenants crowd each other?"""
    (tenants,) = rollups.rows("tenants_seen")
    if not tenants.tenants:
        return CROWDING.answered(
            SectionState.UNKNOWN,
            'No job has a tenant. Say in pipeline.toml where a job\'s arguments name one, such as tenant = "$.tenant", '
            "and roll up again.",
        )
    if tenants.hours < FEWEST_KNOWN:
        return CROWDING.answered(
            SectionState.UNKNOWN,
            f"Not enough to tell: jobs ended in fewer than {FEWEST_KNOWN} different hours.",
        )
    found = _crowding_tenants(rollups)
    if not found:
        counted = words.some(tenants.tenants, "tenant")
        return CROWDING.answered(
            SectionState.OK, f"No tenant crowded others in {RECENT_DAYS} days ({counted} looked at)."
        )
    sentences = tuple(_crowding_sentence(one) for one in found)
    new = any(one.crowding.hours[-1] >= rollups.period.begin for one in found)
    when = f"in {RECENT_DAYS} days" if new else "in former weeks, none in the reported week"
    return CROWDING.answered(
        SectionState.LOOK if new else SectionState.OK,
        f"{words.some(len({one.tenant for one in found}), 'tenant')} crowded others {when}. Most of all: {sentences[0]}",
        findings=sentences,
        rows=map(_row, found, sentences),
        plots=_plots(rollups, found[:DRAWN]),
    )


def _crowding_sentence(one: CrowdingTenant) -> str:
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


def sharing(
    rollups: Rollups, *, queue: str | None = None, tenant: str | None = None
) -> Iterator[tuple[str, str, Sharing]]:
    """Each queue and each tenant that ever takes half of its run time in an hour: queue, tenant, and the figures of every hour.

    Args:
        rollups: the tables.
        queue: only this queue.
        tenant: only this tenant.
    """
    values = {"queue": queue, "tenant": tenant, "big_share": BIG_SHARE}
    for (of_queue, of_tenant), hours in rollups.groups("sharing", values):
        yield of_queue, of_tenant, Sharing(**hours)


def _crowding_tenants(rollups: Rollups) -> list[CrowdingTenant]:
    found = [
        CrowdingTenant(queue, tenant, one)
        for queue, tenant, hours in sharing(rollups)
        if (one := judge(hours, begin=rollups.period.recent)) is not None
    ]
    return sorted(found, key=lambda one: (-one.crowding.cost, one.queue, one.tenant))[:MOST]


def _row(one: CrowdingTenant, said: str) -> tuple[Value, ...]:
    what = one.crowding
    return (
        *(one.tenant, one.queue, len(what.hours), what.big, what.share),
        *(what.wait, what.usual, what.others, what.cost, said),
    )


def _plots(rollups: Rollups, found: Sequence[CrowdingTenant]) -> Iterable[Plot]:
    for one in found:
        begin, end = rollups.period.around(one.crowding.hours[0], one.crowding.hours[-1])
        ((_, _, hours),) = sharing(rollups, queue=one.queue, tenant=one.tenant)
        shown = [
            (at, own, other, wait, jobs)
            for at, own, other, wait, jobs in zip(
                *(
                    values.tolist()
                    for values in (
                        hours.hour,
                        hours.own_run,
                        hours.other_run,
                        hours.other_wait,
                        hours.other_jobs,
                    )
                ),
                strict=True,
            )
            if begin <= at <= end
        ]
        who, queue = words.clean(one.tenant), words.clean(one.queue)
        yield Plot(
            title=f"Queue {queue}: what {who} took, and how long the others waited",
            says=f"The share of run time that {who} took in queue {queue}, hour by hour, over the mean wait of the others.",
            draw=draw_crowding(
                begin,
                end,
                {at: own / (own + other) for at, own, other, _, _ in shown if own + other},
                {at: wait / jobs for at, _, _, wait, jobs in shown if jobs},
                one.tenant,
            ),
        )


def costs(rollups: Rollups) -> Section:
    """What does each tenant cost?"""
    begin = rollups.period.begin
    rows = rollups.rows("tenant_costs", {"begin": begin, "week_before": begin - WEEK, "most": MOST})
    question = _question(rollups)
    if not rows:
        return question.answered(
            SectionState.UNKNOWN,
            "No job of the reported week has a tenant, so no cost can be told apart. Say in pipeline.toml where a job's "
            'arguments name one, such as tenant = "$.tenant", and roll up again.',
        )
    first = rows[0]
    counted = words.some(len(rows), "tenant") if len(rows) < MOST else f"the {MOST} largest tenants"
    total = sum(row.cost or 0.0 for row in rows)
    priced = f"{counted} together: {_price(total, rollups)}." if total else f"{counted} had jobs."
    return question.answered(
        SectionState.INFO,
        f"Most run time: {_cost_sentence(first, rollups)} {priced}",
        rows,
        findings=(_cost_sentence(row, rollups) for row in rows),
    )


def _cost_sentence(row: Any, rollups: Rollups) -> str:  # noqa: ANN401 - a row of the statement
    price = f" for {_price(row.cost, rollups)}" if row.cost is not None else ""
    return (
        f"{words.clean(row.tenant)} used {words.span(row.run_seconds)} of run time{price}, {words.share(row.share)} of all, "
        f"in {words.some(row.jobs, 'job')}."
    )


def _question(rollups: Rollups) -> Question:
    """Return the question with the currency in the heading of its column."""
    if not rollups.currency:
        return COSTS
    head = f"Cost, {words.clean(rollups.currency)}"
    columns = (one._replace(head=head) if one.name == "cost" else one for one in COSTS.columns)
    return replace(COSTS, columns=tuple(columns))


def _price(value: float, rollups: Rollups) -> str:
    return f"{value:,.2f} {words.clean(rollups.currency)}".rstrip()
