"""What has to be recorded of a job, how it is read from the tables, and the verdicts on its attempts."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from store.samples import error_of

from pgqueue.values.jobs.job import Claim
from pgqueue.values.jobs.verdict import Again, Cancelled, Died, Returned, Succeeded, Verdict, Waits
from pgqueue.values.signals import SignalWait

MOST = 2
"""Attempts of a job."""
ENDS = ("succeeded", "dead", "cancelled")
RETRY_IN = timedelta(seconds=5)


@dataclass
class ModelJob:
    """What has to be recorded of a job."""

    id: int
    run_at: datetime
    priority: int = 0
    key: str | None = None
    in_lane: bool = False
    status: str = "ready"
    attempts: int = 0
    held: Claim | None = None
    cancel: bool = False
    errors: int = 0
    signalled: bool = False

    @property
    def place(self) -> tuple[int, datetime, int]:
        """Where it stands in its line."""
        return -self.priority, self.run_at, self.id

    @property
    def live(self) -> bool:
        return self.status not in ENDS

    @property
    def row(self) -> tuple[Any, ...]:
        """As it is read from the tables."""
        holder = self.held and self.held.worker_id
        status = "blocked" if self.in_lane and self.status == "ready" else self.status
        if self.live:
            return self.id, status, self.run_at, self.attempts, self.cancel, holder, self.key, self.errors
        return self.id, status, self.run_at, self.attempts, None, None, self.key, self.errors


ROWS = """
select id, status, run_at, attempts, cancel_requested, worker_id, unique_key, coalesce(jsonb_array_length(errors), 0) from pgqueue.jobs
union all select id, outcome, run_at, attempts, null, null, unique_key, coalesce(jsonb_array_length(errors), 0) from pgqueue.job_history
union all select id, 'dead', run_at, attempts, null, null, unique_key, coalesce(jsonb_array_length(errors), 0) from pgqueue.dead_jobs
order by 1, 2
"""


def verdict(one: Claim, how: str) -> Verdict:
    """A verdict of some kind on an attempt."""
    error = error_of(one)
    again = one.attempt < one.max_attempts
    verdicts: dict[str, Verdict] = {
        "complete": Succeeded(one, 1.0),
        "fail": Again(one, RETRY_IN, error) if again else Died(one, 1.0, "exhausted", error),
        "die": Died(one, 1.0, "asked", error),
        "return": Returned(one),
        "snooze": Returned(one, RETRY_IN),
        "cancel": Cancelled(one),
        "wait": Waits(one, SignalWait(one.id, "go", f"job:{one.id}", None)),
    }
    return verdicts[how]
