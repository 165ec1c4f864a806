"""Django's Tasks on pgqueue: every promise of the interface and of Django's own backends, on both of its halves."""

import asyncio
import copy
import dataclasses
import logging
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from asgiref.sync import async_to_sync
from django import VERSION as DJANGO
from django.core.checks import CheckMessage
from django.db import connection, transaction
from django.test import override_settings
from django.utils import timezone
from docs.pages import DOCS, blocks, words_in_code
from neighbours import django_backend_tasks as tasks
from neighbours.django_backend_database import database, emptied
from neighbours.django_backend_helping import PATIENCE, Awaited, Blocking, Result, work
from neighbours.django_backend_names import (
    InvalidTask,
    Task,
    TaskResultDoesNotExist,
    TaskResultMismatch,
    TaskResultStatus,
    default_task_backend,
    task,
    task_backends,
    task_enqueued,
    task_finished,
    task_started,
)
from neighbours.project.shop.models import Order
from pytest_postgresql.executors import NoopExecutor
from tenacity import stop_after_attempt, wait_none

from pgqueue import Retry
from pgqueue.app.task import Task as QueueTask
from pgqueue.django import DjangoQueue, TaskBackend, backend, queue
from pgqueue.django.backend_api import task_finished_logger
from pgqueue.django.backend_tasks import Policy, adopt
from pgqueue.errors import PayloadTooLarge
from pgqueue.values.jobs.job import JobState

READY, RUNNING = TaskResultStatus.READY, TaskResultStatus.RUNNING
FAILED, SUCCESSFUL = TaskResultStatus.FAILED, TaskResultStatus.SUCCESSFUL
GUIDE = DOCS / "guides" / "django-tasks.md"
OURS = "pgqueue.django.TaskBackend"
Heard: TypeAlias = "list[tuple[str, type, Result]]"


@pytest.fixture(scope="module")
def shared(django_server: NoopExecutor) -> Iterator[dict[str, str]]:
    with database(django_server, "pgqueue_test_django_backend") as where:
        yield where


@pytest.fixture(autouse=True)
def empty(shared: dict[str, str]) -> Iterator[None]:
    tasks.reset()
    with emptied(shared):
        yield
    tasks.leave.set()


@pytest.fixture(params=[Blocking(), Awaited()], ids=["blocking", "awaited"])
def api(request: pytest.FixtureRequest) -> Blocking:
    half: Blocking = request.param
    return half


def _jobs() -> list[str]:
    return [job.task.rpartition(".")[2] for job in queue.insight.search().jobs]


# What an enqueue gives back


def test_an_enqueue_gives_a_result_that_is_ready_and_says_what_was_asked_for(api: Blocking) -> None:
    before = timezone.now()
    result = api.enqueue(tasks.add, 1, two=2)
    assert (result.status, result.task, result.backend) == (READY, tasks.add, "default")
    assert isinstance(result.id, str)
    assert (result.args, result.kwargs, result.errors, result.worker_ids) == ([1], {"two": 2}, [], [])
    assert result.enqueued_at is not None
    assert before <= result.enqueued_at <= timezone.now()
    assert (result.started_at, result.finished_at, result.last_attempted_at) == (None, None, None)
    assert (result.attempts, result.is_finished) == (0, False)
    with pytest.raises(ValueError, match="Task has not finished yet"):
        _ = result.return_value


def test_the_job_says_the_tasks_path_and_its_arguments(api: Blocking) -> None:
    result = api.enqueue(tasks.add, 1, two=2)
    job = queue.job(int(result.id))
    assert job.task == "neighbours.django_backend_tasks.add"
    assert job.args == {"args": [1], "kwargs": {"two": 2}}
    assert (job.queue, job.priority, job.max_attempts, job.state) == ("default", 0, 1, JobState.READY)


def test_arguments_become_what_json_can_carry(api: Blocking) -> None:
    result = api.enqueue(tasks.give_back, {"pair": (1, b"two"), "none": None})
    assert result.args == [{"pair": [1, "two"], "none": None}]
    work(result)
    assert tasks.ran == result.args


