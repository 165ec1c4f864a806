"""An exception as text: for the record of its job, and for the log.

An exception holds whatever a job gives it: a message of 100 MB, a chain of 10,000 causes, a property that raises. So
everything is cut before it is formatted, and nothing here raises. The format is that of :mod:`traceback`.
"""

import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from pgqueue.values.jobs.job import AttemptError
from pgqueue.values.payloads.storable import storable_text

PACKAGE: Final = f"{Path(__file__).parents[2]}/"
"""Where the files of pgqueue are."""
LONGEST_TYPE: Final = 200
LONGEST_MESSAGE: Final = 2_000
LONGEST_TRACEBACK: Final = 8_000
LONGEST_NOTES: Final = 4_000
"""Characters of all notes of an exception, the last ones: a note may be another traceback."""
LONGEST_LINE: Final = 500
"""Characters of a line of code, or of a file's name."""
MOST_EXCEPTIONS: Final = 20
"""Of a chain or a group that are described; the one that was raised last is the first of them."""
MOST_MEMBERS: Final = 15
"""Of a group, as many as Python shows."""
MOST_FRAMES: Final = 1_000
"""Of the first exception, which is Python's own limit of a recursion; of the n-th, an n-th of it."""


def describe(error: BaseException, attempt: int) -> AttemptError:
    """An exception as it is kept with the job: bounded in length, and safe to store as jsonb. Never raises."""
    return AttemptError(
        attempt=attempt,
        type=storable_text(_name(type(error))),
        message=storable_text(text_of(error)),
        traceback=traceback_of(error) if frames_of(error) else None,
    )


def text_of(error: object) -> str:
    """The first 2,000 characters of what an error says, even if its ``__str__`` raises."""
    return _cut(_said_by(error), slice(LONGEST_MESSAGE))


def traceback_of(error: BaseException) -> str:
    """The last 8,000 characters of what Python prints of an error that nothing catches. Never raises."""
    try:
        text = "".join(_explain(error, set()).format())
    except BaseException as broken:  # noqa: BLE001 - the exception's class, or what it holds, may do anything
        text = f"{_name(type(error))}: {text_of(error)}\n(its traceback cannot be shown: {_name(type(broken))})\n"
    return storable_text(text[-LONGEST_TRACEBACK:])


