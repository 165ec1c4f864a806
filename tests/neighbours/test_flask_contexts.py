"""Which app a queue works for, and in which app context a task runs."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from flask import Flask, current_app, g, has_request_context
from flask.globals import app_ctx
from neighbours.flask_shop import Order, Shop, opened, outcome
from neighbours.serving import sqlalchemy_url
from running import Running

from pgqueue import Codec, JobState
from pgqueue.errors import ConfigurationError, UnknownQueue
from pgqueue.flask import OWN_CONNECTION, PgQueueFlask
from pgqueue.testing import every_queue, failing

Wrap = Callable[[Callable[[], Any]], Callable[[], Any]]


def plain(body: Callable[[], Any]) -> Callable[[], Any]:
    def task() -> Any:
        return body()

    return task


def awaited(body: Callable[[], Any]) -> Callable[[], Any]:
    async def task() -> Any:
        await asyncio.sleep(0)
        return body()

    return task


def handing_out_a_coroutine(body: Callable[[], Any]) -> Callable[[], Any]:
    def task() -> Any:
        return awaited(body)()

    return task


every_kind = pytest.mark.parametrize("kind", [plain, awaited, handing_out_a_coroutine])


@pytest.fixture
def both(dsn: str) -> Iterator[tuple[Shop, Flask]]:
    """A shop and its app; no app context is pushed but those of jobs."""
    with opened(dsn) as both:
        yield both


@every_kind
async def test_a_task_runs_in_an_app_context_that_is_torn_down_afterwards(
    both: tuple[Shop, Flask], running: Running, kind: Wrap
) -> None:
    shop, app = both
    seen: list[object] = []
    torn_down: list[BaseException | None] = []
    app.teardown_appcontext(torn_down.append)

    def body() -> str:
        seen.append(app_ctx.app)
        return current_app.name

    job = await outcome(running, shop, kind(body))

    assert (job.state, job.result) == (JobState.SUCCEEDED, "shop")
    assert torn_down[-1] is None
    assert seen == [app]


@every_kind
async def test_jobs_do_not_share_an_app_context_nor_its_session(
    both: tuple[Shop, Flask], running: Running, kind: Wrap
) -> None:
    shop, _ = both
    seen: list[Any] = []

    def body() -> None:
        assert "left" not in g
        g.left = "behind"
        seen.append(shop.db.session())
        shop.db.session.get(Order, 1)

    task = shop.queue.task(name="task", max_attempts=1)(kind(body))
    jobs = shop.queue.enqueue_many(task.call() for _ in range(3))
    async with running(shop.queue, concurrency=1):
        for job in jobs:
            await job.aresult(timeout=20)

    assert len(set(map(id, seen))) == 3
    assert not any(session.in_transaction() for session in seen)


@every_kind
async def test_what_a_task_raises_is_told_to_those_that_tear_down(
    both: tuple[Shop, Flask], running: Running, kind: Wrap
) -> None:
    shop, app = both
    torn_down: list[BaseException | None] = []
    app.teardown_appcontext(torn_down.append)

    def body() -> None:
        raise ValueError("of the task")

    job = await outcome(running, shop, kind(body))

    assert job.state is JobState.DEAD
    assert isinstance(torn_down[-1], ValueError)


async def test_a_cancelled_task_leaves_its_app_context_too(
    both: tuple[Shop, Flask], running: Running
) -> None:
    shop, app = both
    began, torn_down = asyncio.Event(), asyncio.Event()
    app.teardown_appcontext(lambda _: torn_down.set())

    @shop.queue.task
    async def wait_for_ever() -> None:
        torn_down.clear()
        began.set()
        await asyncio.Event().wait()

    wait_for_ever.enqueue()
    async with running(shop.queue, concurrency=1) as worker, asyncio.timeout(20):
        await began.wait()
        worker.stop()
        worker.stop()
        assert await torn_down.wait()


def test_a_task_called_in_a_request_is_in_the_requests_own_context(both: tuple[Shop, Flask]) -> None:
    shop, app = both

    @shop.queue.task
    def task() -> list[bool]:
        return [g.marked, has_request_context()]

    @app.get("/")
    def view() -> list[bool]:
        g.marked = True
        return task()  # as the function

    assert app.test_client().get("/").json == [True, True]


def test_an_async_view_enqueues_in_the_session(both: tuple[Shop, Flask]) -> None:
    shop, app = both

    @app.post("/<ending>")
    async def view(ending: str) -> str:
        shop.db.session.add(Order())
        await shop.send.aenqueue(1)
        getattr(shop.db.session, ending)()
        return ending

    client = app.test_client()
    assert [client.post("/rollback").status_code, shop.left()] == [200, (0, 0)]
    assert [client.post("/commit").status_code, shop.left()] == [200, (1, 1)]


def test_the_extension_is_found_in_the_app(both: tuple[Shop, Flask]) -> None:
    shop, app = both

    assert app.extensions["pgqueue"] is shop.queue


def test_an_app_can_be_given_at_once(dsn: str) -> None:
    app = Flask("shop")
    app.config["PGQUEUE_DSN"] = dsn

    queue = PgQueueFlask(app)

    assert queue.database.dsn == dsn


@pytest.fixture
def two(dsn: str, empty_dsn: str) -> Iterator[tuple[Shop, Flask, Flask]]:
    """A shop whose extensions serve two apps with a database each; the second one's is empty."""
    with opened(dsn) as (shop, first):
        second = shop.app(SQLALCHEMY_DATABASE_URI=sqlalchemy_url(empty_dsn))
        yield shop, first, second
        with second.app_context():
            shop.db.engine.dispose()


