"""What a worker of Django's tasks imports because a job names it, and what it never does: a job's name is only text."""

import ast
import asyncio
import importlib
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.conf import settings
from django.db import connection
from django.test import override_settings
from neighbours import django_backend_tasks as tasks
from neighbours.django_backend_database import database, emptied
from neighbours.django_backend_helping import PATIENCE, work
from neighbours.django_backend_names import InvalidTask, TaskResultDoesNotExist, task, task_backends
from neighbours.project import shop
from pytest_postgresql.executors import NoopExecutor

from pgqueue.app.pgqueue import PgQueue
from pgqueue.django import DjangoQueue, backend_modules, queue
from pgqueue.django.backend_modules import ImportedTasks
from pgqueue.django.backend_tasks import adopt
from pgqueue.errors import UnknownTask
from pgqueue.store.workers import workers
from pgqueue.values.jobs.job import JobState
from pgqueue.values.jobs.verdict import Cancelled, Returned, Stop
from pgqueue.worker.attempt import Attempt
from pgqueue.worker.executor import Executor

LATE = """
from neighbours.django_backend_names import task

@task()
def send(number: int) -> int:
    return number + 1

@task()
async def send_later(number: int) -> int:
    return number + 2
"""
LATE_OF_OURS = "from pgqueue.django import queue\n\n@queue.task\ndef bill() -> None: ...\n"
SCRIPT = """
import os, sys
with open(os.environ["PGQUEUE_TEST_MARK"], "a") as mark: mark.write(__name__ + "\\n")

def helper(): ...

def decorate(function): return function

@decorate
def main(): ...

sys.exit(3)
"""
EXITS = SCRIPT.replace("decorate", "task").replace("main", "send")


@pytest.fixture(scope="module")
def shared(django_server: NoopExecutor) -> Iterator[dict[str, str]]:
    with database(django_server, "pgqueue_test_django_imports") as where:
        yield where


