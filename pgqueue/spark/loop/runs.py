"""What a program asks of a run and does to it, without Spark: how far it is, and cancel it."""

from collections.abc import Iterator
from contextlib import contextmanager

from pgqueue.app.pgqueue import PgQueue
from pgqueue.app.shards import on_database
from pgqueue.spark.apps import find_app
from pgqueue.store.insight import runs
from pgqueue.values.bulk.operation import BulkResult
from pgqueue.values.insight.runs import Run


@contextmanager
def opened(dsn: str | None, schema: str | None, app: str | None = None) -> Iterator[PgQueue]:
    """A queue of this database for the length of the block; it is closed, unless it is the app's own.

    With ``app``, what is not given is the app's, as it is in a write.
    """
    if app is not None and dsn is None and schema is None:
        yield find_app(app)
        return
    if app is None:
        queue = PgQueue(dsn, schema=schema or "pgqueue")
    else:
        known = find_app(app)
        queue = on_database(known, known.database.but(dsn=dsn, schema=schema))
    try:
        yield queue
    finally:
        queue.close()


def status(run: str, dsn: str | None = None, *, schema: str = "pgqueue") -> Run:
    """How far a run is: its jobs by state, its rate in the last minute, and how long the others take.

    Args:
        run: its name.
        dsn: where the database is; by default PGQUEUE_DSN or DATABASE_URL in the environment.
        schema: the database schema in which the tables are.

    Raises:
        InvalidOption: there is no such run.
        DatabaseError: the database cannot be reached, or its schema is missing.
    """
    with opened(dsn, schema) as queue:
        return queue.database.run(runs.counted(run))


def cancel(run: str, dsn: str | None = None, *, by: str | None = None, schema: str = "pgqueue") -> BulkResult:
    """Cancel the jobs of a run that have not ended: waiting jobs end at once, workers are asked to stop running ones.

    The audit has a line. Call it again if it is interrupted.

    Args:
        run: its name.
        dsn: as for :func:`status`.
        by: who does it, for the audit; by default the user and the host of this process.
        schema: as for :func:`status`.

    Raises:
        InvalidOption: there is no such run.
        DatabaseError: as for :func:`status`.
    """
    with opened(dsn, schema) as queue:
        queue.database.run(runs.glance(run))
        return queue.control.jobs(run=run).cancel(by=by)
