"""Plans that add jobs, and decide what a taken unique key means."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import chain, groupby, islice

from pgqueue.errors import JobError
from pgqueue.store.jobs.copying import (
    copied_with_lanes,
    copy_rows,
    delay_of,
    few_by_each,
    new_by_each,
    sends,
    sent,
)
from pgqueue.store.limits.lanes import require_place
from pgqueue.store.plan import Copy, Plan, Statement, Steps, plan
from pgqueue.store.queues.queues import count_bounded, require_room, require_rooms
from pgqueue.values.jobs.job import EnqueueAnswer, NewJob, Outcome
from pgqueue.values.jobs.unique import Unique
from pgqueue.values.queues.defaults import JobDefaults, QueueCache, QueueDefaults, closed_error
from pgqueue.values.queues.settings import MAX_ATTEMPTS, PRIORITY

TRIES = 10
FEW = 250
"""Up to as many jobs are added by one statement. With more, COPY gains more than its messages cost."""
FEW_BYTES = 1_000_000
"""Of the arguments of these jobs: a statement is kept in memory as a whole, and COPY is not."""
ROWS_PER_BLOCK = 2_500


def add(job: NewJob, *, known: QueueCache | None = None) -> Plan[EnqueueAnswer]:
    """:func:`enqueue`, in a transaction where the job's limit decides whether it is added."""
    added = enqueue(job, known=known)
    return added if job.when_full is None else added.in_transaction()


@plan(adds=True)
def enqueue(
    job: NewJob, *, known: QueueCache | None = None, now: datetime | None = None
) -> Steps[EnqueueAnswer]:
    """Add one job.

    Args:
        job: what to add.
        known: what this process remembers of queues; it learns what the database says.
        now: the instant to count ``delay`` from; the database's own by default.

    Returns:
        The new job's id, or the id of the job that holds the unique key and what was done to it.

    Raises:
        QueueClosed: its queue takes no new jobs.
        BacklogFull: its queue has as many ready jobs as it may have, and refuses more.
        LimitReached: no place of its limit is free, and the limit refuses more jobs.
    """
    if job.when_full is not None and (answer := (yield from require_place(job, now=now))) is not None:
        return answer
    if job.unique_key is not None:
        return (yield from _enqueue_unique(job, _params(job, now, known), known))
    if known is not None and now is None and _is_basic(job):
        said = known.of(job)
        if said is not None:
            rows = yield Statement("jobs/enqueue_now", _basic_params(job, *said))
            return EnqueueAnswer(rows[0][0])
    params = _params(job, now, known)
    rows = yield Statement("jobs/enqueue", params)
    if not rows:
        yield from require_room(job.queue, known=known)
        rows = yield Statement("jobs/enqueue", params | {"room": True})
    if not rows:
        raise closed_error(job.queue)
    if known is not None:
        known.learn(job, *rows[0][1:])
    return EnqueueAnswer(rows[0][0])


def are_few(jobs: Sequence[NewJob]) -> bool:
    """Whether :func:`enqueue_few` can add these jobs."""
    if len(jobs) > FEW or any(job.unique_key is not None or job.when_full is not None for job in jobs):
        return False
    return sum(len(job.args) + len(job.meta or b"") for job in jobs) <= FEW_BYTES


@plan(adds=True)
def enqueue_few(jobs: Sequence[NewJob], *, now: datetime | None = None) -> Steps[list[EnqueueAnswer]]:
    """Add some jobs, all or none, in one statement.

    Args:
        jobs: what to add, as :func:`are_few` says.
        now: as for :func:`enqueue`.

    Returns:
        One answer per job, in their order.

    Raises:
        QueueClosed: one of their queues takes no new jobs.
        BacklogFull: one of their queues has as many ready jobs as it may have, and refuses more.
    """
    counts = Counter(job.queue for job in jobs)
    for room in (False, True):
        rows = yield Statement("jobs/enqueue_few", few_by_each(jobs) | {"room": room, "now": now})
        if rows:
            return [EnqueueAnswer(job_id) for (job_id,) in rows]
        yield from require_rooms(counts)
    raise closed_error(jobs[0].queue)  # one was closed for a moment


