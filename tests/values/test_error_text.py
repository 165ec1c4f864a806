"""An exception as text: the words are Python's, and no exception is too long, too deep or too odd."""

import sys
import traceback
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from looking import calls_while

from pgqueue.values.jobs.error_text import (
    LONGEST_MESSAGE,
    LONGEST_TRACEBACK,
    LONGEST_TYPE,
    MOST_EXCEPTIONS,
    PACKAGE,
    describe,
    traceback_of,
)


def raised(error: BaseException) -> BaseException:
    try:
        raise error
    except type(error) as caught:
        return caught


def caught(code: Callable[[], object]) -> BaseException:
    try:
        code()
    except BaseException as error:  # noqa: BLE001 - whatever it raises
        return error
    raise AssertionError("it raised nothing")


def caused() -> None:
    try:
        int("a")
    except ValueError as error:
        raise LookupError("no a") from error


def in_a_handler() -> None:
    try:
        int("a")
    except ValueError:
        raise LookupError("no a")  # noqa: B904 - the context is what is tested


def without_context() -> None:
    try:
        int("a")
    except ValueError:
        raise LookupError("no a") from None


def recursion() -> None:
    recursion()


def noted() -> None:
    error = ValueError("no")
    error.add_note("first\nsecond")
    error.add_note("third")
    raise error


def group(many: int) -> None:
    inner = BaseExceptionGroup("inner", [raised(OSError(2, "no such file"))])
    raise BaseExceptionGroup("outer", [*(ValueError(number) for number in range(many)), inner])


ORDINARY: dict[str, Callable[[], object]] = {
    "cause": caused,
    "context": in_a_handler,
    "no context": without_context,
    "recursion": recursion,
    "notes": noted,
    "group": lambda: group(3),
    "wide group": lambda: group(18),
    "syntax": lambda: compile("x = (1,\ny = 3 +", "query", "exec"),
    "attribute": lambda: [].appendd,  # type: ignore[attr-defined]  # that is the mistake
    "name": lambda: lenn,  # type: ignore[name-defined]  # noqa: F821 - that is the mistake
    "exit": lambda: sys.exit(3),
    "import": lambda: __import__("no_such_module"),
}


@pytest.mark.parametrize("kind", ORDINARY)
def test_of_an_ordinary_error_the_text_is_pythons(kind: str) -> None:
    error = caught(ORDINARY[kind])
    assert traceback_of(error) == "".join(traceback.format_exception(error))


class Odd(ValueError):
    def __getattribute__(self, name: str) -> object:
        raise OSError(name)


class OddProperties(ValueError):
    @property
    def __cause__(self) -> Any:  # type: ignore[override]  # that is the mistake
        raise OSError

    @property
    def __notes__(self) -> Any:  # type: ignore[override]  # that is the mistake
        raise SystemExit


class OddText(ValueError):
    def __str__(self) -> Any:
        return 5  # noqa: PLE0307 - that is the mistake


class OwnText(str):
    __slots__ = ()

    def __getitem__(self, key: object) -> Any:
        raise OSError


class OddClass(type):
    @property
    def __module__(cls) -> Any:  # type: ignore[override]
        raise OSError


def _error_of_a_name(name: str) -> BaseException:
    kind = type(name, (ValueError,), {})
    found: BaseException = kind("no")
    return found


def _with_notes(notes: object) -> BaseException:
    error = ValueError("no")
    vars(error)["__notes__"] = notes
    return error


def _syntax_error(*args: Any) -> BaseException:
    return SyntaxError(*args)


def _of_itself() -> BaseException:
    error, other = ValueError("no"), KeyError("a")
    error.__cause__, other.__cause__ = other, error
    return error


ODD: dict[str, Callable[[], BaseException]] = {
    "offset is a float": lambda: _syntax_error("bad token", ("query", 1, 2.5, "a b c")),
    "offset is huge": lambda: _syntax_error("bad token", ("query", 1, 10**9, "a b c", 1, 2 * 10**9)),
    "line is endless": lambda: _syntax_error("bad token", ("query", 10**6_000, 1, "a b c")),
    "text is bytes": lambda: _syntax_error("bad token", ("query", 1, 2, b"a b c")),
    "text is a number": lambda: _syntax_error("bad token", (1, "2", -3, 4)),
    "message is none": lambda: _syntax_error(None, ("query", 1, 2, "a")),
    "attributes raise": lambda: Odd("no"),
    "properties raise": lambda: OddProperties("no"),
    "str returns no str": lambda: OddText("no"),
    "str returns its own str": lambda: ValueError(OwnText("no")),
    "class raises": lambda: OddClass("Own", (ValueError,), {})("no"),
    "notes are numbers": lambda: _with_notes([1, None, OddText("x")]),
    "notes are a number": lambda: _with_notes(5),
    "its own cause": _of_itself,
}


@pytest.mark.parametrize("kind", ODD)
def test_an_error_that_python_cannot_format_has_a_text_all_the_same(kind: str) -> None:
    error = ODD[kind]()
    described = describe(caught(lambda: _raise(error)), 1)
    assert described.type
    assert described.message
    assert described.traceback is not None
    assert "in _raise" in described.traceback or "cannot be shown" in described.traceback


