"""What a cancel or a retry did to each job, as text."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import click

from pgqueue.app.pgqueue import PgQueue
from pgqueue.cli.output import spelled_out
from pgqueue.errors import JobNotFound
from pgqueue.values.bulk.retry_result import BlockedRetry, Retried
from pgqueue.values.jobs.job import JobState

REMEDIES = "cancel that job, or wait until it has ended, and retry again; or retry without the key: pgqueue dead retry --without-key"
"""What a user can do about dead jobs whose unique key a live job has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandAnswer:
    """Whether the command changed the job, and what it did or why not."""

    done: bool
    words: str


_OTHER_VERB = {
    JobState.DEAD: "; `pgqueue dead retry {}` makes it ready again",
    JobState.SCHEDULED: "; `pgqueue jobs run-now {}` starts it before its time",
}
READY = CommandAnswer(done=True, words="ready")


def not_changed(queue: PgQueue, job_id: int) -> CommandAnswer:
    """Why the command did not change a job: the job's state."""
    try:
        job = queue.job(job_id)
    except JobNotFound:
        return CommandAnswer(done=False, words="there is no record of it")
    return CommandAnswer(
        done=False, words=f"not changed: {job.state}{_OTHER_VERB.get(job.state, '').format(job_id)}"
    )


def retry_answers(queue: PgQueue, done: Retried) -> Iterator[tuple[int, CommandAnswer]]:
    """What a retry did to each job."""
    yield from ((job_id, READY) for job_id in done)
    yield from (
        (one.id, CommandAnswer(done=False, words=f"stays dead: {why_held(one)}")) for one in done.held
    )
    words = "stays dead: its arguments are no JSON object that PostgreSQL can hold; enqueue the job again"
    yield from ((job_id, CommandAnswer(done=False, words=words)) for job_id in done.unreadable)
    words = (
        "stays dead: its flow has ended, and another flow of its key has not; wait for that one, or cancel it"
    )
    yield from ((job_id, CommandAnswer(done=False, words=words)) for job_id in done.out_of_turn)
    yield from ((job_id, not_changed(queue, job_id)) for job_id in done.not_dead)


def why_held(one: BlockedRetry) -> str:
    """Why a dead job stays dead, and what can be done."""
    if one.twin is None:
        return f"a live job had its unique key {one.unique_key!r}, and has ended since; retry again"
    return f"live job {one.twin} has its unique key {one.unique_key!r}; {REMEDIES}"


def report(answers: Mapping[int, CommandAnswer]) -> None:
    """Print a line per job; end with exit code 1 if a job was not changed."""
    for job_id, outcome in answers.items():
        click.echo(f"{job_id}: {spelled_out(outcome.words)}", err=not outcome.done)
    if not all(outcome.done for outcome in answers.values()):
        click.get_current_context().exit(1)
