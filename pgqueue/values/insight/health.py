"""Whether all is right with the queue: the problems that it has now, the worst first, and one sentence. Frozen values.

Which facts are a problem, and how it is said, is decided in :mod:`pgqueue.values.insight.problems`; which facts are read, in
:mod:`pgqueue.store.insight.health`.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Final, Literal, TypeAlias

import msgspec

Level: TypeAlias = Literal["critical", "warning", "info"]
LEVELS: Final[tuple[Level, ...]] = ("critical", "warning", "info")
"""Of a problem: jobs do not run, or fail; it needs a look; an operator has decided so."""
ProblemKind: TypeAlias = Literal[
    "no worker",
    "queue not served",
    "worker stalled",
    "worker unresponsive",
    "task fails",
    "task unknown",
    "limit full",
    "schedule set aside",
    "schedule late",
    "alert firing",
    "worker lost",
    "alert unreadable",
    "alert silenced",
    "queue paused",
    "queue closed",
]
"""In the order in which problems of one level are listed."""
About: TypeAlias = Literal["queue", "worker", "limit", "schedule", "task", "alert"]
URGENT: Final[tuple[Level, ...]] = ("critical", "warning")


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is not as it should be, or that an operator has stopped.

    Attributes:
        kind: what it is, as one of a few fixed words.
        level: ``critical`` (jobs do not run, or fail), ``warning`` (it needs a look) or ``info`` (an operator has decided so).
        sentence: the problem for people, with its numbers and their units.
        about: of what kind of thing it is.
        names: the things that it is about, up to 5: queues, workers, limits, schedules, tasks or alerts.
        count: how many things it is about.
        since: since when; None: not known.
        jobs: how many jobs it concerns; None: not known.
        estimated: ``jobs`` is scaled from a sample.
        command: a command that solves it, or shows more of it; None: there is none.
    """

    kind: ProblemKind
    level: Level
    sentence: str
    about: About
    names: tuple[str, ...] = ()
    count: int = 1
    since: datetime | None = None
    jobs: int | None = None
    estimated: bool = False
    command: str | None = None

    @property
    def name(self) -> str | None:
        """The one thing that it is about; None: there are several, or none."""
        return self.names[0] if self.count == len(self.names) == 1 else None


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """Whether all is right with the queue.

    Attributes:
        at: the database's time.
        well: whether no problem is critical or a warning.
        sentence: ``All right: …`` with the main numbers, or the worst problem.
        workers: how many live workers claim jobs.
        queues: how many queues they serve, of those that have jobs or settings and are not paused.
        oldest_ready: seconds for which the ready job that waits longest has waited, paused queues left out; None: no job is ready.
        oldest_in: the queue of that job.
        problems: the worst first.
    """

    at: datetime
    well: bool
    sentence: str
    workers: int
    queues: int
    oldest_ready: float | None
    oldest_in: str | None
    problems: tuple[Problem, ...] = ()

    @property
    def urgent(self) -> tuple[Problem, ...]:
        """The problems that are critical or warnings."""
        return tuple(one for one in self.problems if one.level in URGENT)


def count_text(number: int, what: str) -> str:
    """A number of things: ``1 job``, ``4,512 jobs``."""
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def names_text(names: Sequence[str], count: int) -> str:
    """Some names, and how many more there are: ``mail, sms and 3 more``."""
    if count > len(names):
        return f"{', '.join(names)} and {count - len(names):,} more"
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
