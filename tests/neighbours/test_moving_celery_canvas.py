"""Chains, groups and chords written for Celery: the same outcomes as in Celery, by pgqueue's workers and at the call."""

import json
import subprocess
import sys
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ciphers import Secret
from crashes.killing import worker_process
from looking import ask
from neighbours import celery_killing
from neighbours.celery_canvas import EXPRESSIONS, tasks_of

from pgqueue import JobState, PgQueue
from pgqueue.errors import ConfigurationError, InvalidOption, JobFailed, JobNotDone, PayloadNotEncodable
from pgqueue.moving import celery
from pgqueue.moving.celery import AsyncResult, Celery, GroupResult, chain, chord, group
from pgqueue.moving.celery.exceptions import ChordError
from pgqueue.testing import drain

HERE = Path(__file__).parent
CELERY = """
import json, sys
from types import SimpleNamespace
sys.path.insert(0, {here!r})
from celery_canvas import EXPRESSIONS, tasks_of
import celery
app = celery.Celery("canvas", broker="memory://", backend="cache+memory://")
app.conf.task_always_eager = True
names = SimpleNamespace(app=app, chain=celery.chain, group=celery.group, chord=celery.chord, **tasks_of(app))
print(json.dumps({{name: made(names).get() for name, made in EXPRESSIONS.items()}}))
"""


@pytest.fixture(scope="session")
def celerys() -> dict[str, Any]:
    """What Celery itself makes of the expressions."""
    program = CELERY.format(here=str(HERE))
    ended = subprocess.run(  # noqa: S603 - our own words
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120
    )
    return dict(json.loads(ended.stdout))


@pytest.fixture
def app(queue: PgQueue) -> Celery:
    return Celery(queue)


@pytest.fixture
def names(app: Celery) -> Any:
    return SimpleNamespace(app=app, chain=chain, group=group, chord=chord, **tasks_of(app))


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_an_expression_has_the_outcome_that_it_has_in_celery(
    name: str, names: Any, queue: PgQueue, celerys: dict[str, Any]
) -> None:
    result = EXPRESSIONS[name](names)
    drain(queue)
    assert result.get(timeout=5) == celerys[name]


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_an_expression_has_the_same_outcome_at_the_call(name: str, celerys: dict[str, Any]) -> None:
    app = Celery(PgQueue("postgresql://nowhere.invalid/none"), task_always_eager=True)
    names = SimpleNamespace(app=app, chain=chain, group=group, chord=chord, **tasks_of(app))
    assert EXPRESSIONS[name](names).get() == celerys[name]


def test_a_task_is_used_alone_and_in_a_chain_without_a_second_version(names: Any, queue: PgQueue) -> None:
    alone, chained = names.add.delay(1, 2), chain(names.ident.s(4), names.add.s(5))()
    drain(queue)
    assert (alone.get(), chained.get()) == (3, 9)
    assert {job.task for job in queue.insight.search().jobs} == {"add", "ident"}


def test_all_of_a_canvas_is_enqueued_in_one_transaction_or_not_at_all(names: Any, queue: PgQueue) -> None:
    with pytest.raises(PayloadNotEncodable, match="required argument 'y'"):
        chain(names.add.s(1, 2), names.add.s())()
    assert not queue.insight.search().jobs


def test_the_results_of_a_chain_and_of_a_group_are_linked(names: Any, queue: PgQueue) -> None:
    last = chain(names.add.s(1, 2), names.add.s(3), group(names.add.s(1), names.add.s(2)))()
    assert isinstance(last, GroupResult)
    assert repr(last) == f"<GroupResult: {last.id} [{last[0].id}, {last[1].id}]>"
    assert (last.waiting(), last.ready(), last.successful(), last.failed()) == (True, False, False, False)
    drain(queue)
    assert isinstance(last.parent, AsyncResult)
    assert isinstance(last.parent.parent, AsyncResult)
    assert (last.parent.get(), last.parent.parent.get(), last.join()) == (6, 3, [7, 8])
    assert (last.completed_count(), len(last), last.successful(), last.ready()) == (2, 2, True, True)


def test_a_result_becomes_what_the_annotation_of_the_parameter_says(app: Celery, queue: PgQueue) -> None:
    @app.task
    def amount() -> Decimal:
        return Decimal("1.50")

    @app.task
    def doubled(value: Decimal, by: int = 2) -> str:
        return f"{type(value).__name__} {value * by}"

    @app.task
    def count(value: int) -> int:
        return value

    right, wrong = (amount.s() | doubled.s())(), (amount.s() | count.s())()
    drain(queue, raises=False)
    assert right.get() == "Decimal 3.00"
    with pytest.raises(JobFailed, match="PayloadNotDecodable"):
        wrong.get()


def test_a_task_that_takes_no_argument_for_the_result_before_it_is_refused_at_the_call(app: Celery) -> None:
    @app.task
    def nothing() -> int:
        return 1

    with pytest.raises(InvalidOption, match=r"write \.si\(\.\.\.\)"):
        (nothing.s() | nothing.s())()
    with pytest.raises(InvalidOption, match="countdown=5 of a task that follows others"):
        (nothing.s() | nothing.si().set(countdown=5))()
    with pytest.raises(InvalidOption, match="is no signature"):
        chain(nothing.s(), 5)()
    with pytest.raises(InvalidOption, match="it has no task"):
        group(chain(), nothing.s())()
    assert chain()() is None


