"""What can be a task, under which name, and what is said of anything else, where it is written.

Renamed tasks: what was enqueued under a former name goes on, and what is named after the task keeps its name.
"""

import asyncio
import functools
import inspect
import logging
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from looking import ask, until
from running import Running
from tenacity import stop_after_attempt

from pgqueue import JobState, Limit, PgQueue, Retry, Task, Unique, Worker, chain
from pgqueue.app import adding
from pgqueue.errors import DuplicateTask, InvalidOption, JobNotFound
from pgqueue.testing import in_memory
from pgqueue.values.flows.flow import BUILTIN


def stream() -> Iterator[int]:
    yield 1


async def astream() -> AsyncIterator[int]:
    yield 1


def plain(number: int = 1) -> int:
    return number


class Mailer:
    """A class, and an object that can be called."""

    def __call__(self) -> None: ...


def a_task() -> Any:
    return PgQueue("").task(name="other")(plain)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: stream, "a generator function would never run"),
        (lambda: astream, "a generator function would never run"),
        (lambda: functools.partial(stream), "a generator function would never run"),
        (lambda: lambda: None, "a lambda has no name"),
        (lambda: Mailer, "a class cannot be a task"),
        (Mailer, "a Mailer is no function; write a def that calls it"),
        (lambda: functools.partial(plain), "a partial is no function"),
        (a_task, "it is a task already; for other options use task.using"),
        (lambda: "send", "write @queue.task(name='send')"),
        (lambda: 5, "it cannot be called; decorate a function"),
    ],
)
def test_what_cannot_be_a_task_is_refused_where_it_is_decorated(make: Callable[[], Any], words: str) -> None:
    queue = PgQueue("")
    with pytest.raises(InvalidOption) as refused:
        queue.task(make())
    assert str(refused.value).startswith("@queue.task on ")
    assert words in str(refused.value)
    assert dict(queue.tasks) == {}


def test_a_refusal_shows_the_file_and_the_line() -> None:
    with pytest.raises(
        InvalidOption, match=rf"stream .*{Path(__file__).name}:{stream.__code__.co_firstlineno}"
    ):
        PgQueue("").task(stream)


def test_what_has_a_name_may_be_a_lambda_and_what_wraps_a_function_is_one() -> None:
    queue = PgQueue("")
    assert queue.task(name="nothing")(lambda: None).name == "nothing"
    assert queue.task(functools.lru_cache(plain)).name == f"{__name__}.plain"


def test_two_functions_of_one_name_are_shown_with_file_and_line() -> None:
    queue = PgQueue("")
    queue.task(name="send")(plain)
    lines = [function.__code__.co_firstlineno for function in (stream, plain)]
    with pytest.raises(DuplicateTask) as refused:
        queue.task(name="send")(lambda: None)
    assert f"by task 'send' at {__file__}:{lines[1]}" in str(refused.value)
    assert f"'send' at {__file__}:" in str(refused.value)


# Policies


def test_a_number_of_attempts_is_a_policy() -> None:
    task = PgQueue("").task(retry=3)(plain)
    assert task.options.max_attempts == 3
    assert isinstance(task.retry.stop, stop_after_attempt)


@pytest.mark.parametrize(
    "retry", [0, -1, True, 3.0, "3", pytest.param(stop_after_attempt(3), id="a stop"), Retry], ids=repr
)
def test_what_is_no_policy_is_refused(retry: Any) -> None:
    with pytest.raises(InvalidOption, match=r"use a pgqueue\.Retry, or a number of attempts from 1"):
        PgQueue("").task(retry=retry)


@pytest.mark.parametrize("field", ["wait", "stop", "retry"])
@pytest.mark.parametrize("value", [3, None, OSError], ids=repr)
def test_a_policy_of_what_tenacity_could_not_ask_is_refused(field: str, value: Any) -> None:
    with pytest.raises(InvalidOption, match=rf"Retry\({field}=.*use one of tenacity's, for example"):
        Retry(**{field: value})


