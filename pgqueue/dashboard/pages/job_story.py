"""The story of a job on its page: when it was enqueued, due and ended, and its attempts, each with its length, worker and log."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from uuid import UUID

import msgspec

from pgqueue.dashboard.charts import format_figure
from pgqueue.values.insight.story import JobWorker
from pgqueue.values.jobs.attempt_log import AttemptLog
from pgqueue.values.jobs.job import AttemptError, Job, JobState
from pgqueue.values.jobs.verdict import why_not_kept

WHOLE = 1_000.0
"""The length of the whole story in bars, in their own units."""
LEAST = 4.0
"""The length of the shortest bar, so that it is seen."""
DELAYED = timedelta(seconds=1)
"""From this on a job that was not due at once was delayed."""


WAITING = frozenset({JobState.READY, JobState.SCHEDULED, JobState.BLOCKED})
"""The states of a job that waits."""


class Bar(msgspec.Struct, frozen=True):
    """Where an attempt lies in the story, in thousandths of it.

    Attributes:
        waited_from: where the wait before it begins.
        begin: where it begins itself.
        length: how long it is.
    """

    waited_from: float
    begin: float
    length: float

    @property
    def waited(self) -> float:
        """The length of the wait before it."""
        return max(0.0, self.begin - self.waited_from)


class TimelineEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened to a job; most are attempts.

    Attributes:
        at: when; of an attempt, when it ended, or began if it runs. None: not known.
        kind: ``enqueued``, ``due``, ``claimed``, ``failed``, ``returned``, or the state in which it ended.
        said: a sentence.
        attempt: which attempt; None: it is none.
        error: of a failed attempt.
        seconds: how long the attempt ran; None: it runs, or it is not known.
        waited: the seconds before the attempt since the job was enqueued, or since the attempt before it. None: not known.
        worker: who ran the attempt; None: not known.
        log: what is kept of its log; None: nothing.
        bar: where it lies in the story; None: not known.
    """

    at: datetime | None
    kind: str
    said: str
    attempt: int | None = None
    error: AttemptError | None = None
    seconds: float | None = None
    waited: float | None = None
    worker: JobWorker | None = None
    log: AttemptLog | None = None
    bar: Bar | None = None


class JobStory(msgspec.Struct, frozen=True):
    """The story of a job.

    Attributes:
        sentence: how long it waited and ran; None: no attempt has begun, or its begin is not known.
        events: what happened, the first at the front.
    """

    sentence: str | None
    events: list[TimelineEvent]


class _Ran(msgspec.Struct, frozen=True):
    """An attempt: its number, when it began and ended (None: not known, or not yet), how, its error and its worker."""

    number: int
    begin: datetime | None
    end: datetime | None
    kind: str
    error: AttemptError | None
    worker: UUID | None

    @property
    def seconds(self) -> float | None:
        return None if self.begin is None or self.end is None else (self.end - self.begin).total_seconds()


def story_of(
    job: Job, workers: Sequence[JobWorker], logs: Sequence[AttemptLog], now: datetime | None
) -> JobStory:
    """The story of a job.

    Args:
        job: its record.
        workers: those that ran its attempts, as far as they are known.
        logs: what is kept of the logs of its attempts.
        now: the time; None: the job has ended.
    """
    ran = [*_attempts(job)]
    until = job.ended_at or now or job.created_at
    names = {one.id: one for one in workers}
    left = {one.attempt: one for one in logs}
    events = [TimelineEvent(at=job.created_at, kind="enqueued", said=f"Enqueued into {job.queue}.")]
    if not ran and not job.state.ended and job.run_at > job.created_at:
        events.append(TimelineEvent(at=job.run_at, kind="due", said="Due to run."))
    before = job.created_at
    last = {one.number: place for place, one in enumerate(ran)}
    for place, one in enumerate(ran):
        log = left.pop(one.number, None) if last[one.number] == place else None
        event = _event(job, one, before, names)
        bar = _bar(job.created_at, before, one, until)
        events.append(msgspec.structs.replace(event, log=log, bar=bar))
        before = one.end or before
        if one.error is not None and one.error.left_out:
            more = f"{one.error.left_out:,} more failed attempts are not kept."
            events.append(TimelineEvent(at=None, kind="more", said=more))
    events += [_returned(one) for one in left.values()]
    events.sort(key=_order(events))
    if ran and not job.state.ended and job.state is not JobState.RUNNING:
        events.append(TimelineEvent(at=job.run_at, kind="due", said="Due to run again."))
    if job.ended_at is not None:
        reason = f": {job.reason}" if job.reason else ""
        said = f"{str(job.state).capitalize()}{reason}."
        events.append(TimelineEvent(at=job.ended_at, kind=str(job.state), said=said))
    return JobStory(_sentence(job, ran, until), events)


