"""What both kinds of take share: who they are, what they hold, and what to make of its end. Nothing here waits."""

import os
import socket
import time
from collections.abc import Sequence
from datetime import timedelta
from uuid import uuid4

from pgqueue.errors import InvalidOption, JobError, Superseded
from pgqueue.store import claim, finish, upkeep
from pgqueue.store.database import Database
from pgqueue.store.listener import listen_statement
from pgqueue.store.plan import Plan
from pgqueue.values.job import Claim
from pgqueue.values.verdict import Again, Buried, Returned, Succeeded, Verdict, describe
from pgqueue.values.version import __version__

POLL = 1.0


class Hold:
    """What both kinds of take share: who they are, what they hold, and what to make of its end."""

    def __init__(
        self,
        database: Database,
        count: int,
        *,
        queues: Sequence[str] | None,
        timeout: timedelta | None,
        lease: timedelta,
        keep: bool,
    ) -> None:
        """Describe a take.

        Args:
            database: where the jobs are.
            count: at most how many.
            queues: from these, in this order; None: from all.
            timeout: how long to wait for the first; None: for ever.
            lease: how soon others may have the jobs if this process dies.
            keep: whether completed jobs go to the history.

        Raises:
            InvalidOption: a value is out of its range.
        """
        if count < 1:
            raise InvalidOption(f"take({count!r}): take at least one job")
        self.database = database
        self.count = count
        self.queues = queues
        self.timeout = None if timeout is None else timeout.total_seconds()
        self.lease = lease
        self.keep = keep
        self.worker = claim.WorkerInfo(
            uuid4(), socket.gethostname(), os.getpid(), count, __version__, self.queues
        )
        self.held: dict[int, Claim] = {}
        self.unsettled: set[int] = set()
        self.looking = False
        self.taken_at = 0.0

    @property
    def beat(self) -> float:
        """Seconds between two renewals of the lease."""
        return self.lease.total_seconds() / 3

    def look(self) -> Plan[float]:
        """Claim what is ready into ``held``; returns for how long to wait if that was nothing."""
        self.looking = True
        if not (yield from claim.renew(self.worker.id, self.lease)):
            yield from claim.register(self.worker, self.lease)
        ticked = yield from upkeep.tick()
        if ticked.lost:
            yield from upkeep.reclaim()
        names = self.queues if self.queues is not None else (yield from claim.new_queues())
        for name in names:
            for one in (yield from claim.claim(self.worker.id, {name: self.count - len(self.held)})):
                self.held[one.id] = one
            if len(self.held) == self.count:
                break
        self.taken_at = time.monotonic()
        self.looking = False
        return POLL if ticked.next_in is None else max(0.0, min(POLL, ticked.next_in))

    def success(self, held: Claim) -> Succeeded:
        """What to record of a job that is done."""
        return Succeeded(held, time.monotonic() - self.taken_at)

    def failure(self, held: Claim, error: BaseException | str, delay: timedelta = timedelta(0)) -> Verdict:
        """What to record of a job that failed: another attempt after ``delay``, or none if that was the last."""
        described = describe(error if isinstance(error, BaseException) else JobError(error), held.attempt)
        if held.attempt >= held.max_attempts:
            return Buried(held, time.monotonic() - self.taken_at, "exhausted", described)
        return Again(held, delay, described)

    def ending(self, error: BaseException | None) -> list[Verdict]:
        """What becomes of everything still held when the block is left."""
        if error is None:
            return [self.success(held) for held in self.held.values()]
        if isinstance(error, Exception):
            return [self.failure(held, error) for held in self.held.values()]
        return [Returned(held) for held in self.held.values()]  # interrupted, not failed: attempts unspent

    def recording(self, verdicts: list[Verdict]) -> Plan[set[int]]:
        """Record verdicts; returns the ids that were still held."""
        return finish.finish(self.worker.id, verdicts, keep=self.keep)

    def giving_up(self) -> Plan[None]:
        """Leave the list; where something may be in this take's name all the same, that goes back, unspent."""
        if self.looking or self.held or self.unsettled:
            yield from claim.disown(self.worker.id, ())
        yield from claim.retire(self.worker.id)

    def let_go(self, verdicts: list[Verdict]) -> None:
        """Forget the claims of these verdicts.

        Raises:
            JobError: one of them is forgotten already.
        """
        for verdict in verdicts:
            if self.held.pop(verdict.claim.id, None) is None:
                raise JobError(f"job {verdict.claim.id} is settled already")
            self.unsettled.add(verdict.claim.id)

    def require_all(self, verdicts: list[Verdict], done: set[int]) -> None:
        """The database has spoken: tell whoever settled jobs if some were no longer theirs.

        Raises:
            Superseded: some were not.
        """
        self.unsettled -= {verdict.claim.id for verdict in verdicts}
        lost = sorted({verdict.claim.id for verdict in verdicts} - done)
        if lost:
            raise Superseded(f"the lease was lost, and with it job {', '.join(map(str, lost))}: not recorded")

    @property
    def listening(self) -> str | None:
        """The statement with which to listen, where that is possible."""
        return None if self.database.listen_dsn is None else listen_statement(self.database.catalogue)

    def settle(self, verdicts: list[Verdict]) -> None:  # noqa: ARG002 - for the kind that can
        """Record verdicts, and forget the claims. A take overrides this or :meth:`asettle`.

        Raises:
            Superseded: the lease was lost.
            JobError: one of the jobs is settled already, or this take is of the other kind.
        """
        raise JobError("this take is asynchronous; await job.acomplete() or job.afail()")

    async def asettle(self, verdicts: list[Verdict]) -> None:  # noqa: ARG002 - for the kind that can
        """Record verdicts, and forget the claims. A take overrides this or :meth:`settle`.

        Raises:
            Superseded: the lease was lost.
            JobError: one of the jobs is settled already, or this take is of the other kind.
        """
        raise JobError("this take is blocking; use job.complete() or job.fail()")
