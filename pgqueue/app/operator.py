"""Who changes something, where the caller does not say: the user and the host of this process."""

import socket
from contextlib import suppress


def me() -> str:
    """Like ``deploy@web-1``."""
    import getpass  # noqa: PLC0415 - for the few programs that change schedules and queues

    user = "unknown"
    with suppress(Exception):  # a container's user may have no name
        user = getpass.getuser()
    return f"{user}@{socket.gethostname()}"