def _attempts(job: Job) -> Iterator[_Ran]:
    errors = [one for one in job.errors if one is not why_not_kept(job)]
    for error in errors:
        seconds, begin, is_last = error.seconds, None, error is errors[-1]
        if error.at is not None and seconds is not None:
            begin = error.at - timedelta(seconds=seconds)
        elif is_last and job.state is JobState.DEAD and error.type != "Expired":
            begin = job.started_at
        yield _Ran(error.attempt, begin, error.at, "failed", error, error.worker)
    began = job.started_at
    if began is None or job.state is JobState.DEAD or job.state in WAITING:
        return
    if job.state is JobState.CANCELLED and errors and errors[-1].at is not None and errors[-1].at >= began:
        return  # it waited when it was cancelled
    kind = "claimed" if job.state is JobState.RUNNING else str(job.state)
    yield _Ran(job.attempts, began, job.ended_at, kind, None, job.worker_id)


def _event(job: Job, one: _Ran, before: datetime, names: Mapping[UUID, JobWorker]) -> TimelineEvent:
    of = f"Attempt {one.number} of {job.max_attempts}"
    said = {
        "failed": f"Attempt {one.number} failed{' with its worker' if one.error and one.error.crashed else ''}.",
        "claimed": f"{of} was claimed.",
        "succeeded": f"{of} succeeded.",
        "cancelled": f"{of} was cancelled.",
    }[one.kind]
    if one.error is not None and one.error.type == "Expired":
        said = "It was not started in time."
    waited = None if one.begin is None else max(0.0, (one.begin - before).total_seconds())
    known = None if one.worker is None else names.get(one.worker)
    worker = known or (
        None if one.worker is None else JobWorker(one.worker, str(one.worker)[:8], alive=False)
    )
    return TimelineEvent(
        at=one.end or one.begin,
        kind=one.kind,
        said=said,
        attempt=one.number,
        error=one.error,
        seconds=one.seconds,
        waited=waited,
        worker=worker,
    )


def _returned(log: AttemptLog) -> TimelineEvent:
    """An attempt of which only a log is kept: it went back to its queue and was not counted, or its error is not kept."""
    said = f"Attempt {log.attempt} logged this; how it ended is not kept."
    return TimelineEvent(at=log.written_at, kind="returned", said=said, attempt=log.attempt, log=log)


def _order(events: Sequence[TimelineEvent]) -> Callable[[TimelineEvent], datetime]:
    """Sort by time; what has no time stays behind what it stands behind."""
    keys: dict[int, datetime] = {}
    latest = events[0].at
    for one in events:
        latest = one.at or latest
        assert latest is not None  # noqa: S101 - the first one, the enqueue, has a time
        keys[id(one)] = latest
    return lambda one: keys[id(one)]


def _bar(start: datetime, before: datetime, one: _Ran, until: datetime) -> Bar | None:
    whole = (until - start).total_seconds()
    if one.begin is None or whole <= 0:
        return None

    def place(at: datetime) -> float:
        return round(min(WHOLE, max(0.0, WHOLE * (at - start).total_seconds() / whole)), 1)

    length = max(LEAST, round(place(one.end or until) - place(one.begin), 1))
    return Bar(place(before), min(place(one.begin), WHOLE - length), length)


def _sentence(job: Job, ran: Sequence[_Ran], until: datetime) -> str | None:
    if not ran or ran[0].begin is None:
        return None
    first = (ran[0].begin - job.created_at).total_seconds()
    due = (job.run_at - job.created_at).total_seconds()
    words = []
    if len(ran) == 1 and job.state not in WAITING and DELAYED.total_seconds() <= due <= first:
        words.append(f"due after {_length(due)}")
        first -= due
    words.append(f"waited {_length(max(0.0, first))}")
    lengths = [one.seconds for one in ran if one.seconds is not None]
    if lengths:
        words.append(f"ran {_length(sum(lengths))}")
    if ran[-1].end is None:
        running = max(0.0, (until - (ran[-1].begin or until)).total_seconds())
        words.append(f"{'now ' if lengths else ''}running for {_length(running)}")
    elif len(ran) > 1:
        over = (ran[-1].end - ran[0].begin).total_seconds()
        words[-1] += f" in {len(ran)} attempts over {_length(over)}"
    return f"{', '.join(words).capitalize()}."


def _length(seconds: float) -> str:
    return format_figure(seconds, "seconds")
