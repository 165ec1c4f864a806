"""What is enqueued in an app context is in the transaction of the app's session."""

import asyncio
import logging
from collections.abc import Iterator
from typing import Any
from unittest.mock import Mock

import psycopg
import pytest
import sqlalchemy as sa
from flask import Flask
from neighbours.flask_shop import Order, Shop, opened, shop_and_app
from neighbours.serving import sqlalchemy_url
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from pgqueue import chain, group
from pgqueue.errors import ConfigurationError
from pgqueue.flask import OWN_CONNECTION
from pgqueue.store.schema import schema

__all__ = ["shop_and_app"]  # a fixture


@pytest.fixture
def shop(dsn: str) -> Iterator[Shop]:
    """A shop, in an app context as in a view."""
    with opened(dsn) as (shop, app), app.app_context():
        yield shop


def test_a_job_is_committed_with_the_session(shop: Shop) -> None:
    shop.db.session.add(Order())
    shop.send.enqueue(1)
    assert shop.left() == (0, 0)

    shop.db.session.commit()

    assert shop.left() == (1, 1)


def test_a_rollback_leaves_neither_row_nor_job(shop: Shop) -> None:
    shop.send.enqueue(1)
    shop.db.session.add(Order())
    shop.db.session.flush()
    shop.db.session.rollback()
    shop.db.session.commit()

    assert shop.left() == (0, 0)


@pytest.mark.parametrize("before", ["nothing", "a commit", "a read"])
def test_it_makes_no_difference_what_the_session_has_done_before(shop: Shop, before: str) -> None:
    if before == "a commit":
        shop.db.session.add(Order())
        shop.db.session.commit()
    elif before == "a read":
        shop.db.session.get(Order, 1)
    shop.send.enqueue(1)

    assert shop.left()[1] == 0
    shop.db.session.commit()
    assert shop.left()[1] == 1


def test_a_savepoint_takes_its_jobs_along_and_no_others(shop: Shop) -> None:
    shop.send.enqueue(1)
    savepoint = shop.db.session.begin_nested()
    shop.send.enqueue(2)
    savepoint.rollback()
    shop.db.session.commit()

    assert shop.left() == (0, 1)


def test_many_are_enqueued_in_the_session_too(shop: Shop) -> None:
    handles = shop.queue.enqueue_many(shop.send.call(number) for number in range(1000))
    assert (len(handles), shop.left()) == (1000, (0, 0))

    shop.db.session.commit()

    assert shop.left() == (0, 1000)


async def test_awaiting_an_enqueue_joins_the_session_as_well(shop: Shop) -> None:
    await shop.send.aenqueue(1)
    await shop.queue.aenqueue_many([shop.send.call(2)])
    assert shop.left() == (0, 0)
    shop.db.session.commit()
    assert shop.left() == (0, 2)

    await shop.send.aenqueue(3)
    shop.db.session.rollback()
    assert shop.left() == (0, 2)


async def test_a_flow_is_committed_with_the_session(shop: Shop) -> None:
    flow = chain(shop.send.call(1), group([shop.send.call(2), shop.send.call(3)]))
    flow.enqueue()
    await flow.aenqueue()
    assert shop.left() == (0, 0)
    shop.db.session.commit()
    assert shop.left() == (0, 6)

    await flow.aenqueue()
    flow.enqueue()
    shop.db.session.rollback()
    flow.enqueue(connection=OWN_CONNECTION)
    assert shop.left() == (0, 9)


def test_a_connection_that_is_given_wins(shop: Shop, connection: psycopg.Connection[Any]) -> None:
    shop.send.using(connection=connection).enqueue(1)
    shop.db.session.rollback()
    connection.commit()

    assert shop.left() == (0, 1)


async def test_on_a_connection_of_the_queues_own_a_job_is_committed_at_once(shop: Shop) -> None:
    shop.send.using(connection=OWN_CONNECTION).enqueue(1)
    await shop.send.using(connection=OWN_CONNECTION).aenqueue(2)
    shop.queue.enqueue_many([shop.send.call(3)], connection=OWN_CONNECTION)
    shop.db.session.rollback()

    assert shop.left() == (0, 3)
    await shop.queue.aclose()


