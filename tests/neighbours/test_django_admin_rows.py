"""The admin where rows, searches and addresses are bad: one of them never fails a list, a page or an action."""

import re
from collections.abc import Iterator
from typing import Any, get_args
from urllib.parse import quote

import pytest
from django.contrib.admin.models import LogEntry
from django.db import connection
from django.test import Client
from neighbours import django_admin_pages
from neighbours.django_backend_database import database, emptied
from pytest_postgresql.executors import NoopExecutor

from pgqueue.django import queue
from pgqueue.django.admin_show import EXPLAINED, as_errors, as_json
from pgqueue.django.models import DeadJob, Job
from pgqueue.errors import DatabaseError
from pgqueue.values.jobs.job import JobState
from pgqueue.values.jobs.verdict import Reason

LEVELS = 3000
DEEP = '{"a": ' + "[" * LEVELS + "]" * LEVELS + "}"
HALF_DEEP = '{"a": ' + "[" * 600 + "]" * 600 + "}"
DIGITS = '{"n": ' + "7" * 5000 + "}"
BAD = {
    1: ("default", "-infinity", "{}"),
    2: ("default", "infinity", "{}"),
    3: ("default", "4000-01-01 BC", "{}"),
    4: ("default", "290000-01-01", "{}"),
    5: ("default", "0001-01-01", "{}"),
    6: ("default", "9999-12-31 23:59:59", "{}"),
    7: ("default", "now", DEEP),
    8: ("default", "now", DIGITS),
    9: ("default", "now", '{"n": 1e400000}'),
    10: ("default", "now", '{"n": 1e9000}'),
    11: ("two words", "now", "{}"),
    12: ("a/b\n_0A%", "now", "{}"),
    13: ("default", "now", HALF_DEEP),
    14: ("", "now", "{}"),
}
GOOD = 99
JOBS = "insert into pgqueue.jobs (id, task, queue, run_at, args, status) values (%s, 'bill', %s, %s, %s, 'scheduled')"
DEAD = """
insert into pgqueue.dead_jobs (id, run_at, created_at, started_at, died_at, collisions, priority, attempts, max_attempts,
                               reason, queue, task, args, errors)
select id + 1000, run_at, run_at, run_at, run_at, 0, 0, 1, 1, 'asked', queue, task, args, '{"no": "list"}'
from pgqueue.jobs
"""
ENDED = """
insert into pgqueue.job_history (id, run_at, created_at, started_at, finished_at, collisions, priority, attempts,
                                 max_attempts, outcome, queue, task, args, errors, result)
select id + 2000, run_at, run_at, run_at, now(), 0, 0, 1, 1, 'succeeded', queue, task, args, '[1, "two", {"at": "0001-01-01T00:00:00Z"}]',
       pgqueue.as_jsonb(args)
from pgqueue.jobs
"""
WORKER = (
    "insert into pgqueue.workers (id, started_at, lease_until, pid, concurrency, host, version) "
    "values (gen_random_uuid(), '-infinity', 'infinity', 4711, 5, 'web-1', '0.1')"
)
LISTS = {name: f"/admin/pgqueue/{name}/" for name in ("job", "deadjob", "queue", "worker")}


empty, client = django_admin_pages.an_empty_database, django_admin_pages.a_client


@pytest.fixture(scope="module")
def shared(django_server: NoopExecutor) -> Iterator[dict[str, str]]:
    """A database as it is after an upgrade: with rows from the time when nothing was refused."""
    with database(django_server, "pgqueue_test_django_rows") as where, emptied(where):
        with connection.cursor() as cursor:
            cursor.execute("alter domain pgqueue.arguments drop constraint if exists arguments_fit")
        yield where


@pytest.fixture
def bad() -> None:
    """Bad rows in every table, each beside a good one."""
    with connection.cursor() as cursor:
        for number, row in {**BAD, GOOD: ("default", "now", '{"order_id": 42}')}.items():
            cursor.execute(JOBS, [number, *row])
        cursor.execute(DEAD)
        cursor.execute(ENDED)
        cursor.execute(WORKER)


