"""``pgqueue jobs show ID --logs``: what the attempts of a job logged, and what they log from now on."""

import time
from collections.abc import Iterator, Sequence
from datetime import datetime

import click

from pgqueue.app.pgqueue import PgQueue
from pgqueue.cli.output import print_json
from pgqueue.values.jobs.attempt_log import AttemptLog
from pgqueue.values.payloads.storable import spelled_out

EVERY = 0.5
"""Seconds between two looks."""
WRITTEN_WITHIN = 1.5
"""Seconds after the end of an attempt in which a worker writes its last lines."""


def show_logs(queue: PgQueue, job_id: int, *, follow: bool, as_json: bool) -> None:
    """Print what the attempts of a job logged.

    Args:
        queue: where.
        job_id: which.
        follow: look again until the job has ended, and print what is new.
        as_json: as a list of attempts.

    Raises:
        JobNotFound: there is no record of it.
    """
    ended = queue.job(job_id).state.ended
    logs = _without_secrets(queue, job_id)
    if as_json:
        print_json(logs)
        return
    shown = ShownLines()
    shown.print(logs)
    while follow and not ended:
        time.sleep(EVERY)
        if ended := queue.job(job_id).state.ended:
            time.sleep(WRITTEN_WITHIN)
        logs = _without_secrets(queue, job_id)
        shown.print(logs)
    if not logs:
        click.echo("no log lines are kept of this job; pgqueue.middleware.KeepLogs keeps them", err=True)


def _without_secrets(queue: PgQueue, job_id: int) -> Sequence[AttemptLog]:
    hides = queue.redaction
    return hides.shown(queue.logs(job_id), secrets=hides.secrets_of(queue.job(job_id)))


class ShownLines:
    """Which lines of a job's log were printed."""

    def __init__(self) -> None:
        self._logged: dict[int, int] = {}  # by attempt, how many lines in all

    def print(self, logs: Sequence[AttemptLog]) -> None:
        """Print what was not printed yet."""
        for one in logs:
            for line in self.news(one):
                click.echo(line)

    def news(self, one: AttemptLog) -> Iterator[str]:
        """The lines of an attempt that are new; before its first ones, which attempt it is."""
        logged, before = one.left_out + len(one.lines), self._logged.get(one.attempt)
        self._logged[one.attempt] = logged
        if before is None or logged < before:  # an attempt that was not counted runs again
            yield f"attempt {one.attempt}"
            before = 0
        if one.left_out > before:
            yield f"({one.left_out - before:,} lines before these are not kept)"
        for line in one.lines[max(0, before - one.left_out) :]:
            text = spelled_out(line.text, keep="\n").replace("\n", "\n    ")
            yield f"{_clock(line.at)} {spelled_out(line.level.lower())} {spelled_out(line.logger)} {text}"


def _clock(at: datetime) -> str:
    """The time of day in the reader's zone, with milliseconds."""
    return f"{at.astimezone():%H:%M:%S.%f}"[:-3]
