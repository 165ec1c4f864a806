"""Who changes something: the name that the caller or the command gives, else the user and the host of this process."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar

from pgqueue.values.jobs.options import LONGEST_REASON, check_text

_named: ContextVar[str | None] = ContextVar("pgqueue_operator", default=None)


@contextmanager
def acting(by: str | None) -> Iterator[None]:
    """Name who does what is done in this block, where the caller of a method names no one."""
    before = _named.set(by)
    try:
        yield
    finally:
        _named.reset(before)


def operator_name(by: str | None) -> str:
    """The name that the audit keeps.

    Args:
        by: the name that the caller gives; None or empty: that of :func:`acting`, else :func:`me`.

    Raises:
        InvalidOption: PostgreSQL cannot hold it, or it has more than 1,000 characters.
    """
    return check_text("by", by or _named.get() or me(), longest=LONGEST_REASON)


def me() -> str:
    """Like ``deploy@web-1``."""
    import getpass  # noqa: PLC0415 - for the few programs that change schedules and queues

    user = "unknown"
    with suppress(Exception):  # a container's user may have no name
        user = getpass.getuser()
    return f"{user}@{socket.gethostname()}"
