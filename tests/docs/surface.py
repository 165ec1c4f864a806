"""What the package shows: the members of a class, and the parameters of what can be called."""

import ast
import inspect
import textwrap
from collections.abc import Callable
from enum import Enum
from typing import Any

import pgqueue


def members(thing: type) -> set[str]:
    """What the class itself defines, attributes that its constructor sets included."""
    if issubclass(thing, Enum):
        return {str(value) for value in thing}
    tree = ast.parse(textwrap.dedent(inspect.getsource(thing)))
    attributes = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    }
    ours = {name for kind in thing.__mro__ if kind.__module__.startswith("pgqueue.") for name in vars(kind)}
    return attributes | ours


def parameters(function: Callable[..., Any] | type | None) -> set[str]:
    """The names of the parameters that a caller may write, of what is written in this package."""
    if not callable(function) or not getattr(function, "__module__", "").startswith("pgqueue."):
        return set()
    if inspect.isclass(function) and "__init__" not in vars(function):
        return set()  # made by us, never by users: its fields are its members
    skipped = {"self", "cls", "args", "kwargs", "function"}
    if function in (pgqueue.JobHandle, pgqueue.Task, pgqueue.Context, pgqueue.TakenJob):
        return set()  # it has none
    return set(inspect.signature(function).parameters) - skipped
