"""The pages of figures: overview, queues, limits, and what is done on them.

What charts look like: ticks, lines with gaps, areas on each other, words for those who do not see them.
"""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote
from uuid import uuid4
from xml.etree import ElementTree as ET

import msgspec
import psycopg
import pytest
from dashboard.people import Person, die
from dashboard.world import stored_alert
from looking import ask

from pgqueue import Limit, PgQueue, chain
from pgqueue.dashboard import Right
from pgqueue.dashboard.charts import Chart, Curve, Unit, describe_chart, format_figure, svg
from pgqueue.store.insight import series

EMPTY = {
    "/overview": "No worker has measured a job",
    "/queues": "No queue is known yet",
    "/limits": "No task declares a limit",
    "/compare": "No worker has measured a job",
    "/schedules": "No schedule is stored",
    "/alerts": "No alert is stored",
    "/workflows": "No chain, group or workflow",
    "/audit": "No operator has done anything",
    "/store": "PostgreSQL",
}
BEFORE_DST = datetime(2027, 3, 20, tzinfo=UTC)
HOSTILE = "<script>alert(1)</script>/../?&%00\"'"


@pytest.mark.parametrize("path", EMPTY)
def test_an_empty_database_is_said_to_be_empty(person: Callable[..., Person], path: str) -> None:
    page = person().get(path)
    assert page.status_code == 200
    assert EMPTY[path] in page.text
    assert person().get(f"/api{path}").json is not None


def test_the_overview_shows_what_waits_and_what_happened(
    queue: PgQueue, person: Callable[..., Person]
) -> None:
    @queue.task(name="sell")
    def sell() -> None: ...

    die(queue, "buy", {"order_id": 7}, error=ValueError("no stock"))
    sell.enqueue()
    queue.control.pause("default", why="<b>stock-taking</b>", by="ann")

    page = person().get("/overview?window=24h")

    assert "Attempts that ended" in page.text
    assert "&lt;b&gt;stock-taking&lt;/b&gt;" in page.text
    assert 'window=24h" aria-current="true"' in page.text
    now: Any = person().get("/api/overview").json
    assert (now["now"]["ready"], now["now"]["dead"]) == (1, 1)
    assert (now["now"]["oldest"], now["now"]["oldest_in"]) == (None, None), (
        "the only ready job is in a paused queue"
    )
    assert person().get("/overview?window=2h").status_code == 400


def test_the_overview_and_a_queue_show_how_many_jobs_there_were(
    queue: PgQueue, person: Callable[..., Person]
) -> None:
    @queue.task(name="sell", queue="shop")
    def sell() -> None: ...

    jobs = queue.enqueue_many(sell.call() for _ in range(7_654))
    queue.database.run(series.note(now=datetime.now(UTC) - timedelta(minutes=5)))
    queue.enqueue_many(sell.call() for _ in range(1_000))
    ask(queue, "update pgqueue.jobs set queue = 'other' where id = %s returning id", jobs[0].id)
    queue.database.run(series.note())

    for path, highest in (("/overview", "8,654"), ("/queue?name=shop", "8,653")):
        page = person().get(path).text
        assert "Jobs, the most in each minute" in page
        assert "Oldest ready job had waited" in page
        assert f"Ready: from 7,654 to {highest}, at last {highest}" in page
    empty = person().get("/queue?name=other&window=30d")
    assert re.search("Ready: from [01] to 1, at last 1", empty.text), (
        "the first note may be of the hour before"
    )
    shown: Any = person().get("/api/overview").json
    assert [one["name"] for one in shown["charts"]][-2:] == ["depth", "oldest"]


