"""A secret in every place of a job that may hold one, and in whatever names the job: for tests that look for it in what is shown."""

import base64
import html
import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from urllib.parse import quote
from uuid import uuid4

from looking import ask, wait_until

from pgqueue import Limit, PgQueue, Workflow

SECRET = "zq7hunter/22+'ü\"x"  # noqa: S105 - to be looked for in what is shown
_DATA = SECRET.encode()
MARKS = (
    "zq7hunter",  # as it is, quoted, in JSON, in a URL
    _DATA.hex(),
    *(base64.b64encode(b"." * before + _DATA).decode()[4:16] for before in range(3)),
)
"""One of these is in each form of the secret."""
SPELLED = " ".join(
    (
        SECRET,
        repr(SECRET),
        json.dumps({"x": SECRET}),
        quote(SECRET, safe=""),
        base64.b64encode(_DATA).decode(),
    )
)
ARGS = {"to": "ann@example.com", "password": SECRET, "nested": [{"Api-Key": SECRET}]}
TASK = "planted.mail.send"


def marks_in(shown: str) -> list[str]:
    """The marks of the secret in a page, a table or a file."""
    text = html.unescape(shown)
    return [f"…{text[max(0, at - 80) : at + 60]}…" for mark in MARKS if (at := text.find(mark)) >= 0]


def _refuse(to: str, password: str, nested: list[dict[str, str]]) -> None:
    raise PermissionError(f"login of {to} refused: {SPELLED} {password!r} {nested}")


def _refusal() -> Exception:
    try:
        _refuse(**ARGS)  # type: ignore[arg-type]  # by name
    except PermissionError as error:
        return error
    raise AssertionError


A_RUN = """
insert into pgqueue.sink_writes (id, run, task, rows, enqueued, rejected, changed, jobs)
select gen_random_uuid(), 'planted', %s, 1, count(*), 0, 0, range_agg(int8range(id, id, '[]')) from pgqueue.all_jobs
"""
"""All jobs are of one run."""


@contextmanager
def planted(queue: PgQueue) -> Iterator[dict[str, int]]:
    """The ids of a job in each state, of a workflow, and of a job that waits for one that failed."""
    send = queue.tasks.get(TASK) or queue.task(name=TASK, limit=Limit(2, by="password"))(_refuse)
    call = send.using(meta={"token": SECRET, "note": f"cookie: {SECRET}"})
    found: dict[str, int] = {}

    def enqueue(**options: Any) -> int:
        return call.using(**options).enqueue(**ARGS).id

    found["dead"] = enqueue(max_attempts=1, unique_key=f"mail:{SECRET}", queue="unserved")
    with queue.take(1, queues=["unserved"], timeout=5) as jobs:
        jobs[0].fail(_refusal())
    found["retried"] = enqueue(max_attempts=3, queue="retried")
    with queue.take(1, queues=["retried"], timeout=5) as jobs:
        jobs[0].fail(_refusal())
    found["succeeded"] = enqueue(queue="done")
    with queue.take(1, queues=["done"], timeout=5) as jobs:
        jobs[0].complete()
    ask(queue, "update pgqueue.job_history set result = %s::json", json.dumps({"token": SECRET}))
    queue.control.jobs(args={"password": SECRET}, queue="done").cancel()  # its audit entry
    flow = Workflow("planted", key=f"token={SECRET}{uuid4()}")
    flow.add("first", call.using(max_attempts=1, queue="flow").call(**ARGS))
    flow.add("second", call.using(queue="flow").call(**ARGS), after={"first": "wait"})
    found["flow"] = flow.enqueue().id
    with queue.take(1, queues=["flow"], timeout=5) as jobs:
        jobs[0].fail(_refusal())
    queue.schedules.add("planted", call.using(unique_key=f"token={SECRET}").call(**ARGS), "@daily")
    queue.control.pause("paused", why=f"password={SECRET}", by="ann")
    behind = ask(queue, "select min(id) from pgqueue.jobs where queue = 'flow'")
    found["behind"] = behind[0][0]
    found["running"] = enqueue(queue="running")
    with queue.take(1, queues=["running"], timeout=5) as jobs:
        jobs[0].progress(1, 2, f"logs in with {SECRET}")
        wait_until(lambda: queue.progress(found["running"]))
        found["waiting"] = enqueue(queue="running", delay=timedelta(hours=1), unique_key=f"{SECRET}:2")
        ask(queue, "update pgqueue.workers set answer = %s", f"token={SECRET}")
        ask(queue, A_RUN, TASK)
        yield found