def test_a_large_result_is_passed_on(app: Celery, queue: PgQueue) -> None:
    @app.task
    def text() -> str:
        return "x" * 900_000

    @app.task
    def length(value: str) -> int:
        return len(value)

    result = (text.s() | length.s())()
    drain(queue)
    assert result.get() == 900_000


def test_every_attempt_of_a_follower_gets_the_result(app: Celery, queue: PgQueue) -> None:
    seen = []

    @app.task
    def first() -> int:
        return 1

    @app.task(bind=True, default_retry_delay=0)
    def second(self: Any, value: int) -> int:
        seen.append((value, self.request.args))
        if self.request.retries < 2:
            self.retry()
        return value

    result = (first.s() | second.s())()
    drain(queue)
    assert (result.get(), seen) == (1, [(1, (1,))] * 3)


def fine_again(*_: Any) -> str:
    return "fine"


def boom(*_: Any) -> None:
    raise OSError("no stock")


def test_a_chain_stops_at_a_failure_and_its_result_tells_it(names: Any, app: Celery, queue: PgQueue) -> None:
    broken = app.task(name="broken")(boom)
    result = chain(names.add.s(1, 2), broken.s(), names.add.s(3), names.wrap.s())()
    drain(queue, raises=False)
    assert (result.state, result.parent.parent.state) == ("REVOKED", "FAILURE")
    with pytest.raises(JobFailed, match="OSError: no stock"):
        result.get()
    assert "no stock" in (result.traceback or "")


@pytest.fixture
def told(app: Celery) -> Any:
    """Error callbacks, and what they were told."""
    found: list[Any] = []

    @app.task
    def alarm(request, exc, traceback, note="") -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001 - as Celery's pages
        found.append((request.id, request.task, exc, traceback, note))

    @app.task
    def with_id(task_id) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
        found.append(task_id)

    return SimpleNamespace(alarm=alarm, with_id=with_id, found=found)


def test_an_error_callback_is_told_of_the_failed_task(told: Any, app: Celery, queue: PgQueue) -> None:
    broken = app.task(name="broken")(boom)
    first = broken.apply_async(link_error=told.alarm.s(note="n"))
    second = broken.s().on_error(told.with_id.s()).delay()
    fine = app.task(name="fine")(fine_again).apply_async(link_error=[told.with_id.s()])
    drain(queue, raises=False)
    assert fine.get() == "fine"
    only_id, alarm = sorted(told.found, key=lambda one: isinstance(one, tuple))
    assert alarm[:2] == (first.id, "broken")
    assert isinstance(alarm[2], JobFailed)
    assert "OSError: no stock" in str(alarm[2])
    assert 'raise OSError("no stock")' in alarm[3]
    assert (alarm[4], only_id) == ("n", second.id)


@pytest.mark.parametrize("size", [2, 600])
def test_the_error_callback_of_a_chords_body_is_told_of_the_headers_failure(
    size: int, told: Any, names: Any, app: Celery, queue: PgQueue
) -> None:
    broken = app.task(name="broken")(boom)
    header = [*(names.ident.s(n) for n in range(size - 1)), broken.s(1)]
    result = chord(header)(names.wrap.s().on_error(told.alarm.s()))
    drain(queue, raises=False)
    ((task_id, task, error, _, _),) = told.found
    assert (task_id, task) == (result.id, "wrap")
    assert isinstance(error, ChordError)
    assert str(error) == f"Dependency {result.parent[-1].id} raised OSError: no stock"
    with pytest.raises(JobFailed, match="no stock"):
        result.get()


def test_the_error_callback_of_one_task_is_not_told_of_another_ones_failure(
    told: Any, names: Any, app: Celery, queue: PgQueue
) -> None:
    broken = app.task(name="broken")(boom)
    chain(broken.s(), names.ident.s().on_error(told.with_id.s()))()
    whole = chain(broken.s(), names.ident.s()).on_error(told.with_id.s())()
    drain(queue, raises=False)
    assert told.found == [whole.parent.id]


def test_an_error_callback_is_not_called_where_everything_was_revoked(
    told: Any, names: Any, queue: PgQueue
) -> None:
    result = chain(names.ident.s(1), names.ident.s()).on_error(told.with_id.s())()
    result.parent.revoke()
    drain(queue, raises=False)
    assert (result.state, told.found) == ("REVOKED", [])


def test_an_error_callback_that_is_a_coroutine_function_is_refused(names: Any, app: Celery) -> None:
    @app.task
    async def later(task_id: str) -> None: ...

    with pytest.raises(ConfigurationError, match="an error callback is a plain function"):
        names.ident.apply_async((1,), link_error=later.s())
    with pytest.raises(InvalidOption, match=r"write task\.s\(\)"):
        names.ident.apply_async((1,), link=later)


