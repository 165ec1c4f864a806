"""Which functions can be tasks, and what their jobs say in the database.

A name must lead a worker in another process to the same function. Where it cannot (a REPL, a program from standard
input), the task can be registered and called, and an enqueue is refused.
"""

import inspect
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pgqueue.errors import InvalidOption
from pgqueue.values.jobs.options import check_name

MAIN = ("__main__", "__mp_main__")
"""What Python calls the module of the program itself; the second in processes that multiprocessing starts."""


def require_function(function: object, *, named: bool) -> None:
    """Refuse what cannot be a task.

    Args:
        function: what was decorated.
        named: whether it was given a name.

    Raises:
        InvalidOption: it cannot be one; the message says what to do instead.
    """
    remedy = _remedy(function, named=named)
    if remedy is not None:
        raise InvalidOption(f"@queue.task on {_function_name(function)}: {remedy}")


def name_of(function: Callable[..., Any], given: str | None) -> str:
    """What jobs of a function say in the database: the name it was given, or its module and qualified name.

    Raises:
        InvalidOption: that cannot be a name.
    """
    if given is not None:
        return check_name("task", given)
    if not function.__module__:
        raise InvalidOption(
            f"{_function_name(function)} is in no module: give the task a name, @queue.task(name=...)"
        )
    module = _real_name(function.__module__) or function.__module__
    return check_name("task", f"{module}.{function.__qualname__}")


def as_aliases(given: object) -> tuple[str, ...]:
    """The former names of a task.

    Raises:
        InvalidOption: this is no sequence of different names.
    """
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise InvalidOption(
            f"aliases={given!r:.80}: give the former names of the task in a tuple, the oldest first"
        )
    names = tuple(check_name("alias", name) for name in given)
    if len(set(names)) < len(names):
        raise InvalidOption(f"aliases={given!r:.80}: name each alias once")
    return names


def first_name(name: str, aliases: Sequence[str]) -> str:
    """The name that a task had first: what is named after the task keeps it when the task is renamed."""
    return aliases[0] if aliases else name


def objection_to(name: str) -> str | None:
    """Why no worker could find a task by this name; None: one can."""
    module = name.partition(".")[0]
    if module not in MAIN:
        return None
    return (
        f"task {name} is defined where no worker can import it (a REPL, standard input or `python -c`); "
        "put it into a module, or give it a name that the worker's app registers, too: @queue.task(name=...)"
    )


def place_of(function: Callable[..., Any]) -> str:
    """The file and line of a function, as far as Python knows them."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return "a place unknown" if code is None else f"{code.co_filename}:{code.co_firstlineno}"


def _remedy(function: object, *, named: bool) -> str | None:
    return _if_no_function(function) or _if_no_task(function, named=named)


def _if_no_function(function: object) -> str | None:
    if isinstance(function, str):
        return f"a name is an option; write @queue.task(name={function!r})"
    if hasattr(function, "enqueue") and hasattr(function, "function"):
        return "it is a task already; for other options use task.using(...), or decorate its .function again"
    if inspect.isclass(function):
        return "a class cannot be a task; decorate a function that uses it"
    if not callable(function):
        return "it cannot be called; decorate a function"
    return None


def _if_no_task(function: object, *, named: bool) -> str | None:
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        return (
            "a generator function would never run: calling it only makes a generator; "
            "return a list, or enqueue a job for each item"
        )
    if not named and getattr(function, "__name__", "") == "<lambda>":
        return (
            "a lambda has no name by which a worker could find it; write a def, or give it a name: name=..."
        )
    if not hasattr(function, "__qualname__") or not hasattr(function, "__module__"):
        return f"a {type(function).__name__} is no function; write a def that calls it"
    return None


def _real_name(module: str) -> str | None:
    """The name under which a worker can import a module; None: none is known.

    The program itself is ``__main__`` here and in no other process: ``python -m shop.jobs`` is ``shop.jobs``, and
    ``python jobs.py`` is ``jobs``.
    """
    if module not in MAIN:
        return module
    main = sys.modules.get(module)
    spec, file = getattr(main, "__spec__", None), Path(getattr(main, "__file__", None) or "")
    if spec is not None:
        found: str = spec.name
    else:  # a script; what has no ending of a module's, or another dot, cannot be imported
        found = file.stem if file.suffix in {".py", ".pyc"} and "." not in file.stem else MAIN[0]
    return None if found in MAIN else found


def _function_name(function: object) -> str:
    where = f" ({place_of(function)})" if callable(function) and not inspect.isclass(function) else ""
    return f"{function!r:.80}{where}"
