"""Keeps claims in hand: enough that no slot waits, no more than will start at once.

How many to hold beyond the running ones follows from how fast they end (Little's law: rate times horizon), so
a worker of long jobs prefetches next to nothing, and one of short jobs as much as a batch should have.

When the lines are empty the worker waits to be told. It is on the list of those who *sleep*, and whoever enqueues
notifies it, while jobs trickle in. After a tenth of a second of unbroken work it asks for silence, since every
notifying commit of the database queues up behind one lock. A job that slips in as it falls asleep is found by the
next tick (:mod:`pgqueue.worker.upkeep`).
"""

import asyncio
import math
import time
from collections.abc import Callable

from pgqueue.errors import PgQueueError
from pgqueue.store import claim
from pgqueue.store.portions import Portions
from pgqueue.values.job import Claim
from pgqueue.worker.completer import Completer
from pgqueue.worker.connection import WorkerConnection
from pgqueue.worker.heartbeat import Heartbeat
from pgqueue.worker.joblog import worker_log
from pgqueue.worker.queues import Queues
from pgqueue.worker.runners import Runners
from pgqueue.worker.signals import Activity

log = worker_log()

LARGEST_PREFETCH = 1_000
LARGEST_CLAIM = 500
LARGEST_BACKLOG = 4_000
BUSY_AFTER = 0.1
PAUSE = 0.01
"""Work is unbroken as long as no job has to be waited for for so many seconds."""
LINGER = 0.01
"""While nobody notifies, jobs are let gather for so many seconds if there were few: fewer, larger claims."""


class Fetcher:
    """Claims jobs for the slots, and sleeps when there are none."""

    def __init__(
        self,
        link: WorkerConnection,
        member: Heartbeat,
        slots: Runners,
        completer: Completer,
        *,
        lines: Queues,
        calm: Activity,
        look: asyncio.Event,
    ) -> None:
        """Begin asleep.

        Args:
            link: the connection to claim on.
            member: in whose name.
            slots: where claims go.
            completer: a long backlog there stops claiming.
            lines: what to serve.
            calm: is told of jobs.
            look: set by anybody who knows a reason to look again.
        """
        self._link = link
        self._member = member
        self._slots = slots
        self._completer = completer
        self._lines = lines
        self._calm = calm
        self._look = look
        self._pace = Pace()
        self._portions = Portions()
        self._careful = LARGEST_CLAIM
        self._asleep = True
        self._unbroken_since = time.monotonic()
        self._wants_room = False
        self._stopping = False

    def stop(self) -> None:
        """Claim no more."""
        self._stopping = True
        self._look.set()

    def room_made(self) -> None:
        """An attempt has ended, or verdicts were recorded: claim, if it was for want of room that we did not."""
        if self._wants_room:
            self._look.set()

    async def run(self) -> None:
        """Fetch until stopped."""
        while not self._stopping:
            await self.run_once()

    async def run_once(self) -> None:
        """Claim what there is room for; wait for room, or for jobs, where there is none."""
        self._look.clear()
        room = self._room()
        self._wants_room = room <= 0
        if self._wants_room:
            await self._wait()
            return
        found = await self._claimed(room)
        if found is None:
            return
        self._portions.learn(found)
        self._careful = min(LARGEST_CLAIM, self._careful * 2)
        if found:
            self._calm.stir()
            await self._keep_busy()
        if len(found) < room and not self._lines.unfinished:
            await self._rest(found=bool(found))

    async def _claimed(self, room: int) -> list[Claim] | None:
        """Claim; None: jobs were claimed, but the answer could not be handled, and they are dealt with."""
        try:
            return await self._link.run(self._lines.claim(self._member.id, room), then=self._slots.add)
        except Exception as error:
            if isinstance(error, PgQueueError) or getattr(error, "sqlstate", None) is not None:
                raise  # the server refused, or is away: nothing was claimed
            await self._set_aside(room, error)
            return None

    async def _set_aside(self, room: int, error: Exception) -> None:
        """End what was claimed and cannot be handled: of one job the attempt is spent, several go back unspent.

        Then jobs are claimed one at a time for a while, so that the job that cannot be handled spends its attempts and
        no other does.
        """
        log.error("the answer to a claim could not be handled", extra={"jobs": room}, exc_info=error)
        known = self._completer.known(self._slots.hand.known)
        worker = self._member.id
        await self._link.run(
            claim.give_up(worker, known, error) if room == 1 else claim.disown(worker, known)
        )
        self._careful = 1

    def _room(self) -> int:
        """How many to claim now; 0 while enough are in hand."""
        slots, hand = self._slots, self._slots.hand
        prefetch = self._prefetch()
        slots.low = prefetch // 2
        if len(hand.waiting) > slots.low or self._completer.backlog > LARGEST_BACKLOG:
            return 0
        most = min(LARGEST_CLAIM, self._careful, self._portions.most)
        return min(most, hand.size + prefetch - len(hand.running) - len(hand.waiting))

    def _prefetch(self) -> int:
        """How many claims would start within the horizon, at the pace of late."""
        return min(LARGEST_PREFETCH, int(self._pace.at(self._slots.hand.ended) * HORIZON))

    async def _keep_busy(self) -> None:
        """There were jobs again: after a while of this, ask for silence."""
        if self._asleep and time.monotonic() - self._unbroken_since > BUSY_AFTER:
            await self._doze(asleep=False)

    async def _rest(self, *, found: bool) -> None:
        """The lines were empty at this look: wait to be told, or see to it that we will be."""
        if self._asleep:
            began = time.monotonic()
            await self._wait()
            if time.monotonic() - began > PAUSE:
                self._unbroken_since = time.monotonic()
        elif found:
            await asyncio.sleep(LINGER)
        else:
            await self._doze(asleep=True)  # then look once more, for what was committed before this

    async def _doze(self, *, asleep: bool) -> None:
        await self._link.run(claim.doze(self._member.id, asleep=asleep))
        self._asleep = asleep

    async def _wait(self) -> None:
        """Wait for a reason to look, or until it is time to look without one."""
        if self._stopping:
            return
        try:
            async with asyncio.timeout(self._lines.marks.head_in()):
                await self._look.wait()
        except TimeoutError:
            pass


HORIZON = 0.1
"""Seconds: as many claims are held as would start within this."""
FADING = 0.1
"""Seconds in which a former rate fades to 1/e."""
SHORTEST = 0.01
"""Two looks within so many seconds say nothing about a pace: jobs that end together are no crowd."""


class Pace:
    """Jobs per second of late, told from a counter."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin at a standstill.

        Args:
            clock: seconds, from any beginning.
        """
        self._clock = clock
        self._count = 0
        self._at = clock()
        self._rate = 0.0

    def at(self, count: int) -> float:
        """The pace, now that so many have ended in all."""
        now = self._clock()
        elapsed = now - self._at
        if elapsed >= SHORTEST:
            faded = self._rate * math.exp(-elapsed / FADING)
            self._rate = max((count - self._count) / elapsed, faded)
            self._count, self._at = count, now
        return self._rate
