"""A made-up day in which five things go wrong: the guide's commands name each, and so do pages that are few clicks away.

What pages ask of a large table: ``python tests/bench/day.py DSN --waiting 1000000 --pages`` says how long it takes.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from html import unescape
from pathlib import Path
from threading import current_thread
from typing import Any, Final, NamedTuple

import psycopg
import pytest
from bench import day
from cli.commands import pgqueue
from dashboard.people import Person
from databases import Copies, dsn_of
from insight.planted import MINUTE, enqueue, measured, whole, worker
from looking import ask

from pgqueue import Limit, PgQueue
from pgqueue.dashboard import Dashboard, User
from pgqueue.store.connections.connection import StepRunner
from pgqueue.store.insight import insight, over_time, searching, why
from pgqueue.store.limits import lanes, limit_control
from pgqueue.store.plan import Row, Statement, Step
from pgqueue.store.queues import queues

JOBS: Final = 20_000
GUIDE: Final = (Path(__file__).parents[2] / "docs" / "guides" / "finding-trouble.md").read_text("utf-8")


class Shop(NamedTuple):
    dsn: str
    day: day.Day
    person: Person


@pytest.fixture(scope="module")
def shop(copies: Copies, migrated_server: Any) -> Iterator[Shop]:
    with copies.one() as name:
        dsn = dsn_of(migrated_server, name)
        queue = PgQueue(dsn)
        made = day.fill(queue, dsn, jobs=JOBS)
        yield Shop(dsn, made, Person(Dashboard(queue, login=lambda _: User("ann"))))
        queue.close()


COMMANDS: Final = {
    "pgqueue dead list --task shop.billing.charge": "ConnectionError: payments.example: no answer after 5 s",
    "pgqueue workers list": r"exports-1:4720 +stalled",
    "pgqueue why {exported}": "no worker of queue 'exports' has looked for jobs in time",
    "pgqueue limits list": r"name:partner-api +4 at once +4 +\d+",
    "pgqueue limits show name:partner-api": r"{held} +shop.partners.sync +name:partner-api +partners-1:4718",
    "pgqueue why {synced}": "name:partner-api",
    "pgqueue compare 9h --window 2h": r"attempts\s*\nshop\.media\.thumbnails +slower ",
    "pgqueue schedules list": r"reports.hourly: late: its next tick has been due for [\d.]+ (min|h)",
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_guide_names_the_trouble(shop: Shop, command: str) -> None:
    assert re.sub(r" \{\w+\}", "", command) in GUIDE
    jobs = {"exported": shop.day.exported, "synced": shop.day.synced, "held": shop.day.held[0]}
    said = pgqueue(*command.format(**jobs).split()[1:], dsn=shop.dsn).output
    assert re.search(COMMANDS[command].replace("{held}", str(shop.day.held[0])), said), said


CLICKS: Final = {
    "shop.billing.charge": [r"ConnectionError.*?payments\.example: no answer after 5 s", r">\d\d</td>"],
    "exports-1:4720": ["its lease holds"],
    "name:partner-api": [r"partners-1:4718", "4 at once"],
    "reports.hourly": [r"Runs</h2>"],
    "shop.media.thumbnails": ["Run time of attempts"],
}


@pytest.mark.parametrize("link", CLICKS)
def test_the_overview_leads_to_the_trouble(shop: Shop, link: str) -> None:
    overview = shop.person.get("/overview?window=24h").text
    href = re.search(rf'href="([^"]*)">{re.escape(link)}<', overview)
    assert href is not None, overview
    page = shop.person.get(unescape(href[1]))
    assert page.status_code == 200
    for said in CLICKS[link]:
        assert re.search(said, page.text, re.DOTALL), page.text


def test_the_overview_says_what_goes_wrong_now(shop: Shop) -> None:
    said = re.sub(r"<[^>]*>", "", shop.person.get("/", follow_redirects=True).text)
    assert re.search(
        r"Worker exports-1:4720 has claimed no job, and asked for none, for 4\d(\.\d)? min", said
    )
    assert re.search(r"Schedule reports.hourly is late: its next tick has been due for [\d.]+ (min|h)", said)
    assert re.search(
        r"Limit name:partner-api holds back \d+ jobs, the oldest for 4\d(\.\d)? min: 4 at once, 4 running",
        said,
    )
    assert "nightly" not in said


def test_the_page_that_compares_names_the_task_that_a_deploy_made_slow(shop: Shop) -> None:
    page: Any = shop.person.get("/api/compare?at=9h&window=2h").json
    slow, *others = page["lines"]
    assert (slow["name"], slow["changes"]) == ("shop.media.thumbnails", ["slower"])
    assert 4 < slow["run_ratio"] < 8
    assert [one["name"] for one in others if set(one["changes"]) & {"slower", "fails more"}] == []
    failing: Any = shop.person.get("/api/compare?at=6h&window=1h&by=queue").json
    assert failing["lines"][0]["name"] == "billing"
    assert "fails more" in failing["lines"][0]["changes"]


def test_the_page_of_a_task_shows_since_when_it_is_slow_and_fails(shop: Shop) -> None:
    slow: Any = shop.person.get("/api/task?window=24h&name=shop.media.thumbnails").json
    (runs,) = (chart for chart in slow["charts"] if chart["name"] == "run")
    half = [one for one in runs["curves"][0]["values"] if one is not None]
    assert max(half[1:14]) < 0.4  # the window begins within the first hour, so that may have few jobs
    assert min(half[-8:]) > 1
    failing: Any = shop.person.get("/api/task?window=24h&name=shop.billing.charge").json
    (ended,) = (chart for chart in failing["charts"] if chart["name"] == "ended")
    (retried,) = (one["values"] for one in ended["curves"] if one["name"] == "Retried")
    assert sum(one > 20 for one in retried) in {1, 2}
    assert failing["errors"][0]["type"].endswith("ConnectionError")


def _plant_no_worker(queue: PgQueue) -> None:
    ask(queue, "delete from pgqueue.workers returning id")


def _plant_stalled_worker(queue: PgQueue) -> None:
    worker(queue, "mail", host="mail-2", pid=7, looked_at=datetime.now(UTC) - 40 * MINUTE, look_within=35.0)


def _plant_full_limit(queue: PgQueue) -> None:
    task = queue.task(name="sync", queue="mail", limit=Limit(1, name="api"))(lambda: None)
    queue.database.run(lanes.declare(queue.limits))
    queue.enqueue_many(task.using(run_at=datetime.now(UTC) - 30 * MINUTE).call() for _ in range(3))
    ask(
        queue,
        """update pgqueue.jobs set status = 'running', in_lane = null, attempts = 1, claimed_at = now(),
                  worker_id = (select id from pgqueue.workers limit 1)
           where id = (select min(id) from pgqueue.jobs where task = 'sync') returning id""",
    )


def _plant_failing_task(queue: PgQueue) -> None:
    for minutes in (30, 40, 50):
        measured(queue, "charge", minutes, succeeded=99, failed=1)
    ask(
        queue,
        "insert into pgqueue.deploys (deployed_at, version) values (now() - interval '20 min', 'v42') returning 1",
    )
    measured(queue, "charge", 5, succeeded=5, failed=45)


def _plant_unserved_queue(queue: PgQueue) -> None:
    enqueue(queue, "sms", "sms", minutes=10)


TROUBLES: Final[dict[str, tuple[Callable[[PgQueue], None], str, str, str]]] = {
    "no worker": (_plant_no_worker, "No worker is alive: 2 jobs wait", "mail", "/queue?name=mail"),
    "a stalled worker": (_plant_stalled_worker, "has claimed no job", "mail-2:7", "/workers"),
    "a full limit": (
        _plant_full_limit,
        "holds back 2 jobs, the oldest for 30 min",
        "name:api",
        "/limit?name=name:api",
    ),
    "a failing task": (_plant_failing_task, "fails since the deploy of v42", "charge", "/task?name=charge"),
    "a queue that nobody serves": (
        _plant_unserved_queue,
        "No worker serves sms: 2 jobs wait",
        "sms",
        "/queue?name=sms",
    ),
}


@pytest.mark.parametrize("planted", [*TROUBLES, None])
def test_the_first_page_alone_names_a_planted_trouble_with_its_link_and_none_where_all_is_right(
    queue: PgQueue, planted: str | None
) -> None:
    """Without a click; on the wide page the lines stand above everything else."""
    worker(queue, "mail")
    enqueue(queue, "mail", "mail", minutes=3)
    ask(queue, "update pgqueue.workers set looked_at = now() returning id")
    if planted:
        TROUBLES[planted][0](queue)
    page = (
        Person(Dashboard(queue, login=lambda _: User("ann"), actions=True))
        .get("/", follow_redirects=True)
        .text
    )
    above = unescape(page[page.index('<section class="health"') : page.index("</section>")])
    text = whole(re.sub(r"<[^>]*>", "", above))
    assert ("All right: 1 worker serves 1 queue, the oldest ready job waits 3 min." in text) is (
        planted is None
    )
    for name, (_, said, of, href) in TROUBLES.items():
        assert (said in text) is (name == planted), text
        assert (f'<a href="{href}">{of}</a>' in above) is (name == planted), above


WAITING: Final = 80_000
WHOLE_PAGES: Final = 1_000
"""The table of these jobs has more pages than this, so the pages of the dashboard read a sample of it."""


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for inner in plan.get("Plans", ()):
        yield from _nodes(inner)


def test_no_page_reads_the_table_of_jobs_from_end_to_end(
    queue: PgQueue, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    day.fill(queue, dsn, jobs=1_000, waiting=WAITING)
    for module in (queues, limit_control, insight, over_time, why):
        monkeypatch.setattr(module, "WHOLE_PAGES", WHOLE_PAGES)
    monkeypatch.setattr(searching, "LOOKED_AT", WAITING // 10)  # the share of a table of 1,000,000 jobs
    read: list[tuple[str, str]] = []
    seen: set[str] = set()
    execute, asking, path = StepRunner.execute, current_thread(), ""

    def explained(self: StepRunner, step: Step) -> Sequence[Row]:
        if current_thread() is asking:
            assert isinstance(step, Statement)
            seen.add(step.name)
            read.extend((path, step.name) for node in _plan(connection, self, step) if _is_whole(node))
        return execute(self, step)

    with psycopg.connect(dsn, autocommit=True) as connection:
        pages = connection.execute(
            "select pg_relation_size('pgqueue.jobs') / current_setting('block_size')::int"
        ).fetchone()
        assert pages is not None
        assert pages[0] > WHOLE_PAGES
        person = Person(Dashboard(queue, login=lambda _: User("ann"), actions=True))
        paths = day.paths(queue)
        monkeypatch.setattr(StepRunner, "execute", explained)
        for path in paths:
            assert person.get(path).status_code == 200, path
    assert {"insight/running_named", "insight/search", "insight/standing_heads"} <= seen
    assert {name for _, name in read} <= {
        "insight/lanes"
    }  # its index costs as much as 4,000 pages, so few are read whole


def _plan(
    connection: psycopg.Connection[Any], steps: StepRunner, step: Statement
) -> Iterator[dict[str, Any]]:
    sql = steps.catalogue[step.name]
    (found,) = connection.execute(b"explain (format json) " + sql, step.params).fetchone() or ("[]",)
    plans = json.loads(found) if isinstance(found, str) else found
    for one in plans:
        yield from _nodes(one["Plan"])


def _is_whole(node: dict[str, Any]) -> bool:
    return node["Node Type"] == "Seq Scan" and node.get("Relation Name") == "jobs"
