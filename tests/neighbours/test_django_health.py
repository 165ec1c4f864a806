"""The health check: 200 or 503, and details for those who may have them."""

import json
import re
import uuid
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from django.contrib.auth.models import User
from django.db import connections
from django.test import Client, override_settings
from neighbours.conftest import point_django_at
from neighbours.project.shop.tasks import confirm, refuse

from pgqueue.django import queue
from pgqueue.store.schema.schema import REVISION

WORKER = """
insert into pgqueue.workers (id, lease_until, pid, concurrency, host, version)
values (%s, now() + %s, 1, 1, 'host', '0')
"""


def _asked(client: Client | None = None) -> tuple[int, Any]:
    response = (client or Client()).get("/pgqueue/health/")
    return response.status_code, json.loads(response.content)


def _add_worker(dsn: str, *, lease: timedelta = timedelta(minutes=1)) -> None:
    with psycopg.connect(dsn) as connection:
        connection.execute(WORKER, [uuid.uuid4(), lease])


def _staff() -> Client:
    client = Client()
    client.force_login(User.objects.create_user("ann", is_staff=True))
    return client


def _let_them_wait(dsn: str, minutes: int) -> None:
    with psycopg.connect(dsn) as connection:
        connection.execute("update pgqueue.jobs set run_at = now() - %s", [timedelta(minutes=minutes)])


def test_with_a_live_worker_all_is_well_and_strangers_are_told_no_more(django_dsn: str) -> None:
    _add_worker(django_dsn)

    assert _asked() == (200, {"status": "ok"})


def test_staff_are_told_what_was_found(django_dsn: str) -> None:
    _add_worker(django_dsn)
    confirm.enqueue(1)
    _let_them_wait(django_dsn, minutes=2)

    status, answer = _asked(_staff())

    assert status == 200
    assert answer["oldest_ready_seconds"] == pytest.approx(120, abs=30)
    assert {key: answer[key] for key in ("status", "problems", "schema", "workers")} == {
        "status": "ok",
        "problems": [],
        "schema": REVISION,
        "workers": 1,
    }


def test_staff_are_told_which_tasks_no_worker_knows(django_dsn: str) -> None:
    _add_worker(django_dsn)
    job = confirm.enqueue(1)
    with psycopg.connect(django_dsn) as connection:
        connection.execute(
            "insert into pgqueue.unknown_tasks select queue, task, now(), now() from pgqueue.jobs where id = %s",
            [job.id],
        )

    status, answer = _asked(_staff())

    assert (status, answer["status"]) == (200, "ok"), "a deploy must not take the site down"
    (unknown,) = answer["unknown_tasks"]
    assert (unknown["task"], unknown["queue"], unknown["jobs"]) == (confirm.name, "default", 1)
    assert unknown["since"]


@override_settings(DEBUG=True)
def test_under_debug_everybody_is_told(django_dsn: str) -> None:
    _add_worker(django_dsn)

    assert _asked()[1]["workers"] == 1


@pytest.mark.usefixtures("django_dsn")
def test_a_user_who_is_no_staff_is_a_stranger() -> None:
    client = Client()
    client.force_login(User.objects.create_user("bob"))

    assert _asked(client) == (503, {"status": "failing"})


def test_without_a_live_worker_it_fails(django_dsn: str) -> None:
    _add_worker(django_dsn, lease=timedelta(seconds=-1))

    status, answer = _asked(_staff())

    assert status == 503
    assert answer["problems"] == ["workers: 0 of at least 1 are alive"]


def _block(dsn: str, seconds: int) -> None:
    """What the heartbeats of all workers say while a task blocks their event loops."""
    with psycopg.connect(dsn) as connection:
        connection.execute(
            "update pgqueue.workers set blocked_since = now() - %s, blocked_job = 12, blocked_task = 'shop.report', "
            "blocked_where = 'jobs.py:31 in report'",
            [timedelta(seconds=seconds)],
        )


