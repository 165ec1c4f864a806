"""What the pages of jobs, one job, dead jobs and workers show, and what can be done on them.

The dashboard in other programs: WSGI and ASGI apps mount it in a line, and the command serves it.
"""

import json
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from datetime import UTC, datetime
from threading import current_thread
from urllib.parse import urlsplit

import httpx
import psycopg
import pytest
from cli.commands import pgqueue
from dashboard.people import Person, die
from dashboard.world import HOSTILE, SECRET, World, shop, stored_alert, worker_row
from flask import Flask
from looking import ask
from starlette.applications import Starlette
from werkzeug.middleware.dispatcher import DispatcherMiddleware
from werkzeug.test import Client

from pgqueue import Limit, PgQueue, Workflow, chain
from pgqueue.dashboard import Dashboard, Right, User, dashboard
from pgqueue.dashboard.pages import PAGES
from pgqueue.store.bulk import bulk
from pgqueue.store.connections.connection import OwnConnection, StepRunner
from pgqueue.store.connections.patience import Patience
from pgqueue.store.plan import Row, Step
from pgqueue.values.bulk.filter import JobFilter
from pgqueue.values.bulk.operation import BulkAction, Operation

MakePerson = Callable[..., Person]


@pytest.fixture
def world(queue: PgQueue) -> Iterator[World]:
    with shop(queue) as made:
        yield made


def audit(queue: PgQueue) -> list[tuple[str, str | None, int | None]]:
    return [(one.action, one.by, one.jobs) for one in queue.insight.audit()]


def test_every_page_answers_people_and_programs(world: World, person: MakePerson) -> None:
    ann = person()
    for path in ("/jobs", f"/jobs/{world.dead}", f"/jobs/{world.running}", "/dead", "/workers"):
        page, answer = ann.get(path), ann.get(f"/api{path}")
        assert (page.status_code, page.mimetype) == (200, "text/html"), page.text
        assert (answer.status_code, answer.mimetype) == (200, "application/json"), answer.text
        assert json.loads(answer.text)
    assert ann.get("/", follow_redirects=True).status_code == 200


@pytest.mark.parametrize(
    ("query", "tasks"),
    [
        ("state=dead", {"shop.billing.charge"}),
        ("state=running", {"shop.mail.send_receipt"}),
        ("queue=media&state=succeeded", {"shop.media.thumbnails"}),
        ("task=shop.search.*", {"shop.search.reindex"}),
        ("key=nightly", {"shop.search.reindex"}),
        ("args=order_id=9004", {"shop.mail.send_receipt"}),
        ('args={"image": "products/4003.jpg"}', {"shop.media.thumbnails"}),
        ("error=ConnectionError", {"shop.billing.charge"}),
        ("until=1h", set()),
        ("after=2020-01-01T00:00", None),
        ("below=1", set()),
    ],
)
@pytest.mark.usefixtures("world")
def test_jobs_are_filtered_by_the_address(person: MakePerson, query: str, tasks: set[str] | None) -> None:
    found = json.loads(person().get(f"/api/jobs?{query}").text)["jobs"]
    assert not any("result" in job for job in found)  # a search does not read them
    assert {job["task"] for job in found} == tasks if tasks is not None else len(found) > 30
    assert person().get(f"/jobs?{query}").status_code == 200


@pytest.mark.parametrize(
    "query",
    [
        "state=lost",
        "args=x",
        "args=[1]",
        "after=soon",
        "until=999999d",
        "below=x",
        "below=" + "9" * 30,
        "task=" + "x" * 2000,
        "queue=a%00b",
    ],
)
def test_an_address_that_makes_no_sense_is_refused_with_a_reason(person: MakePerson, query: str) -> None:
    answer = person().get(f"/jobs?{query}")
    assert answer.status_code == 400
    assert query.partition("=")[0] in answer.text


def test_pages_of_jobs_follow_one_another(queue: PgQueue, person: MakePerson) -> None:
    sell = queue.task(name="sell")(lambda: None)
    queue.enqueue_many(sell.call() for _ in range(120))
    ann, seen, path = person(), [], "/api/jobs"
    while path:
        content = json.loads(ann.get(path).text)
        seen += [job["id"] for job in content["jobs"]]
        path = f"/api/jobs?below={content['older']}" if content["older"] else ""
    assert seen == [*range(120, 0, -1)]


