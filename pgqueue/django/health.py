"""The queue's health: whether its database answers, has the schema, has workers, and whether jobs wait too long."""

from dataclasses import dataclass
from datetime import timedelta

from django.db import Error as DjangoError

from pgqueue.django import conf
from pgqueue.django.database import DjangoDatabase
from pgqueue.errors import DatabaseError
from pgqueue.store import control, schema
from pgqueue.values.standing import UnknownTask


@dataclass(frozen=True, kw_only=True)
class Health:
    """The result of a health check.

    Attributes:
        problems: what is wrong, as text; empty: nothing.
        revision: the schema's revision; None: unknown.
        workers: how many workers are alive; None: unknown.
        oldest_ready: how many seconds the longest-waiting ready job has waited, without paused queues; None: no job
            waits, or it is unknown.
        unknown: tasks that were unknown to the workers which claimed their jobs. This is no failure of the queue: each
            deploy has them for a short time.
    """

    problems: tuple[str, ...]
    revision: str | None = None
    workers: int | None = None
    oldest_ready: float | None = None
    unknown: tuple[UnknownTask, ...] = ()


def examine() -> Health:
    """Check the project's queue, on Django's connection.

    Raises:
        ConfigurationError: ``settings.PGQUEUE`` cannot be read.
    """
    configured = conf.read()
    name = configured.options.get("schema", "pgqueue")
    database = DjangoDatabase(configured.alias, schema=name)
    try:
        revision = database.run(schema.verify(name))
        pulse = database.run(control.pulse())
    except (DatabaseError, DjangoError) as error:
        return Health(problems=(f"database: {str(error).strip()}",))
    workers, waited = pulse.workers, pulse.oldest_ready
    problems = (*_too_few(workers, configured.min_workers), *_too_long(waited, configured.max_wait))
    return Health(
        problems=problems,
        revision=revision,
        workers=workers,
        oldest_ready=waited,
        unknown=pulse.unknown,
    )


def _too_few(workers: int, least: int) -> tuple[str, ...]:
    return () if workers >= least else (f"workers: {workers} of at least {least} are alive",)


def _too_long(oldest: float | None, longest: timedelta | None) -> tuple[str, ...]:
    if oldest is None or longest is None or oldest <= longest.total_seconds():
        return ()
    return (f"jobs: one has been ready for {oldest:.0f} s, longer than {longest}",)
