"""By which criteria people look for jobs and entries of the audit, and the plans that look for them."""

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any, TypedDict

from pgqueue.app.registry import Registry
from pgqueue.errors import InvalidOption
from pgqueue.store import audit
from pgqueue.store.insight import searching
from pgqueue.store.plan import Plan
from pgqueue.values.bulk.filter import JobFilter
from pgqueue.values.bulk.operation import AuditEntry
from pgqueue.values.insight.now import DuePage, SearchPage
from pgqueue.values.jobs.job import JobState, states_of
from pgqueue.values.jobs.options import check_before, check_instant, check_page, check_text
from pgqueue.values.payloads.codec import encoded_key


class AuditCriteria(TypedDict, total=False):
    """Which entries of the audit.

    Attributes:
        by: what this person did.
        action: what has this name: ``pause``, ``set``, ``cancel``, ….
        target: what was done to the queue, job, worker, … of this name.
        since: what was done at this instant or later.
        until: what was done before this instant.
    """

    by: str | None
    action: str | None
    target: str | None
    since: datetime | None
    until: datetime | None


class SearchCriteria(TypedDict, total=False):
    """Which jobs a search finds.

    Attributes:
        state: in this state or one of several.
        queue: in this queue; a pattern such as ``mail-*`` is allowed.
        task: of this task; a pattern is allowed.
        unique_key: with this unique key.
        run: of the run of this name.
        args: whose arguments contain these, as jsonb containment has it: ``{"customer_id": 7}``.
        enqueued_after: enqueued at this instant or later.
        enqueued_before: enqueued before this instant.
        error: whose last error is of this type; with the module or without.
        error_group: whose last error is in the group of this key: :attr:`ErrorGroup.key` of :meth:`Insight.errors`.
        ids: one of these ids, at most 10,000.
        before: with a lower id than this: the last id of the page before, or ``looked_to``.
        limit: at most how many jobs, up to 10,000; 100 where nothing is said.
    """

    state: JobState | str | Collection[JobState | str] | None
    queue: str | None
    task: str | None
    unique_key: str | None
    run: str | None
    args: Mapping[str, Any] | None
    enqueued_after: datetime | None
    enqueued_before: datetime | None
    error: str | None
    error_group: str | None
    ids: Collection[int] | None
    before: int | None
    limit: int


def search_plan(queue: Registry, criteria: SearchCriteria) -> Plan[SearchPage]:
    """Jobs that match every criterion, newest first."""
    given: dict[str, Any] = {name: value for name, value in criteria.items() if value is not None}
    state, key = given.pop("state", None), given.pop("unique_key", None)
    before, limit = given.pop("before", None), given.pop("limit", 100)
    if key is not None:
        check_text("unique_key", key)
    return searching.search(
        _filter(queue, given),
        states=states_of(state, JobState),
        unique_key=encoded_key(queue.codec, key),
        before=check_before(before),
        limit=check_page(limit),
    )


def due_plan(
    queue: Registry, criteria: Mapping[str, Any], after: tuple[datetime, int] | None, limit: int
) -> Plan[DuePage]:
    """Scheduled jobs that match every criterion, in the order in which they are due."""
    if after is not None:
        check_instant("after", after[0])
        check_before(after[1])
    given = {name: value for name, value in criteria.items() if value is not None}
    return searching.due(_filter(queue, given), after=after, limit=check_page(limit))


def audit_plan(only: AuditCriteria, before: int | None, limit: int) -> Plan[list[AuditEntry]]:
    """Entries of the audit that match every criterion, newest first."""
    for name in ("by", "action", "target"):
        if (text := only.get(name)) is not None:
            check_text(name, str(text))
    for name in ("since", "until"):
        check_instant(name, only.get(name))  # type: ignore[arg-type]  # by name
    return audit.listed(before=check_before(before), limit=check_page(limit), **only)


def _filter(queue: Registry, given: Mapping[str, Any]) -> JobFilter:
    if queue.codec is not None and "args" in given:
        raise InvalidOption("args: the queue's codec encodes them, so the database cannot look into them")
    return JobFilter.checked(given or {"everything": True})
