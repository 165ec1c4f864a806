"""Finds the line of the user's code that called pgqueue: the first frame outside this package."""

import sys
import warnings
from pathlib import Path
from types import FrameType

PACKAGE = str(Path(__file__).parents[1])


def caller() -> FrameType:
    """The innermost frame of code outside pgqueue."""
    frame = sys._getframe()  # noqa: SLF001 - inspect.stack() reads every source file
    while frame.f_back is not None and frame.f_code.co_filename.startswith(PACKAGE):
        frame = frame.f_back
    return frame


def warn_there(message: str, category: type[Warning]) -> None:
    """Warn with the user's line as the place, from any depth in this package."""
    frame = caller()
    warnings.warn_explicit(
        message,
        category,
        frame.f_code.co_filename,
        frame.f_lineno,
        module=frame.f_globals.get("__name__"),
        registry=frame.f_globals.setdefault("__warningregistry__", {}),
    )
