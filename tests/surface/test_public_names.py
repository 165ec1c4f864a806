"""What the package shows: its names, their words, and the pairs of blocking and awaited methods."""

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from typing import Any, get_args

import pytest

import pgqueue
from pgqueue import Context, JobHandle, PgQueue, TakenJob, Task
from pgqueue import errors as errors_module
from pgqueue.app.alerts import Alerts
from pgqueue.app.bulk import DeadSelection, LiveSelection
from pgqueue.app.control import QueueControl
from pgqueue.app.insight.insight import Insight
from pgqueue.app.limits import LimitControl
from pgqueue.app.schedules.schedules import Schedules
from pgqueue.app.workers import Workers
from pgqueue.values.alerts import alert

PAIRED = (
    PgQueue,
    Task,
    JobHandle,
    TakenJob,
    Context,
    Schedules,
    Alerts,
    Workers,
    Insight,
    QueueControl,
    LimitControl,
    LiveSelection,
    DeadSelection,
)
ALONE = {
    PgQueue: {
        "alert",
        "batch_task",
        "remote",
        "task",
        "find_task",
        "load_task",
        "observe",
        "on",
        "require_queue",
        "schedule",
    },
    TakenJob: {"progress"},
    Task: {"call", "compose", "using"},
    Context: {"is_final", "progress", "transaction"},
    QueueControl: {"dead", "jobs"},
    Alerts: {"application", "declared"},
    Schedules: {"application", "declared", "edition"},
}
"""Methods that touch no database, so that there is nothing to await."""


def public_methods(kind: type) -> dict[str, Callable[..., Any]]:
    return {
        name: method
        for name, method in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_") and method.__module__.startswith("pgqueue.")
    }


def blocking_methods(kind: type) -> list[str]:
    """Those whose awaited twin has an ``a`` before the name."""
    methods = public_methods(kind)
    return [name for name in methods if f"a{name}" in methods]


PAIRS = [
    (kind, name) for kind in PAIRED for name in blocking_methods(kind) if (kind, name) != (Context, "step")
]


def _documented() -> Iterator[Any]:
    """Every public class and function, with the classes' public methods and properties."""
    for name in pgqueue.__all__:
        value = getattr(pgqueue, name)
        if inspect.isclass(value):
            yield pytest.param(value, id=name)
            yield from (pytest.param(member, id=f"{name}.{which}") for which, member in _members(value))


def _members(kind: type) -> Iterator[tuple[str, Callable[..., Any]]]:
    """A class's own methods and properties; its ``__init__`` only if it was written by hand."""
    yield from public_methods(kind).items()
    made = vars(kind).get("__init__")
    if made is not None and made.__doc__ is not None:
        yield "__init__", made
    for name, value in inspect.getmembers(kind, lambda member: isinstance(member, property)):
        if not name.startswith("_") and value.fget.__module__.startswith("pgqueue."):
            yield name, value.fget


DOCUMENTED = list(_documented())
FUNCTIONS = [one for one in DOCUMENTED if not inspect.isclass(one.values[0])]


def test_each_condition_of_an_alert_is_a_public_name() -> None:
    conditions = get_args(alert.Rule)
    assert {one.__name__: one for one in conditions} == {
        one.__name__: getattr(pgqueue, one.__name__, None) for one in conditions
    }
    assert {one.__name__ for one in conditions} < {*pgqueue.__all__}


def _by_ruffs_order(name: str) -> tuple[bool, bool, str]:
    """Constants, then classes, then everything else, as in ruff's ``RUF022``."""
    constant = name.isupper()
    return not constant, not name[0].isupper(), name


def test_all_is_sorted_and_holds_what_there_is() -> None:
    assert pgqueue.__all__ == sorted(pgqueue.__all__, key=_by_ruffs_order)
    assert len(set(pgqueue.__all__)) == len(pgqueue.__all__)
    assert all(hasattr(pgqueue, name) for name in pgqueue.__all__)


def test_nothing_public_is_left_out_of_all() -> None:
    shown = {
        name
        for name, value in vars(pgqueue).items()
        if not name.startswith("_") and not inspect.ismodule(value)
    }

    assert shown <= set(pgqueue.__all__)


def test_what_users_raise_and_catch_most_is_at_the_top() -> None:
    raised = {name for name, value in vars(errors_module).items() if inspect.isclass(value)}

    assert {"PgQueueError", "Snooze", "RetryLater", "Dead", "Superseded"} <= raised & set(pgqueue.__all__)


