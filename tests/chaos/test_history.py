"""Each promise is decided from a history: a small one in which it held, though it looks suspicious, and one in which it did not.

The log of a history: many processes append to it, some of them are killed, and no whole line is lost.
"""

import os
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from pgqueue.chaos.history.events import (
    Claimed,
    Declared,
    Due,
    Effect,
    Ended,
    Enqueued,
    Event,
    Left,
    Live,
    Reclaimed,
    Recorded,
    Renewed,
    Revived,
    Started,
    Stopped,
    events_of,
    line_of,
)
from pgqueue.chaos.history.index import Rules
from pgqueue.chaos.judge import RULES, check
from pgqueue.chaos.log import HistoryLog, Tail

LOOKED = Rules()
OPEN = Rules(looked=False)
LEASE = 30.0


def job(at: float = 0, job: int = 1, **more: object) -> Enqueued:
    return Enqueued(at=at, job=job, **more)  # type: ignore[arg-type]  # the fields of the struct


def claim(
    at: float, worker: str = "A", attempt: int = 1, *, job: int = 1, most: int | None = 3, fence: int = 0
) -> Claimed:
    return Claimed(at=at, job=job, worker=worker, attempt=attempt, most=most, fence=fence)


def start(at: float, worker: str = "A", attempt: int = 1, *, job: int = 1) -> Started:
    return Started(at=at, job=job, worker=worker, attempt=attempt)


def stop(at: float, worker: str = "A", attempt: int = 1, *, job: int = 1) -> Stopped:
    return Stopped(at=at, job=job, worker=worker, attempt=attempt)


def end(
    at: float,
    state: str | None = "succeeded",
    worker: str = "A",
    attempt: int = 1,
    *,
    job: int = 1,
    spent: bool = True,
    fence: int = 0,
) -> Ended:
    return Ended(at=at, job=job, worker=worker, attempt=attempt, state=state, spent=spent, fence=fence)  # type: ignore[arg-type]


def reclaim(at: float, worker: str = "A", attempt: int = 1, *, job: int = 1) -> Reclaimed:
    return Reclaimed(at=at, job=job, worker=worker, attempt=attempt, state="ready")


def record(state: str = "succeeded", *, job: int = 1, **more: object) -> Recorded:
    return Recorded(at=100, job=job, state=state, **more)  # type: ignore[arg-type]  # the fields of the struct


def ran(job: int, since: float, until: float, worker: str = "A") -> list[Event]:
    return [start(since, worker, job=job), stop(until, worker, job=job), end(until, worker=worker, job=job)]


@dataclass
class Case:
    """Two histories that differ in little, and what is said of the second one."""

    name: str
    promise: int
    held: list[Event]
    broken: list[Event]
    said: str
    rules: Rules = field(default=LOOKED)


