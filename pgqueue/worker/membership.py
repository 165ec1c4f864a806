"""Being a worker: a fresh name, a lease, and what to do when it is lost."""

import logging
import os
import socket
from collections.abc import Callable, Sequence
from datetime import timedelta
from uuid import UUID, uuid4

from pgqueue.store import claim
from pgqueue.values.version import __version__
from pgqueue.worker.link import Link

log = logging.getLogger("pgqueue.worker")


class Membership:
    """A worker's row in ``workers``. It shares the fetcher's link, so that no claim is on its way meanwhile."""

    def __init__(
        self,
        link: Link,
        *,
        lease: timedelta,
        concurrency: int,
        queues: Sequence[str] | None,
        known: Callable[[], Sequence[int]],
        on_lost: Callable[[UUID], object],
        on_joined: Callable[[], object],
        on_cancel: Callable[[Sequence[int]], object],
    ) -> None:
        """Prepare to join.

        Args:
            link: the connection on which jobs are claimed, too.
            lease: how soon others may have the claims if this process dies.
            concurrency: how many jobs it runs at a time.
            queues: what it serves; None: all.
            known: every job it knows to be in its name.
            on_lost: told the old name when the lease is lost: whatever it held is somebody else's now.
            on_joined: called when it has joined afresh after that.
            on_cancel: told which of its jobs somebody asked to cancel.
        """
        self._link = link
        self._lease = lease
        self._concurrency = concurrency
        self._queues = queues
        self._known = known
        self._on_lost = on_lost
        self._on_joined = on_joined
        self._on_cancel = on_cancel
        self._losses_seen = 0
        self.id = uuid4()

    async def join(self) -> None:
        """Make this worker known."""
        info = claim.WorkerInfo(
            self.id, socket.gethostname(), os.getpid(), self._concurrency, __version__, self._queues
        )
        await self._link.run(lambda: claim.register(info, self._lease))

    async def beat(self) -> None:
        """Renew the lease and compare notes with the database; if it is lost, let go and join afresh."""
        losses = self._link.losses
        sure = losses == self._losses_seen
        beat = await self._link.run(
            lambda: claim.beat(self.id, self._lease, self._known(), sure=sure),
            then=self._heed,
            whole=not sure,
        )
        self._losses_seen = losses
        if beat is None:
            await self.join()
            self._on_joined()
            return
        if beat.disowned:
            log.warning("returned claims whose answer was lost", extra={"jobs": beat.disowned})
        self._on_cancel(beat.to_cancel)

    async def leave(self) -> None:
        """Return whatever is still in this worker's name, and take it off the list."""
        if self._known() or self._link.losses != self._losses_seen:
            await self._link.run(lambda: claim.disown(self.id, ()), whole=True)
        await self._link.run(lambda: claim.retire(self.id))

    def _heed(self, beat: claim.Beat | None) -> None:
        if beat is None:
            log.error("lease lost: its jobs are other workers' now", extra={"worker": str(self.id)})
            lost, self.id = self.id, uuid4()
            self._on_lost(lost)
