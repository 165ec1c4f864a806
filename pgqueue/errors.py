"""All exceptions of pgqueue: one tree, and beside it the one that ends an attempt in order to wait. Messages name the wrong value and the remedy.

::

    PgQueueError
    ├── ConfigurationError          a setting is missing or makes no sense
    │   ├── InvalidOption           an option of a task or an enqueue is out of its range
    │   ├── UnknownQueue            a queue that was not declared, where queues are declared
    │   ├── QueueExists             a queue was declared that has other settings
    │   ├── LimitExists             a limit was set that has other numbers
    │   ├── UnknownTask             a task name that was never registered
    │   ├── UnknownSchedule         a schedule of this name is not stored
    │   ├── UnknownWorker           no live worker has this id, or this host and process
    │   ├── DuplicateTask           a task name registered twice
    │   └── NotInMemory             a test without a database called something that needs one
    ├── PayloadError                arguments and JSON do not fit together
    │   ├── PayloadNotEncodable     raised by an enqueue: wrong arguments
    │   ├── PayloadTooLarge         raised by an enqueue: too many bytes
    │   └── PayloadNotDecodable     found by a worker; the job is dead
    ├── DatabaseError
    │   ├── ConnectionFailed        no connection could be made
    │   │   └── ShardDown           a shard does not answer; jobs whose keys live on others go on
    │   ├── WrongShard              a key lives on another shard than the connection, or than the rest of the flow
    │   ├── UnsupportedConnection   not a kind of connection that jobs can be enqueued on
    │   ├── NotGranted              the connection's role lacks a right; the message says which grant gives it
    │   └── SchemaError
    │       ├── SchemaMissing       `pgqueue migrate` was never run
    │       ├── SchemaTooOld        `pgqueue migrate` was not run for this release
    │       └── SchemaTooNew        the schema is of a later release that this one cannot work with
    ├── PipelineError               the data pipeline cannot continue; nothing was changed
    │   ├── SparkMissing            no PySpark, or no Java that it runs on
    │   ├── LakeError               this release and this database cannot use the lake
    │   │   ├── LakeTooNew          it was written by a later release
    │   │   └── LakeOfAnother       it holds another database's history
    │   ├── DaysNotExported         some days could not be written to the lake; the others were
    │   ├── NotVerified             the lake's rows are not those of the database
    │   └── RowsRefused             rows of a DataFrame that cannot become jobs
    ├── FlowError
    │   ├── FlowRefused             a flow was not added or retried: a key is taken, or a job has no record any more
    │   ├── FlowNotDone             the flow did not end within the timeout of the wait
    │   └── FlowNotFound            no record of this flow
    ├── JobError
    │   ├── QueueClosed            raised by an enqueue: an operator has closed the queue, it takes no new jobs
    │   ├── BacklogFull             raised by an enqueue: the queue has as many ready jobs as its bound allows
    │   ├── LimitReached            raised by an enqueue: no place of the limit is free, and it refuses more jobs
    │   ├── JobNotFound             no record of this id
    │   ├── JobNotDone              the job did not end within the timeout of the wait
    │   ├── JobFailed               the job is dead or was cancelled, so there is no result
    │   ├── ResultNotKept           the job succeeded, and its result was not kept; the message says why
    │   ├── TimedOut                an attempt took longer than its timeout
    │   ├── WaitTimedOut            what a task waits for did not happen before the deadline
    │   ├── SignalRefused           a signal to a job that has ended or never was
    │   ├── InvalidCallback         a token that is none of this queue's
    │   └── Superseded              this attempt no longer holds its job; it cannot record anything
    └── JobControl                  raised by your task to decide what becomes of its job
        ├── Snooze                  run later; spends no attempt
        ├── RetryLater              this attempt failed, and the task sets the delay
        ├── Dead                    to the dead table at once
        └── Cancelled               the job ends as cancelled
    Waiting                         raised by ctx.wait_for() and ctx.pause(): the job waits, and spends no attempt
"""

from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, TypeAlias, overload

if TYPE_CHECKING:
    from pgqueue.values.jobs.job import AttemptError, Job

Duration: TypeAlias = float | timedelta  # a number means seconds
LONGEST_DELAY = timedelta(days=3650)


class PgQueueWarning(UserWarning):
    """Something that works and is probably not meant: for example an argument that arrives as another value."""


def _remade(kind: type[BaseException], args: tuple[object, ...]) -> BaseException:
    return kind.__new__(kind, *args)  # not by __init__, which takes other arguments


def _reduced(self: BaseException) -> tuple[object, ...]:
    """What pickle keeps of an error: its class, its message, and its attributes."""
    return _remade, (type(self), self.args), vars(self)


class PgQueueError(Exception):
    """The root of every error that pgqueue raises."""

    __reduce__ = _reduced


class ConfigurationError(PgQueueError):
    """A setting is missing or makes no sense."""


