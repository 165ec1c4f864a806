"""Keeps claims in hand: enough that no slot waits, no more than will start at once.

How many to hold beyond the running ones follows from how fast they end (Little's law: rate times horizon), so
a worker of long jobs prefetches next to nothing, and one of short jobs as much as a batch should have.

When nothing is ready the worker *dozes*: it asks to be notified, looks once more (for what was committed
before the asking), and waits for a notification or the poll interval, whichever is first. It stays on the
list of sleepers while jobs trickle in; only after a second of unbroken work does it ask for silence, since
every notifying commit of the database queues up behind one lock. A notification lost in between costs one
poll interval at most.
"""

import asyncio
import time
from collections.abc import Sequence

from pgqueue.store import claim
from pgqueue.store.plan import Plan
from pgqueue.values.job import Claim
from pgqueue.worker.completer import Completer
from pgqueue.worker.link import Link
from pgqueue.worker.marks import Marks
from pgqueue.worker.membership import Membership
from pgqueue.worker.pace import HORIZON, Pace
from pgqueue.worker.slots import Slots

LARGEST_PREFETCH = 1_000
LARGEST_CLAIM = 500
LARGEST_BACKLOG = 4_000
BUSY_AFTER = 1.0


class Fetcher:
    """Claims jobs for the slots, and sleeps when there are none."""

    def __init__(
        self,
        link: Link,
        member: Membership,
        slots: Slots,
        completer: Completer,
        *,
        queues: Sequence[str] | None,
        poll: float,
        look: asyncio.Event,
    ) -> None:
        """Begin awake.

        Args:
            link: the connection to claim on.
            member: in whose name.
            slots: where claims go.
            completer: a long backlog there stops claiming.
            queues: what to serve; None: every queue that has ready jobs.
            poll: seconds to wait at most before looking again.
            look: set by anybody who knows a reason to look again.
        """
        self._link = link
        self._member = member
        self._slots = slots
        self._completer = completer
        self._queues = list(queues or ())
        self._serves_all = queues is None
        self._queues_seen_at = 0.0
        self._turn = 0
        self._marks = Marks()
        self._poll = poll
        self._look = look
        self._asleep = True
        self._busy_since = time.monotonic()
        self._pace = Pace()
        self._stopping = False

    def stop(self) -> None:
        """Claim no more."""
        self._stopping = True
        self._look.set()

    async def run(self) -> None:
        """Fetch until stopped."""
        while not self._stopping:
            await self.run_once()

    async def run_once(self) -> None:
        """Claim what there is room for, or wait for room, or for jobs."""
        self._look.clear()
        room = self._room()
        if room <= 0:
            await self._wait()
            return
        found = await self._link.run(lambda: self._claim(room), then=self._slots.add)
        if found:
            await self._keep_busy()
        else:
            await self._rest()

    def _claim(self, room: int) -> Plan[list[Claim]]:
        claims = yield from self._fill(room)
        if not self._serves_all or (claims and time.monotonic() - self._queues_seen_at < self._poll):
            return claims
        busy = yield from claim.busy_queues()
        self._queues_seen_at = time.monotonic()
        if not busy:
            return claims
        self._queues = busy
        return claims or (yield from self._fill(room))

    def _fill(self, room: int) -> Plan[list[Claim]]:
        starts, began = self._marks.starts(), time.monotonic()
        claims = yield from claim.fill(self._member.id, self._next_turn(), room, marks=starts)
        self._marks.learn(starts, claims, time.monotonic() - began)
        return claims

    def _next_turn(self) -> list[str]:
        """The queues, each time another one first."""
        self._turn += 1
        turn = self._turn % max(1, len(self._queues))
        return [*self._queues[turn:], *self._queues[:turn]]

    def _room(self) -> int:
        """How many to claim now; 0 while enough are in hand."""
        slots, hand = self._slots, self._slots.hand
        prefetch = self._prefetch()
        slots.low = prefetch // 2
        if len(hand.waiting) > slots.low or self._completer.backlog > LARGEST_BACKLOG:
            return 0
        return min(LARGEST_CLAIM, hand.size + prefetch - len(hand.running) - len(hand.waiting))

    def _prefetch(self) -> int:
        """How many claims would start within the horizon, at the pace of late."""
        return min(LARGEST_PREFETCH, int(self._pace.at(self._slots.hand.ended) * HORIZON))

    async def _keep_busy(self) -> None:
        """Every look finds something: after a while of this, ask for silence."""
        if self._asleep and time.monotonic() - self._busy_since > BUSY_AFTER:
            await self._doze(asleep=False)

    async def _rest(self) -> None:
        """There is nothing for now: be on the list of sleepers, look once more, then wait."""
        if self._asleep:
            await self._wait()
        else:
            await self._doze(asleep=True)
        self._busy_since = time.monotonic()

    async def _doze(self, *, asleep: bool) -> None:
        await self._link.run(lambda: claim.doze(self._member.id, asleep=asleep))
        self._asleep = asleep

    async def _wait(self) -> None:
        if self._stopping:
            return
        try:
            async with asyncio.timeout(min(self._poll, self._marks.head_in())):
                await self._look.wait()
        except TimeoutError:
            pass