@plan(transaction=True, adds=True)
def enqueue_many(jobs: Iterable[NewJob], *, now: datetime | None = None) -> Steps[list[EnqueueAnswer]]:
    """Add many jobs, all or none.

    Jobs without a unique key travel by COPY, those with a lane by a COPY of their own, a block at a time: while the server
    reads one block, the next is drawn from ``jobs``, so the code that makes them must not use this connection. Jobs with a key follow in one
    multi-row insert. If any of them has a period or a policy other than ``reject``, all that have a key are
    added one at a time. Either way keys are locked in their order, so two batches never deadlock.

    Args:
        jobs: what to add.
        now: as for :func:`enqueue`.

    Returns:
        One answer per job, in the order of ``jobs``.
    """
    blocks = _JobBlocks(jobs)
    if not blocks.next:
        return []
    clock, defaults = yield from queue_defaults(now)
    yield from require_rooms(count_bounded(blocks.all(), defaults) if defaults.bounded else Counter())
    if not defaults.may_number:
        return (yield from _enqueue_unnumbered(blocks.all(), now))
    answers: list[EnqueueAnswer] = []
    keyed: dict[int, tuple[int, NewJob]] = {}
    decided: list[tuple[int, NewJob]] = []
    while block := blocks.next:
        ids = yield from reserve(len(block))
        plain: list[tuple[int, NewJob]] = []
        in_lanes: list[tuple[int, NewJob]] = []
        for position, (job_id, job) in enumerate(zip(ids, block, strict=True), start=len(answers)):
            if job.when_full is not None:
                decided.append((position, job))
            elif job.unique_key is not None:
                keyed[position] = (job_id, job)
            else:
                (plain if job.lane is None else in_lanes).append((job_id, job))
        answers += map(EnqueueAnswer, ids)
        fetching = blocks.fetch()
        if in_lanes:
            yield Copy("limits/enqueue_copy", copied_with_lanes(in_lanes, clock, defaults))
        if plain:
            yield Copy("jobs/enqueue_copy", chain(copy_rows(plain, clock, defaults), fetching))
        list(fetching)  # where it was not sent along
    if keyed:
        yield from _add_keyed(answers, keyed, clock, defaults, now)
    yield from _add_decided(answers, decided, now)
    return answers


def _enqueue_unnumbered(jobs: Sequence[NewJob], now: datetime | None) -> Steps[list[EnqueueAnswer]]:
    """Add jobs as a role that may not choose their ids: those with a key one at a time."""
    answers = [EnqueueAnswer(0)] * len(jobs)
    plain = [at for at, job in enumerate(jobs) if job.unique_key is None and job.when_full is None]
    for start in range(0, len(plain), ROWS_PER_BLOCK):
        block = plain[start : start + ROWS_PER_BLOCK]
        added = yield from enqueue_few([jobs[at] for at in block], now=now)
        for at, answer in zip(block, added, strict=True):
            answers[at] = answer
    keyed = {
        at: (0, job) for at, job in enumerate(jobs) if job.unique_key is not None and job.when_full is None
    }
    for same in _by_key(keyed):
        yield from _enqueue_in_turn(same, answers, now)
    yield from _add_decided(answers, ((at, job) for at, job in enumerate(jobs) if job.when_full), now)
    return answers


def _add_decided(
    answers: list[EnqueueAnswer], decided: Iterable[tuple[int, NewJob]], now: datetime | None
) -> Steps[None]:
    """Add the jobs whose limits decide whether they are added, in the order of their lanes: two enqueuers do not deadlock."""
    for position, job in sorted(decided, key=lambda one: one[1].lane or ""):
        answers[position] = yield from enqueue(job, now=now)