def test_an_alert_is_silenced_for_the_time_that_is_typed(
    queue: PgQueue, person: Callable[..., Person]
) -> None:
    name, ann = quote(stored_alert(queue)), person()
    for wrong in ("", "0", "soon", "9999d", "-1h"):
        answer = ann.do(f"/alert/silence?name={name}", length=wrong)
        assert (answer.status_code, 'role="alert"' in answer.text) == (400, True), wrong
    assert queue.alerts.list()[0].silenced_until is None

    assert "is silenced until" in ann.do(f"/alert/silence?name={name}", length="90m").text

    (now,) = queue.alerts.list()
    assert now.silenced_until is not None
    left = now.silenced_until - datetime.now(UTC)
    assert timedelta(minutes=80) < left <= timedelta(minutes=90)
    assert now.silenced_by == "ann"
    page = ann.get("/alerts").text
    assert "silenced by ann, ends" in page
    assert "End silence…" in page
    eve = person(Right.SET, Right.SCHEDULE)
    assert eve.get(f"/alert/silence?name={name}").status_code == 403
    assert "End silence…" not in eve.get("/alerts").text
    assert ann.get("/alert/silence?name=none").status_code == 404


def test_a_queue_is_paused_closed_and_resumed(queue: PgQueue, person: Callable[..., Person]) -> None:
    @queue.task(name="sell")
    def sell() -> None: ...

    sell.enqueue()
    ann = person()
    assert "Nothing is set" in ann.get("/queue?name=default").text

    assert "Queue default is paused." in ann.do("/queue/pause?name=default", why="stock").text
    assert "Queue default takes no new jobs." in ann.do("/queue/close?name=default").text
    (known,) = queue.insight.queues()
    assert (known.paused_by, known.paused_why, known.closed_by) == ("ann", "stock", "ann")
    assert "This holds already" in ann.get("/queue/pause?name=default").text
    assert "Queue default is resumed." in ann.do("/queue/resume?name=default").text
    assert queue.insight.queues()[0].paused_at is None
    assert [one.by for one in queue.insight.audit()] == ["ann"] * 3


def test_settings_of_a_queue_are_changed_and_taken_away(
    queue: PgQueue, person: Callable[..., Person]
) -> None:
    queue.control.set("mail", priority=5, timeout=90, backlog=1_000)
    ann, path = person(), "/queue/set?name=mail"
    asked = ann.get(path).text
    assert 'name="timeout" type="text" value="90s"' in asked

    ann.do(path, priority="", timeout="1.5h", backlog="1000", keep_history="0", when_full="refuse")

    now = queue.insight.queues()[0].settings
    assert now.priority is None
    assert now.timeout == timedelta(minutes=90)
    assert (now.backlog, now.keep_history, now.when_full) == (1_000, timedelta(0), "refuse")
    for wrong in ({"timeout": "soon"}, {"priority": "x"}, {"keep_history": "6h"}, {"backlog": "0"}):
        answer = ann.do(path, **wrong)
        assert answer.status_code == 400, wrong
        assert "note bad" in answer.text
    assert queue.insight.queues()[0].settings == now


def test_a_limit_says_who_holds_it_and_is_set(queue: PgQueue, person: Callable[..., Person]) -> None:
    @queue.task(name="call", limit=Limit(1, by="tenant", name="api"))
    def call(tenant: str) -> None: ...

    held, _ = call.enqueue(tenant="<b>"), call.enqueue(tenant="<b>")
    worker = uuid4()
    ask(
        queue,
        "insert into pgqueue.workers (id, lease_until, host, pid, concurrency, version) "
        "values (%s, now() + '1 h'::interval, 'web', 42, 5, '0.1')",
        worker,
    )
    ask(
        queue,
        "update pgqueue.jobs set status = 'running', worker_id = %s, claimed_at = now() where id = %s",
        worker,
        held.id,
    )
    ann = person()
    page = ann.get("/limit?name=name:api").text
    assert f"/jobs/{held.id}" in page
    assert "web:42" in page
    assert "1 at once" in page
    assert "&lt;b&gt;" in page
    assert "<b>" not in page
    assert "api" in ann.get("/limits").text

    assert "Limit name:api: 3 at once per tenant." in ann.do("/limit/set?name=name:api", most="3").text
    assert 'name="rate"' not in ann.get("/limit/set?name=name:api").text
    assert "burst 5" in ann.do("/limit/set?name=queue:shop", rate="60/minute", burst="5").text
    assert 'name="most"' not in ann.get("/limit/set?name=queue:shop").text
    for wrong in ({"most": "no"}, {"most": "", "burst": "2"}, {"rate": "fast"}):
        assert ann.do("/limit/set?name=name:api", **wrong).status_code == 400
    assert ann.do("/limit/set?name=queue:both", most="5", rate="9/minute").status_code == 400
    assert "queue:both" not in ann.get("/limits").text
    assert "as the code says" in ann.do("/limit/unset?name=name:api").text
    assert queue.insight.limit("name:api").limit.numbers.most == 1
    assert "queue:mail: 2 at once" in ann.do("/limit/set?name=queue:mail", most="2").text
    assert ann.get("/limit?name=nope").status_code == 404


