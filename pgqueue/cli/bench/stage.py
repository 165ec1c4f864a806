"""Everything that a measurement needs: the schema, the processes, the sizes; and how a bench begins and ends."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import click

from pgqueue.app.pgqueue import PgQueue
from pgqueue.cli import app
from pgqueue.cli.bench import floor, peer, place
from pgqueue.cli.bench.contract import Settings
from pgqueue.cli.bench.floor import TABLES
from pgqueue.cli.bench.place import SCHEMA, Place
from pgqueue.cli.bench.processes import FLOOR, OURS, Contender, Crew
from pgqueue.cli.signals import end_like_an_interrupt
from pgqueue.errors import ConfigurationError, PgQueueError
from pgqueue.store import schema
from pgqueue.store.database import Database

INTERRUPTED = 130
STUCK = 30.0
"""Seconds without a job after which a worker that has not run all of them ends: a busy machine pauses for some."""
UNENDED = {OURS: f"{SCHEMA}.all_jobs where ended_at is null", FLOOR: f"{SCHEMA}.floor_jobs"}

FILL = {OURS: peer.fill, FLOOR: floor.fill}


class BenchFailed(PgQueueError):
    """A measurement that says nothing: jobs are missing, or did not come."""


@dataclass(frozen=True, slots=True)
class Stage:
    """What measurements share.

    Attributes:
        place: the schema.
        crew: the processes.
        concurrency: of workers.
        floor: whether the bare client is measured, too.
    """

    place: Place
    crew: Crew
    concurrency: int = 20
    floor: bool = True

    def begin(self, contender: Contender) -> None:
        """Make everything again, for a contender."""
        self.crew.clear()
        self.place.fresh()
        if contender is OURS:
            schema.migrate(self.place.dsn, schema=SCHEMA)
        else:
            self.place.connection.execute(TABLES.encode())

    def fill(self, contender: Contender, count: int, **settings: object) -> None:
        """Enqueue jobs that wait for a worker, in this process: what is not measured needs no program of its own.

        Args:
            contender: for whom.
            count: how many.
            settings: as :mod:`pgqueue.cli.bench.contract` names them.
        """
        given = {name: str(value) for name, value in settings.items()}
        FILL[contender](Settings.read({"DSN": self.place.dsn} | given), count)

    def queue(self) -> PgQueue:
        """The queue, for enqueuers in this process."""
        return PgQueue(self.place.dsn, schema=SCHEMA)

    def work(self, contender: Contender, jobs: int, *, processes: int = 1, **settings: object) -> float:
        """Have workers run all jobs there are; how many in a second, from the first start to the last.

        Raises:
            BenchFailed: that is not how many they ran.
        """
        # Two do not know of each other's jobs, so each goes on until there are no more.
        end = {"STOP_AFTER": jobs, "IDLE": STUCK} if processes == 1 else {"IDLE": 0.5, "FIRST": 2}
        workers = [
            self.crew.start(contender, "worker", **({"CONC": self.concurrency} | end | settings))
            for _ in range(processes)
        ]
        reports = [report for report in [worker.result() for worker in workers] if report["count"]]
        ran = sum(report["count"] for report in reports)
        left = self.place.one(f"select count(*) from {UNENDED[contender]}")
        if ran != jobs or left:
            raise BenchFailed(f"{contender.name} ran {ran:,} of {jobs:,} jobs, and {left:,} have not ended")
        return rate(jobs, max(one["last"] for one in reports) - min(one["first"] for one in reports))


def rate(jobs: int, seconds: float) -> float:
    """Jobs a second."""
    return jobs / max(seconds, 1e-6)


def database(settings: app.Settings) -> Database:
    """Which database the command line means.

    Raises:
        ConfigurationError: none, or a schema or a pooler, neither of which can be had.
    """
    if settings.schema:
        raise ConfigurationError(
            f"--schema: the bench works in the schema {SCHEMA} and no other; leave it out"
        )
    found = Database(settings.dsn) if settings.dsn else settings.queue().database
    if settings.behind_pooler or found.behind_pooler:
        raise ConfigurationError(
            "the bench measures a server, not a pooler: give the server's own DSN in --dsn"
        )
    return Database(found.dsn)


@contextmanager
def staged(settings: app.Settings, *, concurrency: int = 20, floor: bool = True) -> Iterator[Stage]:
    """Have the stage for the length of the block; nothing is left behind, however it ends.

    An interrupt (Ctrl-C, SIGTERM, SIGHUP) ends the command with exit code 130.
    """
    dsn = database(settings).dsn
    try:
        with (
            end_like_an_interrupt(signal.SIGTERM, signal.SIGHUP),
            place.opened(dsn) as opened,
            Crew(opened.dsn) as crew,
        ):
            yield Stage(opened, crew, concurrency=concurrency, floor=floor)
    except KeyboardInterrupt:
        click.echo("pgqueue: interrupted; the bench's schema is dropped", err=True)
        click.get_current_context().exit(INTERRUPTED)


def warn_of_others(others: list[str]) -> str | None:
    """Say, on stderr, that others are at work and so figures will be off; returns what was said."""
    if not others:
        return None
    words = f"others are at work on this server ({', '.join(others)}); figures will be off"
    click.echo(f"pgqueue: warning: {words}", err=True)
    return words