def test_a_jobs_page_tells_its_story(world: World, person: MakePerson) -> None:
    ann = person()
    dead = ann.get(f"/jobs/{world.dead}").text
    assert "payments.example: no answer after 10 s" in dead
    assert "Traceback (most recent call last)" in dead
    assert "Dead: exhausted." in dead
    running = ann.get(f"/jobs/{world.running}").text
    assert "3 of 12 pages rendered" in running
    assert "Attempt 1 of 3 was claimed." in running
    assert "is due in" in ann.get(f"/jobs/{world.scheduled}").text
    assert ann.get("/jobs/999999").status_code == 404
    for path in ("/queue", "/limit", "/schedule", "/alert"):
        assert ann.get(f"{path}?name=nope").status_code == 404, path
    assert ann.get(f"/jobs/{2**70}").status_code == 404


def test_hostile_values_are_shown_and_do_nothing(world: World, person: MakePerson) -> None:
    ann = person()
    for path in (
        "/jobs",
        f"/jobs/{world.hostile}",
        f"/jobs/{world.hostile}/cancel",
        "/jobs?args=" + HOSTILE,
        "/jobs?queue=<b>",
    ):
        text = ann.get(path).text
        assert "<script>alert" not in text
        assert "<b>" not in text
        assert "\x1b" not in text
        assert "\u202e" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in ann.get(f"/jobs/{world.hostile}").text


def test_half_a_surrogate_pair_and_deep_values_are_shown(queue: PgQueue, person: MakePerson) -> None:
    sell = queue.task(name="sell")(lambda: None)
    one, two = sell.enqueue().id, sell.enqueue().id
    nested = '{"a":' * 900 + '{"password": "hunter22"}' + "}" * 900
    ask(
        queue,
        "update pgqueue.jobs set errors = %s::jsonb where id = %s",
        '[{"attempt": 1, "type": "A", "message": "a\\u2028b"}]',
        one,
    )
    ask(queue, "update pgqueue.jobs set args = %s::json where id = %s", nested, two)
    for path in ("/jobs", f"/jobs/{one}", f"/jobs/{two}", "/api/jobs", f"/api/jobs/{two}"):
        answer = person().get(path)
        assert answer.status_code == 200, answer.text
        assert "hunter22" not in answer.text


def test_numbers_are_exact_everywhere(world: World, person: MakePerson) -> None:
    ann = person()
    assert str(2**63 + 1) in ann.get(f"/jobs/{world.hostile}").text
    answer = ann.get(f"/api/jobs/{world.hostile}").text
    assert f'"big":"{2**63 + 1}"' in answer, "JavaScript would round the number"
    assert f'"id":{world.hostile}' in answer


def test_secrets_are_hidden_in_pages_json_and_searches(
    world: World, queue: PgQueue, person: MakePerson
) -> None:
    ann = person()
    paths = [
        "/jobs",
        f"/jobs/{world.running}",
        f"/jobs/{world.hostile}",
        "/dead",
        f"/jobs/{world.dead}",
        "/jobs/cancel?queue=mail",
        "/dead/retry",
        "/jobs/cancel?task=shop.search.reindex",
    ]
    for path in paths:
        for door in (path, f"/api{path}"):
            text = ann.get(door).text
            assert SECRET not in text, door
            assert "4111111111111111" not in text, door
    for wanted in (
        f'{{"password": "{SECRET}"}}',
        f"password={SECRET}",
        f'{{"nested": {{"api-key": "{SECRET}"}}}}',
        '[{"x": [{"Card_Number": 1}]}]',
        '{"x": [{"Card_Number": 1}]}',
    ):
        for path in ("/jobs", "/dead", "/jobs/cancel", "/dead/purge"):
            answer = ann.get(path, query_string={"args": wanted})
            assert answer.status_code == 400, (path, wanted)
    queue.redact = ()
    assert SECRET in ann.get("/jobs").text
    queue.redact = ("nothing",)
    assert SECRET in ann.get("/jobs").text
    queue.redact = ("^what$",)
    assert "products" not in ann.get(f"/jobs/{world.ready}").text