class InvalidOption(ConfigurationError, ValueError):
    """An option of a task, a worker or an enqueue is out of its range."""


class UnknownQueue(ConfigurationError):
    """A queue was named that the app did not declare, and the app declares its queues."""


class QueueExists(ConfigurationError):
    """A queue was declared that has other settings, and the declaration was to fail then; nothing was changed."""


class LimitExists(ConfigurationError):
    """A limit was set that has other numbers, and that was to fail then; nothing was changed."""


class UnknownTask(ConfigurationError):
    """A task name was used that the app never registered."""


class UnknownSchedule(ConfigurationError, LookupError):
    """A schedule was named that is not stored."""


class UnknownWorker(ConfigurationError, LookupError):
    """A worker was named that is not known, or that is dead."""


class DuplicateTask(ConfigurationError):
    """Two functions were registered under one task name."""


class NotInMemory(ConfigurationError):
    """A queue in memory, for a test, was asked for something that only PostgreSQL can do."""


class PayloadError(PgQueueError):
    """A job's arguments and their JSON form do not fit together."""


class PayloadNotEncodable(PayloadError, TypeError):
    """An enqueue had arguments that do not fit the task, or that have no JSON form."""


class PayloadTooLarge(PayloadError, ValueError):
    """An enqueue had arguments whose JSON form is over the limit."""


class PayloadNotDecodable(PayloadError):
    """A stored payload does not fit the task's annotations."""


class DatabaseError(PgQueueError):
    """The database cannot be used in its present state."""


class ConnectionFailed(DatabaseError):
    """No connection could be made, or it was lost.

    Attributes:
        maybe_done: whether the connection was lost after something was asked, which may have been done.
    """

    maybe_done = False


class ShardDown(ConnectionFailed):
    """A shard of the queue does not answer, and what was asked lives there. Other shards are not affected."""


class WrongShard(DatabaseError):
    """What was asked cannot be done on one shard: a key lives on another one than the connection or the rest of the flow."""


class UnsupportedConnection(DatabaseError, TypeError):
    """The object given as ``connection`` is not one that jobs can be enqueued on."""


class NotGranted(DatabaseError):
    """The PostgreSQL role lacks a right; the message names the ``pgqueue grants`` that give it. Also psycopg's ``InsufficientPrivilege``."""


class SchemaError(DatabaseError):
    """The schema in the database is not one this release can work with."""


class SchemaMissing(SchemaError):
    """The schema has not been installed."""


class SchemaTooOld(SchemaError):
    """The schema is of an earlier release; this one needs more."""


class SchemaTooNew(SchemaError):
    """The schema is of a later release that says this one cannot work on it."""


class PipelineError(PgQueueError):
    """The data pipeline cannot continue; nothing was changed."""


class SparkMissing(PipelineError):
    """There is no PySpark, or no Java that it runs on."""


class LakeError(PipelineError):
    """This release and this database cannot use the lake."""


class LakeTooNew(LakeError):
    """The lake was written by a later release, in a format that this one does not know."""


class LakeOfAnother(LakeError):
    """The lake holds the history of another database or schema."""


class DaysNotExported(PipelineError):
    """Some days could not be written to the lake; the other days were."""


class NotVerified(PipelineError):
    """A day's rows in the lake are not its rows in the database."""


class RowsRefused(PipelineError):
    """Rows of a DataFrame cannot become jobs; no job was enqueued."""


class FlowError(PgQueueError):
    """Something is wrong with a chain, a group or a workflow."""


class FlowRefused(FlowError):
    """A flow was not added or retried: its key, or a unique key of one of its jobs, is taken, or a job has no record."""


class FlowNotDone(FlowError, TimeoutError):
    """The flow has not ended within the time given to the wait."""


class FlowNotFound(FlowError, LookupError):
    """There is no record of this flow."""


class JobError(PgQueueError):
    """An error about one job."""


class QueueClosed(JobError):
    """The queue takes no new jobs: an operator has closed it. Nothing was enqueued."""


class BacklogFull(JobError):
    """The queue has as many ready jobs as its setting ``backlog`` allows, and refuses more. Nothing was enqueued.

    Attributes:
        queue: which.
        backlog: its bound.
    """

    def __init__(self, message: str, *, queue: str, backlog: int) -> None:
        super().__init__(message)
        self.queue = queue
        self.backlog = backlog


class LimitReached(JobError):
    """All places of the job's limit are taken, and the limit refuses more jobs. Nothing was enqueued.

    Attributes:
        limit: its name.
        most: how many places there are.
    """

    def __init__(self, message: str, *, limit: str, most: int) -> None:
        super().__init__(message)
        self.limit = limit
        self.most = most


class JobNotFound(JobError, LookupError):
    """The job has no record: it never existed, or its history has been dropped."""


class JobNotDone(JobError, TimeoutError):
    """The job has not ended within the time given to the wait."""