@pytest.mark.parametrize(
    ("value", "error"), [(object(), TypeError), ({1, 2}, TypeError), (b"\xff", ValueError)]
)
def test_an_argument_without_a_json_form_is_refused_and_nothing_is_enqueued(
    api: Blocking, value: object, error: type[Exception]
) -> None:
    with pytest.raises(error):
        api.enqueue(tasks.give_back, value)
    assert queue.insight.search().jobs == ()


@pytest.mark.parametrize("value", [float("nan"), "nul \0"])
def test_an_argument_that_the_database_would_change_is_refused(api: Blocking, value: object) -> None:
    with pytest.raises(TypeError):
        api.enqueue(tasks.give_back, value)
    assert queue.insight.search().jobs == ()


def test_arguments_over_the_limit_are_refused(api: Blocking) -> None:
    with pytest.raises(PayloadTooLarge):
        api.enqueue(tasks.give_back, "x" * (1 << 20))


# Options


def test_a_tasks_own_options_are_the_jobs(api: Blocking) -> None:
    job = queue.job(int(api.enqueue(tasks.mail, "me").id))
    assert (job.queue, job.priority) == ("mail", 7)


def test_using_changes_the_job_and_not_the_task(api: Blocking) -> None:
    later = timezone.now() + timedelta(hours=1)
    changed = tasks.add.using(priority=-100, queue_name="mail", run_after=later, backend="default")
    result = api.enqueue(changed, 1)
    job = queue.job(int(result.id))
    assert (job.priority, job.queue, job.run_at, job.state) == (-100, "mail", later, JobState.SCHEDULED)
    assert (tasks.add.priority, tasks.add.queue_name, tasks.add.run_after) == (0, "default", None)
    read = api.result(tasks.add, result.id)
    assert read.task == changed
    assert read.status == READY


def test_a_higher_priority_runs_sooner() -> None:
    results = [tasks.give_back.using(priority=priority).enqueue(priority) for priority in (-100, 0, 100, 1)]
    work(*results, concurrency=1)
    assert tasks.ran == [100, 1, 0, -100]


def test_a_task_runs_no_sooner_than_its_run_after(api: Blocking) -> None:
    late = api.enqueue(tasks.give_back.using(run_after=timezone.now() + timedelta(hours=1)), "late")
    due = api.enqueue(tasks.give_back.using(run_after=timezone.now() - timedelta(hours=1)), "due")
    work(due)
    assert tasks.ran == ["due"]
    api.refresh(late)
    assert late.status == READY


@pytest.mark.parametrize("priority", [-101, 101, 1.5])
def test_a_priority_out_of_range_is_invalid(priority: Any) -> None:
    with pytest.raises(InvalidTask, match="whole number between -100 and 100"):
        tasks.add.using(priority=priority)


def test_a_priority_may_be_a_whole_float(api: Blocking) -> None:
    whole: Any = 5.0
    assert queue.job(int(api.enqueue(tasks.add.using(priority=whole), 1).id)).priority == 5


def test_a_queue_that_the_backend_does_not_have_is_invalid() -> None:
    with pytest.raises(InvalidTask, match="Queue 'post' is not valid for backend"):
        tasks.add.using(queue_name="post")


def test_an_enqueue_is_held_to_the_settings_of_now(api: Blocking) -> None:
    with (
        override_settings(TASKS={"default": {"BACKEND": OURS, "QUEUES": ["mail"]}}),
        pytest.raises(InvalidTask, match="Queue 'default' is not valid for backend"),
    ):
        api.enqueue(tasks.add, 1)
    assert queue.insight.search().jobs == ()


def test_another_backend_brings_its_own_number_of_attempts(api: Blocking) -> None:
    result = api.enqueue(tasks.add.using(backend="patient"), 1)
    assert (result.backend, queue.job(int(result.id)).max_attempts) == ("patient", 2)
    read = api.any_result(result.id)
    assert (read.backend, read.task.backend) == ("patient", "patient")