def test_names_are_text_wherever_they_come_from(queue: PgQueue, person: Callable[..., Person]) -> None:
    name = "<script>alert('1')</script>/%2e%2e/?&\""
    queue.control.pause(name, why=HOSTILE, by=HOSTILE[:40])
    ann = person()
    for path in ("/overview", "/queues"):
        page = ann.get(path)
        assert page.status_code == 200
        assert "<script>alert" not in page.text
    one = ann.client.get("/queue", query_string={"name": name})
    assert one.status_code == 200
    assert "<script>alert" not in one.text
    for path in (
        "/queue",
        "/limit",
        "/queue/pause",
        "/queue/set",
        "/limit/set",
        "/limit/unset",
        "/schedule",
        "/schedule/fire",
    ):
        for given in ({}, {"name": HOSTILE}, {"name": "x" * 2_000}, {"name": "\0"}):
            answer = ann.client.get(path, query_string=given)
            assert answer.status_code in {200, 400, 404}, (path, given)
            assert "<script>alert" not in answer.text


def test_users_without_the_right_see_no_buttons(queue: PgQueue, person: Callable[..., Person]) -> None:
    queue.control.pause("mail")
    for eve in (person(Right.LOOK), person(actions=False)):
        page = eve.get("/queue?name=mail").text
        assert "Resume…" not in page
        assert "Settings…" not in page
        assert eve.get("/queue/resume?name=mail").status_code == 403
    assert "Resume…" in person().get("/queue?name=mail").text


def test_a_schedule_shows_its_ticks_across_a_clock_change_and_is_steered(
    queue: PgQueue, person: Callable[..., Person]
) -> None:
    @queue.task(name="report")
    def report(password: str, to: str) -> None: ...

    name = "report <b>of</b> customer 7/8?"
    queue.schedules.add(
        name, report.call("hunter22", to="ann"), "30 2 * * *", timezone="Europe/Berlin", start=BEFORE_DST
    )
    ann = person()
    path = f"name={quote(name)}"

    page = ann.get(f"/schedule?{path}").text
    assert "hunter22" not in page
    assert "<b>of" not in page
    assert "Europe/Berlin" in page
    assert "shifted: this time does not exist" in page
    assert "is paused." in ann.do(f"/schedule/pause?{path}").text
    assert queue.schedules.get(name).paused_by == "ann"
    assert "cannot be done" in ann.get(f"/schedule/pause?{path}").text
    assert "is resumed." in ann.do(f"/schedule/resume?{path}").text
    assert "has fired: job" in ann.do(f"/schedule/fire?{path}").text
    (run,) = queue.schedules.runs(name)
    assert f"/jobs/{run.job_id}" in ann.get(f"/schedule?{path}").text
    assert "at 02:30 every day, Europe/Berlin" in ann.get("/schedules").text
    assert ann.get("/schedule?name=nope").status_code == 404