def _add_keyed(
    answers: list[EnqueueAnswer],
    keyed: dict[int, tuple[int, NewJob]],
    clock: datetime,
    defaults: QueueDefaults,
    now: datetime | None,
) -> Steps[None]:
    if any(job.unique.period is not None or job.unique.collision != "reject" for _, job in keyed.values()):
        for same in _by_key(keyed):
            yield from _enqueue_in_turn(same, answers, now)
        return
    rejected = yield from _enqueue_keyed(list(keyed.values()), clock, defaults, now)
    for position, (job_id, _) in keyed.items():
        answers[position] = rejected.get(job_id, answers[position])


def _by_key(keyed: dict[int, tuple[int, NewJob]]) -> Iterator[list[tuple[int, NewJob]]]:
    ordered = sorted(
        ((position, job) for position, (_, job) in keyed.items()), key=lambda pair: pair[1].unique_key or ""
    )
    for _, same in groupby(ordered, key=lambda pair: pair[1].unique_key):
        yield list(same)


def _enqueue_in_turn(
    same: list[tuple[int, NewJob]], answers: list[EnqueueAnswer], now: datetime | None
) -> Steps[None]:
    if (
        all(job.unique.collision == "replace" for _, job in same)
        and len({job.unique for _, job in same}) == 1
    ):
        # Each replaces the one before, so only the last is added: the row is written once.
        first, job = same[0][0], same[-1][1]
        answer = yield from _enqueue_unique(job, _params(job, now, None) | {"room": True})
        for position, _ in same:
            accepted = answer.outcome is not Outcome.REJECTED
            answers[position] = (
                EnqueueAnswer(answer.id, Outcome.REPLACED) if accepted and position != first else answer
            )
        return
    for position, job in same:
        answers[position] = yield from _enqueue_unique(job, _params(job, now, None) | {"room": True})


class _JobBlocks:
    """Jobs by the block, drawn only when there is time for it."""

    def __init__(self, jobs: Iterable[NewJob]) -> None:
        self._jobs = iter(jobs)
        self.next = list(islice(self._jobs, ROWS_PER_BLOCK))

    def all(self) -> list[NewJob]:
        jobs = [*self.next, *self._jobs]
        self._jobs = iter(jobs)
        self.next = list(islice(self._jobs, ROWS_PER_BLOCK))
        return jobs

    def fetch(self) -> Iterator[bytes]:
        """Draw the next block. It yields nothing: COPY runs it behind the rows of the block before."""
        self.next = list(islice(self._jobs, ROWS_PER_BLOCK))
        yield from ()


@plan
def queue_defaults(now: datetime | None, *, refuses: bool = True) -> Steps[tuple[datetime, QueueDefaults]]:
    """What time the database has, and what queues say of jobs that do not say it themselves.

    Args:
        now: the instant; the database's own by default.
        refuses: whether jobs of closed queues are refused.
    """
    rows = yield Statement("queues/defaults", {"now": now})
    of_queue = {
        name: JobDefaults(
            PRIORITY if priority is None else priority,
            MAX_ATTEMPTS if max_attempts is None else max_attempts,
            is_closed,
            is_bounded,
        )
        for _, name, priority, max_attempts, is_closed, is_bounded, _ in rows
        if name is not None
    }
    return rows[0][0], QueueDefaults(of_queue, refuses=refuses, may_number=rows[0][-1])


@plan
def reserve(count: int) -> Steps[list[int]]:
    """Ids for as many jobs, in ascending order."""
    runs = yield Statement("jobs/reserve_ids", {"count": count})
    return [job_id for first, last in runs for job_id in range(first, last + 1)]


def _enqueue_unique(
    job: NewJob, params: dict[str, object], known: QueueCache | None = None
) -> Steps[EnqueueAnswer]:
    for _ in range(TRIES):
        job_id = yield from _insert(job.unique, params)
        if job_id is not None:
            return EnqueueAnswer(job_id)
        # The job that holds the key may end between the two: then try again.
        answer = yield from _on_collision(job, params)
        if answer is not None:
            return answer
        yield from require_room(job.queue, known=known)
        params = params | {"room": True}
    raise JobError(
        f"unique_key={job.unique_key!r} was taken and freed {TRIES} times while enqueuing; try again"
    )


