"""The sink: ``df.write.format("pgqueue")`` and ``df.writeStream.format("pgqueue")``.

The steps, in the order in which Spark calls them:

==========  ===========================================================================================================
driver      :func:`writer` decides where rows go, refuses wrong options and columns, and checks whether a write of this
            name was done; it also deletes rows that killed drivers left staged
executors   ``write``, once per attempt at a partition: every row is checked and staged
driver      ``commit`` with the messages of the attempts that count: if a row cannot be a job, the write fails here; else
            all staged rows become jobs in one transaction, which also records the write
driver      ``abort`` if a step failed, the commit included: staged rows are deleted
==========  ===========================================================================================================

A row that cannot be a job does not fail the attempt that found it: Spark would repeat the attempt without success and
stop the other attempts, so the number of such rows would stay unknown.

:mod:`pgqueue.store.pipeline.sink` explains why each row is enqueued exactly once.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID, uuid4

import pyarrow as pa
from psycopg.errors import InsufficientPrivilege
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from pgqueue.errors import InvalidOption, PipelineError, RowsRefused
from pgqueue.spark.apps import find_app
from pgqueue.spark.writing.rows import SHOWN, RefusedRow, Rows
from pgqueue.spark.writing.target import WriteTarget, decide, read_options
from pgqueue.store.connections.connection import StepRunner
from pgqueue.store.limits import lanes
from pgqueue.store.pipeline import sink
from pgqueue.store.pipeline.sink_stage import Part, stage
from pgqueue.store.plan import run
from pgqueue.store.schema import schema

logger = logging.getLogger("pgqueue.spark")
QUERY = "sql.streaming.queryId"
"""The local property in which Spark passes a stream's query id; the id is kept in the checkpoint."""


@dataclass(frozen=True, slots=True)
class StagedPart(WriterCommitMessage):
    """What an attempt reports to the driver.

    Attributes:
        write: the write's number.
        part: what was staged; None: nothing, because the write was done before.
        rows: the number of rows.
        refused: how many of them cannot be jobs.
        refusals: the first refused rows.
        query: for a stream: the id of its query.
    """

    write: UUID
    part: Part
    rows: int
    refused: int
    refusals: tuple[RefusedRow, ...]
    query: str | None


def writer(options: Mapping[str, str], columns: StructType, overwrite: bool) -> "JobsWriter":  # noqa: FBT001 - Spark's own order
    """The writer of a DataFrame.

    Args:
        options: those of the write.
        columns: the DataFrame's.
        overwrite: whether the save mode is ``overwrite``.

    Raises:
        ConfigurationError: an option is missing, unknown or out of its range, or what it names does not exist.
        RowsRefused: a column cannot be part of a job.
        DatabaseError: the database cannot be reached, or its schema is not one for this release.
    """
    if overwrite:
        raise InvalidOption('mode "overwrite": jobs are only ever added; write with .mode("append")')
    target = decide(read_options(options), columns)
    return JobsWriter(target, uuid4(), is_done=_prepare(target))


def stream_writer(
    options: Mapping[str, str],
    columns: StructType,
    overwrite: bool,  # noqa: FBT001 - Spark's own order
) -> "JobsStreamWriter":
    """The writer of a stream, batch by batch; arguments and errors as for :func:`writer`."""
    if overwrite:
        raise InvalidOption('outputMode "complete": jobs are only ever added; use "append"')
    target = decide(read_options(options), columns)
    _prepare(target, is_stream=True)
    return JobsStreamWriter(target, uuid4())


class JobsWriter(DataSourceArrowWriter):
    """Writes a DataFrame; Spark pickles it and sends it to its processes."""

    def __init__(self, target: WriteTarget, write: UUID, *, is_done: bool) -> None:
        """``is_done``: a write of this name has enqueued its jobs before."""
        self.target = target
        self.new = sink.NewWrite(
            write, target.task, target.run, None, target.defaults.unique, key=_key_of(target)
        )
        self.is_done = is_done

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedPart:
        """Check and stage a partition; if the write is done already, the rows are not computed."""
        batches = iter(()) if self.is_done else iterator
        return stage_partition(self.target, self.new.id, _partition(), batches)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Enqueue all staged rows, or refuse all of them."""
        _commit(self.target, self.new, messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:  # noqa: ARG002 - Spark's own form
        """Delete all that was staged."""
        _abandon(self.target, self.new.id)


class JobsStreamWriter(DataSourceStreamArrowWriter):
    """Writes the batches of a stream; Spark makes one writer to stage a batch, and another to commit it."""

    def __init__(self, target: WriteTarget, write: UUID) -> None:
        """``write`` is the number of the write, if this writer stages the batch."""
        self.target = target
        self.id = write

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedPart:
        """Check and stage a partition of a batch."""
        context = TaskContext.get()
        query = None if context is None else context.getLocalProperty(QUERY)
        if query is None:
            raise PipelineError(
                "Spark does not say which query this batch is of, so it could not be told from others"
            )
        return stage_partition(self.target, self.id, _partition(), iterator, query)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's own
        """Enqueue the batch, unless it was enqueued before its query was stopped."""
        said = [message for message in messages if isinstance(message, StagedPart)]
        if said:  # else the batch has no partitions at all
            target = self.target
            first = said[0]
            new = sink.NewWrite(
                first.write,
                target.task,
                target.run or first.query,
                batchId,
                target.defaults.unique,
                query=first.query,
                key=_key_of(target),
            )
            _commit(target, new, messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803 - Spark's own
        """Delete the batch's staged rows."""
        for write in {message.write for message in messages if isinstance(message, StagedPart)}:
            _abandon(self.target, write)


