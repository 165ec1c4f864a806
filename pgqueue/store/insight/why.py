"""The plan that finds why a job does not run.

One statement finds what decides for most jobs. A job under limits, in a flow, or behind more jobs than are counted takes one or
two more, and so does one that nothing keeps from its start. Between them the job may have started, ended, or gone: a
statement that finds nothing adds nothing.
How the facts are said is decided in :mod:`pgqueue.values.insight.why`.
"""

from collections.abc import Sequence
from datetime import datetime

from msgspec.structs import replace

from pgqueue.store.plan import Row, Statement, Steps, plan
from pgqueue.store.queues.queues import SAMPLED_PAGES, WHOLE_PAGES
from pgqueue.values.insight.why import Why, explain, is_free
from pgqueue.values.insight.why_facts import MOST_AHEAD, HeldPlace, LimitFacts, NodeFacts, WhyFacts, opens_in
from pgqueue.values.queues.standing import WHOLE, share

NODE = "node:"
"""What a job of a flow waits for begins with this."""


@plan(reads=True)
def why(job_id: int, *, now: datetime | None = None) -> Steps[Why]:
    """Why a job does not run.

    Args:
        job_id: the job's id.
        now: the time; by default the database's clock.
    """
    rows = yield Statement("insight/why", {"id": job_id, "most_ahead": MOST_AHEAD, "now": now})
    if not rows:
        return explain(job_id, None)
    facts = WhyFacts(*rows[0])
    if facts.in_lane or facts.limited_queue:
        facts = _with_limits(
            facts, (yield Statement("insight/why_limits", {"id": job_id, "most": MOST_AHEAD}))
        )
    if any(name.startswith(NODE) for name in facts.waits_for or ()):
        facts = _in_flow(facts, (yield Statement("insight/why_node", {"id": job_id})))
    if (facts.ahead or 0) >= MOST_AHEAD:
        facts = yield from _behind_many(job_id, facts)
    if is_free(facts):
        facts = _with_locks(facts, (yield Statement("insight/why_locked", {"id": job_id})))
    return explain(job_id, facts)


def _with_limits(facts: WhyFacts, rows: Sequence[Row]) -> WhyFacts:
    if not rows:
        return facts
    return replace(
        facts,
        limits=[_limit(row, facts.now) for row in rows if row[0] is not None],
        ahead_in_lane=rows[0][-2],
        in_other_lanes=rows[0][-1] if rows[0][-1] is None else min(rows[0][-1], MOST_AHEAD),
    )


def _limit(row: Row, now: datetime) -> LimitFacts:
    name, key, most, every, burst, cost, tat, places, running, ids, workers, declared = row[:-2]
    return LimitFacts(
        name,
        key,
        most,
        every,
        burst,
        places,
        running,
        [HeldPlace(*one) for one in zip(ids or (), workers or (), strict=True)],
        None if every is None else opens_in((every, burst), tat or 0, now, cost),
        declared,
    )


def _in_flow(facts: WhyFacts, rows: Sequence[Row]) -> WhyFacts:
    if not rows:
        return facts
    flow, _, behind, *_ = rows[0]
    nodes = [NodeFacts(*row[3:]) for row in rows if row[3] is not None]
    return replace(facts, flow=flow, flow_behind=behind, nodes=nodes)


def _with_locks(facts: WhyFacts, rows: Sequence[Row]) -> WhyFacts:
    if not rows:
        return facts
    pid, application, seconds = rows[0]
    return replace(facts, locked_by=pid, locked_by_application=application or None, locked_for=seconds)


def _behind_many(job_id: int, facts: WhyFacts) -> Steps[WhyFacts]:
    ((pages, *_),) = yield Statement("insight/standing_sizes", {"now": None})
    percent = share(pages, SAMPLED_PAGES, whole=WHOLE_PAGES)
    ((found,),) = yield Statement("insight/why_ahead", {"id": job_id, "percent": percent})
    ahead = max(MOST_AHEAD, round(found * WHOLE / percent))
    return replace(facts, ahead=ahead, ahead_estimated=percent < WHOLE)
