"""Finds the app's queue and its tasks, on the driver and on every executor, where rows become jobs."""

import inspect
import pkgutil
from dataclasses import dataclass
from functools import cache
from typing import Any, get_type_hints

from pgqueue.app.context import Context
from pgqueue.app.pgqueue import PgQueue
from pgqueue.app.task import Task
from pgqueue.errors import ConfigurationError

FORM = "use MODULE:ATTRIBUTE, for example shop.jobs:queue, of a module that the driver and all executors can import"


@dataclass(frozen=True, slots=True)
class Parameters:
    """Which arguments a task takes by name.

    Attributes:
        named: the names of its parameters.
        required: those of them that have no default.
        others: whether it takes any other names too (``**``).
    """

    named: tuple[str, ...]
    required: frozenset[str]
    others: bool


@cache
def find_app(app: str) -> PgQueue:
    """The queue that ``module:attribute`` names.

    Raises:
        ConfigurationError: there is no such module or attribute here, the import fails, or it is not a queue.
    """
    if app.count(":") != 1:
        raise ConfigurationError(f"app={app!r}: {FORM}")
    try:
        found = pkgutil.resolve_name(app)
    except Exception as error:
        raise ConfigurationError(f"app={app!r}: {type(error).__name__}: {error}; {FORM}") from error
    if not isinstance(found, PgQueue):
        raise ConfigurationError(f"app={app!r} is of type {type(found).__name__}, not a PgQueue; {FORM}")
    return found


def parameters_of(task: Task[..., Any]) -> Parameters:
    """What a task's function takes, without its context.

    Raises:
        ConfigurationError: its annotations cannot be read, or it takes arguments by position only.
    """
    _ = task.signature  # raises ConfigurationError for a wrong annotation
    hints = get_type_hints(task.function)
    found = [
        parameter
        for name, parameter in inspect.signature(task.function).parameters.items()
        if hints.get(name) is not Context
    ]
    for parameter in found:
        if parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
            raise ConfigurationError(
                f"task {task.name}: it takes {parameter.name!r} by position only, and columns have names; "
                "take the / out of its parameters"
            )
    named = [
        parameter
        for parameter in found
        if parameter.kind not in {inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL}
    ]
    return Parameters(
        tuple(parameter.name for parameter in named),
        frozenset(parameter.name for parameter in named if parameter.default is inspect.Parameter.empty),
        any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in found),
    )
