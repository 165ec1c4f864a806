"""Jobs that are lost since the app did not commit the session: they are told of by name, and raised in debug and testing."""

import logging
from typing import Any

import pytest
from flask import Flask, abort
from neighbours.flask_shop import Shop, shop_and_app

from pgqueue import OWN_CONNECTION
from pgqueue.errors import DatabaseError

both = shop_and_app


@pytest.fixture
def shop(both: tuple[Shop, Flask]) -> Shop:
    shop, app = both

    @app.route("/late")
    def late() -> str:
        shop.db.session.commit()
        shop.send.enqueue(1)
        shop.queue.enqueue_many(shop.send.call(number) for number in range(8))
        return "done"

    @app.route("/one-late")
    def one_late() -> str:
        shop.send.enqueue(1)
        return "done"

    @app.route("/in-time")
    def in_time() -> str:
        shop.send.enqueue(1)
        shop.db.session.commit()
        return "done"

    @app.route("/apart")
    def apart() -> str:
        shop.send.using(connection=OWN_CONNECTION).enqueue(1)
        return "done"

    @app.route("/raises")
    def raises() -> str:
        shop.send.enqueue(1)
        raise ValueError

    @app.route("/gives-up")
    def gives_up() -> str:
        shop.send.enqueue(1)
        abort(409)

    @app.route("/handled")
    def handled() -> str:
        shop.send.enqueue(1)
        raise KeyError

    @app.errorhandler(KeyError)
    def answer(_: KeyError) -> tuple[str, int]:
        return "no such thing", 404

    return shop


@pytest.fixture
def told(both: tuple[Shop, Flask], shop: Shop, caplog: pytest.LogCaptureFixture) -> Any:
    """What is told of a request to a path."""
    del shop
    app = both[1]
    app.config["PROPAGATE_EXCEPTIONS"] = False

    def told(path: str) -> list[logging.LogRecord]:
        app.test_client().get(path)
        return [record for record in caplog.records if record.name == "pgqueue.flask"]

    return told


def test_the_log_says_how_many_jobs_of_which_tasks_are_lost(told: Any, shop: Shop) -> None:
    (record,) = told("/late")
    assert record.levelno == logging.WARNING
    assert record.getMessage().startswith("9 jobs (send: 9; ids ")
    assert (
        ") were enqueued in db.session, which was closed without a commit: they are lost"
        in record.getMessage()
    )
    assert (vars(record)["jobs"], vars(record)["tasks"]) == (9, ["send"])
    assert shop.left() == (0, 0)


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
    shop = Shop(dsn)
    app = Flask("other")
    app.config["SQLALCHEMY_DATABASE_URI"] = shop.app().config["SQLALCHEMY_DATABASE_URI"]
    shop.queue.init_app(app)
    shop.db.init_app(app)
    with app.app_context():
        shop.send.enqueue(1)
    (record,) = [record for record in caplog.records if record.name == "pgqueue.flask"]
    assert record.getMessage().startswith("1 job (send: 1; id 1) ")
    shop.close(app)


def test_an_exception_in_a_context_of_ones_own_is_enough_said(
    shop: Shop, both: tuple[Shop, Flask], caplog: Any
) -> None:
    def failing() -> None:
        with both[1].app_context():
            shop.send.enqueue(1)
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        failing()
    assert caplog.records == []


def test_a_task_that_loses_jobs_fails_in_testing(shop: Shop, both: tuple[Shop, Flask]) -> None:
    both[1].testing = True

    def work() -> None:
        shop.send.enqueue(1)

    with pytest.raises(DatabaseError, match="1 job"):
        shop.queue.task(name="loses")(work).around(None, [], {})  # type: ignore[misc, arg-type]  # as a worker calls it
