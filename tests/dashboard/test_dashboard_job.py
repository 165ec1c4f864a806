"""The page of a job tells its whole story; what it names is a link; a signal, a change and a copy of one job."""

import asyncio
import logging
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from dashboard.people import Person, die
from dashboard.world import HOSTILE, SECRET, worker_row
from looking import ask, until
from running import Running
from tenacity import wait_fixed
from worker.helping import ended

from pgqueue import Context, JobState, Limit, PgQueue, Retry, Workflow
from pgqueue.dashboard import Right
from pgqueue.dashboard.pages.job_story import LEAST, WHOLE, story_of
from pgqueue.middleware import KeepLogs
from pgqueue.values.insight.story import JobWorker
from pgqueue.values.jobs.attempt_log import AttemptLog
from pgqueue.values.jobs.job import AttemptError, Job

MakePerson = Callable[..., Person]
T0 = datetime(2026, 1, 2, 3, 0, 0, tzinfo=UTC)
ONE = UUID(int=1)
log = logging.getLogger("shop")


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def job(state: JobState = JobState.SUCCEEDED, **given: Any) -> Job:
    made: dict[str, Any] = {
        "queue": "mail",
        "task": "send",
        "args": {},
        "priority": 0,
        "run_at": T0,
        "created_at": T0,
        "started_at": None,
        "ended_at": None,
        "attempts": 1,
        "max_attempts": 3,
        "unique_key": None,
        "collisions": 0,
        "worker_id": ONE,
        "errors": (),
        "reason": None,
        "result": None,
    }
    return Job(id=1, state=state, **{**made, **given})


def failed(attempt: int, end: float, seconds: float | None = 1.0, **given: Any) -> AttemptError:
    return AttemptError(attempt, "ValueError", "no", at=at(end), seconds=seconds, worker=ONE, **given)


def test_a_job_that_succeeded_waited_and_ran() -> None:
    story = story_of(
        job(started_at=at(106), ended_at=at(106.019)), [JobWorker(ONE, "vm:12", alive=True)], [], None
    )
    assert story.sentence == "Waited 106 s, ran 19 ms."
    assert [(one.kind, one.said) for one in story.events] == [
        ("enqueued", "Enqueued into mail."),
        ("succeeded", "Attempt 1 of 3 succeeded."),
        ("succeeded", "Succeeded."),
    ]
    attempt = story.events[1]
    assert (attempt.waited, attempt.seconds) == (106.0, 0.019)
    assert attempt.worker is not None
    assert (attempt.worker.name, attempt.worker.alive) == ("vm:12", True)
    assert attempt.bar is not None
    assert (attempt.bar.waited_from, attempt.bar.begin, attempt.bar.length) == (0.0, WHOLE - LEAST, LEAST)


def test_a_delayed_job_was_due_first() -> None:
    story = story_of(job(run_at=at(60), started_at=at(62), ended_at=at(63)), [], [], None)
    assert story.sentence == "Due after 1 min, waited 2 s, ran 1 s."


def test_each_attempt_of_a_dead_job_has_its_begin_length_wait_and_place() -> None:
    errors = (failed(1, 11), failed(2, 30, 4.0), failed(3, 100, None))
    dead = job(
        JobState.DEAD, attempts=3, errors=errors, started_at=at(95), ended_at=at(100), reason="exhausted"
    )
    story = story_of(dead, [], [], None)
    assert story.sentence == "Waited 10 s, ran 10 s in 3 attempts over 90 s."
    ran = [one for one in story.events if one.attempt]
    assert [(one.attempt, one.waited, one.seconds) for one in ran] == [
        (1, 10.0, 1.0),
        (2, 15.0, 4.0),
        (3, 65.0, 5.0),
    ]
    assert [(one.bar.begin, one.bar.length, one.bar.waited) for one in ran if one.bar] == [
        (100.0, 10.0, 100.0),
        (260.0, 40.0, 150.0),
        (950.0, 50.0, 650.0),
    ]
    assert ran[0].worker is not None
    assert ran[0].worker.name == "00000000", "a worker that is not known any more"
    assert story.events[-1].said == "Dead: exhausted."


