"""What is known of limits: what each says, how many jobs run and wait under it, which keys it has, and which jobs hold places."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from pgqueue.values.limits.limit import LimitNumbers, key_of_queue, keys_of


class LaneCount(msgspec.Struct, frozen=True):
    """How many jobs of one lane run, how many of those a lost worker holds, and how many wait.

    Jobs that keep their place while they wait for their retry run, but in no queue: theirs is "".
    """

    queue: str
    lane: str
    running: int
    lost: int
    waiting: int


class LimitStatus(msgspec.Struct, frozen=True):
    """One limit.

    Attributes:
        name: under which it is known.
        numbers: what holds: ``most``, or ``every`` in microseconds and ``burst``; and what the code says, ``declared``.
        set_at: when an operator set the numbers; None: they are as the code says.
        set_by: who.
        running: how many of its places are taken by jobs that run.
        waiting: how many wait in lanes under it.
        lost: how many of those a lost worker holds: a sweep takes its jobs over.
        estimated: ``waiting`` is scaled from a sample of the table's pages.
        keys: of how many keys jobs run.
    """

    name: str
    numbers: LimitNumbers
    set_at: datetime | None
    set_by: str | None
    running: int = 0
    waiting: int = 0
    lost: int = 0
    estimated: bool = False
    keys: int = 0

    @property
    def running_said(self) -> str:
        """How many run, in words: ``7 running for 5 customers``."""
        if len(self.numbers.by) != 1 or not self.keys:
            return f"{self.running:,} running"
        name = self.numbers.by[0].removesuffix("_id").replace("_", " ")
        return f"{self.running:,} running for {self.keys:,} {name if self.keys == 1 else _plural(name)}"


def _plural(name: str) -> str:
    """Several of what an argument names; the rules of most English words."""
    if name.endswith("y") and name[-2:-1] not in set("aeiou"):
        return f"{name[:-1]}ies"
    return f"{name}es" if name.endswith(("s", "x", "ch", "sh")) else f"{name}s"


class LimitedJobs(msgspec.Struct, frozen=True):
    """The jobs that have a limit in their lane.

    Attributes:
        jobs: how many.
        waiting: how many of them wait in the lane now; the others run, or are scheduled, or wait for something else.
        tasks: the tasks that had the limit when a worker that knows them last started.
    """

    jobs: int
    waiting: int
    tasks: Sequence[str]


class LaneChange(msgspec.Struct, frozen=True):
    """What became of jobs that were to leave a lane: how many did, and how many other transactions had locked."""

    jobs: int
    locked: int = 0

    def __add__(self, other: "LaneChange") -> "LaneChange":
        return LaneChange(self.jobs + other.jobs, self.locked + other.locked)


class KeyStatus(msgspec.Struct, frozen=True, gc=False):
    """One key of a limit: how many places of it are taken, how many jobs wait, and from when on the next may start, of a rate."""

    key: str
    running: int
    waiting: int
    next_start: datetime | None


class LimitHolder(msgspec.Struct, frozen=True):
    """A job that holds a place of a limit: under which keys, on which worker, and since when.

    No worker: the job is lost, or, where there is no time either, it keeps its place while it waits for its retry.
    """

    job_id: int
    queue: str
    lane: str
    task: str
    worker: str | None
    since: datetime | None


class LimitDetail(msgspec.Struct, frozen=True):
    """A limit, its keys, and the jobs that hold its places."""

    limit: LimitStatus
    keys: Sequence[KeyStatus]
    holders: Sequence[LimitHolder]


def keys_counted(
    name: str, lanes: Sequence[LaneCount], next_starts: Mapping[str, datetime | None]
) -> list[KeyStatus]:
    """The keys of a limit, those with the most jobs first."""
    running, waiting = Counter[str](), Counter[str]()
    for lane in lanes:
        for key in (*keys_of(lane.lane), key_of_queue(lane.queue)):
            if key.limit == name:
                running[key.text] += lane.running * key.places
                waiting[key.text] += lane.waiting
    return key_statuses({key: (running[key], waiting[key]) for key in running}, next_starts)


def key_statuses(
    counts: Mapping[str, tuple[int, int]], next_starts: Mapping[str, datetime | None]
) -> list[KeyStatus]:
    """Keys, those with the most jobs first.

    Args:
        counts: how many jobs of each key run, and how many wait.
        next_starts: from when on the next job of a key may start, of a rate.
    """
    found = [
        KeyStatus(key, *counts.get(key, (0, 0)), next_starts.get(key))
        for key in counts.keys() | next_starts.keys()
    ]
    return sorted(found, key=lambda one: (-one.running - one.waiting, one.key))
