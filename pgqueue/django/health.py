"""How the queue is: whether its database answers, has the schema, has workers, and whether jobs wait for long."""

from dataclasses import dataclass
from datetime import timedelta

from django.db import Error as DjangoError

from pgqueue.django import conf
from pgqueue.django.database import DjangoDatabase
from pgqueue.errors import DatabaseError
from pgqueue.store import control, schema


@dataclass(frozen=True, kw_only=True)
class Health:
    """What was found.

    Attributes:
        problems: what is wrong, in words; empty: nothing.
        revision: of the schema; None: not known.
        workers: how many are alive; None: not known.
        oldest_ready: how many seconds the longest-waiting ready job has waited, paused queues left out; None: no
            job waits, or it is not known.
        unknown: tasks that the workers which claimed their jobs did not know. That is no failure of the queue: it
            happens for a moment in every deploy.
    """

    problems: tuple[str, ...]
    revision: str | None = None
    workers: int | None = None
    oldest_ready: float | None = None
    unknown: tuple[control.UnknownTask, ...] = ()


def examine() -> Health:
    """Look at the project's queue, on Django's connection.

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
