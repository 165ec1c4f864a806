"""The admin as its users see it: over HTTP, on a table with many rows."""

import io
import json
import re
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import pytest
from ciphers import Secret
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.core.management import call_command
from django.db import connection
from django.test import Client, override_settings
from django.test.utils import CaptureQueriesContext
from docs.pages import DOCS, blocks, words_in_code
from neighbours import django_admin_pages

from pgqueue.django import queue
from pgqueue.django.djangoqueue import project_queue
from pgqueue.django.models import DeadJob, Job, Limit, Queue, Worker, table
from pgqueue.errors import PgQueueError
from pgqueue.values.jobs.job import JobState

if TYPE_CHECKING:
    from collections.abc import Callable

GUIDE = DOCS / "guides" / "django-admin.md"
TASKS = "neighbours.project.shop.tasks"
LISTS = {
    name: f"/admin/pgqueue/{name}/" for name in ("job", "deadjob", "queue", "limit", "schedule", "worker")
}
DEAD = "pgqueue.dead_jobs (id, run_at, created_at, died_at, collisions, priority, attempts, max_attempts, reason, queue, task, unique_key, args, errors)"
WORKER = (
    "insert into pgqueue.workers (id, lease_until, pid, concurrency, host, version, queues) "
    "values (gen_random_uuid(), now() + interval '1 minute', 4711, 5, 'web-1', '0.1', array['mail', 'default'])"
)
ERROR = {
    "attempt": 1,
    "at": "2026-01-02T03:04:05+00:00",
    "type": "shop.NoMoney",
    "message": "<b>none</b>",
    "traceback": "Traceback\n  <frame>\n",
}


shared, empty = django_admin_pages.a_shared_database, django_admin_pages.an_empty_database
client = django_admin_pages.a_client


@pytest.fixture
def tasks() -> dict[str, Any]:
    """The project's own tasks by their short names; tests of the Tasks backend register others in the same queue."""
    found = {name.rpartition("."): task for name, task in queue.tasks.items()}
    return {name: task for (module, _, name), task in found.items() if module == TASKS}


def _bury(count: int = 1, *, first: int = 1, **fields: str) -> None:
    values = {"task": "shop.tasks.pay", "reason": "exhausted", "queue": "default", **fields}
    with connection.cursor() as cursor:
        cursor.execute(
            f"insert into {DEAD} select n, now(), now(), now(), 0, 0, 1, 1, %s, %s, %s, null, '{{\"order\": 1}}', %s "
            "from generate_series(%s::bigint, %s) as n",
            [
                values["reason"],
                values["queue"],
                values["task"],
                json.dumps([ERROR]),
                first,
                first + count - 1,
            ],
        )


def _page(client: Client, path: str) -> str:
    response = client.get(path)
    assert response.status_code == 200, (path, response.status_code, response.headers)
    return response.content.decode()


def _ids(page: str, model: str = "job") -> list[int]:
    """The ids of the rows of a list, in order."""
    return [
        int(found)
        for found in re.findall(rf'<th class="field-id"><a href="/admin/pgqueue/{model}/(\d+)/', page)
    ]


def _act(client: Client, model: str, action: str, *keys: object, **more: object) -> str:
    """Run an action; the page to which it leads."""
    data = {"action": action, "index": 0, "_selected_action": [str(key) for key in keys], **more}
    response = client.post(LISTS[model], data, follow=True)
    assert response.status_code == 200
    return response.content.decode()


def _messages(page: str) -> list[str]:
    return re.findall(r'<li class="(?:success|warning|error|info)">(.*?)</li>', page)


