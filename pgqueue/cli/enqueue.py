"""``pgqueue enqueue``: one job of a task that the app has registered, so that its arguments are checked."""

from datetime import datetime, timedelta
from typing import Any

import click

from pgqueue.cli.app import Settings
from pgqueue.cli.values import instant, json_object, seconds
from pgqueue.values.job import Outcome

WORDS = {
    Outcome.ADDED: "job {id} added",
    Outcome.REJECTED: "rejected: job {id} holds the unique key",
    Outcome.REPLACED: "job {id} replaced",
    Outcome.RESCHEDULED: "job {id} rescheduled",
}


@click.command()
@click.argument("task")
@click.argument("arguments", metavar="[JSON_OBJECT]", type=json_object, default="{}")
@click.option("--queue", help="Stand in this queue.")
@click.option("--priority", type=int, help="-100 to 100; higher runs sooner.")
@click.option("--delay", type=seconds, help="Run no sooner than this from now.")
@click.option("--run-at", type=instant, help="Run no sooner than this instant, in ISO 8601 with a time zone.")
@click.option("--unique-key", help="What no two live jobs may share.")
@click.option("--max-attempts", type=int, help="After how many attempts the job is dead.")
@click.pass_obj
def enqueue(
    settings: Settings,
    /,
    *,
    task: str,
    arguments: dict[str, Any],
    delay: timedelta | None,
    run_at: datetime | None,
    **options: Any,  # noqa: ANN401 - as the task takes them
) -> None:
    """Enqueue a job of TASK; JSON_OBJECT holds its arguments by name."""
    queue = settings.app_queue()
    click.get_current_context().call_on_close(queue.close)
    handle = queue.find_task(task).using(delay=delay, run_at=run_at, **options).enqueue(**arguments)
    click.echo(WORDS[handle.outcome].format(id=handle.id))
