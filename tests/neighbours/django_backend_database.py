"""One database of Django's for all tests of a module, emptied for each: making one takes longer than most tests do."""

from collections.abc import Iterator
from contextlib import contextmanager

from asgiref.sync import SyncToAsync
from django.db import connection, connections
from pytest_postgresql.executors import NoopExecutor
from pytest_postgresql.janitor import DatabaseJanitor

TABLES = (
    "pgqueue.jobs",
    "pgqueue.dead_jobs",
    "pgqueue.job_history",
    "pgqueue.queues",
    "pgqueue.workers",
    "pgqueue.lost_workers",
    "shop_order",
    "pgqueue.schedules",
    "pgqueue.schedule_ticks",
    "pgqueue.sink_writes",
)


@contextmanager
def database(server: NoopExecutor, name: str) -> Iterator[dict[str, str]]:
    """A database with every migration of the project applied; gives Django's settings of it."""
    where = {"host": server.host, "port": str(server.port), "user": server.user}
    with DatabaseJanitor(
        user=server.user,
        host=server.host,
        port=server.port,
        password=server.password,
        dbname=name,
        template_dbname=server.template_dbname,
    ):
        yield {"NAME": name, "PASSWORD": "", **{key.upper(): value for key, value in where.items()}}


@contextmanager
def pointed_at(where: dict[str, str]) -> Iterator[None]:
    """Point Django at the database for a test."""
    _forget()
    connections["default"].settings_dict.update(where)
    yield
    _forget()


@contextmanager
def emptied(where: dict[str, str]) -> Iterator[None]:
    """Point Django at the database for a test, with no jobs and no orders in it."""
    with pointed_at(where):
        with connection.cursor() as cursor:
            for table in TABLES:
                cursor.execute(f"delete from {table}")
        yield


def _forget() -> None:
    connections.close_all()
    SyncToAsync.single_thread_executor.submit(connections.close_all).result()
