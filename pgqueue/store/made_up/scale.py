"""Plans to measure the pipeline by: the roll-up that Spark makes, as plain SQL."""

from collections.abc import Sequence
from datetime import datetime

import msgspec

from pgqueue.store.plan import Statement, Steps, plan


class Exact(msgspec.Struct, frozen=True):
    """The ended jobs of a queue, task and hour.

    Attributes:
        queue: which.
        task: which.
        hour: in which they ended.
        counts: jobs, succeeded, cancelled, dead, attempts.
        wait: seconds of waiting at each rank that was asked for; None: none ever started.
        run: likewise of running.
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
        ranks: of the percentiles, from 0 to 1.
    """
    rows = yield Statement("made_up/rollup", {"ranks": list(ranks)})
    return [
        Exact(queue, task, hour, tuple(counts), wait, run) for queue, task, hour, *counts, wait, run in rows
    ]
