"""Who changes something: the name that the caller gives, else the user and the host of this process."""

import socket
from contextlib import suppress

from pgqueue.values.jobs.options import check_text


def operator_name(by: str | None) -> str:
    """The name that the audit keeps.

    Args:
        by: the name that the caller gives; None or empty: :func:`me`.

    Raises:
        InvalidOption: PostgreSQL cannot hold it.
    """
    return check_text("by", by or me())


def me() -> str:
    """Like ``deploy@web-1``."""
    import getpass  # noqa: PLC0415 - for the few programs that change schedules and queues

    user = "unknown"
    with suppress(Exception):  # a container's user may have no name
        user = getpass.getuser()
    return f"{user}@{socket.gethostname()}"
