"""Which shard a job lives on, and how far a replica is behind: pure rules. ``sql/schema/shard_guard.sql`` computes the same, and a test compares.

A job lives by one key: its first limit, else its unique key, else its share (``fair_by``). A job without any lives anywhere.
The home of a key is found by rendezvous hashing: each shard's number is hashed with the key, and the highest hash has it. A
shard that is added takes an equal part of the keys from each of the others, and no key moves between those.
"""

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Final

import msgspec

from pgqueue.errors import InvalidOption
from pgqueue.values.jobs.job import NewJob
from pgqueue.values.jobs.unique import as_names, derived_key
from pgqueue.values.limits.task_limits import TaskLimits

if TYPE_CHECKING:
    from pgqueue.values.schedules.schedule import NewSchedule

ID_BITS: Final = 43
"""Of an id, these say which job of its shard; those above, which shard. 1,024 shards of 8.8e12 jobs each are below 2**53, up
to which JavaScript and other programs read whole numbers exactly."""
MOST_SHARDS: Final = 1 << (53 - ID_BITS)


class ShardState(msgspec.Struct, frozen=True):
    """What a shard's database says of itself.

    Attributes:
        number: which shard it is.
        members: the shards on which keys live, in the order in which they were added.
        moving: whether keys are moving to the last of them.
    """

    number: int
    members: tuple[int, ...]
    moving: bool

    @property
    def is_first(self) -> bool:
        """Whether it is the shard on which the schedules live."""
        return self.number == self.members[0]

    def homes(self, key: str) -> tuple[int, ...]:
        """The shards to ask for a key, in order: while it moves, its former home decides, and is first."""
        home = home_of(key, self.members)
        if self.moving and home == self.members[-1] and len(self.members) > 1:
            return home_of(key, self.members[:-1]), home
        return (home,)


def home_of(key: str, members: Sequence[int]) -> int:
    """The home of a key among these shards."""
    return max(members, key=lambda number: sha256(f"{number}:{key}".encode()).digest())


def shard_of_id(job_id: int) -> int:
    """The number of the shard that gave out an id."""
    return max(0, job_id) >> ID_BITS


def first_id(number: int) -> int:
    """What comes before the first id of a shard."""
    return max(1, number << ID_BITS)


def key_of(job: NewJob) -> str | None:
    """What a job lives by; None: nothing, it lives anywhere."""
    first = None if job.lane is None else job.lane.partition("\n")[0]
    if first is None or first.startswith(" "):
        return first if job.unique_key is None else job.unique_key
    return first


def require_one_home(job: NewJob, limitings: Mapping[str, TaskLimits | None]) -> None:
    """Refuse a job whose keys could live on two shards, where one shard could not count what it has to.

    Args:
        job: the job, its key not yet encoded.
        limitings: the limits of each task.

    Raises:
        InvalidOption: its unique key, or another of its limits, has not all arguments of its first limit.
    """
    mine = limitings.get(job.task)
    if mine is None or not mine.limits:
        return
    first, *others = mine.limits
    by = {*mine.limits[first].by}
    for name in others:
        if not by <= {*mine.limits[name].by}:
            raise InvalidOption(
                f"{job.task}: with shards, its jobs live by the limit {first!r}, so the limit {name!r} needs all of its "
                f"arguments ({', '.join(sorted(by))}), or another part of its jobs would be counted on each shard"
            )
    for task, other in limitings.items():
        if (
            other is not None
            and other.limits
            and mine.limits.keys() & other.limits.keys()
            and first != next(iter(other.limits))
        ):
            raise InvalidOption(
                f"{job.task}: with shards, its jobs live by the limit {first!r}, and those of {task} by "
                f"{next(iter(other.limits))!r}; they share a limit, so give both tasks the same limits"
            )
    if job.unique_key is not None and not _has_all(job, by):
        raise InvalidOption(
            f"{job.task}: with shards, its jobs live by the limit {first!r}, so its unique key must be made of arguments, "
            f"Unique(by=...), and have all of the limit's ({', '.join(sorted(by)) or 'it has none'})"
        )


def require_movable(schedule: "NewSchedule") -> None:
    """Refuse a schedule whose jobs have keys: it stays on the first shard, and its jobs' keys may live on others.

    Raises:
        InvalidOption: it is one.
    """
    if schedule.job.unique_key is not None or schedule.job.lane is not None:
        raise InvalidOption(
            f"schedule {schedule.name!r}: with shards, the jobs of a schedule have no unique key and no limit; have its task "
            f"enqueue {schedule.job.task} where the key lives"
        )


def _has_all(job: NewJob, by: set[str]) -> bool:
    names = as_names(job.unique.by)
    return names is not None and by <= {*names} and derived_key(job.task, job.args, names) == job.unique_key


def slots_of(total: int, wants: Sequence[int]) -> list[int]:
    """How a process divides its slots among its shards: each wants a number, none gets less than 1, none idles for another.

    Args:
        total: how many slots there are.
        wants: how many each shard could fill.
    """
    given = [1] * len(wants)
    left = total - len(wants)
    while left > 0:
        short = [at for at, want in enumerate(wants) if given[at] < want] or [*range(len(wants))]
        least = min(short, key=lambda at: given[at])
        given[least] += 1
        left -= 1
    return given


class ReplicaStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How a replica stands.

    Attributes:
        answers: whether it answers looks; False: the primary does.
        error: why it does not.
        behind: how old what it shows may be, in seconds; 0: it has all that the primary had written; None: not known.
        bytes: how much of the primary's log it has not replayed; None: the primary did not answer, or it is no replica.
    """

    answers: bool
    error: str | None = None
    behind: float | None = None
    bytes: int | None = None

    def __str__(self) -> str:
        if not self.answers:
            return f"the replica does not answer ({self.error}): the primary does"
        if self.behind is None:
            return "from a replica; how far it is behind is not known"
        return f"from a replica, {self.behind:,.1f} s behind"


def status(*, replays: bool, bytes_left: int | None, age: float | None) -> ReplicaStatus:
    """What the two servers said, as one answer.

    Args:
        replays: whether the server that is asked as the replica is one.
        bytes_left: how much it has to replay; None: the primary did not say what it has written.
        age: how long ago the last transaction that it has replayed was committed, in seconds; None: it has replayed none.
    """
    if not replays:
        return ReplicaStatus(answers=True, behind=0.0)
    behind = 0.0 if bytes_left == 0 else age
    return ReplicaStatus(answers=True, behind=behind, bytes=bytes_left)
