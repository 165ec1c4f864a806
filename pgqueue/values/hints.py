"""Hints in error messages: the known name that was probably meant, and what to write in place of another queue's option."""

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import NoReturn, ParamSpec, TypeVar

from pgqueue.errors import ConfigurationError

DISTRIBUTION = "pgqueue-jobs"
"""What pip installs; the distribution ``pgqueue`` of the index is another project's."""
P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

METHODS: Mapping[str, str] = MappingProxyType(
    {
        "apply": "call the task itself: task(...)",
        "apply_async": ".using(...).enqueue(...)",
        "configure": ".using(...)",
        "defer": ".enqueue(...)",
        "defer_async": ".aenqueue(...)",
        "delay": ".enqueue(...)",
        "delay_async": ".aenqueue(...)",
        "enqueue_async": ".aenqueue(...)",
        "kiq": ".aenqueue(...)",
        "map": "queue.enqueue_many(task.call(...) for ...)",
        "options": ".using(...)",
        "s": ".call(...)",
        "schedule": ".using(delay=...).enqueue(...)",
        "send": ".enqueue(...)",
        "send_with_options": ".using(...).enqueue(...)",
        "si": ".call(...)",
        "signature": ".call(...)",
    }
)
"""Methods of other queues' tasks."""
CALL_METHODS: Mapping[str, str] = MappingProxyType(
    {
        name: f"task.{name}(...), with the arguments; a call is for queue.{many}([call, ...]), chain, group and Workflow"
        for name, many in (("enqueue", "enqueue_many"), ("aenqueue", "aenqueue_many"))
    }
)
"""Methods of a task that are looked for on a call of it."""

OPTIONS: Mapping[str, str] = MappingProxyType(
    {
        "autoretry_for": "retry=Retry(retry=retry_if_exception_type(...))",
        "bind": "a parameter annotated pgqueue.Context",
        "countdown": "delay=, in seconds or as a timedelta",
        "default_retry_delay": "retry=Retry(wait=wait_fixed(...))",
        "depends_on": "enqueue the next task at the end of this one",
        "eta": "run_at=, a datetime with a time zone",
        "execute_after": "delay= or run_at=",
        "job_id": "unique_key=",
        "job_timeout": "timeout=",
        "lock": "unique_key=",
        "max_retries": "retry=, the number of attempts",
        "queueing_lock": "unique_key=",
        "retries": "retry=, the number of attempts",
        "retry_delay": "retry=Retry(wait=wait_fixed(...))",
        "schedule_at": "run_at=, a datetime with a time zone",
        "schedule_in": "delay=, in seconds or as a timedelta",
        "soft_time_limit": "timeout=",
        "time_limit": "timeout=",
    }
)
"""Options of other queues' decorators and enqueues."""


def suggest_options(function: Callable[P, R]) -> Callable[P, R]:
    """Make the error for an unknown option suggest the right one. It is still a ``TypeError``."""

    @functools.wraps(function)
    def hinted(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except TypeError as error:
            hint = None if _raised_within(error) else _hint(function, kwargs)
            if hint is None:
                raise
            raise TypeError(f"{function.__qualname__}(): {hint}") from None

    return hinted


def suggest_methods(kind: type[T], methods: Mapping[str, str] = METHODS) -> type[T]:
    """Make the errors for methods that this class lacks, such as those of other queues' tasks, say what to write here.

    Each method is a descriptor. A ``__getattr__`` would be called only for these names, but would make every attribute
    look-up slower: Python 3.11 specialises no look-up on a class that has one.
    """
    for name in methods.keys() - vars(kind).keys():
        setattr(kind, name, _MissingMethod(name, methods[name]))
    return kind


class _MissingMethod:
    """A method that the class does not have: looking it up raises ``AttributeError``, as for any unknown name."""

    def __init__(self, name: str, meant: str) -> None:
        self._name, self._meant = name, meant

    def __get__(self, task: object, kind: type) -> NoReturn:
        shown = (kind if task is None else type(task)).__name__
        raise AttributeError(f"{shown!r} object has no attribute {self._name!r}; did you mean {self._meant}?")


def option_hint(name: str) -> str | None:
    """What to write for an option of another queue; None: the option is not known."""
    meant = OPTIONS.get(name)
    return None if meant is None else f"{name}= is {meant}"


def _raised_within(error: TypeError) -> bool:
    # The first frame is the wrapper's.
    return error.__traceback__ is not None and error.__traceback__.tb_next is not None


def _hint(function: Callable[..., object], given: Mapping[str, object]) -> str | None:
    known = inspect.signature(function).parameters
    for name in given:
        if name not in known:
            meant = nearest(name, known)
            return (
                f"{name}= is no option here; "
                + (option_hint(name) or (f"did you mean {meant}=?" if meant else f"there are {_list_options(known)}"))
            )  # fmt: skip
    return None


def _list_options(known: Mapping[str, inspect.Parameter]) -> str:
    keywords = [name for name, one in known.items() if one.kind is inspect.Parameter.KEYWORD_ONLY]
    return ", ".join(f"{name}=" for name in keywords)


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name most similar to this one; None: none is similar."""
    import difflib  # noqa: PLC0415 - for mistakes only

    found = difflib.get_close_matches(name, list(known), n=1)
    return found[0] if found else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of an error message: a hint at the nearest name, or empty."""
    found = nearest(name, known)
    return "" if found is None else f"; did you mean {found!r}?"


def remedy(name: str, known: Iterable[str]) -> str:
    """What to do about an unknown name: use the nearest name, or one of the known ones."""
    names = list(known)
    found = nearest(name, names)
    return f"use {', '.join(names)}" if found is None else f"did you mean {found!r}?"


@contextmanager
def extra_for(extra: str, what: str, *packages: str) -> Iterator[None]:
    """Say which extra to install where an import in this block does not find one of its packages.

    Args:
        extra: its name.
        what: what needs the packages.
        packages: the names under which they are imported.

    Raises:
        ConfigurationError: one of them is missing.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in packages:
            raise
        package = missing.replace("_", "-")  # as pip calls it
        raise ConfigurationError(missing_extra(extra, f"{what} needs the package {package}")) from error


def missing_extra(extra: str, why: str) -> str:
    """What to tell a user who has not installed an extra.

    Args:
        extra: its name.
        why: what needs which package.
    """
    said = f"{why}: pip install '{DISTRIBUTION}[{extra}]'"
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 - for errors only

    try:
        other = version("pgqueue")
    except PackageNotFoundError:
        return said
    return f"{said}. The distribution pgqueue {other} that is installed is another project's: pip uninstall pgqueue"
