"""The events of a history: what programs saw of jobs, written where the queue cannot change it. No I/O.

A history is a log of lines, each one event as JSON. Many processes append to it: enqueuers, tasks, observers of workers, and a
last look at the tables. :mod:`pgqueue.chaos.judge` reads it and decides whether each promise held.

Each kind says *when* it is written, compared with what it tells of, since the rules build on that:

============== ======================================================== ==========================================
kind           who writes it                                            when
============== ======================================================== ==========================================
``declared``   the program that declares the limits                     before the first job
``due``        a program that knows a schedule                          at any time
``enqueued``   the enqueuer                                             after the commit has answered, or failed
``claimed``    an observer of the worker                                after the claim has answered
``started``    the task                                                 as its first act
``stopped``    the task                                                 as its last act, before the queue is told
``ended``      an observer of the worker                                after the database has recorded the verdict
``reclaimed``  an observer of the sweeper                               after the database has recorded the verdict
``renewed``    the worker                                               after the heartbeat has answered
``left``       who stopped or killed the worker                         after it is gone
``revived``    who retried a dead job, or purged it                     after the commit has answered
``effect``     a last look at what tasks wrote in ``ctx.transaction()`` at the end, one event for each row
``recorded``   a last look at the history and the dead table            at the end, one event for each row
``live``       a last look at the table of live jobs                    at the end, one event for each row
============== ======================================================== ==========================================

A log need not have all kinds: a rule judges what it finds. ``at`` is in seconds of one clock, the same for all writers: on one
host that is ``time.monotonic()``, which no change of the wall clock touches.
"""

from collections.abc import Iterable
from typing import Literal, TypeAlias

import msgspec

JobName: TypeAlias = int | str
"""What a job is called in the log: its id, or a text of the enqueuer's own that the job carries among its arguments. After a
fail-over that lost commits, ids are given out again: then use texts."""

EndState: TypeAlias = Literal["succeeded", "dead", "cancelled"]
LiveState: TypeAlias = Literal["blocked", "scheduled", "ready", "running"]


class _LogEvent(
    msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True, tag_field="kind", tag=str.lower
):
    """``at`` is when the answer came, when the act was, or when it was looked for, in seconds."""

    at: float


class _JobEvent(_LogEvent, frozen=True, kw_only=True):
    """``job`` is what the job is called."""

    job: JobName


class _AttemptEvent(_JobEvent, frozen=True, kw_only=True):
    """One of an attempt.

    Attributes:
        worker: which worker made it.
        attempt: which attempt, from 1.
        fence: of the claim, a number that its worker never used before; 0: not told.
    """

    worker: str
    attempt: int
    fence: int = 0


class Declared(_LogEvent, frozen=True):
    """What a limit allows.

    Attributes:
        limit: its name; keys of it are ``name`` or ``name=value``.
        most: how many jobs of one key run at once; None: any number.
        every: seconds from start to start, on average; None: no rate.
        burst: how many may start at once under the rate.
        ordered: whether the jobs of one key end in the order of their places, each before the next starts.
    """

    limit: str
    most: int | None = None
    every: float | None = None
    burst: int = 1
    ordered: bool = False


class Due(_LogEvent, frozen=True):
    """A tick of a schedule was due, and has to have made exactly one job.

    Attributes:
        schedule: the schedule's name.
        tick: the instant of the tick, as text.
    """

    schedule: str
    tick: str


class Enqueued(_JobEvent, frozen=True, kw_only=True):
    """A job was enqueued, or an enqueue was tried.

    Attributes:
        commit: ``acknowledged``; ``unknown``: the connection broke before the answer, the job may exist or not;
            ``rolled_back``: it must not exist.
        line: the name of a line in which jobs start in order; None: its order is not judged.
        place: its place in that line; lower ones are claimed first.
        key: its unique key.
        limits: the keys of its limits, ``name`` or ``name=value``.
        schedule: which schedule made it.
        tick: for which instant, as text.
        after: the jobs that have to succeed before it starts.
        transactional: whether it writes its effect in ``ctx.transaction()``, so that success and effect commit together.
    """

    commit: Literal["acknowledged", "unknown", "rolled_back"] = "acknowledged"
    line: str | None = None
    place: int | None = None
    key: str | None = None
    limits: tuple[str, ...] = ()
    schedule: str | None = None
    tick: str | None = None
    after: tuple[JobName, ...] = ()
    transactional: bool = False


