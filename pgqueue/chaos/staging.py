"""What a run has: servers of its own, or an empty schema in the user's database; the proxy, the log, and the processes."""

import random
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from psycopg.conninfo import make_conninfo

from pgqueue.chaos import tables
from pgqueue.chaos.cluster import PostgresCluster, cluster
from pgqueue.chaos.faults import DISK, REPLICA, Fault
from pgqueue.chaos.faults_of_servers import APPLICATION
from pgqueue.chaos.fleet import GRACE, Fleet
from pgqueue.chaos.log import LogWatch
from pgqueue.chaos.proxy import Proxy, addresses_of, through
from pgqueue.chaos.stage import ChaosStage
from pgqueue.chaos.tasks import SCHEMA
from pgqueue.store.connections.database import Database
from pgqueue.store.schema import schema

SWEEP = 1.0
POLL = 0.5
CONCURRENCY = 10


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
            own = opened.enter_context(_servers(faults))
            direct, addresses = own.dsn, own.addresses
        else:
            own, direct, addresses = None, dsn, addresses_of(dsn)
        proxy = opened.enter_context(Proxy(addresses))
        schema.migrate(direct, schema=SCHEMA)
        with Database(direct, schema=SCHEMA).connect() as connection:
            tables.make(connection)
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


@contextmanager
def _servers(faults: Sequence[Fault]) -> Iterator[PostgresCluster]:
    needs = {need for fault in faults for need in fault.needs}
    with cluster(replica=REPLICA in needs, disks=DISK in needs) as made:
        yield made


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