def test_outside_of_an_app_context_a_job_is_committed_at_once(
    shop_and_app: tuple[Shop, Flask],
) -> None:
    shop, _ = shop_and_app
    shop.send.enqueue(1)

    assert shop.left() == (0, 1)


async def test_a_flow_that_a_closed_session_never_committed_is_told_of(
    shop_and_app: tuple[Shop, Flask], caplog: pytest.LogCaptureFixture
) -> None:
    shop, app = shop_and_app
    with app.app_context():
        chain(shop.send.call(1), shop.send.call(2)).enqueue()
        await chain(shop.send.call(3)).aenqueue()

    (record,) = caplog.records
    assert record.getMessage().startswith("3 jobs (send: 3; ids ")
    assert shop.left() == (0, 0)


def test_jobs_that_a_closed_session_never_committed_are_told_of(
    shop_and_app: tuple[Shop, Flask], caplog: pytest.LogCaptureFixture
) -> None:
    shop, app = shop_and_app
    with app.app_context():
        shop.send.enqueue(1)
        shop.send.enqueue(2)

    (record,) = caplog.records
    assert (record.name, record.levelno, vars(record)["jobs"]) == ("pgqueue.flask", logging.WARNING, 2)
    assert shop.left() == (0, 0)


@pytest.mark.parametrize("ending", ["commit", "rollback"])
def test_nothing_is_told_of_jobs_whose_session_was_ended_by_a_word(
    shop_and_app: tuple[Shop, Flask], caplog: pytest.LogCaptureFixture, ending: str
) -> None:
    shop, app = shop_and_app
    with app.app_context():
        shop.send.enqueue(1)
        getattr(shop.db.session, ending)()
        shop.db.session.get(Order, 1)

    assert caplog.records == []


def test_nothing_is_told_before_the_end_when_a_savepoint_ends(
    shop_and_app: tuple[Shop, Flask], caplog: pytest.LogCaptureFixture
) -> None:
    shop, app = shop_and_app
    with app.app_context():
        shop.send.enqueue(1)
        shop.db.session.begin_nested().close()
        shop.db.session.commit()

    assert caplog.records == []


def test_jobs_of_a_released_savepoint_are_still_told_of(
    shop_and_app: tuple[Shop, Flask], caplog: pytest.LogCaptureFixture
) -> None:
    shop, app = shop_and_app
    with app.app_context(), shop.db.session.begin_nested():
        shop.send.enqueue(1)

    assert len(caplog.records) == 1


def test_looking_at_jobs_needs_no_commit_and_sees_only_what_is_committed(shop: Shop) -> None:
    shop.send.enqueue(1)
    assert shop.queue.insight.search().jobs == ()

    shop.db.session.commit()

    assert len(shop.queue.insight.search().jobs) == 1


def test_a_session_in_another_database_is_not_joined(dsn: str, empty_dsn: str) -> None:
    with (
        opened(dsn, PGQUEUE_DSN=dsn, SQLALCHEMY_DATABASE_URI=sqlalchemy_url(empty_dsn)) as (shop, app),
        app.app_context(),
    ):
        shop.send.enqueue(1)
        shop.db.session.rollback()
        assert shop.left() == (0, 1)


def test_the_same_database_is_known_though_two_settings_name_it(dsn: str) -> None:
    with psycopg.connect(dsn) as connection:
        info = connection.info
        named = f"host={info.host} port={info.port} dbname={info.dbname} user={info.user}"
    with opened(dsn, PGQUEUE_DSN=named) as (shop, app), app.app_context():
        shop.send.enqueue(1)
        assert shop.left() == (0, 0)


def test_a_session_can_be_insisted_on(dsn: str) -> None:
    elsewhere = "postgresql://nobody@elsewhere.invalid/pooled"
    with opened(dsn, PGQUEUE_DSN=elsewhere, PGQUEUE_SESSION=True) as (shop, app), app.app_context():
        shop.send.enqueue(1)
        shop.db.session.commit()
        assert shop.left() == (0, 1)


def test_a_session_that_is_insisted_on_must_be_there(dsn: str) -> None:
    with opened(dsn, PGQUEUE_SESSION=True) as (shop, app):
        del app.extensions["sqlalchemy"]
        with app.app_context(), pytest.raises(ConfigurationError, match="no Flask-SQLAlchemy"):
            shop.send.enqueue(1)
        app.extensions["sqlalchemy"] = shop.db


