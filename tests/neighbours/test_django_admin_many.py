"""The admin on tables with many rows: no page of it counts them, or reads a table from end to end."""

import json
import re
from collections.abc import Iterator

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from neighbours.django_backend_database import database, emptied, pointed_at
from pytest_postgresql.executors import NoopExecutor

from pgqueue.django.djangoqueue import project_queue

MANY = 200_000
JOB, DEAD_JOB = "/admin/pgqueue/job/", "/admin/pgqueue/deadjob/"
COMMON = "id, run_at, created_at, collisions, priority, attempts, max_attempts, queue, task, unique_key, args"
VALUES = "now(), now(), 0, 0, 1, 1, 'q' || n % 7, 't' || n % 5"
ERRORS = json.dumps([{"attempt": 1, "type": "Refused", "message": "no", "at": None, "traceback": None}])
FILL = f"""
    insert into pgqueue.jobs (id, queue, task, unique_key, args)
    select n * 3, 'q' || n % 7, 't' || n % 5, 'k' || n, jsonb_build_object('n', n) from generate_series(1, {MANY}) as n;
    insert into pgqueue.dead_jobs ({COMMON}, died_at, reason, errors)
    select n * 3 + 1, {VALUES}, 'd' || n, '{{}}', now(), 'exhausted', '{ERRORS}' from generate_series(1, {MANY}, 10) as n;
    insert into pgqueue.job_history ({COMMON}, finished_at, outcome)
    select n * 3 + 2, {VALUES}, 'k' || n, '{{}}', now() - n % 2 * interval '1 day', 'succeeded'
    from generate_series(1, {MANY}) as n;
    analyze pgqueue.jobs, pgqueue.dead_jobs, pgqueue.job_history;
"""


@pytest.fixture(scope="module")
def filled(django_server: NoopExecutor) -> Iterator[dict[str, str]]:
    with database(django_server, "pgqueue_test_django_many") as where:
        with emptied(where), connection.cursor() as cursor:
            cursor.execute(FILL)
            User.objects.create_superuser("root")
        yield where


@pytest.fixture
def client(filled: dict[str, str]) -> Iterator[Client]:
    with pointed_at(filled):
        found = Client()
        found.force_login(User.objects.get())
        yield found


def _page(client: Client, path: str) -> tuple[str, list[str]]:
    """A page, and the statements that it took."""
    with CaptureQueriesContext(connection) as caught:
        response = client.get(path)
    assert response.status_code == 200
    ours = [query["sql"] for query in caught.captured_queries if '"pgqueue".' in query["sql"]]
    return response.content.decode(), ours


def _plan(statement: str) -> str:
    with connection.cursor() as cursor:
        cursor.execute(f"explain {statement}")
        return "\n".join(row[0] for row in cursor.fetchall())


def _scanned(plan: str) -> set[str]:
    """The tables with many rows that are read from end to end."""
    return {table for table in re.findall(r"Seq Scan on (\w+)", plan) if _has_many(table)}


def _has_many(table: str) -> bool:
    with connection.cursor() as cursor:
        cursor.execute(f"select exists (select from pgqueue.{table} offset 1000)")
        return bool(cursor.fetchone()[0])


@pytest.mark.parametrize(
    "path",
    [
        JOB,
        f"{JOB}?id__lt=300000",
        f"{JOB}?queue=q3",
        f"{JOB}?queue=q3&task=t2",
        f"{JOB}?state=ready&task=t1",
        f"{JOB}?state=dead",
        f"{JOB}?state=succeeded&queue=q1",
        f"{JOB}?q=300000",
        f"{JOB}300000/change/",
        DEAD_JOB,
        f"{DEAD_JOB}?queue=q1&task=t1&reason=exhausted",
        f"{DEAD_JOB}?q=301",
    ],
)
def test_no_page_counts_or_reads_a_table_from_end_to_end(client: Client, path: str) -> None:
    _, statements = _page(client, path)
    assert statements
    for statement in statements:
        assert "COUNT(" not in statement
        plan = _plan(statement)
        assert _scanned(plan) == set(), f"{statement}\n{plan}"


def test_an_ended_state_leaves_out_the_live_jobs_and_a_live_one_the_history(client: Client) -> None:
    _, (*_, dead) = _page(client, f"{JOB}?state=dead")
    assert "dead_jobs_pkey" in _plan(dead)
    assert "jobs_pkey on jobs" not in _plan(dead)
    _, (*_, ready) = _page(client, f"{JOB}?state=ready")
    assert "job_history" not in _plan(ready)


def test_a_unique_key_is_looked_for_where_it_is_in_an_index(client: Client) -> None:
    page, statements = _page(client, f"{JOB}?q=k4711")
    assert re.findall(r'field-id"><a href="/admin/pgqueue/job/(\d+)/', page) == [str(4711 * 3)]
    plan = _plan(statements[-1])
    assert "jobs_unique_key" in plan
    assert _scanned(plan) <= {"dead_jobs"}


def test_the_queues_page_has_the_numbers_of_the_dashboard_and_counts_nothing_itself(client: Client) -> None:
    page, statements = _page(client, "/admin/pgqueue/queue/")
    assert not any("COUNT(" in statement for statement in statements)
    shown = re.findall(r'field-name"><a [^>]*>([\w-]+)</a>.*?field-ready">(~?[\d,]+)<', page, re.DOTALL)
    known = project_queue().insight.queues()
    assert shown == [(one.queue, f"{'~' * ('ready' in one.estimated)}{one.ready:,}") for one in known]