CASES = [
    Case(
        "a job in no table is lost",
        1,
        [job(), Live(at=100, job=1, state="ready")],
        [job()],
        "job 1 is lost: no table has it",
    ),
    Case(
        "a job whose enqueue got no answer is lost only if it ran",
        1,
        [job(commit="unknown")],
        [job(commit="unknown"), start(1)],
        "job 1 is lost",
    ),
    Case("a job has one record", 1, [job(), record()], [job(), record(), record("dead")], "has 2 records"),
    Case(
        "a job that ended is not live",
        1,
        [job(), record()],
        [job(), record(), Live(at=100, job=1, state="ready")],
        "has ended, and it is live",
    ),
    Case(
        "a job that was rolled back does not run",
        1,
        [job(commit="rolled_back")],
        [job(commit="rolled_back"), start(1)],
        "was rolled back with its transaction, and it exists",
    ),
    Case(
        "a job that was purged may be in no table",
        1,
        [job(), end(1, "dead"), Revived(at=2, job=1, purged=True)],
        [job(), claim(0.5), end(1, "dead"), Revived(at=2, job=1)],
        "job 1 is lost",
    ),
    Case(
        "a drained queue has no live job",
        1,
        [job(), record()],
        [job(), Live(at=100, job=1, state="blocked")],
        "has not ended: it is blocked",
        Rules(drained=True),
    ),
    Case(
        "a job runs after its end only if a caller retries it",
        1,
        [claim(1), end(2, "dead"), Revived(at=3, job=1), claim(4)],
        [claim(1), end(2, "dead"), claim(4, attempt=2)],
        "was claimed after it had ended as dead",
        OPEN,
    ),
    Case(
        "a record says what the queue answered",
        1,
        [claim(1), end(2), record()],
        [claim(1), end(2), record("cancelled")],
        "ended as succeeded, and its record says cancelled",
    ),
    Case(
        "a job ends in one way",
        1,
        [claim(1), end(2, "ready"), claim(3, attempt=2), end(4, attempt=2)],
        [claim(1), end(2, "dead"), claim(2, attempt=2), end(4, attempt=2)],
        "ended 2 times",
        OPEN,
    ),
    Case(
        "a claim ends before the next one begins, and may be written late",
        2,
        [claim(1), claim(2, "B", 2), reclaim(2.04)],
        [claim(1), claim(2, "B", 2), reclaim(2.06)],
        "was claimed by worker B while worker A held it",
        OPEN,
    ),
    Case(
        "a claim of a worker that was killed says nothing",
        2,
        [claim(1), Left(at=1.5, worker="A"), claim(2, "B", 2)],
        [claim(1), claim(2, "B", 2)],
        "while worker A held it",
        OPEN,
    ),
    Case(
        "a superseded attempt is not heard",
        2,
        [claim(1), reclaim(40), claim(41, "B", 2), end(42, None)],
        [claim(1), reclaim(40), claim(41, "B", 2), end(42, "ready")],
        "a verdict of worker A on attempt 1 was recorded, and it held no claim",
        OPEN,
    ),
    Case(
        "a verdict on a claim that was returned is not heard, though the next one has its attempt",
        2,
        [claim(1, fence=7), end(2, "ready", spent=False, fence=7), claim(3, fence=8), end(4, None, fence=7)],
        [claim(1, fence=7), end(2, "ready", spent=False, fence=7), claim(3, fence=8), end(4, fence=7)],
        "a verdict of worker A on attempt 1 was recorded, and it held no claim",
        OPEN,
    ),
    Case(
        "a lease is waited for",
        2,
        [Renewed(at=0, worker="A", lease=LEASE), claim(1), reclaim(30)],
        [
            Renewed(at=0, worker="A", lease=LEASE),
            claim(1),
            Renewed(at=10, worker="A", lease=LEASE),
            reclaim(30),
        ],
        "was taken from worker A 10.000 s before its lease had passed",
        OPEN,
    ),
    Case(
        "a returned claim gives its attempt back, a failed one does not",
        3,
        [claim(1), end(2, "ready", spent=False), claim(3), end(4)],
        [claim(1), end(2, "ready"), claim(3), end(4)],
        "attempt 1 was spent, and the next claim is attempt 1",
        OPEN,
    ),
    Case(
        "no attempt is past the last one",
        3,
        [claim(1, attempt=3)],
        [claim(1, attempt=4)],
        "has 3 attempts, and attempt 4 was claimed",
        OPEN,
    ),
    Case(
        "a dead job has spent its attempts",
        3,
        [record("dead", attempts=3, most=3, errors=3, exhausted=True)],
        [record("dead", attempts=2, most=3, errors=2, exhausted=True)],
        "is dead as if no attempt were left, after 2 of 3",
    ),
    Case(
        "a dead job has its errors",
        3,
        [record("dead", attempts=3, most=3, errors=3, exhausted=True)],
        [record("dead", attempts=3, most=3, errors=2, exhausted=True)],
        "is dead after 3 attempts, with the errors of 2",
    ),
    Case(
        "a key is free when its job has ended",
        4,
        [job(key="k"), start(1), stop(3), end(4), job(3.5, 2, key="k"), end(5, job=2)],
        [job(key="k"), start(1), stop(3), end(4), job(2.5, 2, key="k"), end(5, job=2)],
        "jobs 1 and 2 were live at the same time with the key 'k'",
        OPEN,
    ),
    Case(
        "a key is free while its job is dead, and not after the retry",
        4,
        [job(key="k"), start(1), end(2, "dead"), job(3, 2, key="k"), *ran(2, 4, 5), Revived(at=6, job=1)],
        [job(key="k"), start(1), end(2, "dead"), job(3, 2, key="k"), Revived(at=4, job=1), *ran(2, 5, 6)],
        "jobs 2 and 1 were live at the same time",
        OPEN,
    ),
    Case(
        "a limit counts what runs, and no superseded attempt",
        5,
        [
            Declared(at=0, limit="api", most=1),
            job(limits=("api",)),
            job(job=2, limits=("api",)),
            *(claim(1), start(1), reclaim(40), stop(60), end(61, None)),
            *ran(2, 50, 51),
        ],
        [
            Declared(at=0, limit="api", most=1),
            job(limits=("api",)),
            job(job=2, limits=("api",)),
            *(claim(1), start(1), stop(60), end(61)),
            *ran(2, 50, 51),
        ],
        "2 jobs of api ran at once, and its limit is 1",
        OPEN,
    ),
    Case(
        "keys of a limit are apart",
        5,
        [
            Declared(at=0, limit="t", most=1),
            job(limits=("t=1",)),
            job(job=2, limits=("t=2",)),
            *ran(1, 1, 3),
            *ran(2, 2, 4),
        ],
        [
            Declared(at=0, limit="t", most=1),
            job(limits=("t=1",)),
            job(job=2, limits=("t=1",)),
            *ran(1, 1, 3),
            *ran(2, 2, 4),
        ],
        "2 jobs of t=1 ran at once",
        OPEN,
    ),
    Case(
        "a rate spaces starts",
        5,
        [
            Declared(at=0, limit="r", every=1.0, burst=2),
            *(job(job=n, limits=("r",)) for n in (1, 2, 3)),
            start(10, job=1),
            start(10, job=2),
            start(11, job=3),
        ],
        [
            Declared(at=0, limit="r", every=1.0, burst=2),
            *(job(job=n, limits=("r",)) for n in (1, 2, 3)),
            start(10, job=1),
            start(10, job=2),
            start(10.9, job=3),
        ],
        "job 3 of r started 0.100 s before its rate allowed it",
        OPEN,
    ),
    Case(
        "an ordered key goes on when the job ahead has ended",
        5,
        [
            Declared(at=0, limit="o", ordered=True),
            *(job(job=n, limits=("o",), place=n) for n in (1, 2)),
            *(start(1), end(2, "scheduled"), *ran(2, 4, 5), start(3, attempt=2), end(3.5, attempt=2)),
        ],
        [
            Declared(at=0, limit="o", ordered=True),
            *(job(job=n, limits=("o",), place=n) for n in (1, 2)),
            *(start(1), end(2, "scheduled"), *ran(2, 4, 5), start(6, attempt=2), end(7, attempt=2)),
        ],
        "job 2 of o started before job 1, which is ahead of it, had ended",
        OPEN,
    ),
    Case(
        "a worker that stops leaves nothing behind",
        6,
        [claim(1), Left(at=2, worker="A"), reclaim(33)],
        [claim(1), Left(at=2, worker="A", returned=True), reclaim(33)],
        "worker A stopped by itself, and left job 1 behind",
        OPEN,
    ),
    Case(
        "jobs of a killed worker are reclaimed in time",
        6,
        [claim(1), Left(at=2, worker="A"), reclaim(37)],
        [claim(1), Left(at=2, worker="A"), reclaim(38)],
        "job 1 was reclaimed 36.000 s after worker A had left",
        Rules(looked=False, recovery=35),
    ),
    Case(
        "an effect happens once",
        8,
        [job(transactional=True), record(), Effect(at=100, job=1)],
        [job(transactional=True), record(), Effect(at=100, job=1), Effect(at=100, job=1)],
        "has its effect 2 times",
    ),
    Case(
        "an effect commits with the job's success",
        8,
        [job(transactional=True), record("dead")],
        [job(transactional=True), record("dead"), Effect(at=100, job=1)],
        "has its effect, and it is dead",
    ),
    Case(
        "a success commits with its effect",
        8,
        [job(), record()],
        [job(transactional=True), record()],
        "has succeeded, and its effect is missing",
    ),
    Case(
        "a line is served in order",
        9,
        [job(line="q", place=1), job(job=2, line="q", place=2), claim(1), claim(1.01, job=2)],
        [job(line="q", place=1), job(job=2, line="q", place=2), claim(2), claim(1, job=2)],
        "job 2 was claimed before job 1, which is ahead of it in q",
        OPEN,
    ),
    Case(
        "a job that comes later is overtaken by nobody",
        9,
        [job(3, line="q", place=1), job(job=2, line="q", place=2), claim(4), claim(1, job=2)],
        [job(0, line="q", place=1), job(job=2, line="q", place=2), claim(4), claim(1, job=2)],
        "job 2 was claimed before job 1",
        OPEN,
    ),
    Case(
        "a tick makes one job",
        13,
        [job(schedule="s", tick="12:00"), job(job=2, schedule="s", tick="13:00")],
        [job(schedule="s", tick="12:00"), job(job=2, schedule="s", tick="12:00")],
        "its tick 12:00 made 2 jobs: 1, 2",
        OPEN,
    ),
    Case(
        "a tick that was due makes a job",
        13,
        [Due(at=0, schedule="s", tick="12:00"), job(schedule="s", tick="12:00"), record()],
        [Due(at=0, schedule="s", tick="12:00")],
        "its tick 12:00 was due and made no job",
    ),
    Case(
        "a job of a flow starts when those before it have succeeded",
        13,
        [job(), job(job=2, after=(1,)), *ran(1, 1, 2), *ran(2, 2.5, 3)],
        [job(), job(job=2, after=(1,)), *ran(1, 1, 2), *ran(2, 1.5, 3)],
        "job 2 started while job 1 before it still ran",
        OPEN,
    ),
    Case(
        "a job of a flow does not start after a dead one",
        13,
        [job(), job(job=2, after=(1,)), start(1), end(2, "dead"), record("dead"), record("cancelled", job=2)],
        [
            job(),
            job(job=2, after=(1,)),
            start(1),
            end(2, "dead"),
            record("dead"),
            *ran(2, 3, 4),
            record(job=2),
        ],
        "job 2 started, and job 1 before it is dead",
    ),
    Case(
        "a job of a flow does not start before one that never did",
        13,
        [job(), job(job=2, after=(1,))],
        [job(), job(job=2, after=(1,)), start(1, job=2)],
        "job 2 started, and job 1 before it never did",
        OPEN,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_broken_promise_is_told_from_one_that_held(case: Case) -> None:
    read, torn = events_of(map(line_of, reversed(case.broken)))

    assert check(case.held, case.rules) == []
    (found,) = check(read, case.rules)
    assert (found.promise, torn) == (case.promise, 0)
    assert case.said in found.sentence
    assert set(found.evidence) <= set(case.broken)
    assert found.evidence


def test_each_rule_has_a_history_that_breaks_it() -> None:
    from pgqueue.chaos.history.index import History  # noqa: PLC0415 - only here

    silent = {
        rule.__name__ for rule in RULES if not any(list(rule(History(c.broken), c.rules)) for c in CASES)
    }
    assert silent == set()


PROCESSES = 4
BATCHES = 200


def test_processes_that_append_at_once_lose_no_line(tmp_path: Path) -> None:
    path = tmp_path / "history"
    children = [os.fork() or _append(path, number) for number in range(PROCESSES)]
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]

    events, torn = _read(path)

    assert codes == [-signal.SIGKILL] * PROCESSES
    assert torn == 0
    found = {(one.worker, round(one.at)) for one in events if isinstance(one, Left)}
    assert len(events) == len(found) == PROCESSES * BATCHES * 2


def _append(path: Path, number: int) -> int:
    """In a child: append, and be killed without closing anything."""
    log = HistoryLog(path)
    for place in range(BATCHES):
        log.write(*(Left(at=2 * place + half, worker=f"{number}" * 500) for half in (0, 1)))
    os.kill(os.getpid(), signal.SIGKILL)
    return number  # not reached


def test_a_write_that_the_disk_cuts_off_costs_no_other_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written, cuts = os.write, [50]

    def full(file: int, data: bytes) -> int:
        return written(file, data[: cuts.pop()] if cuts else data)

    log = HistoryLog(tmp_path / "history-1.jsonl")
    monkeypatch.setattr(os, "write", full)
    log.write(*(Left(at=place, worker="A") for place in range(5)))
    monkeypatch.undo()
    log.write(Live(at=time.monotonic(), job="a name", state="ready"))

    events, torn = _read(tmp_path / "history-1.jsonl")
    assert [one.at for one in events[:-1]] == [0, 1, 2, 3, 4]
    assert isinstance(events[-1], Live)
    assert torn == 1
    assert [line.event for line in Tail(tmp_path).news()] == events


def _read(path: Path) -> tuple[list[Event], int]:
    with path.open("rb") as file:
        return events_of(file)
