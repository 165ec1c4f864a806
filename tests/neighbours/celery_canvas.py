"""Expressions of Celery's canvas: each is run by Celery itself, by pgqueue's workers, and by pgqueue at the call."""

from collections.abc import Callable
from typing import Any


def ident(value: Any) -> Any:
    return value


def add(x: int, y: int) -> int:
    return x + y


def wrap(value: Any, *, mark: str = "w") -> Any:
    return [mark, value]


def every(*values: Any) -> Any:
    return list(values)


def tasks_of(app: Any) -> Any:
    """The tasks of the expressions, registered with an app."""
    return {one.__name__: app.task(name=one.__name__)(one) for one in (ident, add, wrap, every)}


Canvas = Callable[[Any], Any]
EXPRESSIONS: dict[str, Canvas] = {
    "a chain": lambda c: c.chain(c.add.s(1, 2), c.add.s(3), c.wrap.s())(),
    "a pipe": lambda c: (c.add.s(1, 2) | c.add.s(3) | c.wrap.s(mark="p"))(),
    "chains in chains": lambda c: c.chain(
        c.chain(c.add.s(1, 2), c.add.s(3)), c.chain(c.add.s(4), c.wrap.s())
    )(),
    "an immutable task": lambda c: (c.add.s(1, 2) | c.ident.si(7) | c.add.s(1))(),
    "a task of any number of arguments": lambda c: (c.add.s(1, 2) | c.every.s(5, 6))(),
    "arguments of the first task": lambda c: c.chain(c.add.s(1), c.add.s(5)).apply_async((4,)),
    "arguments of a signature": lambda c: c.add.s(2).apply_async((4,)),
    "arguments of an immutable one": lambda c: c.add.si(2, 3).delay(9),
    "a signature by name": lambda c: c.app.signature("add", args=(2, 2)).apply_async(),
    "a copy": lambda c: c.add.s(2).clone((5,)).set(priority=None).apply_async(),
    "a group": lambda c: c.group(c.add.s(n, n) for n in range(4))(),
    "arguments of a group": lambda c: c.group(c.add.s(1), c.add.s(2)).apply_async((4,)),
    "groups in groups": lambda c: c.group(c.group(c.ident.s(1), c.ident.s(2)), c.ident.s(3))(),
    "a chord": lambda c: c.chord([c.add.s(n, n) for n in range(4)])(c.wrap.s(mark="all")),
    "a chord at once": lambda c: c.chord([c.ident.s(1), c.ident.s(2)], c.wrap.s()).apply_async(),
    "a chord of one": lambda c: c.chord([c.ident.s(1)])(c.wrap.s()),
    "a chord of none": lambda c: c.chord([])(c.wrap.s()),
    "a chord whose body is a chain": lambda c: c.chord([c.ident.s(1), c.ident.s(2)])(c.wrap.s() | c.wrap.s()),
    "a group and a task": lambda c: (c.group(c.ident.s(1), c.ident.s(2)) | c.wrap.s())(),
    "a group of one and a task": lambda c: (c.group(c.ident.s(1)) | c.wrap.s())(),
    "a group of one in a chain": lambda c: c.chain(c.group(c.ident.s(1)), c.wrap.s())(),
    "a group of chains": lambda c: (c.group(c.chain(c.ident.s(1), c.add.s(2)), c.ident.s(3)) | c.wrap.s())(),
    "a task, a group and a task": lambda c: (c.ident.s(1) | c.group(c.add.s(1), c.add.s(2)) | c.wrap.s())(),
    "two groups": lambda c: c.chain(
        c.ident.s(1), c.group(c.add.s(1), c.add.s(2)), c.group(c.wrap.s(), c.wrap.s(mark="v"))
    )(),
    "a chain that ends in a group, in a group": lambda c: (
        c.group(c.chain(c.ident.s(1), c.group(c.add.s(1), c.add.s(2))), c.ident.s(9)) | c.wrap.s()
    )(),
    "a chord in a group": lambda c: (
        c.group(c.chord([c.ident.s(1), c.ident.s(2)], c.wrap.s()), c.ident.s(3)) | c.wrap.s()
    )(),
}
