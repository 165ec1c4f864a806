"""Queues in the admin: paused and closed with a reason, and settings edited with the checks of ``queue.control``."""

import re
from datetime import timedelta
from html import unescape
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.test import Client
from neighbours import django_admin_pages

from pgqueue.django.djangoqueue import project_queue
from pgqueue.values.queues.settings import QueueSettings
from pgqueue.values.queues.standing import QueueStanding

LIST = "/admin/pgqueue/queue/"
PAGE = f"{LIST}mail/change/"
EMPTY = {
    "priority": "",
    "max_attempts": "",
    "timeout": "",
    "keep_history": "",
    "keep_dead": "",
    "backlog": "",
    "ageing": "",
    "ageing_to": "",
    "when_full": "",
}

shared, empty = django_admin_pages.a_shared_database, django_admin_pages.an_empty_database
client = django_admin_pages.a_client


def act(client: Client, action: str, **more: str) -> list[str]:
    """Run an action on the queue mail; what the page says."""
    page = client.post(
        LIST, {"action": action, "_selected_action": "mail", **more}, follow=True
    ).content.decode()
    return re.findall(r'<li class="(?:success|warning|error|info)">(.*?)</li>', page)


def save(client: Client, **fields: str) -> Any:
    """Save the form of the queue mail as it is shown now, with these fields instead of empty ones; the answer."""
    return client.post(PAGE, EMPTY | hidden(client) | fields)


def hidden(client: Client) -> dict[str, str]:
    """What the form was shown with."""
    page = client.get(PAGE).content.decode()
    found = re.findall(r'<input type="hidden" name="(initial-\w+)"(?: value="([^"]*)")?', page)
    return dict(found)


def errors(answer: Any, field: str) -> str:
    (found,) = re.findall(
        rf'<ul class="errorlist" id="id_{field}_error">(.*?)</ul>', answer.content.decode(), re.DOTALL
    )
    return unescape(found)


def mail() -> QueueStanding:
    found = {one.queue: one for one in project_queue().insight.queues()}
    return found.get("mail", QueueStanding(queue="mail"))


def test_a_pause_and_a_close_have_a_reason_and_a_name_and_resume_ends_both(client: Client) -> None:
    assert act(client, "pause", why=" SMTP is down ") == ["1 queue paused."]
    assert (mail().paused_by, mail().paused_why) == ("root", "SMTP is down")
    assert act(client, "close", why="it moves") == ["1 queue closed."]
    assert act(client, "close") == ["1 queue not changed: closed already."]
    assert (mail().closed_by, mail().closed_why) == ("root", "it moves")
    page = client.get(PAGE).content.decode()
    assert all(word in page for word in ("SMTP is down", "it moves", 'value="resume"', 'name="why"'))
    assert 'value="pause"' not in page
    assert 'value="close"' not in page
    assert act(client, "resume") == ["1 queue resumed."]
    assert (mail().paused_at, mail().closed_at) == (None, None)
    assert act(client, "pause") == ["1 queue paused."]
    assert mail().paused_why is None


def test_the_state_of_a_closed_queue_is_shown(client: Client) -> None:
    act(client, "close")
    assert "pgqueue-closed" in client.get(PAGE).content.decode()
    act(client, "pause")
    assert "pgqueue-paused" in client.get(LIST).content.decode()


def test_settings_are_stored_shown_and_taken_away(client: Client) -> None:
    given = {
        "priority": "7",
        "max_attempts": "3",
        "timeout": "30",
        "keep_history": "0",
        "keep_dead": "5 00:00:00",
        "backlog": "10000",
        "when_full": "refuse",
    }
    assert save(client, **given).status_code == 302
    stored = QueueSettings(
        priority=7,
        max_attempts=3,
        timeout=timedelta(seconds=30),
        keep_history=timedelta(0),
        keep_dead=timedelta(days=5),
        backlog=10_000,
        when_full="refuse",
    )
    assert mail().settings == stored
    page = client.get(PAGE).content.decode()
    assert all(f'value="{shown}"' in page for shown in ("7", "3", "00:00:30", "5 00:00:00"))
    assert save(client, priority="7", keep_history="2 00:00:00").status_code == 302
    assert mail().settings == QueueSettings(priority=7, keep_history=timedelta(days=2))
    assert LogEntry.objects.count() == 2
    assert save(client).status_code == 302
    assert mail().settings == QueueSettings()


def test_what_another_operator_stored_meanwhile_and_the_form_did_not_change_stays(client: Client) -> None:
    queue = project_queue()
    queue.control.set("mail", priority=1, max_attempts=2)
    shown = hidden(client)
    assert shown["initial-max_attempts"] == "2"
    queue.control.set("mail", max_attempts=9, timeout=60)
    assert client.post(PAGE, EMPTY | shown | {"priority": "5", "max_attempts": "2"}).status_code == 302
    assert mail().settings == QueueSettings(priority=5, max_attempts=9, timeout=timedelta(minutes=1))


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("priority", "101", "priority=101"),
        ("max_attempts", "0", "max_attempts=0"),
        ("timeout", "0", "timeout="),
        ("keep_dead", "-1 00:00:00", "keep_dead="),
        ("backlog", "0", "backlog=0"),
        ("when_full", "warn", "the queue has no backlog"),
        ("timeout", "soon", "Enter a valid duration."),
    ],
)
def test_a_value_out_of_its_range_is_refused_at_its_field(
    client: Client, field: str, value: str, said: str
) -> None:
    answer = save(client, **{field: value})
    assert answer.status_code == 200
    assert said in errors(answer, field)
    assert mail().settings == QueueSettings()


def test_a_user_who_may_only_look_changes_nothing(client: Client) -> None:
    looks = User.objects.create_user("ann", is_staff=True)
    looks.user_permissions.add(Permission.objects.get(codename="view_queue"))
    client.force_login(looks)
    project_queue().control.set("mail", priority=3)
    page = client.get(PAGE).content.decode()
    assert 'name="priority"' not in page
    assert 'name="why"' not in page
    assert save(client, priority="9").status_code == 403
    act(client, "close")
    assert (mail().settings.priority, mail().closed_at) == (3, None)
    looks.user_permissions.add(Permission.objects.get(codename="change_queue"))
    client.force_login(User.objects.get(pk=looks.pk))
    assert save(client, priority="9").status_code == 302
    act(client, "close")
    assert (mail().settings.priority, mail().closed_at) == (9, None)
