"""The first page and the frame of every page: what is named, counted and linked, and what is said while the database is away."""

import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from html import unescape
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest
from dashboard.people import Person, die
from dashboard.world import SECRET, stored_alert
from databases import Copies, dsn_of
from insight.planted import enqueue, measured, whole, worker
from looking import ask
from psycopg.conninfo import make_conninfo
from servers import on_the_oldest

from pgqueue import PgQueue
from pgqueue.dashboard import Dashboard, User, dashboard
from pgqueue.dashboard.database_label import DatabaseLabels
from pgqueue.dashboard.rendering import naming
from pgqueue.dashboard.shared_standings import SharedStandings
from pgqueue.embedded import embedded_binaries, throwaway_server
from pgqueue.store.connections.patience import Patience
from pgqueue.store.schema import schema
from pgqueue.store.workers import upkeep
from pgqueue.testing import drain

MakePerson = Callable[..., Person]
HOSTILE: Final = "<script>alert(1)</script>"


def shown(page: str) -> str:
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", page)).split())


def counts(page: str) -> dict[str, str]:
    return {name: text for name, text in re.findall(r'data-count="(\w+)"[^>]*>([^<]*)<', page) if text}


def test_every_card_leads_to_what_it_counts(queue: PgQueue, person: MakePerson) -> None:
    worker(queue)
    enqueue(queue, "mail", "sms")
    cards = re.search(r'<dl class="figures cards">(.*?)</dl>', person().get("/overview").text, re.DOTALL)
    assert cards is not None
    found = re.findall(r"<div><dt>([^<]*)</dt><dd><a[^>]*href=\"([^\"]*)\"", cards[1])
    assert len(found) == cards[1].count("<dt>") == 8, "two rows of four, or one of eight: none stands alone"
    for name, href in found:
        assert person().get(unescape(href)).status_code == 200, name
    assert dict(found)["Running"] == "/jobs?state=running"
    assert dict(found)["Oldest ready job waits"].startswith("/queue?name=")


def test_the_share_of_failures_is_of_attempts_that_ended(queue: PgQueue, person: MakePerson) -> None:
    """Claims that were put back are no attempts that ended: here there are as many again."""
    measured(queue, "charge", 5, succeeded=197, failed=3)
    ask(queue, "update pgqueue.series_written set started = 4000 returning at")
    page = shown(person().get("/overview?window=1h").text)
    assert "Failed attempts, last 1h 3 1.5 %" in page
    assert "charge 200 197 3 1.5 %" in page
    assert "4,000" not in page.partition("Tasks, last 1h")[2]


def test_a_headline_leaves_the_jobs_of_a_paused_queue_out(queue: PgQueue, person: MakePerson) -> None:
    enqueue(queue, "archive", minutes=60)
    enqueue(queue, "mail", minutes=3)
    queue.control.pause("archive")
    assert "Oldest ready job waits 3 min mail" in whole(shown(person().get("/overview").text))


def test_problems_beyond_five_are_folded_and_counted(queue: PgQueue, person: MakePerson) -> None:
    for number in range(9):
        queue.control.pause(f"q{number}", by="ann", why=HOSTILE)
    page = person().get("/overview").text
    above, _, folded = page.partition('<details id="more-problems">')
    assert (above.count("has been paused"), folded.count("has been paused")) == (4, 5)
    assert "and 5 more" in folded
    assert "<script>alert" not in page


def test_the_page_shows_a_hundred_problems_and_says_how_many_more_there_are(
    queue: PgQueue, person: MakePerson
) -> None:
    ask(
        queue,
        "insert into pgqueue.queues (name, paused_at) select 'q' || n, now() from generate_series(1, 300) as n",
    )
    page = person().get("/overview").text
    assert page.count("has been paused") == 99, "no worker is alive, either"
    assert "201 are not shown here" in page


def test_what_an_operator_wrote_is_shown_without_secrets(queue: PgQueue, person: MakePerson) -> None:
    queue.control.pause("mail", why=f"password={SECRET}", by="ann")
    for path in ("/overview", "/api/overview"):
        assert SECRET not in person().get(path).text


