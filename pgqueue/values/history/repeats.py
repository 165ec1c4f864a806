"""Promise 13: a schedule's tick makes one job; a job of a workflow starts when those before it have succeeded, and only then."""

from collections import defaultdict
from collections.abc import Iterator

from pgqueue.values.history.events import Event, Started, Violation
from pgqueue.values.history.index import History, Life
from pgqueue.values.history.rules import Rules

PROMISE = 13


def ticks_fire_once(history: History, rules: Rules) -> Iterator[Violation]:
    """Each tick that was due has made one job, and no tick has made two."""
    made: dict[tuple[str, str], list[Life]] = defaultdict(list)
    for life in history.lives.values():
        enqueued = life.enqueued
        if life.may_exist and enqueued is not None and enqueued.schedule is not None:
            made[enqueued.schedule, enqueued.tick or ""].append(life)
    for (schedule, tick), lives in made.items():
        if len(lives) > 1:
            named = ", ".join(sorted(str(life.job) for life in lives))
            evidence = [life.enqueued for life in lives if life.enqueued is not None]
            yield Violation(
                PROMISE,
                f"schedule {schedule}: its tick {tick} made {len(lives)} jobs: {named}",
                tuple(evidence),
            )
    for due in history.due if rules.looked else ():
        if (due.schedule, due.tick) not in made:
            yield Violation(
                PROMISE, f"schedule {due.schedule}: its tick {due.tick} was due and made no job", (due,)
            )


def flows_are_exact(history: History, rules: Rules) -> Iterator[Violation]:
    """No job starts before all those have succeeded that it comes after."""
    for life in history.lives.values():
        first = min(life.starts, key=lambda one: one.at, default=None)
        if first is None or life.enqueued is None or not life.enqueued.after:
            continue
        for name in life.enqueued.after:
            before = history.lives.get(name)
            if before is not None:
                yield from _too_early(life, first, before, rules)
            else:
                yield _violation(life, f"started, and nothing is known of job {name} before it", first)


def _too_early(life: Life, first: Started, before: Life, rules: Rules) -> Iterator[Violation]:
    heard = [turn for turn in before.turns if turn.heard]
    acts = [turn.started for turn in heard] + (
        [] if before.transactional else [turn.stopped for turn in heard]
    )
    late = [act for act in acts if act is not None and act.at > first.at]
    failed = [one for one in before.records if one.state != "succeeded"]
    if late:
        yield _violation(life, f"started while job {before.job} before it still ran", first, late[0])
    elif failed and rules.looked and not before.revived:
        yield _violation(
            life, f"started, and job {before.job} before it is {failed[0].state}", first, failed[0]
        )
    elif not any(before.starts):
        yield _violation(life, f"started, and job {before.job} before it never did", first)


def _violation(life: Life, what: str, *evidence: Event) -> Violation:
    first = () if life.enqueued is None else (life.enqueued,)
    return Violation(PROMISE, f"job {life.job} {what}", (*first, *evidence))