class JobFailed(JobError):
    """The job is dead or was cancelled, so it has no result.

    A note (:pep:`678`) has the traceback of the last attempt, where one was recorded: it is shown with this error's own.

    Attributes:
        job: the job; None, if this error was not raised by a wait for its result.
        error: how its last attempt failed, with the type, the message and the traceback in the worker; None: none failed.
    """

    def __init__(self, text: str, *, job: "Job | None" = None, error: "AttemptError | None" = None) -> None:
        super().__init__(text)
        self.job = job
        self.error = error
        if error is not None and error.traceback:
            where = f"attempt {error.attempt} of job {job.id if job else '?'}, in the worker"
            self.add_note(f"{where}:\n{error.traceback}")


class ResultNotKept(JobError):
    """The job has succeeded, and its result was not kept; the message says why. ``final``: a later job of its flow has asked."""

    final = False


class TimedOut(JobError, TimeoutError):
    """An attempt took longer than the timeout of its task, or of its queue."""


class WaitTimedOut(JobError, TimeoutError):
    """What a task waits for did not happen before the deadline; every later attempt is told the same."""


class SignalRefused(JobError, LookupError):
    """A signal was sent to a job or flow that has ended or never was, or with a token that has expired."""


class InvalidCallback(JobError, ValueError):
    """A token that this queue did not make: forged, cut off, or of another database or schema."""


class Superseded(JobError):
    """This attempt no longer holds its job (its lease passed, or it timed out): its transaction is rolled back."""


class JobControl(PgQueueError):
    """Raised by a task to decide what becomes of its job."""


class Snooze(JobControl):
    """Run this job again after ``delay`` (seconds, or a timedelta, from zero to ten years); the attempt is not counted."""

    def __init__(self, delay: Duration) -> None:
        self.delay = as_delay("delay", delay)
        super().__init__(f"snoozed for {self.delay}")


class RetryLater(JobControl):
    """This attempt failed: run the job again after ``delay`` (zero to ten years, in place of the retry policy's wait) if it has attempts left."""

    def __init__(self, delay: Duration, reason: str = "asked to be retried later") -> None:
        super().__init__(reason)
        self.delay = as_delay("delay", delay)


class Waiting(BaseException):
    """Raised by ``ctx.wait_for()`` and ``ctx.pause()``: this attempt ends, and the job waits for ``awaited``. Let it pass.

    It is no ``Exception``: a task that catches all of those around its wait would go on, and succeed, without what it waits for.
    """

    __reduce__ = _reduced

    def __init__(self, awaited: object) -> None:
        self.awaited = awaited
        super().__init__(f"the job waits for {awaited}")


class Dead(JobControl):
    """This job cannot succeed: move it to the dead table now, even if attempts are left; ``reason`` is recorded."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)


class Cancelled(JobControl):
    """End this job as cancelled: it was asked to stop, or is not needed any more. A ``reason``, if there is one, is recorded.

    A task raises it when it finds ``ctx.cancelled``. If the worker stops, and no caller cancelled the job, the job goes back to
    its queue instead, and its attempt is not counted.
    """

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)


NO_FAILURES = (Snooze, Waiting, Superseded, Cancelled)
"""Of an attempt that ends so, traces and Sentry record no error."""


@overload
def as_duration(what: str, value: None) -> None: ...
@overload
def as_duration(what: str, value: Duration) -> timedelta: ...
def as_duration(what: str, value: Duration | None) -> timedelta | None:
    """A length of time, as a timedelta; None stays None. A number means seconds.

    Raises:
        InvalidOption: it is neither, or not a number (NaN), or too long for a timedelta; ``what`` names the option.
    """
    if value is None or isinstance(value, timedelta):
        return value
    if not isinstance(value, bool):
        with suppress(TypeError, ValueError, OverflowError):
            return timedelta(seconds=value)
    raise InvalidOption(f"{what}={value!r}: use a number of seconds, or a timedelta")


@overload
def as_delay(what: str, value: None) -> None: ...
@overload
def as_delay(what: str, value: Duration) -> timedelta: ...
def as_delay(what: str, value: Duration | None) -> timedelta | None:
    """As :func:`as_duration`: a length of time from zero to ten years."""
    duration = as_duration(what, value)
    if duration is not None and not timedelta(0) <= duration <= LONGEST_DELAY:
        raise InvalidOption(f"{what}={value!r}: use seconds or a timedelta, from zero to ten years")
    return duration


@overload
def as_limit(what: str, value: None) -> None: ...
@overload
def as_limit(what: str, value: Duration) -> timedelta: ...
def as_limit(what: str, value: Duration | None) -> timedelta | None:
    """As :func:`as_duration`: a length of time above zero and up to ten years."""
    duration = as_duration(what, value)
    if duration is not None and not timedelta(0) < duration <= LONGEST_DELAY:
        raise InvalidOption(f"{what}={value!r}: use seconds or a timedelta above zero, up to ten years")
    return duration
