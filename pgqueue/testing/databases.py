"""Fresh databases for tests, as many as there are tests: the schema is installed once, and copied."""

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from itertools import count
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from pgqueue.store.schema import schema

PREFIX = "pgqueue_test"
FOR_SAFETY = ("fsync", "synchronous_commit", "full_page_writes")


def hasten(server: str) -> None:
    """Have a throwaway server never wait for its disk: a fresh database takes a fifth of the time.

    Args:
        server: the DSN of a database there, for a superuser. Other databases of that server are not safe.
    """
    with psycopg.connect(server, autocommit=True) as connection:
        for setting in FOR_SAFETY:
            connection.execute(sql.SQL("alter system set {} = off").format(sql.Identifier(setting)))
        connection.execute("select pg_reload_conf()")


class Databases:
    """Makes databases on a server, each a copy of one that has the schema."""

    def __init__(self, server: str, connection: psycopg.Connection[Any], name: str) -> None:
        """Made by :func:`databases`. ``connection`` is in autocommit mode; all names begin with ``name``."""
        self._server = server
        self._connection = connection
        self._name = name
        self._numbers = count(1)

    @contextmanager
    def fresh(self) -> Iterator[str]:
        """A database with the schema and nothing else in it; its DSN. It is dropped at the end."""
        name = f"{self._name}_{next(self._numbers)}"
        self._do("create database {} template {} strategy file_copy", name, self._name)
        try:
            yield make_conninfo(self._server, dbname=name)
        finally:
            self.drop(name)

    def install(self, prepare: Callable[[str], object]) -> None:
        """Make the database that is copied; ``prepare`` adds to it."""
        self._do("create database {}", self._name)
        dsn = make_conninfo(self._server, dbname=self._name)
        schema.migrate(dsn)
        prepare(dsn)

    def drop(self, name: str) -> None:
        """Drop a database, and close the connections to it."""
        self._do("drop database if exists {} with (force)", name)

    def _do(self, statement: Any, *names: str) -> None:  # noqa: ANN401 - a literal, which psycopg insists on
        self._connection.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))


@contextmanager
def databases(server: str, *, prepare: Callable[[str], object] = str) -> Iterator[Databases]:
    """Fresh databases on a server, for the length of a block.

    Runs of tests do not meet, neither several at a time nor the workers of pytest-xdist: the names carry a
    random part, and the worker's id so that people can tell.

    Args:
        server: the DSN of a database there, for a role that may create databases.
        prepare: called once with the DSN of the database that is copied, to add your own tables, say. It must
            leave no connection open.

    Yields:
        Where to get them: ``with made.fresh() as dsn``.
    """
    name = "_".join([PREFIX, os.environ.get("PYTEST_XDIST_WORKER", "main"), secrets.token_hex(4)])
    with closing(psycopg.connect(server, autocommit=True)) as connection:
        made = Databases(server, connection, name)
        try:
            made.install(prepare)
            yield made
        finally:
            made.drop(name)
