"""Plans that keep the queue in order. Each is safe to run by many at once, so there is no leader.

This module says *what* is to be done; :mod:`pgqueue.worker.upkeep` says *when*.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from types import MappingProxyType
from uuid import UUID

import msgspec

from pgqueue.store.arrays import columns, texts
from pgqueue.store.jobs.claim import NO_MARKS
from pgqueue.store.jobs.notifications import wake
from pgqueue.store.plan import Statement, Steps, plan
from pgqueue.store.retention import DELETED_AT_ONCE, FIXED, some_at_a_time
from pgqueue.store.workers import lost
from pgqueue.store.workers.leases import WorkerInfo, register, renew
from pgqueue.values.jobs.job import JobState, Mark
from pgqueue.values.jobs.verdict import Verdict, lost_verdict

NO_TIMEOUTS: Mapping[str, float] = MappingProxyType({})
PROMOTED_AT_ONCE = 5_000


class PollResult(msgspec.Struct, frozen=True):
    """What a poll did and saw.

    Attributes:
        count: how many jobs became ready.
        refused: jobs that the database refused to put in line, and that were set aside.
        next_in: in how many seconds the next one will; None: none is waiting for its time.
        lost: whether there is a worker whose jobs are to be reclaimed.
        ready: whether a job is ready in the lines that were asked about.
        schedule_in: in how many seconds the next schedule is due, negative if it is; None: none is.
        flow_work: whether there is work left in flows.
        wait_in: in how many seconds the next deadline of a blocked job passes; 0: one has, or signals are unsettled; None: no
            blocked job has one.
        timeouts: how many seconds an attempt may take whose task names no timeout, by queue.
        limited: the queues that are limited as a whole.
        weighted: whether an operator has set the weight of a share.
        in_lanes: whether limited jobs wait in lanes.
        seldom: what else there is to do, by the names in poll.sql: ``expire`` jobs, ``age`` jobs, look at ``alerts``, and look at
            ``workers`` of which one does not look for jobs. Empty if that was not asked.
    """

    count: int
    next_in: float | None
    lost: bool
    ready: bool
    refused: Sequence[int] = ()
    schedule_in: float | None = None
    flow_work: bool = False
    wait_in: float | None = None
    timeouts: Mapping[str, float] = NO_TIMEOUTS
    limited: Sequence[str] = ()
    weighted: bool = False
    in_lanes: bool = False
    seldom: Sequence[str] = ()


@plan
def poll(
    lines: Mapping[str, Mark] = NO_MARKS,
    *,
    elsewhere: bool = False,
    seldom: bool = False,
    now: datetime | None = None,
) -> Steps[PollResult]:
    """Promote due jobs, wake idle workers if there were any, and look what else there is to do.

    Args:
        lines: the queues to look at for ready jobs, and from where on.
        elsewhere: whether to look at all other queues, too.
        seldom: whether to look for what can wait some seconds, too.
        now: the instant; the database's own by default.
    """
    params = {
        "now": now,
        "limit": PROMOTED_AT_ONCE,
        "queues": texts(lines),
        **columns(lines.values()),
        "elsewhere": elsewhere,
        "seldom": seldom,
    }
    count, all_refused = 0, list[int]()
    while True:
        (row,) = yield Statement("workers/poll", params)
        moved, refused, next_in, lost, ready, _, schedule_in, flow_work, wait_in, *of_queues = row
        count += moved
        all_refused += refused
        if moved + len(refused) < PROMOTED_AT_ONCE:
            break
    if count:
        yield from wake()
    timed, timeouts, limited, weighted, in_lanes, due = of_queues
    return PollResult(
        *(count, next_in, lost, ready, all_refused, schedule_in, flow_work, wait_in),
        timeouts=dict(zip(timed, timeouts, strict=True)),
        limited=tuple(limited),
        weighted=weighted,
        in_lanes=in_lanes,
        seldom=tuple(due),
    )


@plan
def arrive(
    worker: WorkerInfo,
    lease: timedelta,
    *,
    elsewhere: bool = False,
    seldom: bool = False,
    now: datetime | None = None,
) -> Steps[PollResult]:
    """Renew a worker's lease, or register it; then :func:`poll`. A take or a drain does this before each look."""
    if not (yield from renew(worker.id, lease, now=now)):
        yield from register(worker, lease, now=now)
    return (yield from poll(elsewhere=elsewhere, seldom=seldom, now=now))