def test_a_workflow_is_drawn_and_cancelled_and_retried(queue: PgQueue, person: Callable[..., Person]) -> None:
    @queue.task(name="step")
    def step(number: int) -> None: ...

    flow = chain(step.call(1), step.call(2), name="</svg><script>alert(1)</script>").enqueue()
    ann, path = person(), f"/workflows/{flow.id}"

    page = ann.get(path).text
    assert '<svg class="flow"' in page
    assert "<script>alert" not in page
    assert all(f"/jobs/{job.id}" in page for job in flow.jobs)
    assert "alert(1)" in ann.get("/workflows?state=running").text
    assert "No workflow matches" in ann.get("/workflows?state=failed").text
    assert ann.get("/workflows?state=flying").status_code == 400
    assert ann.get("/workflows/999").status_code == 404

    assert f"Workflow {flow.id} is cancelled." in ann.do(f"{path}/cancel").text
    assert flow.status() == "cancelled"
    assert "cannot be done" in ann.get(f"{path}/cancel").text
    assert "2 nodes run again" in ann.do(f"{path}/retry").text


def test_the_audit_shows_who_did_what_without_secrets(queue: PgQueue, person: Callable[..., Person]) -> None:
    for number in range(51):
        queue.control.pause(f"mail-{number}", why="<i>stock</i>", by="bob")
    queue.control.pause("last", why="password=hunter22", by="ann")
    ann = person()

    page = ann.get("/audit").text

    assert "bob" in page
    assert "<i>stock" not in page
    assert "hunter22" not in page
    assert "mail-0<" not in page
    older = re.search(r'href="([^"]*below=\d+)"', page)
    assert older is not None
    assert "mail-0<" in ann.get(older[1]).text


def test_the_store_names_what_holds_vacuum_back(
    queue: PgQueue, person: Callable[..., Person], connection: psycopg.Connection[Any]
) -> None:
    connection.execute("set application_name = '<u>old</u>'")
    connection.commit()
    connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    connection.execute("select 1 from pgqueue.jobs")
    queue.control.pause("mail")

    page = person().get("/store").text

    assert "&lt;u&gt;old&lt;/u&gt;" in page
    assert "idle in transaction" in page
    assert "jobs" in page


START = datetime(2026, 3, 29, 0, 0, tzinfo=UTC)


def _chart(*curves: Curve, step: float = 60, unit: Unit = "count", stacked: bool = False) -> Chart:
    at = tuple(START + timedelta(seconds=step * place) for place in range(len(curves[0].values)))
    return Chart(name="one", title="<One>", unit=unit, step=step, at=at, curves=curves, stacked=stacked)


def _texts(chart: Chart) -> list[str]:
    return [one.text or "" for one in ET.fromstring(svg(chart)).iter("text")]  # noqa: S314 - our own


@pytest.mark.parametrize(
    ("highest", "unit", "labels"),
    [
        (0, "count", ["0", "1"]),
        (3, "count", ["0", "1", "2", "3"]),
        (17, "count", ["0", "5", "10", "15", "20"]),
        (41_000, "count", ["0", "20k", "40k", "60k"]),
        (2.5e9, "count", ["0", "1G", "2G", "3G"]),
        (0.0034, "seconds", ["0", "1 ms", "2 ms", "3 ms", "4 ms"]),
        (50, "seconds", ["0", "15 s", "30 s", "45 s", "1 min"]),
        (4 * 86_400, "seconds", ["0", "1 d", "2 d", "3 d", "4 d"]),
        (1e9, "seconds", None),
    ],
)
def test_an_axis_has_few_ticks_at_round_values(highest: float, unit: Unit, labels: list[str] | None) -> None:
    found = _texts(_chart(Curve("a", "blue", (0.0, float(highest))), unit=unit))[:-1]
    assert len(found) <= 7
    if labels is not None:
        assert [one for one in found if ":" not in one and "Mar" not in one] == labels


