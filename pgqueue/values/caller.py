"""Where in the user's code something was called: the first frame outside of this package."""

import sys
import warnings
from pathlib import Path
from types import FrameType

PACKAGE = str(Path(__file__).parents[1])


def caller() -> FrameType:
    """The innermost frame of code that is not pgqueue's own."""
    frame = sys._getframe()  # noqa: SLF001 - inspect.stack() reads every source file on the way
    while frame.f_back is not None and frame.f_code.co_filename.startswith(PACKAGE):
        frame = frame.f_back
    return frame


def warn_there(message: str, category: type[Warning]) -> None:
    """Warn with the user's line, however deep in this package the warning was found necessary."""
    frame = caller()
    warnings.warn_explicit(
        message,
        category,
        frame.f_code.co_filename,
        frame.f_lineno,
        module=frame.f_globals.get("__name__"),
        registry=frame.f_globals.setdefault("__warningregistry__", {}),
    )
