"""What a run has: servers of its own, or an empty schema in the user's database; the proxy, the log, and the processes.

And its tables beside the queue's, and what all tables say in the end, as events of the history.
"""

import random
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import LiteralString

from psycopg.conninfo import make_conninfo

from pgqueue.chaos.cluster import cluster
from pgqueue.chaos.faults import DISK, REPLICA, Fault
from pgqueue.chaos.faults_of_servers import APPLICATION
from pgqueue.chaos.history.events import Effect, Enqueued, Event, Live, Recorded
from pgqueue.chaos.kinds import TICK, name_of
from pgqueue.chaos.log import LogWatch
from pgqueue.chaos.proxy import Proxy, addresses_of, through
from pgqueue.chaos.stage import GRACE, ChaosStage, Connection, Fleet
from pgqueue.chaos.tasks import SCHEMA
from pgqueue.store.connections.database import Database
from pgqueue.store.schema import schema

SWEEP = 1.0
POLL = 0.5
CONCURRENCY = 10

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


@contextmanager
def staged(
    dsn: str | None,
    faults: Sequence[Fault],
    *,
    lease: float,
    seed: int,
    kept: Callable[[str], object] | None = None,
) -> Iterator[ChaosStage]:
    """Make everything that a run needs; nothing but the logs, if they are kept, is left behind.

    Args:
        dsn: a database that has the run's schema, empty; None: the run starts servers of its own.
        faults: what will happen: the servers have what these need.
        lease: of the workers, in seconds.
        seed: of all choices.
        kept: is told where the logs are; None: they are removed.

    Raises:
        ConfigurationError: there is no server to start.
        ConnectionFailed: no connection could be made.
    """
    with ExitStack() as opened:
        folder = Path(tempfile.mkdtemp(prefix="pgqueue-chaos-"))
        opened.callback(_leave, folder, kept)
        if dsn is None:
            needs = {need for fault in faults for need in fault.needs}
            own = opened.enter_context(cluster(replica=REPLICA in needs, disks=DISK in needs))
            direct, addresses = own.dsn, own.addresses
        else:
            own, direct, addresses = None, dsn, addresses_of(dsn)
        proxy = opened.enter_context(Proxy(addresses))
        schema.migrate(direct, schema=SCHEMA)
        with Database(direct, schema=SCHEMA).connect() as connection:
            for statement in TABLES:
                connection.execute(statement)
        proxied = make_conninfo(through(direct, proxy.ports), application_name=APPLICATION)
        yield ChaosStage(
            dsn=direct,
            proxied=proxied,
            fleet=opened.enter_context(Fleet(proxied, folder, _words(lease))),
            watch=LogWatch(folder),
            proxy=proxy,
            folder=folder,
            lease=lease,
            sweep=SWEEP,
            concurrency=CONCURRENCY,
            chance=random.Random(seed),  # noqa: S311 - a choice that can be repeated
            cluster=own,
        )


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


def _words(lease: float) -> list[str]:
    options = {
        "--concurrency": CONCURRENCY,
        "--lease": lease,
        "--sweep": SWEEP,
        "--poll": POLL,
        "--grace": GRACE,
        "--log-level": "warning",
    }
    return [str(word) for option in options.items() for word in option]


def _leave(folder: Path, kept: Callable[[str], object] | None) -> None:
    if kept is not None:
        kept(f"the logs are in {folder}")
    else:
        shutil.rmtree(folder, ignore_errors=True)
