"""Plans that have not started: what they ask and with which arguments, and the same plan at another instant.

A plan is a generator, and a generator that has not started holds nothing but its arguments. So its code says
which plan it is, and its locals are what was asked.
"""

import inspect
from collections.abc import Sequence
from datetime import datetime, timedelta
from types import CodeType, FunctionType, GeneratorType
from typing import Any, TypeVar

from pgqueue.store import claim, upkeep
from pgqueue.store.plan import Plan
from pgqueue.values.job import Claim

T = TypeVar("T")

LEASE = timedelta(seconds=30)
"""How long a job whose worker died in a test stays that worker's; as with a real one."""


def asked(plan: Plan[Any]) -> tuple[CodeType, dict[str, Any]]:
    """Which plan it is, and its arguments by name; for one that has not started."""
    assert isinstance(plan, GeneratorType)  # noqa: S101 - every plan is one; for the type checker
    return plan.gi_code, inspect.getgeneratorlocals(plan)


def dated(plan: Plan[T], now: datetime) -> Plan[T]:
    """The same plan at an instant, where it takes one and none is given; every other plan as it is."""
    code, given = asked(plan)
    if "now" not in given or given["now"] is not None:
        return plan
    assert isinstance(plan, GeneratorType)  # noqa: S101 - as above
    assert plan.gi_frame is not None  # noqa: S101 - it has not ended
    function = FunctionType(code, plan.gi_frame.f_globals)  # no plan is a closure, and no default is needed
    plan.close()
    again: Plan[T] = function(**given | {"now": now})
    return again


def next_claim(
    worker: claim.WorkerInfo, queues: Sequence[str] | None, *, now: datetime | None = None
) -> Plan[Claim | None]:
    """All that a worker does between two jobs, in one plan; to be run within a transaction.

    It becomes known, or stays so; puts in line what is due; and claims the next job: of the first queue that has one, by the names' order or by the one given.

    Args:
        worker: who claims.
        queues: from these, in this order; None: from all.
        now: the instant; the database's own by default.
    """
    if not (yield from claim.renew(worker.id, LEASE, now=now)):
        yield from claim.register(worker, LEASE, now=now)
    yield from upkeep.tick(now=now)
    names = sorted((yield from claim.new_queues())) if queues is None else queues
    claims = yield from claim.fill(worker.id, names, 1, now=now)
    return claims[0] if claims else None
