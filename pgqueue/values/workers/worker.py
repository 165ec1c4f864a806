"""What is known of workers, what a worker is asked to do and does, and which workers a name means. Pure rules."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Literal, TypeAlias
from uuid import UUID

import msgspec

from pgqueue.errors import InvalidOption, UnknownWorker
from pgqueue.values.workers.load import Bounds

End: TypeAlias = Literal["stop", "restart"]
ALL = "all"
"""The name that means every live worker."""
SHOWN = 8
"""Characters of an id that lists show."""
LISTED = 8
"""Workers that a message names, at most."""
CANNOT_RESTART = (
    "it has no supervisor, so no program would start it again: run `pgqueue worker` with --processes 2 or more, or stop it "
    "and start another"
)


class WorkerRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker is asked to do; what is None is not asked.

    Attributes:
        bounds: how many jobs to run at a time.
        quiet: whether to claim no more jobs.
        end: how to end: ``stop``, or ``restart``.
        at: when it was asked last.
        by: who asked, for people to read.
    """

    bounds: Bounds | None = None
    quiet: bool | None = None
    end: End | None = None
    at: datetime | None = None
    by: str | None = None

    @property
    def verb(self) -> str:
        """What is asked, in a word: ``set``, ``quiet``, ``resume``, ``stop`` or ``restart``."""
        if self.end is not None:
            return self.end
        if self.quiet is not None:
            return "quiet" if self.quiet else "resume"
        return "set"


class WorkerReport(msgspec.Struct, frozen=True):
    """What a worker says with a heartbeat that it does.

    Attributes:
        bounds: between which numbers of slots it chooses.
        slots: how many it has.
        quiet: whether it claims no jobs.
        supervised: whether a supervisor starts it again when it restarts.
        answer: why it does not do what it was asked to do, or why it is replaced; None: it does, or is not.
    """

    bounds: Bounds
    slots: int
    quiet: bool
    supervised: bool
    answer: str | None = None


class WorkerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A worker, at its last heartbeat.

    Attributes:
        id: its id; another one after a lost lease.
        host: where it runs.
        pid: its process there.
        version: of pgqueue.
        queues: the queues that it serves; None: all.
        tasks: which tasks it was told to run: names, patterns, and with ``!`` before it what it does not run; None: nothing was said.
        started_at: when it registered.
        alive: whether its lease holds.
        bounds: between which numbers of slots it chooses; the same twice: it has that many.
        slots: how many jobs it runs at a time.
        listens: whether it does what it is asked to do: a take does not.
        quiet: whether it claims no jobs.
        supervised: whether a supervisor starts it again when it restarts.
        blocked_since: since when its event loop is blocked; None: it is not.
        not_looked: for how many seconds it has not looked for jobs, though it should have; None: it looks.
        not_returned: how many functions go on after their timeout, or after their job was lost.
        asked: what it was asked to do.
        answer: why it does not do that; None: it does, or has not answered yet.
    """

    id: UUID
    host: str
    pid: int
    version: str
    queues: tuple[str, ...] | None
    tasks: tuple[str, ...] | None
    started_at: datetime
    alive: bool
    bounds: Bounds
    slots: int
    listens: bool
    quiet: bool = False
    supervised: bool = False
    blocked_since: datetime | None = None
    not_looked: float | None = None
    not_returned: int = 0
    asked: WorkerRequest = WorkerRequest()
    answer: str | None = None

    @property
    def name(self) -> str:
        """Like ``web-1:4711``."""
        return f"{self.host}:{self.pid}"

    @property
    def state(self) -> str:
        """``lost``, ``stopping``, ``unresponsive`` (its event loop is blocked), ``stalled`` (it does not look for jobs), ``quiet`` or ``alive``."""
        if not self.alive:
            return "lost"
        if self.asked.end is not None and self.answer is None:
            return "stopping"
        if self.blocked_since is not None:
            return "unresponsive"
        if self.not_looked is not None:
            return "stalled"
        return "quiet" if self.quiet else "alive"

    def __str__(self) -> str:
        return f"{self.name} ({str(self.id)[:SHOWN]})"


class Steered(msgspec.Struct, frozen=True):
    """What became of a request to workers.

    Attributes:
        asked: the workers that were asked, as they were before.
        refused: a sentence for each live worker that was not asked, and why.
    """

    asked: tuple[WorkerStatus, ...]
    refused: tuple[str, ...] = ()


def choose_workers(which: str, known: Sequence[WorkerStatus], ask: WorkerRequest) -> Steered:
    """Which workers a name means, and whether they can do what is asked.

    Args:
        which: the first characters of an id, ``host:pid``, or ``all`` for every live worker.
        known: all that are known.
        ask: what they are asked to do.

    Raises:
        UnknownWorker: the name means none, or one whose lease has passed.
        InvalidOption: it means several, or one that cannot do this.
    """
    if which == ALL:
        alive = [one for one in known if one.alive]
        refused = tuple(f"{one}: {why}" for one in alive if (why := _cannot(one, ask)))
        return Steered(tuple(one for one in alive if not _cannot(one, ask)), refused)
    worker = find(which, known)
    if not worker.alive:
        raise UnknownWorker(
            f"worker {worker}: its lease has passed, so it is dead; other workers run its jobs again"
        )
    if why := _cannot(worker, ask):
        raise InvalidOption(f"worker {worker}: {why}")
    return Steered((worker,))


def find(which: str, known: Sequence[WorkerStatus]) -> WorkerStatus:
    """The worker that a name means.

    Args:
        which: the first characters of an id, or ``host:pid``.
        known: all that are known.

    Raises:
        UnknownWorker: the name means none.
        InvalidOption: it means several.
    """
    if not isinstance(which, str) or not which:
        raise InvalidOption(f"worker {which!r:.80}: give the first characters of an id, or host:pid")
    wanted = which.lower()
    found = [one for one in known if which == one.name or str(one.id).startswith(wanted)]
    if len(found) == 1:
        return found[0]
    if found:
        raise InvalidOption(
            f"worker {which!r:.80} may be any of {_list_workers(found)}: give more characters of the id"
        )
    there = f"there are {_list_workers(known)}" if known else "no worker is known"
    raise UnknownWorker(f"there is no worker {which!r:.80}; {there}; `pgqueue workers list` shows them")


def _cannot(worker: WorkerStatus, ask: WorkerRequest) -> str | None:
    if not worker.listens:
        return "it is a take, and cannot be asked; signal its process"
    return CANNOT_RESTART if ask.end == "restart" and not worker.supervised else None


def _list_workers(workers: Iterable[WorkerStatus]) -> str:
    names = [str(one) for one in workers]
    more = len(names) - LISTED
    return ", ".join(names[:LISTED]) + (f" and {more} more" if more > 0 else "")


LONGEST = 20_000
"""Characters of a stack that are kept, from its innermost call outwards."""


class Stack(msgspec.Struct, frozen=True):
    """What became of a question for the stack of a job.

    Attributes:
        job_id: of which job.
        worker: which worker was asked: its host and process, or its id.
        asked_at: when.
        answered_at: when the worker answered; None: it has not.
        text: a line for each call, the innermost last, and its source line; or why there is none.
    """

    job_id: int
    worker: str
    asked_at: datetime
    answered_at: datetime | None = None
    text: str | None = None

    @property
    def said(self) -> str:
        """The stack, or why there is none."""
        if self.text is not None:
            return self.text
        return f"worker {self.worker} has not answered. It answers with its next heartbeat, within a third of its lease"