def test_a_button_that_solves_a_problem_is_shown_to_those_who_may(queue: PgQueue, person: MakePerson) -> None:
    worker(queue, supervised=True, looked_at=datetime.now(UTC) - timedelta(hours=1), look_within=35.0)
    queue.control.pause("mail", by="ann")
    page = person().get("/overview").text
    for name, of in (("Restart…", "/workers/vm%3A1/restart"), ("Resume…", "/queue/resume?name=mail")):
        href = re.search(rf'href="([^"]*)">{name}</a>', page)
        assert href is not None, page
        assert unescape(href[1]).replace("vm:1", "vm%3A1") == of
        assert person().get(unescape(href[1])).status_code == 200
    assert "Restart…" not in person(actions=False).get("/overview").text


def test_a_sentence_is_cut_at_the_names_that_are_in_it() -> None:
    assert naming("No worker serves a and b: 2 jobs", ("a", "b")) == [
        ("No worker serves ", None), ("a", "a"), (" and ", None), ("b", "b"), (": 2 jobs", None)
    ]  # fmt: skip
    assert naming("Task x fails", ("gone",)) == [("Task x fails", None)]


def test_the_first_minutes_are_told_by_seconds(queue: PgQueue, person: MakePerson) -> None:
    """Workers write their figures when a minute is over, and two minutes late."""
    task = queue.task(name="send")(lambda: None)
    task.enqueue()
    drain(queue)
    die(queue, "buy", {"order": 7}, error=ValueError("no stock"))
    first: Any = person().get("/api/overview").json
    assert (first["window"], first["every"]) == ("10m", 5)
    (ended,) = (one for one in first["charts"] if one["name"] == "ended")
    assert (ended["title"], ended["step"], len(ended["at"])) == ("Jobs that ended, in each 5 s", 5.0, 120)
    assert {one["name"]: sum(one["values"]) for one in ended["curves"]} == {
        "Succeeded": 1,
        "Cancelled": 0,
        "Dead": 1,
    }
    assert first["ended"] == {"succeeded": 1, "failed": None, "dead": 1}, "the cards say what the chart shows"
    page = person().get("/overview").text
    assert "Died, last 10m" in page
    assert 'data-every="5"' in page
    assert "are read from the history" in shown(page)
    for path in ("/task?name=send", "/queue?name=default"):
        chosen: Any = person().get(f"/api{path}&window=10m").json
        assert sum(chosen["charts"][0]["curves"][0]["values"]) == 1, path
    assert person().get("/api/overview?window=1h").json["window"] == "1h"  # type: ignore[index]


def test_all_tasks_are_searched_sorted_and_paged(queue: PgQueue, person: MakePerson) -> None:
    for number in range(120):
        measured(queue, f"task-{number:03}", 5, succeeded=1_000 - number, failed=number)
    overview = person().get("/overview?window=1h").text
    more = re.search(r'<a href="([^"]*)">and 105 more tasks</a>', overview)
    assert more is not None
    ann = person()
    page = ann.get(unescape(more[1])).text
    assert "1 to 50 of 120" in page
    following = re.search(r'rel="next" href="([^"]*)"', page)
    assert following is not None
    assert "51 to 100 of 120" in ann.get(unescape(following[1])).text
    names = re.findall(r">(task-\d+)</a>", ann.get("/tasks?sort=failed").text)
    assert names[:2] == ["task-119", "task-118"]
    assert re.findall(r">(task-\d+)</a>", ann.get("/tasks?sort=name").text)[0] == "task-000"
    assert re.findall(r">(task-\d+)</a>", ann.get("/tasks?q=K-04&sort=name").text) == [
        f"task-04{n}" for n in range(10)
    ]
    assert "No task of the last 1h" in ann.get("/tasks?q=nope").text
    assert ann.get("/tasks?sort=colour").status_code == 400


def test_the_header_and_the_title_name_the_database(queue: PgQueue, person: MakePerson) -> None:
    ((name,),) = ask(queue, "select current_database()")
    page = person().get("/jobs").text
    assert f"<title>Jobs · {name} · pgqueue</title>" in page
    assert f'<span class="database" title="The database that is shown">{name}</span>' in page


