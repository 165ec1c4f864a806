"""The pages of schedules: rules in words, the last runs as dots that are links, and forms that add and change people's schedules."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from html import unescape

import pytest
from dashboard.people import ORIGIN, Person, key_in
from dashboard.world import SECRET
from looking import ask

from pgqueue import PgQueue
from pgqueue.app.named import known_tasks_of
from pgqueue.dashboard import Right
from pgqueue.dashboard.pages.schedule_forms import restored
from pgqueue.store.jobs import known_tasks

MakePerson = Callable[..., Person]
AGO = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def shop(queue: PgQueue) -> PgQueue:
    def report(region: str, limit: int = 10, password: str = "") -> None: ...

    queue.task(name="shop.report", queue="reports")(report)
    queue.task(name="shop.other", queue="others")(lambda: None)
    queue.database.run(known_tasks.say(known_tasks_of(queue.tasks)))
    return queue


def dots(page: str) -> list[tuple[str, str | None]]:
    """The runs of a page, oldest first: the state, and the address of the job."""
    (run,) = re.findall(r'<span class="runs">(.*?)</span> ', page, re.DOTALL)[:1]
    return [(state, href or None) for state, href in re.findall(r'<(?:a|span) class="([a-z]+)"(?: href="([^"]+)")? title', run)]  # fmt: skip


def test_the_list_says_the_rule_in_words_and_shows_the_last_ten_runs(
    shop: PgQueue, person: MakePerson
) -> None:
    shop.schedules.add(
        "nightly", shop.tasks["shop.report"].call("eu"), "0 9 * * 1-5", timezone="Europe/London"
    )
    handles = [shop.schedules.fire("nightly") for _ in range(12)]
    done, dead = handles[-1], handles[-2]
    assert done is not None and dead is not None  # noqa: PT018 - for the type checker
    shop.control.jobs(ids=[dead.id]).cancel()
    page = person().get("/schedules").text
    assert "at 09:00 on weekdays, Europe/London" in page
    assert "0 9 * * 1-5" in page
    shown = dots(page)
    assert len(shown) == 10
    assert shown[-2:] == [("cancelled", f"/jobs/{dead.id}"), ("ready", f"/jobs/{done.id}")]
    assert re.search(r'class="unseen">\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC: cancelled<', page)


def test_a_tick_without_a_job_is_a_dot_that_is_no_link(shop: PgQueue, person: MakePerson) -> None:
    shop.schedules.add("nightly", shop.tasks["shop.report"].call("eu"), every=60)
    ask(shop, "insert into pgqueue.schedule_ticks (schedule, at, state) values ('nightly', now(), 'skipped')")
    assert dots(person().get("/schedules").text) == [("skipped", None)]


@pytest.mark.parametrize(("zone", "heads"), [("UTC", 0), ("Europe/Berlin", 2)])
def test_a_page_has_a_column_of_utc_only_where_it_differs(
    shop: PgQueue, person: MakePerson, zone: str, heads: int
) -> None:
    shop.schedules.add("nightly", shop.tasks["shop.report"].call("eu"), "30 12 * * *", timezone=zone)
    shop.schedules.fire("nightly")
    page = person().get("/schedule?name=nightly").text
    assert page.count('<th scope="col" class="wide">UTC</th>') == heads
    assert ("Clock change" in page) is ('<span class="changed">' in page)


def test_a_schedule_is_added_by_a_person_and_the_audit_says_so(shop: PgQueue, person: MakePerson) -> None:
    said = person().do(
        "/schedules/add", name="report of 42", task="shop.report", rule="0 9 * * MON-FRI", timezone="Europe/London",
        arguments='{"region": "eu"}', why="customer 42 asked",
    )  # fmt: skip
    assert "note good" in said.text, said.text
    found = shop.schedules.get("report of 42")
    assert (found.task, found.queue, found.args, found.module) == (
        "shop.report",
        "reports",
        {"region": "eu"},
        None,
    )
    assert found.rule == "0 9 * * MON-FRI Europe/London"
    (entry,) = shop.insight.audit()
    assert (entry.by, entry.action, entry.target) == ("ann", "schedule add", "report of 42")
    assert (entry.details or {})["why"] == "customer 42 asked"


@pytest.mark.parametrize(
    ("typed", "stored"),
    [("15m", "every 0:15:00"), ("every 2h", "every 2:00:00"), ("2040-05-01T09:00", "once at 2040-05-01 08:00:00+00:00"),
     ("@daily", "@daily Europe/London")],
)  # fmt: skip
def test_a_rule_is_an_expression_a_length_or_an_instant(
    shop: PgQueue, person: MakePerson, typed: str, stored: str
) -> None:
    fields = {"name": "one", "task": "shop.other", "rule": typed, "timezone": "Europe/London"}
    assert "note good" in person().do("/schedules/add", **fields).text
    assert shop.schedules.get("one").rule == stored


@pytest.mark.parametrize(
    ("fields", "field", "says"),
    [
        ({"rule": "61 * * * *"}, "rule", "minute"),
        ({"rule": "2020-01-01T00:00"}, None, "no tick"),
        ({"timezone": "Europe/Lundun"}, "timezone", "Europe/London"),
        ({"arguments": "[1]"}, "arguments", "a JSON object"),
        ({"arguments": '{"regoin": "eu"}'}, "arguments", "region"),
        ({"task": "shop.unknown"}, "task", "shop.unknown"),
        ({"name": " "}, "name", "1 to 200"),
        ({"name": "taken"}, None, "exists already"),
    ],
)
def test_what_the_api_refuses_the_form_refuses_beside_its_field_and_keeps_what_was_typed(
    shop: PgQueue, person: MakePerson, fields: dict[str, str], field: str | None, says: str
) -> None:
    shop.schedules.add("taken", shop.tasks["shop.other"].call(), every=60)
    given = {
        "name": "one",
        "task": "shop.report",
        "rule": "@daily",
        "timezone": "UTC",
        "arguments": '{"region": "eu"}',
    }
    answer = person().do("/schedules/add", **{**given, **fields})
    assert answer.status_code == 400
    marked = re.findall(r'name="(\w+)"[^>]* aria-invalid="true" aria-describedby="wrong-(\w+)"', answer.text)
    assert marked == ([(field, field)] if field else [])
    assert says in answer.text
    assert "@daily" in answer.text or "rule" in fields
    assert [one.name for one in shop.schedules.find()] == ["taken"]


def test_a_change_keeps_what_the_form_does_not_show(shop: PgQueue, person: MakePerson) -> None:
    call = (
        shop.tasks["shop.report"]
        .using(priority=7, unique_key="k", meta={"a": 1}, expires_in=90, queue="slow")
        .call("eu", password=SECRET)
    )
    shop.schedules.add("nightly", call, "0 3 * * *", jitter=30, overlap="skip", gap="skip")
    ann = person()
    asked = ann.get("/schedule/edit?name=nightly")
    assert SECRET not in asked.text
    shown = re.search(r"<textarea[^>]*>\s*(.*?)</textarea>", asked.text, re.DOTALL)
    assert shown is not None
    arguments = shown[1].replace("&#34;", '"').replace('"eu"', '"us"')
    ann.do("/schedule/edit?name=nightly", task="shop.report", rule="30m", timezone="UTC", arguments=arguments)
    found = shop.schedules.get("nightly")
    assert found.args == {"region": "us", "password": SECRET}
    assert (found.queue, found.priority, found.unique_key, found.meta) == ("slow", 7, "k", {"a": 1})
    assert found.timing is not None
    assert (found.timing.every, found.timing.jitter, found.timing.overlap) == (
        timedelta(minutes=30),
        timedelta(seconds=30),
        "skip",
    )
    assert ask(shop, "select extract(epoch from expires_in)::int from pgqueue.schedules") == [(90,)]
    assert [one.action for one in shop.insight.audit()] == ["schedule put"]


@pytest.mark.parametrize("every", [timedelta(days=30), timedelta(days=400, seconds=1.25)])
def test_a_long_interval_stays_as_it_is_where_something_else_is_changed(
    shop: PgQueue, person: MakePerson, every: timedelta
) -> None:
    shop.schedules.add("monthly", shop.tasks["shop.report"].call("eu"), every=every)
    ann = person()
    rule = re.search(r'name="rule"[^>]* value="([^"]*)"', ann.get("/schedule/edit?name=monthly").text)
    assert rule is not None
    fields = {"task": "shop.report", "timezone": "UTC", "arguments": '{"region": "us"}'}
    assert "is changed" in ann.do("/schedule/edit?name=monthly", rule=rule[1], **fields).text
    found = shop.schedules.get("monthly")
    assert found.timing is not None
    assert (found.timing.every, found.args) == (every, {"region": "us"})


def test_a_hidden_value_does_not_go_to_another_task(shop: PgQueue, person: MakePerson) -> None:
    shop.task(name="shop.echo")(lambda **given: given)
    shop.schedules.add("nightly", shop.tasks["shop.report"].call("eu", password=SECRET), every=60)
    ann = person()
    shown = re.search(
        r"<textarea[^>]*>\s*(.*?)</textarea>", ann.get("/schedule/edit?name=nightly").text, re.DOTALL
    )
    assert shown is not None
    fields = {"task": "shop.echo", "rule": "60s", "timezone": "UTC", "arguments": unescape(shown[1])}
    answer = ann.do("/schedule/edit?name=nightly", **fields)
    assert (answer.status_code, "write the value itself" in answer.text) == (400, True)
    assert shop.schedules.get("nightly").task == "shop.report"


def test_a_hidden_value_is_not_stored_as_its_mark() -> None:
    shown, stored = {"a": [1, {"password": "•"}], "b": 1}, {"a": [1, {"password": "x"}], "b": 1}
    assert restored({"a": [2, {"password": "•"}], "c": 3}, shown, stored) == {
        "a": [2, {"password": "x"}],
        "c": 3,
    }
    assert restored(shown, shown, stored) == stored


def test_a_schedule_of_the_code_is_not_changed_on_a_page(shop: PgQueue, person: MakePerson) -> None:
    shop.schedule("0 3 * * *", name="declared")(shop.tasks["shop.other"])
    shop.schedules.apply()
    ask(shop, "update pgqueue.schedules set module = 'shop.jobs'")
    ann = person()
    assert "the code of shop.jobs" in ann.get("/schedule?name=declared").text
    asked = ann.get("/schedule/edit?name=declared")
    assert "shop.jobs declares it" in asked.text
    assert 'type="submit" class="main"' not in asked.text
    sent = ann.client.post(
        "/schedule/edit?name=declared",
        data={"pgqueue_csrf": key_in(asked), "task": "shop.other", "rule": "5m", "timezone": "UTC"},
        headers=ORIGIN,
    )
    assert sent.status_code == 400
    assert shop.schedules.get("declared").rule == "0 3 * * * UTC"


def test_adding_needs_the_right_to_enqueue_too(person: MakePerson) -> None:
    eve = person(Right.LOOK, Right.SCHEDULE)
    assert "/schedules/add" not in eve.get("/schedules").text
    assert eve.get("/schedules/add").status_code == 403
    assert person(Right.LOOK, Right.ENQUEUE).get("/schedules/add").status_code == 403
