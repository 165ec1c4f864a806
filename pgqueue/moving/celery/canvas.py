"""Signatures, and what is made of them: chains, groups and chords. Each is enqueued as one flow, in one transaction.

The graph of a flow is flat: a node for each task, and one for each group of plain tasks, named by their numbers. A node that
follows others says in its arguments whose results it gets (:mod:`pgqueue.moving.celery.following`).
"""

import inspect
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Generic, NoReturn, TypeVar, cast

from pgqueue.app.flows.chains import group as flow_group
from pgqueue.app.task import Call
from pgqueue.errors import ConfigurationError, InvalidOption
from pgqueue.moving.celery.following import ERROR_ARGUMENTS
from pgqueue.moving.celery.graph import Graph, Stage, Start
from pgqueue.moving.celery.result import AsyncResult, EagerResult, GroupResult
from pgqueue.moving.strict import missing
from pgqueue.values.flows.flow import EdgeRule

R = TypeVar("R")
POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class Canvas:
    """What signatures, chains, groups and chords have in common."""

    scope = "task"
    """Whose failures its error callbacks are told of."""
    errbacks: "list[Signature[Any]]"

    @abstractmethod
    def add_to(self, graph: Graph, after: Stage | None, start: Start) -> Stage:
        """Add the nodes; ``start`` is for the tasks that start first."""

    @abstractmethod
    def run_here(self, start: Start) -> Any:
        """Run it in this process."""

    @abstractmethod
    def signatures(self) -> "Iterator[Signature[Any]]":
        """All signatures in it."""

    def __or__(self, other: "Canvas") -> "chain":
        return chain(self, other, unroll=False) if isinstance(other, Canvas) else NotImplemented

    def __getattr__(self, name: str) -> NoReturn:
        raise missing(f"Celery's {type(self).__name__}", name, {}, ["apply_async", "delay", "on_error"])

    def on_error(self, errback: "Signature[Any] | Iterable[Signature[Any]]") -> Any:
        """Run a task when this fails; return this."""
        self.errbacks += as_signatures(errback)
        return self

    def link_error(self, errback: "Signature[Any]") -> "Signature[Any]":
        """As :meth:`on_error`; return the callback."""
        self.on_error(errback)
        return errback

    def delay(self, *args: Any, **kwargs: Any) -> Any:
        """Enqueue it, with more arguments for the tasks that start first."""
        return self.apply_async(args, kwargs)

    def apply_async(
        self, args: Sequence[Any] | None = None, kwargs: Mapping[str, Any] | None = None, **options: Any
    ) -> Any:
        """Enqueue it, with more arguments and options for the tasks that start first."""
        self.on_error(options.pop("link_error", None) or [])
        conf = next((one.task.app.conf for one in self.signatures()), None)
        if conf is None or conf.task_always_eager:
            return self.apply(args, kwargs, throw=conf is not None and bool(conf.task_eager_propagates))
        graph = Graph(" | ".join(one.task.name.rpartition(".")[2] for one in self.signatures()))
        stage = self.add_to(graph, None, Start(args or (), kwargs or {}, options))
        handle = graph.enqueue()
        return stage.results(str(handle.id), [int(job.id) for job in handle.jobs])

    def apply(
        self,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        *,
        throw: bool = False,
    ) -> Any:
        """Run it here and now, without a database; ``throw`` raises its error."""
        result = self.run_here(Start(args or (), kwargs or {}))
        if throw:
            result.get()
        return result

    def add_errbacks(self, graph: Graph, stage: Stage) -> None:
        """Add the tasks that run when a stage of this has failed."""
        for errback in self.errbacks:
            for place in stage.places:
                previous = ["error", self.scope, str(place + 1), errback.error_arguments]
                graph.add(errback.call(previous), [place], EdgeRule.FAILURE)


