"""The errors of all stand-ins: for options that they cannot honour, and for arguments that would arrive changed.

Without these errors, users would find an ignored option only in production. The same holds for an argument that the
other queue pickled or tagged with its type, and pgqueue stores as plain JSON: a ``datetime`` for a parameter without an
annotation would arrive as a string.
"""

import copy
import inspect
from collections.abc import Callable, Collection, Mapping
from typing import Any

from pgqueue.app.pgqueue import PgQueue
from pgqueue.app.task import Task
from pgqueue.errors import InvalidOption, PayloadNotEncodable, UnknownTask
from pgqueue.values.hints import did_you_mean

FOR_EVER = 32_767
"""The most attempts that a job can have: for "retry without end"."""


def honoured_options(
    system: str,
    given: Mapping[str, Any],
    known: Collection[str],
    remedies: Mapping[str, str],
    same: Collection[str] = (),
) -> dict[str, Any]:
    """The given options that are honoured.

    Args:
        system: the other queue system.
        given: the options of the call site.
        known: the options that are honoured.
        remedies: the options that are not honoured, and what to do instead; None and False are allowed for them.
        same: the options that need no action, whatever their value.

    Returns:
        The given options that are in ``known``, in a new dictionary.

    Raises:
        InvalidOption: an option is not honoured, or does not exist.
    """
    for name, value in given.items():
        if name in known or name in same or (name in remedies and (value is None or value is False)):
            continue
        if name in remedies:
            raise InvalidOption(f"{name}={value!r}: {remedies[name]}")
        hint = did_you_mean(name, [*known, *remedies, *same])
        raise InvalidOption(
            f"{name}={value!r}: pgqueue's compatibility module for {system} has no such option{hint}"
        )
    return {name: value for name, value in given.items() if name in known}


def missing(what: str, name: str, remedies: Mapping[str, str], known: Collection[str] = ()) -> AttributeError:
    """The error for an attribute that a stand-in does not have: it says what to use instead.

    Args:
        what: the stand-in.
        name: the attribute.
        remedies: attributes of the other system, and what to use instead.
        known: attributes that the stand-in has.
    """
    if name.startswith("__"):  # Python and its libraries ask for many of these
        return AttributeError(f"{what} has no {name!r}")
    said = remedies.get(name)
    hint = f": {said}" if said else f"{did_you_mean(name, [*known, *remedies])}; see docs/moving"
    return AttributeError(f"pgqueue's compatibility module for {what} has no {name!r}{hint}")


def missing_name(module: str, name: str, remedies: Mapping[str, str]) -> AttributeError | ImportError:
    """As :func:`missing`, for a name of a module. ``from module import name`` shows an ImportError, and no AttributeError."""
    found = missing(module, name, remedies)
    return found if name.startswith("__") else ImportError(str(found), name=name)


def require_faithful(
    queue: PgQueue, task: Task[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> None:
    """Raise an error for arguments that the task would get as other values. A tuple may arrive as a list.

    Args:
        queue: the job's queue.
        task: the task to enqueue, which ``using()`` made for this one call.
        args: positional arguments.
        kwargs: keyword arguments.

    Raises:
        PayloadNotEncodable: an argument has no JSON form, or would arrive as another value.
        PayloadTooLarge: their JSON form is over the queue's limit.
    """
    injected = object()
    task.signature = copy.copy(task.signature)  # the registered task's own, which goes on to warn
    task.signature.warns = False  # its warnings are errors here
    data = task.signature.encode(args, kwargs, limit=queue.max_payload)
    seen_args, seen_kwargs = task.signature.decode(data, injected)
    whole = inspect.signature(task.function)
    seen = _bind_arguments(whole, seen_args, seen_kwargs)
    payload = [p for name, p in whole.parameters.items() if seen[name] is not injected]
    given = _bind_arguments(whole.replace(parameters=payload), args, kwargs)
    for name, value in given.items():
        if _tuples_to_lists(value) != _tuples_to_lists(seen[name]):
            raise PayloadNotEncodable(
                f"{task.name}: {name}={value!r} would arrive as {seen[name]!r}; "
                f"annotate the parameter as {type(value).__name__}, or send a plain value"
            )


def require_task(
    queue: PgQueue, function: Callable[..., Any] | Task[..., Any] | str, remedy: str
) -> Task[..., Any]:
    """The task of a function, of its dotted path, or of something with a ``task``.

    Args:
        queue: where it is registered.
        function: the function, its path, or an object with a ``task``.
        remedy: what to do if it is not registered, for the message.

    Raises:
        UnknownTask: it is not registered.
    """
    found = getattr(function, "task", function)
    if isinstance(found, Task):
        return found
    name = found if isinstance(found, str) else path_of(found)
    try:
        return queue.find_task(name)
    except UnknownTask as error:
        raise UnknownTask(f"{error}; {remedy}") from None


def path_of(function: Callable[..., Any]) -> str:
    """The dotted path of a function, which is the name of its task."""
    return f"{function.__module__}.{function.__qualname__}"


def _bind_arguments(signature: inspect.Signature, args: Any, kwargs: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ANN401 - any arguments
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()
    return bound.arguments


def _tuples_to_lists(value: object) -> object:
    match value:
        case list() | tuple():
            return [_tuples_to_lists(one) for one in value]
        case dict():
            return {key: _tuples_to_lists(one) for key, one in value.items()}
        case _:
            return value