def test_a_callback_gets_the_result_and_does_not_change_what_follows(names: Any, queue: PgQueue) -> None:
    result = names.add.apply_async((1, 2), link=[names.wrap.s(), names.ident.si(9)])
    last = names.add.s(1, 2).set() | names.add.s(1)
    signature = names.add.s(3, 4)
    assert signature.link(names.wrap.s()).task is names.wrap
    outcome = (signature | names.add.s(1))()
    drain(queue)
    assert (result.get(), outcome.get(), repr(last)) == (3, 8, "chain(add(1, 2), add(1))")
    done = [job for job in queue.insight.search().jobs if job.task == "wrap"]
    assert sorted(queue.result(job.id)[1] for job in done) == [3, 7]


def test_eager_results_stop_at_a_failure_and_raise_it(app: Celery) -> None:
    broken = app.task(name="broken", autoretry_for=(OSError,), max_retries=2)(boom)
    fine = app.task(name="fine")(fine_again)
    result = chain(broken.s(), fine.s()).apply()
    assert (result.state, result.failed(), result.ready()) == ("FAILURE", True, True)
    with pytest.raises(OSError, match="no stock"):
        result.get()
    assert isinstance(result.get(propagate=False), OSError)
    with pytest.raises(OSError, match="no stock"):
        broken.apply(throw=True)
    app.conf.update(task_always_eager=True, task_eager_propagates=True)
    with pytest.raises(OSError, match="no stock"):
        broken.delay()


def test_an_eager_task_retries_at_once_and_sees_its_request(app: Celery) -> None:
    seen = []

    @app.task(bind=True, max_retries=2)
    def stubborn(self: Any, word: str) -> str:
        seen.append((self.request.retries, self.request.is_eager, self.request.called_directly))
        if self.request.retries < 2:
            self.retry(countdown=3600)
        return word

    assert stubborn.apply(("a",)).get() == "a"
    assert seen == [(n, True, False) for n in range(3)]


def test_a_name_that_is_not_there_says_what_to_use(names: Any) -> None:
    for thing, name, said in (
        (names.add.s(1), "freezes", "compatibility module for Celery's Signature has no 'freezes'"),
        (names.add, "chunks", "group\\(task.s\\(item\\)"),
        (names.add.delay(1, 2), "children", "queue.flows.get"),
        (group(names.add.s(1, 2))(), "save", "store the ids"),
    ):
        with pytest.raises(AttributeError, match=said):
            getattr(thing, name)
    with pytest.raises(ImportError, match="hooks"):
        from pgqueue.moving.celery import signals  # noqa: F401, PLC0415
    with pytest.raises(ImportError, match="there is one limit"):
        from pgqueue.moving.celery.exceptions import SoftTimeLimitExceeded  # noqa: F401, PLC0415
    assert not hasattr(celery, "__nothing__")


@pytest.mark.parametrize("times", [1, 3])
def test_a_chain_goes_on_with_its_results_after_workers_were_killed(
    times: int, dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The third death puts the job into a process of its own, which gets the result, too."""
    monkeypatch.setattr(celery_killing.queue, "database", celery_killing.queue.database.but(dsn=dsn))
    log = tmp_path / "log"
    result = chain(
        celery_killing.first.s(), celery_killing.deadly.s(str(log), times), celery_killing.last.s()
    )()
    for _ in range(times + 1):
        with worker_process(dsn, "neighbours.celery_killing") as process:
            while process.poll() is None:
                with suppress(JobNotDone):
                    result.get(timeout=0.2)
                    break
    assert result.get(timeout=20) == "6 in all"
    assert log.read_text().splitlines() == ["[1, 2, 3]"] * (times + 1)


def test_a_codec_encodes_what_a_chain_passes_on_and_what_it_fills_in(dsn: str) -> None:
    queue = PgQueue(dsn, codec=Secret("key"))
    app = Celery(queue)

    @app.task(name="first")
    def first() -> str:
        return "a secret word"

    @app.task(name="second")
    def second(word: str, times: int) -> str:
        return word * times

    result = (first.s() | group(second.s(1), second.s(2)) | app.task(name="join")(joined).s())()
    with queue.database.pooled() as connection:
        stored = str(connection.execute("select args, meta from pgqueue.jobs").fetchall())
    drain(queue)
    assert result.get() == "a secret word/a secret worda secret word"
    assert "$previous" not in stored
    queue.close()


def joined(words: list[str]) -> str:
    return "/".join(words)


@pytest.mark.parametrize("previous", ["5", "[]", '["result"]', '["error", 1]', '{"a": 1}'])
def test_what_no_chain_has_written_is_an_unknown_argument(previous: str, names: Any, queue: PgQueue) -> None:
    ask(queue, f"select pgqueue.enqueue('ident', '{{\"$previous\": {previous}}}')")
    names.ident.delay({"$previous": ["result", "1"]})
    assert names.ident.task.name == "ident"
    drain(queue, raises=False)
    hostile, fine = sorted(queue.insight.search().jobs, key=lambda job: job.id)
    assert (hostile.state, hostile.attempts) == (JobState.DEAD, 1)
    assert queue.result(fine.id) == {"$previous": ["result", "1"]}