def test_the_options_of_a_backend_are_those_of_its_tasks() -> None:
    retry = Retry(wait=wait_none(), stop=stop_after_attempt(3))
    with override_settings(TASKS={"default": {"BACKEND": OURS, "OPTIONS": {"retry": retry, "timeout": 5}}}):
        job_task = _adopted(DjangoQueue.from_settings())
        result = tasks.add.enqueue(1)
    assert (job_task.retry, job_task.timeout) == (retry, timedelta(seconds=5))
    assert queue.job(int(result.id)).max_attempts == 3


def _adopted(queue: DjangoQueue) -> QueueTask[..., Any]:
    add: Any = tasks.add
    return adopt(queue, add)


def test_a_backend_without_queues_has_any(api: Blocking) -> None:
    with override_settings(TASKS={"default": {"BACKEND": OURS, "QUEUES": []}}):
        assert queue.job(int(api.enqueue(tasks.add.using(queue_name="post"), 1).id)).queue == "post"
        with pytest.raises(InvalidTask, match="no white space"):
            tasks.add.using(queue_name="the post")


def test_a_time_without_a_zone_is_invalid() -> None:
    with pytest.raises(InvalidTask, match="aware"):
        tasks.add.using(run_after=datetime(2030, 1, 1))  # noqa: DTZ001 - that is what is refused


def test_where_the_project_has_no_time_zones_times_have_none(api: Blocking) -> None:
    with override_settings(USE_TZ=False, TIME_ZONE="Asia/Tokyo"):
        result = api.enqueue(tasks.add.using(run_after=datetime(2030, 1, 1, 9)), 1)  # noqa: DTZ001 - as such a project has them
        assert queue.job(int(result.id)).run_at == datetime(2030, 1, 1, tzinfo=UTC)
        read = api.result(tasks.add, result.id)
    assert read.enqueued_at is not None
    assert read.enqueued_at.tzinfo is None


# What is a task


def test_a_function_inside_another_is_invalid() -> None:
    def inside() -> None: ...

    with pytest.raises(InvalidTask, match="module level"):
        _task(inside)


def test_what_is_no_function_is_invalid() -> None:
    with pytest.raises(InvalidTask, match="module level"):
        _task(len)


def test_a_task_that_takes_context_must_name_it() -> None:
    with pytest.raises(InvalidTask, match="first argument of 'context'"):
        _task(_module_level, takes_context=True)


def test_a_task_that_does_not_stand_at_its_path_is_refused_when_enqueued(api: Blocking) -> None:
    elsewhere = _task(_module_level)
    with pytest.raises(InvalidTask, match=r"there is no task at .*_module_level"):
        api.enqueue(elsewhere)
    assert queue.insight.search().jobs == ()


def _module_level() -> None: ...


def _task(function: Any, **options: Any) -> "Task[..., Any]":
    made: Task[..., Any] = task(**options)(function)
    return made


def test_a_task_that_is_called_is_not_enqueued() -> None:
    assert tasks.add.call(1, 2) == 3
    awaited: Any = async_to_sync(tasks.add_later.acall)(1, 2)
    assert awaited == 3
    assert queue.insight.search().jobs == ()


# Transactions


def test_a_rollback_leaves_neither_row_nor_job(api: Blocking) -> None:
    with transaction.atomic():
        Order.objects.create()
        api.enqueue(tasks.add, 1)
        transaction.set_rollback(True)
    assert (Order.objects.count(), queue.insight.search().jobs) == (0, ())


def test_a_savepoint_takes_back_its_own_jobs_only(api: Blocking) -> None:
    with transaction.atomic():
        api.enqueue(tasks.add, 1)
        with transaction.atomic():
            api.enqueue(tasks.mail, "me")
            transaction.set_rollback(True)
    assert _jobs() == ["add"]


def test_a_result_can_be_read_in_the_transaction_that_enqueued_it(api: Blocking) -> None:
    with transaction.atomic():
        result = api.enqueue(tasks.add, 1)
        assert api.result(tasks.add, result.id).status == READY
        api.refresh(result)


