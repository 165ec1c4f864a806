"""Promise 3: every claim spends an attempt; a job is dead when none is left, with the errors of its attempts."""

from collections.abc import Iterator
from itertools import pairwise

from pgqueue.values.history.events import Ended, Reclaimed, Recorded, Violation
from pgqueue.values.history.index import History, Life, Turn
from pgqueue.values.history.rules import Rules

PROMISE = 3


def every_claim_spends(history: History, rules: Rules) -> Iterator[Violation]:
    """No two spent claims of a job have the same number, and none has a number past the last one."""
    for life in history.lives.values():
        claimed = sorted((one for one in life.turns if one.claimed is not None), key=lambda one: one.since)
        yield from _beyond(life, claimed)
        for before, after in pairwise(claimed):
            between = (one for one in life.revived if before.since <= one.at <= after.since + rules.slack)
            if _spent(before) and after.attempt <= before.attempt and not any(between):
                yield Violation(
                    PROMISE,
                    f"job {life.job}: attempt {before.attempt} was spent, and the next claim is attempt {after.attempt}",
                    (*before.evidence, *after.evidence),
                )


def dead_when_none_is_left(history: History, _: Rules) -> Iterator[Violation]:
    """A job without attempts is dead, with all its errors; and it is not dead for that before."""
    for life in history.lives.values():
        for record in life.records:
            what = _wrong_count(record)
            if what is not None:
                yield Violation(PROMISE, f"job {life.job} {what}", (record,))


def _beyond(life: Life, claimed: list[Turn]) -> Iterator[Violation]:
    for turn in claimed:
        most = None if turn.claimed is None else turn.claimed.most
        if most is not None and turn.attempt > most:
            yield Violation(
                PROMISE,
                f"job {life.job} has {most} attempts, and attempt {turn.attempt} was claimed",
                turn.evidence,
            )


def _spent(turn: Turn) -> bool:
    match turn.closed:
        case Ended(spent=spent):
            return spent
        case Reclaimed():
            return True
        case None:
            return False  # not known: a worker that was killed may have returned it


def _wrong_count(record: Recorded) -> str | None:
    spent, most, errors = record.attempts, record.most, record.errors
    if spent is None or most is None:
        return None
    if spent > most:
        return f"has {most} attempts, and {spent} are recorded"
    if record.exhausted and spent < most:
        return f"is dead as if no attempt were left, after {spent} of {most}"
    if record.exhausted and errors is not None and errors < spent:
        return f"is dead after {spent} attempts, with the errors of {errors}"
    return None
