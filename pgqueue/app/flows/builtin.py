"""Tasks of pgqueue's own, that workers and drains know: parts of workflows that are jobs like any other."""

from datetime import datetime, timedelta
from typing import Any

from pgqueue.app.context import Context
from pgqueue.app.registry import Registry
from pgqueue.app.signals.waits import signal_of_flow
from pgqueue.errors import Dead, Snooze, UnknownTask
from pgqueue.values.flows.flow import MAP, WAIT
from pgqueue.values.jobs.options import JobOptions
from pgqueue.values.jobs.retry import Retry

UNKNOWN_FOR = timedelta(seconds=15)


def register(queue: Registry) -> None:
    """Make these tasks known to a queue, unless they are."""

    def expand(ctx: Context, task: str, over: str, options: dict[str, Any]) -> None:
        """Add a job for each item of the result of a node to the group that this job is in."""
        try:
            target = queue.find_task(task)
        except UnknownTask as error:
            raise Snooze(UNKNOWN_FOR) from error  # another worker may know it
        items = ctx.results[over]
        if not isinstance(items, list):
            raise Dead(f"map over {over!r}: its result is {items!r:.80}, and not a list")
        if "run_at" in options:
            options["run_at"] = datetime.fromisoformat(options["run_at"])
        target = target.using(**options)
        ctx.flow.extend(target.call(item) for item in items)

    def wait(ctx: Context, signal: str, timeout: float | None) -> Any:  # noqa: ANN401 - any JSON
        """Wait for a signal to the flow, holding no worker; return what came with it."""
        return signal_of_flow(ctx, ctx.flow.id, signal, timeout)

    for name, function in ((MAP, expand), (WAIT, wait)):
        if name not in queue.tasks:
            queue._add_builtin(name, function, JobOptions(), Retry())  # noqa: SLF001 - the queue's own side of it
