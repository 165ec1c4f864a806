"""Plans about what operators did: to write it down, and to list it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from typing import Any, TypeVar, cast

from pgqueue.store.plan import Plan, Statement, Steps, plan
from pgqueue.values.bulk.operation import AuditEntry
from pgqueue.values.jobs.options import LONGEST_REASON, check_text

T = TypeVar("T")
LAST = (1 << 63) - 1
_reason: ContextVar[str | None] = ContextVar("pgqueue_audit_reason", default=None)


@contextmanager
def because(reason: str | None) -> Iterator[None]:
    """Write down this reason with everything that an operator does in this block."""
    before = _reason.set(reason)
    try:
        yield
    finally:
        _reason.reset(before)


def reason() -> str | None:
    """Why the operator does what is done here; None: nothing was said."""
    return _reason.get()


def audited(
    done: Plan[T],
    action: str,
    target: str,
    *,
    by: str | None,
    jobs: Callable[[T], int] | None = None,
    changed: Callable[[T], bool] = bool,
    **details: object,
) -> Plan[T]:
    """The same plan, which also writes down in its transaction what an operator did, if it changed anything.

    Args:
        done: the plan.
        action: as for :func:`note`.
        target: as for :func:`note`.
        by: who.
        jobs: how many jobs are meant by its result.
        changed: whether its result means that it changed something; an empty result, 0, False and None do not.
        details: as for :func:`note`.
    """
    return cast(
        "Plan[T]", with_note(done, action, target, by=by, jobs=jobs, changed=changed, details=details)
    )


def unaudited(asked: Plan[T]) -> Plan[T]:
    """The plan that is noted by a plan of :func:`audited`; any other plan itself."""
    return asked.arguments["done"] if asked.name == "audit.with_note" else asked


@plan(transaction=True)
def with_note(
    done: Plan[Any],
    action: str,
    target: str,
    *,
    by: str | None,
    jobs: Callable[[Any], int] | None,
    changed: Callable[[Any], bool],
    details: dict[str, object],
) -> Steps[Any]:
    """What :func:`audited` returns, with its arguments."""
    result = yield from done
    if changed(result):
        yield from note(action, target, by=by, jobs=None if jobs is None else jobs(result), **details)
    return result


@plan
def note(
    action: str, target: str, *, by: str | None, jobs: int | None = None, **details: object
) -> Steps[None]:
    """Write down what an operator did.

    Args:
        action: what.
        target: to which queue, worker or pattern.
        by: who, for people to read.
        jobs: to how many jobs.
        details: what was said besides; None is left out.
    """
    if (why := details.get("why") or reason()) is not None:
        details["why"] = check_text("why", str(why), longest=LONGEST_REASON)
    said = {name: str(value) for name, value in details.items() if value is not None}
    params = {
        "by": by,
        "action": action,
        "target": target,
        "names": [*said],
        "values": [*said.values()],
        "jobs": jobs,
    }
    yield Statement("audit/note", params, returns=False)


@plan
def listed(
    *,
    by: str | None = None,
    action: str | None = None,
    target: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    before: int | None = None,
    limit: int = 100,
) -> Steps[list[AuditEntry]]:
    """What operators did that matches every filter given, newest first.

    Args:
        by: only what this person did.
        action: only what is called so.
        target: only what was done to what has this name.
        since: only what was done at this instant or later.
        until: only what was done before this instant.
        before: with a lower id than this one; for the next page, the last id of the page before.
        limit: at most how many entries.
    """
    params = {
        "by": by,
        "action": action,
        "target": target,
        "since": since,
        "until": until,
        "before": LAST if before is None else max(-LAST, min(before, LAST)),
        "limit": limit,
    }
    return [AuditEntry.of(row) for row in (yield Statement("audit/list", params))]
