"""The schema that a command makes for itself is dropped at its end, also if the server ended its connection meanwhile."""

import pytest
from looking import ask

from pgqueue.bench.own_schema import own_schema
from pgqueue.errors import ConfigurationError
from pgqueue.store.connections.database import Database

NAME = "pgqueue_own"
THERE = "select count(*) from pg_namespace where nspname = 'pgqueue_own'"


def test_the_schema_is_dropped_on_a_new_connection_if_its_own_was_lost(dsn: str) -> None:
    with own_schema(Database(dsn, schema=NAME), "pgqueue try"):
        assert ask(dsn, THERE) == [(1,)]
        ask(
            dsn,
            "select pg_terminate_backend(pid, 5000) from pg_stat_activity "
            "where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'",
        )
    assert ask(dsn, THERE) == [(0,)]


def test_a_second_run_is_refused_and_changes_nothing(dsn: str) -> None:
    database = Database(dsn, schema=NAME)
    with own_schema(database, "pgqueue try"):
        with (
            pytest.raises(ConfigurationError, match="another `pgqueue try` runs"),
            own_schema(database, "pgqueue try"),
        ):
            pass
        assert ask(dsn, THERE) == [(1,)]