@pytest.mark.parametrize(
    ("dsn", "schema", "label"),
    [
        ("postgresql://ann:hunter22@db-1.example:5433/shop", "pgqueue", "shop on db-1.example"),
        ("postgresql://localhost/shop", "jobs", "shop, schema jobs"),
        ("host=/tmp dbname=shop", "pgqueue", "shop"),
        ("postgresql://ann:hunt@er22/shop@db-1.example/shop", "pgqueue", ""),
    ],
)
def test_a_label_says_where_the_database_is_and_no_secret(dsn: str, schema: str, label: str) -> None:
    labels = DatabaseLabels({"": PgQueue(dsn, schema=schema)})
    assert labels.of("", ask=False) == label
    assert "hunt" not in label


def test_each_of_several_databases_has_its_label(copies: Copies, migrated_server: Any) -> None:
    with copies.one() as first, copies.one() as second:
        queues = {
            name: PgQueue(dsn_of(migrated_server, of)) for name, of in (("shop", first), ("news", second))
        }
        ann = Person(Dashboard(queues=queues, login=lambda _: User("ann")))
        assert f"· {first} ·" in ann.get("/jobs?db=shop").text
        assert f"· {second} ·" in ann.get("/jobs?db=news").text
        for one in queues.values():
            one.close()


def test_the_navigation_counts_problems_dead_jobs_and_firing_alerts(
    queue: PgQueue, person: MakePerson
) -> None:
    worker(queue)
    assert counts(person().get("/audit").text) == {}
    die(queue, "buy", *({"order": number} for number in range(3)), error=ValueError("no stock"))
    stored_alert(queue)
    ask(queue, "update pgqueue.alerts set held_at = now(), firing_at = now() returning name")
    ann = person()
    for path in ("/audit", "/jobs", "/store"):
        assert counts(ann.get(path).text) == {"overview": "1", "dead": "3", "alerts": "1"}, path
    said: Any = ann.get("/alive").json
    assert said["counts"] == {"overview": "1", "dead": "3", "alerts": "1"}
    queue.alerts.silence("slow mail", timedelta(hours=1))
    assert counts(ann.get("/audit").text) == {"dead": "3"}


def test_a_problem_leads_to_the_place_that_says_more(queue: PgQueue, person: MakePerson) -> None:
    """An alert to its own page; a lost worker to the workers, where no row of it is left, so that they say it again."""
    worker(queue)
    worker(queue, pid=5512, lease="-3 min")
    queue.database.run(upkeep.reclaim())
    stored_alert(queue)
    ask(queue, "update pgqueue.alerts set held_at = now(), firing_at = now() returning name")
    ann = person()
    page = ann.get("/overview").text
    assert re.search(r'<a href="/alert\?name=slow(\+|%20)mail">slow mail</a>', page)
    assert '<a href="/workers">vm:5512</a>' in page
    assert "Worker vm:5512 was lost 3 min ago" in whole(shown(ann.get("/workers").text))


def test_a_task_that_fails_since_a_deploy_leads_to_the_comparison(queue: PgQueue, person: MakePerson) -> None:
    worker(queue)
    ask(
        queue,
        "insert into pgqueue.deploys (deployed_at, version) values (now() - interval '20 min', 'v42') returning version",
    )
    measured(queue, "charge", 40, succeeded=50, failed=0)
    measured(queue, "charge", 5, succeeded=5, failed=45)
    ann = person()
    page = ann.get("/overview").text
    assert "fails since the deploy of v42" in shown(page)
    href = re.search(r'href="(/compare\?at=[^"]+)">Compare</a>', page)
    assert href is not None
    compared = ann.get(unescape(href[1]))
    assert compared.status_code == 200
    assert "charge" in shown(compared.text)


def test_the_counts_are_shared_for_half_a_minute_and_new_after_an_action(queue: PgQueue) -> None:
    now = 0.0
    shared = SharedStandings({"": queue}, lambda: now)
    enqueue(queue, "mail")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pgqueue.dashboard.shared_standings.RECENT", 30.0)
        assert shared.counts("")["overview"] == "1"
        worker(queue)
        now = 29.0
        assert shared.counts("")["overview"] == "1"
        now = 31.0
        assert shared.counts("")["overview"] == ""
        ask(queue, "delete from pgqueue.workers returning id")
        shared.forget()
        assert shared.counts("")["overview"] == "1"