def test_a_worker_sees_the_row_that_was_committed_with_the_job(api: Blocking) -> None:
    with transaction.atomic():
        order = Order.objects.create()
        result = api.enqueue(tasks.pay, order.pk)
    work(result)
    order.refresh_from_db()
    assert order.paid


# Results


@pytest.mark.parametrize("task", [tasks.add, tasks.add_later], ids=["plain", "async"])
def test_a_task_that_returns_is_successful(api: Blocking, task: "Task[..., int]") -> None:
    result = api.enqueue(task, 1, two=2)
    before = timezone.now()
    work(result)
    api.refresh(result)
    assert (result.status, result.return_value, result.is_finished, result.errors) == (
        SUCCESSFUL,
        3,
        True,
        [],
    )
    assert result.enqueued_at is not None
    assert result.started_at is not None
    assert result.finished_at is not None
    assert before <= result.started_at <= result.finished_at
    assert result.last_attempted_at == result.started_at
    assert (result.attempts, len(result.worker_ids[0])) == (1, 36)
    assert tasks.ran == [(1, 2)]


def test_a_result_can_be_read_by_its_id_alone(api: Blocking) -> None:
    result = api.enqueue(tasks.add, 1, two=2)
    work(result)
    read = api.any_result(result.id)
    assert read == result
    assert (read.task, read.args, read.kwargs) == (tasks.add, [1], {"two": 2})
    assert (read.return_value, read.id, read.backend) == (3, result.id, "default")
    assert api.result(tasks.add, result.id) == read


@pytest.mark.parametrize("value", [None, 0, "", [], {"a": [1, None, True, 1.5]}, "ünï\u2028"])
def test_what_a_task_returns_is_what_is_read(value: object) -> None:
    result = tasks.give_back.enqueue(value)
    work(result)
    assert (result.status, result.return_value) == (SUCCESSFUL, value)


def test_a_return_value_becomes_what_json_can_carry() -> None:
    result = tasks.return_bytes.enqueue()
    work(result)
    assert result.return_value == {"words": ["bytes", "text"]}


def test_a_return_value_without_a_json_form_is_a_failure() -> None:
    result = tasks.return_object.enqueue()
    work(result)
    assert (result.status, result.errors[0].exception_class) == (FAILED, TypeError)


NOT_KEPT = """
update pgqueue.job_history set attempts = 2, result = null, errors = jsonb_build_array(
    jsonb_build_object('attempt', 1, 'at', created_at, 'type', 'pgqueue.errors.ResultNotKept', 'message', 'of another'),
    jsonb_build_object('attempt', 2, 'at', finished_at, 'type', 'pgqueue.errors.ResultNotKept', 'message', 'too long'))
"""


def test_the_note_on_a_result_that_is_not_kept_is_no_failed_attempt() -> None:
    result = tasks.add.enqueue(1)
    work(result)
    with connection.cursor() as cursor:
        cursor.execute(NOT_KEPT)
    result.refresh()
    assert (result.status, result.attempts) == (SUCCESSFUL, 2)
    assert ["of another" in error.traceback for error in result.errors] == [True]


@pytest.mark.parametrize("task", [tasks.refuse, tasks.refuse_later], ids=["plain", "async"])
def test_a_task_that_raises_has_failed_and_says_how(api: Blocking, task: "Task[..., None]") -> None:
    result = api.enqueue(task, "no money")
    work(result)
    api.refresh(result)
    assert (result.status, result.is_finished, result.attempts) == (FAILED, True, 1)
    (error,) = result.errors
    assert error.exception_class is tasks.Refused
    assert error.exception_class_path == "neighbours.django_backend_tasks.Refused"
    assert error.traceback.startswith("Traceback (most recent call last)")
    assert "raise Refused(reason)" in error.traceback
    assert error.traceback.endswith("Refused: no money\n")
    with pytest.raises(ValueError, match="Task failed"):
        _ = result.return_value


