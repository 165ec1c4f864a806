"""How jobs get the lanes in which they wait for their limits; :mod:`pgqueue.store.limits` claims them from there."""

from collections.abc import Mapping

from pgqueue.store.arrays import numbers, texts
from pgqueue.store.plan import Statement, Steps, plan


@plan(transaction=True)
def put(jobs: Mapping[int, tuple[str, int | None]]) -> Steps[None]:
    """Give new jobs their lanes. Run it in the transaction that enqueues them.

    Args:
        jobs: by id, the lane, and what the start costs; None: 1.
    """
    params = {
        "ids": numbers(list(jobs)),
        "lanes": texts(lane for lane, _ in jobs.values()),
        "costs": numbers([cost for _, cost in jobs.values()]),
    }
    yield Statement("limits/put", params, returns=False)