@pytest.fixture
def empty(shared: dict[str, str]) -> Iterator[None]:
    tasks.reset()
    with emptied(shared):
        yield


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder whose modules are those of the app ``shop``, which leave a mark if they are run as scripts."""
    monkeypatch.setattr(shop, "__path__", [*shop.__path__, str(tmp_path)])
    monkeypatch.setenv("PGQUEUE_TEST_MARK", str(tmp_path / "mark"))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.startswith(("neighbours.project.shop", "leftover")):
            del sys.modules[name]
    backend_modules.forget()


def _module(place: Path, name: str, source: str) -> None:
    file = place / f"{name}.py"
    file.parent.mkdir(exist_ok=True, parents=True)
    file.write_text(source, encoding="utf-8")


def _enqueue(name: str, args: str = "{}") -> int:
    with connection.cursor() as cursor:
        cursor.execute("select pgqueue.enqueue(%s, %s)", [name, args])
        job: int = cursor.fetchone()[0]
        return job


# What is found


def test_a_worker_finds_a_task_whose_module_is_loaded() -> None:
    worker_tasks = DjangoQueue.from_settings().tasks
    assert isinstance(worker_tasks, ImportedTasks)
    name = "neighbours.django_backend_tasks.add"
    assert name not in dict(worker_tasks)
    assert worker_tasks[name].name == name
    assert name in dict(worker_tasks)


@pytest.mark.parametrize("name", ["send", "send_later"])
@pytest.mark.usefixtures("empty")
def test_a_worker_imports_a_module_of_an_installed_app_that_declares_the_task(place: Path, name: str) -> None:
    _module(place, "late", LATE)
    job = _enqueue(f"neighbours.project.shop.late.{name}", '{"args": [1]}')
    _work_until(job, JobState.SUCCEEDED)
    assert queue.job(job).result in {2, 3}
    assert queue.job(job).attempts == 1


@pytest.mark.usefixtures("empty")
def test_a_task_that_moved_is_found_where_its_former_module_is_loaded_and_imports_it(place: Path) -> None:
    _module(place, "late", LATE)
    _module(place, "former", "from neighbours.project.shop.late import send as dispatch\n")
    importlib.import_module("neighbours.project.shop.former")
    job = _enqueue("neighbours.project.shop.former.dispatch", '{"args": [1]}')
    _work_until(job, JobState.SUCCEEDED)


@pytest.mark.usefixtures("empty")
def test_a_worker_finds_a_task_in_a_package_of_packages(place: Path) -> None:
    for folder in ("deep", "deep/deeper"):
        _module(place, f"{folder}/__init__", "")
    _module(place, "deep/deeper/late", LATE)
    job = _enqueue("neighbours.project.shop.deep.deeper.late.send", '{"args": [1]}')
    _work_until(job, JobState.SUCCEEDED)
    assert queue.job(job).attempts == 1


@pytest.mark.usefixtures("empty")
def test_a_worker_finds_a_task_of_pgqueues_own_in_a_module_that_it_had_not_imported(place: Path) -> None:
    _module(place, "late_of_ours", LATE_OF_OURS)
    job = _enqueue("neighbours.project.shop.late_of_ours.bill")
    worker_queue = queue  # the task registers itself on the project's queue
    assert worker_queue.load_task("neighbours.project.shop.late_of_ours.bill")
    assert worker_queue.tasks["neighbours.project.shop.late_of_ours.bill"].name.endswith(".bill")
    assert queue.job(job).state is JobState.READY


@pytest.mark.usefixtures("empty")
def test_a_result_is_read_where_the_tasks_module_was_not_imported(place: Path) -> None:
    _module(place, "late", LATE)
    job = _enqueue("neighbours.project.shop.late.send", '{"args": [1]}')
    assert task_backends["default"].get_result(str(job)).args == [1]


# What is not


@pytest.mark.parametrize(
    "name", ["neighbours.django_backend_tasks.gone", "nowhere.at_all", "os.getcwd", "plain", "a b.c", "..x"]
)
def test_a_worker_finds_nothing_where_no_task_stands(name: str, caplog: pytest.LogCaptureFixture) -> None:
    found = DjangoQueue.from_settings()
    with pytest.raises(KeyError):
        found.tasks[name]
    assert not found.load_task(name)
    assert caplog.records == []


HOSTILE = [
    "unittest.__main__",
    "unittest.__main__.main",
    "leftover_script",
    "leftover_script.main",
    "antigravity.fly",
    "neighbours.project.shop.script",
    "neighbours.project.shop.script.main",
    "neighbours.project.shop.script.helper",
    "neighbours.project.shop.script.os",
    "neighbours.project.shop.__main__.send",
    "neighbours.project.shop.package.script.main",
    "neighbours.project.shop.exits.send",
    "neighbours.project.shop../script.main",
    "neighbours.project.shop.tasks.__class__.__init__",
    "__main__.main",
    ".".join(["neighbours.project.shop", *["package"] * 20]),
    "neighbours.project.shop.deep_source.send",
    "neighbours.project.shop.no_source.send",
    "neighbours.project.shop.not_text.send",
]


@pytest.fixture
def hostile(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Modules that must not be imported because a job says so."""
    for name in ("script", "package/script", "package/__init__", "outside/leftover_script"):
        _module(place, name, SCRIPT)
    _module(place, "__main__", EXITS)
    _module(place, "deep_source", f"{'(' * 5000}{')' * 5000}\n")
    _module(place, "no_source", "def")
    (place / "not_text.py").write_bytes(b"\x00\xff")
    monkeypatch.syspath_prepend(place / "outside")
    return place


@pytest.mark.parametrize("name", [name for name in HOSTILE if not name.endswith("exits.send")])
def test_a_name_imports_nothing_but_a_module_that_declares_a_task(name: str, hostile: Path) -> None:
    before = set(sys.modules)
    found = DjangoQueue.from_settings()
    assert found.tasks.get(name) is None
    assert not found.load_task(name)
    assert not (hostile / "mark").exists()
    loaded = {module for module in set(sys.modules) - before if not module.startswith("encodings")}
    assert loaded == set()


