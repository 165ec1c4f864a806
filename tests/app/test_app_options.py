"""What a queue, a task or an enqueue is told, and what is refused: where it is written, and in words."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from looking import ask
from tenacity import stop_after_attempt

from pgqueue import PgQueue, Retry
from pgqueue.errors import DuplicateTask, InvalidOption, UnknownQueue, UnknownTask, UnsupportedConnection

NAIVE = datetime(2030, 1, 1)  # noqa: DTZ001 - the mistake at hand


def test_a_task_name_is_registered_once() -> None:
    queue = PgQueue("")

    @queue.task(name="send")
    def first() -> None: ...

    with pytest.raises(
        DuplicateTask, match=r"'send' at .*test_app_options.py:\d+ is registered already, by task 'send' at"
    ):

        @queue.task(name="send")
        def second() -> None: ...

    assert queue.tasks["send"].function is first.function


def test_a_task_is_named_by_its_module_and_function_unless_told() -> None:
    queue = PgQueue("")

    @queue.task(name="mine")
    def named() -> None: ...

    def send() -> None: ...

    send.__module__, send.__qualname__ = "shop.mail", "send"
    assert [queue.task(send).name, named.name] == ["shop.mail.send", "mine"]
    assert queue.find_task("mine") is named
    with pytest.raises(UnknownTask, match=r"did you mean 'shop\.mail\.send'"):
        queue.find_task("shop.mail.sent")


def test_a_queue_that_was_not_declared_is_refused_everywhere() -> None:
    queue = PgQueue("", queues=["default", "mail"])

    @queue.task
    def send() -> None: ...

    with pytest.raises(UnknownQueue, match=r"'mial'.*default, mail.*did you mean 'mail'"):
        queue.task(queue="mial", name="other")
    with pytest.raises(UnknownQueue):
        send.using(queue="post").enqueue()
    with pytest.raises(UnknownQueue):
        asyncio.run(send.using(queue="post").aenqueue())
    with pytest.raises(UnknownQueue):
        queue.enqueue_many([send.call(), send.using(queue="post").call()])


def test_a_declared_queue_is_used_and_without_a_declaration_any(dsn: str, queue: PgQueue) -> None:
    strict = PgQueue(dsn, queues=["mail"])

    @strict.task(queue="mail")
    def send() -> None: ...

    @queue.task(queue="anything")
    def other() -> None: ...

    assert queue.job(send.enqueue().id).queue == "mail"
    assert queue.job(other.enqueue().id).queue == "anything"
    strict.close()


@pytest.mark.parametrize(
    "options",
    [
        {"history": timedelta(days=-1)},
        {"max_payload": 0},
        {"max_payload": (8 << 20) + 1},
        {"max_payload": "8000"},
        {"history_args": -1},
        {"history_args": True},
        {"history_args": 1.5},
        {"history_args": "8000"},
        {"schema": "Two words"},
        {"schema": "x; drop table"},
        {"queues": ["two words"]},
        {"queues": "mail"},
        {"pool_size": 0},
        {"redact": "pin"},
        {"redact": ["pin", 7]},
        {"redact": ["pin", "("]},
        {"redact": ["(?P<a>x)", "(?P<a>y)"]},
    ],
    ids=str,
)
def test_options_of_a_queue_out_of_range_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption):
        PgQueue("", **options)


@pytest.mark.parametrize(
    "options",
    [
        {"name": ""},
        {"name": "two words"},
        {"name": "x" * 201},
        {"queue": "a,b"},
        {"priority": 101},
        {"priority": -101},
        {"priority": 1.5},
        {"priority": True},
        {"max_attempts": 0},
        {"max_attempts": 40_000},
        {"timeout": 0},
        {"timeout": -1},
        {"timeout": float("nan")},
        {"timeout": "soon"},
        pytest.param({"retry": Retry(stop=stop_after_attempt(0))}, id="retry without an attempt"),
    ],
    ids=str,
)
def test_options_of_a_task_out_of_range_are_refused(options: dict[str, Any]) -> None:
    queue = PgQueue("")
    with pytest.raises(InvalidOption):
        queue.task(**options)(print)
    assert not queue.tasks


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"run_at": NAIVE}, "no time zone"),
        ({"delay": timedelta(seconds=-1)}, "zero"),
        ({"delay": timedelta.max}, "ten years"),
        ({"delay": "5"}, "delay='5': use a number of seconds, or a timedelta"),
        ({"delay": timedelta(1), "run_at": datetime(2030, 1, 1, tzinfo=UTC)}, "contradict"),
        ({"priority": 1000}, "-100 to 100"),
        ({"unique_key": ""}, "unique_key=''"),
        ({"unique_key": "x" * 1001}, "hash"),
        ({"unique_key": "\0"}, "unique_key"),
        ({"queue": "two words"}, "two words"),
        ({"max_attempts": -1}, "max_attempts=-1"),
    ],
    ids=str,
)
def test_options_of_an_enqueue_out_of_range_are_refused_and_named(
    options: dict[str, Any], words: str
) -> None:
    queue = PgQueue("")

    @queue.task
    def send() -> None: ...

    with pytest.raises(InvalidOption, match=words):
        send.using(**options)


def test_options_reach_the_row_and_do_not_stick(queue: PgQueue) -> None:
    @queue.task(queue="mail", priority=3, max_attempts=7)
    def send() -> None: ...

    when = datetime(2100, 1, 1, tzinfo=UTC)
    special = send.using(queue="post", priority=-5, run_at=when, max_attempts=2, unique_key="key")
    ids = [special.enqueue().id, send.enqueue().id]
    rows = ask(
        queue,
        "select queue, priority, max_attempts, run_at = %s, unique_key from pgqueue.jobs where id = any(%s) order by id",
        when,
        ids,
    )
    assert rows == [("post", -5, 2, True, "key"), ("mail", 3, 7, False, None)]


def test_the_policys_attempts_are_the_jobs_unless_told() -> None:
    queue = PgQueue("")
    policy = Retry(stop=stop_after_attempt(4))

    def send() -> None: ...

    assert queue.task(name="a", retry=policy)(send).options.max_attempts == 4
    assert queue.task(name="b", retry=policy, max_attempts=2)(send).options.max_attempts == 2
    assert queue.task(name="c")(send).options.max_attempts is None  # its queue says it, or 25


def test_only_connections_are_taken_for_connections() -> None:
    queue = PgQueue("")

    @queue.task
    def send() -> None: ...

    with pytest.raises(UnsupportedConnection, match=r"<builtins\.str>"):
        send.using(connection="postgresql://").enqueue()
    with pytest.raises(UnsupportedConnection):
        queue.enqueue_many([send.call(), send.call()], connection=object())
    with pytest.raises(InvalidOption, match="give the connection to enqueue_many"):
        send.using(connection=object()).call()


def test_a_task_can_be_called_as_the_function_it_is() -> None:
    queue = PgQueue("")

    @queue.task
    def double(number: int) -> int:
        """Twice the number."""
        return number * 2

    assert (double(21), double.__doc__) == (42, "Twice the number.")


@pytest.mark.parametrize(
    "call",
    [
        lambda queue, one: queue.job(one),
        lambda queue, one: queue.cancel(one),
        lambda queue, one: queue.retry(one),
        lambda queue, one: queue.why(one),
        lambda queue, one: queue.control.run_now(one),
        lambda queue, one: queue.control.stack(one),
        lambda queue, one: queue.control.resume_operation(one),
        lambda queue, one: queue.insight.story(one),
        lambda queue, one: queue.flows.get(one),
        lambda queue, one: queue.insight.search(state=[one]),
        lambda queue, one: queue.flows.list(state=[one]),
    ],
)
@pytest.mark.parametrize("one", ["12", 1.5, True, None, {}], ids=repr)
def test_an_id_or_a_state_of_a_wrong_type_is_refused_in_words(
    queue: PgQueue, call: Callable[[PgQueue, Any], object], one: object
) -> None:
    with pytest.raises(InvalidOption, match=r"whole number|the states are"):
        call(queue, one)


def test_a_state_that_is_no_text_is_refused(queue: PgQueue) -> None:
    with pytest.raises(InvalidOption, match="state=3: the states are blocked, scheduled"):
        queue.insight.search(state=3)  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(InvalidOption, match="state=3: the states are"):
        queue.flows.list(state=3)  # type: ignore[arg-type]  # wrong on purpose