@pytest.mark.parametrize("unique", [True, "customer_id", ("customer_id",)])
def test_a_policy_of_uniqueness_that_is_none_is_refused(unique: Any) -> None:
    task = PgQueue("").task(plain)
    for take in (lambda: PgQueue("").task(unique=unique), lambda: task.using(unique=unique)):
        with pytest.raises(InvalidOption, match=r"unique=.*use pgqueue\.Unique, for example Unique\(by="):
            take()


def test_a_policy_of_uniqueness_without_a_key_is_refused_at_enqueue() -> None:
    queue = PgQueue("")
    task = queue.task(unique=Unique("replace"))(plain)
    with in_memory(queue):
        for enqueue in (task.enqueue, task.call, task.using(priority=1).enqueue):
            with pytest.raises(InvalidOption, match=r"has no key.*using\(unique_key=\.\.\.\).*Unique\(by="):
                enqueue(1)
        assert task.using(unique_key="plain:1").enqueue(1).accepted


# Names of the program itself

SCRIPT = """
import sys
from pgqueue import PgQueue
queue = PgQueue()
@queue.task
def hello(name: str) -> str:
    return f"hello {name}"
if __name__ == "__main__":
    print(hello.enqueue("Ada").id)
"""


def python(*words: str, dsn: str, cwd: Path, given: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603 - our own words
        [sys.executable, *words],
        cwd=cwd,
        env={"PGQUEUE_DSN": dsn},
        input=given,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize(
    ("words", "app"),
    [
        (["hello.py"], "hello:queue"),
        (["-m", "shop.hello"], "shop.hello:queue"),
        (["-m", "shop"], "shop.__main__:queue"),
    ],
    ids=["a script", "a module", "a package"],
)
def test_a_worker_runs_what_the_program_itself_enqueued(
    dsn: str, queue: PgQueue, tmp_path: Path, words: list[str], app: str
) -> None:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "__init__.py").touch()
    for name in ("hello.py", "shop/hello.py", "shop/__main__.py"):
        (tmp_path / name).write_text(SCRIPT, encoding="utf-8")

    enqueued = python(*words, dsn=dsn, cwd=tmp_path)
    assert enqueued.returncode == 0, enqueued.stderr
    worker = python(
        "-c",
        f"import asyncio, pkgutil, sys; sys.path.insert(0, '.'); queue = pkgutil.resolve_name({app!r})\n"
        "from pgqueue import Worker\n"
        "async def main():\n"
        "    worker = Worker(queue); running = asyncio.create_task(worker.run())\n"
        f"    print(await queue.aresult({int(enqueued.stdout)}, timeout=20))\n"
        "    worker.stop(); await running; await queue.aclose()\n"
        "asyncio.run(main())",
        dsn=dsn,
        cwd=tmp_path,
    )
    assert worker.stdout.strip() == "hello Ada", worker.stderr
    assert queue.job(int(enqueued.stdout)).task == f"{app.partition(':')[0]}.hello"


def test_in_a_process_of_multiprocessing_the_name_is_the_same(dsn: str, tmp_path: Path) -> None:
    (tmp_path / "hello.py").write_text(
        SCRIPT.partition("if __name__")[0] + "import multiprocessing\n"
        "if __name__ == '__main__':\n"
        "    with multiprocessing.get_context('spawn').Pool(1) as pool:\n"
        "        print(hello.name, pool.apply(repr, [hello.name]))\n",
        encoding="utf-8",
    )
    assert python("hello.py", dsn=dsn, cwd=tmp_path).stdout.split() == ["hello.hello", "'hello.hello'"]


@pytest.mark.parametrize("how", ["standard input", "command", "folder"])
def test_what_no_worker_can_import_is_refused_at_enqueue(dsn: str, tmp_path: Path, how: str) -> None:
    (tmp_path / "__main__.py").write_text(SCRIPT, encoding="utf-8")
    words = {"standard input": ["-"], "command": ["-c", SCRIPT], "folder": ["."]}[how]
    ended = python(*words, dsn=dsn, cwd=tmp_path, given=SCRIPT if how == "standard input" else None)
    assert ended.returncode == 1
    assert "task __main__.hello is defined where no worker can import it" in ended.stderr
    assert "@queue.task(name=...)" in ended.stderr
    named = SCRIPT.replace("@queue.task\n", "@queue.task(name='hello')\n")
    assert python("-c", named, dsn=dsn, cwd=tmp_path).returncode == 0


