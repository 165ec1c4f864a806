"""What lists of jobs ask beside a search: jobs in the order in which they are due, jobs by ids, what blocked ones wait for, error groups."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from looking import ask, wait_until

from pgqueue import Context, Limit, PgQueue, chain
from pgqueue.errors import InvalidOption
from pgqueue.store.insight import searching
from pgqueue.values.jobs.error_group import error_group_of


def _sell(order_id: int = 0) -> None: ...


def _die(queue: PgQueue, *messages: str, kind: type[Exception] = ValueError, task: str = "shop.sell") -> None:
    sell = queue.tasks.get(task) or queue.task(name=task, max_attempts=1)(_sell)
    for message in messages:
        sell.enqueue(1)
        with queue.take(1, timeout=5) as (job,):
            job.fail(kind(message))


def test_scheduled_jobs_are_listed_in_the_order_in_which_they_are_due(queue: PgQueue) -> None:
    sell = queue.task(name="shop.sell")(_sell)
    mail = queue.task(name="shop.mail", queue="mail")(_sell)
    in_order = [
        sell.using(delay=timedelta(hours=9)).enqueue(9),
        mail.using(delay=timedelta(hours=1)).enqueue(1),
        sell.using(delay=timedelta(hours=5)).enqueue(5),
    ]
    sell.enqueue(0)
    nine, one, five = (handle.id for handle in in_order)

    found = queue.insight.due()
    assert ([job.id for job in found.jobs], found.looked_to) == ([one, five, nine], None)

    first = queue.insight.due(limit=1).jobs[0]
    assert [job.id for job in queue.insight.due(after=(first.run_at, first.id)).jobs] == [five, nine]
    assert [job.id for job in queue.insight.due(task="shop.se*").jobs] == [five, nine]
    assert [job.id for job in queue.insight.due(queue="mail").jobs] == [one]
    assert [job.id for job in queue.insight.due(args={"order_id": 5}).jobs] == [five]


def test_jobs_that_are_due_at_the_same_instant_follow_one_another_by_their_ids(queue: PgQueue) -> None:
    sell = queue.task(name="shop.sell")(_sell)
    at = datetime.now(UTC) + timedelta(hours=1)
    ids = [sell.using(run_at=at).enqueue(number).id for number in range(3)]
    first, second = queue.insight.due(limit=2).jobs
    assert [first.id, second.id] == ids[:2]
    assert [job.id for job in queue.insight.due(after=(second.run_at, second.id)).jobs] == ids[2:]


def test_a_search_of_due_jobs_stops_after_a_number_of_jobs_and_goes_on_from_there(
    queue: PgQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    sell = queue.task(name="shop.sell")(_sell)
    ids = [sell.using(delay=timedelta(hours=1 + number)).enqueue(number).id for number in range(3)]
    monkeypatch.setattr(searching, "READ", 2)
    found = queue.insight.due(args={"order_id": 2})
    assert found.jobs == ()
    assert found.looked_to is not None
    assert found.looked_to[1] == ids[1]
    assert [job.id for job in queue.insight.due(args={"order_id": 2}, after=found.looked_to).jobs] == ids[2:]
    assert queue.insight.due(args={"order_id": 2}, after=found.looked_to).looked_to is None


def test_jobs_are_found_by_their_ids_wherever_they_are(queue: PgQueue) -> None:
    _die(queue, "no order 7")
    sell = queue.tasks["shop.sell"]
    done, live = sell.enqueue(2), sell.enqueue(3)
    with queue.take(1, timeout=5):
        pass
    found = queue.insight.search(ids=[1, done.id, live.id, 999_999])
    assert [(job.id, job.state) for job in found.jobs] == [
        (live.id, "ready"),
        (done.id, "succeeded"),
        (1, "dead"),
    ]
    assert [job.id for job in queue.insight.search(ids=[1, live.id], state="ready").jobs] == [live.id]
    assert [job.id for job in queue.insight.search(ids=[1, live.id], state="running").jobs] == []
    assert queue.insight.search(ids=[]).jobs == ()
    with pytest.raises(InvalidOption, match="no id of a job"):
        queue.insight.search(ids=[-1])


def test_a_list_tells_what_blocked_jobs_wait_for(queue: PgQueue) -> None:
    @queue.task(name="shop.limited", limit=Limit(1))
    def limited() -> None: ...

    @queue.task(name="shop.approve")
    def approve(ctx: Context) -> None:
        ctx.wait_for("approval", timeout=timedelta(days=1))

    sell = queue.task(name="shop.sell")(_sell)
    lane = limited.enqueue()
    _, later = (step.id for step in chain(sell.call(1), sell.call(2)).enqueue().jobs)
    waits = sell.enqueue(3)
    ask(queue, "update pgqueue.jobs set status = 'blocked' where id = %s", waits.id)
    ask(
        queue,
        "insert into pgqueue.waits (waits_for, job_id) values (%s, %s)",
        f"signal:job:{waits.id}:paid",
        waits.id,
    )
    free = sell.enqueue(4)
    queue.control.pause("default")

    found = queue.insight.details([lane.id, later, waits.id, free.id, 999_999])
    assert {job_id: one.waits_for for job_id, one in found.items()} == {
        lane.id: "limit task:shop.limited",
        later: "workflow",
        waits.id: "signal 'paid'",
        free.id: None,
    }
    assert all(one.paused for one in found.values())


def test_a_list_tells_who_runs_a_job_and_how_far_it_is(queue: PgQueue) -> None:
    queue.task(name="shop.sell")(_sell).enqueue(1)
    with queue.take(1, timeout=5) as (job,):
        job.progress(3, 12, "3 of 12 pages")
        wait_until(lambda: queue.progress(job.id))
        one = queue.insight.details([job.id])[job.id]
        assert one.progress is not None
        assert (one.progress.done, one.progress.total, one.progress.message) == (3, 12, "3 of 12 pages")
        (worker,) = queue.workers.list()
        assert one.worker == worker.name


def _groups(queue: PgQueue) -> dict[str, Any]:
    return {one.key: one for one in queue.insight.errors().groups}


def test_each_group_of_errors_means_its_own_jobs_and_no_others(queue: PgQueue) -> None:
    _die(queue, "no order 7", "no order 12\nmore", "no address", "nö order 7", "no order 1")
    _die(queue, "no order 7", kind=KeyError)
    _die(queue, "no order 7", task="shop.mail")
    ask(queue, "update pgqueue.dead_jobs set reason = 'refused' where id = %s", 1)
    ask(queue, "update pgqueue.dead_jobs set errors = null where id = %s", 3)

    groups = _groups(queue)
    assert len(groups) == len(queue.insight.errors().groups) == 6
    assert sum(one.jobs for one in groups.values()) == 7
    for key, group in groups.items():
        found = queue.insight.search(error_group=key).jobs
        assert len(found) == group.jobs, group
        assert {error_group_of(job) for job in found} == {key}, group
        assert queue.control.dead(error_group=key).preview().count == group.jobs, group
    (two,) = (key for key, group in groups.items() if group.jobs == 2)
    assert queue.control.dead(error_group=two).retry().done == 2
    assert two not in _groups(queue)
    assert len(_groups(queue)) == len(groups) - 1
