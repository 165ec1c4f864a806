"""What a worker decides before it calls the task of a suspect, or of a job in a flow; and what the call adds to the flow.

A suspect is a job whose worker died while it held the job.

Of a suspect it notes the start in the database, so that a second death counts. A job that has killed as many workers as its task's
:class:`pgqueue.values.workers.crashes.Crashes` says runs alone in a process of its own (:mod:`pgqueue.worker.attempt_process`), or is dead.
"""

import asyncio
import math
from collections.abc import Generator
from typing import Any, NamedTuple, Protocol, TypeAlias

from pgqueue.app.context import AttemptHost
from pgqueue.app.judgement import why_dead
from pgqueue.store.drive import adrive, drive
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
from pgqueue.worker.attempt import Attempt, await_in_loop, task_of

log = joblog.worker_log()


class EarlyEnd(NamedTuple):
    """The attempt is not to run here. ``verdict``: what to record of it; None: nothing."""

    verdict: Verdict | None


class RunAlone(NamedTuple):
    """Run the attempt in a process of its own, since its job has killed this many workers."""

    begun: CrashCount


AdmissionStep: TypeAlias = Plan[Any] | RunAlone
"""A plan to run; or an attempt to run alone, whose answer is how it ended: None: it is to run here after all."""


class QuarantineHost(AttemptHost, Protocol):
    """What runs attempts, and can run one in a process of its own."""

    async def run_alone(self, attempt: Attempt, begun: CrashCount) -> EarlyEnd | None:
        """Run an attempt of a quarantined job; None: it is to run here after all."""


def admit(host: QuarantineHost, attempt: Attempt, loop: asyncio.AbstractEventLoop) -> EarlyEnd | None:
    """What is decided on a suspect, or on a job in a flow, before its task is called; None: it is called.

    This is for plain functions, in their thread; what has to be awaited is awaited in ``loop``.
    """

    def answer(step: AdmissionStep) -> object:
        if isinstance(step, Plan):
            return host.database.run(step)
        # The time in which the process starts does not count.
        deadline, attempt.deadline = attempt.deadline, math.inf
        ended = await_in_loop(host.run_alone(attempt, step.begun), attempt.whole, loop)
        attempt.deadline = deadline
        return ended

    return drive(_admission(attempt), answer)


async def aadmit(host: QuarantineHost, attempt: Attempt) -> EarlyEnd | None:
    """As :func:`admit`, awaited."""

    async def answer(step: AdmissionStep) -> object:
        if isinstance(step, Plan):
            return await host.database.arun(step)
        return await host.run_alone(attempt, step.begun)

    return await adrive(_admission(attempt), answer)


def _admission(attempt: Attempt) -> Generator[AdmissionStep, Any, EarlyEnd | None]:
    flags = attempt.claim.flags or 0
    if flags & JobFlags.SUSPECT:
        begun: CrashCount | None = yield leases.start(attempt.claim)
        if begun is None:
            return EarlyEnd(None)  # it is superseded
        crashes = task_of(attempt).crashes
        if begun.crashes >= crashes.limit:
            if crashes.then != "isolate":
                return end_as_crashed(attempt, begun, None)
            ended: EarlyEnd | None = yield RunAlone(begun)
            if ended is not None:
                return ended
    if not _looks_at_flow(attempt, flags):
        return None
    skipped = _give_facts(attempt, (yield flow_queries.facts(attempt.claim.id)))
    return None if skipped is None else EarlyEnd(skipped)


def _looks_at_flow(attempt: Attempt, flags: int) -> bool:
    """Whether an attempt has to know what came before it: its job has a condition, or its function may look."""
    task = task_of(attempt)
    may_look = task.batching is None and task.signature.takes_context
    return bool(flags & JobFlags.ASKS or (flags & JobFlags.FLOW and may_look))


def _give_facts(attempt: Attempt, facts: FlowPosition | None) -> Cancelled | None:
    """Give the attempt what it may know of its flow; return a verdict if a condition keeps the job from running."""
    context = attempt.context
    context._facts = facts  # noqa: SLF001 - for the worker alone
    if facts is None or facts.skip_if is None or not holds(facts.skip_if, context.results):
        return None
    said = AttemptError(attempt.claim.attempt, "Skipped", f"the condition of its node holds: {facts.skip_if}")
    return Cancelled(attempt.claim, said, skipped=True)


def end_as_crashed(
    attempt: Attempt, begun: CrashCount, seconds: float | None, how: str = "", memory: int | None = None
) -> EarlyEnd:
    """The job is dead, since it has killed its workers; for the arguments see :func:`pgqueue.values.workers.crashes.crash_verdict`."""
    verdict = crash_verdict(attempt.claim, begun, seconds, how, memory)
    fields = {"job": attempt.claim.id, "task": attempt.claim.task, "attempt": attempt.claim.attempt}
    log.error("job is dead: %s", why_dead("crashed"), extra={**fields, "error": verdict.error.message})
    return EarlyEnd(verdict)


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


def _completion(host: AttemptHost, attempt: Attempt, done: Succeeded) -> Plan[States]:
    additions = attempt.context._additions  # noqa: SLF001 - for the worker alone
    return flow_growth.complete(done, additions, keep=host.keeps_history)


def _note_completion(host: AttemptHost, attempt: Attempt, done: Succeeded) -> None:
    attempt.context.completed = True
    host.observers.ended([done])
