"""One job: its record, what surrounds it, and what ends it or starts it. Its other actions are in :mod:`.job_actions`."""

from collections.abc import Callable, Collection, Sequence
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
from pgqueue.dashboard.pages import job_actions
from pgqueue.dashboard.pages.audit import begin_operation
from pgqueue.dashboard.pages.job_actions import awaited_signals
from pgqueue.dashboard.pages.job_now import facts_of, linked
from pgqueue.dashboard.pages.job_story import WAITING, story_of
from pgqueue.values.bulk.operation import BulkResult
from pgqueue.values.insight.story import JobWorker
from pgqueue.values.insight.why import Why
from pgqueue.values.jobs.job import ARGS_NOT_KEPT, Job, JobState
from pgqueue.values.jobs.reproduction import file_name
from pgqueue.values.payloads.storable import COPY_OF, SCHEDULE, SCHEDULED_FOR
from pgqueue.values.redaction import NO_SECRETS
from pgqueue.values.secret_forms import HIDDEN

PATH: Final = "/jobs/<int:job_id>"
READS: Final = 3
"""How often a job is read whose state changes meanwhile."""
STACK_WITHIN: Final = 3.0
"""Seconds for which a person waits for a stack; a worker whose event loop is blocked answers later, on the page."""


def read(visit: Visit, *, job_id: int) -> Content:
    """The whole record of a job, and what surrounds it."""
    found, asked = _read_once(visit, job_id)
    secrets = visit.redaction.secrets_of(found)
    story = visit.queue.insight.story(job_id)
    job = _with_names(visit.redaction.job(found), story.workers)
    why = None
    if asked is not None:
        why = _why_with_names(visit.redaction.why(asked, found, visit.message), story.workers)
    meta = job.meta or {}
    # Secrets were hidden when the lines were written; if the arguments have gone since, nothing more is known of them.
    known = NO_SECRETS if ARGS_NOT_KEPT in found.args else secrets
    logs = visit.redaction.shown(visit.queue.logs(job_id), secrets=known)
    return {
        "job": job,
        "why": None if why is None else why.sentence,
        "now": None if why is None else linked(visit, why),
        "evidence": None if why is None else why.evidence,
        "facts": [] if why is None else facts_of(visit, why),
        "progress": visit.redaction.shown(visit.queue.progress(job_id), secrets=secrets),
        "place": story.place,
        "notes": [
            msgspec.structs.replace(one, name=visit.redaction.text(one.name, secrets) or "")
            for one in story.notes
        ],
        "story": story_of(job, story.workers, logs, _instant(why)),
        "has_logs": bool(logs),
        "workers": story.workers,
        "stack": None if story.stack is None else visit.redaction.text(story.stack.said, secrets),
        "stack_at": None if story.stack is None else story.stack.answered_at or story.stack.asked_at,
        "schedule": meta.get(SCHEDULE) if isinstance(meta.get(SCHEDULE), str) else None,
        "scheduled_for": meta.get(SCHEDULED_FOR),
        "copy_of": meta.get(COPY_OF) if isinstance(meta.get(COPY_OF), int) else None,
        "is_running": job.state is JobState.RUNNING,
        "can_be_cancelled": not job.state.ended,
        "is_dead": job.state is JobState.DEAD,
        "is_scheduled": job.state is JobState.SCHEDULED,
        "can_be_changed": job.state in WAITING,
        "signals": [] if asked is None else [one.name for one in awaited_signals(asked)],
    }


def _read_once(visit: Visit, job_id: int) -> tuple[Job, Why | None]:
    """A job, and why it does not run, of the same moment: both are read again if it has changed between the two.

    A job that changes faster than it is read has no reason; the page is read again soon.
    """
    for _ in range(READS):
        job = visit.queue.job(job_id)
        if job.state.ended:
            return job, None
        why = visit.queue.why(job_id)
        if why.state is None or (why.state, why.evidence["attempts"]) == (job.state, job.attempts):
            return job, why
    return job, None


def _instant(why: Why | None) -> datetime | None:
    now = None if why is None else why.evidence.get("now")
    return datetime.fromisoformat(now) if isinstance(now, str) else None


def _with_names(job: Job, workers: Sequence[JobWorker]) -> Job:
    """The job, whose errors name workers as people know them."""
    errors = tuple(msgspec.structs.replace(one, message=_named(one.message, workers)) for one in job.errors)
    return msgspec.structs.replace(job, errors=errors)


def _why_with_names(why: Why, workers: Sequence[JobWorker]) -> Why:
    """Why the job does not run, where its last error names a worker, too."""
    evidence = why.evidence
    if isinstance(said := evidence.get("last_message"), str):
        evidence = {**evidence, "last_message": _named(said, workers)}
    return msgspec.structs.replace(why, sentence=_named(why.sentence, workers), evidence=evidence)


def _named(text: str, workers: Sequence[JobWorker]) -> str:
    for one in workers:
        text = text.replace(str(one.id), one.name)
    return text


def read_test(visit: Visit, *, job_id: int) -> Download:
    """A test that fails as the job did, without secrets."""
    job = visit.redaction.job(visit.queue.job(job_id))
    return Download(file_name(job), written_test(visit.queue, job, hidden=HIDDEN))


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
    Page(name="job", path=PATH, title="Job", read=read, under="jobs", every=8),
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
    *job_actions.ACTIONS,
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
