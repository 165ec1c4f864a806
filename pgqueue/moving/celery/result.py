"""Results as Celery's call sites see them: of a job, of a group of jobs, and of a task that ran at the call."""

from collections.abc import Iterator, Sequence
from types import MappingProxyType, SimpleNamespace
from typing import Any, Generic, NoReturn, TypeVar, cast

from pgqueue.app.pgqueue import PgQueue
from pgqueue.errors import InvalidOption, JobFailed, JobNotFound
from pgqueue.moving.strict import missing
from pgqueue.values.jobs.job import JobState

R = TypeVar("R")
STATES = MappingProxyType(
    {
        JobState.RUNNING: "STARTED",
        JobState.SUCCEEDED: "SUCCESS",
        JobState.DEAD: "FAILURE",
        JobState.CANCELLED: "REVOKED",
    }
)
ENDED = {"SUCCESS", "FAILURE", "REVOKED"}
process = SimpleNamespace(current=None, shared=[])
"""The app that was made last, and the shared tasks: both hold for all of a process, as in Celery."""
REMEDIES = {
    "children": "queue.flows.get(flow_id) shows all jobs of a chain, a group or a chord",
    "date_done": "read queue.job(int(result.id)).ended_at",
    "forget": "results are deleted with the job's history: PgQueue(history=timedelta(days=...))",
    "restore": "store the ids of the jobs, and make AsyncResult(id) of each",
    "save": "store the ids of the jobs, and make AsyncResult(id) of each",
    "then": "use link=, or a hook: @queue.on('succeeded')",
}


class AsyncResult(Generic[R]):
    """A job, with Celery's methods.

    Attributes:
        id: the job's id as a string.
        parent: the result of the task before it in a chain, or of the header of a chord; None: there is none, or it is not known.
    """

    parent: "AsyncResult[Any] | GroupResult | None" = None

    def __init__(self, task_id: str | int, queue: PgQueue | None = None, *, app: Any = None) -> None:
        """Name a job.

        Args:
            task_id: its id.
            queue: its queue.
            app: the app whose queue it is, where no queue is given; None: the app that was made last.

        Raises:
            InvalidOption: it cannot be an id of pgqueue, or there is no app.
        """
        if not str(task_id).isdecimal():
            raise InvalidOption(
                f"task_id={task_id!r} is no id of a job in pgqueue; "
                "the results of Celery's tasks are in Celery's result backend"
            )
        self.id = self.task_id = str(task_id)
        app = app or process.current
        if queue is None and app is None:
            raise InvalidOption(
                f"AsyncResult({task_id!r}): there is no app yet; make it first: app = Celery(...)"
            )
        self._queue: PgQueue = app.queue if queue is None else queue

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.id}>"

    def __str__(self) -> str:
        return self.id

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AsyncResult) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __getattr__(self, name: str) -> NoReturn:
        raise missing("Celery's AsyncResult", name, REMEDIES, ["get", "ready", "revoke", "state"])

    @property
    def state(self) -> str:
        """PENDING, STARTED, RETRY, SUCCESS, FAILURE or REVOKED; PENDING, too, if there is no such job."""
        try:
            job = self._queue.job(int(self.id))
        except JobNotFound:
            return "PENDING"
        return STATES.get(job.state, "RETRY" if job.attempts else "PENDING")

    @property
    def status(self) -> str:
        """The state."""
        return self.state

    @property
    def result(self) -> "R | Exception | None":
        """What the task returned; the failure, if it failed; None before it has ended."""
        return self.get(propagate=False) if self.ready() else None

    @property
    def info(self) -> "R | Exception | None":
        """The result."""
        return self.result

    @property
    def traceback(self) -> str | None:
        """The traceback of the last failed attempt, in the worker."""
        found = self.result
        return found.error.traceback if isinstance(found, JobFailed) and found.error else None

    def ready(self) -> bool:
        """Whether the job has ended."""
        return self.state in ENDED

    def successful(self) -> bool:
        """Whether it succeeded."""
        return self.state == "SUCCESS"

    def failed(self) -> bool:
        """Whether it is dead."""
        return self.state == "FAILURE"

    def get(self, timeout: float | None = None, *, propagate: bool = True, **_: object) -> "R | Exception":
        """Wait for the result.

        Args:
            timeout: how long to wait, in seconds; None: without limit.
            propagate: raise a failure; False returns it.
            **_: how Celery polls; pgqueue is told.

        Raises:
            JobFailed: the job is dead or was revoked. The message names the task's exception; where the job was cancelled
                because one before it in its chain or chord failed, that job's.
            JobNotDone: it has not ended within the timeout; a :class:`TimeoutError`.
        """
        try:
            return cast("R", self._queue.result(int(self.id), timeout=timeout))
        except JobFailed as failure:
            found = self._cause(failure)
            if propagate:
                raise found from None
            return found

    wait = get

    def revoke(self, *, terminate: bool = False, **_: object) -> None:
        """Cancel the job if it waits; with ``terminate``, ask the worker of a running one to stop it, too."""
        if terminate or self.state != "STARTED":
            self._queue.cancel(int(self.id))

    def _cause(self, failure: JobFailed) -> JobFailed:
        if failure.error is None and self.parent is not None:
            before = self.parent.results if isinstance(self.parent, GroupResult) else [self.parent]
            found = [one.get(propagate=False) for one in before if one.ready() and not one.successful()]
            return next((one for one in found if isinstance(one, JobFailed)), failure)
        return failure