class Signature(Canvas, Generic[R]):
    """A call of a task that has not been made yet.

    Attributes:
        task: which task; a CeleryTask, whose module imports this one.
        args: positional arguments; those that come later are put before them.
        kwargs: keyword arguments.
        options: those of ``apply_async``.
        immutable: whether it takes no more arguments.
    """

    def __init__(
        self,
        task: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        immutable: bool = False,
        **options: Any,
    ) -> None:
        """Made by ``task.s``, ``task.si`` and ``task.signature``."""
        self.task, self.args, self.kwargs = task, tuple(args), dict(kwargs or {})
        self.links = as_signatures(options.pop("link", None))
        self.errbacks = as_signatures(options.pop("link_error", None))
        self.options, self.immutable = options, immutable

    def __repr__(self) -> str:
        given = [*map(repr, self.args), *(f"{name}={value!r}" for name, value in self.kwargs.items())]
        return f"{self.task.name}({', '.join(given)})"

    def __call__(self, *args: Any, **kwargs: Any) -> R:
        """Call the function at once, in this process."""
        made = self.clone(args, kwargs)
        return cast("R", made.task(*made.args, **made.kwargs))

    def clone(
        self, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None, **options: Any
    ) -> "Signature[R]":
        """A copy, with more arguments before its own, and with other options."""
        more, named = ((), {}) if self.immutable else (tuple(args), kwargs or {})
        options = self.options | options
        made: Signature[R] = Signature(
            self.task, more + self.args, {**self.kwargs, **named}, immutable=self.immutable, **options
        )
        made.links, made.errbacks = self.links + made.links, self.errbacks + made.errbacks
        return made

    def set(self, *, immutable: bool | None = None, **options: Any) -> "Signature[R]":
        """Change options; return this."""
        self.immutable = self.immutable if immutable is None else immutable
        self.options |= options
        return self

    def link(self, callback: "Signature[Any]") -> "Signature[Any]":
        """Run a task with the result of this one; return that task's signature."""
        self.links += as_signatures(callback)
        return callback

    def apply_async(
        self, args: Sequence[Any] | None = None, kwargs: Mapping[str, Any] | None = None, **options: Any
    ) -> AsyncResult[R]:
        """Enqueue it, with more arguments and options."""
        made = self.clone(args or (), kwargs, **options)
        app = made.task.app
        if app.conf.task_always_eager or not made.is_plain:
            return super(Signature, made).apply_async()  # type: ignore[no-any-return]  # a result
        task, given, named = made.task.call(made.args, made.kwargs, made.options, None)
        return AsyncResult(task.enqueue(*given, **named).id, app.queue)

    def signatures(self) -> "Iterator[Signature[Any]]":
        """As :meth:`Canvas.signatures`."""
        yield self

    @property
    def is_plain(self) -> bool:
        """Whether it is no more than one job."""
        return not (self.links or self.errbacks)

    def call(self, previous: list[Any] | None) -> Call[R]:
        """The call of the pgqueue task; for ``previous`` see :func:`following.following`."""
        task, given, named = self.task.call(self.args, self.kwargs, self.options, previous)
        return cast("Call[R]", task.call(*given, **named))

    def call_after(self, after: Stage | None, start: Start) -> Call[R]:
        """The call of the pgqueue task, as it is made after a stage.

        Raises:
            InvalidOption: it has an option that a task which follows others cannot have.
        """
        if after is None:
            return self.clone(start.args, start.kwargs, **start.options).call(None)
        if "countdown" in self.options:
            raise InvalidOption(
                f"{self.task.name}: countdown={self.options['countdown']!r} of a task that follows others: pgqueue would count "
                "from the enqueue; let the task call self.retry(countdown=...) in its first attempt"
            )
        return self.call(None if self.immutable else ["result", after.shape])

    def add_to(self, graph: Graph, after: Stage | None, start: Start) -> Stage:
        """As :meth:`Canvas.add_to`."""
        job, queue = graph.jobs, self.task.app.queue
        place = graph.add(self.call_after(after, start), after.places if after else ())
        stage = Stage([place], str(place + 1), lambda _, ids: AsyncResult(ids[job], queue))
        for link in self.links:
            link.add_to(graph, stage, Start())
        self.add_errbacks(graph, stage)
        return stage

    def run_here(self, start: Start) -> EagerResult[R]:
        """As :meth:`Canvas.run_here`."""
        made = self.clone(start.args, start.kwargs)
        result: EagerResult[R] = made.task.run_eagerly(made.args, made.kwargs)
        for link in self.links if result.successful() else ():
            link.run_here(Start((result.get(),)))
        return result

    @property
    def error_arguments(self) -> int:
        """How many arguments it is given as an error callback.

        Raises:
            ConfigurationError: its function is ``async def``.
        """
        if inspect.iscoroutinefunction(self.task.run):
            raise ConfigurationError(
                f"link_error: {self.task.name} is async def; an error callback is a plain function"
            )
        kinds = [one.kind for one in inspect.signature(self.task.run).parameters.values()]
        several = sum(kind in POSITIONAL for kind in kinds) > 1 or inspect.Parameter.VAR_POSITIONAL in kinds
        return ERROR_ARGUMENTS if several else 1


class Several(Canvas):
    """What is made of several parts."""

    def __init__(self, tasks: Sequence[Any]) -> None:
        """Of signatures, chains, groups and chords, or of one iterable of these.

        Raises:
            InvalidOption: one of them is something else.
        """
        self.tasks: list[Canvas] = []
        self.errbacks = []
        for one in tasks[0] if len(tasks) == 1 and not isinstance(tasks[0], Canvas) else tasks:
            if not isinstance(one, Canvas):
                raise InvalidOption(f"{type(self).__name__}: {one!r:.80} is no signature; write task.s(...)")
            # Chains in chains, and groups in groups, are one.
            self.tasks += (
                one.tasks
                if isinstance(one, Several) and type(one) is type(self) and not one.errbacks
                else [one]
            )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self.tasks))})"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Enqueue it."""
        return self.apply_async(args, kwargs)

    def signatures(self) -> "Iterator[Signature[Any]]":
        """As :meth:`Canvas.signatures`."""
        for one in self.tasks:
            yield from one.signatures()


