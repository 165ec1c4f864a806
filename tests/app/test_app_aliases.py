"""Renamed tasks: what was enqueued under a former name goes on, and what is named after the task keeps its name."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from typing import Any

import pytest
from looking import ask
from running import Running

from pgqueue import Limit, PgQueue, Unique, chain
from pgqueue.errors import DuplicateTask, InvalidOption

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
            r"task 'b' at .*test_app_aliases.py:\d+ is registered already, by task 'a' at .*test_app_aliases.py:\d+",
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