class GroupResult(Sequence[Any]):
    """The results of a group.

    Attributes:
        id: the id of its flow, as a string; of an eager group, ``None``.
        results: those of its members, in order.
        parent: as of :class:`AsyncResult`.
    """

    parent: "AsyncResult[Any] | GroupResult | None" = None

    def __init__(self, group_id: str | None, results: Sequence[Any]) -> None:
        """Made by ``apply_async`` of a group."""
        self.id, self.results = group_id, list(results)

    def __repr__(self) -> str:
        return f"<GroupResult: {self.id} [{', '.join(str(one.id) for one in self.results)}]>"

    def __getitem__(self, place: Any) -> Any:
        return self.results[place]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.results)

    def __len__(self) -> int:
        return len(self.results)

    def __getattr__(self, name: str) -> NoReturn:
        raise missing("Celery's GroupResult", name, REMEDIES, ["get", "ready", "results"])

    def ready(self) -> bool:
        """Whether all have ended."""
        return all(one.ready() for one in self.results)

    def waiting(self) -> bool:
        """Whether one has not ended."""
        return not self.ready()

    def successful(self) -> bool:
        """Whether all have succeeded."""
        return all(one.successful() for one in self.results)

    def failed(self) -> bool:
        """Whether one has failed."""
        return any(one.failed() for one in self.results)

    def completed_count(self) -> int:
        """How many have succeeded."""
        return sum(one.successful() for one in self.results)

    def get(self, timeout: float | None = None, *, propagate: bool = True, **_: object) -> list[Any]:
        """Wait for all results; arguments as for :meth:`AsyncResult.get`, the timeout for each of them."""
        return [one.get(timeout=timeout, propagate=propagate) for one in self.results]

    join = get

    def revoke(self, *, terminate: bool = False, **_: object) -> None:
        """As :meth:`AsyncResult.revoke`, of each member."""
        for one in self.results:
            one.revoke(terminate=terminate)


class EagerResult(AsyncResult[R]):
    """The result of a task that ran at the call, in this process."""

    def __init__(self, task_id: str, *, value: R | None = None, error: BaseException | None = None) -> None:
        """Made by ``apply``; ``error``: how the task failed."""
        self.id = self.task_id = task_id
        self._value, self._error = value, error

    @property
    def state(self) -> str:
        """SUCCESS or FAILURE."""
        return "SUCCESS" if self._error is None else "FAILURE"

    @property
    def traceback(self) -> str | None:
        """None: the error has it."""
        return None

    def get(self, timeout: float | None = None, *, propagate: bool = True, **_: object) -> "R | Exception":  # noqa: ARG002 - as of others
        """What the task returned.

        Raises:
            Exception: what the task raised, unless ``propagate`` is False: then it is returned.
        """
        if self._error is not None and propagate:
            raise self._error
        return cast("R", self._value if self._error is None else self._error)

    def revoke(self, *, terminate: bool = False, **_: object) -> None:
        """Nothing: it has ended."""