@plan(transaction=True)
def reclaim(*, judge: lost.Judge | None = None, now: datetime | None = None) -> Steps[dict[int, JobState]]:
    """Take workers whose lease has passed off the list, and end the claims of all that have left it.

    The rows of lost jobs are locked before they are ended. One job that the database
    refuses to end fails it all; :mod:`pgqueue.store.jobs.sweep` sets such a job aside.

    Args:
        judge: what becomes of each job; by default as :func:`judge_lost` says.
        now: the instant; the database's own by default.

    Returns:
        The state that each reclaimed job is in now: ready, dead (out of attempts) or cancelled (as asked).
    """
    workers = yield from find_lost_workers(now=now)
    if not workers:
        return {}
    found = yield from lost.left_behind(workers)
    states = yield from lost.end_all(found, judge or judge_lost, now=now)
    yield from settle(found, states, workers=workers, now=now)
    return states


@plan(transaction=True)
def find_lost_workers(*, now: datetime | None = None) -> Steps[list[UUID]]:
    """Take workers whose lease has passed off the list; those that have left it, whose jobs are to be ended."""
    yield Statement("workers/expire_workers", {"now": now})
    return [row[0] for row in (yield Statement("workers/lost_workers", {"now": now}))]


def judge_lost(one: lost.LostClaim) -> Verdict:
    """What becomes of a lost worker's job."""
    return lost_verdict(one.claim, seconds=one.seconds, crashed=one.crashed, memory=one.memory)


@plan(transaction=True)
def settle(
    found: Mapping[int, UUID],
    states: Mapping[int, JobState],
    *,
    workers: Collection[UUID] = (),
    refused: Collection[int] = (),
    pause: timedelta = timedelta(0),
    now: datetime | None = None,
) -> Steps[None]:
    """Note how many jobs of lost workers were ended; forget those workers whose jobs all were; wake idle workers if any of these jobs is ready.

    Args:
        found: the jobs that were left behind, and in whose name.
        states: those that were ended, and how.
        workers: lost workers that may have left no job.
        refused: the jobs that the database refuses to end; their workers are not looked for before ``pause``.
        pause: how long that is.
        now: the instant; the database's own by default.
    """
    left = {worker for job_id, worker in found.items() if job_id not in states}
    if ended := {**dict.fromkeys(workers, 0), **Counter(found[job_id] for job_id in states)}:
        params = {"workers": [*ended], "jobs": [*ended.values()]}
        yield Statement("workers/note_lost_jobs", params, returns=False)
    if seen_to := {*workers, *found.values()} - left:
        yield Statement("workers/forget_lost_workers", {"workers": [*seen_to]}, returns=False)
    if put_off := {found[job_id] for job_id in refused}:
        params = {"workers": [*put_off], "pause": pause, "now": now}
        yield Statement("workers/postpone_lost_workers", params, returns=False)
    if JobState.READY in states.values():
        yield from wake()


@plan(transaction=True)
def note_unlisted_workers() -> Steps[int]:
    """Note workers that jobs name and the database has never known, so that those jobs are reclaimed; how many workers.

    Running jobs that name no worker, as after a manual repair, count as those of one more. It reads the jobs
    from end to end.
    """
    yield Statement("connections/allow_full_reads", {})
    return len((yield Statement("workers/note_unlisted_workers", {})))


@plan
def release_holds(*, now: datetime | None = None) -> Steps[int]:
    """Forget unique keys whose period is over; returns how many. Keys that a transaction has locked stay."""
    count, released = 0, DELETED_AT_ONCE
    while released == DELETED_AT_ONCE:
        released = len((yield Statement("jobs/release_holds", {"now": now, "limit": DELETED_AT_ONCE})))
        count += released
    return count


@plan
def drop_ticks(*, now: datetime | None = None) -> Steps[int]:
    """Delete ticks of schedules that were decided on more than 30 days ago; returns how many."""
    return (yield from some_at_a_time("schedules/drop_ticks", now, kept=FIXED))


@plan
def drop_notes() -> Steps[int]:
    """Delete what ended jobs noted, as far as samples of the table show it; returns how many notes.

    A run goes on while a quarter of what it looks at is to be deleted. What is left then is found by later runs.
    """
    count, looked, deleted = 0, 0, 1
    while deleted * 4 > looked:
        ((looked, deleted),) = yield Statement("notes/drop", {})
        count += deleted
    return count


@plan
def drop_signals(*, now: datetime | None = None) -> Steps[int]:
    """Delete signals and deadlines that no job will ask for any more; signals to keys after 30 days. How many."""
    return (yield from some_at_a_time("signals/drop", now, kept=FIXED))


@plan
def drop_rates(*, now: datetime | None = None) -> Steps[int]:
    """Delete the states of rates whose time has passed; how many."""
    return (yield from some_at_a_time("limits/drop_rates", now))
