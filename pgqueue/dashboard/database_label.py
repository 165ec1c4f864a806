"""What the header calls the database that a page shows, so that production and staging do not look alike."""

import threading
from collections.abc import Mapping

from pgqueue.app.pgqueue import PgQueue
from pgqueue.store.connections.label import label_of


class DatabaseLabels:
    """The labels, by the name of the queue's database in this dashboard. Any thread may ask."""

    def __init__(self, queues: Mapping[str, PgQueue]) -> None:
        self._queues = queues
        self._known: dict[str, str] = {}
        self._lock = threading.Lock()

    def of(self, name: str, *, ask: bool) -> str:
        """Like ``shop on db-1.example, schema jobs``: the database, its host if that is another machine, and its schema if that is another one.

        Args:
            name: of the queue.
            ask: whether the database is asked for its name if that is not known yet; else its DSN says it.
        """
        if name not in self._known:
            label, sure = label_of(self._queues[name].database, ask=ask)
            if not sure:
                return label
            with self._lock:
                self._known[name] = label
        return self._known[name]