# What users of other queues type


@pytest.fixture
def memory_queue() -> Iterator[PgQueue]:
    queue = PgQueue("")
    queue.task(name="plain")(plain)
    with in_memory(queue):
        yield queue


async def test_a_task_is_enqueued_by_the_queue_too(queue: PgQueue) -> None:
    task = queue.task(plain)
    first = queue.enqueue(task, 1)
    second = await queue.aenqueue(task.using(priority=5), number=2)
    with queue.database.transaction() as connection:
        third = queue.enqueue(task.using(connection=connection), 3)
        assert ask(queue, "select count(*) from pgqueue.jobs") == [(2,)]
    assert [queue.job(one.id).args["number"] for one in (second, third)] == [2, 3]
    assert queue.job(first.id).args == {}
    assert queue.job(second.id).priority == 5
    await queue.aclose()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ((plain, 1), "decorate the function with @queue.task"),
        (("plain", 1), r"write queue\.enqueue_named\('plain', "),
        (([1, 2],), r"write queue\.enqueue_many\(task\.call\(\.\.\.\)"),
    ],
)
async def test_what_is_no_task_is_refused_with_what_to_write(
    memory_queue: PgQueue, given: tuple[Any, ...], words: str
) -> None:
    with pytest.raises(InvalidOption, match=words):
        memory_queue.enqueue(*given)
    with pytest.raises(InvalidOption, match=words):
        await memory_queue.aenqueue(*given)


async def test_what_is_no_call_is_refused_by_enqueue_many(memory_queue: PgQueue) -> None:
    task = memory_queue.tasks["plain"]
    for calls, words in (([task], r"write plain\.call\("), ([task.call(1), 2], r"give task\.call\(\.\.\.\)")):
        with pytest.raises(InvalidOption, match=rf"is no call of a task; {words}"):
            memory_queue.enqueue_many(calls)  # type: ignore[arg-type]
        with pytest.raises(InvalidOption, match=words):
            await memory_queue.aenqueue_many(calls)  # type: ignore[arg-type]


def test_an_error_of_the_calls_themselves_is_their_own(memory_queue: PgQueue) -> None:
    def call(_: int) -> Any:
        raise AttributeError("mine")

    with pytest.raises(AttributeError, match=r"^mine$"):
        memory_queue.enqueue_many(map(call, [1]))


@pytest.mark.parametrize(
    ("name", "words"),
    [("delay", ".enqueue("), ("apply_async", ".using("), ("defer", ".enqueue("), ("s", ".call(")],
)
def test_a_method_of_another_queue_is_answered_with_ours(
    memory_queue: PgQueue, name: str, words: str
) -> None:
    task = memory_queue.tasks["plain"]
    assert not hasattr(task, name)
    with pytest.raises(AttributeError) as refused:
        getattr(task, name)
    assert "did you mean " + words in str(refused.value)


@pytest.mark.parametrize("name", ["enqueue", "aenqueue"])
def test_a_call_says_what_enqueues_it(memory_queue: PgQueue, name: str) -> None:
    call = memory_queue.tasks["plain"].call(1)
    assert not hasattr(call, name)
    with pytest.raises(AttributeError, match=rf"task\.{name}\(\.\.\.\).*queue\.{name}_many\(\[call"):
        getattr(call, name)


def test_the_signature_of_a_task_is_its_functions(memory_queue: PgQueue) -> None:
    def send(order_id: int, *, note: str = "") -> str:
        return f"{order_id}{note}"

    assert inspect.signature(memory_queue.task(send)) == inspect.signature(send)


