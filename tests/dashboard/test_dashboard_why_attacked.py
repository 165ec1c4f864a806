"""The evidence on a job's page, attacked: secrets in the keys of limits and in the errors of other jobs, hostile text, a job that goes."""

import json
from collections.abc import Callable

import pytest
from dashboard.people import Person
from dashboard.world import HOSTILE, SECRET
from looking import ask

from pgqueue import Limit, PgQueue

MakePerson = Callable[..., Person]


@pytest.mark.parametrize("secret", [SECRET, 'qu"ote \\ ñ', "1234567"])
def test_the_key_of_a_limit_shows_no_secret_argument(queue: PgQueue, person: MakePerson, secret: str) -> None:
    @queue.task(name="send", limit=Limit(1, by="token"))
    def send(token: str) -> None: ...

    first, second = send.enqueue(secret), send.enqueue(secret)
    ask(queue, "insert into pgqueue.limits (name, most, declared) values ('task:send:token', 1, '')")
    ask(queue, "update pgqueue.jobs set status = 'running' where id = %s", first.id)
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
