"""The plan that tells how every queue stands, in milliseconds, however many jobs wait.

Small tables are read whole, so the numbers are exact. Of large ones a sample of pages is read, and the numbers are
estimates. What the numbers mean is decided in :mod:`pgqueue.values.queues.standing`.
"""

from datetime import UTC, datetime, timedelta

from pgqueue.store.plan import Statement, Steps, plan
from pgqueue.store.queues import queues
from pgqueue.values.queues.standing import (
    COUNTED,
    QueueHead,
    QueueStanding,
    StandingSample,
    UnknownTaskJobs,
    rates_of,
    share,
    standings,
)

WHOLE_PAGES = 1_000
"""A table of up to this many pages is read whole: some 80,000 jobs."""
SAMPLED_PAGES = 150
"""Of a larger table: some 12,000 jobs. Each page that is not in memory takes 0.2 ms."""
LAST_PAGES = 500
"""Of today's history: some 20,000 jobs that ended last."""
RATED = timedelta(minutes=1)


@plan(reads=True)
def queue_standings(*, now: datetime | None = None) -> Steps[list[QueueStanding]]:
    """How every queue stands.

    Args:
        now: the instant; the database's own by default.
    """
    ((live, dead, history, at),) = yield Statement("insight/standing_sizes", {"now": now})
    live_percent, dead_percent = (share(pages, SAMPLED_PAGES, whole=WHOLE_PAGES) for pages in (live, dead))
    sample = yield Statement("insight/standing_sample", {"jobs": live_percent, "dead": dead_percent})
    heads = yield Statement("insight/standing_heads", {"counted": COUNTED})
    known = yield from queues.known()
    unknown = yield Statement("insight/unknown_tasks", {"now": now})
    midnight = at.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    since = max(at - RATED, midnight)
    first_page = max(0, history - LAST_PAGES)
    ended = yield Statement(
        "insight/standing_rates",
        {
            "from_page": f"({first_page},0)",
            "since": since,
            "day": midnight,
        },
    )
    return standings(
        now=at,
        heads=[QueueHead(*row) for row in heads],
        samples=[StandingSample(*row) for row in sample],
        live_percent=live_percent,
        dead_percent=dead_percent,
        rates=rates_of(
            [(row[0], row[1], row[2]) for row in ended], now=at, since=since, whole=first_page == 0
        ),
        known=known,
        unknown=[UnknownTaskJobs(*row) for row in unknown],
    )
