"""What each promise says of one job by itself: its records, its claims, its attempts, its effect.

- Promise 1: a committed enqueue ends in exactly one record, whatever crashes; one that was rolled back leaves nothing.
- Promises 2 and 6: at most one worker holds a job, until its lease has passed; soon after that another worker has it.
- Promise 3: every claim spends an attempt; a job is dead when none is left, with the errors of its attempts.
- Promise 8: what a task writes in ``ctx.transaction()`` commits together with the job's success, or not at all.
"""

from collections.abc import Iterator
from itertools import pairwise

from pgqueue.chaos.history.events import Ended, Event, Reclaimed, Recorded, Violation
from pgqueue.chaos.history.index import History, ObservedAttempt, ObservedJob, Rules

ONE_RECORD = 1
ONE_CLAIM = 2
RUNS_ELSEWHERE = 6
ATTEMPTS = 3
EFFECTS = 8


def one_record(history: History, rules: Rules) -> Iterator[Violation]:
    """Each job has one record, or is live; a job that was rolled back has nothing."""
    for life in history.lives.values():
        if not life.may_exist:
            yield from _exists(life)
        elif rules.looked:
            yield from _check_record(life, rules)


def ended_once(history: History, rules: Rules) -> Iterator[Violation]:
    """No job runs after its end, and its record says what the queue answered."""
    for life in history.lives.values():
        if not life.revived:
            yield from _ran_again(life, rules)
            yield from _said_otherwise(life)


def _exists(life: ObservedJob) -> Iterator[Violation]:
    traces = [*(turn.evidence[0] for turn in life.turns), *life.records, *([life.live] if life.live else [])]
    if traces:
        yield _violation(life, "was rolled back with its transaction, and it exists", traces[0])


def _check_record(life: ObservedJob, rules: Rules) -> Iterator[Violation]:
    if len(life.records) > 1:
        yield _violation(life, f"has {len(life.records)} records", *life.records)
    elif life.records and life.live:
        yield _violation(life, "has ended, and it is live", life.records[0], life.live)
    elif life.live and rules.drained:
        yield _violation(life, f"has not ended: it is {life.live.state}", life.live)
    elif not life.records and not life.live and _must_be_found(life):
        yield _violation(life, "is lost: no table has it", *life.turns[-1].evidence if life.turns else ())


def _must_be_found(life: ObservedJob) -> bool:
    if any(one.purged for one in life.revived):
        return False
    acknowledged = life.enqueued is not None and life.enqueued.commit == "acknowledged"
    return acknowledged or bool(life.turns)


def _ran_again(life: ObservedJob, rules: Rules) -> Iterator[Violation]:
    end = min(life.ends, key=lambda one: one.at, default=None)
    if end is None:
        return
    for turn in life.turns:
        if turn.claimed is not None and turn.since > end.at + rules.slack:
            yield _violation(life, f"was claimed after it had ended as {end.state}", end, turn.claimed)
            return


def _said_otherwise(life: ObservedJob) -> Iterator[Violation]:
    said = {one.state: one for one in life.ends}
    if len(said) > 1:
        yield _violation(life, f"ended {len(said)} times: as {', '.join(map(str, said))}", *said.values())
    elif said and len(life.records) == 1 and life.records[0].state not in said:
        (state,) = said
        yield _violation(
            life,
            f"ended as {state}, and its record says {life.records[0].state}",
            said[state],
            life.records[0],
        )


def _violation(life: ObservedJob, what: str, *evidence: Event) -> Violation:
    first = () if life.enqueued is None else (life.enqueued,)
    return Violation(ONE_RECORD, f"job {life.job} {what}", (*first, *evidence))


def one_holder(history: History, rules: Rules) -> Iterator[Violation]:
    """The times in which workers hold a job do not overlap."""
    for life in history.lives.values():
        held: ObservedAttempt | None = None
        for turn in sorted(life.turns, key=lambda one: one.since):
            if turn.claimed is None:
                continue
            if held is not None and history.until(held) > turn.since + rules.slack:
                yield Violation(
                    ONE_CLAIM,
                    f"job {life.job} was claimed by worker {turn.worker} while worker {held.worker} held it",
                    (*held.evidence, *turn.evidence),
                )
            if held is None or history.until(turn) >= history.until(held):
                held = turn


