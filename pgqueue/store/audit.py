"""Plans about what operators did: to write it down, and to list it."""

from pgqueue.store.plan import Statement, Steps, plan
from pgqueue.values.bulk import AuditEntry

LAST = (1 << 63) - 1


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
def listed(*, before: int | None = None, limit: int = 100) -> Steps[list[AuditEntry]]:
    """What operators did, newest first.

    Args:
        before: with a lower id than this one; for the next page, the last id of the page before.
        limit: at most how many entries.
    """
    params = {"before": LAST if before is None else before, "limit": limit}
    return [AuditEntry.of(row) for row in (yield Statement("audit/list", params))]