def test_the_page_of_a_job_shows_what_the_codec_decodes(
    client: Client, tasks: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(project_queue(), "codec", Secret("k1"))
    waiting = tasks["confirm"].using(unique_key="once").enqueue(4711)
    dead = tasks["confirm"].using(max_attempts=1).enqueue(4712)
    with project_queue().take(1) as (first,):
        first.complete()
    with project_queue().take(1) as (second,):
        second.fail("no room at 4713")
    with connection.cursor() as cursor:
        cursor.execute("select args::text, errors->0->>'message' from pgqueue.all_jobs order by id")
        assert [(text[:15], message) for text, message in cursor.fetchall()] == [
            ('{"$encoded":"k1', None),
            ('{"$encoded":"k1', "(encoded)"),
        ]
    shown = _page(client, f"{LISTS['job']}{waiting.id}/change/")
    assert "&quot;order_id&quot;: 4711" in shown
    shown = _page(client, f"{LISTS['deadjob']}{dead.id}/change/")
    assert "&quot;order_id&quot;: 4712" in shown
    assert "no room at 4713" in shown
    assert _ids(_page(client, f"{LISTS['job']}?q=once")) == []  # it has ended
    again = tasks["confirm"].using(unique_key="twice").enqueue(1)
    assert _ids(_page(client, f"{LISTS['job']}?q=twice")) == [again.id]
    monkeypatch.setattr(project_queue(), "codec", Secret("k2"))
    shown = _page(client, f"{LISTS['deadjob']}{dead.id}/change/")
    assert "KeyError: &#x27;k1&#x27;" in shown
    assert "4712" not in shown


# The models


def test_the_orm_reads_every_job_live_or_ended(tasks: dict[str, Any]) -> None:
    handle = tasks["confirm"].using(unique_key="once").enqueue(1)
    job = Job.objects.get(state="ready", task__endswith=".confirm", args__order_id=1)
    assert (job.id, job.queue, job.unique_key, job.worker_id) == (handle.id, "default", "once", None)
    handle.cancel()
    assert Job.objects.get(pk=handle.id).state == JobState.CANCELLED


def test_the_orm_reads_dead_jobs_queues_and_workers() -> None:
    _bury()
    queue.control.pause("mail")
    with connection.cursor() as cursor:
        cursor.execute(WORKER)
    assert DeadJob.objects.get().errors == [ERROR]
    assert Queue.objects.get().name == "mail"
    assert Worker.objects.get().queues == ["mail", "default"]


@pytest.mark.parametrize("model", [Job, DeadJob, Queue, Limit, Worker])
def test_the_orm_writes_nothing(model: Any) -> None:
    attempts: list[Callable[[], object]] = [
        lambda: model().save(),
        lambda: model(pk=1).delete(),
        lambda: model.objects.create(pk=1),
        lambda: model.objects.bulk_create([model(pk=1)]),
        lambda: model.objects.update(pk=1),
        lambda: model.objects.all().delete(),
    ]
    for attempt in attempts:
        with pytest.raises(PgQueueError, match="is there to be read"):
            attempt()


def test_the_migrations_know_the_models() -> None:
    told = io.StringIO()
    call_command("makemigrations", "--check", "--dry-run", "pgqueue", stdout=told)
    assert told.getvalue() == "No changes detected in app 'pgqueue'\n"


def test_the_models_are_where_the_settings_say() -> None:
    with override_settings(PGQUEUE={"SCHEMA": "work", "DATABASE": "other"}):
        assert table("jobs") == '"work"."jobs"'
        assert Job.objects.all().db == "other"
        assert Job.objects.using("default").db == "default"
    assert Job.objects.all().db == "default"


# Lists


def test_a_list_is_the_newest_and_leads_to_older_ones(client: Client) -> None:
    _bury(250)
    first = _page(client, LISTS["deadjob"])
    assert _ids(first, "deadjob") == [*range(250, 150, -1)]
    assert "Newest" not in first
    (older,) = re.findall(r'href="(\?[^"]*)">Older', first)
    second = _page(client, LISTS["deadjob"] + older)
    assert _ids(second, "deadjob") == [*range(150, 50, -1)]
    assert re.findall(r'href="(\?[^"]*)">[^<]*Newest', second) == ["?"]
    (older,) = re.findall(r'href="(\?[^"]*)">Older', second)
    last = _page(client, LISTS["deadjob"] + older)
    assert _ids(last, "deadjob") == [*range(50, 0, -1)]
    assert "Older" not in last


def test_a_filter_begins_with_the_newest_again_and_is_kept_by_older(client: Client) -> None:
    _bury(250, queue="mail")
    page = _page(client, LISTS["deadjob"] + "?id__lt=200&queue=mail")
    assert '<a href="?queue=mail&amp;reason=asked">' in page
    assert 'name="id__lt"' not in page
    assert re.findall(r'href="(\?[^"]*)">Older', page) == ["?id__lt=100&amp;queue=mail"]


def test_a_cursor_that_is_no_id_is_sent_back(client: Client) -> None:
    assert client.get(LISTS["job"] + "?id__lt=x").status_code == 302


def test_jobs_can_be_narrowed_by_state_queue_and_task(client: Client, tasks: dict[str, Any]) -> None:
    ready = tasks["confirm"].enqueue(1)
    mail = tasks["refuse"].enqueue("no")
    cancelled = tasks["confirm"].enqueue(2)
    cancelled.cancel()
    for query, found in (
        ("state=ready", [mail.id, ready.id]),
        ("state=cancelled", [cancelled.id]),
        ("queue=mail", [mail.id]),
        (f"task={tasks['confirm'].name}", [cancelled.id, ready.id]),
        (f"task={tasks['confirm'].name}&state=ready", [ready.id]),
    ):
        assert _ids(_page(client, f"{LISTS['job']}?{query}")) == found, query


def test_a_list_offers_the_names_that_are_there_and_the_one_that_was_chosen(client: Client) -> None:
    _bury(task="old.app.gone", queue="unheard-of")
    page = _page(client, LISTS["job"] + "?queue=chosen")
    for link in (
        "queue=unheard-of",
        "queue=mail",
        "task=old.app.gone",
        "task=neighbours.project.shop.tasks.bill",
    ):
        assert link in page
    assert '<li class="selected">\n    <a href="?queue=chosen">chosen</a>' in page


@pytest.mark.parametrize(
    ("term", "found"),
    [
        ("1", [1]),
        ("001", [1]),
        ("99", []),
        ("9" * 30, []),
        ("PAY", [2, 1]),
        ("shop.tasks.pay", [2, 1]),
        ('{"order": 1}', [3, 2, 1]),
        ('{"order": 2}', []),
        ("key one", [4]),
        ("no such thing", []),
        ("{broken", []),
        ("  ", [4, 3, 2, 1]),
    ],
)
def test_jobs_are_found_by_id_task_unique_key_and_arguments(
    client: Client, term: str, found: list[int]
) -> None:
    _bury(2)
    _bury(first=3, task="shop.tasks.mail")
    with connection.cursor() as cursor:
        cursor.execute(
            "insert into pgqueue.jobs (id, task, unique_key) values (4, 'shop.tasks.mail', 'key one')"
        )
    assert _ids(_page(client, LISTS["job"] + "?" + urlencode({"q": term}))) == found


@pytest.mark.parametrize("model", ["job", "deadjob"])
def test_what_may_be_long_does_not_travel_with_a_list(client: Client, model: str) -> None:
    _bury()
    with CaptureQueriesContext(connection) as caught:
        _page(client, LISTS[model])
    listed = caught.captured_queries[-1]["sql"]
    assert "args_start" in listed
    for column in ("args", "errors", "result"):
        assert not re.search(rf'[ ,]"pgqueue"\."\w+"\."{column}"', listed)


# The page of one


def test_the_page_of_a_job_shows_its_arguments_and_errors_and_escapes_them(client: Client) -> None:
    _bury(task="<script>alert(1)</script>")
    page = _page(client, "/admin/pgqueue/job/1/change/")
    assert "<script>alert" not in page
    assert "Attempt 1 · 2026-01-02 03:04:05+00:00 · <b>shop.NoMoney: &lt;b&gt;none&lt;/b&gt;</b>" in page
    assert "Traceback\n  &lt;frame&gt;\n</pre>" in page
    assert "{\n  &quot;order&quot;: 1\n}" in page
    assert "<script>alert" not in _page(client, LISTS["job"])
    assert "<script>alert" not in _page(client, LISTS["deadjob"])


def test_the_page_of_a_job_stays_when_the_job_ends(client: Client, tasks: dict[str, Any]) -> None:
    handle = tasks["confirm"].enqueue(1)
    path = f"/admin/pgqueue/job/{handle.id}/change/"
    assert "pgqueue-ready" in _page(client, path)
    handle.cancel()
    assert "pgqueue-cancelled" in _page(client, path)


def test_a_dead_jobs_page_leads_to_its_page_among_all_jobs(client: Client) -> None:
    _bury()
    assert 'href="/admin/pgqueue/job/1/change/"' in _page(client, "/admin/pgqueue/deadjob/1/change/")
    _page(client, "/admin/pgqueue/job/1/change/")


def test_a_running_jobs_page_leads_to_its_worker(client: Client, tasks: dict[str, Any]) -> None:
    handle = tasks["confirm"].enqueue(1)
    with connection.cursor() as cursor:
        cursor.execute(WORKER)
        cursor.execute(
            "update pgqueue.jobs set status = 'running', worker_id = (select id from pgqueue.workers)"
        )
    worker = Worker.objects.get()
    page = _page(client, f"/admin/pgqueue/job/{handle.id}/change/")
    assert f'href="/admin/pgqueue/worker/{worker.id}/change/"' in page
    assert "alive" in _page(client, f"/admin/pgqueue/worker/{worker.id}/change/")


def test_a_worker_whose_lease_has_passed_is_lost(client: Client) -> None:
    with connection.cursor() as cursor:
        cursor.execute(WORKER)
        cursor.execute("update pgqueue.workers set lease_until = now() - interval '1 second'")
    page = _page(client, LISTS["worker"])
    assert "pgqueue-lost" in page
    assert "web-1:4711" in page
    assert "mail, default" in page


def test_a_worker_with_a_blocked_event_loop_says_by_what(client: Client) -> None:
    with connection.cursor() as cursor:
        cursor.execute(WORKER)
        cursor.execute(
            "update pgqueue.workers set blocked_since = now(), blocked_task = 'report', blocked_where = 'jobs.py:3 in f'"
        )
    assert "pgqueue-unresponsive" in _page(client, LISTS["worker"])
    page = _page(client, f"/admin/pgqueue/worker/{Worker.objects.get().id}/change/")
    assert "jobs.py:3 in f" in page


# Actions


def test_waiting_jobs_are_cancelled_and_running_ones_told_to_stop(
    client: Client, tasks: dict[str, Any]
) -> None:
    waiting, running, ended = (tasks["confirm"].enqueue(number) for number in range(3))
    ended.cancel()
    with connection.cursor() as cursor:
        cursor.execute(
            "update pgqueue.jobs set status = 'running', worker_id = gen_random_uuid() where id = %s",
            [running.id],
        )
    page = _act(client, "job", "cancel", waiting.id, running.id, ended.id)
    assert sorted(_messages(page)) == [
        "1 job cancelled.",
        "1 job not changed: already ended.",
        "1 job told to stop.",
    ]
    assert waiting.status() == JobState.CANCELLED
    assert Job.objects.get(pk=running.id).state == JobState.RUNNING
    assert LogEntry.objects.filter(object_id=str(waiting.id), change_message="Cancelled.").exists()


def test_dead_jobs_are_retried_scheduled_ones_run_now_and_others_do_neither(
    client: Client, tasks: dict[str, Any]
) -> None:
    _bury(2, first=1_000_001)
    later = tasks["confirm"].using(delay=timedelta(hours=1)).enqueue(1)
    ready = tasks["confirm"].enqueue(1)
    page = _act(client, "job", "retry", 1_000_001, later.id, ready.id)
    assert _messages(page) == [
        "1 job retried.",
        "2 jobs not changed: not dead, or their unique key is taken.",
    ]
    assert later.status() == JobState.SCHEDULED
    page = _act(client, "job", "run_now", later.id, ready.id)
    assert _messages(page) == ["1 job ready.", "1 job not changed: not scheduled."]
    assert later.status() == JobState.READY
    assert _messages(_act(client, "deadjob", "retry", 1_000_002)) == ["1 dead job retried."]
    assert DeadJob.objects.count() == 0


def test_a_retry_names_the_live_job_that_has_the_unique_key(client: Client, tasks: dict[str, Any]) -> None:
    _bury(7, first=1_000_001)
    with connection.cursor() as cursor:
        cursor.execute("update pgqueue.dead_jobs set unique_key = 'order <7>' where id = 1000001")
    twin = tasks["confirm"].using(unique_key="order <7>").enqueue(1)
    messages = _messages(_act(client, "deadjob", "retry", 1_000_001))
    assert messages[0] == "1 dead job not changed: not dead, or their unique key is taken."
    assert f'live <a href="/admin/pgqueue/job/{twin.id}/change/">job {twin.id}</a>' in messages[1]
    assert "has its unique key order &lt;7&gt;. Cancel that job" in messages[1]


def test_dead_jobs_are_purged_after_a_question(client: Client) -> None:
    _bury(3)
    asked = _act(client, "deadjob", "delete_selected", 1, 2)
    assert "Are you sure" in asked
    assert DeadJob.objects.count() == 3
    page = _act(client, "deadjob", "delete_selected", 1, 2, post="yes")
    assert _messages(page) == ["Successfully deleted 2 dead jobs."]
    assert [job.pk for job in DeadJob.objects.all()] == [3]
    client.post("/admin/pgqueue/deadjob/3/delete/", {"post": "yes"})
    assert DeadJob.objects.count() == 0


def test_a_purge_tells_of_jobs_that_somebody_retried_meanwhile(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    _bury(2)
    dead = queue.control.dead
    monkeypatch.setattr(type(queue.control), "dead", lambda _, ids: dead(ids=ids[1:]))
    page = _act(client, "deadjob", "delete_selected", 1, 2, post="yes")
    assert "1 of them were no longer in the dead table." in _messages(page)


def test_schedules_are_paused_resumed_and_fired(client: Client, tasks: dict[str, Any]) -> None:
    project_queue().schedules.add("nightly", tasks["confirm"].call(7), "@daily")
    assert "@daily UTC" in _page(client, "/admin/pgqueue/schedule/")
    assert _messages(_act(client, "schedule", "pause", "nightly")) == ["1 schedule paused."]
    assert project_queue().schedules.get("nightly").paused_by == "root"
    page = _page(client, "/admin/pgqueue/schedule/nightly/change/")
    assert "pgqueue-paused" in page
    assert _messages(_act(client, "schedule", "resume", "nightly")) == ["1 schedule resumed."]
    assert _messages(_act(client, "schedule", "fire", "nightly")) == ["1 schedule fired."]
    assert [run.kind for run in project_queue().schedules.runs("nightly")] == ["manual"]


def test_workers_are_asked_to_be_quiet_to_stop_and_to_restart(client: Client) -> None:
    with connection.cursor() as cursor:
        cursor.execute(WORKER)
    (worker,) = Worker.objects.all()
    assert 'value="quiet"' not in _page(client, f"/admin/pgqueue/worker/{worker.id}/change/")
    (refused,) = _messages(_act(client, "worker", "quiet", worker.id))
    assert "it is a take" in refused
    with connection.cursor() as cursor:
        cursor.execute("update pgqueue.workers set minimum = 2, slots = 3")
    assert "pgqueue-alive" in _page(client, LISTS["worker"])
    assert _messages(_act(client, "worker", "quiet", worker.id)) == ["1 worker asked to be quiet."]
    worker = Worker.objects.get()
    assert (worker.ask_quiet, worker.asked_by) == (True, "root")
    assert 'value="quiet"' in _page(client, f"/admin/pgqueue/worker/{worker.id}/change/")
    (refused,) = _messages(_act(client, "worker", "restart", worker.id))
    assert "no supervisor" in refused
    assert _messages(_act(client, "worker", "stop", worker.id)) == ["1 worker asked to stop."]
    page = _page(client, f"/admin/pgqueue/worker/{worker.id}/change/")
    assert "pgqueue-stopping" in page
    assert "3 of 2-" in page


def test_queues_are_paused_and_resumed_whether_or_not_they_have_a_row(client: Client) -> None:
    assert "pgqueue-active" in _page(client, "/admin/pgqueue/queue/mail/change/")
    assert _messages(_act(client, "queue", "pause", "mail", "default")) == ["2 queues paused."]
    assert queue.insight.counts()[1] == ["default", "mail"]
    assert "pgqueue-paused" in _page(client, "/admin/pgqueue/queue/mail/change/")
    page = _act(client, "queue", "resume", "mail", "unheard-of")
    assert sorted(_messages(page)) == ["1 queue not changed: neither paused nor closed.", "1 queue resumed."]
    assert queue.insight.counts()[1] == ["default"]
    assert client.get("/admin/pgqueue/queue/unheard-of/change/").status_code == 302


def test_the_list_of_queues_says_how_many_jobs_are_ready(client: Client, tasks: dict[str, Any]) -> None:
    queue.enqueue_many(tasks["refuse"].call("no") for _ in range(1500))
    tasks["confirm"].enqueue(1)
    tasks["confirm"].using(delay=timedelta(hours=1)).enqueue(1)
    page = re.sub(r"\s+", " ", _page(client, LISTS["queue"]))
    found = re.findall(r'field-name"><a [^>]*>([\w-]+)</a>.*?field-ready">([^<]+)<', page)
    assert dict(found) == {"default": "1", "mail": "1,500"}


def test_a_button_on_the_page_of_one_leads_back_to_it(client: Client, tasks: dict[str, Any]) -> None:
    handle = tasks["confirm"].using(delay=timedelta(hours=1)).enqueue(1)
    path = f"/admin/pgqueue/job/{handle.id}/change/"
    page = _page(client, path)
    buttons = re.findall(r'<button [^>]*name="action" value="(\w+)">([\w ]+)</button>', page)
    assert buttons == [("run_now", "Run now"), ("cancel", "Cancel")]
    data = {"action": "cancel", "index": 0, "_selected_action": handle.id, "_pgqueue_back": 1}
    response = client.post(LISTS["job"], data)
    assert (response.status_code, response.headers["Location"]) == (302, path)
    assert 'name="action"' not in _page(client, path)


# Permissions


def _staff(*permissions: str) -> Client:
    user = User.objects.create_user("staff", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    assert user.user_permissions.count() == len(permissions)
    found = Client()
    found.force_login(user)
    return found


@pytest.mark.parametrize("model", LISTS)
def test_who_may_view_may_do_nothing_else(model: str) -> None:
    _bury()
    client = _staff(f"view_{model}")
    assert 'name="action"' not in _page(client, LISTS[model])
    assert client.get(LISTS[model] + "add/").status_code == 403
    assert [client.get(path).status_code for name, path in LISTS.items() if name != model] == [403] * 5


@pytest.mark.parametrize(
    ("model", "permission", "actions"),
    [
        ("job", "retry_job", ["run_now", "retry"]),
        ("job", "cancel_job", ["cancel"]),
        ("deadjob", "retry_job", ["retry"]),
        ("deadjob", "delete_deadjob", ["delete_selected"]),
        ("queue", "pause_queue", ["pause", "close", "resume"]),
        ("limit", "change_limit", ["unset"]),
        ("worker", "steer_worker", ["quiet", "resume", "stop", "restart"]),
        ("schedule", "pause_schedule", ["pause", "resume"]),
        ("schedule", "fire_schedule", ["fire"]),
    ],
)
def test_each_action_has_a_permission_of_its_own(
    tasks: dict[str, Any], model: str, permission: str, actions: list[str]
) -> None:
    _bury()
    project_queue().schedules.put("nightly", tasks["confirm"].call(7), "@daily")
    page = _page(_staff(f"view_{model}", permission), LISTS[model])
    assert re.findall(r'<option value="(\w+)">', page) == actions


def test_an_action_without_its_permission_does_nothing(tasks: dict[str, Any]) -> None:
    handle = tasks["confirm"].enqueue(1)
    client = _staff("view_job", "retry_job")
    _act(client, "job", "cancel", handle.id)
    assert handle.status() == JobState.READY
    assert 'value="cancel"' not in _page(client, f"/admin/pgqueue/job/{handle.id}/change/")
    assert client.post(f"/admin/pgqueue/job/{handle.id}/change/", {"queue": "x"}).status_code == 403
    assert client.post("/admin/pgqueue/deadjob/1/delete/", {"post": "yes"}).status_code in {302, 403}


# The guide


def test_the_guide_names_every_permission_and_no_other() -> None:
    there = Permission.objects.filter(content_type__app_label="pgqueue").values_list("codename", flat=True)
    named = {word for word in words_in_code(GUIDE) if re.fullmatch(r"pgqueue\.[a-z]+_[a-z]+", word)}
    assert named - {"pgqueue.all_jobs"} == {f"pgqueue.{name}" for name in there}


def test_the_guides_queries_run() -> None:
    _bury(3)
    (code,) = (block.code for block in blocks(GUIDE) if block.argument == "shop/reports.py")
    names: dict[str, Any] = {}
    exec(code, names)  # noqa: S102 - our own words
    assert list(names["stuck"]) == []
    assert list(names["by_task"]) == [{"task": "shop.tasks.pay", "count": 3}]