def test_a_running_job_and_one_that_waits_for_its_retry() -> None:
    running = job(JobState.RUNNING, attempts=2, started_at=at(50), errors=(failed(1, 10, 5.0, left_out=3),))
    story = story_of(running, [], [], at(100))
    assert [one.said for one in story.events] == [
        "Enqueued into mail.",
        "Attempt 1 failed.",
        "3 more failed attempts are not kept.",
        "Attempt 2 of 3 was claimed.",
    ]
    assert story.sentence == "Waited 5 s, ran 5 s, now running for 50 s."
    assert (story.events[-1].bar.begin, story.events[-1].bar.length) == (500.0, 500.0)  # type: ignore[union-attr]
    waiting = job(JobState.SCHEDULED, run_at=at(70), errors=(failed(1, 10, 5.0, crashed=True),))
    story = story_of(waiting, [], [], at(20))
    assert [(one.kind, one.said) for one in story.events][1:] == [
        ("failed", "Attempt 1 failed with its worker."),
        ("due", "Due to run again."),
    ]
    assert story_of(job(JobState.SCHEDULED, run_at=at(70), attempts=0), [], [], at(1)).sentence is None


def test_a_job_cancelled_while_it_waited_did_not_run_and_one_that_expired_was_not_started() -> None:
    waited = job(JobState.CANCELLED, errors=(failed(1, 10),), started_at=at(9), ended_at=at(20))
    assert [one.kind for one in story_of(waited, [], [], None).events] == ["enqueued", "failed", "cancelled"]
    ran = job(JobState.CANCELLED, started_at=at(9), ended_at=at(20))
    assert [one.said for one in story_of(ran, [], [], None).events][1] == "Attempt 1 of 3 was cancelled."
    expired = AttemptError(0, "Expired", "too late", at=at(9))
    late = job(JobState.DEAD, errors=(expired,), started_at=None, ended_at=at(9), attempts=0)
    story = story_of(late, [], [], None)
    assert (story.sentence, story.events[1].said) == (None, "It was not started in time.")


def test_logs_stand_with_the_last_attempt_of_their_number_and_others_by_themselves() -> None:
    logs = [AttemptLog(1, at(5), ()), AttemptLog(2, at(40), ())]
    again = job(JobState.SCHEDULED, errors=(failed(1, 5), failed(1, 30)), run_at=at(90))
    events = story_of(again, [], logs, at(50)).events
    assert [(one.kind, one.log is not None) for one in events] == [
        ("enqueued", False),
        ("failed", False),
        ("failed", True),
        ("returned", True),
        ("due", False),
    ]


async def test_the_page_of_a_dead_job_opens_its_last_traceback_and_names_its_worker(
    dsn: str, running: Running, queue: PgQueue, person: MakePerson
) -> None:
    app = PgQueue(dsn, middleware=[KeepLogs()])

    @app.task(name="fails", retry=Retry(wait=wait_fixed(0)), max_attempts=2)
    def fails(ctx: Context, password: str) -> None:
        log.warning("attempt %d with %s and %s", ctx.attempt, password, HOSTILE)
        raise ValueError(ctx.attempt)

    made = await fails.aenqueue(SECRET)
    async with running(app) as worker:
        await ended(app, made)
        await until(lambda: len(app.logs(made.id)) == 2)
        (known,) = queue.insight.story(made.id).workers
        page = person().get(f"/jobs/{made.id}").text
        assert known.id == worker.id
        assert known.alive
        assert f">{known.name}</a>" in page
    errors = queue.job(made.id).errors
    assert all(one.seconds is not None and one.worker == known.id for one in errors)
    opened = re.findall(r'<details id="(trace-\d+|log-\d+)" open>', page)
    assert len(opened) == 2, "those of the last attempt"
    assert re.search(r"Waited [^,]+, ran [^<]+ in 2 attempts over", page)
    assert "attempt 2 with ••• and &lt;script&gt;" in page
    assert SECRET not in page
    assert "style=" not in page
    gone = person().get(f"/jobs/{made.id}").text
    assert f"{known.name} <span" in gone
    assert str(known.id) not in gone
    api = person().get(f"/api/jobs/{made.id}").json
    assert api is not None
    assert [one["log"]["lines"][0]["level"] for one in api["story"]["events"] if one["log"]] == [
        "WARNING"
    ] * 2
    await app.aclose()
    app.close()


