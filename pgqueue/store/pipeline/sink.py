"""Plans that enqueue a DataFrame: many executors stage rows, and the driver makes them jobs in one transaction.

A *write* is one DataFrame, or one batch of a stream. Each of its partitions is staged by one or more *attempts*: Spark
repeats attempts that failed or are slow, and an abandoned attempt may still run. An attempt does not know whether it will
count, so each stages under its own number, and the driver gives :func:`commit` the numbers that count. The rows of all
other attempts are ignored, at any time they end.

=================  ==============================================================================================
what fails         what happens
=================  ==============================================================================================
an attempt         its rows are never used; :func:`abandon` deletes them, or a later write's :func:`sweep`
the driver         before the commit: as an attempt; after it: all is enqueued, and a second run of the name sees this
the commit         it is rolled back; nothing is enqueued
the server         the staged rows are gone; the commit counts fewer rows than were staged, and raises an error
=================  ==============================================================================================

A named write is recorded in the transaction that enqueues its jobs: of two writes of one name, the second waits for the
first, and then enqueues nothing.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

import msgspec

from pgqueue.errors import InvalidOption, PipelineError
from pgqueue.store.jobs.enqueue import TRIES, enqueue
from pgqueue.store.pipeline.sink_stage import Part
from pgqueue.store.plan import Row, Statement, Steps, plan
from pgqueue.values.jobs.job import EnqueueAnswer, NewJob, Outcome
from pgqueue.values.jobs.unique import Unique
from pgqueue.values.queues.defaults import closed_error

IDLE = timedelta(days=1)
"""A write that has staged nothing for this long has lost its driver."""
KEPT = timedelta(days=30)
"""How long the lists of rejected rows are kept, and writes that cannot be repeated."""
TAKEN_AT_ONCE = 1_000


class NewWrite(msgspec.Struct, frozen=True):
    """A write to commit.

    Attributes:
        id: the write's own number.
        task: the task that all rows are calls of.
        run: the write's name, which is written once; of a stream the name of its run. None: it has no name.
        batch: for a stream: the batch's number.
        unique: what happens when a unique key is taken.
        query: for a stream: the id of its query. Each batch of it is written once.
        key: the columns that each job keeps, as Spark's JSON of a struct; None: it keeps none.
    """

    id: UUID
    task: str
    run: str | None = None
    batch: int | None = None
    unique: Unique = Unique()
    query: str | None = None
    key: str | None = None


class Write(msgspec.Struct, frozen=True):
    """The record of a write: the fields of ``sql/pipeline/sink_writes.sql``, in its order.

    Attributes:
        id: the write's own number.
        run: its name; of a stream that names no run its query's id; None: it had no name.
        batch: for a stream: the batch's number.
        task: the task that all rows are calls of.
        rows: how many rows were staged; 0 if an earlier write was found before staging.
        enqueued: how many became jobs.
        rejected: how many did not, because a job held their unique key.
        changed: how many gave a waiting job of their key new contents or a new time, as its policy says.
        repeats: the earlier write of the same name, which enqueued the jobs; this one enqueued none.
        at: the time.
        refused: how many cannot be jobs, and were diverted.
        query: for a stream: the id of its query.
    """

    id: UUID
    run: str | None
    batch: int | None
    task: str
    rows: int
    enqueued: int
    rejected: int
    changed: int
    repeats: UUID | None
    at: datetime
    refused: int = 0
    query: str | None = None


class RejectedRow(msgspec.Struct, frozen=True):
    """A row that did not become a job: the fields of ``sql/pipeline/sink_rejected.sql``, in its order.

    Attributes:
        partition: the row's partition.
        place: which row of the partition, from 1.
        unique_key: the key that was taken.
        job_id: the job that held it.
    """

    partition: int
    place: int
    unique_key: str
    job_id: int


class RefusedRow(msgspec.Struct, frozen=True):
    """A row that cannot be a job: the fields of ``sql/pipeline/sink_refused.sql``, in its order.

    Attributes:
        partition: the row's partition.
        place: which row of the partition, from 1.
        contents: its unique key, or the beginning of its columns; secrets are hidden.
        reason: why it cannot be a job; secrets are hidden.
    """

    partition: int
    place: int
    contents: str
    reason: str


class _WriteCounts(msgspec.Struct):
    enqueued: int = 0
    rejected: int = 0
    changed: int = 0
    refused: int = 0
    jobs: list[str] = msgspec.field(default_factory=list)

    @property
    def rows(self) -> int:
        return self.enqueued + self.rejected + self.changed + self.refused

    def add(self, row: Row) -> None:
        """Count jobs that a statement added: its row has their number, the answer of a function, and their ids."""
        self.enqueued += row[0]
        self.jobs += [row[2]] if row[2] else []


@plan(transaction=True)
def commit(write: NewWrite, parts: Sequence[Part], *, now: datetime | None = None) -> Steps[Write]:
    """Enqueue the rows that these attempts staged.

    Jobs are queued in the order of the rows. Rows whose unique keys have a period, or a policy other than ``reject``, are
    enqueued one at a time, after the others and in the order of the keys.

    Args:
        write: what is written.
        parts: one attempt per partition, in the order of the partitions.
        now: the time; by default the database's clock.

    Returns:
        The write's record. ``repeats`` is set if a write of this name was recorded before; then nothing was enqueued.

    Raises:
        InvalidOption: a write of another task has this name.
        PipelineError: staged rows are gone.
        QueueClosed: the queue of a row takes no new jobs.
    """
    rows = sum(part.rows for part in parts)
    if not (yield Statement("pipeline/sink_record", _write_parameters(write) | {"rows": rows})):
        repeated = yield from _repeat(write, rows)
        yield from abandon(write.id)
        return repeated
    refusing = yield Statement("pipeline/sink_closed", {"attempts": [part.attempt for part in parts]})
    if refusing:
        raise closed_error(refusing[0][0])
    counts = yield from _add(write, parts, now)
    if counts.rows != rows:
        raise PipelineError(
            f"{rows - counts.rows:,} of {rows:,} staged rows are gone: the database was restarted, or the write staged "
            f"nothing for more than {IDLE.days} day and was deleted; nothing was enqueued, write it again"
        )
    settled = yield Statement("pipeline/sink_settle", {"write": write.id, **msgspec.structs.asdict(counts)})
    yield from abandon(write.id)
    return Write(*settled[0])


@plan
def find(run: str | None, batch: int | None = None, *, query: str | None = None) -> Steps[Write | None]:
    """The write that enqueued the jobs of this name; None: there is none yet."""
    rows = yield Statement("pipeline/sink_find", {"run": run, "query": query, "batch": batch})
    return Write(*rows[0]) if rows else None


def require_task(earlier: Write, task: str) -> None:
    """Refuse a name that a write of another task has; a stream may change its task.

    Raises:
        InvalidOption: the earlier write was of another task.
    """
    if earlier.task != task and earlier.batch is None:
        raise InvalidOption(
            f"run={earlier.run!r} names a write of the task {earlier.task!r}, which enqueued {earlier.enqueued:,} jobs "
            f"at {earlier.at:%Y-%m-%d %H:%M:%S%z}; give the one of {task!r} another name"
        )


@plan(transaction=True)
def abandon(write: UUID) -> Steps[None]:
    """Delete the staged rows of a write.

    An attempt that is staging rows at this moment is left to :func:`sweep`; this plan does not wait for it.
    """
    yield from _clear((yield Statement("pipeline/sink_leave", {"write": write})))


@plan(transaction=True)
def sweep(*, now: datetime | None = None) -> Steps[int]:
    """Delete staged rows of writes whose driver is gone, and records of old writes; returns the number of attempts.

    Any number of writers may run it at the same time.
    """
    idle = yield Statement("pipeline/sink_idle", {"now": now, "idle": IDLE})
    yield from _clear(idle)
    yield Statement("pipeline/sink_forget", {"now": now, "keep": KEPT}, returns=False)
    return len(idle)


@plan
def writes(*, run: str | None = None, task: str | None = None, limit: int = 100) -> Steps[list[Write]]:
    """The latest writes, newest first; only those of ``run`` and ``task``, where given."""
    rows = yield Statement("pipeline/sink_writes", {"run": run, "task": task, "limit": limit})
    return [Write(*row) for row in rows]


@plan
def rejected_rows(write: UUID, *, limit: int = 1_000) -> Steps[list[RejectedRow]]:
    """The rows of a write whose unique key was taken, in their order."""
    rows = yield Statement("pipeline/sink_rejected", {"write": write, "limit": limit})
    return [RejectedRow(*row) for row in rows]


@plan
def refused_rows(write: UUID, *, limit: int = 1_000) -> Steps[list[RefusedRow]]:
    """The rows of a write that cannot be jobs, in their order."""
    rows = yield Statement("pipeline/sink_refused", {"write": write, "limit": limit})
    return [RefusedRow(*row) for row in rows]


def _write_parameters(write: NewWrite) -> dict[str, object]:
    return {
        "write": write.id,
        "run": write.run,
        "query": write.query,
        "batch": write.batch,
        "task": write.task,
        "key": write.key,
    }


def _repeat(write: NewWrite, rows: int) -> Steps[Write]:
    earlier = yield from find(write.run, write.batch, query=write.query)
    assert earlier is not None  # noqa: S101 - its name refused this one in the same transaction
    require_task(earlier, write.task)
    recorded = yield Statement(
        "pipeline/sink_repeat", _write_parameters(write) | {"rows": rows, "repeats": earlier.id}
    )
    return Write(*recorded[0])


def _add(write: NewWrite, parts: Sequence[Part], now: datetime | None) -> Steps[_WriteCounts]:
    counts = _WriteCounts()
    keyed = sum(part.keyed for part in parts)
    if any(part.refused for part in parts):
        refusing = {"write": write.id, "attempts": [part.attempt for part in parts if part.refused]}
        counts.refused += (yield Statement("pipeline/sink_refuse", refusing))[0][0]
    if keyed and write.unique.period is None and write.unique.collision == "reject":
        yield from _add_unique(write, parts, counts, now)
        return counts
    for part in parts:  # the index gives a partition's rows in order, without a sort
        if part.rows > part.keyed + part.refused:
            params = {"attempt": part.attempt, "task": write.task, "now": now}
            counts.add((yield Statement("pipeline/sink_add", params))[0])
    if keyed:
        yield from _add_singly(write, [part.attempt for part in parts], counts, now)
    return counts


def _add_unique(
    write: NewWrite, parts: Sequence[Part], counts: _WriteCounts, now: datetime | None
) -> Steps[None]:
    attempts = [part.attempt for part in parts]
    until_started = write.unique.until == "started"
    params = {"attempts": attempts, "task": write.task, "unique_until_started": until_started, "now": now}
    for _ in range(TRIES):  # a job that holds a key may end between the two statements
        counts.add((yield Statement("pipeline/sink_add_unique", params))[0])
        counts.rejected += (
            yield Statement("pipeline/sink_reject", {"attempts": attempts, "write": write.id})
        )[0][0]
        if counts.rows == sum(part.rows for part in parts):
            return


def _add_singly(
    write: NewWrite, attempts: Sequence[UUID], counts: _WriteCounts, now: datetime | None
) -> Steps[None]:
    while taken := (yield Statement("pipeline/sink_take", {"attempts": attempts, "limit": TAKEN_AT_ONCE})):
        answers = []
        for row in sorted(taken, key=lambda row: row[:3]):
            answer = yield from enqueue(_job(write, row), now=now)
            answers.append((row, answer))
        added = sorted(answer.id for _, answer in answers if answer.outcome is Outcome.ADDED)
        counts.enqueued += len(added)
        counts.jobs += [f"{{[{one},{one}]}}" for one in added]
        refused = [(row, answer) for row, answer in answers if answer.outcome is Outcome.REJECTED]
        counts.rejected += len(refused)
        counts.changed += sum(
            answer.outcome in {Outcome.REPLACED, Outcome.RESCHEDULED} for _, answer in answers
        )
        if refused:
            yield Statement("pipeline/sink_note", _refusal_parameters(write.id, refused), returns=False)


def _job(write: NewWrite, row: Row) -> NewJob:
    key, _, _, queue, args, priority, max_attempts, run_at, meta, lane, cost = row
    sent = None if meta is None else meta.encode()
    return NewJob(
        write.task,
        args.encode(),
        queue,
        priority,
        max_attempts,
        run_at,
        unique_key=key,
        unique=write.unique,
        meta=sent,
        lane=lane,
        cost=cost,
    )


def _refusal_parameters(write: UUID, refused: Sequence[tuple[Row, EnqueueAnswer]]) -> dict[str, object]:
    return {
        "write": write,
        "partitions": [row[1] for row, _ in refused],
        "places": [row[2] for row, _ in refused],
        "unique_keys": [row[0] for row, _ in refused],
        "job_ids": [answer.id for _, answer in refused],
        "keys": [_key_of(row[8]) for row, _ in refused],
    }


def _key_of(meta: str | None) -> str | None:
    return None if meta is None else msgspec.json.encode(msgspec.json.decode(meta)["key"]).decode()


def _clear(left: Sequence[Row]) -> Steps[None]:
    if left:
        # A separate statement, so that it sees all rows of the attempts that were just deleted.
        yield Statement("pipeline/sink_clear", {"attempts": [row[0] for row in left]}, returns=False)