def _page(client: Client, path: str) -> str:
    response = client.get(path, follow=True)
    assert response.status_code == 200, (path, response.status_code)
    return response.content.decode()


def _act(client: Client, path: str, action: str, *keys: object, **more: object) -> str:
    data = {"action": action, "index": 0, "_selected_action": [str(key) for key in keys], **more}
    response = client.post(path, data, follow=True)
    assert response.status_code == 200, (path, response.status_code)
    return response.content.decode()


def _messages(page: str) -> list[str]:
    return re.findall(r'<li class="(?:success|warning|error|info)">(.*?)</li>', page, re.DOTALL)


# Rows


@pytest.mark.usefixtures("bad")
@pytest.mark.parametrize("model", LISTS)
def test_a_bad_row_is_listed_beside_the_good_ones(client: Client, model: str) -> None:
    page = _page(client, LISTS[model])
    rows = len(re.findall(r'name="_selected_action"', page)) or page.count('<th class="field-__str__">')
    assert rows == {"job": 45, "deadjob": 15, "queue": 4, "worker": 1}[model]


@pytest.mark.usefixtures("bad")
@pytest.mark.parametrize("number", [*BAD, GOOD])
def test_a_bad_row_has_its_page(client: Client, number: int) -> None:
    for path in (f"job/{number}", f"job/{number + 1000}", f"job/{number + 2000}", f"deadjob/{number + 1000}"):
        page = _page(client, f"/admin/pgqueue/{path}/change/")
        assert "bill" in page


@pytest.mark.usefixtures("bad")
def test_the_page_shows_what_can_be_shown(client: Client) -> None:
    assert "42" in _page(client, f"/admin/pgqueue/job/{GOOD}/change/")
    assert "(unreadable)" in _page(client, "/admin/pgqueue/job/7/change/")
    assert "(unreadable)" in _page(client, "/admin/pgqueue/job/8/change/")
    assert "0001-01-0" in _page(client, "/admin/pgqueue/job/1/change/")
    assert "9999-12-" in _page(client, "/admin/pgqueue/job/2/change/")


@pytest.mark.usefixtures("bad")
def test_the_orm_reads_bad_rows_and_clamps_their_times() -> None:
    years = {job.pk: job.run_at.year for job in Job.objects.filter(state="scheduled").order_by("id")}
    assert [years[number] for number in (1, 2, 3, 4)] == [1, 9999, 1, 9999]
    assert Job.objects.get(run_at__lt="1900-01-01T00:00Z", pk=3).pk == 3  # by what is stored
    assert [*Job.objects.get(pk=7).args] == [*DeadJob.objects.get(pk=1007).args] == ["(unreadable)"]
    assert Job.objects.get(pk=GOOD).args == {"order_id": 42}
    assert DeadJob.objects.get(args__contains={"order_id": 42}, args__order_id__gt=41).pk == GOOD + 1000


@pytest.mark.usefixtures("bad")
@pytest.mark.parametrize("atomic", [False, True])
def test_an_action_on_all_rows_does_what_can_be_done(client: Client, atomic: bool) -> None:  # noqa: FBT001 - a case
    with _requests_in_transactions(atomic):
        page = _act(client, LISTS["job"], "cancel", *BAD, GOOD)
    assert "15 jobs cancelled." in _messages(page)[0]
    assert queue.job(GOOD).state is JobState.CANCELLED


@pytest.mark.usefixtures("bad")
def test_dead_jobs_are_purged_whatever_is_in_them(client: Client) -> None:
    dead = [number + 1000 for number in (*BAD, GOOD)]
    asked = _act(client, LISTS["deadjob"], "delete_selected", *dead)
    assert "Are you sure" in asked
    _act(client, LISTS["deadjob"], "delete_selected", *dead, post="yes")
    assert DeadJob.objects.count() == 0


