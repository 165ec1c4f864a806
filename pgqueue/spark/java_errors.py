"""Errors of Spark in one line. They carry Java's stack, of several hundred lines, and the cause stands near its end."""

from typing import Final

LONGEST: Final = 1_000
"""Characters of a line."""
_CALLING = "An error occurred while calling "
_CAUSE = "Caused by: "


def in_a_line(error: BaseException) -> str:
    """What an error says, and its innermost cause, without Java's stack.

    Args:
        error: any error; one of Python is told by its text.
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = [line.removeprefix(": ") for line in lines if not line.startswith(_CALLING)]
    if not told:
        return type(error).__name__
    head = told[0]
    causes = [line.removeprefix(_CAUSE) for line in told if line.startswith(_CAUSE)]
    said = f"{head}: {causes[-1]}" if causes and causes[-1] not in head else head
    return said if len(said) <= LONGEST else f"{said[:LONGEST]}…"


def is_of_spark(error: BaseException) -> bool:
    """Whether Spark, or its Java process, raised an error."""
    return type(error).__module__.partition(".")[0] in {"pyspark", "py4j"}