def test_a_worker_whose_loop_is_blocked_is_a_warning_that_names_it(django_dsn: str) -> None:
    _add_worker(django_dsn)
    _block(django_dsn, seconds=5)

    status, answer = _asked(_staff())

    assert (status, answer["status"], answer["problems"]) == (200, "ok", [])
    (warning,) = answer["warnings"]
    assert re.fullmatch(
        r"worker host:1: its event loop has been blocked for \d+(\.\d)? s by task shop\.report \(job 12\) "
        r"at jobs\.py:31 in report",
        warning,
    )
    assert _asked() == (200, {"status": "ok"}), "strangers are told no more"


def test_it_fails_when_no_worker_is_left_whose_loop_was_not_blocked_for_long(django_dsn: str) -> None:
    _add_worker(django_dsn)
    _block(django_dsn, seconds=40)

    status, answer = _asked(_staff())
    assert (status, answer["workers"]) == (503, 1)
    assert answer["problems"] == [
        "workers: 1 of at least 1 are alive, and 1 of these have had a blocked event loop for 30 s or more"
    ]

    _add_worker(django_dsn)
    staff = Client()
    staff.force_login(User.objects.get())
    status, answer = _asked(staff)
    assert (status, answer["workers"], len(answer["warnings"])) == (200, 2, 1)


@pytest.mark.usefixtures("django_dsn")
@override_settings(PGQUEUE={"HEALTH_MIN_WORKERS": 0})
def test_none_need_be_alive_where_the_settings_say_so() -> None:
    assert _asked() == (200, {"status": "ok"})


def test_a_job_that_waits_for_too_long_fails_it(django_dsn: str) -> None:
    _add_worker(django_dsn)
    refuse.using(priority=-5).enqueue("x")
    _let_them_wait(django_dsn, minutes=6)
    refuse.using(priority=50).enqueue("y")
    confirm.enqueue(1)

    assert _asked() == (503, {"status": "failing"})
    assert "longer than 0:05:00" in _asked(_staff())[1]["problems"][0]
    with override_settings(PGQUEUE={"HEALTH_MAX_WAIT": timedelta(minutes=10)}):
        assert _asked()[0] == 200
    with override_settings(PGQUEUE={"HEALTH_MAX_WAIT": None}):
        assert _asked()[0] == 200


def test_a_paused_queues_jobs_may_wait(django_dsn: str) -> None:
    _add_worker(django_dsn)
    refuse.enqueue("x")
    _let_them_wait(django_dsn, minutes=6)
    queue.control.pause("mail")

    assert _asked()[0] == 200


def test_a_job_that_is_not_due_does_not_wait(django_dsn: str) -> None:
    _add_worker(django_dsn)
    confirm.using(delay=timedelta(hours=1)).enqueue(1)

    assert _asked(_staff())[1]["oldest_ready_seconds"] is None


@pytest.mark.usefixtures("bare_dsn")
def test_without_the_schema_it_fails_and_tells_strangers_nothing_of_it() -> None:
    assert _asked() == (503, {"status": "failing"})
    with override_settings(DEBUG=True):
        assert "manage.py migrate" in _asked()[1]["problems"][0]


def test_a_server_that_is_away_is_a_failing_check_and_no_error(
    django_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    staff = _staff()
    monkeypatch.setitem(connections["default"].settings_dict, "ATOMIC_REQUESTS", value=True)
    point_django_at("dbname=shop host=127.0.0.1 port=1 user=nobody")

    assert _asked() == (503, {"status": "failing"})
    assert _asked(staff) == (503, {"status": "failing"})
    point_django_at(django_dsn)


@pytest.mark.usefixtures("django_dsn")
def test_it_is_never_cached_and_only_read() -> None:
    assert "no-store" in Client().get("/pgqueue/health/").headers["Cache-Control"]
    assert Client().post("/pgqueue/health/").status_code == 405


@override_settings(ROOT_URLCONF="pgqueue.django.urls")
@pytest.mark.usefixtures("django_dsn")
def test_its_address_can_be_included() -> None:
    assert Client().get("/health/").status_code == 503
