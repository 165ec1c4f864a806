"""``pgqueue alerts`` and the page of alerts: how alerts stand, silence, what is wrong with one."""

from datetime import timedelta

import pytest
from cli.commands import pgqueue, printed
from looking import ask

from pgqueue import Alert, Backlog, PgQueue, SaturatedLimit
from pgqueue.dashboard import Dashboard, User
from pgqueue.store.alerts import alerts
from pgqueue.store.drive import drive
from pgqueue.testing.draining import look_at_alerts


@pytest.fixture
def watched(queue: PgQueue) -> PgQueue:
    """One alert that is firing, and one whose limit does not exist."""

    @queue.alert("<b>busy</b>", Backlog(queue="mail", over=0))
    @queue.alert("full", SaturatedLimit(limit="none"))
    @queue.task(name="ops.page", queue="ops")
    def page(alert: Alert) -> None: ...

    queue.alerts.apply()
    ask(queue, "select pgqueue.enqueue('send', '{}', queue => 'mail')")
    drive(look_at_alerts(), queue.database.run)
    return queue


@pytest.mark.usefixtures("watched")
def test_list_shows_how_each_stands_and_what_is_wrong(dsn: str) -> None:
    shown = pgqueue("alerts", "list", dsn=dsn)
    assert shown.exit_code == 0, shown.output
    assert "firing" in shown.output
    assert "queue mail: ready jobs: 1, over 0" in shown.output
    assert "full: InvalidOption: limit 'none'" in shown.output
    rows = {one["name"]: one for one in printed(pgqueue("alerts", "list", "--json", dsn=dsn))}
    assert (rows["<b>busy</b>"]["state"], rows["<b>busy</b>"]["value"]) == ("firing", 1.0)
    assert rows["full"]["state"] == "ok"


def test_silence_and_unsilence_are_in_the_audit(watched: PgQueue, dsn: str) -> None:
    assert (
        "silenced until" in pgqueue("alerts", "silence", "full", "--for", "2h", "--by", "ann", dsn=dsn).output
    )
    assert "full: silenced by ann until" in pgqueue("alerts", "list", dsn=dsn).output
    (status,) = [one for one in watched.alerts.list() if one.name == "full"]
    assert status.silenced_until is not None
    assert "told again" in pgqueue("alerts", "unsilence", "full", dsn=dsn).output
    assert all(one.silenced_until is None for one in watched.alerts.list())
    assert pgqueue("alerts", "remove", "full", dsn=dsn).exit_code == 0
    again = pgqueue("alerts", "remove", "full", dsn=dsn)
    assert again.exit_code == 1
    assert [one.action for one in watched.insight.audit()] == [
        "alert remove",
        "alert unsilence",
        "alert silence",
    ]


@pytest.mark.usefixtures("watched")
def test_what_makes_no_sense_is_said(dsn: str) -> None:
    wrong = pgqueue("alerts", "silence", "fall", "--for", "2h", dsn=dsn)
    assert wrong.exit_code == 2
    assert "did you mean 'full'" in wrong.output
    assert pgqueue("alerts", "silence", "full", "--for", "0", dsn=dsn).exit_code == 2
    assert pgqueue("alerts", "silence", "full", dsn=dsn).exit_code == 2


def test_the_dashboard_shows_active_alerts_escaped(watched: PgQueue) -> None:
    from werkzeug.test import Client  # noqa: PLC0415 - of the extra

    client = Client(Dashboard(watched, login=lambda _: User("ann")))
    overview, page = client.get("/overview").text, client.get("/alerts").text
    assert "&lt;b&gt;busy&lt;/b&gt;</a> has been firing" in overview
    assert "full</a> cannot be checked" in overview
    assert page.index("&lt;b&gt;busy") < page.index("there is none of this name")
    assert "<b>busy" not in overview + page
    ask(watched, "delete from pgqueue.jobs")
    later = ask(watched, "select now()")[0][0] + timedelta(minutes=1)
    watched.database.run(alerts.look("<b>busy</b>", now=later))
    assert "clearing" in client.get("/alerts").text
