"""Promise 8: what a task writes in ``ctx.transaction()`` commits together with the job's success, or not at all."""

from collections.abc import Iterator

from pgqueue.values.history.events import Violation
from pgqueue.values.history.index import History, Life
from pgqueue.values.history.rules import Rules

PROMISE = 8


def effects_commit_with_the_job(history: History, rules: Rules) -> Iterator[Violation]:
    """Each job that succeeded has its effect once; no other job has one."""
    for life in history.lives.values():
        what = _wrong(life, rules)
        if what is not None:
            yield Violation(PROMISE, f"job {life.job} {what}", (*life.evidence, *life.effects, *life.records))


def _wrong(life: Life, rules: Rules) -> str | None:
    if len(life.effects) > 1:
        return f"has its effect {len(life.effects)} times"
    if not rules.looked or len(life.records) != 1:
        return f"has its effect, and it is {life.live.state}" if life.effects and life.live else None
    state = life.records[0].state
    if life.effects and state != "succeeded":
        return f"has its effect, and it is {state}"
    if not life.effects and state == "succeeded" and life.transactional:
        return "has succeeded, and its effect is missing"
    return None