@pytest.mark.parametrize("step", [60, 300, 1_800, 3_600, 43_200, 86_400])
@pytest.mark.parametrize("steps", [2, 60, 61, 96])
def test_the_axis_of_time_has_at_most_seven_dates(step: int, steps: int) -> None:
    dates = [
        one for one in _texts(_chart(Curve("a", "blue", (1.0,) * steps), step=step)) if one not in {"0", "1"}
    ]
    assert 1 <= len(dates) <= 7
    assert "00:00" not in dates


def test_a_step_that_is_not_over_is_dashed_or_paler() -> None:
    lines = _chart(Curve("a", "blue", (1.0, 2.0, 3.0)), unit="seconds")
    soon = msgspec.structs.replace(lines, unfinished=True)
    assert "soon" not in svg(lines)
    assert (svg(soon).count('class="line blue"'), svg(soon).count('class="line soon blue"')) == (1, 1)
    areas = _chart(Curve("a", "good", (1.0, 2.0, 3.0)), stacked=True)
    drawn = svg(msgspec.structs.replace(areas, unfinished=True))
    assert (drawn.count('class="area good"'), drawn.count('class="area soon good"')) == (1, 1)


def test_steps_in_which_nobody_looked_are_shaded() -> None:
    chart = _chart(
        Curve("a", "blue", (None, 1.0, None, None, 2.0, None)),
        Curve("b", "good", (None, None, None, None, 1.0, None)),
    )
    assert 'class="gap"' not in svg(chart)
    shaded = msgspec.structs.replace(chart, gap="no worker looked")
    assert shaded.gaps == [(0, 0), (2, 3), (5, 5)]
    assert svg(shaded).count('class="gap"') == 3
    assert msgspec.structs.replace(shaded, unfinished=True).gaps == [(0, 0), (2, 3)], (
        "the last step is not over"
    )


def test_a_line_has_a_gap_where_there_is_no_figure() -> None:
    drawn = svg(_chart(Curve("a", "blue", (1.0, 2.0, None, 3.0, None, 4.0, 5.0))))
    assert drawn.count('class="line blue"') == 2
    assert drawn.count('class="point blue"') == 1


def test_areas_stand_on_each_other() -> None:
    drawn = svg(_chart(Curve("a", "good", (4.0, 4.0)), Curve("b", "bad", (4.0, 4.0)), stacked=True))
    heights = [float(one) for one in re.findall(r'class="area \w+" d="M[\d.]+ ([\d.]+)', drawn)]
    assert heights == [79.0, 10.0]


def test_a_chart_says_in_words_what_it_shows() -> None:
    chart = _chart(Curve("a", "blue", (1.0, 7.0, 3.0)), Curve("b", "bad", (None, None, None)))
    assert describe_chart(chart) == "a: from 1 to 7, at last 3. b: no figures. Times are UTC."
    root = ET.fromstring(svg(chart))  # noqa: S314 - our own
    assert root.get("role") == "img"
    named = (root.get("aria-labelledby") or "").split()
    assert [next(one.text for one in root.iter() if one.get("id") == name) for name in named] == [
        "<One>",
        describe_chart(chart),
    ]


def test_hostile_names_stay_text_and_no_style_is_in_it() -> None:
    drawn = svg(_chart(Curve("</svg><script>x()</script>", "blue", (1.0, 2.0))))
    assert "<script" not in drawn
    assert "style" not in drawn
    assert not _chart(Curve("a", "blue", (1.0,))).empty
    assert _chart(Curve("a", "blue", (0.0, None))).empty
    svg(_chart(Curve("a", "blue", (1.0,))))


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (None, "—"),
        (0, "0 ms"),
        (2e-5, "20 µs"),
        (0.0125, "12.5 ms"),
        (1, "1 s"),
        (90, "90 s"),
        (300, "5 min"),
        (9e4, "25 h"),
        (1e8, "1,157 d"),
    ],
)
def test_lengths_of_time_have_units(seconds: float | None, words: str) -> None:
    assert format_figure(seconds, "seconds") == words
