"""The plan that tells how every queue stands, in milliseconds, however many jobs wait.

Small tables are read whole, so the numbers are exact. Of large ones a sample of pages is read, and the numbers are
estimates. What the numbers mean is decided in :mod:`pgqueue.values.standing`.
"""

from datetime import UTC, datetime, timedelta

from pgqueue.store.plan import Statement, Steps, plan
from pgqueue.values.standing import (
    COUNTED,
    Head,
    QueueStanding,
    Sample,
    UnknownTask,
    rates_of,
    share,
    standings,
)

SAMPLED_PAGES = 1_000
"""Of each table: some 80,000 jobs. A queue that holds a tenth of all jobs is estimated within some percent."""
LAST_PAGES = 500
"""Of today's history: some 20,000 jobs that ended last."""
RATED = timedelta(minutes=1)


@plan
def queue_standings(*, now: datetime | None = None) -> Steps[list[QueueStanding]]:
    """How every queue stands.

    Args:
        now: the instant; the database's own by default.
    """
    ((live, dead, history, at),) = yield Statement("standing_sizes", {"now": now})
    live_percent, dead_percent = share(live, SAMPLED_PAGES), share(dead, SAMPLED_PAGES)
    sample = yield Statement("standing_sample", {"jobs": live_percent, "dead": dead_percent})
    heads = yield Statement("standing_heads", {"counted": COUNTED})
    known = yield Statement("known_queues", {})
    unknown = yield Statement("unknown_tasks", {"now": now})
    midnight = at.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    since = max(at - RATED, midnight)
    first_page = max(0, history - LAST_PAGES)
    ended = yield Statement(
        "standing_rates",
        {
            "from_page": f"({first_page},0)",
            "since": since,
            "day": midnight,
        },
    )
    return standings(
        now=at,
        heads=[Head(*row) for row in heads],
        samples=[Sample(*row) for row in sample],
        live_percent=live_percent,
        dead_percent=dead_percent,
        rates=rates_of(
            [(row[0], row[1], row[2]) for row in ended], now=at, since=since, whole=first_page == 0
        ),
        paused=dict(known),
        unknown=[UnknownTask(*row) for row in unknown],
    )
