"""Problems of tasks, limits, schedules and alerts. Pure rules. Those of queues and workers are in :mod:`pgqueue.values.insight.problems`.

What a limit holds back is told, and is a problem only where that is unusual: it lets no job start, or a job has waited for it for
longer than :data:`~pgqueue.values.insight.health_facts.HELD_FOR_LONG`.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from shlex import quote
from typing import Final

from pgqueue.values.alerts.state import AlertStatus
from pgqueue.values.insight.comparison import failed_share
from pgqueue.values.insight.health import Level, Problem, ProblemKind, count_text
from pgqueue.values.insight.health_facts import HELD_FOR_LONG, HealthFacts
from pgqueue.values.insight.series import Figures
from pgqueue.values.queues.standing import QueueStanding
from pgqueue.values.workers.lease import duration_text

LATE: Final = 60.0
"""Seconds. A schedule that is later is a problem: the tolerance of a tick."""
FEW_ENDED: Final = 5
"""Attempts. A task of which fewer ended is not judged."""
MOST_FAIL: Final = 0.5
"""A task of which this share of the attempts fails is critical."""
STILL_FAILS: Final = 0.5
"""A task whose failures have risen still fails while its last minutes have this share of that rise."""
FAILS: Final = "fails more"


def failing_tasks(_: Sequence[QueueStanding], facts: HealthFacts) -> Iterator[Problem]:
    """Tasks of which most attempts fail, or more than before."""
    found = facts.failures
    for line in found.lines:
        if line.name is None:
            continue
        last = found.recent.get(line.name, Figures())
        judged, within = (last, "10 min") if _ended(last) >= FEW_ENDED else (line.after, "hour")
        ended, share = _ended(judged), failed_share(judged) or 0.0
        risen = FAILS in line.changes and share >= STILL_FAILS * (line.failed_after or 0.0)
        if ended < FEW_ENDED or not (risen or share >= MOST_FAIL):
            continue
        fails = "fails more" if share < MOST_FAIL else "fails"
        before = f", {100 * (line.failed_before or 0.0):.1f} % did before" if risen else ""
        if risen and found.deployed_at is not None:
            fails += f" since the deploy of {found.version}, {facts.ago(found.deployed_at)} ago"
        since = found.deployed_at if risen else None
        yield Problem(
            kind="task fails",
            level="critical" if share >= MOST_FAIL else "warning",
            sentence=f"Task {line.name} {fails}: {judged.failed:,} of {ended:,} attempts of the last {within} failed "
            f"({100 * share:.0f} %){before}.",
            about="task",
            names=(line.name,),
            since=since,
            jobs=judged.failed,
            command=f"pgqueue compare {since.astimezone(UTC):%Y-%m-%dT%H:%MZ}"
            if since
            else f"pgqueue dead list --task {quote(line.name)}",
        )


def limits_that_hold(_: Sequence[QueueStanding], facts: HealthFacts) -> Iterator[Problem]:
    """Limits that hold jobs back, or let none start."""
    for limit, since in facts.held:
        about = "about " if limit.estimated else ""
        jobs = f"{about}{count_text(limit.waiting, 'job')}" if limit.waiting else "a few jobs"
        most = limit.numbers.most
        yield Problem(
            kind="limit full",
            level="critical" if most == 0 else "warning" if facts.now - since > HELD_FOR_LONG else "info",
            sentence=f"Limit {limit.name} holds back {jobs}, the oldest for {facts.ago(since)}: {limit.numbers.said}, "
            f"{limit.running:,} running.",
            about="limit",
            names=(limit.name,),
            since=since,
            jobs=limit.waiting or None,
            estimated=limit.estimated,
            command=f"pgqueue limits show {quote(limit.name)}",
        )


def late_schedules(_: Sequence[QueueStanding], facts: HealthFacts) -> Iterator[Problem]:
    """Schedules that were set aside, or whose next tick is late."""
    for one in facts.schedules:
        if one.error is not None:
            said, kind, since = "is set aside after an error", "schedule set aside", None
        elif one.lag > LATE:
            said = f"is late: its next tick has been due for {duration_text(one.lag)}"
            kind, since = "schedule late", facts.now - timedelta(seconds=one.lag)
        else:
            continue
        yield Problem(
            kind="schedule late" if kind == "schedule late" else "schedule set aside",
            level="warning",
            sentence=f"Schedule {one.name} {said}.",
            about="schedule",
            names=(one.name,),
            since=since,
            command="pgqueue schedules list",
        )


def firing_alerts(_: Sequence[QueueStanding], facts: HealthFacts) -> Iterator[Problem]:
    """Alerts that fire, those that are silenced, and those that cannot be checked."""
    for one in facts.alerts:
        summary = f": {one.summary}" if one.summary else ""
        if one.error is not None and not one.active:
            said = "cannot be checked, or its task cannot be notified"
            yield _of_alert("alert unreadable", "warning", one, said, one.failed_at)
        elif not one.active:
            continue
        elif one.silenced_until is not None:
            left = duration_text((one.silenced_until - facts.now).total_seconds())
            by = f" by {one.silenced_by}" if one.silenced_by else ""
            yield _of_alert(
                "alert silenced",
                "info",
                one,
                f"is {one.state}, silenced{by} for another {left}{summary}",
                one.since,
            )
        else:
            level: Level = "critical" if one.state == "firing" else "warning"
            ago = "" if one.since is None else f" for {facts.ago(one.since)}"
            yield _of_alert("alert firing", level, one, f"has been {one.state}{ago}{summary}", one.since)


def _of_alert(
    kind: ProblemKind, level: Level, alert: AlertStatus, said: str, since: datetime | None
) -> Problem:
    return Problem(
        kind=kind,
        level=level,
        sentence=f"Alert {alert.name} {said.rstrip('.')}.",
        about="alert",
        names=(alert.name,),
        since=since,
        command="pgqueue alerts list",
    )


def _ended(figures: Figures) -> int:
    return figures.succeeded + figures.failed