@pytest.mark.usefixtures("bad")
@pytest.mark.parametrize("atomic", [False, True])
def test_an_action_that_fails_for_one_row_goes_on_with_the_others_and_says_why(
    client: Client,
    monkeypatch: pytest.MonkeyPatch,
    atomic: bool,  # noqa: FBT001 - a case
) -> None:
    real = type(queue).cancel

    def cancel(self: Any, job_id: int, *, by: str) -> Any:
        if job_id == 2:
            with connection.cursor() as cursor:
                cursor.execute("select 1 / 0")
        if job_id == 3:
            raise DatabaseError("it is gone")
        return real(self, job_id, by=by)

    monkeypatch.setattr(type(queue), "cancel", cancel)
    with _requests_in_transactions(atomic):
        page = _act(client, LISTS["job"], "cancel", 1, 2, 3, GOOD)
    done, failed = _messages(page)
    assert done == "2 jobs cancelled."
    assert failed in {"2 jobs failed: it is gone", "2 jobs failed: division by zero"}
    assert LogEntry.objects.count() == 2


class _requests_in_transactions:  # noqa: N801 - reads as a block
    """ATOMIC_REQUESTS, for the length of a block."""

    def __init__(self, atomic: bool) -> None:  # noqa: FBT001 - one value, named where it is given
        self._atomic = atomic

    def __enter__(self) -> None:
        connection.settings_dict["ATOMIC_REQUESTS"] = self._atomic

    def __exit__(self, *_: object) -> None:
        connection.settings_dict["ATOMIC_REQUESTS"] = False


@pytest.mark.usefixtures("bad")
@pytest.mark.parametrize("name", ["two words", "a/b\n_0A%"])
def test_a_queue_of_any_name_is_paused_and_resumed(client: Client, name: str) -> None:
    page = _act(client, LISTS["queue"], "pause", name)
    assert _messages(page) == ["1 queue paused."]
    assert queue.insight.counts()[1] == [name]
    page = _act(client, LISTS["queue"], "resume", name, _pgqueue_back="1")
    assert _messages(page) == ["1 queue resumed."]
    assert queue.insight.counts()[1] == []
    assert "two words" in _page(client, f"/admin/pgqueue/queue/{quote('two words')}/change/")


def test_a_button_leads_back_to_the_page_of_a_queue_of_any_name(client: Client) -> None:
    page = _act(client, LISTS["queue"], "pause", "mail_5Fx", _pgqueue_back="1")
    assert "<title>mail_5Fx" in page


def test_a_name_that_no_queue_can_have_is_refused_in_words(client: Client) -> None:
    (told,) = _messages(_act(client, LISTS["queue"], "pause", "a\x00b"))
    assert told.startswith("1 queue failed: ")


@pytest.mark.parametrize("key", ["abc", "7" * 5000, "1.5"])
def test_a_selection_that_no_page_offers_is_refused_in_words(client: Client, key: str) -> None:
    for model in ("job", "deadjob"):
        assert _messages(_act(client, LISTS[model], "retry", key)) == ["Select rows of the list."]


@pytest.mark.parametrize("key", ["abc", "7" * 5000, "-1", "1.5"])
@pytest.mark.parametrize("action", ["quiet", "cancel"])  # the second is an action of other lists
def test_a_worker_that_no_page_offers_is_refused_in_words(client: Client, action: str, key: str) -> None:
    assert _messages(_act(client, LISTS["worker"], action, key)) == ["Select rows of the list."]


def test_a_selected_job_that_is_not_there_changes_nothing(client: Client) -> None:
    job = queue.find_task("neighbours.project.shop.tasks.confirm").enqueue(1)
    assert _messages(_act(client, LISTS["job"], "cancel", "-1")) == []
    assert job.status() is JobState.READY


# Searches and addresses


