"""A job's life on every kind of connection. What each statement does is tested on every driver, in ``test_plans_*.py``."""

import json
from datetime import timedelta

from store.drivers import Ask, every_kind, one_database
from store.samples import LEASE, MINUTE, NOON, SECOND, adding, error_of, new_job, shown, taking

from pgqueue.store import signals
from pgqueue.store.jobs import enqueue, finish, notes
from pgqueue.store.workers import leases, upkeep
from pgqueue.values.jobs.job import JobState, Outcome
from pgqueue.values.jobs.note import StoredReport
from pgqueue.values.jobs.unique import Unique
from pgqueue.values.jobs.verdict import Again, Succeeded, Waits
from pgqueue.values.signals import SignalWait

ask, database = every_kind, one_database

NASTY = b'{"text": "%s %(name)s \\u00e9 \\\\ \\t"}'


async def test_a_job_fails_succeeds_and_is_read_back(ask: Ask) -> None:
    given = new_job(args=NASTY, unique_key="key", unique=Unique(period=timedelta(days=1)))
    (job_id,) = await ask(adding(given))
    (first,) = await ask(taking())
    again = Again(first, MINUTE, error_of(first, "50 % é"))
    await ask(finish.finish(first.worker_id, [again], keep=True, now=NOON))
    assert (await ask(upkeep.poll(now=NOON + MINUTE))).count == 1
    (second,) = await ask(taking(now=NOON + MINUTE))
    done = Succeeded(second, 2.5, b'{"total": [3]}')
    await ask(finish.finish(second.worker_id, [done], keep=True, now=NOON + MINUTE))

    job = await ask(shown(job_id))

    assert (second.attempt, second.failing_seconds, job.attempts) == (2, 60.0, 2)
    assert (job.state, job.result, job.ended_at) == (JobState.SUCCEEDED, {"total": [3]}, NOON + MINUTE)
    assert job.args == {"text": "%s %(name)s é \\ \t"}
    assert [(error.attempt, error.message) for error in job.errors] == [(1, "50 % é")]
    assert (await ask(enqueue.enqueue(given, now=NOON))).outcome is Outcome.REJECTED


async def test_a_batch_is_copied_and_claimed(ask: Ask) -> None:
    batch = [new_job(f"é\\{number}", args=NASTY) for number in range(200)]
    answers = await ask(enqueue.enqueue_many(batch, now=NOON))

    taken = await ask(taking(count=200))

    assert [one.id for one in taken] == [answer.id for answer in answers]
    assert [one.task for one in taken] == [job.task for job in batch]


async def test_what_a_job_notes_is_read_back_as_it_was_written(ask: Ask) -> None:
    await ask(adding(new_job(), new_job()))
    one, other = await ask(taking())
    step: notes.NoteKey = ("step", 'it\'s "50 %" {é} %(name)s \\')
    value, long = '{"b": "50 % é \\\\", "a": [1.50, null]}', f'"{"é" * 5_000}"'

    assert await ask(notes.keep(one, step, value, now=NOON))
    assert await ask(notes.keep(one, ("checkpoint", ""), "1", now=NOON))
    assert await ask(notes.keep(one, ("checkpoint", ""), "2", now=NOON))
    assert await ask(notes.recall(one.id)) == {step: value, ("checkpoint", ""): "2"}
    assert await ask(notes.recall(other.id)) == {}
    assert await ask(notes.recall_long(one.id, step)) == value
    assert await ask(notes.keep(one, step, long, now=NOON))
    assert await ask(notes.recall_long(one.id, step)) == long

    said = '{"done": 1, "total": 2.5, "message": "it\'s \\"50 %\\""}'
    await ask(notes.report([StoredReport(one, said), StoredReport(other, '{"done": 3}')], now=NOON))
    noted = await ask(notes.progress(one.id))
    assert noted is not None
    assert (noted.progress.done, noted.progress.total, noted.progress.message) == (1, 2.5, 'it\'s "50 %"')
    assert noted.progress.at == NOON
    await ask(finish.finish(one.worker_id, [Succeeded(one, 1.0)], keep=True, now=NOON))
    assert not await ask(notes.keep(one, step, "1", now=NOON))
    assert await ask(upkeep.drop_notes()) >= 3
    assert await ask(notes.recall(one.id)) == {}
    assert await ask(notes.progress(one.id)) is None
    assert await ask(notes.progress(other.id)) is not None


async def test_a_lost_workers_job_is_reclaimed(ask: Ask) -> None:
    (job_id,) = await ask(adding(new_job()))
    (taken,) = await ask(taking())
    assert await ask(leases.renew(taken.worker_id, LEASE, now=NOON + SECOND))
    await ask(upkeep.reclaim(now=NOON + 2 * LEASE))

    job = await ask(shown(job_id))

    assert (job.state, [error.type for error in job.errors]) == (JobState.READY, ["WorkerLost"])


async def test_a_job_waits_for_a_signal_and_for_a_time(ask: Ask) -> None:
    (job_id,) = await ask(adding(new_job()))
    (taken,) = await ask(taking())
    awaited = SignalWait(job_id, "50%\\é", f"job:{job_id}", MINUTE)
    token = await ask(signals.callback(awaited, now=NOON))
    wait = Waits(taken, awaited)
    waits = await ask(finish.finish(taken.worker_id, [wait], keep=True, now=NOON))
    assert waits == {job_id: JobState.BLOCKED}
    assert await ask(signals.look(awaited, now=NOON)) == (False, False, None)
    assert await ask(signals.resolve(token, NASTY.decode(), now=NOON)) == "first"
    assert await ask(signals.send(awaited.target or "", awaited.name, None, now=NOON)) == "repeated"
    looked = await ask(signals.look(awaited, now=NOON))
    assert looked.payload is not None
    assert json.loads(looked.payload) == json.loads(NASTY)

    (taken,) = await ask(taking())
    timer = Waits(taken, SignalWait(job_id, "cooling", None, MINUTE))
    await ask(finish.finish(taken.worker_id, [timer], keep=True, now=NOON))
    assert await ask(signals.admit_due(now=NOON + MINUTE)) == (2, [])
    assert (await ask(signals.look(timer.awaited, now=NOON))).over
    assert (await ask(shown(job_id))).state is JobState.READY
    await ask(upkeep.drop_signals(now=NOON))
