"""What a cancel or a retry did to each job, as text."""

from collections.abc import Mapping
from dataclasses import dataclass

import click

from pgqueue.app.pgqueue import PgQueue
from pgqueue.cli.output import spelled_out
from pgqueue.errors import JobNotFound
from pgqueue.values.job import JobState


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Whether the command changed the job, and what it did or why not."""

    done: bool
    words: str


READY = Answer(done=True, words="ready")


def not_changed(queue: PgQueue, job_id: int) -> Answer:
    """Why the command did not change a job: the job's state."""
    try:
        job = queue.job(job_id)
    except JobNotFound:
        return Answer(done=False, words="there is no record of it")
    taken = job.state is JobState.DEAD and job.unique_key is not None
    why = f"; a live job holds its unique key {job.unique_key!r}" if taken else ""
    return Answer(done=False, words=f"not changed: {job.state}{why}")


def report(answers: Mapping[int, Answer]) -> None:
    """Print a line per job; end with exit code 1 if a job was not changed."""
    for job_id, outcome in answers.items():
        click.echo(f"{job_id}: {spelled_out(outcome.words)}", err=not outcome.done)
    if not all(outcome.done for outcome in answers.values()):
        click.get_current_context().exit(1)
