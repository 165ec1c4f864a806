"""One job: its story from the enqueue to its end, why it does not run, and what can be done with it."""

from collections.abc import Callable, Collection
from datetime import datetime
from functools import partial
from typing import Any, Final

import msgspec

from pgqueue.app.bulk import OnProgress
from pgqueue.app.reproduction import written_test
from pgqueue.dashboard.access import Right
from pgqueue.dashboard.page import (
    ActionQuestion,
    ActionResult,
    Content,
    Download,
    Field,
    Page,
    PageAction,
    Visit,
)
from pgqueue.dashboard.pages.audit import begin_operation
from pgqueue.dashboard.secret_forms import HIDDEN
from pgqueue.values.bulk.operation import BulkResult
from pgqueue.values.jobs.job import AttemptError, Job, JobState
from pgqueue.values.jobs.reproduction import file_name

PATH: Final = "/jobs/<int:job_id>"
STACK_WITHIN: Final = 3.0
"""Seconds for which a person waits for a stack; a worker whose event loop is blocked answers later, on the page."""


class TimelineEvent(msgspec.Struct, frozen=True):
    """Something that happened to a job.

    Attributes:
        at: when; None: not known.
        kind: ``enqueued``, ``due``, ``claimed``, ``failed``, or the state in which it ended.
        said: a sentence.
        error: of a failed attempt.
    """

    at: datetime | None
    kind: str
    said: str
    error: AttemptError | None = None


def read(visit: Visit, *, job_id: int) -> Content:
    """The whole record of a job, and what surrounds it."""
    found = visit.queue.job(job_id)
    job = visit.redaction.job(found)
    story = visit.queue.insight.story(job_id)
    why = None
    if not job.state.ended:
        why = visit.redaction.why(visit.queue.why(job_id), visit.chosen, found, visit.queue.job)
    return {
        "job": job,
        "why": None if why is None else why.sentence,
        "evidence": None if why is None else why.evidence,
        "progress": visit.queue.progress(job_id),
        "place": story.place,
        "notes": [
            msgspec.structs.replace(one, name=visit.redaction.text(one.name) or "") for one in story.notes
        ],
        "story": _story(job),
        "stack": None if story.stack is None else visit.redaction.text(story.stack.said),
        "stack_at": None if story.stack is None else story.stack.answered_at or story.stack.asked_at,
        "is_running": job.state is JobState.RUNNING,
        "can_be_cancelled": not job.state.ended,
        "is_dead": job.state is JobState.DEAD,
        "is_scheduled": job.state is JobState.SCHEDULED,
    }


def read_test(visit: Visit, *, job_id: int) -> Download:
    """A test that fails as the job did, without secrets."""
    job = visit.redaction.job(visit.queue.job(job_id))
    return Download(file_name(job), written_test(visit.queue, job, hidden=HIDDEN))


def _story(job: Job) -> list[TimelineEvent]:
    events = [TimelineEvent(job.created_at, "enqueued", f"Enqueued into {job.queue}.")]
    if not job.attempts and not job.state.ended and job.run_at > job.created_at:
        events.append(TimelineEvent(job.run_at, "due", "Due to run."))
    for error in job.errors:
        crashed = " with its worker" if error.crashed else ""
        events.append(TimelineEvent(error.at, "failed", f"Attempt {error.attempt} failed{crashed}.", error))
        if error.left_out:
            events.append(TimelineEvent(None, "more", f"{error.left_out:,} more errors are not kept."))
    if job.attempts and job.errors and not job.state.ended and job.state is not JobState.RUNNING:
        events.append(TimelineEvent(job.run_at, "due", "Due to run again."))
    if job.started_at is not None and (
        job.state is JobState.RUNNING or not job.errors or job.state is JobState.SUCCEEDED
    ):
        events.append(
            TimelineEvent(
                job.started_at, "claimed", f"Attempt {job.attempts} of {job.max_attempts} was claimed."
            )
        )
    if job.ended_at is not None:
        reason = f": {job.reason}" if job.reason else ""
        events.append(TimelineEvent(job.ended_at, str(job.state), f"{str(job.state).capitalize()}{reason}."))
    return events


def _ask(
    visit: Visit,
    *,
    job_id: int,
    verb: str,
    text: str,
    states: Collection[JobState],
    destroys: bool = False,
    fields: tuple[Field, ...] = (),
) -> ActionQuestion:
    job = visit.redaction.job(visit.queue.job(job_id))
    possible = job.state in states
    return ActionQuestion(
        title=f"{verb} job {job_id}?",
        text=text if possible else f"It is {job.state}, so this cannot be done.",
        button=verb,
        back=visit.url("job", job_id=job_id),
        destroys=destroys,
        fields=fields,
        facts=(
            ("Task", job.task),
            ("Queue", job.queue),
            ("State", str(job.state)),
            ("Attempts", f"{job.attempts} of {job.max_attempts}"),
        ),
        possible=possible,
    )


