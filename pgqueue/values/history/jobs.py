"""Promise 1: a committed enqueue ends in exactly one record, whatever crashes; one that was rolled back leaves nothing."""

from collections.abc import Iterator

from pgqueue.values.history.events import Event, Violation
from pgqueue.values.history.index import History, Life
from pgqueue.values.history.rules import Rules

PROMISE = 1


def one_record(history: History, rules: Rules) -> Iterator[Violation]:
    """Each job has one record, or is live; a job that was rolled back has nothing."""
    for life in history.lives.values():
        if not life.may_exist:
            yield from _exists(life)
        elif rules.looked:
            yield from _recorded(life, rules)


def ended_once(history: History, rules: Rules) -> Iterator[Violation]:
    """No job runs after its end, and its record says what the queue answered."""
    for life in history.lives.values():
        if not life.revived:
            yield from _ran_again(life, rules)
            yield from _said_otherwise(life)


def _exists(life: Life) -> Iterator[Violation]:
    traces = [*(turn.evidence[0] for turn in life.turns), *life.records, *([life.live] if life.live else [])]
    if traces:
        yield _violation(life, "was rolled back with its transaction, and it exists", traces[0])


def _recorded(life: Life, rules: Rules) -> Iterator[Violation]:
    if len(life.records) > 1:
        yield _violation(life, f"has {len(life.records)} records", *life.records)
    elif life.records and life.live:
        yield _violation(life, "has ended, and it is live", life.records[0], life.live)
    elif life.live and rules.drained:
        yield _violation(life, f"has not ended: it is {life.live.state}", life.live)
    elif not life.records and not life.live and _must_be_found(life):
        yield _violation(life, "is lost: no table has it", *life.turns[-1].evidence if life.turns else ())


def _must_be_found(life: Life) -> bool:
    if any(one.purged for one in life.revived):
        return False
    acknowledged = life.enqueued is not None and life.enqueued.commit == "acknowledged"
    return acknowledged or bool(life.turns)


def _ran_again(life: Life, rules: Rules) -> Iterator[Violation]:
    end = min(life.ends, key=lambda one: one.at, default=None)
    if end is None:
        return
    for turn in life.turns:
        if turn.claimed is not None and turn.since > end.at + rules.slack:
            yield _violation(life, f"was claimed after it had ended as {end.state}", end, turn.claimed)
            return


def _said_otherwise(life: Life) -> Iterator[Violation]:
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


def _violation(life: Life, what: str, *evidence: Event) -> Violation:
    first = () if life.enqueued is None else (life.enqueued,)
    return Violation(PROMISE, f"job {life.job} {what}", (*first, *evidence))