def nothing_from_the_superseded(history: History, _: Rules) -> Iterator[Violation]:
    """No verdict is recorded of an attempt that has lost its claim."""
    for life in history.lives.values():
        for end in life.excess:
            if isinstance(end, Ended) and (lost := _claims_of(life, end)):
                yield Violation(
                    ONE_CLAIM,
                    f"job {life.job}: a verdict of worker {end.worker} on attempt {end.attempt} was recorded, and it held no claim",
                    (*lost[-1].evidence, end),
                )


def no_reclaim_inside_a_lease(history: History, rules: Rules) -> Iterator[Violation]:
    """A sweeper takes a job only from a worker whose lease has passed, or that has left."""
    for life in history.lives.values():
        for reclaimed in _reclaims(life):
            renewed = history.renewed(reclaimed.worker, reclaimed.at)
            left = history.left.get(reclaimed.worker)
            is_free = left is not None and left.returned and left.at <= reclaimed.at + rules.slack
            if renewed is None or is_free:
                continue
            too_early = renewed.at + renewed.lease - reclaimed.at
            if too_early > rules.slack:
                yield Violation(
                    ONE_CLAIM,
                    f"job {life.job} was taken from worker {reclaimed.worker} {too_early:.3f} s before its lease had passed",
                    (renewed, reclaimed),
                )


def runs_elsewhere_soon(history: History, rules: Rules) -> Iterator[Violation]:
    """The jobs of a worker that has left are reclaimed in time, and one that stopped by itself has left none."""
    for life in history.lives.values():
        for reclaimed in _reclaims(life):
            left = history.left.get(reclaimed.worker)
            if left is None:
                continue
            late = reclaimed.at - left.at
            if left.returned:
                what = f"worker {left.worker} stopped by itself, and left job {life.job} behind"
                yield Violation(RUNS_ELSEWHERE, what, (left, reclaimed))
            elif rules.recovery is not None and late > rules.recovery + rules.slack:
                what = f"job {life.job} was reclaimed {late:.3f} s after worker {left.worker} had left"
                yield Violation(RUNS_ELSEWHERE, what, (left, reclaimed))


def _reclaims(life: ObservedJob) -> Iterator[Reclaimed]:
    ends = [*(turn.closed for turn in life.turns), *life.excess]
    return (one for one in ends if isinstance(one, Reclaimed))


def _claims_of(life: ObservedJob, end: Ended) -> list[ObservedAttempt]:
    return [turn for turn in life.turns if turn.claimed is not None and turn.is_named(end)]


def every_claim_spends(history: History, rules: Rules) -> Iterator[Violation]:
    """No two spent claims of a job have the same number, and none has a number past the last one."""
    for life in history.lives.values():
        claimed = sorted((one for one in life.turns if one.claimed is not None), key=lambda one: one.since)
        yield from _beyond(life, claimed)
        for before, after in pairwise(claimed):
            between = (one for one in life.revived if before.since <= one.at <= after.since + rules.slack)
            if _is_spent(before) and after.attempt <= before.attempt and not any(between):
                yield Violation(
                    ATTEMPTS,
                    f"job {life.job}: attempt {before.attempt} was spent, and the next claim is attempt {after.attempt}",
                    (*before.evidence, *after.evidence),
                )


def dead_when_none_is_left(history: History, _: Rules) -> Iterator[Violation]:
    """A job without attempts is dead, with all its errors; and it is not dead for that before."""
    for life in history.lives.values():
        for record in life.records:
            what = _wrong_count(record)
            if what is not None:
                yield Violation(ATTEMPTS, f"job {life.job} {what}", (record,))


def _beyond(life: ObservedJob, claimed: list[ObservedAttempt]) -> Iterator[Violation]:
    for turn in claimed:
        most = None if turn.claimed is None else turn.claimed.most
        if most is not None and turn.attempt > most:
            yield Violation(
                ATTEMPTS,
                f"job {life.job} has {most} attempts, and attempt {turn.attempt} was claimed",
                turn.evidence,
            )


def _is_spent(turn: ObservedAttempt) -> bool:
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


def effects_commit_with_the_job(history: History, rules: Rules) -> Iterator[Violation]:
    """Each job that succeeded has its effect once; no other job has one."""
    for life in history.lives.values():
        what = _wrong_effect(life, rules)
        if what is not None:
            yield Violation(EFFECTS, f"job {life.job} {what}", (*life.evidence, *life.effects, *life.records))


def _wrong_effect(life: ObservedJob, rules: Rules) -> str | None:
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
