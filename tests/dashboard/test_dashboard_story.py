"""The page of a job: its place in a workflow, what its attempts noted, how far it is, and "run now".

The evidence on a job's page, attacked: secrets in the keys of limits and in the errors of other jobs, hostile text, a job that goes.
"""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from dashboard.people import Person
from dashboard.world import HOSTILE, SECRET
from looking import ask, until
from running import Running

from pgqueue import Context, Limit, PgQueue, Workflow, chain, group
from pgqueue.dashboard import Right
from pgqueue.store.insight import story
from pgqueue.values.insight.story import Story

MakePerson = Callable[..., Person]


def _step(number: int = 0) -> None: ...


@pytest.fixture
def step(queue: PgQueue) -> Any:
    return queue.task(name="step")(_step)


def _met(story: Story) -> tuple[list[tuple[str, bool]], list[tuple[str, bool]]]:
    assert story.place is not None
    before, after = story.place.before, story.place.after
    return [(one.label, one.met) for one in before], [(one.label, one.met) for one in after]


def test_a_job_knows_what_it_waits_for_and_what_waits_for_it(queue: PgQueue, step: Any) -> None:
    flow = Workflow(name="day")
    flow.add("load", step.call(1))
    flow.add("clean", step.call(2), after=["load"])
    flow.add("report", step.call(3), after=["clean"])
    flow.add("bill", step.call(4), after=["clean"])
    load, clean, *_ = flow.enqueue().jobs
    with queue.take(1, timeout=5) as jobs:
        assert jobs[0].id == load.id

    story = queue.insight.story(clean.id)

    assert story.place is not None
    assert (story.place.kind, story.place.name, story.place.state) == ("workflow", "day", "running")
    assert (story.place.node, story.place.node_state, story.place.groups) == ("clean", "released", ())
    assert _met(story) == ([("load", True)], [("report", False), ("bill", False)])
    assert story.place.before[0].job_id == load.id
    assert story.place.complete


def test_what_surrounds_the_groups_of_a_job_surrounds_the_job(queue: PgQueue, step: Any) -> None:
    many = group([step.call(2), step.call(3)], name="many")
    first, inner, _, last = chain(step.call(1), many, step.call(4), name="all").enqueue().jobs

    story = queue.insight.story(inner.id)

    assert story.place is not None
    assert story.place.groups == ("2",), "the second part of the chain"
    assert [one.job_id for one in story.place.before] == [first.id]
    assert [one.job_id for one in story.place.after] == [last.id]