def test_any_other_missing_attribute_is_as_ever(memory_queue: PgQueue) -> None:
    with pytest.raises(AttributeError, match=r"^'Task' object has no attribute 'colour'$"):
        _ = memory_queue.tasks["plain"].colour  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"countdown": 5}, "countdown= is delay=, in seconds or as a timedelta"),
        ({"eta": 5}, "eta= is run_at="),
        ({"priorty": 5}, "did you mean priority=?"),
        ({"colour": 5}, "there are connection=, queue=, priority="),
    ],
)
def test_an_option_of_another_queue_is_answered_with_ours(
    memory_queue: PgQueue, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(TypeError) as refused:
        memory_queue.tasks["plain"].using(**options)
    assert words in str(refused.value)


def test_the_decorators_options_too(memory_queue: PgQueue) -> None:
    with pytest.raises(TypeError, match=r"max_retries= is retry=, the number of attempts"):
        memory_queue.task(max_retries=5)  # type: ignore[call-overload]


def test_the_worker_stands_at_the_top_and_is_loaded_when_asked_for() -> None:
    assert {*Worker(PgQueue("")).queue.tasks} == BUILTIN
    program = (
        "import sys, pgqueue\nassert 'pgqueue.worker.worker' not in sys.modules\n"
        "from pgqueue import Worker\nassert Worker is sys.modules['pgqueue.worker.worker'].Worker"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)  # noqa: S603 - our own words


def test_a_queue_shows_what_it_is(memory_queue: PgQueue) -> None:
    assert repr(memory_queue) == "<PgQueue schema=pgqueue tasks=1>"


# Ids and filters


async def test_an_id_that_can_be_none_is_refused_in_words(queue: PgQueue) -> None:
    for job_id in ("x", None, 1.5, True):
        for ask_for in (queue.job, queue.cancel, queue.retry):
            with pytest.raises(InvalidOption, match="a job's id is a whole number"):
                ask_for(job_id)  # type: ignore[arg-type]
        with pytest.raises(InvalidOption):
            await queue.ajob(job_id)  # type: ignore[arg-type]
    with pytest.raises(JobNotFound, match="ids go up to"):
        queue.job(1 << 63)


# A blocking enqueue in an event loop


@pytest.fixture
def untold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adding, "_told", False)


@pytest.mark.usefixtures("untold")
async def test_a_blocking_enqueue_in_an_event_loop_is_told_once_with_its_place(
    memory_queue: PgQueue, caplog: pytest.LogCaptureFixture
) -> None:
    await memory_queue.tasks["plain"].aenqueue(1)
    assert caplog.records == []
    for _ in range(2):
        memory_queue.tasks["plain"].enqueue(1)
    (told,) = [record for record in caplog.records if record.name == "pgqueue"]
    line = sys._getframe().f_lineno - 2  # noqa: SLF001 - of the enqueue
    assert told.levelno == logging.WARNING
    assert f"`await task.aenqueue(...)` at {__file__}:{line}" in told.message


@pytest.mark.usefixtures("untold")
def test_a_blocking_enqueue_elsewhere_is_as_it_should_be(
    memory_queue: PgQueue, caplog: pytest.LogCaptureFixture
) -> None:
    memory_queue.tasks["plain"].enqueue(1)

    async def in_a_thread() -> None:
        await asyncio.to_thread(memory_queue.tasks["plain"].enqueue, 1)

    asyncio.run(in_a_thread())
    assert caplog.records == []


async def test_a_function_without_a_module_is_a_task_if_it_has_a_name(
    queue: PgQueue, running: Running
) -> None:
    """One that was made by ``exec``, beside others: a worker stores what the modules of its tasks declare."""
    made: dict[str, Any] = {"__name__": None}
    exec("async def work(): ...", made)  # noqa: S102 - this is such a function
    with pytest.raises(InvalidOption, match=r"is in no module: give the task a name"):
        queue.task(made["work"])
    work = queue.task(name="work")(made["work"])
    queue.task(plain)

    queue.schedule("@daily", name="daily")(work)
    job = await work.aenqueue()
    async with running(queue):
        await until(lambda: job.status() is JobState.SUCCEEDED)
    assert ask(queue, "select name from pgqueue.schedules") == [("daily",)]


Release = Callable[..., PgQueue]


