"""The plan with which the pipeline is compared: Spark's roll-up in plain SQL."""

from collections.abc import Sequence
from datetime import datetime

import msgspec

from pgqueue.store.plan import Statement, Steps, plan


class Exact(msgspec.Struct, frozen=True):
    """The ended jobs of a queue, task and hour.

    Attributes:
        queue: the queue's name.
        task: the task's name.
        hour: the hour in which they ended.
        counts: jobs, succeeded, cancelled, dead, attempts.
        wait: seconds of waiting at each requested rank; None: no job started.
        run: seconds of running at each requested rank; None: no job started.
    """

    queue: str
    task: str
    hour: datetime
    counts: tuple[int, ...]
    wait: list[float] | None
    run: list[float] | None


@plan
def rollup(ranks: Sequence[float]) -> Steps[list[Exact]]:
    """Roll up all ended jobs.

    Args:
        ranks: the percentiles' ranks, from 0 to 1.
    """
    rows = yield Statement("made_up/rollup", {"ranks": list(ranks)})
    return [
        Exact(queue, task, hour, tuple(counts), wait, run) for queue, task, hour, *counts, wait, run in rows
    ]