@pytest.mark.parametrize(
    ("task", "kind"), [(tasks.divide, ZeroDivisionError), (tasks.exit_early, SystemExit)]
)
def test_the_class_of_a_built_in_error_is_found(task: "Task[[], Any]", kind: type[BaseException]) -> None:
    result = task.enqueue()
    work(result)
    assert (result.status, result.errors[0].exception_class) == (FAILED, kind)


def test_a_running_task_is_running() -> None:
    result = tasks.waits.enqueue()
    seen: list[Result] = []

    async def look(_: DjangoQueue) -> None:
        await asyncio.to_thread(tasks.entered.wait, PATIENCE)
        seen.append(await tasks.waits.aget_result(result.id))
        tasks.leave.set()

    work(result, meanwhile=look)
    assert (seen[0].status, seen[0].attempts, seen[0].finished_at) == (RUNNING, 1, None)
    assert seen[0].started_at is not None
    assert seen[0].last_attempted_at == seen[0].started_at
    assert result.return_value == "let go"


@pytest.mark.parametrize("wrong", ["0", "-1", "1.5", "none", "", "9" * 18, "9" * 19, "9" * 5000, "\u0661"])
def test_a_result_that_never_was_does_not_exist(api: Blocking, wrong: str) -> None:
    with pytest.raises(TaskResultDoesNotExist):
        api.any_result(wrong)


def test_a_result_whose_history_was_dropped_does_not_exist(api: Blocking) -> None:
    result = api.enqueue(tasks.add, 1)
    work(result)
    with connection.cursor() as cursor:
        cursor.execute("truncate pgqueue.job_history")
    with pytest.raises(TaskResultDoesNotExist):
        api.refresh(result)


def test_a_result_whose_arguments_were_too_long_for_the_history_has_the_rest(api: Blocking) -> None:
    result = api.enqueue(tasks.add, 1)
    with connection.cursor() as cursor:
        cursor.execute("update pgqueue.retention set history_args = 0")
        work(result)
        cursor.execute("update pgqueue.retention set history_args = 8000")
    found = api.any_result(result.id)
    assert (found.status, found.args, found.kwargs) == (SUCCESSFUL, [], {})


def test_a_job_that_is_none_of_djangos_has_no_result_here(api: Blocking) -> None:
    handle = queue.tasks["neighbours.project.shop.tasks.confirm"].enqueue(1)
    with pytest.raises(TaskResultDoesNotExist, match="not a Django task"):
        api.any_result(str(handle.id))


def test_a_job_that_carries_no_call_has_no_result(api: Blocking) -> None:
    with connection.cursor() as cursor:
        cursor.execute("select pgqueue.enqueue('neighbours.django_backend_tasks.add', '{\"one\": 1}')")
        (job_id,) = cursor.fetchone()
    with pytest.raises(TaskResultDoesNotExist, match="not those of a Django task"):
        api.any_result(str(job_id))


def test_a_result_of_another_task_is_a_mismatch(api: Blocking) -> None:
    result = api.enqueue(tasks.add, 1)
    with pytest.raises(TaskResultMismatch, match=r"django_backend_tasks\.add"):
        api.result(tasks.mail, result.id)


def test_a_cancelled_job_has_failed_and_says_why(api: Blocking) -> None:
    result = api.enqueue(tasks.add, 1)
    queue.cancel(int(result.id))
    api.refresh(result)
    assert (result.status, result.errors[0].exception_class) == (FAILED, asyncio.CancelledError)
    assert "cancelled" in result.errors[0].traceback


def test_a_job_that_lost_its_worker_has_failed_and_its_error_can_be_read(api: Blocking) -> None:
    result = api.enqueue(tasks.add, 1)
    with connection.cursor() as cursor:
        cursor.execute(
            "update pgqueue.jobs set status = 'running', attempts = 1, worker_id = gen_random_uuid(), "
            "claimed_at = now() - interval '1 hour'"
        )
        cursor.execute("insert into pgqueue.lost_workers (worker_id) select worker_id from pgqueue.jobs")
    work(result)
    api.refresh(result)
    assert (result.status, result.attempts) == (FAILED, 1)
    assert issubclass(result.errors[0].exception_class, Exception)
    assert "stopped renewing its lease" in result.errors[0].traceback


