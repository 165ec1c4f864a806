"""Claims jobs: enough that no slot waits, and no more than will start soon.

How many claims to hold beyond the running ones is decided in :mod:`pgqueue.worker.pace`: a worker of long jobs holds none, a worker
of short jobs as many as a batch should have.

When no queue has a ready job, the worker is set *idle* in the database, and an enqueuer notifies it. While jobs trickle
in it stays idle. After 0.1 s of unbroken work it is set busy, because each notifying commit of the database waits for
one lock. A job that is committed while the worker is being set idle is found by the next poll
(:mod:`pgqueue.worker.upkeep`).
"""

import asyncio
import time
from collections.abc import Callable, Collection, Mapping
from typing import TypeVar

import psycopg

from pgqueue.errors import PgQueueError
from pgqueue.store.jobs import claim
from pgqueue.store.jobs.claim import Portions
from pgqueue.store.jobs.refusals import in_one_line, of_a_row
from pgqueue.store.limits import limits
from pgqueue.store.limits.lanes import waiting_queues
from pgqueue.store.limits.limits import LaneClaims
from pgqueue.store.limits.served_lanes import ServedLanes
from pgqueue.store.plan import Plan
from pgqueue.store.workers import leases
from pgqueue.values.jobs.job import Claim
from pgqueue.values.queues.served_queues import ServedQueues
from pgqueue.worker.claims import Claims
from pgqueue.worker.completer import Completer
from pgqueue.worker.connection import LOCKED, WorkerConnection
from pgqueue.worker.heartbeat import Heartbeat
from pgqueue.worker.joblog import worker_log
from pgqueue.worker.pace import Pace
from pgqueue.worker.queues import Queues
from pgqueue.worker.ready_and_lanes import MOST, MOST_QUEUES, CombinedDivision
from pgqueue.worker.runners import Runners
from pgqueue.worker.signals import Signals
from pgqueue.worker.troubles import Reminder

T = TypeVar("T")

log = worker_log()

LARGEST_CLAIM = 500
LARGEST_BACKLOG = 4_000
BUSY_AFTER = 0.1
PAUSE = 0.01
"""Seconds. Work is unbroken while the worker never waits longer than this for a job."""
GATHER_FOR = 0.01
"""Seconds. A busy worker that found few jobs waits this long before it looks again: fewer and larger claims."""

PASSES_OVER = "the database refuses to have a job claimed: this worker passes it over for a minute"
LANES_LOCKED_FOR = 5.0
"""Seconds for which nothing is claimed from lanes after another transaction had locked what a claim has to store."""
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0
"""Seconds for which nothing is claimed after the second answer in a row that could not be handled. It doubles with each."""


