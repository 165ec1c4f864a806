"""How a worker hears that jobs which it runs are to be cancelled, within a second.

``cancel()`` of a running job notifies all workers that listen, and each asks the database whether one of its jobs is
meant. A worker that cannot listen asks every second while it has jobs in hand. The heartbeat asks, too, so that a lost
notification costs one beat at most.
"""

from collections.abc import Callable, Sequence
from uuid import UUID

from pgqueue.store import claim
from pgqueue.worker.link import Link

EVERY = 0.8
"""Seconds between two looks of a worker that cannot listen; a service comes back within a tenth more."""


class Cancelling:
    """Asks which of the jobs in hand are to be cancelled, when there is a reason to."""

    def __init__(
        self,
        link: Link,
        *,
        worker: Callable[[], UUID],
        known: Callable[[], Sequence[int]],
        can_listen: Callable[[], bool],
        on_cancel: Callable[[Sequence[int]], object],
    ) -> None:
        """Begin with nothing heard.

        Args:
            link: the connection to ask on.
            worker: in whose name the jobs are held.
            known: every job in hand.
            can_listen: whether notifications are heard.
            on_cancel: told which jobs are to be cancelled.
        """
        self._link = link
        self._worker = worker
        self._known = known
        self._can_listen = can_listen
        self._on_cancel = on_cancel
        self._told = False

    def hear(self) -> None:
        """A job of some worker is to be cancelled."""
        self._told = True

    async def run_once(self) -> None:
        """Ask, if a notification was heard or none can be."""
        told, self._told = self._told, False
        known = self._known() if told or not self._can_listen() else ()
        if not known:
            return
        asked = await self._link.run(lambda: claim.cancel_requests(self._worker(), known))
        if asked:
            self._on_cancel(asked)