def stage_partition(
    target: WriteTarget,
    write: UUID,
    partition: int,
    batches: Iterator[pa.RecordBatch],
    query: str | None = None,
) -> StagedPart:
    """Check the rows of a partition, and stage them under a number that only this attempt has.

    Each batch is staged in its own transaction, so that none is open while Spark computes the next. After the first row
    that cannot be a job, rows are only checked and no longer staged, because nothing will be enqueued.

    Args:
        target: where the rows go.
        write: the write's number.
        partition: which partition.
        batches: its rows.
        query: for a stream: the id of its query.

    Returns:
        The report to the driver.
    """
    rows, attempt = Rows(target, partition), uuid4()
    part = Part(partition, attempt, 0, 0)
    with target.database.connect() as connection:
        steps = StepRunner(connection, target.database.catalogue)
        for batch in batches:
            if rows.refused and not target.diverts:
                list(rows.jobs(batch))
            else:
                run(stage(write, part, rows.jobs(batch)), steps)
    part = Part(partition, attempt, rows.staged, rows.keyed, rows.refused if target.diverts else 0)
    return StagedPart(write, part, rows.rows, rows.refused, tuple(rows.refusals), query)


def _prepare(target: WriteTarget, *, is_stream: bool = False) -> bool:
    """Check that the database can be written to, and delete old staged rows; return whether this write was done before."""
    database = target.database
    with database.connect() as connection:
        steps = StepRunner(connection, database.catalogue)
        run(schema.verify(target.schema), steps)
        run(sink.sweep(), steps)
        _declare(target, steps)
        if target.run is None or is_stream:  # of a stream, each batch asks
            return False
        earlier = run(sink.find(target.run), steps)
        if earlier is not None:
            sink.require_task(earlier, target.task)
        return earlier is not None


def _declare(target: WriteTarget, steps: StepRunner) -> None:
    """Store the limits of the app's task: when staged rows become jobs, the database puts them into the lanes that it knows of."""
    limiting = None if target.app is None else find_app(target.app).find_task(target.task).limiting
    if limiting is None:
        return
    try:
        run(lanes.declare(limiting.numbers), steps)
        run(lanes.declare_tasks({target.task: limiting}), steps)
    except InsufficientPrivilege as error:
        logger.warning(
            "the limits of the task %s could not be stored (%s): if no worker that has the task has started yet, start one before "
            "the write; otherwise the jobs of this write run without limits",
            target.task,
            str(error).strip(),
            extra={"task": target.task, "error": str(error).strip()},
        )


def _commit(target: WriteTarget, new: sink.NewWrite, messages: Sequence[WriterCommitMessage | None]) -> None:
    said = [message for message in messages if isinstance(message, StagedPart)]
    if len(said) < len(messages):
        raise PipelineError(f"{len(messages) - len(said)} partitions were not staged; nothing was enqueued")
    if not target.diverts:
        _require_good(said, new.task)
    database = target.database
    parts = [message.part for message in said if message.part.rows]
    with database.connect() as connection:
        steps = StepRunner(connection, database.catalogue)
        done = run(sink.commit(new, parts), steps)
    _log(done)


def _require_good(said: Sequence[StagedPart], task: str) -> None:
    refused = sum(one.refused for one in said)
    if refused:
        rows = sum(one.rows for one in said)
        first = [refusal for one in said for refusal in one.refusals][:SHOWN]
        more = f"; and {refused - len(first):,} more" if refused > len(first) else ""
        raise RowsRefused(
            f"{refused:,} of {rows:,} rows cannot be jobs of the task {task}; nothing was enqueued: "
            f"{'; '.join(map(str, first))}{more}"
        )


def _key_of(target: WriteTarget) -> str | None:
    return target.key.json() if target.key.fields else None


def _abandon(target: WriteTarget, write: UUID) -> None:
    database = target.database
    with database.connect() as connection:
        steps = StepRunner(connection, database.catalogue)
        run(sink.abandon(write), steps)


def _partition() -> int:
    context = TaskContext.get()
    return 0 if context is None else context.partitionId()


def _log(done: sink.Write) -> None:
    fields = {"run": done.run, "batch": done.batch, "task": done.task}
    if done.repeats is not None:
        logger.warning("nothing enqueued: an earlier write of run %r did it", done.run, extra=fields)
    else:
        counts = (done.enqueued, done.rejected, done.refused, done.changed)
        logger.info("%d jobs enqueued, %d rows rejected, %d refused, %d jobs changed", *counts, extra=fields)
