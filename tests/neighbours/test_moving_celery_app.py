"""The app of a Celery project on pgqueue: its settings, its modules, its schedules, its classes of tasks."""

import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from importlib import import_module
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from celery import schedules as celerys_schedules
from celery.app.defaults import NAMESPACES, flatten
from looking import until
from running import Running

from pgqueue import PgQueue
from pgqueue.app.late_tasks import register_late_tasks
from pgqueue.errors import ConfigurationError, InvalidOption, JobFailed, UnknownTask
from pgqueue.moving.celery import (
    Celery,
    Task,
    crontab,
    get_task_logger,
    schedule,
    shared_task,
    signature,
    solar,
)
from pgqueue.moving.celery.conf import HONOURED, INSTEAD, SAME, Settings, is_setting, remedy_of
from pgqueue.moving.celery.exceptions import MaxRetriesExceededError
from pgqueue.moving.celery.result import process
from pgqueue.testing import drain

FUTURE = datetime(2040, 1, 1, 12)  # noqa: DTZ001 - without a time zone, as Celery takes it
SETTINGS = {name: option.default for name, option in flatten(NAMESPACES)}


@pytest.fixture
def app(queue: PgQueue) -> Celery:
    return Celery(queue)


@pytest.fixture
def apart() -> Celery:
    return Celery(PgQueue("postgresql://nowhere.invalid/none"))


def add(x: int, y: int = 1) -> int:
    return x + y


def test_every_setting_of_celery_is_honoured_or_needs_no_action_or_has_a_remedy() -> None:
    assert [name for name in SETTINGS if not is_setting(name)] == []
    assert [name for name in HONOURED if name not in SETTINGS] == []
    for pattern in [*SAME, *INSTEAD]:
        assert [name for name in SETTINGS if re.fullmatch(pattern.replace("*", ".*"), name)], pattern


def test_the_defaults_of_celery_need_no_action() -> None:
    conf = Settings()
    conf.update(SETTINGS)
    conf.update(result_expires=None, worker_pool=None)  # a day, and processes: other defaults than pgqueue's
    assert conf.not_honoured() == []


