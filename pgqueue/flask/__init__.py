"""pgqueue in a Flask app: ``PgQueueFlask(app)``, or ``PgQueueFlask()`` and ``init_app(app)``.

``pgqueue --app pgqueue.flask:queue`` uses the queue of the Flask app that ``FLASK_APP`` names; ``flask pgqueue`` sets
this option for you.
"""

from typing import TYPE_CHECKING

from pgqueue.app.pgqueue import PgQueue
from pgqueue.store.connections.open_transaction import OWN_CONNECTION
from pgqueue.values.hints import extra_for

with extra_for("flask", "pgqueue.flask", "flask"):
    from pgqueue.flask.command import find_queue
    from pgqueue.flask.extension import PgQueueFlask

if TYPE_CHECKING:
    queue: PgQueue

__all__ = ["OWN_CONNECTION", "PgQueueFlask"]


def __getattr__(name: str) -> PgQueue:
    """Find ``queue`` at its first use: an import of this package must not load an app."""
    if name == "queue":
        return find_queue()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