class Claimed(_AttemptEvent, frozen=True, kw_only=True):
    """A worker has claimed a job.

    Attributes:
        most: how many attempts the job has; None: not said.
    """

    most: int | None = None


class Started(_AttemptEvent, frozen=True):
    """A task has begun to run."""


class Stopped(_AttemptEvent, frozen=True):
    """A task has returned or raised; the queue does not know yet."""


class Ended(_AttemptEvent, frozen=True, kw_only=True):
    """The queue has recorded how an attempt ended, or has refused to: the attempt was superseded.

    Attributes:
        state: in which state the job is now; None: nothing was recorded, the attempt was superseded.
        spent: whether the attempt counts; a claim that was returned, a snooze and a wait give it back.
    """

    state: EndState | LiveState | None
    spent: bool = True


class Reclaimed(_AttemptEvent, frozen=True, kw_only=True):
    """A sweeper has taken a job from a lost worker: ``worker`` and ``attempt`` are the lost ones.

    Attributes:
        state: in which state the job is now.
    """

    state: EndState | LiveState


class Renewed(_LogEvent, frozen=True):
    """A worker has registered, or has renewed its lease.

    Attributes:
        at: when it asked.
        worker: which worker.
        lease: for how many seconds from then on.
    """

    worker: str
    lease: float


class Left(_LogEvent, frozen=True):
    """A worker is gone.

    Attributes:
        worker: which worker.
        returned: whether it took itself off the list, so that its jobs are free at once; False: it was killed, or is frozen or
            cut off, and its lease has to pass first.
    """

    worker: str
    returned: bool = False


class Revived(_JobEvent, frozen=True, kw_only=True):
    """A caller has retried a dead job: it has all its attempts again; or has purged it.

    Attributes:
        purged: whether it was purged.
    """

    purged: bool = False


class Effect(_JobEvent, frozen=True, kw_only=True):
    """A row that a task wrote in ``ctx.transaction()``, found at the end.

    Attributes:
        attempt: of which attempt it is; None: not known.
    """

    attempt: int | None = None


class Recorded(_JobEvent, frozen=True, kw_only=True):
    """A record of an ended job, found at the end.

    Attributes:
        state: in which state it ended.
        attempts: how many attempts it has spent.
        most: how many it had.
        errors: how many errors are kept of it, those that were left out counted in.
        exhausted: whether it is dead because no attempt is left.
    """

    state: EndState
    attempts: int | None = None
    most: int | None = None
    errors: int | None = None
    exhausted: bool = False


class Live(_JobEvent, frozen=True, kw_only=True):
    """A job that has not ended, found at the end.

    Attributes:
        state: in which state it is.
    """

    state: LiveState


Event: TypeAlias = (
    Declared
    | Due
    | Enqueued
    | Claimed
    | Started
    | Stopped
    | Ended
    | Reclaimed
    | Renewed
    | Left
    | Revived
    | Effect
    | Recorded
    | Live
)

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[Event] = msgspec.json.Decoder(Event)


def line_of(event: Event) -> bytes:
    """An event as a line of a log, with its end."""
    return _encoder.encode(event) + b"\n"


def events_of(lines: Iterable[bytes]) -> tuple[list[Event], int]:
    """The events of a log, in its order, and how many lines cannot be read.

    A process that is killed, or whose disk is full, may leave a part of a line; such lines are counted, not judged.
    """
    events: list[Event] = []
    torn = 0
    for line in lines:
        if line.isspace():
            continue
        try:
            events.append(_decoder.decode(line))
        except (msgspec.DecodeError, UnicodeDecodeError):
            torn += 1
    return events, torn


class Violation(msgspec.Struct, frozen=True):
    """A promise that did not hold.

    Attributes:
        promise: its number in the README.
        sentence: what happened, to which job.
        evidence: the events that show it.
    """

    promise: int
    sentence: str
    evidence: tuple[Event, ...] = ()