def _run_now(visit: Visit, *, job_id: int) -> ActionResult:
    page = visit.url("job", job_id=job_id)
    if visit.queue.control.run_now(job_id, by=visit.by):
        return ActionResult(f"Job {job_id} is ready.", page)
    return ActionResult(f"Job {job_id} was not changed: its state had changed before.", page, well=False)


def _stack(visit: Visit, *, job_id: int) -> ActionResult:
    found = visit.queue.control.stack(job_id, timeout=STACK_WITHIN, by=visit.by)
    page = visit.url("job", job_id=job_id)
    if found.answered_at is None:
        return ActionResult(f"Asked worker {found.worker}. Its answer will be on this page.", page)
    return ActionResult(f"Worker {found.worker} has answered.", page)


def _cancel(visit: Visit, *, job_id: int) -> ActionResult:
    chosen = visit.queue.control.jobs(ids=[visit.queue.job(job_id).id])
    return _begin(visit, job_id, lambda progress: chosen.cancel(by=visit.by, progress=progress), "cancelled")


def _retry(visit: Visit, *, job_id: int) -> ActionResult:
    chosen = visit.queue.control.dead(ids=[visit.queue.job(job_id).id])
    without_key = bool(visit.field("without_key"))
    return _begin(
        visit,
        job_id,
        lambda progress: chosen.retry(without_key=without_key, by=visit.by, progress=progress),
        "ready again",
    )


def _purge(visit: Visit, *, job_id: int) -> ActionResult:
    chosen = visit.queue.control.dead(ids=[visit.queue.job(job_id).id])
    done = _begin(visit, job_id, lambda progress: chosen.purge(by=visit.by, progress=progress), "deleted")
    return msgspec.structs.replace(done, to=visit.url("dead"))


def _begin(visit: Visit, job_id: int, run: Any, done: str) -> ActionResult:  # noqa: ANN401 - an operation
    results: list[BulkResult] = []

    def noted(progress: OnProgress) -> BulkResult:
        results.append(run(progress))
        return results[-1]

    page = visit.url("job", job_id=job_id)
    said = begin_operation(visit, noted, done=done, back=page)
    if results and not (results[0].done or results[0].asked or results[0].skipped):
        return ActionResult(f"Job {job_id} was not changed: its state had changed before.", page, well=False)
    return said


PAGES = (
    Page(name="job", path=PATH, title="Job", read=read, under="jobs", every=6),
    Page(name="job-test", path=f"{PATH}/test", title="Test", read=read_test, under="jobs", every=None),
)


def _action(
    name: str,
    right: Right,
    do: Callable[..., ActionResult],
    *,
    under: str = "jobs",
    **asked: Any,  # noqa: ANN401 - as for _ask
) -> PageAction:
    return PageAction(
        name=f"job-{name}", path=f"{PATH}/{name}", right=right, ask=partial(_ask, **asked), do=do, under=under
    )


ACTIONS = (
    _action(
        "run",
        Right.RETRY,
        _run_now,
        verb="Run",
        text="It becomes ready at once, before its time.",
        states={JobState.SCHEDULED},
    ),
    _action(
        "stack",
        Right.STEER,
        _stack,
        verb="Show the stack of",
        text="Its worker is asked where the job is in its code: files, lines and source lines, no values. The job goes on.",
        states={JobState.RUNNING},
    ),
    _action(
        "cancel",
        Right.CANCEL,
        _cancel,
        verb="Cancel",
        text="A waiting job ends at once, and its flow with it. The worker of a running one is asked to stop it.",
        states={state for state in JobState if not state.ended},
        destroys=True,
    ),
    _action(
        "retry",
        Right.RETRY,
        _retry,
        verb="Retry",
        text="It becomes ready at once, with all its attempts.",
        states={JobState.DEAD},
        fields=(
            Field(
                name="without_key",
                label="Without its unique key",
                kind="checkbox",
                hint="so that it also runs while a live job has the key",
            ),
        ),
    ),
    _action(
        "purge",
        Right.PURGE,
        _purge,
        under="dead",
        verb="Delete",
        text="It is deleted for ever, with its arguments and errors.",
        states={JobState.DEAD},
        destroys=True,
    ),
)