@pytest.mark.parametrize("model", ["job", "deadjob"])
@pytest.mark.parametrize(
    ("term", "says"),
    [
        ("7" * 5000, "No job has an id of 5000 digits"),
        ("9" * 19, None),
        (DEEP, "too deeply"),
        ('{"a": ' * 500 + "1" + "}" * 500, "what is nested so deeply"),
        ('{"a": "\\u0000"}', "The database cannot search for this"),
        ('{"a": "\\ud800"}', "The database cannot search for this"),
        ('{"a": 1e999}', "The database cannot search for this"),
        ('{"a": NaN}', "The database cannot search for this"),
        (DIGITS, None),
        ('"\\u0000"', None),
        ("a\x00b", "Null characters"),
        ("x" * 5000, None),
    ],
    ids=lambda value: (value or "nothing")[:20].encode("unicode_escape").decode(),
)
@pytest.mark.usefixtures("bad")
def test_a_search_that_cannot_be_made_says_so(
    client: Client, model: str, term: str, says: str | None
) -> None:
    page = _page(client, f"{LISTS[model]}?q={quote(term)}")
    assert (says is None and _messages(page) == []) or (says is not None and says in "".join(_messages(page)))


@pytest.mark.parametrize(
    "query",
    [
        "queue=%00",
        "task=%00",
        "state=%00",
        "reason=%00",
        "state=nonsense",
        "reason=nonsense",
        "id__lt=%00",
        f"id__lt={'7' * 5000}",
        f"id__lt={'9' * 25}",
        "id__lt=-1",
        "task__regex=(",
        "queue=%F0%90",
        f"queue={'q' * 3000}",
    ],
)
@pytest.mark.parametrize("model", ["job", "deadjob"])
@pytest.mark.usefixtures("bad")
def test_an_address_that_cannot_be_is_no_error(client: Client, model: str, query: str) -> None:
    assert f"/admin/pgqueue/{model}/" in _page(client, f"{LISTS[model]}?{query}")
    acted = _act(client, f"{LISTS[model]}?{query}", "retry", GOOD)
    assert "/admin/pgqueue/" in acted


@pytest.mark.parametrize("model", LISTS)
@pytest.mark.parametrize("key", ["_00", "%00", "7" * 5000, "-5", "9" * 30, "abc"])
def test_a_page_that_is_not_there_is_no_error(client: Client, model: str, key: str) -> None:
    response = client.get(f"{LISTS[model]}{key}/change/", follow=True)
    assert response.status_code in {200, 404}


def test_a_list_says_no_total_that_is_not_known(client: Client) -> None:
    queue.find_task("neighbours.project.shop.tasks.confirm").enqueue(1)
    for query in ("", "?q=confirm", "?q=nothing"):
        assert "None total" not in _page(client, LISTS["job"] + query)
        assert " total" not in _page(client, LISTS["job"] + query)


# Words


def test_every_reason_is_explained() -> None:
    assert set(get_args(Reason)) <= set(EXPLAINED)


@pytest.mark.usefixtures("bad")
def test_a_reason_is_shown_with_what_it_means(client: Client) -> None:
    means = "the task raised Dead"
    assert f"asked: {means}" in _page(client, LISTS["deadjob"])
    assert f"asked: {means}" in _page(client, "/admin/pgqueue/deadjob/1099/change/")
    assert f"asked: {means}" in _page(client, "/admin/pgqueue/job/1099/change/")


@pytest.mark.usefixtures("bad")
def test_a_queue_is_active_or_paused(client: Client) -> None:
    queue.control.pause("two words")
    page = _page(client, LISTS["queue"])
    assert (page.count(">active<"), page.count(">paused<")) == (3, 1)


def test_what_is_shown_bears_any_value() -> None:
    assert "[[]]" in as_json([[[]]]).replace("\n", "").replace(" ", "")
    assert "nonsense" in as_errors("nonsense")
    assert "9999" in as_errors([{"at": "9999-12-31T23:59:59Z", "type": "E"}])
    assert "13-45" in as_errors([{"at": "2026-13-45T00:00:00Z", "message": "at 13-45"}])
    assert "too deeply" in as_json(_nested(5000))


def _nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value
