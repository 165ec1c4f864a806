"""The messages of errors without the secrets of their jobs; a list shows the same ones again and again."""

from typing import Final

from pgqueue.app.pgqueue import PgQueue

MOST: Final = 1_000
"""Messages that are kept."""


class Messages:
    """The messages of groups of dead jobs. To hide the secrets of one, its job is read: once."""

    def __init__(self) -> None:
        self._hidden: dict[tuple[str, int, str], str | None] = {}

    def hidden(self, shown: str, queue: PgQueue, message: str | None, job_id: int) -> str | None:
        """A message without the secrets of its job.

        Args:
            shown: the name of the queue in the dashboard.
            queue: the queue.
            message: what the error says.
            job_id: the job's.
        """
        if message is None:
            return None
        key = (shown, job_id, message)
        if key not in self._hidden:
            if len(self._hidden) >= MOST:
                self._hidden.clear()
            self._hidden[key] = queue.redaction.message(message, job_id, queue.job)
        return self._hidden[key]
