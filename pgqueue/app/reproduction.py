"""Where an app's queue is, and the test that a job's record makes."""

import sys
from collections.abc import Iterator

from pgqueue.app.pgqueue import PgQueue
from pgqueue.values.jobs.job import Job
from pgqueue.values.jobs.reproduction import QueueImport, is_importable, source_of


def written_test(queue: PgQueue, job: Job, *, hidden: str | None = None) -> str:
    """The source of a pytest file that fails as a job did.

    Args:
        queue: the app's.
        job: its record, as the reader of the file may see it.
        hidden: what stands in place of hidden values; None: none is hidden.

    Raises:
        InvalidOption: the job's arguments are not kept, or cannot be read.
    """
    place = place_of(queue, job.task)
    known = place is None or job.task in queue.tasks or queue.load_task(job.task)
    return source_of(job, place, hidden=hidden, known=known)


def place_of(queue: PgQueue, task: str) -> QueueImport | None:
    """Where a module names the queue: that of this task first, then those of all tasks, then any; None: none does."""
    for module in _modules(queue, task):
        for name, value in list(getattr(sys.modules[module], "__dict__", {}).items()):
            if value is queue and is_importable(found := QueueImport(module, name)):
                return found
    return None


def _modules(queue: PgQueue, task: str) -> Iterator[str]:
    """The names of imported modules; not every value of ``sys.modules`` is a module."""
    first = queue.tasks.get(task)
    names = [one.function.__module__ for one in (*([] if first is None else [first]), *queue.tasks.values())]
    yield from (
        name for name in dict.fromkeys([*names, *sys.modules]) if name != "__main__" and name in sys.modules
    )
