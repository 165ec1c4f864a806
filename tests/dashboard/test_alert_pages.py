"""The pages of alerts: a page for each, with its rule in words, whom it notified, who silenced it and why."""

import re
from collections.abc import Callable
from datetime import timedelta

import pytest
from dashboard.people import Person
from dashboard.world import stored_alert
from looking import ask

from pgqueue import DeadJobs, Failures, OldestReady, PgQueue, SaturatedLimit, StalledWorkers
from pgqueue.app.insight.insight import Insight
from pgqueue.errors import NotGranted
from pgqueue.store.alerts import alerts
from pgqueue.store.insight import searching
from pgqueue.values.alerts.alert import Backlog, LateSchedule, UnservedTask, encode_condition
from pgqueue.values.alerts.words import about_of, meaning, meaning_of

MakePerson = Callable[..., Person]


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        (OldestReady(queue="mail", over=300), "a job of queue mail has been ready for more than 5 min"),
        (OldestReady(over=300), "a job has been ready for more than 5 min"),
        (Backlog(over=1000), "more than 1,000 jobs are ready"),
        (Failures(over=5, within=600, task="send"), "more than 5 attempts of task send failed within 10 min"),
        (DeadJobs(queue="mail", within=3600), "there are more than 0 dead jobs of queue mail that died within 60 min"),
        (LateSchedule(over=120), "the next tick of a schedule has been due for more than 2 min"),
        (StalledWorkers(over=2), "more than 2 live workers are stalled"),
        (UnservedTask(over=300), "no live worker has run the task of a job that waits, for more than 5 min"),
        (SaturatedLimit(limit="name:api"), "no place of limit name:api is free"),
    ],
)  # fmt: skip
def test_a_condition_is_said_in_words(rule: OldestReady, said: str) -> None:
    assert meaning(rule) == said
    assert meaning_of(encode_condition(rule)) == said


def test_a_condition_of_another_release_is_shown_as_it_is_stored() -> None:
    assert meaning_of('{"kind": "Later"}') == '{"kind": "Later"}'
    assert about_of('{"kind": "Later"}') == {}


def fire(queue: PgQueue, name: str) -> None:
    """A job waits for 10 minutes, and workers check the alert twice."""
    queue.task(name="shop.send", queue="mail")(lambda: None).enqueue()
    ask(
        queue,
        "update pgqueue.jobs set run_at = run_at - interval '10 minutes', created_at = created_at - interval '10 minutes'",
    )
    queue.database.run(alerts.look(name))


def test_the_page_of_an_alert_shows_its_rule_and_whom_it_notified(queue: PgQueue, person: MakePerson) -> None:
    name, ann = stored_alert(queue), person()
    fire(queue, name)
    listed = ann.get("/alerts").text
    assert 'href="/alert?name=slow+mail"' in listed or 'href="/alert?name=slow%20mail"' in listed
    assert re.search(r'<span>queue</span> <a href="/queue\?name=mail">', listed)
    page = ann.get(f"/alert?name={name}").text
    assert "a job of queue mail has been ready for more than 5 min" in page
    (job,) = queue.insight.search(task="shop.ops.page").jobs
    assert f'href="/jobs/{job.id}"' in page
    assert "firing" in page
    (told,) = ann.get(f"/api/alert?name={name}").json["notified"]  # type: ignore[index]  # JSON
    assert (told["job"], told["state"], told["reminder"]) == (job.id, "firing", 0)
    assert ann.get("/alert?name=none").status_code == 404


def test_a_notification_is_found_behind_many_jobs_of_other_tasks_and_of_this_alert_alone(
    queue: PgQueue, person: MakePerson, monkeypatch: pytest.MonkeyPatch
) -> None:
    for bound in ("FIRST", "READ"):  # jobs that a search by arguments reads
        monkeypatch.setattr(searching, bound, 10)
    monkeypatch.setattr(searching, "LOOKED_AT", 40)
    name, ann = stored_alert(queue), person()
    fire(queue, name)
    queue.enqueue_named("shop.ops.page", {"alert": {"name": "another", "state": "firing"}})
    queue.enqueue_many(queue.tasks["shop.send"].call() for _ in range(50))
    (told,) = ann.get(f"/api/alert?name={name}").json["notified"]  # type: ignore[index]  # JSON
    assert told["summary"].startswith("queue mail")


def test_who_silenced_it_until_when_and_why(queue: PgQueue, person: MakePerson) -> None:
    name, ann = stored_alert(queue), person()
    ann.do(f"/alert/silence?name={name}", length="2h", why="the disk is being replaced")
    page = ann.get(f"/alert?name={name}").text
    assert "Silenced by ann: the disk is being replaced" in page
    assert "silenced alert slow mail" in page
    ann.do(f"/alert/unsilence?name={name}", why="done")
    after = ann.get(f"/alert?name={name}").text
    assert "Silenced by ann" not in after
    assert "ended the silence of alert slow mail" in after
    queue.alerts.silence(name, timedelta(hours=1), by="bob")
    assert "the disk" not in ann.get(f"/alert?name={name}").text.partition("<dl")[0]


def test_a_login_that_may_not_read_arguments_sees_the_rest(
    queue: PgQueue, person: MakePerson, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise NotGranted("no")

    name = stored_alert(queue)
    monkeypatch.setattr(Insight, "search", refused)
    page = person().get(f"/alert?name={name}")
    assert page.status_code == 200
    assert "may not read arguments" in page.text
