"""What an operator says of how long jobs and figures are kept, checked: the plans that store it."""

from datetime import timedelta

from pgqueue.app.operator import operator_name
from pgqueue.errors import Duration, InvalidOption, as_limit
from pgqueue.store import audit, retention
from pgqueue.store.insight import series
from pgqueue.store.plan import Plan
from pgqueue.values.queues.queue_options import QueueOptions
from pgqueue.values.retention import Retention, require_kept


def retention_plan(
    history: Duration | None, dead: Duration | None, history_args: int | None, by: str | None, why: str | None
) -> Plan[Retention]:
    """The plan that stores for how long jobs are kept; see :meth:`pgqueue.app.control.QueueControl.keep`."""
    if history is dead is history_args is None:
        raise InvalidOption("keep(): say history=timedelta(...), dead=timedelta(...) or history_args=...")
    given = QueueOptions.checked(history=history, dead=dead, history_args=history_args)
    require_kept(given.history)
    return retention.keep_for(
        given.history, given.dead, history_args=given.history_args, said_by=operator_name(by), why=why
    )


def series_plan(
    minutes: Duration | None, hours: Duration | None, by: str | None
) -> Plan[tuple[timedelta, timedelta]]:
    """The plan that stores for how long figures are kept; see :meth:`pgqueue.app.control.QueueControl.keep_series`."""
    if minutes is None and hours is None:
        raise InvalidOption("keep_series(): say minutes=timedelta(...), hours=timedelta(...) or both")
    kept = None if minutes is None else as_limit("minutes", minutes)
    if kept is not None and kept < timedelta(hours=3):
        raise InvalidOption(
            f"minutes={minutes!r}: hours are made of minutes, so keep them for 3 hours or longer"
        )
    done = series.keep(kept, None if hours is None else as_limit("hours", hours))
    return audit.audited(done, "keep series", "*", by=operator_name(by), minutes=minutes, hours=hours)