@pytest.mark.parametrize("value", DOCUMENTED)
def test_everything_public_says_what_it_is_for(value: Any) -> None:
    words = inspect.getdoc(value)

    assert words
    assert words.splitlines()[0].rstrip().endswith((".", "?", ")"))


@pytest.mark.parametrize("value", FUNCTIONS)
def test_arguments_are_described_all_or_none_and_more_than_two_always(value: Any) -> None:
    parameters = [
        parameter.name
        for parameter in inspect.signature(value).parameters.values()
        if parameter.name != "self" and parameter.kind is not inspect.Parameter.VAR_KEYWORD
        if parameter.kind is not inspect.Parameter.VAR_POSITIONAL
    ]
    section = _section(value, "Args")
    told_elsewhere = re.search(r"arguments as for :meth:|^As :meth:|^Made by ", inspect.getdoc(value) or "")

    if section or (len(parameters) > 2 and not told_elsewhere):
        assert section == parameters


@pytest.mark.parametrize("value", FUNCTIONS)
def test_what_a_method_raises_itself_is_in_its_words(value: Any) -> None:
    assert _raised_by(value) <= set(_section(value, "Raises"))


def _raised_by(function: Callable[..., Any]) -> set[str]:
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    raised = (node.exc for node in ast.walk(tree) if isinstance(node, ast.Raise))
    return {one.func.id for one in raised if isinstance(one, ast.Call) and isinstance(one.func, ast.Name)} - {
        name for name, value in inspect.getmembers(inspect.getmodule(function), inspect.isfunction)
    }


def _section(value: Any, title: str) -> list[str]:
    found = re.search(rf"^{title}:\n((?:    .*\n?|\n)+)", inspect.getdoc(value) or "", re.MULTILINE)
    return re.findall(r"^    (\w+):", found[1], re.MULTILINE) if found else []


@pytest.mark.parametrize("kind", PAIRED)
def test_whatever_touches_the_database_comes_in_two_colours(kind: type) -> None:
    names = set(public_methods(kind))
    paired = {name for name in names if f"a{name}" in names}
    awaited = {f"a{name}" for name in paired}

    assert paired
    assert names - paired - awaited == ALONE.get(kind, set())


@pytest.mark.parametrize(("kind", "name"), PAIRS)
def test_the_two_colours_take_the_same(kind: type, name: str) -> None:
    blocking, awaited = getattr(kind, name), getattr(kind, f"a{name}")

    assert inspect.signature(blocking).parameters == inspect.signature(awaited).parameters
    assert not inspect.iscoroutinefunction(blocking)


@pytest.mark.parametrize(("kind", "name"), [pair for pair in PAIRS if pair != (PgQueue, "take")])
def test_the_awaited_one_is_awaited_and_returns_the_same(kind: type, name: str) -> None:
    blocking, awaited = getattr(kind, name), getattr(kind, f"a{name}")

    # Those of a context are wrapped, so that they refuse at the call: a plain task would not await.
    assert inspect.iscoroutinefunction(inspect.unwrap(awaited))
    assert inspect.signature(blocking).return_annotation == inspect.signature(awaited).return_annotation


def test_the_two_steps_take_the_same_and_the_awaited_one_refuses_at_the_call() -> None:
    """``astep`` is no ``async def``: a plain task that does not await it would have no error."""
    blocking, awaited = inspect.signature(Context.step), inspect.signature(Context.astep)

    assert [(one.name, one.kind) for one in blocking.parameters.values()] == [
        (one.name, one.kind) for one in awaited.parameters.values()
    ]
    assert not inspect.iscoroutinefunction(Context.astep)


def test_a_context_shows_only_what_a_task_may_use() -> None:
    shown = {name for name in dir(Context) if not name.startswith("_")}

    assert shown == {
        "acheckpoint",
        "alast_checkpoint",
        "acallback",
        "apause",
        "astep",
        "attempt",
        "await_for",
        "callback",
        "cancelled",
        "checkpoint",
        "completed",
        "flow",
        "is_final",
        "job",
        "jobs",
        "last_checkpoint",
        "logger",
        "meta",
        "progress",
        "results",
        "pause",
        "scheduled_for",
        "seconds",
        "step",
        "timeout",
        "transaction",
        "wait_for",
    }
