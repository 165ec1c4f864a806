"""What an attempt of a job in a flow does before its task is called, and after it has returned.

Before: the attempt asks what came before it in the flow, if its job has a condition or its task may look. After: a job
that has added to its flow is completed at once, together with what it added. :mod:`pgqueue.worker.executor` calls the
task; what a condition means is decided in :mod:`pgqueue.values.flows.condition`, and how nodes are added in
:mod:`pgqueue.store.flows.flow_growth`.
"""

from typing import Any

from pgqueue.app.context import AttemptHost
from pgqueue.app.task import Task
from pgqueue.store.flows import flow_facts, flow_growth
from pgqueue.store.jobs.ending import States
from pgqueue.store.jobs.sweep import aagain_after_deadlock, again_after_deadlock
from pgqueue.store.plan import Plan
from pgqueue.values.flows.condition import holds
from pgqueue.values.flows.results import FlowPosition
from pgqueue.values.jobs.job import AttemptError, JobFlags
from pgqueue.values.jobs.verdict import Cancelled, Succeeded
from pgqueue.worker.attempt import Attempt


def asks(task: Task[..., Any], flags: int) -> bool:
    """Whether an attempt has to know what came before it: its job has a condition, or its task may look."""
    return bool(flags & JobFlags.ASKS or (flags & JobFlags.FLOW and task.signature.takes_context))


def skip_or_give_facts(host: AttemptHost, attempt: Attempt) -> Cancelled | None:
    """Give the attempt what it may know of its flow.

    Returns:
        The verdict, if a condition keeps the job from running.
    """
    return _give_facts(attempt, host.database.run(flow_facts.facts(attempt.claim.id)))


async def askip_or_give_facts(host: AttemptHost, attempt: Attempt) -> Cancelled | None:
    """As :func:`skip_or_give_facts`, awaited."""
    return _give_facts(attempt, await host.database.arun(flow_facts.facts(attempt.claim.id)))


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
