"""``queue.insight.ended()``: the jobs of the last minutes in steps of seconds, exact, or without the steps that were not read."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from dashboard.people import die
from looking import ask

from pgqueue import PgQueue
from pgqueue.errors import InvalidOption
from pgqueue.store.insight import ended
from pgqueue.testing import drain

NOON = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
STEP = timedelta(seconds=5)
MINUTES = timedelta(minutes=10)


def history(
    queue: PgQueue,
    at: datetime,
    jobs: int,
    *,
    task: str = "send",
    outcome: str = "succeeded",
    run: float = 2.0,
) -> None:
    ask(queue, "select pgqueue.make_history_day(%s::date)", at.date())
    ask(
        queue,
        """insert into pgqueue.job_history (id, run_at, created_at, started_at, finished_at, collisions, priority, attempts,
                                            max_attempts, outcome, queue, task, args)
           select nextval(pg_get_serial_sequence('pgqueue.jobs', 'id')), %(at)s - %(run)s::interval - interval '3 s', %(at)s,
                  %(at)s - %(run)s::interval, %(at)s, 0, 0, 1, 5, %(outcome)s, 'mail', %(task)s, '{}'
           from generate_series(1, %(jobs)s) returning id""",
        at=at, jobs=jobs, task=task, outcome=outcome, run=timedelta(seconds=run),
    )  # fmt: skip


def look(app: PgQueue, /, **given: Any) -> Any:
    return app.database.run(ended.ended(MINUTES, STEP, now=NOON, **given))


def test_each_step_counts_what_ended_in_it_and_how_long_it_waited_and_ran(queue: PgQueue) -> None:
    history(queue, NOON - timedelta(seconds=4), 3)
    history(queue, NOON - timedelta(seconds=61), 2, run=7.0)
    history(queue, NOON - timedelta(seconds=61), 1, outcome="cancelled", run=7.0)
    history(queue, NOON - MINUTES - STEP, 9)
    found = look(queue)
    assert (len(found.points), found.complete, found.step) == (120, True, 5.0)
    some = [one for one in found.points if one.succeeded]
    assert [(NOON - one.at, one.succeeded, one.cancelled) for one in some] == [
        (timedelta(seconds=65), 2, 1), (STEP, 3, 0)
    ]  # fmt: skip
    assert [(one.wait.p50, one.run.p50, one.run.count) for one in some] == [(3.0, 7.0, 3), (3.0, 2.0, 3)]


def test_it_tells_one_queue_or_task(queue: PgQueue) -> None:
    history(queue, NOON - STEP, 3)
    history(queue, NOON - STEP, 2, task="index")
    for given, count in (({"task": "index"}, 2), ({"queue": "mail"}, 5), ({"queue": "sms"}, 0)):
        assert sum(one.succeeded for one in look(queue, **given).points) == count


def test_it_looks_back_over_midnight(queue: PgQueue) -> None:
    midnight = NOON.replace(hour=0)
    history(queue, midnight - timedelta(minutes=2), 3)
    history(queue, midnight + timedelta(minutes=1), 4)
    found = queue.database.run(ended.ended(MINUTES, STEP, now=midnight + timedelta(minutes=3)))
    assert [one.succeeded for one in found.points if one.succeeded] == [3, 4]


def test_what_just_ended_is_there_at_once(queue: PgQueue) -> None:
    task = queue.task(name="send")(lambda: None)
    task.enqueue()
    drain(queue)
    die(queue, "buy", {"order": 7}, error=ValueError("no stock"))
    found = queue.insight.ended()
    assert (sum(one.succeeded for one in found.points), sum(one.dead for one in found.points)) == (1, 1)


def test_steps_that_were_not_read_are_left_out_and_it_says_so(
    queue: PgQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ended, "PAGES", 2)
    for seconds in range(600, 0, -5):
        history(queue, NOON - timedelta(seconds=seconds), 10)
    found = look(queue)
    assert not found.complete
    assert 3 < len(found.points) < 60
    assert {one.succeeded for one in found.points} == {10}, (
        "a step of which only some jobs were read is left out"
    )
    assert len(look(queue, task="other").points) == len(found.points)


def test_dead_jobs_that_were_not_read_leave_steps_out_too(
    queue: PgQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ended, "DIED", 1)
    die(queue, "buy", {"order": 7}, {"order": 8}, error=ValueError("no stock"))
    ask(queue, "update pgqueue.dead_jobs set died_at = died_at - interval '1 min' returning id")
    found = queue.insight.ended()
    assert (found.complete, len(found.points) < 20) == (False, True)


@pytest.mark.parametrize("given", [{"since": 0}, {"step": 0}, {"since": 90_000}, {"since": 8_000, "step": 5}])
def test_a_window_without_end_is_refused(queue: PgQueue, given: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption):
        queue.insight.ended(**given)
