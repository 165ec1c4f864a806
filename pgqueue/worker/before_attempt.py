"""What a worker decides before it calls the task of a suspect, or of a job in a flow; and what the call adds to the flow.

A suspect is a job whose worker died while it held the job.

Of a suspect it notes the start in the database, so that a second death counts. A job that has killed as many workers as its task's
:class:`pgqueue.values.workers.crashes.Crashes` says runs alone in a process of its own (:mod:`pgqueue.worker.attempt_process`), or is dead.
"""

import asyncio
import math
from typing import Any, NamedTuple, Protocol

from pgqueue.app.context import AttemptHost
from pgqueue.app.judgement import why_dead
from pgqueue.app.task import Task
from pgqueue.store.flows import flow_growth, flow_queries
from pgqueue.store.jobs.ending import States
from pgqueue.store.jobs.sweep import aagain_after_deadlock, again_after_deadlock
from pgqueue.store.plan import Plan
from pgqueue.store.workers import leases
from pgqueue.values.flows.condition import holds
from pgqueue.values.flows.results import FlowPosition
from pgqueue.values.jobs.job import AttemptError, JobFlags
from pgqueue.values.jobs.verdict import Cancelled, Succeeded, Verdict
from pgqueue.values.workers.crashes import CrashCount, crash_verdict
from pgqueue.worker import joblog
from pgqueue.worker.attempt import Attempt, await_in_loop

log = joblog.worker_log()


class EarlyEnd(NamedTuple):
    """The attempt is not to run here. ``verdict``: what to record of it; None: nothing."""

    verdict: Verdict | None


class QuarantineHost(AttemptHost, Protocol):
    """What runs attempts, and can run one in a process of its own."""

    async def run_alone(self, attempt: Attempt, begun: CrashCount) -> EarlyEnd | None:
        """Run an attempt of a quarantined job; None: it is to run here after all."""


async def aadmit(host: QuarantineHost, task: Task[..., Any], attempt: Attempt) -> EarlyEnd | None:
    """What is decided on a suspect, or on a job in a flow, before its task is called; None: it is called."""
    if is_suspect(attempt) and (early := await abegin(host, attempt)):
        return early
    of_flow = asks(task, attempt.claim.flags or 0)
    skipped = await askip_or_give_facts(host, attempt) if of_flow else None
    return None if skipped is None else EarlyEnd(skipped)


def admit(
    host: QuarantineHost, task: Task[..., Any], attempt: Attempt, loop: asyncio.AbstractEventLoop
) -> EarlyEnd | None:
    """As :func:`aadmit`, of a plain function, in its thread."""
    if is_suspect(attempt) and (early := begin(host, attempt, loop)):
        return early
    of_flow = asks(task, attempt.claim.flags or 0)
    skipped = skip_or_give_facts(host, attempt) if of_flow else None
    return None if skipped is None else EarlyEnd(skipped)


def is_suspect(attempt: Attempt) -> bool:
    """Whether a worker that died had claimed the job."""
    return bool((attempt.claim.flags or 0) & JobFlags.SUSPECT)


async def abegin(host: QuarantineHost, attempt: Attempt) -> EarlyEnd | None:
    """Note that an attempt starts; None: it is to run here."""
    begun = await host.database.arun(leases.start(attempt.claim))
    if _runs_here(attempt, begun):
        return None
    return _dead(attempt, begun) or await host.run_alone(attempt, begun or CrashCount(0))


def begin(host: QuarantineHost, attempt: Attempt, loop: asyncio.AbstractEventLoop) -> EarlyEnd | None:
    """As :func:`abegin`, of a plain function, in its thread."""
    begun = host.database.run(leases.start(attempt.claim))
    if _runs_here(attempt, begun):
        return None
    dead = _dead(attempt, begun)
    if dead is not None:
        return dead
    deadline, attempt.deadline = (
        attempt.deadline,
        math.inf,
    )  # the time in which the process starts does not count
    ended: EarlyEnd | None = await_in_loop(
        host.run_alone(attempt, begun or CrashCount(0)), attempt.whole, loop
    )
    attempt.deadline = deadline
    return ended


def _runs_here(attempt: Attempt, begun: CrashCount | None) -> bool:
    task = attempt.task
    return task is not None and begun is not None and begun.crashes < task.crashes.limit


def _dead(attempt: Attempt, begun: CrashCount | None) -> EarlyEnd | None:
    """What is decided without running the attempt."""
    if begun is None:
        return EarlyEnd(None)  # it is superseded
    if attempt.task is None or attempt.task.crashes.then == "isolate":
        return None
    return end_as_crashed(attempt, begun, None)


def end_as_crashed(
    attempt: Attempt, begun: CrashCount, seconds: float | None, how: str = "", memory: int | None = None
) -> EarlyEnd:
    """The job is dead, since it has killed its workers; for the arguments see :func:`pgqueue.values.workers.crashes.crash_verdict`."""
    verdict = crash_verdict(attempt.claim, begun, seconds, how, memory)
    fields = {"job": attempt.claim.id, "task": attempt.claim.task, "attempt": attempt.claim.attempt}
    log.error("job is dead: %s", why_dead("crashed"), extra={**fields, "error": verdict.error.message})
    return EarlyEnd(verdict)


def asks(task: Task[..., Any], flags: int) -> bool:
    """Whether an attempt has to know what came before it: its job has a condition, or its task may look."""
    return bool(flags & JobFlags.ASKS or (flags & JobFlags.FLOW and task.signature.takes_context))


def skip_or_give_facts(host: AttemptHost, attempt: Attempt) -> Cancelled | None:
    """Give the attempt what it may know of its flow.

    Returns:
        The verdict, if a condition keeps the job from running.
    """
    return _give_facts(attempt, host.database.run(flow_queries.facts(attempt.claim.id)))


async def askip_or_give_facts(host: AttemptHost, attempt: Attempt) -> Cancelled | None:
    """As :func:`skip_or_give_facts`, awaited."""
    return _give_facts(attempt, await host.database.arun(flow_queries.facts(attempt.claim.id)))


def complete(host: AttemptHost, attempt: Attempt, done: Succeeded) -> None:
    """Complete a job that has added nodes to its flow, and add them.

    Raises:
        FlowRefused: they cannot be added; nothing was changed.
        Superseded: the job is no longer this attempt's; nothing was changed.
    """
    again_after_deadlock(host.database.run)(_completion(host, attempt, done))
    _note_completion(host, attempt, done)


async def acomplete(host: AttemptHost, attempt: Attempt, done: Succeeded) -> None:
    """As :func:`complete`, awaited."""
    await aagain_after_deadlock(host.database.arun)(_completion(host, attempt, done))
    _note_completion(host, attempt, done)


def _give_facts(attempt: Attempt, facts: FlowPosition | None) -> Cancelled | None:
    context = attempt.context
    context._facts = facts  # noqa: SLF001 - for the worker alone
    if facts is None or facts.skip_if is None or not holds(facts.skip_if, context.results):
        return None
    said = AttemptError(attempt.claim.attempt, "Skipped", f"the condition of its node holds: {facts.skip_if}")
    return Cancelled(attempt.claim, said, skipped=True)


def _completion(host: AttemptHost, attempt: Attempt, done: Succeeded) -> Plan[States]:
    additions = attempt.context._additions  # noqa: SLF001 - for the worker alone
    return flow_growth.complete(done, additions, keep=host.keeps_history)


def _note_completion(host: AttemptHost, attempt: Attempt, done: Succeeded) -> None:
    attempt.context.completed = True
    host.observers.ended([done])