@pytest.fixture
def release(dsn: str) -> Iterator[Release]:
    """Makes the app in a release in which its one task has a name, and had others."""
    with ExitStack() as closing:

        def made(name: str, aliases: tuple[str, ...] = (), **options: Any) -> PgQueue:
            queue = PgQueue(dsn)
            closing.callback(queue.close)

            @queue.task(name=name, aliases=aliases, **options)
            def bill(order: int = 0) -> int:
                return order

            return queue

        yield made


async def test_jobs_of_a_former_name_run_if_they_wait_are_retried_or_are_part_of_a_flow(
    release: Release, running: Running
) -> None:
    before = release("old.bill", max_attempts=1)
    old = before.find_task("old.bill")
    dead = old.enqueue(1)
    with before.take() as jobs:
        jobs[0].fail("no")
    handles = [old.enqueue(2), old.using(delay=0.1).enqueue(3)]
    handles += chain(old.call(4), old.call(5)).enqueue().jobs

    now = release("new.bill", ("old.bill",))
    assert now.find_task("old.bill").name == "new.bill"
    async with running(now):
        assert now.retry(dead.id)
        for handle in [dead, *handles]:
            await handle.aresult(timeout=30)
        assert ask(now, "select tasks @> '{old.bill,new.bill}' from pgqueue.workers") == [(True,)]


def test_limits_and_unique_keys_that_are_named_after_the_task_hold_over_both_names(release: Release) -> None:
    options: dict[str, Any] = {"limit": Limit(1), "unique": Unique(by=("order",))}
    before, now = release("a", **options), release("c", ("a", "b"), **options)
    first = before.find_task("a").enqueue(1)

    again = now.find_task("c").enqueue(1)
    assert (again.id, again.accepted) == (first.id, False)
    other = now.find_task("c").enqueue(2)
    with now.take(5, timeout=30) as jobs, now.take(5, timeout=timedelta(0)) as others:
        assert ([job.id for job in jobs], others) == ([first.id], [])
    with before.take(5, timeout=30) as jobs:
        assert [job.id for job in jobs] == [other.id]


def test_a_schedule_that_is_named_after_the_task_stays_the_same_one(release: Release) -> None:
    for queue, name in ((release("a"), "a"), (release("c", ("a",)), "c")):
        queue.schedule("@daily")(queue.find_task(name))
        queue.schedules.apply()

    assert ask(queue, "select name, task from pgqueue.schedules") == [("a", "c")]


@pytest.mark.parametrize(
    ("name", "aliases", "words"),
    [
        (
            "b",
            (),
            r"task 'b' at .*test_app_registering.py:\d+ is registered already, by task 'a' at .*test_app_registering.py:\d+",
        ),
        ("c", ("b",), "alias 'b' of task 'c' at .* is registered already, by task 'a' at"),
        ("c", ("a",), "alias 'a' of task 'c' at .* is registered already, by task 'a' at"),
    ],
)
def test_two_tasks_that_claim_one_name_are_refused_with_both_places(
    queue: PgQueue, name: str, aliases: tuple[str, ...], words: str
) -> None:
    queue.task(name="a", aliases=("b",))(lambda: None)

    with pytest.raises(DuplicateTask, match=words):
        queue.task(name=name, aliases=aliases)(lambda: None)
    assert sorted(queue.tasks) == ["a", "b"]


@pytest.mark.parametrize("aliases", ["old.bill", ("a", "a"), ("a b",), ("bill",), (1,), None])
def test_aliases_that_are_no_former_names_are_refused(queue: PgQueue, aliases: Any) -> None:
    with pytest.raises(InvalidOption, match="alias"):
        queue.task(name="bill", aliases=aliases)(lambda: None)


def test_a_cell_that_runs_again_defines_its_tasks_again(
    queue: PgQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cell(times: int) -> "Task[[], int]":
        @queue.task(limit=Limit(times), aliases=["former"])
        def count() -> int:
            return times

        return count

    first = cell(1)
    with pytest.raises(DuplicateTask):
        cell(2)
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    second = cell(2)
    assert first is not second
    assert queue.tasks[second.name] is queue.tasks["former"] is second
    with pytest.raises(DuplicateTask):
        queue.task(name=second.name)(lambda: None)