def test_each_queue_of_a_dashboard_hides_its_own_secrets(queue: PgQueue, dsn: str) -> None:
    with closing(PgQueue(dsn, redact=["pin"])) as other:
        queue.enqueue_named("sign", {"pin": "4711-own", "password": "hunter-22"})
        ann = Person(Dashboard(queues={"one": queue, "other": other}, login=lambda _: User("ann")))
        one, two = ann.get("/jobs?db=one").text, ann.get("/jobs?db=other").text
    assert ("4711-own" in one, "hunter-22" in one) == (True, False)
    assert ("4711-own" in two, "hunter-22" in two) == (False, True)


def test_the_secrets_of_a_job_are_hidden_in_its_errors_and_keys(queue: PgQueue, person: MakePerson) -> None:
    error = ValueError(f"login failed for ann with {SECRET}, api_key=abcdef12, Authorization: Bearer")
    (job,) = die(queue, "log_in", {"password": SECRET, "pin_token": 987654}, error=error)
    ask(
        queue,
        "update pgqueue.dead_jobs set unique_key = %s",
        f'log_in{{"password":"{SECRET}","token":987654}}',
    )
    for path in ("/jobs", f"/jobs/{job}", "/dead", f"/api/jobs/{job}", "/api/dead", "/dead/retry"):
        text = person().get(path).text
        for secret in (SECRET, "abcdef12", "987654"):
            assert secret not in text, (path, secret)
    assert "login failed for ann with •••" in person().get(f"/jobs/{job}").text


@pytest.mark.usefixtures("world")
def test_dead_jobs_are_grouped_by_error(person: MakePerson) -> None:
    groups = json.loads(person().get("/api/dead").text)["groups"]
    assert [(one["jobs"], one["type"]) for one in groups] == [(6, "ConnectionError"), (2, "ValueError")]


def test_a_job_is_cancelled_after_a_question_and_the_audit_says_by_whom(
    queue: PgQueue, world: World, person: MakePerson
) -> None:
    ann = person()
    assert f"Cancel job {world.ready}?" in ann.get(f"/jobs/{world.ready}/cancel").text
    assert queue.job(world.ready).state == "ready", "only asked"
    page = ann.do(f"/jobs/{world.ready}/cancel")
    assert "1 job cancelled." in page.text
    assert "1 job cancelled." not in ann.get(f"/jobs/{world.ready}").text, "said once"
    assert queue.job(world.ready).state == "cancelled"
    assert audit(queue) == [("cancel", "ann", 1)]
    assert "It is cancelled, so this cannot be done." in ann.get(f"/jobs/{world.ready}/cancel").text

    assert "workers asked to stop 1" in ann.do(f"/jobs/{world.running}/cancel").text


def test_a_dead_job_is_retried_or_deleted(queue: PgQueue, world: World, person: MakePerson) -> None:
    ann = person()
    assert "1 job ready again." in ann.do(f"/jobs/{world.dead}/retry").text
    assert queue.job(world.dead).state == "ready"
    assert "1 job deleted." in ann.do("/jobs/1/purge").text
    assert ann.get("/jobs/1").status_code == 404
    assert audit(queue) == [("purge_dead", "ann", 1), ("retry_dead", "ann", 1)]


@pytest.mark.usefixtures("world")
def test_dead_jobs_are_retried_and_deleted_by_filter(queue: PgQueue, person: MakePerson) -> None:
    ann = person()
    path = "/dead/retry?task=shop.billing.charge&error=ConnectionError"
    asked = ann.get(path).text
    assert "Retry 6 jobs?" in asked
    assert "6 jobs ready again." in ann.do(path).text
    assert "Delete 2 jobs?" in ann.get("/dead/purge").text
    assert "2 jobs deleted." in ann.do("/dead/purge", asked="2", number="2").text
    assert "Delete 0 jobs?" in ann.get("/dead/purge").text
    assert queue.insight.search(state="dead").jobs == ()


