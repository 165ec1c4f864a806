"""What a worker says of its health with each heartbeat, what others read of it, and the words for that. Pure rules.

A worker whose event loop is blocked claims nothing and starts nothing; it only finishes plain functions. Blocking for a
few seconds is a fault of one task. After :data:`BLOCKED_FOR_LONG` the worker does not count as one that serves. Neither does
a worker that has not looked for jobs in time: to look is to claim jobs, to ask and find none, or to have no free slot.

:func:`not_live` says why a program should start the worker again, :func:`not_ready` why it does not serve now. That the
database is away is no reason for the former: a new process would not reach it either.
"""

from datetime import timedelta

import msgspec

from pgqueue.values.workers.lease import duration_text

BLOCKED_FOR_LONG = 30.0
"""Seconds: as long as the lease of a worker, by default."""
LONGEST = 500
"""Characters of a name or a line that are stored."""


class BlockedLoop(msgspec.Struct, frozen=True):
    """What blocks a worker's event loop.

    Attributes:
        seconds: for how long.
        task: the job's task, or the name of the asyncio task.
        job: the job's id; None: no job blocks it.
        where: ``file:line in function``.
    """

    seconds: float
    task: str
    job: int | None
    where: str

    def __str__(self) -> str:
        """Like ``for 45 s by task shop.report (job 12) at /srv/shop/jobs.py:31 in report``."""
        what = f"asyncio task {self.task}" if self.job is None else f"task {self.task} (job {self.job})"
        return f"for {duration_text(self.seconds)} by {what} at {self.where}"


class WorkerHealth(msgspec.Struct, frozen=True):
    """What a worker says of itself with a heartbeat.

    Attributes:
        blocked: what blocks its event loop; None: it runs.
        not_returned: how many functions go on after their timeout, or after their job was lost; None: not said.
        memory: the resident memory of its process in bytes; None: not said.
        running: the jobs that it runs, those that started first at the front, up to 1,000; None: not said.
        taken: how many of its slots are taken; None: not said.
        overrunning: the jobs that wait for the return of such a function, up to 1,000; None: not said.
        looked: how many seconds ago it looked for jobs; None: not said, or it stops.
        look_within: within how many seconds of the last look another one must be in its row; None: not said.
        not_listening: for how many seconds notifications have not arrived; None: they do.
    """

    blocked: BlockedLoop | None = None
    not_returned: int | None = None
    memory: int | None = None
    running: list[int] | None = None
    taken: int | None = None
    overrunning: list[int] | None = None
    looked: float | None = None
    look_within: float | None = None
    not_listening: float | None = None


class WorkerProblem(msgspec.Struct, frozen=True):
    """A live worker with something to report, at its last heartbeat.

    Attributes:
        host: where it runs.
        pid: its process id there.
        blocked: what blocks its event loop; None: it runs.
        not_returned: how many functions go on after their timeout, or after their job was lost. Each keeps its slot.
        not_looked: for how many seconds it has not looked for jobs, though it should have; None: it looks.
        not_listening: for how many seconds notifications have not arrived; None: they do.
    """

    host: str
    pid: int
    blocked: BlockedLoop | None
    not_returned: int
    not_looked: float | None = None
    not_listening: float | None = None

    @property
    def serves(self) -> bool:
        """Whether it still counts as a worker that starts jobs."""
        if self.blocked is not None:
            return self.blocked.seconds < BLOCKED_FOR_LONG
        return self.not_looked is None

    def __str__(self) -> str:
        said = [] if self.blocked is None else [f"its event loop has been blocked {self.blocked}"]
        if self.not_returned:
            said.append(not_returned_text(self.not_returned))
        if self.not_looked is not None and self.blocked is None:
            said.append(_not_looked(self.not_looked))
        if self.not_listening is not None:
            said.append(_not_listening(self.not_listening))
        return f"worker {self.host}:{self.pid}: {'; '.join(said)}"


