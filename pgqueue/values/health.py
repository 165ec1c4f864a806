"""What a worker says of its health with each heartbeat, what others read of it, and the words for that. Pure rules.

A worker whose event loop is blocked claims nothing and starts nothing; it only finishes plain functions. Blocking for a
few seconds is a fault of one task. After :data:`BLOCKED_FOR_LONG` the worker does not count as one that serves.
"""

import msgspec

from pgqueue.values.lease import spoken

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
        return f"for {spoken(self.seconds)} by {what} at {self.where}"


class WorkerHealth(msgspec.Struct, frozen=True):
    """What a worker says of itself with a heartbeat.

    Attributes:
        blocked: what blocks its event loop; None: it runs.
        not_returned: how many plain functions were given up and have not returned; None: not said.
        memory: the resident memory of its process in bytes; None: not said.
    """

    blocked: BlockedLoop | None = None
    not_returned: int | None = None
    memory: int | None = None


class WorkerProblem(msgspec.Struct, frozen=True):
    """A live worker with something to report, at its last heartbeat.

    Attributes:
        host: where it runs.
        pid: its process id there.
        blocked: what blocks its event loop; None: it runs.
        not_returned: how many plain functions were given up and have not returned. Each keeps a thread.
    """

    host: str
    pid: int
    blocked: BlockedLoop | None
    not_returned: int

    @property
    def serves(self) -> bool:
        """Whether it still counts as a worker that starts jobs."""
        return self.blocked is None or self.blocked.seconds < BLOCKED_FOR_LONG

    def __str__(self) -> str:
        """What is wrong with it."""
        said = [] if self.blocked is None else [f"its event loop has been blocked {self.blocked}"]
        if self.not_returned:
            said.append(
                f"it gave up {self.not_returned} plain function{'s' if self.not_returned > 1 else ''}, after a timeout "
                "or a cancel, and waits for the return: each keeps a thread"
            )
        return f"worker {self.host}:{self.pid}: {'; '.join(said)}"


def storable(text: str, *, end: bool = False) -> str:
    """A name that any program may have chosen, as text that every database stores: no name may cost a worker its lease.

    Args:
        text: the name.
        end: if it is too long, its end is kept instead of its beginning.
    """
    plain = text.replace("\0", "\\x00").encode("ascii", "backslashreplace").decode()
    return plain[-LONGEST:] if end else plain[:LONGEST]
