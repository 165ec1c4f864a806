"""What a caller gives as a task or as calls; anything else is refused with the words to write."""

from collections.abc import Iterable, Iterator
from typing import Any

from pgqueue.app.task import Call, Task
from pgqueue.errors import InvalidOption
from pgqueue.values.jobs.job import NewJob


def require_task(given: object, args: tuple[object, ...]) -> Task[Any, Any]:
    """A task, where one was to be given to ``queue.enqueue``.

    Raises:
        InvalidOption: it is none; the message says what to write.
    """
    if isinstance(given, Task):
        return given
    if isinstance(given, str):
        remedy = f"write queue.enqueue_named({given!r}, {{...}}), with the arguments by name"
    elif isinstance(given, Iterable):
        remedy = "for several jobs at once write queue.enqueue_many(task.call(...) for ...)"
    else:
        remedy = "decorate the function with @queue.task, and give the task and its arguments"
    shown = ", ".join(f"{one!r:.40}" for one in (given, *args))
    raise InvalidOption(f"queue.enqueue({shown}): {given!r:.40} is no task; {remedy}")


def jobs_of(calls: Iterable[Call[Any]]) -> Iterator[NewJob]:
    """The jobs of calls.

    Raises:
        InvalidOption: one of them is no call of a task; the message says what to write.
    """
    for call in calls:
        try:
            job = call.job
        except AttributeError:
            raise InvalidOption(
                f"enqueue_many: {call!r:.80} is no call of a task; {_call_remedy(call)}"
            ) from None
        yield job


def _call_remedy(given: object) -> str:
    if isinstance(given, Task):
        return f"write {given.name}.call(...)"
    return "give task.call(...), one for each job"