class Fetcher:
    """Claims jobs for the runners, and waits when there are none.

    Attributes:
        asks: how many times it asked for jobs.
        empty: how many times there were none.
        quiet: how many looks have found nothing in a row, neither now nor for later: those from the heads of all queues, at the end
            of a round of lanes that were searched.
        again_in: in how many seconds after the last look it looks at lanes again, for jobs that may start then; None: none is known.
    """

    def __init__(
        self,
        connection: WorkerConnection,
        *,
        claims: Claims,
        runners: Runners,
        completer: Completer,
        heartbeat: Heartbeat,
        queues: Queues,
        lanes: ServedLanes,
        served: ServedQueues,
        signals: Signals,
        leave_out: Callable[[Claim], bool],
    ) -> None:
        """``leave_out`` leaves the task of a claim to other workers; False: it cannot."""
        self._leave_out = leave_out
        self._connection = connection
        self._claims = claims
        self._runners = runners
        self._completer = completer
        self._heartbeat = heartbeat
        self._queues = queues
        self._lanes = lanes
        self._both = CombinedDivision(queues, lanes, served)
        self.again_in: float | None = None
        self._soonest: float | None = None  # again_in, as far as the look that goes on has seen
        self._lanes_searched = True
        self._lanes_unfinished = False
        self._lanes_locked_until = 0.0
        self._signals = signals
        self._pace = Pace()
        self._portions = Portions()
        self._most = LARGEST_CLAIM
        self.asks = 0
        self.empty = 0
        self.quiet = 0
        self._silent_since: float | None = None
        self._idle = True
        self._unbroken_since = time.monotonic()
        self._lanes_first = False
        self._unhandled = 0  # answers in a row
        self._reminder = Reminder()
        self._stopping = False
        self._waiting = False

    @property
    def waits(self) -> bool:
        """Whether it waits to be notified, and nothing has told it to look."""
        return self._waiting and not self._signals.look.is_set()

    def stop(self) -> None:
        """Claim no more."""
        self._stopping = True
        self._signals.look.set()

    async def run(self) -> None:
        """Fetch until stopped."""
        while not self._stopping:
            try:
                await self.run_once()
            except psycopg.Error as refusal:
                await self._note_refusal(refusal)

    async def run_once(self) -> None:
        """Claim what there is room for; wait for room, or for jobs, where there is none."""
        self._signals.look.clear()
        room = self._room()
        if room <= 0:
            self._signals.looked()
            if self._idle and self._claims.quiet:  # else enqueuers would notify it, at a cost, for nothing
                await self._set_idle(idle=False)
            await self._wait(within=None)  # a head that is due is no reason to look before there is room
            return
        self._soonest, self._lanes_searched = None, True
        found = await (self._claimed_of_both(room) if self._lanes.are_served else self._claim_ready(room))
        self.again_in = self._soonest
        self._signals.looked()
        if found is None:
            return
        self.asks += 1
        self.empty += not found
        self._signals.filled = len(found) >= room or self._queues.unfinished or self._lanes_unfinished
        self.quiet = 0 if found else self.quiet + self._has_seen_all()
        if self._unhandled:
            self._unhandled = 0
            self._reminder.ended()
        self._portions.learn(found)
        self._most = min(LARGEST_CLAIM, self._most * 2)
        if found:
            self._signals.activity.touch()
            if self._idle and time.monotonic() - self._unbroken_since > BUSY_AFTER:
                await self._set_idle(idle=False)
        if not self._signals.filled:
            await self._rest(found=bool(found))

    def _has_seen_all(self) -> bool:
        """Whether a look that found nothing tells that no job is there, nor one that may start later by a rate."""
        seen = self._queues.marks.from_heads and not self._signals.filled
        return seen and self._lanes_searched and self.again_in is None

    async def look_again(self) -> None:
        """If this worker has not looked for jobs in time, twice in a row: open the connection again, and look."""
        looked_at = self._signals.looked_at
        seconds = time.monotonic() - looked_at
        if seconds <= self._signals.look_within or self._stopping:
            self._silent_since = None
        elif (
            self._silent_since != looked_at
        ):  # perhaps the event loop was blocked: the fetcher has its turn first
            self._silent_since = looked_at
        else:
            log.warning(
                "no job was claimed or asked for in time: the worker opens its connection again",
                extra={"connection": self._connection.name, "seconds": round(seconds, 1)},
            )
            self._connection.cut()
            self._signals.look.set()

    async def _claim_ready(self, room: int) -> list[Claim] | None:
        """Claim ready jobs; return None if the answer could not be handled: then what was claimed has been ended."""
        return await self._run_claim(self._queues.claim(self._heartbeat.id, room), self._runners.add, room)

    async def _claimed_up_to(self, quotas: Mapping[str, int], room: int) -> list[Claim] | None:
        plan = self._queues.claim_up_to(self._heartbeat.id, quotas, room)
        return await self._run_claim(plan, self._runners.add, room)

    async def _claimed_of_both(self, room: int) -> list[Claim] | None:
        """Claim ready jobs and limited ones: divided among queues together, or each kind first in turn."""
        self._lanes_unfinished = False
        of_lanes = self._both.among(await self._queues_of_lanes())
        if of_lanes is not None:
            return await self._claimed_together(min(room, MOST), of_lanes)
        self._lanes_first = not self._lanes_first
        claim_first, claim_then = self._claim_ready, self._claimed_from_all_lanes
        if self._lanes_first:
            claim_first, claim_then = claim_then, claim_first
        first = await claim_first(room)
        if first is None or len(first) >= room:
            return first
        then = await claim_then(room - len(first))
        return None if then is None else [*first, *then]

    async def _claimed_together(self, room: int, of_lanes: Collection[str]) -> list[Claim] | None:
        """Claim of both kinds, divided among queues; and from queues that are not known yet, if it is time to search for them."""
        found = await self._both.claim(
            room, of_lanes, ready=self._claimed_up_to, lanes=self._claimed_from_lanes
        )
        if found is not None and self._queues.searches and (len(found) < room or self._queues.is_to_search):
            others = await self._claim_ready(room - len(found))
            found = None if others is None else [*found, *others]
        self._lanes_unfinished |= found is not None and len(found) >= room
        return found

    async def _queues_of_lanes(self) -> list[str]:
        """Return the queues in which jobs wait in lanes, if that decides how to claim."""
        if self._queues.split is None or not self._queues.searches:
            return []
        return await self._connection.run(waiting_queues(MOST_QUEUES + 1))

    async def _claimed_from_all_lanes(self, room: int) -> list[Claim] | None:
        return await self._claimed_from_lanes(self._lanes, room)

    async def _claimed_from_lanes(self, lanes: ServedLanes, room: int) -> list[Claim] | None:
        if (left := self._lanes_locked_until - time.monotonic()) > 0:
            self._look_again_in(left)
            return []
        try:
            taken = await self._run_claim(
                lanes.claim(self._heartbeat.id, room), self._add_taken, room, told=LOCKED
            )
        except LOCKED as error:
            # A claim from lanes waits only where it has to store limits that are new or have changed.
            self._lanes_locked_until = time.monotonic() + LANES_LOCKED_FOR
            self._look_again_in(LANES_LOCKED_FOR)
            log.warning(
                "limited jobs wait: another transaction has limits locked that this worker has to store",
                extra={"seconds": LANES_LOCKED_FOR, "error": str(error).strip()},
            )
            return []
        except psycopg.Error as refusal:
            await self._note_lanes_refusal(lanes, refusal)
            return []
        if taken is None:
            return None
        lanes.claimed()
        self._lanes_searched &= lanes.searched
        self._look_again_in(taken.again_in)
        if [*filter(self._leave_out, taken.unknown)]:
            self._look_again_in(limits.AGAIN)
            self._signals.unknown.set()
        self._lanes_unfinished |= lanes.unfinished
        self._signals.in_lanes = True
        return [*taken.claims]

    def _look_again_in(self, seconds: float | None) -> None:
        """Note that more may be claimed from lanes after this many seconds; None: not before jobs end or are added."""
        self._soonest = min(filter(None, (self._soonest, seconds)), default=None)

    def _add_taken(self, taken: LaneClaims) -> None:
        if taken.claims:
            self._runners.add(taken.claims, taken.waits, taken.since)

    async def _run_claim(
        self,
        plan: Plan[T],
        then: Callable[[T], object],
        room: int,
        *,
        told: tuple[type[Exception], ...] = (),
    ) -> T | None:
        """Claim; return None if jobs were claimed and the answer could not be handled: then their claims have been ended."""
        try:
            return await self._connection.run(plan, then=then, told=told)
        except Exception as error:
            if isinstance(error, PgQueueError) or getattr(error, "sqlstate", None) is not None:
                raise  # the server refused, or is away: nothing was claimed
            await self._set_aside(room, error)
            return None

    async def _set_aside(self, room: int, error: Exception) -> None:
        """End what was claimed and cannot be handled: of one job the attempt is spent, several are requeued unspent.

        Then jobs are claimed one at a time for a while, so that the job that cannot be handled spends its attempts and
        no other job does. If that is every job, the fault is this worker's: it waits longer after each.
        """
        log.error("the answer to a claim could not be handled", extra={"jobs": room}, exc_info=error)
        known = self._runners.known()
        worker = self._heartbeat.id
        await self._connection.run(
            claim.give_up(worker, known, error) if room == 1 else claim.return_unknown(worker, known)
        )
        self._most = 1
        self._unhandled += 1
        if self._unhandled > 1:
            await self._pause(self._unhandled - 2)

    async def _note_refusal(self, refusal: psycopg.Error) -> None:
        """Go on after the database has refused a claim: without the job whose fault it is, if it is one's; else after a pause.

        Jobs are then claimed one at a time, so that those before the refused one are claimed, and it is the first one.
        """
        self._unhandled += 1
        if not of_a_row(refusal):
            self._tell("the database refuses claims; the worker tries again", refusal)
        elif self._most > 1:
            self._most = 1
            return
        elif (head := await self._connection.run(self._queues.refused())) is not None:
            self._queues.pass_over(head)
            log.error(PASSES_OVER, extra={"job": head.id, "task": head.task, "error": in_one_line(refusal)})
            return
        await self._pause(self._unhandled - 1)

    async def _note_lanes_refusal(self, lanes: ServedLanes, refusal: psycopg.Error) -> None:
        """Claim ready jobs only, for a while; or limited ones one at a time, if one job is at fault."""
        if not of_a_row(refusal):
            self._lanes_locked_until = time.monotonic() + LANES_LOCKED_FOR
            self._look_again_in(LANES_LOCKED_FOR)
            self._tell("the database refuses claims of limited jobs; the worker tries again", refusal)
            return
        self._look_again_in(FIRST_PAUSE)
        if (head := await self._connection.run(lanes.refused())) is not None:
            log.error(PASSES_OVER, extra={"job": head[0], "task": head[1], "error": in_one_line(refusal)})

    def _tell(self, message: str, refusal: psycopg.Error) -> None:
        """Log a refusal that no single job causes: the first one, and then at growing intervals."""
        if self._reminder.failed():
            log.error(message, extra={"tries": self._reminder.failures, "error": in_one_line(refusal)})

    async def _pause(self, before: int) -> None:
        """Look for nothing, for twice as long with each pause before this one, or until the worker is stopped."""
        until = time.monotonic() + min(FIRST_PAUSE * 2 ** min(before, 10), LONGEST_PAUSE)
        while not self._stopping and (left := until - time.monotonic()) > 0:
            self._signals.look.clear()
            await self._wait(within=left)

    def _room(self) -> int:
        """Return how many to claim now; 0 while enough claims wait. Then ``signals.room_at`` says when to look again."""
        prefetch = self._pace.ahead(self._claims.size, self._claims.ended, self._claims.ran)
        room = 0
        if self._claims.queued <= prefetch // 2 and self._completer.backlog <= LARGEST_BACKLOG:
            room = min(LARGEST_CLAIM, self._most, self._portions.most, self._claims.room(prefetch))
        self._signals.room_at = prefetch // 2 if room <= 0 else -1
        return room

    async def _rest(self, *, found: bool) -> None:
        """The queues were empty at this look: wait to be notified, or have the worker set idle so that it will be."""
        if self._idle:
            began = time.monotonic()
            await self._wait(within=self._sooner(self._queues.marks.head_in()))
            if time.monotonic() - began > PAUSE:
                self._unbroken_since = time.monotonic()
        elif found:
            await self._wait(
                within=self._sooner(GATHER_FOR)
            )  # what follows in a flow does not wait that long
        else:
            await self._set_idle(idle=True)  # then look once more, for what was committed before this

    def _sooner(self, seconds: float) -> float:
        return seconds if self.again_in is None else min(seconds, self.again_in)

    async def _set_idle(self, *, idle: bool) -> None:
        await self._connection.run(leases.set_idle(self._heartbeat.id, idle=idle, taken=self._claims.taken))
        self._idle = idle

    async def _wait(self, *, within: float | None) -> None:
        """Wait for a reason to look, at most ``within`` seconds; None: without an end."""
        if self._stopping:
            return
        self._waiting = True
        try:
            async with asyncio.timeout(within):
                await self._signals.look.wait()
        except TimeoutError:
            pass
        finally:
            self._waiting = False