@pytest.mark.usefixtures("empty")
def test_a_worker_goes_on_whatever_names_jobs_have(hostile: Path) -> None:
    _module(hostile, "exits", EXITS)
    jobs = [_enqueue(name) for name in HOSTILE]
    last = tasks.add.enqueue(1, 2)
    work(last, concurrency=1)
    assert last.return_value == 3
    assert {queue.job(job).attempts for job in jobs} == {0}
    assert {queue.job(job).state for job in jobs} <= {JobState.SCHEDULED, JobState.READY}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.usefixtures("empty")
def test_reading_a_result_imports_nothing_either(name: str, hostile: Path) -> None:
    _module(hostile, "exits", EXITS)
    job = _enqueue(name)
    with pytest.raises(TaskResultDoesNotExist):
        task_backends["default"].get_result(str(job))


def test_a_module_that_ends_the_process_when_it_is_imported_is_told_of(
    place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _module(place, "exits", EXITS)
    assert not queue.load_task("neighbours.project.shop.exits.send")
    (told,) = caplog.records
    assert told.exc_info is not None
    assert told.exc_info[0] is SystemExit
    assert (place / "mark").read_text(encoding="utf-8") == "neighbours.project.shop.exits\n"


def test_a_module_that_cannot_be_imported_is_tried_once_in_a_while(
    place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _module(place, "broken", "1 / 0\n@task\ndef send(): ...\n")
    name = "neighbours.project.shop.broken.send"
    assert [backend_modules.load(name, now=moment) for moment in (0.0, 59.0, 61.0)] == [False] * 3
    assert [told.exc_info and told.exc_info[0] for told in caplog.records] == [ZeroDivisionError] * 2


def test_names_that_are_refused_are_not_kept_without_bound() -> None:
    for number in range(5000):
        backend_modules.load(f"neighbours.project.shop.n{number}.x", now=0.0)
    assert backend_modules.count_refused_names() <= 1000


def test_a_module_outside_of_the_apps_is_told_of_once(place: Path, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        assert not queue.load_task("neighbours.project.late.send")
    (told,) = caplog.records
    assert "INSTALLED_APPS" in told.getMessage()
    assert not (place / "mark").exists()


# Where it is imported


@pytest.mark.usefixtures("empty")
def test_an_import_holds_up_neither_the_loop_nor_other_jobs(place: Path) -> None:
    gate = place / "gate"
    _module(
        place,
        "slow",
        f"import time, pathlib\nwhile not pathlib.Path({str(gate)!r}).exists(): time.sleep(0.01)\n{LATE}",
    )
    slow = _enqueue("neighbours.project.shop.slow.send", '{"args": [1]}')

    async def others(worker_queue: DjangoQueue) -> None:
        for number in [(await tasks.add.aenqueue(1)).id, (await tasks.add_later.aenqueue(1)).id]:
            while not (await worker_queue.ajob(int(number))).state.ended:  # noqa: ASYNC110 - the database tells no program
                await asyncio.sleep(0.01)
        gate.touch()
        while not (await worker_queue.ajob(slow)).state.ended:  # noqa: ASYNC110 - the database tells no program
            await asyncio.sleep(0.01)

    work(meanwhile=others)
    assert queue.job(slow).result == 2


@pytest.mark.parametrize(
    ("why", "becomes"), [(Stop.SHUTDOWN, Returned), (Stop.CANCEL, Cancelled), (Stop.LOST, type(None))]
)
async def test_an_attempt_that_is_stopped_while_its_module_loads_ends_as_any_other(
    why: Stop, becomes: type
) -> None:
    entered, leave = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    class Slow(PgQueue):
        def load_task(self, name: str) -> bool:  # noqa: ARG002 - PgQueue's signature
            loop.call_soon_threadsafe(entered.set)
            return leave.wait(PATIENCE)

    claim: Any = SimpleNamespace(id=1, task="shop.late.send", expires_in=None, latest=None, flags=None)
    context: Any = SimpleNamespace(cancelled=False)
    attempt = Attempt(claim, None, context)
    running = asyncio.create_task(Executor(Slow("postgresql://nowhere")).run(attempt))
    attempt.runner = running
    await entered.wait()
    attempt.stop(why)
    verdict = await running
    leave.set()
    assert type(verdict) is becomes


def test_two_threads_that_meet_a_task_at_once_have_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    fresh = DjangoQueue.from_settings()
    added: Any = tasks.add
    first = adopt(fresh, added)
    find, looks = fresh.find_task, iter([True])

    def too_early(name: str) -> Any:
        if next(looks, False):
            raise UnknownTask(name)
        return find(name)

    monkeypatch.setattr(fresh, "find_task", too_early)
    assert adopt(fresh, added) is first


def test_many_threads_load_a_module_once(place: Path) -> None:
    _module(place, "late", LATE.replace("@task()", "import threading\n@task()", 1))
    found = DjangoQueue.from_settings()
    answers: list[bool] = []
    threads = [
        threading.Thread(target=lambda: answers.append(found.load_task("neighbours.project.shop.late.send")))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert answers == [True] * 8


@pytest.mark.parametrize(
    ("failures", "loads"), [(backend_modules.TRIES - 1, True), (backend_modules.TRIES, False)]
)
def test_a_module_is_parsed_again_where_python_failed_since_another_thread_parsed(
    place: Path, monkeypatch: pytest.MonkeyPatch, failures: int, *, loads: bool
) -> None:
    _module(place, "late", LATE)
    parse, left = ast.parse, [SystemError("AST constructor recursion depth mismatch")] * failures

    def parsed(source: str) -> ast.Module:
        assert backend_modules._parsing.locked()  # noqa: SLF001 - our own threads parse in turn
        if left:
            raise left.pop()
        return parse(source)

    monkeypatch.setattr(ast, "parse", parsed)
    assert DjangoQueue.from_settings().load_task("neighbours.project.shop.late.send") is loads


def test_a_project_without_tasks_in_its_settings_imports_nothing(place: Path) -> None:
    _module(place, "late", LATE)
    with override_settings():
        del settings.TASKS
        found = DjangoQueue.from_settings()
        with pytest.raises(KeyError):
            found.tasks["neighbours.django_backend_tasks.add"]
        assert not found.load_task("neighbours.project.shop.late.send")


@pytest.mark.usefixtures("empty")
def test_a_job_of_a_task_that_is_not_there_is_left_to_other_workers() -> None:
    job = _enqueue("neighbours.django_backend_tasks.to_come")

    async def noted(worker_queue: DjangoQueue) -> None:
        while not await worker_queue.database.arun(workers.unknown_tasks()):  # noqa: ASYNC110 - the database tells no program
            await asyncio.sleep(0.01)

    work(meanwhile=noted)
    assert (queue.job(job).state, queue.job(job).attempts) == (JobState.READY, 0)


@pytest.mark.usefixtures("empty")
def test_a_task_of_a_script_is_refused_when_enqueued(monkeypatch: pytest.MonkeyPatch) -> None:
    made = task()(_of_a_script)
    monkeypatch.setattr(sys.modules["__main__"], "_of_a_script", made, raising=False)
    with pytest.raises(InvalidTask, match="__main__"):
        made.enqueue()
    assert queue.insight.search().jobs == ()


def _of_a_script() -> None: ...


_of_a_script.__module__ = "__main__"


def _work_until(job: int, state: JobState) -> None:
    async def wait(worker_queue: DjangoQueue) -> None:
        while (await worker_queue.ajob(job)).state is not state:  # noqa: ASYNC110 - the database tells no program
            await asyncio.sleep(0.01)

    work(meanwhile=wait)
