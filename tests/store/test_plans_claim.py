"""Conformance: how workers are known, and take and keep jobs, on every driver."""

from datetime import timedelta

from store.drivers import Ask, every_driver, one_database
from store.samples import (
    LEASE,
    MINUTE,
    NOON,
    SECOND,
    adding,
    error_of,
    new_job,
    running,
    shown,
    taking,
    worker_info,
)

from pgqueue.store.jobs import claim, control, finish
from pgqueue.store.workers import leases
from pgqueue.values.jobs.job import JobState, Mark
from pgqueue.values.jobs.verdict import Again, Died

ask, database = every_driver, one_database


async def test_arguments_come_as_the_text_that_was_enqueued(ask: Ask) -> None:
    text = '{"a":  1e2, "b": "\\u00e9", "a": 12345678901234567890.50}'
    await ask(adding(new_job(args=text.encode())))

    (taken,) = await ask(taking())

    assert taken.args == text


async def test_claims_from_several_queues_come_in_one_order(ask: Ask) -> None:
    idle, urgent = await ask(adding(new_job(queue="a", priority=-1), new_job(queue="b", priority=1)))
    info = worker_info()
    await ask(leases.register(info, LEASE, now=NOON))

    taken = await ask(claim.claim(info.id, {"a": 1, "b": 1}, now=NOON))

    assert [one.id for one in taken] == [urgent, idle]


async def test_claims_that_start_behind_a_mark_take_what_stands_behind_it(ask: Ask) -> None:
    before, at, behind, idle = await ask(
        adding(new_job(priority=5, run_at=NOON - SECOND), new_job(priority=5), new_job(priority=5), new_job())
    )
    info = worker_info()
    await ask(leases.register(info, LEASE, now=NOON))
    marks = {"default": Mark(-5, NOON, at), "other": Mark(100, NOON, idle)}

    taken = await ask(claim.claim(info.id, {"default": 9}, marks=marks, now=NOON))
    rest = await ask(claim.fill(info.id, ["default"], 9, now=NOON))

    assert [one.id for one in taken] == [behind, idle]
    assert [one.id for one in rest] == [before, at]


async def test_a_claim_spends_an_attempt_and_says_all_that_a_worker_needs(ask: Ask) -> None:
    given = new_job(args=b'{"order_id": 42}', priority=3, max_attempts=7)
    (job_id,) = await ask(adding(given))

    (taken,) = await ask(taking(now=NOON + SECOND))

    assert (taken.id, taken.task, taken.queue, taken.args) == (job_id, "bill", "default", '{"order_id": 42}')
    assert (taken.attempt, taken.max_attempts, taken.priority) == (1, 7, 3)
    assert (taken.run_at, taken.failing_seconds) == (NOON, 0.0)
    job = await ask(shown(job_id))
    assert (job.state, job.attempts, job.worker_id) == (JobState.RUNNING, 1, taken.worker_id)
    assert job.started_at == NOON + SECOND


async def test_a_claim_knows_for_how_long_its_job_has_been_failing(ask: Ask) -> None:
    taken = await ask(running())
    for minutes in (1, 3):
        when = NOON + minutes * MINUTE
        again = Again(taken, 0 * SECOND, error_of(taken))
        await ask(finish.finish(taken.worker_id, [again], keep=True, now=when))
        (taken,) = await ask(taking(now=when + MINUTE))

    assert (taken.attempt, taken.failing_seconds) == (3, 180.0)


async def test_a_revived_job_has_been_failing_only_since_its_revival(ask: Ask) -> None:
    taken = await ask(running())
    dead = Died(taken, 0.0, "asked", error_of(taken))
    await ask(finish.finish(taken.worker_id, [dead], keep=True, now=NOON))
    await ask(control.retry(taken.id, now=NOON + MINUTE))
    (revived,) = await ask(taking(now=NOON + MINUTE))
    again = Again(revived, 0 * SECOND, error_of(revived))
    await ask(finish.finish(revived.worker_id, [again], keep=True, now=NOON + 2 * MINUTE))
    (last,) = await ask(taking(now=NOON + 5 * MINUTE))

    assert (revived.attempt, revived.failing_seconds) == (1, 0.0)
    assert (last.attempt, last.failing_seconds) == (2, 180.0)