@pytest.mark.usefixtures("world")
def test_live_jobs_are_cancelled_moved_and_reprioritised_by_filter(
    queue: PgQueue, person: MakePerson, caplog: pytest.LogCaptureFixture
) -> None:
    ann = person()
    assert "6 jobs moved." in ann.do("/jobs/move?queue=media", to="slow").text
    assert "6 jobs got their priority." in ann.do("/jobs/reprioritise?queue=slow", priority="-7").text
    assert {job.priority for job in queue.insight.search(queue="slow", state="ready").jobs} == {-7}
    assert "6 jobs cancelled." in ann.do("/jobs/cancel?queue=slow").text
    for fields in ({"priority": "x"}, {"priority": "101"}, {"priority": ""}):
        wrong = ann.client.post(
            "/jobs/reprioritise?queue=mail",
            data={"pgqueue_csrf": _key(ann), **fields},
            headers={"Origin": "http://localhost"},
        )
        assert (wrong.status_code, 'role="alert"' in wrong.text) == (400, True)
    assert not [one for one in caplog.records if one.name.startswith("pgqueue")], (
        "nothing has begun that could stop"
    )
    assert ann.get("/jobs/cancel?state=dead").status_code == 400
    assert ann.get("/jobs/cancel?key=nightly").status_code == 400


def test_each_right_allows_its_actions_and_no_others(
    world: World, queue: PgQueue, person: MakePerson
) -> None:
    worker_row(queue)
    needed = {
        f"/jobs/{world.ready}/cancel": Right.CANCEL,
        "/jobs/cancel": Right.CANCEL,
        "/jobs/move": Right.MOVE,
        "/jobs/reprioritise": Right.MOVE,
        f"/jobs/{world.dead}/retry": Right.RETRY,
        "/dead/retry": Right.RETRY,
        f"/jobs/{world.dead}/purge": Right.PURGE,
        "/dead/purge": Right.PURGE,
        "/workers/all/quiet": Right.STEER,
    }
    for right in Right:
        someone = person(right)
        for path, wanted in needed.items():
            assert (someone.get(path).status_code == 200) is (right == wanted), (right, path)
    assert "Cancel…" not in person(Right.LOOK).get("/jobs").text
    assert "Cancel…" in person(Right.CANCEL).get("/jobs").text
    assert "read-only" in person(actions=False).get("/jobs").text


def test_workers_are_asked_to_be_quiet_change_slots_and_stop(queue: PgQueue, person: MakePerson) -> None:
    worker_row(queue)
    ann, (worker,) = person(), queue.workers.list()
    path = f"/workers/{worker.id}"
    assert "1 worker asked to be quiet." in ann.do(f"{path}/quiet").text
    assert "1 worker asked to change its slots." in ann.do(f"{path}/set", slots="2-9").text
    assert str(queue.workers.get(str(worker.id)).asked.bounds) == "2-9"
    assert "1 worker asked to claim jobs again." in ann.do("/workers/all/resume").text
    assert "1 worker asked to restart." in ann.do(f"{path}/restart").text
    assert "1 worker asked to stop." in ann.do(f"{path}/stop").text
    assert {by for _, by, _ in audit(queue)} == {"ann"}
    assert ann.get("/workers/nope/quiet").status_code == 404
    assert ann.get("/workers").text.count("ann asked it to stop") == 1


def test_the_first_page_says_since_when_the_event_loop_of_a_worker_is_blocked(
    queue: PgQueue, person: MakePerson
) -> None:
    worker_row(queue)
    ask(
        queue,
        "update pgqueue.workers set blocked_since = now() - interval '1 minute', blocked_task = 't', blocked_where = 'w'",
    )
    page = person().get("/overview").text
    assert "claims nothing: its event loop has been blocked for" in page
    assert "unresponsive" in person().get("/workers").text


def test_a_page_says_soon_that_the_database_is_away_though_the_apps_own_calls_wait_longer(
    queue: PgQueue, person: MakePerson, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dashboard, "PATIENCE", Patience(0.1, 60.0))
    pool = queue.database.pools.blocking()
    waits: list[float | None] = []
    getconn = pool.getconn

    def counted(timeout: float | None = None) -> OwnConnection:
        waits.append(timeout)
        return getconn(timeout)

    monkeypatch.setattr(pool, "getconn", counted)
    with ExitStack() as stack:
        for _ in range(queue.database.pools.size):  # as if the server took no more connections
            stack.enter_context(queue.database.pooled())
        answer = person().get("/overview")
        assert answer.status_code == 503
        assert "The database does not answer" in answer.text
    assert person().get("/overview").status_code == 200
    queue.insight.queues()
    assert {0.1} < {*waits}
    assert waits[-1] is None


