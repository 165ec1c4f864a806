"""How the queue is: whether its database answers, has the schema, has workers, and whether jobs wait for long."""

from dataclasses import dataclass
from datetime import timedelta

from django.db import Error as DjangoError

from pgqueue.django import conf
from pgqueue.django.database import DjangoDatabase
from pgqueue.errors import DatabaseError
from pgqueue.store import schema
from pgqueue.store.catalogue import in_schema
from pgqueue.store.unwrap import unwrap

# The first job of each queue and priority, found by leaps from one to the next in the index jobs_ready: as many as
# there are queues and priorities, however many jobs are ready.
LOOK = """
with recursive head as (
    (select queue, -priority as turn, run_at from pgqueue.jobs where status = 'ready'
     order by queue, -priority, run_at limit 1)
    union all
    select next.* from head, lateral (
        select queue, -priority as turn, run_at from pgqueue.jobs
        where status = 'ready' and (queue, -priority) > (head.queue, head.turn)
        order by queue, -priority, run_at limit 1) as next
)
select (select count(*) from pgqueue.workers where lease_until > now()),
       (select max(extract(epoch from now() - run_at))::float from head
        where not exists (select from pgqueue.queues where name = head.queue and paused_at is not null))
"""


@dataclass(frozen=True, kw_only=True)
class Health:
    """What was found.

    Attributes:
        problems: what is wrong, in words; empty: nothing.
        revision: of the schema; None: not known.
        workers: how many are alive; None: not known.
        oldest_ready: how many seconds the longest-waiting ready job has waited, paused queues left out; None: no
            job waits, or it is not known.
    """

    problems: tuple[str, ...]
    revision: str | None = None
    workers: int | None = None
    oldest_ready: float | None = None


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
        with database.joined().wrap_database_errors:
            found = unwrap(database.joined()).execute(in_schema(LOOK, name).encode()).fetchone()
    except (DatabaseError, DjangoError) as error:
        return Health(problems=(f"database: {str(error).strip()}",))
    workers, oldest = found or (0, None)
    problems = (*_too_few(workers, configured.min_workers), *_too_long(oldest, configured.max_wait))
    return Health(problems=problems, revision=revision, workers=workers, oldest_ready=oldest)


def _too_few(workers: int, least: int) -> tuple[str, ...]:
    return () if workers >= least else (f"workers: {workers} of at least {least} are alive",)


def _too_long(oldest: float | None, longest: timedelta | None) -> tuple[str, ...]:
    if oldest is None or longest is None or oldest <= longest.total_seconds():
        return ()
    return (f"jobs: one has been ready for {oldest:.0f} s, longer than {longest}",)