# Context, signals, attempts


@pytest.mark.parametrize("task", [tasks.see, tasks.see_later], ids=["plain", "async"])
def test_a_task_is_given_its_context(task: "Task[..., str]") -> None:
    result = task.enqueue("seen")
    work(result)
    (context,) = tasks.contexts
    assert result.return_value == "seen 1"
    assert context.attempt == 1
    assert (context.task_result.id, context.task_result.args) == (result.id, ["seen"])
    assert (context.task_result.task, context.task_result.worker_ids) == (task, result.worker_ids)
    assert context.task_result.started_at is not None


@pytest.fixture
def heard() -> Iterator[Heard]:
    """What the signals say: which one, its sender, and its result as it was then."""
    noted: Heard = []
    receivers = {}
    for name, signal in (("enqueued", task_enqueued), ("started", task_started), ("finished", task_finished)):

        def note(sender: type, task_result: Result, name: str = name, **_: object) -> None:
            noted.append((name, sender, copy.deepcopy(task_result)))

        receivers[signal] = note
        signal.connect(note)
    yield noted
    for signal, receiver in receivers.items():
        signal.disconnect(receiver)


def _told(heard: Heard) -> list[tuple[str, str]]:
    return [(name, str(result.status)) for name, _, result in heard]


@pytest.mark.parametrize("task", [tasks.add, tasks.add_later], ids=["plain", "async"])
def test_signals_tell_of_a_tasks_life(api: Blocking, heard: Heard, task: "Task[..., int]") -> None:
    result = api.enqueue(task, 1)
    assert _told(heard) == [("enqueued", "READY")]
    assert heard[0][2] == result
    work(result)
    assert _told(heard) == [("enqueued", "READY"), ("started", "RUNNING"), ("finished", "SUCCESSFUL")]
    assert {sender for _, sender, _ in heard} == {TaskBackend}
    assert {told.id for _, _, told in heard} == {result.id}
    assert heard[2][2].return_value == 1
    assert heard[2][2].finished_at is not None


@pytest.mark.parametrize("task", [tasks.refuse, tasks.refuse_later], ids=["plain", "async"])
def test_a_failure_is_signalled_with_its_error(heard: Heard, task: "Task[..., None]") -> None:
    result = task.enqueue("no money")
    work(result)
    assert _told(heard)[1:] == [("started", "RUNNING"), ("finished", "FAILED")]
    (error,) = heard[2][2].errors
    assert error.exception_class is tasks.Refused
    assert error.traceback.endswith("Refused: no money\n")
    assert "raise Refused(reason)" in error.traceback


def test_a_rejected_enqueue_is_not_signalled(heard: Heard) -> None:
    with pytest.raises(TypeError):
        tasks.give_back.enqueue(object())
    assert heard == []


@pytest.mark.parametrize("task", [tasks.add, tasks.add_later], ids=["plain", "async"])
def test_a_receiver_that_fails_does_not_undo_a_success(task: "Task[..., int]") -> None:
    def fail(**_: object) -> None:
        raise tasks.Refused

    task_finished.connect(fail)
    try:
        result = task.enqueue(1)
        work(result)
    finally:
        task_finished.disconnect(fail)
    assert result.return_value == 1


@pytest.mark.parametrize("task", [tasks.refuse, tasks.refuse_later], ids=["plain", "async"])
def test_the_worker_logs_a_failure_where_djangos_error_monitors_look(
    caplog: pytest.LogCaptureFixture, task: "Task[..., None]"
) -> None:
    result = task.enqueue("no money")
    work(result)
    (told,) = [
        record
        for record in caplog.records
        if record.name in {"django_tasks", "django.tasks"} and record.levelname == "ERROR"
    ]
    assert told.exc_info is not None
    assert told.exc_info[0] is tasks.Refused
    assert f"id={result.id} path={task.module_path} state=FAILED" in told.getMessage()


