"""The contracts of tasks: workers store them, readers of jobs take the last one of each task."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from pgqueue.store.arrays import texts, truths
from pgqueue.store.plan import Statement, Steps, plan
from pgqueue.values.payloads.contract import TaskContract

AT_ONCE: Final = 500
"""Contracts that one statement stores."""


@plan
def say(said: Sequence[TaskContract], *, now: datetime | None = None) -> Steps[int]:
    """Store what a worker says of its tasks; return how many contracts were not the last of their task, or old.

    Hashes are asked for first: at most starts nothing has changed, so nothing else is sent and no row is locked. Where many
    workers start with new contracts at once, one writes some, and the others find them.
    """
    count = 0
    for start in range(0, len(said), AT_ONCE):
        some = said[start : start + AT_ONCE]
        params = {"tasks": texts(one.task for one in some), "hashes": texts(one.hash for one in some)}
        numbers = yield Statement("workers/new_contracts", params | {"now": now})
        new = [some[number - 1] for (number,) in numbers]
        if new:
            yield from _store(new, now)
        count += len(new)
    return count


def _store(new: Sequence[TaskContract], now: datetime | None) -> Steps[None]:
    tasks = texts(one.task for one in new)
    params: dict[str, Any] = {
        "tasks": tasks,
        "hashes": texts(one.hash for one in new),
        "arguments": texts(one.arguments for one in new),
        "results": texts(one.result for one in new),
    }
    yield Statement("workers/say_contracts", params | {"now": now}, returns=False)
    yield Statement("workers/drop_contracts", {"tasks": tasks}, returns=False)


@plan
def listed(task: str | None = None) -> Steps[list[TaskContract]]:
    """The stored contracts, by task; of each task first the one that was said last.

    Args:
        task: only those of this one.
    """
    return [TaskContract(*row) for row in (yield Statement("pipeline/contracts", {"task": task}))]


@plan
def jobs_with(asked: Sequence[tuple[str, str | None, bool]]) -> Steps[list[int]]:
    """How many live jobs there are of tasks.

    Args:
        asked: each a task, an argument, and whether the jobs have it or not; no argument: all jobs of the task.
    """
    params = {
        "tasks": texts(task for task, _, _ in asked),
        "arguments": texts(argument for _, argument, _ in asked),
        "has": truths(has for _, _, has in asked),
    }
    found: dict[int, int] = {row[0]: row[1] for row in (yield Statement("pipeline/contract_jobs", params))}
    return [found.get(number, 0) for number in range(1, len(asked) + 1)]
