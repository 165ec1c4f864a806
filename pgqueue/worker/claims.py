"""The worker's claims in memory, from their arrival to their verdicts, and the slots in which they run.

This is bookkeeping only: :mod:`pgqueue.worker.runners` decides what runs them, :mod:`pgqueue.worker.completer` records verdicts, and
:mod:`pgqueue.worker.held_claims` holds what may not start yet. The event loop, threads of plain functions and the heartbeat's
thread call it, so every change of more than one step is made under one lock.
"""

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any
from uuid import UUID

from pgqueue.app.context import AttemptHost, Context
from pgqueue.app.task import Task
from pgqueue.values.jobs.job import Claim
from pgqueue.values.jobs.verdict import Verdict
from pgqueue.worker.attempt import Attempt, BatchAttempt, BatchMember
from pgqueue.worker.held_claims import GatheredBatch, HeldClaims, Startable, each_claim, take_out

NO_WAITS: Mapping[int, float] = MappingProxyType({})


class Claims:
    """Claims that wait, attempts that run, and verdicts that are not being written yet.

    Attributes:
        lock: to be held for every change of more than one step.
        size: how many slots there are; after :meth:`resize` more may be taken for a while.
        largest: how many there may be.
        quiet: whether no more claims are wanted; what runs goes on.
        waiting: claims and batches that wait for a slot, in order.
        held: claims that may not start yet.
        running: attempts by job id. The caller that removes an attempt from this map decides its verdict.
        verdicts: what the completer has to write, in order.
        taken: slots of runners, including a runner that is on its way, and what their attempts take beside.
        coming: whether a runner is on its way. Only one is at a time.
        ended, ran: how many attempts have ended, and for how many seconds these ran, all together.
        left: attempts whose job has ended, or is no longer this worker's, and whose function has not returned: each keeps its slot.
        unsaid: whether more or fewer functions go on after their timeout than the worker has said.
        rests: whether none is claimed: one that waited for several slots was given back, and another worker has these slots.
        replaced: attempts whose job this worker claimed again; the caller of :meth:`take` stops them.
        most: how many attempts the worker is to run in all.
    """

    def __init__(
        self,
        size: int,
        *,
        tasks: Mapping[str, Task[..., Any]],
        host: AttemptHost,
        batch_tasks: Collection[str] = (),
    ) -> None:
        """``tasks`` is read under the lock, so looking up a task must not block. Claims of ``batch_tasks`` run in batches."""
        self.lock = threading.Lock()
        self.size = self.largest = size
        self.quiet = False
        self.waiting: deque[Startable] = deque()
        self.held = HeldClaims(tasks, batch_tasks, host.codec)
        self.running: dict[int, Attempt] = {}
        self.verdicts: list[Verdict] = []
        self.replaced: list[Attempt] = []
        self.taken, self.coming = 0, False
        self.ended = 0
        self.ran = 0.0
        self.most: float = math.inf
        self.left: set[Attempt] = set()
        self.unsaid = self.rests = False
        self._tasks = tasks
        self._batch_tasks = batch_tasks
        self._host = host
        self._former: set[UUID] = set()
        self._closed = False
        self._open = size  # slots in which attempts may start
        self._extra = 0  # slots that attempts take beside those of their runners
        self._beside_waiting = 0  # claims of the batches in waiting, less one for each batch
        self._beside_running = 0  # the same of those that run: a batch takes one slot

    @property
    def queued(self) -> int:
        """How many claims wait for a slot."""
        return len(self.waiting) + self._beside_waiting

    @property
    def not_returned(self) -> int:
        """How many functions go on after their timeout, or after their job was lost. Any thread may ask."""
        return len(self._going_on())

    @property
    def stuck(self) -> bool:
        """Whether such functions keep every slot, so that nothing starts until one returns. Any thread may ask."""
        return 0 < self.size <= _slots(self._going_on())

    @property
    def kept(self) -> int:
        """How many slots functions keep whose job has ended, or is no longer this worker's. Any thread may ask."""
        return _slots(set(self.left))

    @property
    def overdue(self) -> list[int]:
        """The jobs that wait for the return of such a function. Any thread may ask."""
        return [attempt.claim.id for attempt in self._overdue()]

    def room(self, ahead: int) -> int:
        """How many claims to add until every slot is full and ``ahead`` claims wait, or a batch is full for a free slot."""
        if not self._open:
            return 0
        used = len(self.running) - self._beside_running + len(self.left) + self._extra
        held = self.queued + self.held.count
        if self.rests or (used >= self.size and self.stuck) or self.heavy() is not None:
            return 0
        room = int(min(self.size + ahead - used - held, self.most - self.ended - len(self.running) - held))
        if not self.held.gathered:
            return room
        with self.lock:
            missing = self.held.missing() if used + len(self.waiting) < self.size else 0
        return max(room, int(min(missing, self.most - self.ended - len(self.running) - held)))

    def unstarted(self) -> list[Claim]:
        """All claims that have not started. To be called under the lock."""
        return [*each_claim(self.waiting), *self.held.claims()]

    def resize(self, size: int) -> None:
        """Have this many slots. Attempts in slots beyond that go on, and the runner of such a slot leaves at their end."""
        with self.lock:
            self.size = size
            self._reopen()

    def set_quiet(self, *, on: bool) -> None:
        """Start nothing more, or start again."""
        with self.lock:
            self.quiet = on
            self._reopen()

    def close(self) -> None:
        """Start nothing more, for good."""
        with self.lock:
            self._closed = True
            self._reopen()

    def add(self, claims: Sequence[Claim], waits: Mapping[int, float] = NO_WAITS, since: float = 0.0) -> bool:
        """Take claims of one worker id; False: its lease was lost, and they are no longer this worker's.

        Args:
            claims: in order.
            waits: in how many seconds some of them start, by job; the others start as soon as a slot is free.
            since: from when on the waits count, in seconds of the monotonic clock.
        """
        with self.lock:
            if claims and claims[0].worker_id in self._former:
                return False
            if waits:
                for claim in claims:
                    self.held.appoint(claim, since + waits.get(claim.id, 0.0))
            elif self._batch_tasks:
                self._put(self.held.gather(claims, time.monotonic()))
            else:
                self.waiting.extend(claims)
            return True

    def release_due(self) -> float | None:
        """Have claims start whose instant has come, and make batches of those that wait no longer; seconds until the next ones are due."""
        with self.lock:
            now = time.monotonic()
            self._put(self.held.take_due(now))
            return None if self.held.due == math.inf else self.held.due - now

    def reserve(self) -> bool | None:
        """Take a slot for a runner that is to come.

        Returns:
            Whether it is to run plain functions; None: no runner is needed, or one is on its way.
        """
        with self.lock:
            if self.coming or not self.waiting or self.taken >= self._open or self.heavy() is not None:
                return None
            self.coming = True
            self.taken += 1
            return self._is_plain(self.waiting[0])

    def unreserve(self) -> None:
        """No runner will come: its slot is free."""
        with self.lock:
            self.coming = False
            self.taken -= 1

    def take(self, *, plain: bool) -> Attempt | None:
        """Start the next attempt, if it is of the runner's kind; None: it is not, and the runner's slot is free."""
        with self.lock:
            if self.taken > self._open or not self.waiting:
                self.taken -= 1
                return None
            claim = self.waiting[0]
            task = self._tasks.get(claim.task)
            extra = 0 if task is None or task.slots == 1 else self._slots_of(claim) - 1
            if (task is None or not task.in_thread) is plain or (
                extra and self.taken > max(1, self._open - extra)
            ):
                self.taken -= 1
                return None
            del self.waiting[0]
            if isinstance(claim, GatheredBatch) or (
                self._batch_tasks and task is not None and claim.task in self._batch_tasks
            ):
                return self._start(claim, self._tasks[claim.task])
            if claim.id in self.running:
                self._replace(self.running[claim.id])
            attempt = self.running[claim.id] = Attempt(claim, task, Context(claim, self._host), plain=plain)
            if extra:
                attempt.extra, self._extra, self.taken = extra, self._extra + extra, self.taken + extra
            return attempt

    def settle(self, attempt: Attempt, verdict: Verdict | None) -> bool:
        """End an attempt; False: another caller has ended it, and nothing was changed."""
        with self.lock:
            if self.running.get(attempt.claim.id) is not attempt:
                self._return(attempt)
                return isinstance(attempt, BatchAttempt) and self._settle_batch(attempt)
            if attempt.overdue is not None:
                verdict, self.unsaid = verdict and attempt.overdue, True
            del self.running[attempt.claim.id]  # not _end: that is one more call for every job
            self.ended += 1
            self.ran += attempt.context.seconds
            if verdict is not None:
                self.verdicts.append(verdict)
            return True

    def overrun(self, attempt: Attempt, verdict: Verdict | None, *, keep: bool) -> bool:
        """Note that a function goes on after its time is over; False: its attempt has ended, or has been noted.

        Args:
            attempt: which. Its slot stays taken.
            verdict: what becomes of the job.
            keep: whether the job stays running until the function returns.
        """
        with self.lock:
            mine = self.running.get(attempt.claim.id) is attempt
            # Of a coroutine another worker may have the job now, and its function goes on here.
            if attempt.whole in self.left or (attempt.plain and not mine):
                return False
            self.unsaid = True
            if mine and keep:
                attempt.overdue = verdict
                return True
            if mine:
                self._end(attempt, verdict if attempt.overdue is None else attempt.overdue)
            self._leave(attempt)
            return True

    def leave(self, last: Attempt | None) -> None:
        """A runner ends after this attempt, and gives back its slot; None: :meth:`take` gave it none, and has freed the slot."""
        with self.lock:
            if last is not None:
                self._return(last)
                self._extra -= last.extra
                self.taken -= 1 + last.extra

    def drop(
        self,
        judge: Callable[[Claim], Verdict],
        job_ids: Container[int] | None = None,
        *,
        plain: bool | None = None,
        held: bool = True,
    ) -> int:
        """End claims that have not started, with these verdicts; how many.

        Args:
            judge: makes the verdict.
            job_ids: only these jobs.
            plain: only those of plain functions, or of other tasks.
            held: whether those that may not start yet are meant, too.
        """

        def is_meant(claim: Claim) -> bool:
            return (job_ids is None or claim.id in job_ids) and (
                plain is None or self._is_plain(claim) is plain
            )

        with self.lock:
            dropped = [claim for claim in each_claim(self.waiting) if is_meant(claim)]
            if dropped:
                self._beside_waiting = take_out(self.waiting, dropped)
            if held:
                dropped += self.held.drop(is_meant)
            self.verdicts += map(judge, dropped)
            return len(dropped)

    def abandon(self, former: UUID) -> tuple[list[Attempt], list[Claim]]:
        """Drop everything: the lease of this worker id is lost. The attempts that ran, and all claims."""
        with self.lock:
            self._former.add(former)
            attempts = list(self.running.values())
            ended = [verdict.claim for verdict in self.verdicts]
            lost = [*(attempt.claim for attempt in attempts), *self.unstarted(), *ended]
            self.waiting.clear()
            self._beside_waiting = 0
            self.held.drop(lambda _: True)
            self.verdicts.clear()
            for attempt in attempts:
                self._end(attempt, None)
                self._leave_if_it_goes_on(attempt)
            return attempts, lost

    def _slots_of(self, claim: Startable) -> int:
        """How many slots its attempt takes: no more than there are, without those of functions that go on."""
        task = self._tasks.get(claim.task)
        if task is None or task.slots == 1:
            return 1
        return max(1, min(task.slots, self.largest - _slots(self._going_on())))

    def heavy(self) -> tuple[Claim, int] | None:
        """The next claim, if it waits for several slots, and for how many. Then none is claimed: small ones would keep it waiting for ever.

        If nothing runs, it waits for none: a worker that has chosen to have few slots runs it alone.
        """
        with suppress(IndexError):  # another thread may take it
            slots = self._slots_of(head := self.waiting[0])
            if slots > 1 and self.taken > max(0, self._open - slots) and not isinstance(head, GatheredBatch):
                return head, slots
        return None

    def _going_on(self) -> set[Attempt]:
        return self.left | {attempt.whole for attempt in self._overdue()}

    def _overdue(self) -> list[Attempt]:
        return [attempt for attempt in list(self.running.values()) if attempt.overdue is not None]

    def _reopen(self) -> None:
        self._open = 0 if self._closed or self.quiet else self.size

    def _put(self, ready: Sequence[Startable]) -> None:
        self.waiting += ready
        self._beside_waiting += sum(len(one.claims) - 1 for one in ready if isinstance(one, GatheredBatch))

    def _start(self, batch: Startable, task: Task[..., Any]) -> Attempt:
        # A claim that came before its task was loaded is one by itself.
        claims = batch.claims if isinstance(batch, GatheredBatch) else [batch]
        whole = BatchAttempt(claims, task, self._host)
        self._beside_waiting -= len(claims) - 1
        self._beside_running += len(claims) - 1
        for one in whole.members:
            if one.claim.id in self.running:
                self._replace(self.running[one.claim.id])
            self.running[one.claim.id] = one
        return whole

    def _settle_batch(self, whole: BatchAttempt) -> bool:
        # Not _end() for each job: this saves a fifth of what a batch costs.
        running = self.running
        ended = [one for one in whole.members if running.get(one.claim.id) is one]
        for one in ended:
            del running[one.claim.id]
        self.verdicts += [one.overdue or one.verdict for one in ended if one.verdict is not None]
        self.ended += len(ended)
        self.ran += sum(one.context.seconds for one in ended)
        self._beside_running -= max(whole.left - 1, 0)
        whole.left = 0
        return bool(ended)

    def _is_plain(self, claim: Startable) -> bool:
        task = self._tasks.get(claim.task)
        return task is not None and task.in_thread

    def _end(self, attempt: Attempt, verdict: Verdict | None) -> None:
        del self.running[attempt.claim.id]
        self.ended += 1
        self.ran += attempt.context.seconds
        if isinstance(attempt, BatchMember):
            attempt.whole.left -= 1
            self._beside_running -= attempt.whole.left > 0
        if verdict is not None:
            self.verdicts.append(verdict)

    def _replace(self, attempt: Attempt) -> None:
        """The job of a running attempt was claimed again: a server that crashed had forgotten the first claim."""
        self._end(attempt, None)
        self._leave_if_it_goes_on(attempt)
        self.replaced.append(attempt)

    def _leave_if_it_goes_on(self, attempt: Attempt) -> None:
        if attempt.plain or attempt.overdue is not None:  # a coroutine that is in time heeds its cancellation
            self._leave(attempt)

    def _return(self, attempt: Attempt) -> None:
        if attempt in self.left:
            self.left.discard(attempt)
            self.unsaid = True

    def _leave(self, attempt: Attempt) -> None:
        """Note a function that goes on without its job; of a batch, once each of its jobs has ended."""
        if not isinstance(attempt, BatchMember) or not attempt.whole.left:
            self.left.add(attempt.whole)


def _slots(attempts: Iterable[Attempt]) -> int:
    return sum(1 + one.extra for one in attempts)
