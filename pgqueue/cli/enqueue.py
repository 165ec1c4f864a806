"""``pgqueue enqueue``: one job of a task that the app has registered, or that a worker runs, so that its arguments are checked."""

from datetime import datetime, timedelta
from typing import Any

import click

from pgqueue.app.pgqueue import PgQueue
from pgqueue.cli.app import with_queue
from pgqueue.cli.values import ABOVE_ZERO, LENGTH, instant, json_object, look_up
from pgqueue.errors import UnknownTask
from pgqueue.values.hints import did_you_mean
from pgqueue.values.jobs.job import Outcome

WORDS = {
    Outcome.ADDED: "job {id} added",
    Outcome.REJECTED: "rejected: job {id} holds the unique key",
    Outcome.REPLACED: "job {id} replaced",
    Outcome.RESCHEDULED: "job {id} rescheduled",
}


@click.command()
@click.argument("task")
@click.argument("arguments", metavar="[JSON_OBJECT]", type=json_object, default="{}")
@click.option("--queue", "queue_name", help="The queue; without it the task's own.")
@click.option("--priority", type=int, help="From -100 to 100; a job with a higher one runs sooner.")
@click.option("--delay", type=LENGTH, help="Run the job after this time.")
@click.option("--run-at", type=instant, help="Run the job at this time, in ISO 8601 with a time zone.")
@click.option("--unique-key", help="Reject the job if another one with this key has not ended.")
@click.option("--expires-in", type=ABOVE_ZERO, help="The job is dead if it is not started within this time.")
@click.option("--max-attempts", type=int, help="The job is dead after this many failed attempts.")
@click.option("--unknown", is_flag=True, help="Enqueue it even if no worker has started that runs the task.")
@with_queue
def enqueue(
    queue: PgQueue,
    /,
    *,
    task: str,
    arguments: dict[str, Any],
    queue_name: str | None,
    delay: timedelta | None,
    run_at: datetime | None,
    unknown: bool,
    **options: Any,  # noqa: ANN401 - the task's options
) -> None:
    """Enqueue a job of TASK. JSON_OBJECT has the arguments by name, such as '{"order_id": 42}'.

    The app needs not be there: workers store what their tasks take.
    """
    note_unknown = look_up(queue, *filter(None, [queue_name]))
    try:
        handle = queue.enqueue_named(
            task, arguments, known=not unknown, queue=queue_name, delay=delay, run_at=run_at, **options
        )
    except UnknownTask as error:
        words = f"{error}; --unknown enqueues it all the same{did_you_mean(task, queue.tasks)}"
        raise UnknownTask(words) from None
    click.echo(WORDS[handle.outcome].format(id=handle.id))
    note_unknown()