class Vitals(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker knows of its own health at one moment. It can be read while the event loop is blocked.

    Attributes:
        stopping: it claims no jobs any more.
        beats: the thread that renews the lease runs.
        renewed: how many seconds ago the database renewed the lease; None: it has not registered.
        lease: how many seconds a lease lasts.
        looked: how many seconds ago it claimed jobs, asked and found none, or had no free slot.
        look_within: within how many seconds it should look again.
        not_listening: for how many seconds notifications have not arrived; None: they do, or are not expected to.
        blocked: what blocks its event loop; None: it runs.
        slots: how many jobs it runs at a time.
        slots_taken: slots that are not free.
        backlog: verdicts that the database does not have yet.
        not_returned: functions that go on after their timeout, or after their job was lost.
        stuck: whether these have all slots.
        claims: how many statements claimed, or found nothing to claim, since the start.
        empty_claims: how many of them found nothing.
        lost_leases: how many leases were lost.
        blocks: how many times the event loop was blocked.
    """

    stopping: bool
    beats: bool
    renewed: float | None
    lease: float
    looked: float
    look_within: float
    not_listening: float | None
    blocked: BlockedLoop | None
    slots: int = 0
    slots_taken: int = 0
    backlog: int = 0
    not_returned: int = 0
    stuck: bool = False
    claims: int = 0
    empty_claims: int = 0
    lost_leases: int = 0
    blocks: int = 0


def look_within(*, poll: timedelta, sweep: timedelta, lease: timedelta) -> float:
    """Within how many seconds a worker looks for jobs again: two polls, and the deadline of a claim that is not answered."""
    return 2 * max(poll, sweep).total_seconds() + lease.total_seconds() / 2


def not_live(now: Vitals) -> tuple[str, ...]:
    """Why a program should start this worker again; empty: it should not."""
    if now.renewed is None or now.stopping:
        return ()
    said = [] if now.beats else ["the thread that renews its lease has ended"]
    if now.blocked is not None and now.blocked.seconds >= BLOCKED_FOR_LONG:
        said.append(f"its event loop has been blocked {now.blocked}")
    elif now.blocked is None and now.renewed < now.lease and now.looked > 2 * now.look_within:
        said.append(_not_looked(now.looked))
    return tuple(said)


def not_ready(now: Vitals) -> tuple[str, ...]:
    """Why this worker does not serve now; empty: it does."""
    if now.renewed is None:
        return ("it has not registered yet",)
    if now.stopping:
        return ("it stops",)
    said = [] if now.beats else ["the thread that renews its lease has ended"]
    if now.renewed >= now.lease:
        said.append(f"its lease has not been renewed for {duration_text(now.renewed)}")
    if now.blocked is not None:
        said.append(f"its event loop has been blocked {now.blocked}")
    elif now.looked > now.look_within:
        said.append(_not_looked(now.looked))
    if now.not_listening is not None and now.not_listening > now.look_within:
        said.append(_not_listening(now.not_listening))
    if now.stuck:
        said.append(f"{not_returned_text(now.not_returned)}, and none is free; start it again")
    return tuple(said)


def not_returned_text(count: int) -> str:
    """Like ``3 functions go on after their timeout; each keeps its slot``."""
    if count == 1:
        return "1 function goes on after its timeout, or after its job was lost, and keeps its slot"
    return f"{count:,} functions go on after their timeout, or after their job was lost, and keep their slots"


def _not_looked(seconds: float) -> str:
    return f"it has claimed no job, and asked for none, for {duration_text(seconds)}; it opens its connection again"


def _not_listening(seconds: float) -> str:
    return f"notifications have not arrived for {duration_text(seconds)}; it looks for jobs at every poll, and listens again"


def storable(text: str, *, end: bool = False) -> str:
    """A name that any program may have chosen, as text that every database stores: no name may cost a worker its lease.

    Args:
        text: the name.
        end: if it is too long, its end is kept instead of its beginning.
    """
    plain = text.replace("\0", "\\x00").encode("ascii", "backslashreplace").decode()
    return plain[-LONGEST:] if end else plain[:LONGEST]
