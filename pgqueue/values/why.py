"""Explains why a job does not run, or has no result yet: pure rules, and a sentence for people.

The facts come from ``sql/why.sql``, in one statement; the caller decides what to do with the answer.
"""

from collections.abc import Iterator, Sequence
from typing import Literal, TypeAlias

import msgspec

from pgqueue.values.health import BlockedLoop
from pgqueue.values.job import JobState
from pgqueue.values.lease import spoken
from pgqueue.values.signal import spoken_reason

MOST_AHEAD = 1_000
"""The jobs ahead of a job are counted up to this number."""
MOST_NAMED = 5
"""How many of the things that a blocked job waits for are named, at most."""

Reason: TypeAlias = Literal[
    "no record",
    "ended",
    "running",
    "worker lost",
    "blocked",
    "not due",
    "paused",
    "no worker",
    "worker blocked",
    "task unknown",
    "waiting",
]


class Facts(msgspec.Struct, frozen=True):
    """The facts that decide whether a job runs: the columns of ``sql/why.sql``, in its order.

    Attributes:
        state: the job's state.
        queue: the queue's name.
        task: the task's name.
        attempts: how many attempts were begun.
        max_attempts: the number of attempts after which it is dead.
        due_in: seconds until it is due; negative: seconds since it was due.
        since: seconds since it was claimed, or since it ended; None: it waits.
        cancel_requested: whether a running job should be cancelled.
        unknown_for: seconds since a worker first claimed it without knowing its task; None: no worker did.
        paused: whether its queue is paused.
        host: its worker's host, if it runs and the worker has a row.
        pid: that worker's process.
        lease_left: seconds left of that worker's lease.
        alive: how many workers are alive.
        serving: how many of them serve its queue.
        slots: how many slots the serving workers have.
        knowing: how many of the serving workers may know its task.
        ahead: how many ready jobs of its queue come before it, up to 1,000; None: it is not ready.
        blocked_workers: how many of the serving workers have a blocked event loop, so that they claim nothing.
        blocked_host: the host of its own worker if that is blocked; if the job waits, of the worker that serves its
            queue and has been blocked for longest.
        blocked_pid: that worker's process.
        blocked_for: for how many seconds that worker's event loop has been blocked.
        blocked_task: by which task.
        blocked_job: by which job; None: by none.
        blocked_where: at which line.
        waits_for: what it waits for if it is blocked, up to 6 names.
        waits_until: for each of these, the seconds until its deadline; None: it has none.
        expires_in: seconds until it expires, if it has not been started by then; None: it does not.
        reason: why it is dead.
    """

    state: str
    queue: str
    task: str
    attempts: int
    max_attempts: int
    due_in: float
    since: float | None
    cancel_requested: bool
    unknown_for: float | None
    paused: bool
    host: str | None
    pid: int | None
    lease_left: float | None
    alive: int
    serving: int
    slots: int
    knowing: int
    ahead: int | None
    blocked_workers: int
    blocked_host: str | None
    blocked_pid: int | None
    blocked_for: float | None
    blocked_task: str | None
    blocked_job: int | None
    blocked_where: str | None
    waits_for: list[str] | None
    waits_until: list[float | None] | None = None
    expires_in: float | None = None
    reason: str | None = None

    @property
    def blocked(self) -> BlockedLoop | None:
        """What blocks the worker that matters to this job."""
        if self.blocked_for is None:
            return None
        return BlockedLoop(
            self.blocked_for, str(self.blocked_task), self.blocked_job, str(self.blocked_where)
        )


class Why(msgspec.Struct, frozen=True):
    """Why a job does not run, or how it runs or ended.

    Attributes:
        job_id: the job's id.
        state: the job's state; None: there is no record of it.
        reason: the main reason, as one of a few fixed words.
        sentence: all facts, for people.
    """

    job_id: int
    state: JobState | None
    reason: Reason
    sentence: str


def explain(job_id: int, facts: Facts | None) -> Why:
    """Say why a job does not run.

    Args:
        job_id: the job's id.
        facts: the facts about it; None: there is no record.
    """
    if facts is None:
        return Why(job_id, None, "no record", "there is no record of it: " + NO_RECORD)
    state = JobState(facts.state)
    match state:
        case JobState.RUNNING:
            reason, sentence = _running(job_id, facts)
        case JobState.BLOCKED:
            reason, sentence = "blocked", blocked(job_id, facts.waits_for or [], facts.waits_until or [])
        case JobState.SCHEDULED | JobState.READY:
            reason, sentence = _waiting(facts)
        case _:
            why = f" ({facts.reason})" if facts.reason else ""
            reason, sentence = "ended", f"it is {state}{why}, since {spoken(facts.since or 0.0)}"
    if facts.expires_in is not None and state is not JobState.RUNNING:
        sentence += f"; it expires in {spoken(max(0.0, facts.expires_in))} if it is not started"
    return Why(job_id, state, reason, sentence)


