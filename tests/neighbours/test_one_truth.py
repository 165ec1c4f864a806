"""One source for each fact: the admin, the dashboard, ``top``, the shell and the metrics say the same of the same database."""

import re
from collections.abc import Iterator, Mapping
from contextlib import closing
from datetime import timedelta
from html import unescape
from typing import Any

import pytest
from cli.commands import pgqueue, printed
from django.test import Client
from looking import ask
from neighbours import django_admin_pages
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from pgqueue import Limit
from pgqueue.django.djangoqueue import project_queue

shared, empty = django_admin_pages.a_shared_database, django_admin_pages.an_empty_database
client = django_admin_pages.a_client
STATES = ("ready", "running", "scheduled", "blocked", "dead")
Counts = Mapping[str, Mapping[str, int]]
WORKER = """
    insert into pgqueue.workers (id, lease_until, pid, concurrency, minimum, slots, host, version, queues, idle, looked_at, look_within)
    values (gen_random_uuid(), now() + interval '1 minute', %s, 4, 4, 4, %s, '0.1.0', array['mail'], false, now() - %s::interval, 30)
"""


@pytest.fixture
def where(shared: dict[str, str]) -> str:
    return f"postgresql://{shared['USER']}@/{shared['NAME']}?host={shared['HOST']}&port={shared['PORT']}"


@pytest.fixture(autouse=True)
def made() -> Iterator[None]:
    """A stalled worker and one that looks; queues without settings; dead jobs in a queue that nobody serves; a paused queue; a limit."""
    with closing(project_queue()) as queue:
        send = queue.tasks.get("truth.send") or queue.task(name="truth.send")(_send)
        sync = queue.tasks.get("truth.sync") or queue.task(name="truth.sync", limit=Limit(1, name="sync"))(
            _send
        )
        for _ in range(3):
            send.using(queue="unserved", max_attempts=1).enqueue(1)
        with queue.take(2, queues=["unserved"], timeout=5) as jobs:
            for job in jobs:
                job.fail(ValueError("no"))
        for name, count in (("mail", 2), ("plain", 1)):
            for _ in range(count):
                send.using(queue=name).enqueue(1)
        send.using(queue="later", delay=timedelta(hours=1)).enqueue(1)
        for _ in range(3):
            sync.using(queue="sync").enqueue(1)
        queue.control.pause("paused", why="it is late", by="ann")
        ask(queue, WORKER, 4711, "stalled-1", "10 minutes")
        ask(queue, WORKER, 4712, "looks-1", "0 seconds")
        with queue.take(1, queues=["mail"], timeout=5) as jobs:
            assert jobs
            yield


def _send(number: int) -> None: ...


def test_every_door_lists_the_same_queues_with_the_same_numbers(client: Client, where: str) -> None:
    of_shell = {one["queue"]: one for one in printed(pgqueue("queues", "list", "--json", dsn=where))}
    of_top = {one["queue"]: one for one in printed(pgqueue("top", "--json", dsn=where))["queues"]}
    of_dashboard = {one["queue"]: one for one in client.get("/jobs/api/queues").json()["queues"]}
    truth = _numbers(of_shell)
    assert set(truth) == {"unserved", "mail", "plain", "later", "sync", "paused"}
    assert (truth["unserved"]["dead"], truth["mail"]["running"], truth["sync"]["blocked"]) == (2, 1, 3)
    assert _numbers(of_top) == truth
    assert _numbers(of_dashboard) == truth
    assert _of_admin(client) == truth
    assert _of_metrics(where) == {
        name: {k: v for k, v in one.items() if v} for name, one in truth.items() if any(one.values())
    }
    paused = {name for name, one in of_shell.items() if one["paused_at"]}
    assert paused == {"paused"} == {name for name, one in of_dashboard.items() if one["paused_at"]}
    assert _states(client, "queue") == {name: "paused" if name in paused else "active" for name in truth}


def test_every_door_says_the_same_of_each_worker(client: Client, where: str) -> None:
    shell = {
        f"{one['host']}:{one['pid']}": one["state"]
        for one in printed(pgqueue("workers", "list", "--json", dsn=where))
    }
    assert (shell["stalled-1:4711"], shell["looks-1:4712"]) == ("stalled", "alive")
    top = pgqueue("top", "--once", dsn=where).stdout
    data = client.get("/jobs/api/workers").json()["workers"]
    assert {one["name"]: one["state"] for one in data} == shell
    assert _states(client, "worker") == shell
    for name, state in shell.items():
        assert re.search(rf"^{re.escape(name)} .*\b{state}\b", top, re.MULTILINE), (name, state)
    of_metrics = {one.labels["state"]: one.value for one in _samples(where, "pgqueue_workers") if one.value}
    assert (of_metrics["alive"], of_metrics["stalled"]) == (
        len(shell),
        1,
    )  # its leases hold: it is alive, and stalled


def test_every_door_says_the_same_of_a_limit(client: Client, where: str) -> None:
    shell = {
        one["name"]: (one["running"], one["waiting"])
        for one in printed(pgqueue("limits", "list", "--json", dsn=where))
    }
    dashboard = {
        one["name"]: (one["running"], one["waiting"])
        for one in client.get("/jobs/api/limits").json()["limits"]
    }
    page = client.get("/admin/pgqueue/limit/").text
    rows = re.findall(
        r'field-name"><a [^>]*>([^<]+)</a>.*?field-running">(\d+)<.*?field-waiting">(\d+)<', page, re.DOTALL
    )
    assert dashboard == shell
    assert {name: (int(running), int(waiting)) for name, running, waiting in rows} == shell
    assert shell["name:sync"] == (0, 3)


def _numbers(found: Mapping[str, Any]) -> Counts:
    return {name: {state: one[state] for state in STATES} for name, one in found.items()}


def _of_admin(client: Client) -> Counts:
    page = client.get("/admin/pgqueue/queue/").text
    found = {}
    for row in re.findall(r"<tr>(.*?field-name.*?)</tr>", page, re.DOTALL):
        cells = dict(re.findall(r'field-(\w+)[^"]*">(?:<a [^>]*>)?([^<]*)<', row))
        found[unescape(cells["name"])] = {state: int(cells[state]) for state in STATES}
    return found


def _of_metrics(where: str) -> Counts:
    found: dict[str, dict[str, int]] = {}
    for sample in _samples(where, "pgqueue_queue_jobs"):
        if sample.value:
            found.setdefault(sample.labels["queue"], {})[sample.labels["state"]] = int(sample.value)
    return found


def _samples(where: str, name: str) -> list[Sample]:
    families = text_string_to_metric_families(pgqueue("metrics", dsn=where).stdout)
    return [sample for family in families for sample in family.samples if sample.name == name]


def _states(client: Client, model: str) -> dict[str, str]:
    page = client.get(f"/admin/pgqueue/{model}/").text
    rows = re.findall(
        r'<th class="field-\w+"><a [^>]*>([^<]+)</a>.*?pgqueue-state pgqueue-[\w ]+">([\w ]+)<',
        page,
        re.DOTALL,
    )
    return dict(rows)
