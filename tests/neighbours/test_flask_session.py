"""What is enqueued in an app context is in the transaction of the app's session.

Jobs that are lost since the app did not commit the session: they are told of by name, and raised in debug and testing.
"""

import asyncio
import logging
from collections.abc import Iterator
from typing import Any
from unittest.mock import Mock

import psycopg
import pytest
import sqlalchemy as sa
from flask import Flask, abort
from neighbours.flask_shop import Order, Shop, opened, shop_and_app
from neighbours.serving import sqlalchemy_url
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from pgqueue import OWN_CONNECTION, chain, group
from pgqueue.app.task import Call
from pgqueue.errors import ConfigurationError, DatabaseError, QueueClosed
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


def test_a_few_are_enqueued_in_the_session_or_refused_by_their_queue(shop: Shop) -> None:
    handles = shop.queue.enqueue_many(shop.send.call(number) for number in range(3))
    assert shop.left()[1] == 0
    shop.db.session.commit()
    assert shop.left()[1] == len(handles) == 3

    shop.queue.control.close("default")
    with pytest.raises(QueueClosed):
        shop.queue.enqueue_many(shop.send.call(number) for number in range(3))
    shop.db.session.commit()
    assert shop.left()[1] == 3


async def test_many_may_be_drawn_from_the_session(shop: Shop) -> None:
    shop.db.session.add_all(Order() for _ in range(2501))
    shop.db.session.commit()

    def calls() -> Iterator[Call[int]]:
        for number in shop.db.session.scalars(sa.select(Order.id).execution_options(yield_per=100)):
            yield shop.send.call(number)

    shop.queue.enqueue_many(calls())
    await shop.queue.aenqueue_many(calls())
    assert shop.left() == (2501, 0)
    shop.db.session.commit()
    assert shop.left() == (2501, 5002)


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


def test_outside_of_an_app_context_a_job_is_committed_at_once(shop_and_app: tuple[Shop, Flask]) -> None:
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


both = shop_and_app


@pytest.fixture
def late_shop(both: tuple[Shop, Flask]) -> Shop:
    late_shop, app = both

    @app.route("/late")
    def late() -> str:
        late_shop.db.session.commit()
        late_shop.send.enqueue(1)
        late_shop.queue.enqueue_many(late_shop.send.call(number) for number in range(8))
        return "done"

    @app.route("/one-late")
    def one_late() -> str:
        late_shop.send.enqueue(1)
        return "done"

    @app.route("/in-time")
    def in_time() -> str:
        late_shop.send.enqueue(1)
        late_shop.db.session.commit()
        return "done"

    @app.route("/apart")
    def apart() -> str:
        late_shop.send.using(connection=OWN_CONNECTION).enqueue(1)
        return "done"

    @app.route("/raises")
    def raises() -> str:
        late_shop.send.enqueue(1)
        raise ValueError

    @app.route("/gives-up")
    def gives_up() -> str:
        late_shop.send.enqueue(1)
        abort(409)

    @app.route("/handled")
    def handled() -> str:
        late_shop.send.enqueue(1)
        raise KeyError

    @app.errorhandler(KeyError)
    def answer(_: KeyError) -> tuple[str, int]:
        return "no such thing", 404

    return late_shop


@pytest.fixture
def told(both: tuple[Shop, Flask], late_shop: Shop, caplog: pytest.LogCaptureFixture) -> Any:
    """What is told of a request to a path."""
    del late_shop
    app = both[1]
    app.config["PROPAGATE_EXCEPTIONS"] = False

    def told(path: str) -> list[logging.LogRecord]:
        app.test_client().get(path)
        return [record for record in caplog.records if record.name == "pgqueue.flask"]

    return told


def test_the_log_says_how_many_jobs_of_which_tasks_are_lost(told: Any, late_shop: Shop) -> None:
    (record,) = told("/late")
    assert record.levelno == logging.WARNING
    assert record.getMessage().startswith("9 jobs (send: 9; ids ")
    assert (
        ") were enqueued in db.session, which was closed without a commit: they are lost"
        in record.getMessage()
    )
    assert (vars(record)["jobs"], vars(record)["tasks"]) == (9, ["send"])
    assert late_shop.left() == (0, 0)


def test_one_lost_job_is_told_in_the_singular(told: Any) -> None:
    (record,) = told("/one-late")
    assert record.getMessage().startswith("1 job (send: 1; id ")
    assert (
        ") was enqueued in db.session, which was closed without a commit: it is lost" in record.getMessage()
    )


@pytest.mark.parametrize("path", ["/in-time", "/apart", "/raises", "/gives-up", "/handled"])
@pytest.mark.parametrize("testing", [False, True])
def test_nothing_is_told_where_nothing_is_lost_or_the_view_failed(
    told: Any,
    both: tuple[Shop, Flask],
    path: str,
    testing: bool,  # noqa: FBT001 - a case
) -> None:
    both[1].testing = testing
    assert told(path) == []


@pytest.mark.parametrize("mode", ["testing", "debug"])
def test_in_debug_and_testing_it_is_an_exception(told: Any, both: tuple[Shop, Flask], mode: str) -> None:
    setattr(both[1], mode, True)
    with pytest.raises(
        DatabaseError, match=r"^9 jobs \(send: 9; ids .*db\.session\.commit\(\) after the enqueue"
    ):
        told("/late")
    assert told("/in-time") == []  # nothing is left behind


def test_it_is_told_whichever_extension_was_initialised_first(
    dsn: str, caplog: pytest.LogCaptureFixture
) -> None:
    late_shop = Shop(dsn)
    app = Flask("other")
    app.config["SQLALCHEMY_DATABASE_URI"] = late_shop.app().config["SQLALCHEMY_DATABASE_URI"]
    late_shop.queue.init_app(app)
    late_shop.db.init_app(app)
    with app.app_context():
        late_shop.send.enqueue(1)
    (record,) = [record for record in caplog.records if record.name == "pgqueue.flask"]
    assert record.getMessage().startswith("1 job (send: 1; id 1) ")
    late_shop.close(app)


def test_an_exception_in_a_context_of_ones_own_is_enough_said(
    late_shop: Shop, both: tuple[Shop, Flask], caplog: Any
) -> None:
    def failing() -> None:
        with both[1].app_context():
            late_shop.send.enqueue(1)
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        failing()
    assert caplog.records == []


def test_a_task_that_loses_jobs_fails_in_testing(late_shop: Shop, both: tuple[Shop, Flask]) -> None:
    both[1].testing = True

    def work() -> None:
        late_shop.send.enqueue(1)

    with pytest.raises(DatabaseError, match="1 job"):
        late_shop.queue.task(name="loses")(work).around(None, [], {})  # type: ignore[misc, arg-type]  # as a worker calls it
