"""What an app has besides its tasks: ``app.control``, and signals at which functions of the project are called."""

from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from pgqueue.app.pgqueue import PgQueue
from pgqueue.moving.celery.result import AsyncResult
from pgqueue.moving.strict import missing

REMEDIES = {
    "broadcast": "workers take no broadcasts; pgqueue workers restart|quiet|stop asks them",
    "inspect": "use pgqueue workers list and pgqueue jobs list, or queue.workers.list()",
    "ping": "use pgqueue workers list",
    "purge": "use pgqueue jobs cancel --state waiting",
    "rate_limit": "use pgqueue limits set NAME --rate ...",
    "shutdown": "use pgqueue workers stop",
    "time_limit": "give time_limit= to the task",
}


class Control:
    """``app.control``: only ``revoke``."""

    def __init__(self, queue: Callable[[], PgQueue]) -> None:
        """Made by the app."""
        self._queue = queue

    def revoke(
        self, task_id: str | int | Iterable[str], *, terminate: bool = False, **signal: object
    ) -> None:
        """As :meth:`AsyncResult.revoke`, of one job or of several."""
        for one in [task_id] if isinstance(task_id, str | int) else task_id:
            AsyncResult[Any](one, self._queue()).revoke(terminate=terminate, **signal)

    terminate = revoke

    def __getattr__(self, name: str) -> NoReturn:
        raise missing("Celery's app.control", name, REMEDIES, ["revoke"])


class Signal:
    """``app.on_after_configure`` and ``app.on_after_finalize``: called with the app when a worker starts."""

    def __init__(self) -> None:
        """Without receivers."""
        self.receivers: list[Callable[..., Any]] = []

    def connect(self, receiver: Callable[..., Any] | None = None, **_: object) -> Any:
        """Have a function called; also as a decorator."""
        if receiver is None:
            return self.connect
        self.receivers.append(receiver)
        return receiver