@pytest.mark.parametrize("task", [tasks.refuse, tasks.refuse_later], ids=["plain", "async"])
def test_a_failures_traceback_is_logged_once(
    caplog: pytest.LogCaptureFixture, task: "Task[..., None]"
) -> None:
    work(task.enqueue("no money"))
    errors = [record for record in caplog.records if record.levelname == "ERROR"]
    assert sorted(record.exc_info is not None for record in errors) == [False, True]
    (ours,) = (record for record in errors if record.name == "pgqueue.worker")
    assert ours.exc_info is None
    assert "job is dead" in ours.getMessage()


def test_where_djangos_log_is_off_the_worker_logs_the_traceback(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger(task_finished_logger), "disabled", True)
    work(tasks.refuse.enqueue("no money"))
    (ours,) = (record for record in caplog.records if record.levelname == "ERROR")
    assert ours.exc_info is not None


def test_a_task_is_tried_once_unless_somebody_asks_for_more() -> None:
    result = tasks.refuse.enqueue("once")
    work(result)
    assert tasks.ran == ["once"]
    assert queue.job(int(result.id)).max_attempts == 1


@pytest.mark.parametrize("task", [tasks.second_time, tasks.second_time_later], ids=["plain", "async"])
def test_a_backend_may_try_again(api: Blocking, heard: Heard, task: "Task[[], int]") -> None:
    result = api.enqueue(task)
    assert result.backend == "patient"
    work(result)
    api.refresh(result)
    assert (result.status, result.return_value, result.attempts) == (SUCCESSFUL, 2, 2)
    assert [error.exception_class for error in result.errors] == [tasks.Refused]
    assert result.started_at is not None
    assert result.last_attempted_at is not None
    assert result.started_at < result.last_attempted_at
    second = tasks.contexts[1]
    assert (second.attempt, [error.exception_class for error in second.task_result.errors]) == (
        2,
        [tasks.Refused],
    )
    names = [name for name, _ in _told(heard)]
    assert names == ["enqueued", "started", "started", "finished"]


def test_a_task_that_fails_every_time_has_finished_once(heard: Heard) -> None:
    result = tasks.never.enqueue()
    work(result)
    assert (result.status, result.attempts, len(result.errors)) == (FAILED, 2, 2)
    assert [name for name, _ in _told(heard)] == ["enqueued", "started", "started", "finished"]


def test_a_task_may_use_pgqueues_own_words() -> None:
    result = tasks.asks_again.enqueue()
    work(result)
    assert (result.return_value, tasks.ran) == (2, [1, 1])


def test_a_task_that_was_cancelled_while_it_ran_has_not_finished(heard: Heard) -> None:
    result = tasks.asleep.enqueue()

    async def cancel(queue: DjangoQueue) -> None:
        await asyncio.to_thread(tasks.entered.wait, PATIENCE)
        await queue.acancel(int(result.id))

    work(result, meanwhile=cancel)
    assert (result.status, result.errors[-1].exception_class) == (FAILED, asyncio.CancelledError)
    assert [name for name, _ in _told(heard)] == ["enqueued", "started"]


# The worker


def test_sql_can_enqueue_a_task_of_djangos(api: Blocking) -> None:
    with connection.cursor() as cursor:
        cursor.execute("select pgqueue.enqueue('neighbours.django_backend_tasks.add', '{\"args\": [1, 2]}')")
        (job_id,) = cursor.fetchone()
    result = api.any_result(str(job_id))
    work(result)
    assert result.return_value == 3


def test_an_async_task_enqueues_and_reads_in_the_workers_loop() -> None:
    result = tasks.passes_on.enqueue(4)
    work(result)
    other = next(one for one in tasks.ran if isinstance(one, str))
    assert tasks.add.get_result(other).args == [4]
    assert str(result.return_value) in TaskResultStatus.values


# Settings


def test_the_backend_says_that_it_can_do_everything() -> None:
    assert default_task_backend.supports_defer
    assert default_task_backend.supports_async_task
    assert default_task_backend.supports_get_result
    assert default_task_backend.supports_priority
    found: Any = task_backends["default"]
    assert type(found) is TaskBackend
    assert TaskBackend is backend.TaskBackend


