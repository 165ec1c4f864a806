"""Finds the queue that an option ``app`` names, on the driver and on executors."""

import pkgutil
from functools import cache

from pgqueue.app.pgqueue import PgQueue
from pgqueue.errors import ConfigurationError

FORM = "use MODULE:ATTRIBUTE, for example shop.jobs:queue, of a module that the driver and all executors can import"


@cache
def find_app(app: str) -> PgQueue:
    """The queue that ``module:attribute`` names.

    Raises:
        ConfigurationError: there is no such module or attribute here, the import fails, or it is not a queue.
    """
    if app.count(":") != 1:
        raise ConfigurationError(f"app={app!r}: {FORM}")
    try:
        found = pkgutil.resolve_name(app)
    except Exception as error:
        raise ConfigurationError(f"app={app!r}: {type(error).__name__}: {error}; {FORM}") from error
    if not isinstance(found, PgQueue):
        raise ConfigurationError(f"app={app!r} is of type {type(found).__name__}, not a PgQueue; {FORM}")
    return found