def test_of_many_neighbours_some_are_named(
    queue: PgQueue, step: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(story, "NEAR", 3)
    flow = Workflow()
    flow.add("first", step.call())
    for number in range(4):
        flow.add(f"n{number}", step.call(), after=["first"])
    found = queue.insight.story(flow.enqueue().jobs[0].id)
    assert found.place is not None
    assert ([one.label for one in found.place.after], found.place.complete) == (["n0", "n1", "n2"], False)


async def test_an_ordinary_job_has_no_place_and_one_that_is_gone_nothing(queue: PgQueue, step: Any) -> None:
    for job_id in (step.enqueue().id, 0, 4711, -1, 1 << 70):
        assert queue.insight.story(job_id) == Story(None, ())
    assert await queue.insight.astory(4711) == Story(None, ())


async def test_the_page_shows_the_place_the_notes_and_the_progress(
    queue: PgQueue, person: MakePerson, running: Running
) -> None:
    seen = asyncio.Event()

    @queue.task(name="long", max_attempts=1)
    async def long(ctx: Context) -> None:
        await ctx.astep("token=hunter22 <b>page</b>", lambda: {"secret": "hunter22"})
        ctx.progress(3, 12, "three")
        await seen.wait()

    flow = chain(long.call(), long.call(), name="<i>night</i>").enqueue()
    first, second = flow.jobs
    ann = person()
    async with running(queue):
        await until(lambda: queue.progress(first.id))
        page = ann.get(f"/jobs/{first.id}").text
        seen.set()

    assert "&lt;i&gt;night" in page
    assert f"/workflows/{flow.id}" in page
    assert f"/jobs/{second.id}" in page
    assert "25 %" in page
    assert "page&lt;/b&gt;" in page
    assert "hunter22" not in page
    assert f"job={first.id}" in page
    assert f'/jobs/{first.id}"' in ann.get(f"/jobs/{second.id}").text
    made: Any = ann.get(f"/api/jobs/{second.id}").json
    assert made["place"]["before"][0]["job_id"] == first.id
    assert "hunter22" not in ann.get(f"/api/jobs/{first.id}").text
    assert msgspec.json.encode(queue.insight.story(first.id))


def test_a_scheduled_job_is_run_now_after_a_question(step: Any, person: MakePerson) -> None:
    job = step.using(delay=3600).enqueue()
    ann, path = person(), f"/jobs/{job.id}"
    assert "Run now…" in ann.get(path).text
    assert f"Run job {job.id}?" in ann.get(f"{path}/run").text
    assert f"Job {job.id} is ready." in ann.do(f"{path}/run").text
    assert job.status() == "ready"
    assert "Run now…" not in ann.get(path).text
    assert "It is ready, so this cannot be done." in ann.get(f"{path}/run").text
    assert "was not changed" in ann.do(f"{path}/run").text
    assert ann.get("/jobs/4711/run").status_code == 404
    assert person(Right.CANCEL).get(f"{path}/run").status_code == 403


async def test_run_now_awaited_and_of_ids_that_no_job_has(queue: PgQueue, step: Any) -> None:
    job = step.using(delay=3600).enqueue()
    assert await queue.control.arun_now(job.id, by="ann")
    for job_id in (job.id, 4711, -1, 1 << 70):
        assert not await queue.control.arun_now(job_id, by="ann")
    assert ask(queue, "select said_by, action, target, jobs from pgqueue.audit") == [
        ("ann", "run now", f"job {job.id}", 1)
    ]


@pytest.mark.parametrize("secret", [SECRET, 'qu"ote \\ ñ', "1234567"])
def test_the_key_of_a_limit_shows_no_secret_argument(queue: PgQueue, person: MakePerson, secret: str) -> None:
    @queue.task(name="send", limit=Limit(1, by="token"))
    def send(token: str) -> None: ...

    first, second = send.enqueue(secret), send.enqueue(secret)
    ask(queue, "insert into pgqueue.limits (name, most, declared) values ('task:send:token', 1, '')")
    ask(
        queue,
        "update pgqueue.jobs set status = 'running', worker_id = gen_random_uuid() where id = %s",
        first.id,
    )
    (limit,) = json.loads(person().get(f"/api/jobs/{second.id}").text)["evidence"]["limits"]
    assert (limit["key"], limit["running"]) == ('task:send:token {"token":•••}', 1)
    page = person().get(f"/jobs/{second.id}").text
    assert "limit full" in page
    assert secret not in page


def test_hostile_evidence_is_only_text(queue: PgQueue, person: MakePerson) -> None:
    @queue.task(name="note")
    def note() -> None: ...

    job = note.using(delay=60).enqueue()
    queue.control.pause("default", by=HOSTILE[:40], why=HOSTILE)
    error = json.dumps([{"attempt": 1, "type": HOSTILE, "message": HOSTILE}])
    ask(queue, "update pgqueue.jobs set attempts = 1, errors = %s::jsonb", error)
    page = person().get(f"/jobs/{job.id}")
    assert page.status_code == 200
    assert "<script>" not in page.text.replace("<script src=", "")
    assert json.loads(person().get(f"/api/jobs/{job.id}").text)["evidence"]["paused_why"]


def test_a_job_that_goes_while_its_page_is_read_is_no_error(
    queue: PgQueue, person: MakePerson, monkeypatch: pytest.MonkeyPatch
) -> None:
    @queue.task(name="note")
    def note() -> None: ...

    job = note.enqueue()
    found = PgQueue.why

    def gone(self: PgQueue, job_id: int) -> object:
        ask(queue, "delete from pgqueue.jobs")
        return found(self, job_id)

    monkeypatch.setattr(PgQueue, "why", gone)
    page = person().get(f"/jobs/{job.id}")
    assert (page.status_code, "there is no record of it" in page.text) == (200, True)
