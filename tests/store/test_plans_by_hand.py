"""What plans decide, without a database: rows are handed to them, and what they ask for is looked at.

What a poll finds of the work that seldom comes: it is told when there is some, and only if it is asked.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from typing import Any, LiteralString, TypeVar

import pytest
from looking import ask
from msgspec.structs import replace
from store.samples import MINUTE, NOON, new_job, verdicts_on, worker_info

from pgqueue import PgQueue
from pgqueue.errors import JobError
from pgqueue.store.jobs import claim, ending, enqueue, finish
from pgqueue.store.plan import Copy, Plan, Row, Step, run
from pgqueue.store.workers import leases, upkeep
from pgqueue.values.jobs.job import Claim, EnqueueAnswer, JobState, NewJob, Outcome
from pgqueue.values.jobs.unique import Unique

T = TypeVar("T")

LOST = worker_info().id


class Answers:
    """A connection that answers from a list, and remembers what it was asked."""

    def __init__(self, *answers: Sequence[Row]) -> None:
        self.answers = list(answers)
        self.asked: list[Step] = []

    def execute(self, step: Step, /) -> Sequence[Row]:
        self.asked.append(Copy(step.name, list(step.chunks)) if isinstance(step, Copy) else step)
        return self.answers.pop(0) if self.answers else ()

    def transaction(self) -> nullcontext[None]:
        return nullcontext()

    @property
    def names(self) -> list[str]:
        return [step.name for step in self.asked]


NO_DEFAULTS = [(NOON, None, None, None, None, None, True)]
"""What the database says of queues without settings."""


def _told(plan: Plan[T], *answers: Sequence[Row]) -> tuple[T, list[str]]:
    """What a plan returns and which statements it sent, given these answers."""
    connection = Answers(*answers)
    result = run(plan, connection)
    assert not connection.answers
    return result, connection.names


def _claim(**changes: Any) -> Claim:
    values: dict[str, Any] = {
        "id": 1,
        "worker_id": worker_info().id,
        "fence": 1,
        "attempt": 1,
        "max_attempts": 3,
        "priority": 0,
        "queue": "default",
        "task": "bill",
        "args": "{}",
        "run_at_epoch": NOON.timestamp(),
        "created_at_epoch": NOON.timestamp(),
        "failing_seconds": 0.0,
    }
    return Claim(**values | changes)


def test_a_holder_that_ends_between_insert_and_count_makes_for_another_try() -> None:
    answer, names = _told(enqueue.enqueue(new_job(unique_key="key")), [], [], [], [(7,)])

    assert answer == EnqueueAnswer(7, Outcome.ADDED)
    assert names == ["jobs/enqueue_unique", "jobs/count_collision", "queues/room", "jobs/enqueue_unique"]


def test_a_key_that_never_holds_still_ends_in_an_error_that_names_it() -> None:
    connection = Answers()

    with pytest.raises(JobError, match="unique_key='key' was taken and freed 10 times"):
        run(enqueue.enqueue(new_job(unique_key="key")), connection)
    assert connection.names.count("jobs/enqueue_unique") == enqueue.TRIES


def test_a_hold_is_given_back_where_a_live_job_has_the_key_after_all() -> None:
    held = new_job(unique_key="key", unique=Unique(period=MINUTE))

    answer, names = _told(enqueue.enqueue(held), [(8, False)], [], [(7,)])

    assert answer == EnqueueAnswer(7, Outcome.REJECTED)
    assert names == ["jobs/enqueue_for_period", "jobs/release_hold", "jobs/count_collision"]
    assert _told(enqueue.enqueue(held), [(8, True)]) == (EnqueueAnswer(8), ["jobs/enqueue_for_period"])


def test_the_next_block_is_drawn_while_the_last_is_sent() -> None:
    drawn: list[int] = []

    def jobs() -> Iterator[NewJob]:
        for number in range(2 * enqueue.ROWS_PER_BLOCK + 1):
            drawn.append(number)
            yield new_job()

    steps = enqueue.enqueue_many(jobs()).steps()
    next(steps)
    steps.send(NO_DEFAULTS)
    copied = steps.send([(1, enqueue.ROWS_PER_BLOCK)])
    assert isinstance(copied, Copy)
    assert len(drawn) == enqueue.ROWS_PER_BLOCK
    assert sum(chunk.count(b"\n") for chunk in copied.chunks) == enqueue.ROWS_PER_BLOCK
    assert len(drawn) == 2 * enqueue.ROWS_PER_BLOCK


def test_a_rejected_job_of_a_batch_whose_holder_has_ended_since_is_tried_alone() -> None:
    answers, names = _told(
        enqueue.enqueue_many([new_job(unique_key="key")]), NO_DEFAULTS, [(1, 1)], [], [], [(9,)]
    )

    assert answers == [EnqueueAnswer(9, Outcome.ADDED)]
    assert names[2:] == ["jobs/enqueue_batch", "jobs/count_collisions", "jobs/enqueue_unique"]


def test_with_less_room_than_queues_a_hundred_are_asked_at_once_for_no_more_than_there_is_room() -> None:
    names = [f"q{number}" for number in range(150)]
    connection = Answers(_rows(["q3"]), _rows(["q120"]))

    run(claim.fill(worker_info().id, names, 2), connection)

    assert [[*_quotas(step)] for step in connection.asked] == [names[:100], [*names[100:], "q3"]]
    assert [_limit(step) for step in connection.asked] == [2, 1]


def test_a_beat_reads_no_job_and_a_comparison_those_that_are_not_known() -> None:
    worker = worker_info().id

    nothing: list[Row] = [(None, None, None, None, None, None, [])]
    assert _told(leases.beat(worker, MINUTE), nothing)[1] == ["workers/renew"]
    assert _told(claim.return_unknown(worker, [1]), [], [(2, 1, 1, 25)], [(2, "ready")])[1] == [
        "connections/allow_full_reads",
        "workers/unknown_claims",
        "jobs/requeue",
    ]


def test_finishing_sends_one_statement_for_successes_and_at_most_two_for_any_batch() -> None:
    verdicts = verdicts_on(_claim())
    worker = _claim().worker_id

    assert _told(finish.finish(worker, [], keep=True)) == ({}, [])
    done = {1: JobState.SUCCEEDED}
    assert _told(finish.finish(worker, [verdicts["succeeded"]] * 2, keep=True), [(1, None)]) == (
        done,
        ["jobs/complete"],
    )
    going_back = [(1, "ready")]
    assert _told(finish.finish(worker, [verdicts["again"], verdicts["returned"]], keep=True), going_back) == (
        {1: JobState.READY},
        ["jobs/requeue"],
    )
    other = [replace(one, claim=_claim(id=2)) for one in verdicts_on(_claim()).values()]
    _, names = _told(finish.finish(worker, other, keep=True), going_back, [(2, "dead", None)])
    assert names == ["jobs/requeue", "jobs/end"]


def test_many_verdicts_are_sent_in_portions_in_the_order_of_ids() -> None:
    """PostgreSQL takes a time that grows as the square of the verdicts in one statement."""
    many = 2 * ending.AT_ONCE + 1
    verdicts = [verdicts_on(_claim(id=number))["again"] for number in range(many, 0, -1)]
    rows: list[Row] = [(number, "scheduled") for number in range(1, many + 1)]
    portions = [rows[start : start + ending.AT_ONCE] for start in range(0, many, ending.AT_ONCE)]
    states, names = _told(finish.finish(LOST, verdicts, keep=True), *portions)
    assert names == ["jobs/requeue"] * 3
    assert [*states] == [*range(1, many + 1)]


def test_what_was_not_requeued_is_ended_only_if_somebody_asked_to_cancel_it() -> None:
    again = verdicts_on(_claim())["again"]
    connection = Answers([], [(1, "cancelled", None)])

    states = run(finish.finish(_claim().worker_id, [again], keep=True), connection)

    assert states == {1: JobState.CANCELLED}
    ended = connection.asked[1]
    assert not isinstance(ended, Copy)
    assert (ended.name, ended.params["outcomes"], ended.params["ids"]) == ("jobs/end", '{"requeued"}', "{1}")


def _rows(queues: list[str]) -> list[Row]:
    fields = [field for field in Claim.__struct_fields__ if field not in {"worker_id", "asked_at"}]
    return [tuple(getattr(_claim(queue=queue), field) for field in fields) for queue in queues]


def _quotas(step: Step) -> dict[str, int]:
    assert not isinstance(step, Copy)
    queues, quotas = str(step.params["queues"]), str(step.params["quotas"])
    return dict(zip(re.findall(r"\w+", queues), map(int, re.findall(r"\d+", quotas)), strict=True))


def _limit(step: Step) -> object:
    assert not isinstance(step, Copy)
    return step.params["limit"]


WORKER = """
insert into pgqueue.workers (id, lease_until, host, pid, concurrency, version, idle, looked_at, look_within)
values (gen_random_uuid(), now() + {lease}::interval, 'h', 1, 1, '0', true, now() - {looked}::interval, 25)
"""
ALERT = """
insert into pgqueue.alerts (name, module, rule, task, argument, next_at)
values ('busy', 'ops', '{{}}', 'page', 'alert', now() + {due}::interval)
"""
JOB = """
insert into pgqueue.jobs (queue, task, args, status, run_at, expires_at)
values ('mail', 'send', '{{}}', 'ready', now(), now() + {expires}::interval)
"""


def found(queue: PgQueue, *, asked: bool = True) -> Sequence[str]:
    return queue.database.run(upkeep.poll(seldom=asked)).seldom


@pytest.mark.parametrize(
    ("work", "due", "not_due"),
    [
        ("expire", JOB.format(expires="'-1 s'"), JOB.format(expires="'1 h'")),
        (
            "age",
            "insert into pgqueue.queues (name, ageing) values ('mail', '1 min')",
            "insert into pgqueue.queues (name) values ('mail')",
        ),
        ("alerts", ALERT.format(due="'-1 s'"), ALERT.format(due="'1 h'")),
        (
            "workers",
            WORKER.format(lease="'1 h'", looked="'26 s'"),
            # One has looked in time; of one that is lost, its jobs are reclaimed.
            WORKER.format(lease="'1 h'", looked="'5 s'")
            + ";"
            + WORKER.format(lease="'-1 s'", looked="'1 h'"),
        ),
    ],
)
def test_a_poll_finds_seldom_work_when_it_is_due_and_only_if_asked(
    queue: PgQueue, work: str, due: LiteralString, not_due: LiteralString
) -> None:
    ask(queue, not_due)
    assert found(queue) == ()
    ask(queue, "truncate pgqueue.queues, pgqueue.alerts")
    ask(queue, due)
    assert found(queue) == (work,)
    assert found(queue, asked=False) == ()