def _raise(error: BaseException) -> None:
    raise error


def _chain(length: int) -> BaseException:
    error: BaseException = ValueError(0)
    for number in range(1, length):
        error, former = ValueError(number), raised(error)
        error.__context__ = former
    return raised(error)


MEGABYTE = 1_000_000
LONG: dict[str, Callable[[int], BaseException]] = {
    "message": lambda length: ValueError("x" * length),
    "lines": lambda length: ValueError("\n" * length),
    "key": lambda length: KeyError("x" * length),
    "notes": lambda length: _with_notes(["\n" * length, "x" * length]),
    "many notes": lambda length: _with_notes(["x"] * length),
    "name": lambda length: _error_of_a_name("E" * length),
    "name of lines": lambda length: _error_of_a_name("\n" * length),
    "chain": lambda length: _chain(length // 1_000),
    "group": lambda length: ExceptionGroup("g", [ValueError(one) for one in range(length // 10)]),
    "deep group": lambda length: _nested(length // 10_000),
    "syntax": lambda length: SyntaxError("m" * length, ("f" * length, 1, length, "t" * length)),
    "name of a file": lambda length: caught(lambda: exec(compile("1 / 0", "f" * length, "exec"))),  # noqa: S102 - code of that file
    "frames": lambda length: _in_frames(1_000 + length // 10_000),
    "frames of a chain": lambda length: _in_frames(1_000 + length // 10_000, _in_frames(length // 10_000)),
}
COPIES = {"key": 2, "syntax": 3, "name of a file": 3, "group": 2}
"""How many times Python itself copies the text, or the list of a group's members."""


def _in_frames(depth: int, before: BaseException | None = None) -> BaseException:
    """An error that was raised below many calls that differ."""
    source = "".join(f"def f{n}(e):\n  f{n + 1}(e)\n" for n in range(depth)) + f"def f{depth}(e): raise e\n"
    names: dict[str, Any] = {}
    exec(compile(source, "deep.py", "exec"), names)  # noqa: S102 - a deep stack, in one line
    error = ValueError("no")
    error.__context__ = before
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(depth + limit)
    try:
        return caught(lambda: names["f0"](error))
    finally:
        sys.setrecursionlimit(limit)


def _nested(depth: int) -> BaseException:
    error: Exception = ValueError("no")
    for _ in range(depth):
        error = ExceptionGroup("g" * 100, [error])
    return error


@pytest.mark.parametrize("kind", LONG)
def test_an_error_of_any_length_has_a_short_text_and_costs_no_more_steps(kind: str) -> None:
    short, long = (raised(LONG[kind](length)) for length in (100 * 1_000, 20 * MEGABYTE))
    described = describe(long, 1)
    assert described.traceback is not None
    assert len(described.type) <= LONGEST_TYPE
    assert len(described.message) <= LONGEST_MESSAGE
    assert len(described.traceback) <= LONGEST_TRACEBACK

    describe(short, 1)  # Python reads the lines of the code once
    least, most = calls_while(lambda: describe(short, 1)), calls_while(lambda: describe(long, 1))
    assert most < 2 * least + 500, (least, most)
    assert _bytes_taken_by(lambda: describe(long, 1)) < MEGABYTE * (2 + 20 * COPIES.get(kind, 0))


def _bytes_taken_by(work: Callable[[], object]) -> int:
    """At the most at one time."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_notes_leave_room_for_the_lines_of_the_code() -> None:
    text = traceback_of(raised(_with_notes(["x" * 3_000] * 5)))
    assert "in raised\n" in text
    assert text.rstrip().endswith("x" * 3_000)


def test_of_a_chain_the_last_exceptions_are_shown() -> None:
    text = traceback_of(_chain(1_000))
    assert text.rstrip().endswith("ValueError: 999")
    assert f"ValueError: {1_000 - MOST_EXCEPTIONS}\n" in text
    assert f"ValueError: {999 - MOST_EXCEPTIONS}\n" not in text


def under_the_worker(task: Callable[[], object]) -> str:
    """The traceback of a task's error, as a function of this package that called the task catches it."""
    ours = compile("def run(task):\n    task()\n", f"{PACKAGE}worker/executor.py", "exec")
    exec(ours, space := dict[str, Any]())  # noqa: S102 - a frame of ours above the task's
    error = caught(lambda: space["run"](task))
    while error.__traceback__ is not None and error.__traceback__.tb_frame.f_code.co_name != "run":
        error.__traceback__ = error.__traceback__.tb_next
    return traceback_of(error)


def test_the_traceback_of_a_tasks_error_begins_in_the_task() -> None:
    text = under_the_worker(lambda: _raise(ValueError("mine")))
    assert text.startswith("Traceback (most recent call last):\n")
    assert "worker/executor.py" not in text
    assert text.count('  File "') == 2  # the task, _raise


def test_an_error_of_this_package_keeps_its_frames() -> None:
    text = under_the_worker(None)  # type: ignore[arg-type]  # the call itself fails
    assert "worker/executor.py" in text