def test_good_settings_pass_djangos_checks() -> None:
    assert [list(one.check()) for one in task_backends.all()] == [[], []]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"max_atempts": 3}, "max_atempts"),
        ({"max_attempts": 0}, "max_attempts"),
        ({"max_attempts": "3"}, "max_attempts"),
        ({"retry": 3}, "retry"),
        ({"timeout": -1}, "timeout"),
    ],
)
def test_the_check_names_an_option_that_cannot_be(options: dict[str, object], says: str) -> None:
    (found,) = _checked(OPTIONS=options)
    assert found.id == "pgqueue.tasks.E002"
    assert says in found.msg


def test_the_check_names_a_queue_that_cannot_be() -> None:
    (found,) = _checked(QUEUES=["fine", "not fine"])
    assert found.id == "pgqueue.tasks.E003"
    assert "'not fine'" in found.msg


def test_the_check_misses_the_app() -> None:
    with override_settings(INSTALLED_APPS=[]):
        assert [one.id for one in _checked()] == ["pgqueue.tasks.E001"]


def test_the_check_warns_where_no_history_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue, "history", timedelta(0))
    assert [one.id for one in _checked()] == ["pgqueue.tasks.W001"]


def _checked(**params: object) -> list[CheckMessage]:
    return TaskBackend("default", params).check()


NEITHER = """
import sys
sys.modules["django_tasks"] = sys.modules["django.tasks"] = None
from django.core.exceptions import ImproperlyConfigured
try:
    import pgqueue.django.backend_api
except ImproperlyConfigured as error:
    print(error)
"""


def test_a_project_without_djangos_tasks_is_told_what_to_install() -> None:
    told = subprocess.run([sys.executable, "-c", NEITHER], check=True, capture_output=True, text=True)  # noqa: S603 - our own words
    assert "django-tasks" in told.stdout


# The guide


@pytest.fixture
def guide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, list[str]]]:
    """The guide's code by the file that it belongs to, its tasks where they can be imported."""
    found: dict[str, list[str]] = {}
    here = "django.tasks" if DJANGO >= (6,) else "django_tasks"
    for block in blocks(GUIDE):
        if block.language == "py":
            found.setdefault(block.argument, []).append(block.code.replace("django.tasks", here))
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "tasks.py").write_text("\n".join(found["shop/tasks.py"]), encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    yield found
    for name in [name for name in sys.modules if name.partition(".")[0] == "shop"]:
        del sys.modules[name]


def _settings(code: str) -> dict[str, Any]:
    names: dict[str, Any] = {"INSTALLED_APPS": []}
    exec(code, names)  # noqa: S102 - our own words
    return names


def test_the_guides_code_does_what_it_says(
    guide: dict[str, list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    names: dict[str, Any] = {}
    with override_settings(TASKS=_settings(guide["mysite/settings.py"][0])["TASKS"]):
        first, second = guide["shop/views.py"]
        exec(first, names)  # noqa: S102 - our own words
        work(names["result"])
        exec(second, names)  # noqa: S102 - our own words
        result = sys.modules["shop.tasks"].remind.enqueue(42)
        work(result)
    assert capsys.readouterr().out == "SUCCESSFUL confirmed 42 1\n[42]\n"
    assert result.return_value == "attempt 1 at 42"


def test_the_guides_settings_pass_djangos_checks(guide: dict[str, list[str]]) -> None:
    for code in guide["mysite/settings.py"]:
        for alias, params in _settings(code)["TASKS"].items():
            assert TaskBackend(alias, params).check() == []


def test_the_guide_names_every_option_and_every_check() -> None:
    named = words_in_code(GUIDE)
    assert {field.name for field in dataclasses.fields(Policy)} <= named
    source = Path(backend.__file__).read_text(encoding="utf-8")
    assert {word for word in named if word.startswith("pgqueue.tasks.")} == set(
        re.findall(r'id="(.+)"', source)
    )
