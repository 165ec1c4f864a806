"""Where an attempt is in its code: the stack of its thread, or of its coroutine. Files, lines and source lines; no values.

It is read in the heartbeat's thread, so also while a task blocks the event loop. A coroutine that waits has no thread: what it
waits in is followed from coroutine to coroutine. Reading disturbs nothing: an attempt that goes on meanwhile is read as it was,
or not at all.
"""

import linecache
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

from pgqueue.values.workers.worker import LONGEST
from pgqueue.worker import attempt, batches, before_attempt
from pgqueue.worker.attempt import Attempt
from pgqueue.worker.executor import Executor

DEEPEST: Final = 60
"""Calls that are shown, the innermost ones."""
LONGEST_LINE: Final = 200
"""Characters of a line."""
RUNS: Final = (
    Executor.run.__code__,
    Executor.run_plain.__code__,
    batches.run.__code__,
    batches.run_plain.__code__,
)
"""The functions whose local ``attempt`` is what a thread runs."""
OURS: Final = str(Path(attempt.__file__).parent)
DRIVES: Final[CodeType] = attempt._resume.__code__  # noqa: SLF001 - its local ``work`` is the task's coroutine
NOT_STARTED: Final = "the worker has not started it, or it ended a moment ago"
ALONE: Final = "it may have killed workers, so it runs in a process of its own, which this worker cannot look into: use py-spy there"
NOT_SEEN: Final = "its code was between two steps, and could not be seen; ask again"


def stack_of(attempt: Attempt | None) -> str:
    """Where an attempt is, as text; or why this cannot be said.

    Args:
        attempt: of the job; None: the worker runs none of it.
    """
    if attempt is None:
        return NOT_STARTED
    try:
        frames = _in_thread(attempt.whole) or _coroutine_calls(attempt.whole)
        if any(frame.f_code.co_filename == before_attempt.__file__ for frame in frames):
            return ALONE
        return _text([*_of_task(frames)]) if frames else NOT_SEEN
    except Exception as error:  # noqa: BLE001 - another thread runs this code meanwhile
        return f"it could not be read: {type(error).__name__}: {_storable(str(error))[:LONGEST_LINE]}"


def _in_thread(attempt: Attempt) -> list[FrameType]:
    """Return the calls of the thread that runs an attempt now, the outermost first; empty: no thread does."""
    for innermost in sys._current_frames().values():  # noqa: SLF001 - there is no other way, and it is documented
        calls: list[FrameType] = []
        frame: FrameType | None = innermost
        while frame is not None:
            if frame.f_code in RUNS and frame.f_locals.get("attempt") is attempt:
                return calls[::-1]
            calls.append(frame)
            frame = frame.f_back
    return []


def _coroutine_calls(attempt: Attempt) -> list[FrameType]:
    """Return the calls of a coroutine that waits, the outermost first."""
    coroutine = getattr(attempt.runner, "get_coro", lambda: None)()
    calls: list[FrameType] = []
    inside = False
    while (frame := _frame(coroutine)) is not None and len(calls) < sys.getrecursionlimit():
        if inside:
            calls.append(frame)
        inside |= frame.f_code in RUNS
        coroutine = frame.f_locals.get("work") if frame.f_code is DRIVES else _awaited_by(coroutine)
    return calls


def _frame(coroutine: Any) -> FrameType | None:  # noqa: ANN401 - a coroutine, a generator, or what has no frame
    for name in ("cr_frame", "gi_frame", "ag_frame"):
        if (frame := getattr(coroutine, name, None)) is not None:
            return frame if isinstance(frame, FrameType) else None
    return None


def _awaited_by(coroutine: Any) -> Any:  # noqa: ANN401 - a coroutine, a generator, or any awaitable
    for name in ("cr_await", "gi_yieldfrom", "ag_await"):
        if (found := getattr(coroutine, name, None)) is not None:
            return found
    return None


def _of_task(frames: Iterable[FrameType]) -> Iterator[FrameType]:
    """Yield the calls of the task, without the worker's own around it."""
    found = False
    for frame in frames:
        found |= not frame.f_code.co_filename.startswith(OURS)
        if found:
            yield frame


def _text(frames: list[FrameType]) -> str:
    lines: list[str] = []
    for frame in frames[-DEEPEST:]:
        code, number = frame.f_code, frame.f_lineno
        lines.append(f"{code.co_filename}:{number} in {code.co_name}"[-LONGEST_LINE:])
        if source := _source(code.co_filename, number):
            lines.append(f"    {source[:LONGEST_LINE]}")
    if len(frames) > DEEPEST:
        lines.insert(0, f"({len(frames) - DEEPEST:,} outer calls are left out)")
    return _storable("\n".join(lines))[-LONGEST:]


def _source(file: str, line: int) -> str:
    with suppress(Exception):  # a file's name may be anything
        return linecache.getline(file, line).strip()
    return ""


def _storable(text: str) -> str:
    return text.replace("\0", "\\x00").encode("ascii", "backslashreplace").decode()