LIMIT = "limit:"
"""With the name of a limit behind it, what a job in its lane waits for; without one, its share."""
NO_RECORD = "it was not committed (yet), or was rolled back, or its history has been dropped"


def blocked(job_id: int, waits_for: Sequence[str], until: Sequence[float | None]) -> str:
    """What a blocked job waits for: a signal, a time, or what the feature that blocked it has named."""
    if limits := [name.removeprefix(LIMIT) for name in waits_for if name.startswith(LIMIT)]:
        under = ", ".join(repr(name) if name else "its share" for name in limits)
        return (
            f"it waits in its lane, for its turn under {under}: `pgqueue limits list` shows how many jobs run"
        )
    if not waits_for:
        return "it is blocked, and nothing is recorded that it waits for: cancel it, and enqueue it again"
    deadlines = [*until, *[None] * len(waits_for)]
    named = [
        spoken_reason(name, job_id) + _at_most(left)
        for name, left in zip(waits_for[:MOST_NAMED], deadlines, strict=False)
    ]
    more = ", and more" if len(waits_for) > MOST_NAMED else ""
    return f"it is blocked, and waits for {', '.join(named)}{more}"


def _at_most(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return f", for {spoken(seconds)} at most" if seconds > 0 else ", whose deadline has passed"


def _running(job_id: int, facts: Facts) -> tuple[Reason, str]:
    attempt = (
        f"attempt {facts.attempts} of {facts.max_attempts} has been running for {spoken(facts.since or 0.0)}"
    )
    if facts.lease_left is None or facts.lease_left < 0:
        return (
            "worker lost",
            f"{attempt}, and its worker is gone: another worker takes the job over at its next sweep",
        )
    asked = "; its worker has been asked to cancel it" if facts.cancel_requested else ""
    said = f"{attempt}, on {facts.host}, process {facts.pid}{asked}"
    if (blocked := facts.blocked) is None:
        return "running", said
    if blocked.job == job_id:
        return (
            "running",
            f"{said}; it has blocked its worker's event loop for {spoken(blocked.seconds)} at {blocked.where}",
        )
    return "running", f"{said}; the event loop of its worker has been blocked {blocked}"


def _waiting(facts: Facts) -> tuple[Reason, str]:
    obstacles = list(_obstacles(facts))
    said = [what for _, what in obstacles] or [_place(facts)]
    if facts.due_in > 0:
        failed = f", after {facts.attempts} of {facts.max_attempts} attempts failed" if facts.attempts else ""
        return "not due", "; ".join([f"it is due in {spoken(facts.due_in)}{failed}", *said])
    waits = f"it is {facts.state}, and has been due for {spoken(-facts.due_in)}"
    if facts.ahead and not obstacles:
        more = " or more" if facts.ahead >= MOST_AHEAD else ""
        waits += f", behind {facts.ahead:,}{more} ready job{'s' if facts.ahead > 1 else ''}"
    return obstacles[0][0] if obstacles else "waiting", "; ".join([waits, *said])


def _obstacles(facts: Facts) -> Iterator[tuple[Reason, str]]:
    """The reasons why no worker takes the job, the main one first."""
    queue = repr(facts.queue)
    if facts.paused:
        yield "paused", f"queue {queue} is paused: run `pgqueue queues resume {facts.queue}`"
    if facts.alive == 0:
        yield "no worker", "no worker is alive: start one with `pgqueue worker`"
    elif facts.serving == 0:
        yield "no worker", f"none of the {_many(facts.alive, 'live worker')} serves queue {queue}"
    elif facts.blocked is not None and facts.blocked_workers >= facts.serving:
        serving = f"{_many(facts.serving, 'worker')} serve{'s' if facts.serving == 1 else ''}"
        loop = f"the event loop of {facts.blocked_host}, process {facts.blocked_pid}"
        yield (
            "worker blocked",
            f"{serving} queue {queue}, and none claims jobs now: {loop}, has been blocked {facts.blocked}",
        )
    elif facts.knowing == 0:
        yield (
            "task unknown",
            f"no live worker of queue {queue} has task {facts.task!r}: is its module imported by the worker's --app?",
        )
    elif facts.unknown_for is not None:
        yield (
            "task unknown",
            f"for {spoken(facts.unknown_for)} workers without task {facts.task!r} have put it back: are some of an older release?",
        )


def _place(facts: Facts) -> str:
    serving = f"{_many(facts.serving, 'worker')} with {_many(facts.slots, 'slot')} serve"
    next_one = "it is next, and " if facts.ahead == 0 else ""
    return f"{next_one}{serving}{'s' if facts.serving == 1 else ''} its queue"


def _many(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