def test_a_page_says_that_the_database_does_not_answer(
    dsn: str, person: MakePerson, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here a lock keeps it from answering; a stopped server and a pooler in front of one do the same."""
    ann = person()
    assert ann.get("/overview").status_code == 200
    monkeypatch.setattr(dashboard, "PATIENCE", Patience(60.0, 0.3))
    with psycopg.connect(dsn) as other:
        other.execute("lock table pgqueue.jobs in access exclusive mode")
        answer = ann.get("/overview")
        assert (answer.status_code, "The database does not answer" in answer.text) == (503, True)
    monkeypatch.setattr(dashboard, "PATIENCE", Patience(60.0, 60.0))
    assert ann.get("/overview").status_code == 200


def test_workers_show_what_each_runs(world: World, person: MakePerson) -> None:
    text = person().get("/workers").text
    assert f"/jobs/{world.running}" in text
    assert "3 of 3 busy" in text


def test_jobs_beyond_the_slots_of_their_worker_are_claimed_and_do_not_run(
    world: World, queue: PgQueue, person: MakePerson
) -> None:
    ask(
        queue,
        "update pgqueue.workers set slots = 2 where id = (select worker_id from pgqueue.jobs where id = %s)",
        world.running,
    )
    page = person().get("/workers").text
    assert "2 of 2 busy, 1 claimed" in page
    assert "Claimed, not started" in page


def test_a_long_operation_has_a_page_and_an_interrupted_one_is_continued(
    queue: PgQueue, person: MakePerson, monkeypatch: pytest.MonkeyPatch
) -> None:
    sell = queue.task(name="sell")(lambda: None)
    queue.enqueue_many(sell.call() for _ in range(4))
    monkeypatch.setattr(bulk, "AT_ONCE", 1)
    operation = Operation(action=BulkAction.CANCEL, filter=JobFilter(task="sell"))
    begun = queue.database.run(bulk.begin(operation, by="bob"))  # and then the process ends

    ann = person()
    page = ann.get(f"/operations/{begun.id}").text
    assert "not finished" in page
    assert "4 jobs done." in ann.do(f"/operations/{begun.id}/continue").text
    assert [job.state for job in queue.insight.search().jobs] == ["cancelled"] * 4
    assert "It has ended." in ann.get(f"/operations/{begun.id}/continue").text
    assert person(Right.RETRY).get(f"/operations/{begun.id}").status_code == 200
    assert ann.get("/operations/999").status_code == 404
    assert ann.get(f"/operations/{2**63}").status_code == 404


@pytest.mark.usefixtures("world")
def test_a_page_that_has_not_changed_is_not_sent_again(person: MakePerson) -> None:
    ann = person()
    live = {"X-Pgqueue-Live": "1"}
    first = ann.get("/jobs", headers=live)
    assert "<html" not in first.text
    assert "send_receipt" in first.text.replace("<wbr>", "")
    again = ann.get("/jobs", headers={**live, "If-None-Match": first.headers["ETag"]})
    assert (again.status_code, again.text) == (304, "")
    assert again.headers["Content-Security-Policy"]


NAMED = {
    "queue": "mail",
    "task": "shop.billing.charge",
    "limit": "queue:mail",
    "schedule": "nightly",
    "alert": "slow mail",
    "run": "r1",
}


def test_a_job_that_failed_is_downloaded_as_a_test_without_its_secrets(
    world: World, person: MakePerson
) -> None:
    ann = person()
    for path in (f"/jobs/{world.dead}", "/dead"):
        assert f'href="/jobs/{world.dead}/test" download' in ann.get(path).text
    assert f"/jobs/{world.ready}/test" not in ann.get(f"/jobs/{world.ready}").text
    file = ann.get(f"/jobs/{world.dead}/test")
    assert file.headers["Content-Disposition"] == f"attachment; filename=test_job_{world.dead}.py"
    assert file.headers["Content-Type"].startswith("text/plain")
    assert f"def test_job_{world.dead}_of_charge(" in file.text
    assert "Values are hidden here" in file.text
    assert "4111111111111111" not in file.text
    assert SECRET not in ann.get(f"/jobs/{world.hostile}/test").text
    assert ann.get("/jobs/999999/test").status_code == 404


def test_an_idle_page_asks_at_most_one_statement_a_second(
    world: World, queue: PgQueue, person: MakePerson, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    execute, asking = StepRunner.execute, current_thread()

    def counted(self: StepRunner, step: Step) -> Sequence[Row]:
        if current_thread() is asking:  # the heartbeat of the running job asks from another
            asked.append(step.name)
        return execute(self, step)

    queue.control.limits.set("queue:mail", Limit(5))
    queue.schedules.add("nightly", queue.tasks["shop.search.reindex"].call(what="all"), "0 4 * * *")
    flow = chain(*(queue.tasks["shop.search.reindex"].call(what=one) for one in "ab")).enqueue()
    stored_alert(queue)
    ask(
        queue,
        "insert into pgqueue.sink_writes (id, run, task, rows, enqueued, rejected, changed) "
        "values (gen_random_uuid(), 'r1', 'step', 0, 0, 0, 0)",
    )
    ann = person()
    pages = []
    for page in PAGES:
        if page.every is None:
            continue
        path = page.path.replace("<int:job_id>", str(world.running)).replace("<int:flow_id>", str(flow.id))
        if "<" in path:
            continue
        path += f"?name={NAMED.get(page.name, '')}"
        assert ann.get(path).status_code == 200, path
        pages.append((page.every, path))
    monkeypatch.setattr(StepRunner, "execute", counted)
    for every, path in pages:
        asked.clear()
        ann.get(path, headers={"X-Pgqueue-Live": "1"})
        assert 0 < len(asked) <= every, (path, asked)


@pytest.mark.usefixtures("world")
def test_under_a_prefix_and_behind_a_proxy_addresses_lead_back(queue: PgQueue) -> None:
    user = User("ann")
    plain = Person(Dashboard(queue, login=lambda _: user))
    text = plain.get("/jobs", base_url="http://localhost/ops/jobs").text
    assert 'href="/ops/jobs/dead"' in text
    assert 'href="/ops/jobs/static/dashboard.css' in text
    forwarded = {
        "X-Forwarded-Prefix": "/ops",
        "X-Forwarded-Proto": "https",
        "X-Forwarded-Host": "jobs.example",
    }
    assert 'href="/dead"' in plain.get("/jobs", headers=forwarded).text, "not told to trust it"
    trusting = Person(Dashboard(queue, login=lambda _: user, trust_proxy=True))
    answer = trusting.get("/jobs", headers=forwarded)
    assert 'href="/ops/dead"' in answer.text
    assert "Secure" in answer.headers["Set-Cookie"]
    for evil in ("//evil.example", "/\\evil.example", "https://evil.example", "/a//b", "/ops\tx"):
        home = trusting.get("/", headers={**forwarded, "X-Forwarded-Prefix": evil})
        assert urlsplit(home.headers["Location"])[:3] in {
            ("", "", "/overview"),
            ("https", "jobs.example", "/overview"),
        }, evil


@pytest.mark.usefixtures("world")
def test_several_queues_are_shown_side_by_side(queue: PgQueue, empty_dsn: str) -> None:
    other = PgQueue(empty_dsn, schema="other")
    dashboard = Dashboard(queues={"shop": queue, "media & co": other}, login=lambda _: User("ann"))
    person = Person(dashboard)
    assert "send_receipt" in person.get("/jobs").text.replace("<wbr>", "")
    assert "db=media+%26+co" in person.get("/jobs").text
    assert person.get("/jobs?db=media+%26+co").status_code == 503, "it is asked, and has no tables"
    assert person.get("/jobs?db=nope").status_code == 404
    other.close()


def test_a_database_that_is_away_is_said() -> None:
    away = PgQueue("postgresql://nobody@127.0.0.1:1/none?connect_timeout=1")
    person = Person(Dashboard(away, login=lambda _: User("ann")))
    answer = person.get("/jobs")
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "5")
    assert json.loads(person.get("/api/jobs").text)["error"].startswith("The database does not answer")
    away.close()


def test_times_are_instants_that_do_not_age(world: World, person: MakePerson) -> None:
    text = person().get(f"/jobs/{world.dead}").text
    assert f'<time datetime="{datetime.now(UTC):%Y-%m-%dT%H}' in text


def _key(person: Person) -> str:
    cookie = person.client.get_cookie("pgqueue_csrf")
    assert cookie is not None
    return cookie.value


def test_a_job_page_has_the_evidence_of_why_it_does_not_run_without_secrets(
    queue: PgQueue, person: MakePerson
) -> None:
    @queue.task(name="charge", max_attempts=1)
    def charge(password: str) -> None: ...

    @queue.task(name="ship")
    def ship(api_key: str) -> None: ...

    flow = Workflow("shop")
    flow.add("ship", ship.call("ready"), after=[flow.add("charge", charge.call(SECRET))], if_failed="wait")
    dead, job = flow.enqueue().jobs
    with queue.take(1, timeout=5) as (taken,):
        taken.fail(ValueError("x" * 185 + f" with {SECRET} and token=abcdef"))
    late = ship.using(delay=60).enqueue("swordfish")
    error = '[{"attempt": 1, "type": "OSError", "message": "no swordfish here"}]'
    ask(queue, "update pgqueue.jobs set errors = %s::jsonb, attempts = 1 where id = %s", error, late.id)
    queue.control.pause("default", why=f"password={SECRET}")
    for door in ("", "/api"):
        texts = [person().get(f"{door}/jobs/{one.id}").text for one in (job, late)]
        assert f"(job {dead.id}), which is dead" in re.sub("</?a[^>]*>", "", texts[0]).replace("&#39;", "'")
        facts = ("dead_reason", "paused_why") if door else ("<dt>Waits for</dt>", "<dt>Why it is paused</dt>")
        assert (facts[0] in texts[0], facts[1] in texts[1]) == (True, True)
        for secret in (SECRET, SECRET[:9], "abcdef", "swordfish"):
            assert not any(secret in text for text in texts), (door, secret)
    shown = json.loads(person().get(f"/api/jobs/{job.id}").text)
    assert (shown["evidence"]["causes"][0], shown["evidence"]["state"]) == ("dead node", "blocked")
    page = person().get(f"/jobs/{late.id}").text
    assert '<details id="evidence"><summary>Evidence</summary>' in page
    assert "OSError: no ••• here" in page
    queue.control.dead(ids=[dead.id]).purge()
    assert "the dead job has been deleted" in person().get(f"/jobs/{job.id}").text


def _dashboard(queue: PgQueue) -> Dashboard:
    return Dashboard(queue, login=lambda _: User("ann"))


def test_a_wsgi_app_mounts_it(queue: PgQueue) -> None:
    app = Flask("shop")
    app.wsgi_app = DispatcherMiddleware(app.wsgi_app, {"/ops": _dashboard(queue)})  # type: ignore[method-assign]
    page = Client(app).get("/ops/jobs")
    assert page.status_code == 200
    assert 'href="/ops/dead"' in page.text


async def test_an_asgi_app_mounts_it(queue: PgQueue) -> None:
    app = Starlette()
    app.mount("/ops", _dashboard(queue).asgi)
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        page = await client.get("/ops/jobs")
    assert page.status_code == 200
    assert 'href="/ops/dead"' in page.text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--host", "0.0.0.0"], "give --token"),  # noqa: S104 - it is refused
        (["--host", "::"], "give --token"),
        (["--trust-proxy"], "give --token"),
        (["--token", "short"], "fewer than 16 characters"),
    ],
)
def test_the_command_listens_to_others_only_with_a_token(dsn: str, words: list[str], said: str) -> None:
    result = pgqueue("dashboard", *words, dsn=dsn)
    assert (result.exit_code, said in result.stderr) == (2, True), result.stderr


def test_the_command_serves_until_it_is_interrupted(dsn: str) -> None:
    command = [sys.executable, "-m", "pgqueue", "--dsn", dsn, "dashboard", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:  # noqa: S603 - our own words
        assert program.stdout is not None
        line = program.stdout.readline()
        address = line.split()[2].rstrip(";")
        where = urlsplit(address)
        try:
            with ExitStack() as idle:  # many idle connections do not keep other users out
                for _ in range(300):
                    idle.enter_context(socket.create_connection((where.hostname or "", where.port or 0)))
                assert urllib.request.urlopen(f"{address}jobs", timeout=30).status == 200  # noqa: S310 - on this machine
            with urllib.request.urlopen(f"{address}jobs", timeout=30) as page:  # noqa: S310 - on this machine
                assert (page.status, b"There is no job yet." in page.read()) == (200, True)
        finally:
            program.send_signal(signal.SIGINT)
        assert program.wait(timeout=30) == 0
    assert "read-only" in line
