"""The run's tables beside the queue's, and what all tables say in the end, as events of the history."""

import time
from collections.abc import Iterator
from typing import LiteralString

from pgqueue.chaos.history.events import Effect, Enqueued, Event, Live, Recorded
from pgqueue.chaos.kinds import TICK, name_of
from pgqueue.chaos.stage import Connection
from pgqueue.chaos.tasks import SCHEMA

TABLES: tuple[LiteralString, ...] = (
    f"create table {SCHEMA}.orders (number bigint primary key, kind text not null)",
    f"create table {SCHEMA}.effects (job text not null, attempt integer not null)",  # no key: a second row must show
)
LIVE: LiteralString = f"select count(*) from {SCHEMA}.jobs"
JOBS: LiteralString = f"""
select id, coalesce(args->>'name', ''), task, state, attempts, max_attempts,
       extract(epoch from (meta->>'pgqueue_scheduled_for')::timestamptz)::bigint
from {SCHEMA}.all_jobs where task <> 'hog'"""
EFFECTS: LiteralString = f"select job, attempt from {SCHEMA}.effects"
COUPLED: LiteralString = f"""
with ran as (
    select distinct split_part(args->>'name', '/', 2)::bigint as number, task
    from {SCHEMA}.all_jobs where task not in ('hog', 'tick')
)
select (select count(*) from {SCHEMA}.orders left join ran using (number) where task is null),
       (select count(*) from ran left join {SCHEMA}.orders using (number) where kind is null and task <> 'plain')"""
CHUNK = 10_000
ENDED = frozenset({"succeeded", "dead", "cancelled"})


def make(connection: Connection) -> None:
    """Make the run's own tables."""
    for statement in TABLES:
        connection.execute(statement)


def live(connection: Connection) -> int:
    """How many jobs have not ended."""
    (count,) = connection.execute(LIVE).fetchone() or (0,)
    return int(count)


def last_look(connection: Connection, ids: dict[int, str]) -> Iterator[Event]:
    """All records, live jobs and effects, in one snapshot.

    Args:
        connection: past the proxy.
        ids: is filled with the names of jobs by their ids.
    """
    at = time.monotonic()
    with connection.transaction():
        connection.execute("set transaction isolation level repeatable read, read only")
        with connection.cursor("jobs") as cursor:
            cursor.itersize = CHUNK
            for id_, given, task, state, attempts, most, due in cursor.execute(JOBS):
                name = given or name_of(TICK, id_)
                ids[id_] = name
                if task == TICK:
                    yield Enqueued(at=at, job=name, schedule=TICK, tick=str(due), transactional=True)
                if state in ENDED:
                    yield Recorded(at=at, job=name, state=state, attempts=attempts, most=most)
                else:
                    yield Live(at=at, job=name, state=state)
        with connection.cursor("effects") as cursor:
            cursor.itersize = CHUNK
            for job, attempt in cursor.execute(EFFECTS):
                yield Effect(at=at, job=job, attempt=attempt)


def count_uncoupled(connection: Connection) -> tuple[int, int]:
    """Orders without jobs, and jobs without orders: they commit together, so there must be none."""
    orders, jobs = connection.execute(COUPLED).fetchone() or (0, 0)
    return int(orders), int(jobs)
