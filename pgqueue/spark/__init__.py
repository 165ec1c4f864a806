"""Job history on Spark: a data source, a sink, a lake, roll-ups and a report; and a DataFrame through workers and back.

``session()`` is a Spark session that knows ``format("pgqueue")``; in any other session
``spark.dataSource.register(PgQueueSource)`` does it. :func:`apply` calls a task for each row of a DataFrame; :func:`arguments` has the
jobs of a task, with their arguments as columns.
"""

import importlib as _importlib
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

if _TYPE_CHECKING:
    from pgqueue.spark.loop.apply import apply, results
    from pgqueue.spark.loop.progress import Progress
    from pgqueue.spark.loop.runs import cancel, status
    from pgqueue.spark.typed.frames import arguments

__all__ = ["Progress", "apply", "arguments", "cancel", "results", "status"]
_HOME = {
    "Progress": "pgqueue.spark.loop.progress",
    "apply": "pgqueue.spark.loop.apply",
    "arguments": "pgqueue.spark.typed.frames",
    "cancel": "pgqueue.spark.loop.runs",
    "results": "pgqueue.spark.loop.apply",
    "status": "pgqueue.spark.loop.runs",
}


def __getattr__(name: str) -> _Any:  # noqa: ANN401 - a module's attribute
    """Load what a program asks for."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(_importlib.import_module(_HOME[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