def test_no_session_is_joined_where_that_is_configured(dsn: str) -> None:
    with opened(dsn, PGQUEUE_SESSION=False) as (shop, app), app.app_context():
        shop.send.enqueue(1)
        shop.db.session.rollback()
        assert shop.left() == (0, 1)


def test_a_session_of_the_apps_own_making_can_be_joined(dsn: str) -> None:
    engine = sa.create_engine(sqlalchemy_url(dsn))
    sessions: scoped_session[Session] = scoped_session(sessionmaker(engine))
    with opened(dsn, PGQUEUE_SESSION=sessions) as (shop, app), app.app_context():
        shop.send.enqueue(1)
        sessions.rollback()
        assert shop.left() == (0, 0)
        shop.send.enqueue(2)
        sessions.commit()
        assert shop.left() == (0, 1)
    engine.dispose()


def test_a_session_on_another_driver_is_refused_with_the_way_out(dsn: str) -> None:
    other = dsn.replace("postgresql://", "postgresql+asyncpg://")
    way_out = r"asyncpg.*\+psycopg.*PGQUEUE_SESSION = False"
    with (
        opened(dsn, SQLALCHEMY_DATABASE_URI=other) as (shop, app),
        app.app_context(),
        pytest.raises(ConfigurationError, match=way_out),
    ):
        shop.send.enqueue(1)


def test_an_app_without_flask_sqlalchemy_enqueues_on_the_queues_own_connections(dsn: str) -> None:
    with opened(dsn) as (shop, app):
        del app.extensions["sqlalchemy"]
        with app.app_context():
            shop.send.enqueue(1)
        app.extensions["sqlalchemy"] = shop.db
        assert shop.left() == (0, 1)


def test_a_database_that_is_no_postgresql_is_neither_the_queues_nor_joined(
    dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGQUEUE_DSN", dsn)
    with opened(dsn, SQLALCHEMY_DATABASE_URI="sqlite://") as (shop, app), app.app_context():
        shop.send.enqueue(1)
        assert shop.left() == (0, 1)


def test_a_server_of_another_kind_is_another_database_though_its_address_reads_the_same(dsn: str) -> None:
    engine = Mock(url=sa.make_url(dsn.replace("postgresql://", "mysql://")))
    engine.dialect.name = "mysql"
    with opened(dsn) as (shop, app):
        app.extensions["sqlalchemy"] = Mock(engines={None: engine})
        with app.app_context():
            shop.send.enqueue(1)
        app.extensions["sqlalchemy"] = shop.db
        assert shop.left() == (0, 1)


def test_the_session_stays_joined_when_a_command_changes_how_the_database_is_reached(shop: Shop) -> None:
    shop.queue.database = shop.queue.database.but(behind_pooler=True)
    shop.send.enqueue(1)

    assert (shop.queue.database.behind_pooler, shop.left()) == (True, (0, 0))


def test_a_session_that_is_insisted_on_is_not_joined_in_another_database(dsn: str, empty_dsn: str) -> None:
    schema.migrate(empty_dsn)
    with opened(dsn, PGQUEUE_SESSION=True) as (shop, app), app.app_context():
        shop.queue.database = shop.queue.database.but(dsn=empty_dsn)
        shop.send.enqueue(1)
        assert len(shop.queue.insight.search().jobs) == 1
        assert shop.left() == (0, 0)


def test_a_signal_is_sent_with_the_session(shop: Shop) -> None:
    sent = "select count(*) from pgqueue.signals"
    assert shop.queue.signal("order:1", "paid")
    shop.db.session.rollback()
    assert shop.queue.signal("order:1", "paid", 30)
    with psycopg.connect(shop.queue.database.dsn) as other:
        assert other.execute(sent).fetchone() == (0,)
        other.rollback()
        shop.db.session.commit()
        assert other.execute(sent).fetchone() == (1,)
    assert shop.queue.signal("order:2", "paid", connection=OWN_CONNECTION)
    shop.db.session.rollback()
    assert not asyncio.run(shop.queue.asignal("order:2", "paid"))
