"""Whether a queue's name is known: a mistyped name makes a queue that no worker serves, and raises no error."""

from collections.abc import Callable

import click

from pgqueue.app.pgqueue import PgQueue
from pgqueue.store.jobs import control
from pgqueue.values.nearest import did_you_mean


def look_up(queue: PgQueue, *names: str) -> Callable[[], None]:
    """Find out which of these queues no declaration, task, worker or job names; the returned function prints it on stderr."""
    declared = queue.queues is not None  # then a name that is not declared has raised an error already
    known = set(names) if declared or not names else _known_queues(queue)
    notes = [
        f"note: no job, no worker's --queues and no task of the app names the queue {name!r}{did_you_mean(name, known)}"
        for name in names
        if name not in known
    ]

    def tell() -> None:
        for note in notes:
            click.echo(note, err=True)

    return tell


def _known_queues(queue: PgQueue) -> set[str]:
    counts, paused = queue.insight.counts()
    served = queue.database.run(control.worker_queues())
    of_tasks = [task.options.queue for task in queue.tasks.values()]
    return {*served, *paused, *of_tasks, *(one.queue for one in counts)}
