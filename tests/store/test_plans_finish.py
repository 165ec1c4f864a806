"""Conformance: how attempts end and who may say so, on every driver."""

from collections.abc import Sequence
from uuid import uuid4

import msgspec
import pytest
from store.drivers import Ask, every_driver, one_database
from store.samples import NOON, SECOND, adding, error_of, new_job, running, shown, taking, verdicts_on

from pgqueue.store import retention
from pgqueue.store.jobs import control, finish
from pgqueue.store.plan import Row, Statement, Steps, plan
from pgqueue.values.jobs.job import Claim, Job, JobState
from pgqueue.values.jobs.verdict import Cancelled, Died, Returned, Succeeded

ask, database = every_driver, one_database

SORTS = ("succeeded", "again", "dead", "returned", "cancelled")


async def test_a_succeeded_job_moves_to_the_history_with_its_result(ask: Ask) -> None:
    taken = await ask(running(args=b'{"n": 1}', unique_key="key"))

    done = await ask(
        finish.finish(taken.worker_id, [Succeeded(taken, 2.0, b'{"total": 3}')], keep=True, now=NOON)
    )

    job = await ask(shown(taken.id))
    assert done == {taken.id: JobState.SUCCEEDED}
    assert (job.state, job.result, job.args, job.unique_key) == (
        JobState.SUCCEEDED,
        {"total": 3},
        {"n": 1},
        "key",
    )
    assert (job.started_at, job.ended_at, job.attempts) == (NOON - 2 * SECOND, NOON, 1)


@pytest.mark.parametrize("alone", [True, False], ids=["all succeeded", "beside a failure"])
async def test_the_history_keeps_arguments_up_to_a_stored_length(ask: Ask, alone: bool) -> None:  # noqa: FBT001 - a case
    await ask(retention.keep_for(None, None, history_args=100, said_by="test"))
    args = [
        b'{"n": "%s"}' % (b"x" * length) for length in (90, 91)
    ]  # as stored: one byte of length, then the text
    jobs = [await ask(running(args=one)) for one in args]

    for job in jobs:
        others = [] if alone else [Returned(await ask(running()))]
        await ask(finish.finish(job.worker_id, [Succeeded(job, 0.0), *others], keep=True, now=NOON))

    assert [(await ask(shown(job.id))).args for job in jobs] == [{"n": "x" * 90}, {"$not_kept": 101}]


async def test_a_cancelled_and_a_dead_job_keep_their_arguments(ask: Ask) -> None:
    await ask(retention.keep_for(None, None, history_args=0, said_by="test"))
    dead, cancelled = await ask(running(args=b'{"n": 1}')), await ask(running(args=b'{"n": 2}'))

    await ask(finish.finish(dead.worker_id, [Died(dead, 0.0, "asked", error_of(dead))], keep=True, now=NOON))
    await ask(finish.finish(cancelled.worker_id, [Cancelled(cancelled)], keep=True, now=NOON))

    assert [(await ask(shown(one.id))).args for one in (dead, cancelled)] == [{"n": 1}, {"n": 2}]


@pytest.mark.parametrize("sort", ["again", "returned", "dead"])
async def test_a_job_that_was_to_be_cancelled_ends_as_cancelled_whatever_else_failed(
    ask: Ask, sort: str
) -> None:
    taken = await ask(running())
    await ask(control.cancel(taken.id, now=NOON))

    verdict = verdicts_on(taken)[sort]
    assert await ask(finish.finish(taken.worker_id, [verdict], keep=True, now=NOON)) == {
        taken.id: JobState.CANCELLED
    }

    job = await ask(shown(taken.id))
    assert job.state is JobState.CANCELLED
    assert [one.message for one in job.errors] == ([] if sort == "returned" else ["no"])


async def test_a_job_that_is_to_run_again_and_that_nobody_asked_to_cancel_is_not_ended(ask: Ask) -> None:
    taken = await ask(running())
    steps = finish.finish(taken.worker_id, [Returned(taken)], keep=True, now=NOON).steps()
    next(steps)
    ending = steps.send([])  # as if requeue had left it alone

    assert isinstance(ending, Statement)
    assert await ask(_sending(ending)) == []
    assert (await ask(shown(taken.id))).state is JobState.RUNNING


@plan
def _sending(step: Statement) -> Steps[Sequence[Row]]:
    return (yield step)


async def test_a_waiting_job_is_ended_and_one_that_was_claimed_meanwhile_is_left_to_its_worker(
    ask: Ask,
) -> None:
    ready, taken = await ask(adding(new_job(), new_job(priority=1)))
    await ask(taking(count=1))

    assert await ask(finish.cancel_waiting([taken, ready], now=NOON)) == {ready: JobState.CANCELLED}

    job = await ask(shown(ready))
    assert (job.state, job.started_at, job.ended_at, job.worker_id) == (JobState.CANCELLED, None, NOON, None)
    assert (await ask(shown(taken))).state is JobState.RUNNING


async def test_a_batch_of_all_sorts_is_recorded_at_once(ask: Ask) -> None:
    await ask(adding(*(new_job(sort) for sort in SORTS)))
    taken = await ask(taking())
    verdicts = [verdicts_on(one)[one.task] for one in taken]

    done = await ask(finish.finish(taken[0].worker_id, verdicts, keep=True, now=NOON))

    assert done == {one.id: (await ask(shown(one.id))).state for one in taken}
    assert {one.task: done[one.id] for one in taken} == {
        "succeeded": JobState.SUCCEEDED,
        "again": JobState.SCHEDULED,
        "dead": JobState.DEAD,
        "returned": JobState.READY,
        "cancelled": JobState.CANCELLED,
    }


@pytest.mark.parametrize("sort", SORTS)
async def test_another_worker_is_not_heard(ask: Ask, sort: str) -> None:
    taken = await ask(running())

    await _assert_not_heard(ask, msgspec.structs.replace(taken, worker_id=uuid4()), sort)


@pytest.mark.parametrize("sort", SORTS)
async def test_nothing_ends_twice(ask: Ask, sort: str) -> None:
    taken = await ask(running())
    await ask(finish.finish(taken.worker_id, [Succeeded(taken, 0.0)], keep=True, now=NOON))

    await _assert_not_heard(ask, taken, sort)


async def test_what_is_not_heard_does_not_silence_the_rest_of_its_batch(ask: Ask) -> None:
    await ask(adding(new_job(), new_job()))
    first, second = await ask(taking())
    stale = msgspec.structs.replace(first, fence=-1)
    verdicts = [Succeeded(stale, 0.0), Succeeded(second, 0.0)]

    assert await ask(finish.finish(first.worker_id, verdicts, keep=True)) == {second.id: JobState.SUCCEEDED}
    assert (await ask(shown(first.id))).state is JobState.RUNNING


async def _assert_not_heard(ask: Ask, stale: Claim, sort: str) -> None:
    before = await _everything(ask)

    done = await ask(finish.finish(stale.worker_id, [verdicts_on(stale)[sort]], keep=True, now=NOON))

    assert done == {}
    assert await _everything(ask) == before


async def _everything(ask: Ask) -> list[Job]:
    return await ask(control.newest())
