"""What is known of a run: the DataFrames that were written under one name, and their jobs."""

from datetime import datetime

import msgspec


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """A run, and how far its jobs are. All numbers are exact.

    Attributes:
        name: the run's name.
        tasks: the tasks of its jobs.
        writes: how many writes it has: one, or one for each batch of a stream.
        first_at: when the first was committed.
        last_at: when the last was committed.
        rows: how many rows they had.
        jobs: how many jobs they enqueued.
        rejected: rows whose unique key was taken.
        refused: rows that cannot be jobs, and were diverted.
        changed: rows that changed a waiting job.
        blocked: jobs that wait for something else.
        scheduled: jobs that wait for their time.
        ready: jobs that wait for a worker.
        running: jobs that run.
        dead: jobs that are dead.
        ended: jobs that succeeded or were cancelled, and those whose history was deleted.
        succeeded: how many succeeded; None: not counted in lists.
        cancelled: how many were cancelled; None: not counted in lists.
        gone: how many have no record any more: their history was deleted; None: not counted in lists.
        rate: jobs that ended per second, in the last minute; None: not counted in lists.
        seconds_left: how long the others take at this rate; None: not known.
        ended_at: when the last job ended that did not die; None: none has, or it was not looked up.
    """

    name: str
    tasks: tuple[str, ...]
    writes: int
    first_at: datetime
    last_at: datetime
    rows: int
    jobs: int
    rejected: int
    refused: int
    changed: int
    blocked: int
    scheduled: int
    ready: int
    running: int
    dead: int
    ended: int
    succeeded: int | None = None
    cancelled: int | None = None
    gone: int | None = None
    rate: float | None = None
    seconds_left: float | None = None
    ended_at: datetime | None = None

    @property
    def waiting(self) -> int:
        """Jobs that wait."""
        return self.blocked + self.scheduled + self.ready

    @property
    def live(self) -> int:
        """Jobs that wait or run."""
        return self.waiting + self.running
