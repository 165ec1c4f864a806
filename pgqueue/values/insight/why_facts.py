"""The facts that say why a job does not run: what ``sql/insight/why.sql`` and its neighbours find, as frozen values.

Which of them is a cause, and how it is said, is decided in :mod:`pgqueue.values.insight.why_words`.
"""

from datetime import UTC, datetime, timedelta

import msgspec

from pgqueue.errors import LONGEST_DELAY
from pgqueue.values.limits import gcra
from pgqueue.values.workers.health import BlockedLoop
from pgqueue.values.workers.lease import renew_every

MOST_AHEAD = 1_000
"""The jobs ahead of a job are counted up to this number."""
MOST_NAMED = 5
"""How many of the things that a job waits for are named, at most. One more is read, so that a sentence can say "more"."""
LATE_BEAT = 1.0
"""Seconds by which a heartbeat may be late without being missed."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
EARLIEST, LATEST = datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)


class HeldPlace(msgspec.Struct, frozen=True):
    """A job that holds a place of a limit.

    Attributes:
        job: its id.
        worker: ``host:pid``; None: its worker is gone, or it keeps its place while it waits for its retry.
    """

    job: int
    worker: str | None = None


class LimitFacts(msgspec.Struct, frozen=True):
    """A limit under which a job waits.

    Attributes:
        name: of the limit.
        key: its name, and the values of the arguments that it is by.
        most: how many jobs of the key may run at once; None: it is a rate, or the database does not know it.
        every: of a rate, the microseconds between two starts.
        burst: of a rate, how much may start at once.
        places: how many places of the key the job takes.
        running: how many of them are taken, by jobs that run or keep their place.
        held_by: the first of these jobs.
        opens_in: of a rate, in how many seconds the job's start is allowed.
        declared: whether a task has it, as far as workers have said at their start, or it is of the queue as a whole.
    """

    name: str
    key: str
    most: int | None = None
    every: int | None = None
    burst: int | None = None
    places: int = 1
    running: int = 0
    held_by: list[HeldPlace] = []
    opens_in: float | None = None
    declared: bool = True

    @property
    def is_unknown(self) -> bool:
        """Whether no numbers of it are stored."""
        return self.most is None and self.every is None

    @property
    def is_full(self) -> bool:
        """Whether fewer places of the key are free than the job takes."""
        return self.most is not None and self.running + max(1, min(self.places, self.most)) > self.most

    @property
    def is_closed(self) -> bool:
        """Whether it is a rate, and does not let the job start now."""
        return self.opens_in is not None and self.opens_in > 0


class NodeFacts(msgspec.Struct, frozen=True):
    """A node of a flow that has to end before the job may start.

    Attributes:
        id: of the node.
        label: its name, else its task, else what kind of node it is.
        kind: ``job``, ``group`` or ``workflow``.
        state: the state of the node.
        rule: what happens to those that wait for it if it fails.
        job: its job; of a group that failed, the first job in it that did.
        job_state: where that stands if it is live.
        is_dead: whether it is among the dead jobs.
        dead_reason: why.
        error: the type of its last error.
        message: what that says.
    """

    id: int
    label: str
    kind: str
    state: str
    rule: str
    job: int | None = None
    job_state: str | None = None
    is_dead: bool = False
    dead_reason: str | None = None
    error: str | None = None
    message: str | None = None


class WhyFacts(msgspec.Struct, frozen=True):
    """The facts that decide whether a job runs: the columns of ``sql/insight/why.sql``, in its order, and what other statements add.

    Attributes:
        state: the job's state.
        queue: the queue's name.
        task: the task's name.
        now: the time for which all of this holds.
        attempts: how many attempts were begun.
        max_attempts: the number of attempts after which it is dead.
        due_in: seconds until it is due; negative: seconds since it was due.
        since: seconds since it was claimed, or since it ended; None: it waits.
        cancel_requested: whether a running job should be cancelled.
        unknown_for: for how many seconds no live worker has run its task, as a worker that claimed such a job found; None: none found it.
        expires_in: seconds until it expires, if it has not been started by then; None: it does not.
        reason: why it is dead.
        last_error: the type of the last attempt's error.
        last_message: what that says.
        suspect: a worker died that had claimed the job.
        crashes: how many of its attempts ended with their worker.
        paused: whether its queue is paused.
        paused_for: seconds since its queue was paused.
        paused_by: who paused it.
        paused_why: why.
        host: its worker's host, if it runs and the worker has a row.
        pid: that worker's process.
        lease_left: seconds left of that worker's lease.
        heard_for: seconds since that worker's last heartbeat.
        overruns: whether its function goes on after the timeout.
        alive: how many workers are alive.
        serving: how many of them serve its queue, and are to claim jobs.
        slots: how many slots the serving workers have.
        knowing: how many of the serving workers may know its task.
        quiet: how many live workers of its queue start no more jobs.
        stopping: how many other live workers of its queue stop, or were asked to.
        blocked_workers: how many of the knowing workers have a blocked event loop, so that they claim nothing.
        not_looking: how many other knowing workers have not looked for jobs in time.
        busy: how many other knowing workers had no free slot at their last heartbeat.
        running: some of the jobs that those run, up to 6.
        blocked_host: the host of its own worker if that is blocked; if the job waits, of the knowing worker that has been
            blocked for longest.
        blocked_pid: that worker's process.
        blocked_for: for how many seconds that worker's event loop has been blocked.
        blocked_task: by which task.
        blocked_job: by which job; None: by none.
        blocked_where: at which line.
        ahead: how many ready jobs of its queue come before it; None: it is not ready.
        waits_for: what it waits for if it is blocked outside of a lane, up to 6 names.
        waits_until: for each of these, the seconds until its deadline; None: it has none.
        in_lane: whether it waits in a lane.
        limited_queue: whether it is ready in a queue that is limited as a whole.
        hidden: whether row-level security hides all jobs from each role but their table's owner.
        ahead_estimated: ``ahead`` is scaled from a sample of the table's pages.
        limits: the limits of its lane and of its queue.
        ahead_in_lane: how many jobs of its lane come before it, up to 1,000.
        in_other_lanes: how many jobs of its queue wait in other lanes, up to 1,000.
        flow: the flow that it is part of, if it waits in one.
        flow_behind: the flow of the same key for which that one waits.
        nodes: what it waits for in that flow, up to 6 nodes; those that failed first.
        locked_by: the process of the session that has locked its row; None: no lock was found, or none was looked for, since there is another cause.
        locked_by_application: the name that this session gave itself.
        locked_for: for how many seconds that session's transaction has been open; None: this may not be seen.
    """

    state: str
    queue: str
    task: str
    now: datetime
    attempts: int
    max_attempts: int
    due_in: float = 0.0
    since: float | None = None
    cancel_requested: bool = False
    unknown_for: float | None = None
    expires_in: float | None = None
    reason: str | None = None
    last_error: str | None = None
    last_message: str | None = None
    suspect: bool = False
    crashes: int = 0
    paused: bool = False
    paused_for: float | None = None
    paused_by: str | None = None
    paused_why: str | None = None
    host: str | None = None
    pid: int | None = None
    lease_left: float | None = None
    heard_for: float | None = None
    overruns: bool = False
    alive: int = 0
    serving: int = 0
    slots: int = 0
    knowing: int = 0
    quiet: int = 0
    stopping: int = 0
    blocked_workers: int = 0
    not_looking: int = 0
    busy: int = 0
    running: list[int] | None = None
    blocked_host: str | None = None
    blocked_pid: int | None = None
    blocked_for: float | None = None
    blocked_task: str | None = None
    blocked_job: int | None = None
    blocked_where: str | None = None
    ahead: int | None = None
    waits_for: list[str] | None = None
    waits_until: list[float | None] | None = None
    in_lane: bool = False
    limited_queue: bool = False
    hidden: bool = False
    ahead_estimated: bool = False
    limits: list[LimitFacts] = []
    ahead_in_lane: int | None = None
    in_other_lanes: int | None = None
    flow: int | None = None
    flow_behind: int | None = None
    nodes: list[NodeFacts] = []
    locked_by: int | None = None
    locked_by_application: str | None = None
    locked_for: float | None = None

    @property
    def blocked(self) -> BlockedLoop | None:
        """What blocks the worker that matters to this job."""
        if self.blocked_for is None:
            return None
        return BlockedLoop(
            self.blocked_for, str(self.blocked_task), self.blocked_job, str(self.blocked_where)
        )

    @property
    def is_silent(self) -> bool:
        """Whether its worker has missed a heartbeat."""
        heard, left = self.heard_for or 0.0, self.lease_left or 0.0
        if not 0 < heard + left < LONGEST_DELAY.total_seconds():  # a row that no worker wrote
            return False
        return heard > renew_every(timedelta(seconds=heard + left)) + LATE_BEAT

    def instant(self, seconds: float) -> str:
        """The time in this many seconds, in UTC; the nearest one that a datetime can be."""
        try:
            at = self.now.astimezone(UTC) + timedelta(seconds=seconds)
        except OverflowError:
            at = LATEST if seconds > 0 else EARLIEST
        return f"{at:%Y-%m-%d %H:%M:%S} UTC"


def opens_in(rate: tuple[int, int], tat: int, now: datetime, cost: int) -> float:
    """In how many seconds a rate allows a start; 0: now.

    Args:
        rate: ``every`` and ``burst``.
        tat: the state of its key.
        now: the time.
        cost: of the start.
    """
    micros = (now - _EPOCH) // timedelta(microseconds=1)
    return (gcra.earliest(gcra.settle_tat(tat, micros, rate), micros, rate, cost) - micros) / 1_000_000