async def test_each_queue_is_claimed_from_up_to_its_quota(ask: Ask) -> None:
    await ask(adding(*(new_job(queue=queue) for queue in ("a", "a", "a", "b", "c"))))
    info = worker_info()
    await ask(leases.register(info, LEASE, now=NOON))

    taken = await ask(claim.claim(info.id, {"a": 2, "b": 2, "none": 1}, now=NOON))

    assert sorted(one.queue for one in taken) == ["a", "a", "b"]


async def test_room_is_filled_from_the_queues_that_still_have_jobs(ask: Ask) -> None:
    await ask(adding(*(new_job(queue=queue) for queue in ["a"] * 6 + ["b"] + ["c"] * 2)))
    info = worker_info()
    await ask(leases.register(info, LEASE, now=NOON))

    taken = await ask(claim.fill(info.id, ["a", "b", "c"], 8, now=NOON))
    scarce = await ask(claim.fill(info.id, ["a", "b", "c"], 1, now=NOON))

    assert sorted(one.queue for one in taken) == ["a"] * 5 + ["b"] + ["c"] * 2
    assert [one.queue for one in scarce] == ["a"]


async def test_the_jobs_of_one_claim_share_a_fence_that_no_other_claim_has(ask: Ask) -> None:
    await ask(adding(*(new_job() for _ in range(4))))
    first, other = await ask(taking(count=2))
    (next_one,) = await ask(taking(count=1))
    (last,) = await ask(taking(count=1))

    assert first.fence == other.fence
    assert len({first.fence, next_one.fence, last.fence}) == 3


async def test_new_queues_are_those_with_ready_jobs_that_are_not_known(ask: Ask) -> None:
    assert await ask(claim.new_queues()) == []
    await ask(adding(new_job(), *(new_job(queue=queue) for queue in ("b", "a", "b"))))
    await ask(adding(new_job(queue="later", delay=SECOND)))
    await ask(taking())

    assert await ask(claim.new_queues()) == ["a", "b"]
    assert await ask(claim.new_queues(["a"])) == ["b"]
    assert await ask(claim.new_queues(["b", "c", "a"])) == []


async def test_registering_twice_is_as_good_as_once(ask: Ask) -> None:
    info = worker_info(queues=["a"])
    await ask(leases.register(info, LEASE, now=NOON))
    await ask(leases.register(info, LEASE, now=NOON))

    assert await ask(leases.renew(info.id, LEASE, now=NOON))


async def test_a_worker_reads_the_wishes_to_cancel_its_own_jobs_and_no_others(ask: Ask) -> None:
    await ask(adding(new_job(), new_job()))
    (mine,) = await ask(taking(count=1))
    (other,) = await ask(taking(count=1))
    for one in (mine, other):
        await ask(control.cancel(one.id, now=NOON))

    assert await ask(leases.cancel_requests(mine.worker_id, [mine.id, other.id])) == [mine.id]
    assert await ask(leases.cancel_requests(other.worker_id, [mine.id, other.id])) == [other.id]


async def test_a_job_that_goes_back_unknown_and_was_to_be_cancelled_ends_as_that_and_is_not_run_again(
    ask: Ask,
) -> None:
    cancelled, other = await ask(adding(new_job(), new_job()))
    worker = (await ask(taking()))[0].worker_id
    await ask(control.cancel(cancelled, now=NOON))

    assert await ask(claim.return_unknown(worker, [])) == [cancelled, other]

    assert (await ask(shown(cancelled))).state is JobState.CANCELLED
    assert (await ask(shown(other))).state is JobState.READY


async def test_the_times_of_a_claim_are_exact_to_the_microsecond(ask: Ask) -> None:
    """They travel as seconds. A claim that starts behind a mark passes over jobs if a time is rounded."""
    times = [NOON - MINUTE * 60 * 24 * 365 * 120, NOON - timedelta(microseconds=1), NOON]
    added = await ask(adding(*[new_job(run_at=at) for at in times]))
    jobs = [(await ask(shown(job_id))) for job_id in added]

    taken = await ask(taking(count=3))

    assert [one.run_at for one in taken] == times
    assert [one.created_at for one in taken] == [job.created_at for job in jobs]