def test_a_person_who_is_not_logged_in_is_told_neither_counts_nor_the_database(queue: PgQueue) -> None:
    die(queue, "buy", {"order": 1}, error=ValueError("no stock"))
    ((name,),) = ask(queue, "select current_database()")
    nobody = Person(Dashboard(queue, token="correct-horse-battery"))  # noqa: S106 - a test's own
    page = nobody.get("/jobs")
    assert (page.status_code, name in page.text, counts(page.text)) == (401, False, {})
    assert nobody.get("/alive").status_code == 401


@pytest.fixture
def frozen() -> Iterator[tuple[str, Callable[[], None], Callable[[], None]]]:
    """A server of its own: its DSN, what freezes it, and what lets it go on."""
    with throwaway_server(embedded_binaries()) as server:
        schema.migrate(server.dsn)
        stopped: list[int] = []

        def freeze() -> None:
            with psycopg.connect(server.dsn, autocommit=True) as connection:
                (data,) = connection.execute("show data_directory").fetchone() or ("",)
            postmaster = int(Path(data, "postmaster.pid").read_text("ascii").splitlines()[0])
            children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text("ascii")
            for one in (postmaster, *map(int, children.split())):
                with suppress(ProcessLookupError):  # the connection above has ended
                    os.kill(one, signal.SIGSTOP)
                    stopped.append(one)

        def thaw() -> None:
            while stopped:
                with suppress(ProcessLookupError):
                    os.kill(stopped.pop(), signal.SIGCONT)

        yield server.dsn, freeze, thaw
        thaw()


@pytest.mark.skipif(on_the_oldest(), reason="the server is made with the embedded binaries")
def test_a_page_of_a_frozen_server_is_answered_in_time_and_the_first_one_after_its_return_is_fast(
    frozen: tuple[str, Callable[[], None], Callable[[], None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    dsn, freeze, thaw = frozen
    assert dashboard.PATIENCE.altogether <= 5
    monkeypatch.setattr(dashboard, "PATIENCE", Patience(60.0, 60.0, altogether=1.5))
    monkeypatch.setattr(dashboard, "ALIVE", Patience(60.0, 60.0, altogether=1.0))
    queue, fresh = PgQueue(dsn), PgQueue(dsn)
    ann, new = (Person(Dashboard(one, login=lambda _: User("ann"))) for one in (queue, fresh))
    assert ann.get("/overview").status_code == 200
    freeze()
    for one, path, most in ((ann, "/overview", 4), (ann, "/alive", 4), (new, "/jobs", 5)):
        began = time.monotonic()
        answer = one.get(path)
        assert (answer.status_code, "The database does not answer" in answer.text) == (503, True)
        assert time.monotonic() - began < most, path
    thaw()
    for one in (ann, new):
        began = time.monotonic()
        monkeypatch.setattr(dashboard, "PATIENCE", Patience(3.0, 5.0, altogether=5.0))
        assert one.get("/overview").status_code == 200
        assert time.monotonic() - began < 4
    queue.close()
    fresh.close()


@pytest.mark.skipif(on_the_oldest(), reason="the server is made with the embedded binaries")
def test_a_page_of_a_stopped_server_is_answered_in_time_and_works_after_its_return() -> None:
    with throwaway_server(embedded_binaries()) as server:
        schema.migrate(server.dsn)
        queue = PgQueue(server.dsn)
        ann = Person(Dashboard(queue, login=lambda _: User("ann")))
        assert ann.get("/overview").status_code == 200
        server.stop(signal.SIGKILL)
        began = time.monotonic()
        assert ann.get("/overview").status_code == 503
        assert time.monotonic() - began < 5
        server.start()
        assert ann.get("/overview").status_code == 200
        queue.close()


def test_a_login_that_may_not_read_everything_sees_pages_without_counts(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("drop table pgqueue.deploys")
    queue = PgQueue(make_conninfo(dsn))
    page = Person(Dashboard(queue, login=lambda _: User("ann"))).get("/jobs")
    assert (page.status_code, counts(page.text)) == (200, {})
    queue.close()