def _insert(unique: Unique, params: dict[str, object]) -> Steps[int | None]:
    """Add the job, with a period its hold first. A live job without a hold may still have the key, and keeps it."""
    if unique.period is None:
        rows = yield Statement("jobs/enqueue_unique", params)
        return rows[0][0] if rows else None
    rows = yield Statement("jobs/enqueue_for_period", params)
    if not rows:
        return None
    job_id, added = rows[0]
    if not added:
        undo = "jobs/shorten_hold" if unique.trailing else "jobs/release_hold"
        yield Statement(undo, {**params, "job_id": job_id}, returns=False)
        return None
    return int(job_id)


def _on_collision(job: NewJob, params: dict[str, object]) -> Steps[EnqueueAnswer | None]:
    if job.unique.collision == "replace":
        changed = yield Statement("jobs/replace", params)
        if changed:
            return EnqueueAnswer(changed[0][0], Outcome.REPLACED)
    elif job.unique.collision == "reschedule":
        changed = yield Statement("jobs/reschedule", params)
        if changed:
            return EnqueueAnswer(changed[0][0], Outcome.RESCHEDULED)
    holder = yield Statement("jobs/count_collision", params)
    if not holder and job.unique.period and not job.unique.trailing:
        holder = yield Statement("jobs/find_hold", params)
    return EnqueueAnswer(holder[0][0], Outcome.REJECTED) if holder else None


def _enqueue_keyed(
    numbered: list[tuple[int, NewJob]], clock: datetime, defaults: QueueDefaults, now: datetime | None
) -> Steps[dict[int, EnqueueAnswer]]:
    """Insert jobs with unique keys; return, for the ids that were not used, what to answer instead."""
    # Two batches lock keys in one order: no deadlock.
    numbered.sort(key=lambda pair: pair[1].unique_key or "")
    params = new_by_each([job for _, job in numbered], clock, defaults)
    params |= {"id": [job_id for job_id, _ in numbered], "now": now}
    accepted = {row[0] for row in (yield Statement("jobs/enqueue_batch", params))}
    refused = [(job_id, job) for job_id, job in numbered if job_id not in accepted]
    if not refused:
        return {}
    collided = {"unique_keys": [job.unique_key for _, job in refused]}
    holders = {row[0]: row[1] for row in (yield Statement("jobs/count_collisions", collided))}
    answers = {}
    for job_id, job in refused:
        holder = holders.get(job.unique_key)
        if holder is None:  # it ended since
            answers[job_id] = yield from _enqueue_unique(job, _params(job, now, None) | {"room": True})
        else:
            answers[job_id] = EnqueueAnswer(holder, Outcome.REJECTED)
    return answers


def _is_basic(job: NewJob) -> bool:
    return (
        job.run_at is None
        and job.delay is None
        and not sends(job)
        and job.expires_at is None
        and job.expires_in is None
        and job.lane is None
    )


def _basic_params(job: NewJob, priority: int | None, max_attempts: int | None) -> dict[str, object]:
    return {
        "queue": job.queue,
        "task": job.task,
        "args": job.args.decode(),
        "priority": priority,
        "max_attempts": max_attempts,
    }


def _params(job: NewJob, now: datetime | None, known: QueueCache | None) -> dict[str, object]:
    more = {
        "room": known is not None and known.has_room(job.queue),
        "run_at": job.run_at,
        "delay": delay_of(job),
        **sent(job),
        "expires_at": job.expires_at,
        "expires_in": job.expires_in,
        "lane": job.lane,
        "cost": job.cost,
        "now": now,
    }
    return (
        _basic_params(job, job.priority, job.max_attempts)
        | more
        | ({} if job.unique_key is None else _unique_params(job))
    )


def _unique_params(job: NewJob) -> dict[str, object]:
    return {
        "unique_key": job.unique_key,
        "unique_until_started": job.unique.until == "started",
        "period": job.unique.period,
        "most": job.unique.most,
        "rejects": job.unique.collision == "reject",
        "trailing": job.unique.trailing,
    }
