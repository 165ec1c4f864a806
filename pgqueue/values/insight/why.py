"""Explains why a job does not run, or has no result yet: pure rules, and a sentence for people.

The facts come from the plan in ``pgqueue/store/insight/why.py``; how each cause is said is decided in :mod:`pgqueue.values.insight.why_words`.
The sentence names the first cause that has to go, and the evidence all of them.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from pgqueue.values.insight.why_facts import WhyFacts
from pgqueue.values.insight.why_words import (
    Cause,
    Reason,
    ahead,
    blocked_cause,
    failures_text,
    obstacles,
    running_cause,
    suspect_text,
    workers_text,
)
from pgqueue.values.jobs.job import JobState
from pgqueue.values.workers.lease import duration_text

NO_RECORD = "it was not committed (yet), or was rolled back, or its history has been dropped"


class Why(msgspec.Struct, frozen=True):
    """Why a job does not run, or how it runs or ended.

    Attributes:
        job_id: the job's id.
        state: the job's state; None: there is no record of it.
        reason: the main reason, as one of a few fixed words.
        sentence: the first cause that has to go, for people.
        evidence: the facts that it was made of, by their names, as plain JSON values; those that are null are left out.
            ``causes`` has every reason, in the order in which they have to go.
    """

    job_id: int
    state: JobState | None
    reason: Reason
    sentence: str
    evidence: dict[str, Any] = {}


def explain(job_id: int, facts: WhyFacts | None) -> Why:
    """Say why a job does not run.

    Args:
        job_id: the job's id.
        facts: the facts about it; None: there is no record.
    """
    if facts is None:
        return Why(job_id, None, "no record", "there is no record of it: " + NO_RECORD)
    state = JobState(facts.state)
    causes, sentence = _causes_and_sentence(job_id, facts, state)
    if not state.ended:
        sentence += suspect_text(facts)
        if facts.expires_in is not None and state is not JobState.RUNNING:
            sentence += _expires(facts, facts.expires_in)
    found = msgspec.to_builtins(facts)
    evidence = {name: fact for name, fact in found.items() if fact not in (None, [])}
    return Why(job_id, state, causes[0], sentence, {"causes": [*dict.fromkeys(causes)], **evidence})


def is_free(facts: WhyFacts) -> bool:
    """Whether a job waits, and nothing that is known keeps it from its start."""
    waits = facts.state in ("scheduled", "ready") or facts.in_lane
    return waits and next(obstacles(facts), None) is None


def retold(why: Why, hide: Callable[[dict[str, Any]], dict[str, Any]]) -> Why:
    """The same with other evidence, and a sentence that was made of it.

    Args:
        why: what was found.
        hide: returns the evidence without what is not to be shown.
    """
    if not why.evidence:
        return why
    return explain(why.job_id, msgspec.convert(hide(why.evidence), WhyFacts))


def _causes_and_sentence(job_id: int, facts: WhyFacts, state: JobState) -> tuple[list[Reason], str]:
    """Return the causes, the first one at the front, and the sentence."""
    match state:
        case JobState.RUNNING:
            reason, sentence = running_cause(job_id, facts)
            return [reason], sentence
        case JobState.SCHEDULED | JobState.READY:
            return _causes_of_waiting(facts, facts.due_in > 0)
        case JobState.BLOCKED if facts.in_lane:
            return _causes_of_waiting(facts, is_early=False)
        case JobState.BLOCKED:
            reason, sentence = blocked_cause(job_id, facts)
            return [reason, *(cause.reason for cause in obstacles(facts))], sentence
        case _:
            return ["ended"], _how_it_ended(job_id, facts, state)


def _how_it_ended(job_id: int, facts: WhyFacts, state: JobState) -> str:
    since = facts.since or 0.0
    length, instant = duration_text(since), facts.instant(-since)
    if state is not JobState.DEAD:
        did = "was cancelled" if state is JobState.CANCELLED else str(state)
        return f"it {did} {length} ago, at {instant}"
    why = f" ({facts.reason})" if facts.reason else ""
    return f"it has been dead{why} for {length}, since {instant}{failures_text(facts)}; `pgqueue dead retry {job_id}` makes it ready again"


def _causes_of_waiting(facts: WhyFacts, is_early: bool) -> tuple[list[Reason], str]:  # noqa: FBT001 - called here only
    causes = [*obstacles(facts)]
    first = causes[0] if causes else Cause("waiting", workers_text(facts))
    reasons = [cause.reason for cause in causes] or [first.reason]
    if is_early:
        due = f"it is due in {duration_text(facts.due_in)}, at {facts.instant(facts.due_in)}{failures_text(facts)}"
        return ["not due", *(cause.reason for cause in causes)], f"{due}; {first.words}"
    stands = "it waits in its lane" if facts.in_lane else f"it is {facts.state}"
    behind = "" if causes else ahead(facts)
    since = f"{stands}{failures_text(facts)}, and has been due for {duration_text(max(0.0, -facts.due_in))}{behind}"
    return reasons, f"{since}; {first.words}"


def _expires(facts: WhyFacts, seconds: float) -> str:
    if seconds <= 0:
        return "; it has expired: a worker moves it to the dead jobs at its next sweep"
    return f"; it expires in {duration_text(seconds)}, at {facts.instant(seconds)}, if it is not started"