class chain(Several):  # noqa: N801 - Celery's own name
    """Tasks that run one after the other; each gets the result of the one before as its first argument."""

    scope = "chain"

    def __init__(self, *tasks: Any, unroll: bool = True) -> None:
        """Made of parts; inside of ``chain(...)``, as in Celery, a group of one task is that task."""
        super().__init__(tasks)
        if unroll:
            single = (
                one.tasks if isinstance(one, group) and len(one.tasks) == 1 else [one] for one in self.tasks
            )
            self.tasks = [task for tasks in single for task in tasks]

    def add_to(self, graph: Graph, after: Stage | None, start: Start) -> Stage:
        """As :meth:`Canvas.add_to`."""
        if not self.tasks:
            raise InvalidOption(f"{type(self).__name__}(): it has no task")
        stages, stage = [], after
        for place, one in enumerate(self.tasks):
            if place and isinstance(self.tasks[place - 1], group):
                one.scope = "chord"  # its error callbacks are told of the header's failure, too
            stage = one.add_to(graph, stage, start)
            stages.append(stage)
        self.add_errbacks(graph, stages[-1])
        return stages[-1]._replace(
            results=lambda flow, ids: _linked([one.results(flow, ids) for one in stages])
        )

    def run_here(self, start: Start) -> Any:
        """As :meth:`Canvas.run_here`."""
        result: Any = None
        for one in self.tasks:
            result = one.run_here(start)
            if result.failed():
                break
            start = Start((result.get(),))
        return result


class group(Several):  # noqa: N801 - Celery's own name
    """Tasks that run side by side."""

    def __init__(self, *tasks: Any) -> None:
        """Made of parts."""
        super().__init__(tasks)

    def __len__(self) -> int:
        return len(self.tasks)

    def on_error(self, errback: Signature[Any] | Iterable[Signature[Any]]) -> "group":
        """Run a task for each member that fails."""
        for one in self.tasks:
            one.on_error(errback)
        return self

    def add_to(self, graph: Graph, after: Stage | None, start: Start) -> Stage:
        """As :meth:`Canvas.add_to`."""
        plain = [one for one in self.tasks if isinstance(one, Signature) and one.is_plain]
        if plain and len(plain) == len(self.tasks):
            first, queue = graph.jobs, plain[0].task.app.queue
            members = flow_group([one.call_after(after, start) for one in plain])
            place, last = graph.add(members, after.places if after else ()), graph.jobs
            return Stage(
                [place],
                str(place + 1),
                lambda flow, ids: GroupResult(flow, [AsyncResult(one, queue) for one in ids[first:last]]),
            )
        stages = [one.add_to(graph, after, start) for one in self.tasks]
        return Stage(
            [place for one in stages for place in one.places],
            [one.shape for one in stages],
            lambda flow, ids: GroupResult(flow, [one.results(flow, ids) for one in stages]),
        )

    def run_here(self, start: Start) -> GroupResult:
        """As :meth:`Canvas.run_here`."""
        return GroupResult(None, [one.run_here(start) for one in self.tasks])


class chord(chain):  # noqa: N801 - Celery's own name
    """A group, the header, and a task that gets the list of its results, the body."""

    scope = "chord"

    def __init__(self, header: Any, body: Canvas | None = None) -> None:
        """``chord(header, body)``; or ``chord(header)``, which is called with the body."""
        self.header = header if isinstance(header, group) else group(header)
        super().__init__(self.header, *([] if body is None else [body]), unroll=False)

    def __call__(self, body: Canvas | None = None, **options: Any) -> Any:
        """Enqueue it, with this body."""
        return (self if body is None else chord(self.header, body)).apply_async(**options)


def as_signatures(given: Any) -> "list[Signature[Any]]":
    """The signatures of ``link=`` or ``link_error=``: none, one, or several.

    Raises:
        InvalidOption: one of them is something else.
    """
    found = [] if given is None else [*given] if isinstance(given, list | tuple | set) else [given]
    for one in found:
        if not isinstance(one, Signature):
            raise InvalidOption(f"link: {one!r:.80} is no signature of a task; write task.s()")
    return found


def _linked(results: list[Any]) -> Any:
    for before, after in pairwise(results):
        after.parent = before
        for one in after.results if isinstance(after, GroupResult) else ():
            one.parent = before
    return results[-1]