def _explain(error: BaseException, seen: set[int]) -> traceback.TracebackException:
    """What Python prints of an error and of those that it holds, without those that were seen or are too many."""
    seen.add(id(error))
    shown = traceback.TracebackException(
        _short_named(type(error)), _stand_in(error), frames_of(error), limit=-(MOST_FRAMES // len(seen))
    )
    shown.stack[:] = map(_short, _from_the_task(shown.stack))
    shown.__suppress_context__ = _own(BaseException, "__suppress_context__", error)
    shown.__cause__ = next(_held([_own(BaseException, "__cause__", error)], seen), None)
    if shown.__cause__ is None and not shown.__suppress_context__:
        shown.__context__ = next(_held([_own(BaseException, "__context__", error)], seen), None)
    if issubclass(type(error), BaseExceptionGroup):
        members = _own(BaseExceptionGroup, "exceptions", error)
        found = [*_held(members[:MOST_MEMBERS], seen)]
        if len(found) == MOST_MEMBERS:  # of the others Python prints how many there are
            found += found[-1:] * (len(members) - MOST_MEMBERS)
        shown.exceptions = found or None
    return shown


def _from_the_task(frames: Sequence[traceback.FrameSummary]) -> Sequence[traceback.FrameSummary]:
    """The frames from the first one that is not in this package: those before it are the same for every task.

    An error that was raised in this package, with no other code on the way, keeps all of them.
    """
    first = next((at for at, frame in enumerate(frames) if not frame.filename.startswith(PACKAGE)), 0)
    return frames[first:]


def _held(errors: Sequence[BaseException | None], seen: set[int]) -> Iterator[traceback.TracebackException]:
    for one in errors:
        if one is not None and id(one) not in seen and len(seen) < MOST_EXCEPTIONS:
            yield _explain(one, seen)


def _said_by(error: object) -> str:
    try:
        return str(error)
    except BaseException as broken:  # noqa: BLE001 - a task's exception may fail at anything, even at this, in any way
        return f"<its __str__ raised {_name(type(broken))}>"


class _Said(Exception):
    """Stands in for an error: what it says, cut, and where it is, if it is a SyntaxError."""

    filename = lineno = end_lineno = text = offset = end_offset = None
    msg: str | None = None


def _stand_in(error: BaseException) -> Exception:
    kind, said = type(error), _ends_of(_said_by(error))
    shown: Exception = _Said(said)
    if issubclass(kind, SyntaxError):
        vars(shown).update(_place(error, said))
    elif issubclass(kind, AttributeError):  # of these two Python knows the name that was meant
        shown = AttributeError(
            said, name=_own(AttributeError, "name", error), obj=_own(AttributeError, "obj", error)
        )
    elif issubclass(kind, NameError):
        shown = NameError(said, name=_own(NameError, "name", error))
    if notes := _notes(error):
        shown.add_note(notes)
    return shown


def _ends_of(text: str) -> str:
    """A text, or if it is long, its two ends: what comes last often says what is wrong."""
    length, half = len(text), LONGEST_MESSAGE // 2
    if length <= LONGEST_MESSAGE:
        return _cut(text, slice(length))
    return f"{_cut(text, slice(half))} … ({length:,} characters) … {_cut(text, slice(length - half, length))}"


def _place(error: BaseException, said: str) -> dict[str, object]:
    """The fields of a SyntaxError as Python can print them: a parser gives them any values."""
    found = {
        name: _own(SyntaxError, name, error)
        for name in ("msg", "filename", "text", "lineno", "end_lineno", "offset", "end_offset")
    }
    for name in ("msg", "filename", "text"):
        found[name] = _cut(found[name], slice(LONGEST_LINE)) if isinstance(found[name], str) else None
    bounds = {"lineno": 2**31, "end_lineno": 2**31, "offset": LONGEST_LINE, "end_offset": LONGEST_LINE}
    for name, most in bounds.items():
        if type(found[name]) is not int or not 0 <= found[name] <= most:
            found[name] = None
    return {**found, "msg": found["msg"] or said}


def _notes(error: BaseException) -> str:
    try:
        notes = error.__notes__
        return _cut("\n".join(_end_of(one) for one in notes[-MOST_EXCEPTIONS:]), slice(-LONGEST_NOTES, None))
    except BaseException:  # noqa: BLE001 - it has none, or they are no list, or a property that raises
        return ""


def _end_of(note: object) -> str:
    return _cut(str(note), slice(-LONGEST_NOTES, None))


def _short_named(kind: type[BaseException]) -> type[BaseException]:
    """The class, or one of a short name in place of it."""
    name = _name(kind)
    return kind if len(name) < LONGEST_TYPE else type(name, (Exception,), {"__module__": "builtins"})


def _short(frame: traceback.FrameSummary) -> traceback.FrameSummary:
    if max(len(frame.filename), len(frame.name), len(frame.line or "")) <= LONGEST_LINE:
        return frame
    line = (frame.line or "")[:LONGEST_LINE]
    return traceback.FrameSummary(
        frame.filename[-LONGEST_LINE:], frame.lineno, frame.name[:LONGEST_LINE], lookup_line=False, line=line
    )


def _name(kind: type[BaseException]) -> str:
    """The class in full; of the builtins, the short name."""
    name = _cut(_own(type, "__qualname__", kind), slice(LONGEST_TYPE))
    module = _own(type, "__module__", kind)
    plain = isinstance(module, str) and module != "builtins"
    return f"{_cut(module, slice(LONGEST_TYPE))}.{name}"[:LONGEST_TYPE] if plain else name


def frames_of(error: BaseException) -> TracebackType | None:
    """Where an error was raised; None: it was not. Never raises."""
    found: TracebackType | None = _own(BaseException, "__traceback__", error)
    return found


def _own(kind: type, name: str, of: object) -> Any:  # noqa: ANN401 - any attribute
    """An attribute as Python's own class has it, whatever the user's class makes of it."""
    return vars(kind)[name].__get__(of)


def _cut(text: str, part: slice) -> str:
    """A part of a text, as a plain string: a class of the user's may do this in its own way."""
    return str.__getitem__(text, part)