async def test_settings_that_are_not_honoured_are_told_in_one_warning_when_a_worker_starts(
    app: Celery, queue: PgQueue, running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    app.conf.update(
        task_serializer="pickle", accept_content=["pickle", "json"], worker_concurrency=8, enable_utc=False,
        task_routs={}, my_own_setting=1, task_routes={}, worker_prefetch_multiplier=1, task_soft_time_limit=60,
    )  # fmt: skip
    app.finalize()
    app.finalize()
    assert "does not honour" not in caplog.text
    async with running(queue):
        await until(lambda: "does not honour" in caplog.text)
    (record,) = [one for one in caplog.records if "does not honour" in one.getMessage()]
    lines = record.getMessage().partition("honour: ")[2].split("; ")
    named = [line.split()[0].rstrip(":") for line in lines if " = " in line or "no such" in line]
    assert named == [
        "task_serializer", "accept_content", "worker_concurrency", "enable_utc", "task_soft_time_limit", "task_routs",
    ]  # fmt: skip
    assert "worker_concurrency = 8: `pgqueue worker --concurrency N`" in lines
    assert "did you mean 'task_routes'" in lines[-1]


def test_the_settings_are_a_mapping_and_attributes(apart: Celery) -> None:
    conf = apart.conf
    conf.timezone = "Europe/Paris"
    conf["task_default_queue"] = "shop"
    assert (conf["timezone"], conf.task_default_queue, conf.get("mine"), conf.task_routes) == (
        "Europe/Paris", "shop", None, None,
    )  # fmt: skip
    assert len(conf) == len([*conf]) == 2
    del conf["timezone"]
    assert "timezone" not in conf
    with pytest.raises(AttributeError, match="did you mean 'task_routes'"):
        _ = conf.task_route
    with pytest.raises(InvalidOption, match="in lower case"):
        conf["CELERY_TASK_ROUTES"] = {}
    assert Celery(PgQueue(), timezone="UTC").conf.timezone == "UTC"
    with pytest.raises(InvalidOption, match="timezon"):
        Celery(PgQueue(), timezon="UTC")


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Makes packages of this text, which are forgotten after the test."""
    made: list[str] = []
    monkeypatch.syspath_prepend(tmp_path)

    def make(name: str, **modules: str) -> None:
        made.append(name)
        (tmp_path / name).mkdir()
        for module, text in {"__init__": "", **modules}.items():
            (tmp_path / name / f"{module}.py").write_text(text)

    yield make
    for module in [one for one in sys.modules if one.partition(".")[0] in made]:
        del sys.modules[module]


def test_settings_are_read_from_a_module_an_object_and_a_mapping(package: Any, apart: Celery) -> None:
    package(
        "settings_of", conf="timezone = 'Europe/Paris'\nimport os\ntask_default_queue = 'shop'\nOTHER = 1"
    )
    apart.config_from_object("settings_of.conf")
    assert dict(apart.conf) == {"timezone": "Europe/Paris", "task_default_queue": "shop"}
    apart.config_from_object(SimpleNamespace(task_time_limit=5))
    apart.config_from_object({"task_acks_late": True})
    assert (apart.conf.task_time_limit, apart.conf.task_acks_late) == (5, True)
    with pytest.raises(ModuleNotFoundError):
        apart.config_from_object("settings_of.nothing")


def test_settings_with_a_namespace_are_those_of_django(
    apart: Celery, monkeypatch: pytest.MonkeyPatch
) -> None:
    from django.conf import settings  # noqa: PLC0415 - as a project has it

    monkeypatch.setattr(settings, "CELERY_TASK_DEFAULT_QUEUE", "web", raising=False)
    monkeypatch.setattr(settings, "CELERY_TIMEZONE", "Europe/Rome", raising=False)
    apart.config_from_object("django.conf:settings", namespace="CELERY")
    assert dict(apart.conf) == {"task_default_queue": "web", "timezone": "Europe/Rome"}


ROUTES: Any = [
    {"shop.*": {"queue": "shop"}, "shop.add": "own"},
    ([("mail.*", {"queue": "mail"}), (re.compile(r"^report\."), {"queue": "slow", "priority": 2})],),
    lambda _, args, *__, **___: {"queue": f"of-{args[0]}"} if args == (1,) else None,
]


@pytest.mark.parametrize(
    ("name", "routes", "args", "options", "expected"),
    [
        ("shop.add", ROUTES[0], (2,), {}, "own"),
        ("shop.sub", ROUTES[0], (2,), {}, "shop"),
        ("mail.send", ROUTES[1], (2,), {}, "mail"),
        ("report.all", ROUTES[1], (2,), {}, "slow"),
        ("any", [*ROUTES[1], ROUTES[2]], (1,), {}, "of-1"),
        ("any", [*ROUTES[1], ROUTES[2]], (2,), {}, "rest"),
        ("shop.add", ROUTES[0], (2,), {"queue": "said"}, "said"),
        ("shop.add", "shop_routes.router", (2,), {}, "by-path"),
    ],
)
def test_a_route_names_the_queue_unless_the_call_or_the_task_does(
    name: str, routes: Any, args: Any, options: Any, expected: str, *, app: Celery, package: Any
) -> None:
    package("shop_routes", router="")
    sys.modules["shop_routes"] = SimpleNamespace(router=lambda *_, **__: "by-path")  # type: ignore[assignment]  # for the path
    app.conf.update(task_routes=routes, task_default_queue="rest", broker_url="amqp://host//")
    result = app.task(name=name)(add).apply_async(args, **options)
    job = app.queue.job(int(result.id))
    assert (job.queue, job.priority) == (expected, 2 if expected == "slow" else 0)
    own = app.task(name=f"{name}.own", queue="mine")(add).delay(2)
    assert app.queue.job(int(own.id)).queue == "mine"


def test_a_route_with_an_exchange_is_refused(apart: Celery) -> None:
    apart.conf.task_routes = {"*": {"exchange": "media", "queue": "m"}}
    with pytest.raises(InvalidOption, match="exchange='media'"):
        apart.task(add).delay(1)


def test_the_defaults_of_tasks_are_those_of_the_settings(apart: Celery) -> None:
    task, own = apart.task(name="a")(add), apart.task(name="b", time_limit=5, acks_late=False)(add)
    apart.conf.update(
        task_time_limit=30, task_acks_late=True, task_default_priority=3, broker_url="redis://h/0"
    )
    assert (task.task.timeout, own.task.timeout) == (timedelta(seconds=30), timedelta(seconds=5))
    assert (task.task.options.max_attempts, own.task.options.max_attempts) == (4, 1)
    assert task.task.options.priority == -3


def test_an_instant_without_a_time_zone_is_in_that_of_the_settings(app: Celery, queue: PgQueue) -> None:
    task = app.task(add)
    app.conf.timezone = "Asia/Tokyo"
    job = queue.job(int(task.apply_async((1,), eta=FUTURE).id))
    assert job.run_at == datetime(2040, 1, 1, 3, tzinfo=UTC)


@pytest.mark.parametrize("options", [{}, {"countdown": 20}, {"eta": timedelta(seconds=20)}])
def test_a_call_expires_that_many_seconds_after_it(options: Any, app: Celery, queue: PgQueue) -> None:
    given = {name: datetime.now(UTC) + one if name == "eta" else one for name, one in options.items()}
    for expires in (60, datetime.now(UTC) + timedelta(seconds=60)):
        app.task(name=f"add.{expires}".replace(" ", "_").replace(":", "_"))(add).apply_async(
            (1,), expires=expires, **given
        )
    with queue.database.pooled() as connection:
        found = connection.execute(
            "select extract(epoch from expires_at - created_at)::float8 from pgqueue.jobs"
        ).fetchall()
    assert found == [(pytest.approx(60, abs=2),)] * 2


def test_modules_are_imported_when_a_worker_starts_and_not_before(package: Any) -> None:
    queue = PgQueue("postgresql://nowhere.invalid/none")
    app = Celery(queue, include=["by_include.work"])
    package("by_include", work="from pgqueue.moving.celery import shared_task\n@shared_task\ndef a(): ...")
    package("by_name", tasks="from pgqueue.moving.celery import shared_task\n@shared_task\ndef b(): ...")
    package("by_function", jobs="from pgqueue.moving.celery import shared_task\n@shared_task\ndef c(): ...")
    package("without")
    app.autodiscover_tasks(["by_name", "without"])
    app.autodiscover_tasks(lambda: ["by_function"], related_name="jobs")
    app.conf.imports = ["by_include"]
    assert "by_name.tasks" not in sys.modules
    register_late_tasks(PgQueue("postgresql://nowhere.invalid/other"))
    assert "by_name.tasks" not in sys.modules
    register_late_tasks(queue)
    assert {"by_include.work.a", "by_name.tasks.b", "by_function.jobs.c"} <= {*queue.tasks}
    package("at_once", tasks="loaded = True")
    app.autodiscover_tasks(["at_once"], force=True)
    assert "at_once.tasks" in sys.modules


def test_tasks_of_the_installed_apps_of_django_are_found(
    apart: Celery, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DJANGO_SETTINGS_MODULE", "neighbours.project.settings")
    apart.autodiscover_tasks(related_name="apps", force=True)
    assert "django.contrib.auth.apps" in sys.modules


def test_a_shared_task_belongs_to_the_app_that_was_made_last_or_is_made_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(process, "current", None)

    @shared_task(bind=True, name="early")
    def early(self: Task[..., Any], x: int) -> int:
        return x + self.request.retries

    assert early(3) == 3
    with pytest.raises(ConfigurationError, match="no app has been made"):
        early.delay(1)
    app = Celery(PgQueue("postgresql://nowhere.invalid/none"))
    late = shared_task(add)
    assert early.app is late.app is app
    assert signature("early", (1,)).task is early
    assert app.signature(late.name).task is late
    app.finalize()
    assert {"early", late.name} <= {*app.queue.tasks}


def test_a_task_is_found_by_name_or_the_error_names_the_nearest(apart: Celery, app: Celery) -> None:
    apart.task(name="add")(add)
    with pytest.raises(UnknownTask, match=r"did you mean 'add'.*enqueue_named"):
        apart.send_task("ad")
    app.task(name="add")(add)
    result = app.send_task("add", (1,), {"y": 2}, queue="sums")
    app.control.revoke([result.id])
    assert result.state == "REVOKED"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, "* * * * *"),
        ({"minute": 0, "hour": "*/3,8-17"}, "0 */3,8-17 * * *"),
        ({"minute": {30, 0}, "hour": [3], "day_of_week": "mon-fri"}, "0,30 3 * * mon-fri"),
        ({"minute": "15", "hour": 2, "day_of_month": "1-7", "month_of_year": "*/3"}, "15 2 1-7 */3 *"),
    ],
)
def test_a_crontab_has_the_ticks_that_it_has_in_celery(given: Any, expected: str, apart: Celery) -> None:
    assert crontab(**given).expression == expected
    task = apart.task(name="add")(add)
    apart.conf.beat_schedule = {"a": {"task": "add", "schedule": crontab(**given), "args": (1,)}}
    apart.finalize()
    (stored,) = apart.queue.schedules.declared()
    now = datetime(2027, 2, 26, 17, 5, tzinfo=UTC)
    found = [tick.at for tick in islice(stored.timing.after(now), 5)]
    real, wanted = celerys_schedules.crontab(**given, app=SimpleNamespace(timezone=UTC)), []
    for _ in range(5):
        real.nowfun = lambda at=now: at
        now += real.remaining_estimate(now)
        wanted.append(now)
    assert found == wanted
    assert task.task.name == stored.job.task


def test_a_crontab_of_both_kinds_of_days_is_refused() -> None:
    with pytest.raises(InvalidOption, match="days that are both"):
        _ = crontab(day_of_month=13, day_of_week="fri").expression
    with pytest.raises(ConfigurationError, match="knows no sunrise"):
        solar("sunset", -37, 144)
    with pytest.raises(ImportError, match=r"@queue\.schedule"):
        from pgqueue.moving.celery.schedules import crontab_parser  # noqa: F401, PLC0415


def test_beat_schedule_becomes_schedules_of_the_queue(apart: Celery) -> None:
    @apart.task(name="mail.send")
    def send(to: str, *, again: bool = False, **more: int) -> None: ...

    apart.conf.update(timezone="Europe/Rome", task_routes={"mail.*": "mail"}, broker_url="amqp://h")
    apart.conf.beat_schedule = {
        "nightly": {
            "task": "mail.send",
            "schedule": crontab(hour=2, minute=0),
            "args": ("ann",),
            "kwargs": {"again": True, "x": 1},
        },
        "often": {
            "task": "mail.send",
            "schedule": 30.0,
            "args": ("bob",),
            "options": {"queue": "fast", "priority": 5},
        },
        "hourly": {
            "task": "mail.send",
            "schedule": schedule(timedelta(hours=1)),
            "args": ("eve",),
            "relative": True,
        },
    }

    @apart.on_after_configure.connect
    def setup(sender: Celery, **_: object) -> None:
        sender.add_periodic_task(10, send.s("joe"), name="each ten")
        sender.add_periodic_task(crontab(minute=5), send.s("joe").set(queue="slow"))

    apart.finalize()
    found = {one.name: one for one in apart.queue.schedules.declared()}
    assert [*found] == ["nightly", "often", "hourly", "each ten", "mail.send('joe')"]
    assert found["nightly"].timing.timezone == "Europe/Rome"
    assert found["nightly"].job.args == b'{"to":"ann","again":true,"more":{"x":1}}'
    assert [found[name].job.queue for name in found] == ["mail", "fast", "mail", "mail", "slow"]
    assert found["often"].job.priority == 5
    assert found["often"].timing.every == timedelta(seconds=30)


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"task": "add", "schedule": "daily", "args": (1,)}, "use crontab"),
        ({"task": "add", "schedule": True, "args": (1,)}, "use crontab"),
        ({"task": "add", "schedul": 1}, "an entry has 'task' and 'schedule'"),
        ({"task": "ad", "schedule": 5}, "did you mean 'add'"),
        ({"task": "add", "schedule": 5}, "Missing required argument"),
        ({"task": "many", "schedule": 5, "args": (1, 2)}, "stored by name"),
        ({"task": "add", "schedule": crontab(hour="25"), "args": (1,)}, "hour"),
    ],
)
def test_an_entry_that_makes_no_sense_is_refused_when_the_worker_starts(
    entry: Any, said: str, apart: Celery
) -> None:
    apart.task(name="add")(add)
    apart.task(name="many")(many)
    apart.conf.beat_schedule = {"a": entry}
    with pytest.raises(Exception, match=said):
        apart.finalize()


def many(*values: int) -> None: ...


async def test_a_worker_stores_the_schedules_of_the_app(
    app: Celery, queue: PgQueue, running: Running
) -> None:
    app.task(name="add")(add)
    app.conf.beat_schedule = {"a": {"task": "add", "schedule": 3600, "kwargs": {"x": 1}}}
    async with running(queue):
        await until(queue.schedules.find)
        stored = await queue.schedules.aget("a")
    assert (stored.task, stored.args) == ("add", {"x": 1})


class Noted(Task[..., Any]):
    """A class of tasks as Celery's pages have it."""

    max_retries = 1
    default_retry_delay = 0
    seen: list[Any] = []  # noqa: RUF012 - as people write them

    def before_start(self, *_: Any) -> None:
        self.seen.append("before")

    def on_success(self, retval: Any, _: str, args: Any, *__: Any) -> None:
        self.seen.append(("success", retval, args))

    def on_retry(self, exc: Exception, *_: Any) -> None:
        self.seen.append(("retry", str(exc)))

    def on_failure(self, exc: Exception, *about: Any) -> None:
        super().on_failure(exc, *about)
        self.seen.append(("failure", str(exc), about[1], "raise OSError" in str(about[3])))

    def after_return(self, status: str, *_: Any) -> None:
        self.seen.append(status)
        raise RuntimeError("an error here changes nothing")


def test_a_class_of_tasks_is_told_how_attempts_end(
    app: Celery, queue: PgQueue, caplog: pytest.LogCaptureFixture
) -> None:
    app.Task = Noted
    Noted.seen.clear()

    @app.task(bind=True)
    def stubborn(self: Noted, word: str) -> None:
        raise self.retry(exc=OSError(word))

    fine = app.task(name="fine")(add)
    assert (stubborn.max_retries, isinstance(stubborn, Noted)) == (1, True)
    stubborn.delay("a")
    drain(queue, raises=False)
    assert Noted.seen[:3] == ["before", ("retry", "OSError('a')"), "RETRY"]
    Noted.seen.clear()
    fine.delay(1, 2)
    drain(queue)
    assert Noted.seen == ["before", ("success", 3, (1, 2)), "SUCCESS"]
    assert "after_return of task fine raised an error" in caplog.text


async def test_the_last_attempt_is_told_as_a_failure(app: Celery, queue: PgQueue, running: Running) -> None:
    Noted.seen.clear()

    @app.task(base=Noted, autoretry_for=(OSError,))
    def broken(word: str) -> None:
        raise OSError(word)

    result = broken.delay("b")
    async with running(queue):
        with suppress(JobFailed):
            await queue.aresult(int(result.id), timeout=20)
    assert [one for one in Noted.seen if one != "before"] == [
        ("retry", "b"), "RETRY", ("failure", "b", ("b",), True), "FAILURE",
    ]  # fmt: skip


def test_a_class_with_run_is_a_task(app: Celery, queue: PgQueue) -> None:
    class Sum(Task[..., Any]):
        name = "sum"

        def run(self, *values: int) -> int:
            return sum(values)

    task = app.register_task(Sum())
    result = task.delay(1, 2, 3)
    drain(queue)
    assert (result.get(), task(4, 5), task.name) == (6, 9, "sum")


def test_a_base_that_is_no_class_of_tasks_is_refused(apart: Celery) -> None:
    with pytest.raises(InvalidOption, match=r"inherits app\.Task"):
        apart.task(base=dict)(add)


def test_a_retry_without_a_reason_ends_with_celerys_error(app: Celery, queue: PgQueue) -> None:
    caught = []

    @app.task(bind=True, max_retries=0)
    def once(self: Task[..., Any]) -> str:
        try:
            self.retry()
        except MaxRetriesExceededError as error:
            caught.append(str(error))
        return str(self.request.delivery_info["routing_key"])

    result = once.delay()
    drain(queue)
    assert (result.get(), caught) == ("default", [f"{once.name}[{result.id}]: it was retried 0 times"])


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("worker_main", "pgqueue --app module:app worker"),
        ("backend", "results are in PostgreSQL"),
        ("control.inspect", "pgqueue workers list"),
        ("control.nothing", "see docs/moving"),
        ("confs", "did you mean 'conf'"),
        ("tasks_", "compatibility module for a Celery app has no 'tasks_'"),
    ],
)
def test_an_attribute_that_is_not_there_says_what_to_use(name: str, said: str, apart: Celery) -> None:
    thing: Any = apart
    for one in name.split(".")[:-1]:
        thing = getattr(thing, one)
    with pytest.raises(AttributeError, match=said):
        getattr(thing, name.rsplit(".", maxsplit=1)[-1])
    with pytest.raises(AttributeError, match=r"ctx\.flow\.id"):
        _ = apart.task(name=f"of {name}".replace(" ", "_"))(add).request.root_id


def test_the_number_of_a_priority_is_read_by_the_brokers_url() -> None:
    for url, expected in (("redis://h/0", -5), ("rediss://h", -5), ("amqp://h//", 5), ("pyamqp://h", 5)):
        assert Celery("shop", queue=PgQueue(), broker=url).priority(5) == expected
    with pytest.raises(InvalidOption, match="name your broker"):
        Celery("shop", broker="sqs://").priority(5)


def test_the_queue_of_an_app_with_a_name_is_made_when_it_is_needed() -> None:
    app = Celery("shop", backend="redis://", set_as_current=False)
    assert "queue" not in vars(app)
    assert (app.main, type(app.queue).__mro__[-1]) == ("shop", object)
    assert get_task_logger("shop.tasks").name == "shop.tasks"
    assert get_task_logger is import_module("pgqueue.moving.celery.utils.log").get_task_logger
    assert remedy_of("task_serializer", "json") is None