def test_the_current_app_decides_which_database_it_is(
    two: tuple[Shop, Flask, Flask], dsn: str, empty_dsn: str
) -> None:
    shop, first, second = two

    found = []
    for app in (first, second, first):
        with app.app_context():
            found.append(shop.queue.database.dsn)

    assert found == [dsn, empty_dsn, dsn]


def test_outside_of_a_context_apps_with_several_databases_are_one_too_many(
    two: tuple[Shop, Flask, Flask],
) -> None:
    shop, first, _ = two
    with pytest.raises(ConfigurationError, match=r"app_context\(\).*queue\.of\(app\)"):
        shop.send.enqueue(1)

    shop.queue.of(first).find_task("send").enqueue(1)

    assert shop.left() == (0, 1)


def test_middleware_outside_of_the_app_context_stays_when_the_queue_is_bound_to_one_app(
    two: tuple[Shop, Flask, Flask],
) -> None:
    shop, first, _ = two
    with failing(shop.queue.find_task("send")):
        before = shop.queue.find_task("send").middleware
        bound = shop.queue.of(first).find_task("send").middleware

    assert [type(one) for one in bound] == [type(one) for one in before]
    assert (bound[0] is before[0], bound[1] is before[1]) == (True, False)


def test_the_codec_stays_when_the_queue_is_bound_to_one_app(dsn: str) -> None:
    codec, app = Codec(), Flask("shop")
    queue = PgQueueFlask(app, dsn=dsn, codec=codec)

    assert (queue.codec, queue.of(app).codec) == (codec, codec)


async def test_a_worker_of_one_of_several_apps_runs_jobs_in_that_apps_contexts(
    two: tuple[Shop, Flask, Flask], running: Running, dsn: str
) -> None:
    shop, first, second = two
    del second
    ran: list[tuple[Flask, str]] = []

    @shop.queue.task
    def task() -> None:
        ran.append((app_ctx.app, shop.queue.database.dsn))

    with first.app_context():
        job = task.using(connection=OWN_CONNECTION).enqueue()
    mine = shop.queue.of(first)
    async with running(mine, concurrency=1):
        await mine.aresult(job.id, timeout=20)

    assert ran == [(first, dsn)]


def test_apps_with_one_database_share_its_connections_and_leave_no_doubt(both: tuple[Shop, Flask]) -> None:
    shop, first = both
    with first.app_context():
        before = shop.queue.database

    second = shop.app()

    assert shop.queue.database is before
    with second.app_context():
        assert shop.queue.database is before
        shop.db.engine.dispose()


def test_closing_the_queue_closes_the_connections_of_every_app(two: tuple[Shop, Flask, Flask]) -> None:
    shop, first, _ = two
    mine = shop.queue.of(first)
    mine.insight.search()
    pool = mine.database.pools.blocking()

    shop.queue.close()

    assert pool.closed


@pytest.fixture
def in_memory_from_now_on() -> Iterator[None]:
    every_queue("memory")
    yield
    every_queue(None)


@pytest.mark.usefixtures("in_memory_from_now_on")
def test_under_test_the_jobs_of_an_app_can_be_kept_in_memory(dsn: str) -> None:
    with opened(dsn) as (shop, app):
        with app.app_context():
            shop.send.enqueue(1)
        assert [job.args for job in shop.queue.insight.search().jobs] == [{"number": 1}]
        assert shop.left() == (0, 0)


def test_a_queue_without_an_app_says_what_to_do(dsn: str) -> None:
    queue = PgQueueFlask(dsn=dsn)
    with pytest.raises(ConfigurationError, match=r"no app: call queue\.init_app"):
        queue.insight.search()


def test_an_app_that_the_queue_was_not_initialised_for_is_refused(both: tuple[Shop, Flask]) -> None:
    shop, _ = both
    other = Flask("other")

    with (
        other.app_context(),
        pytest.raises(ConfigurationError, match="not initialised for the Flask app 'other'"),
    ):
        shop.send.enqueue(1)
    with pytest.raises(ConfigurationError, match="'other'"):
        shop.queue.of(other)


def test_an_app_has_one_queue(both: tuple[Shop, Flask]) -> None:
    _, app = both

    with pytest.raises(ConfigurationError, match="'shop' has a queue already"):
        PgQueueFlask(app)


def test_apps_may_not_disagree_about_what_belongs_to_the_queue(both: tuple[Shop, Flask]) -> None:
    shop, _ = both

    with pytest.raises(ConfigurationError, match=r"PGQUEUE_MAX_PAYLOAD = 10, but this queue has"):
        shop.queue.init_app(_configured(PGQUEUE_MAX_PAYLOAD=10))


def test_a_task_in_a_queue_that_the_app_does_not_declare_is_refused_when_it_is_initialised() -> None:
    queue = PgQueueFlask()
    queue.task(name="task", queue="mail")(print)

    with pytest.raises(UnknownQueue, match="mail"):
        queue.init_app(_configured(PGQUEUE_QUEUES=["default"]))


def _configured(**config: Any) -> Flask:
    app = Flask("other")
    app.config.update(config)
    return app