def test_a_lost_workers_error_names_it_as_people_know_it(queue: PgQueue, person: MakePerson) -> None:
    task = queue.task(name="step")(lambda: None)
    made = task.enqueue()
    worker_row(queue)
    worker = queue.workers.list()[-1]
    error = f'[{{"attempt": 1, "type": "WorkerLost", "message": "worker {worker.id} stopped", "worker": "{worker.id}"}}]'
    ask(queue, "update pgqueue.jobs set attempts = 1, errors = %s::jsonb", error)
    page = person().get(f"/jobs/{made.id}").text
    assert f"worker {worker.name} stopped" in page
    assert str(worker.id) not in page, "neither the error, nor the sentence, nor the evidence"
    ask(queue, "delete from pgqueue.workers")
    assert f"worker {worker.name} stopped" in person().get(f"/jobs/{made.id}").text
    assert [one.alive for one in queue.insight.story(made.id).workers] == [False]
    ask(queue, 'update pgqueue.jobs set errors = \'[{"attempt": 1, "worker": "no id"}]\'')
    assert queue.insight.story(made.id).workers == ()


def test_state_and_reason_are_of_one_moment(
    queue: PgQueue, person: MakePerson, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = queue.task(name="step")(lambda: None).enqueue()
    look, looks = PgQueue.why, []

    def why(self: PgQueue, job_id: int) -> object:
        looks.append(1)
        if len(looks) == 1 or looks.count(1) > 10:
            ask(queue, "update pgqueue.jobs set status = 'scheduled', run_at = now() + interval '1 hour'")
        return look(self, job_id)

    monkeypatch.setattr(PgQueue, "why", why)
    shown = person().get(f"/api/jobs/{made.id}").json
    assert shown is not None
    assert (shown["job"]["state"], shown["evidence"]["state"], len(looks)) == ("scheduled", "scheduled", 2)

    def other(self: PgQueue, job_id: int) -> object:
        status = "ready" if self.job(job_id).state is JobState.SCHEDULED else "scheduled"
        ask(queue, "update pgqueue.jobs set status = %s", status)
        return look(self, job_id)

    monkeypatch.setattr(PgQueue, "why", other)
    page = person().get(f"/jobs/{made.id}").text
    assert "<strong>Now</strong>" not in page


def links(page: str) -> list[tuple[str, str]]:
    now = page[page.index("<strong>Now</strong>") :]
    return re.findall(r'<a href="([^"]+)">([^<]+)</a>', now[: now.index("</p>")])


def test_what_now_names_is_a_link_and_a_command_only_where_no_page_does_it(
    queue: PgQueue, person: MakePerson
) -> None:
    @queue.task(name="send", limit=Limit(1, name="api"))
    def send() -> None: ...

    first, second = send.enqueue(), send.enqueue()
    ask(queue, "insert into pgqueue.limits (name, most, declared) values ('name:api', 1, '')")
    worker_row(queue)
    worker = queue.workers.list()[-1]
    ask(
        queue,
        "update pgqueue.jobs set status = 'running', worker_id = %s, claimed_at = now() where id = %s",
        worker.id,
        first.id,
    )
    ann = person()
    page = ann.get(f"/jobs/{second.id}").text
    assert ("/limit?name=name:api", "&#39;name:api&#39;") in links(page)
    assert (f"/jobs/{first.id}", str(first.id)) in links(page)
    assert (f"/workers/{worker.name}", worker.name) in links(page)
    assert "Jobs before it" in page or "places are taken" in page
    assert "due_in" not in page
    now = links(ann.get(f"/jobs/{first.id}").text)
    assert (f"/workers/{worker.name}", f"{worker.host}, process {worker.pid}") in now

    queue.control.pause("default", by="ann", why="job 4711 `pgqueue dead retry 1` <b>")
    page = ann.get(f"/jobs/{second.id}").text
    assert ("/queue/resume?name=default", "resume it") in links(page)
    assert "queues resume" not in page
    assert "<b>" not in page


def test_a_job_that_waits_for_a_dead_one_and_a_flow_links_both(queue: PgQueue, person: MakePerson) -> None:
    @queue.task(name="step", max_attempts=1)
    def step() -> None: ...

    made = Workflow()
    made.add("first", step.call())
    made.add("second", step.call(), after=["first"], if_failed="wait")
    flow = made.enqueue()
    first, second = flow.jobs
    now = links(person().get(f"/jobs/{second.id}").text)
    assert (f"/jobs/{first.id}", str(first.id)) in now
    assert (f"/workflows/{flow.id}", f"flow {flow.id}") in now
    with queue.take(1) as (taken,):
        taken.fail(ValueError("no"))
    assert (f"/jobs/{first.id}/retry", "retry it") in links(person().get(f"/jobs/{second.id}").text)


def test_a_scheduled_run_links_its_schedule_its_task_and_its_queue(
    queue: PgQueue, person: MakePerson
) -> None:
    step = queue.task(name="step", queue="mail")(lambda: None)
    queue.schedules.put(
        "every <day>", step.call(), every=timedelta(days=1), start=datetime(2026, 1, 1, tzinfo=UTC)
    )
    made = queue.schedules.fire("every <day>")
    assert made is not None
    page = person().get(f"/jobs/{made.id if hasattr(made, 'id') else made}").text
    assert "/schedule?name=every+%3Cday%3E" in page or "/schedule?name=every%20%3Cday%3E" in page
    assert "/task?name=step" in page
    assert "/queue?name=mail" in page


def is_blocked(queue: PgQueue, job_id: int) -> bool:
    return queue.job(job_id).state is JobState.BLOCKED


async def test_a_signal_is_sent_to_a_job_that_waits_for_it(
    queue: PgQueue, running: Running, person: MakePerson
) -> None:
    @queue.task(name="wait")
    async def wait(ctx: Context, key: str | None = None) -> Any:
        return await ctx.await_for("approved", key=key, timeout=3600)

    own, keyed = await wait.aenqueue(), await wait.aenqueue("order 7")
    ann = person()
    async with running(queue):
        for one in (own, keyed):
            await until(partial(is_blocked, queue, one.id))
            path = f"/jobs/{one.id}"
            assert "Send signal…" in ann.get(path).text
            assert 'value="approved"' in ann.get(f"{path}/signal").text
            assert "write JSON" in ann.do(f"{path}/signal", name="approved", payload="{no").text
            assert "nothing was sent" in ann.do(f"{path}/signal", name="other", payload="1").text
            said = await asyncio.to_thread(ann.do, f"{path}/signal", name="approved", payload='{"by": 7}')
            assert "was sent" in said.text
        assert [one.result for one in await ended(queue, own, keyed)] == [{"by": 7}] * 2
    assert "waits for no signal" in ann.get(f"/jobs/{own.id}/signal").text
    assert person(Right.RETRY).get(f"/jobs/{own.id}/signal").status_code == 403
    rows = ask(
        queue, "select said_by, target, details from pgqueue.audit where action = 'signal' order by id"
    )
    assert [row[1] for row in rows] == [f"job {own.id}", "key order 7"]
    assert rows[0][2] == {"name": "approved"}


def test_priority_queue_and_time_of_one_job_are_changed(queue: PgQueue, person: MakePerson) -> None:
    made = queue.task(name="step")(lambda: None).using(delay=3600, priority=3).enqueue()
    ann, path = person(), f"/jobs/{made.id}/change"
    asked = ann.get(path).text
    due = re.search(r'name="run_at"[^>]*value="([^"]+)"', asked)
    assert due is not None
    assert 'value="3"' in asked
    same = {"priority": "3", "queue": "default", "run_at": due[1]}
    assert "stays as it is" in ann.do(path, **same).text
    assert ask(queue, "select count(*) from pgqueue.audit") == [(0,)]
    done = ann.do(path, priority="-7", queue="slow", run_at="2099-01-01T00:00+01:00").text
    assert "has priority -7, queue slow, due 2098-12-31T23:00:00+00:00 now." in done
    found = queue.job(made.id)
    assert (found.priority, found.queue, found.run_at) == (-7, "slow", datetime(2098, 12, 31, 23, tzinfo=UTC))
    assert "no time zone" in ann.do(path, **same | {"run_at": "2099-01-01"}).text
    assert "ISO 8601" in ann.do(path, **same | {"run_at": "soon"}).text
    assert "whole number" in ann.do(path, **same | {"priority": "high"}).text
    ann.do(path, priority="-7", queue="slow", run_at="2026-01-01T00:00Z")
    assert queue.job(made.id).state is JobState.READY
    with queue.take(1, queues=["slow"]):
        assert "cannot be changed" in ann.get(path).text
        assert not queue.control.reschedule(made.id, datetime.now(UTC))
    assert person(Right.RETRY).get(path).status_code == 403


async def test_reschedule_awaited_and_of_ids_that_no_job_has(queue: PgQueue) -> None:
    made = queue.task(name="step")(lambda: None).enqueue()
    assert await queue.control.areschedule(made.id, at(10**9), by="ann")
    assert queue.job(made.id).state is JobState.SCHEDULED
    for job_id in (4711, -1, 1 << 70):
        assert not await queue.control.areschedule(job_id, at(1), by="ann")


def test_a_succeeded_job_is_run_again_and_its_secrets_are_not_shown(
    queue: PgQueue, person: MakePerson
) -> None:
    @queue.task(name="charge", queue="billing", max_attempts=4)
    def charge(order: int, password: str | None = None) -> None: ...

    open_, secret = charge.using(priority=5, meta={"trace": "x"}).enqueue(7), charge.enqueue(8, SECRET)
    with queue.take(2, queues=["billing"]):
        pass
    ann = person()
    assert "Run again…" in ann.get(f"/jobs/{open_.id}").text
    asked = ann.get(f"/jobs/{open_.id}/copy").text
    assert "&#34;order&#34;: 7" in asked
    done = ann.do(
        f"/jobs/{open_.id}/copy", arguments='{"order": 9}', queue="billing", priority="6", delay="60"
    ).text
    copy = queue.insight.search(state="scheduled").jobs[0]
    assert f"Job {copy.id} is enqueued, a copy of job {open_.id}." in done
    assert f'href="/jobs/{open_.id}">{open_.id}</a>' in ann.get(f"/jobs/{copy.id}").text
    assert (copy.args, copy.priority, copy.max_attempts) == ({"order": 9}, 6, 4)
    assert copy.meta == {"trace": "x", "pgqueue_copy_of": open_.id}

    asked = ann.get(f"/jobs/{secret.id}/copy").text
    assert SECRET not in asked
    assert "arguments" not in re.findall(r'<textarea name="(\w+)"', asked)
    ann.do(
        f"/jobs/{secret.id}/copy", arguments='{"order": 1, "password": "•••"}', queue="billing", priority="0"
    )
    copy = queue.insight.search(state="ready", queue="billing").jobs[0]
    assert copy.args == {"order": 8, "password": SECRET}
    for wrong in ("[1]", "{"):
        assert (
            "write" in ann.do(f"/jobs/{open_.id}/copy", arguments=wrong, queue="billing", priority="0").text
        )
    assert (
        "number of seconds" in ann.do(f"/jobs/{open_.id}/copy", queue="billing", priority="0", delay="x").text
    )
    ask(queue, "update pgqueue.job_history set args = '{\"$not_kept\": 90000}' where id = %s", open_.id)
    assert "not kept in the history" in ann.get(f"/jobs/{open_.id}/copy").text
    assert person(Right.RETRY).get(f"/jobs/{open_.id}/copy").status_code == 403


def test_a_person_who_may_only_look_sees_no_button(queue: PgQueue, person: MakePerson) -> None:
    (dead,) = die(queue, "die", {"number": 1}, error=ValueError("no"))
    page = person(Right.LOOK).get(f"/jobs/{dead}").text
    assert not re.findall(r"(?:Copy|Change|Retry|Delete|Run again|Send signal)…", page)
