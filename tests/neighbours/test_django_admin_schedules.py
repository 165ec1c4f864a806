"""Schedules in the admin: added, edited and deleted with the checks of ``queue.schedules``; declared ones are only shown."""

import re
from datetime import UTC, datetime, timedelta
from html import unescape
from typing import Any

import pytest
from ciphers import Secret
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client
from neighbours import django_admin_pages

from pgqueue import Task
from pgqueue.app.schedules.schedules import Schedules
from pgqueue.django.djangoqueue import project_queue
from pgqueue.errors import UnknownSchedule
from pgqueue.store.schedules import schedules as plans
from pgqueue.values.schedules.schedule import NewSchedule, Timing

LIST = "/admin/pgqueue/schedule/"
ADD = f"{LIST}add/"
CONFIRM = "neighbours.project.shop.tasks.confirm"
FORM: dict[str, str] = {
    "name": "nightly",
    "task": CONFIRM,
    "arguments": '{"order_id": 7}',
    "cron": "0 3 * * *",
    "timezone": "Europe/London",
    "jitter": "0",
    "missed": "latest",
    "missed_limit": "100",
    "tolerance": "60",
    "overlap": "allow",
}
WHEN = datetime(2031, 5, 4, 12, 0, 1, 234567, tzinfo=UTC)


shared, empty = django_admin_pages.a_shared_database, django_admin_pages.an_empty_database
client = django_admin_pages.a_client


@pytest.fixture
def confirm() -> Task[..., Any]:
    return project_queue().tasks[CONFIRM]


def stored() -> Schedules:
    return project_queue().schedules


def noted_last() -> tuple[str | None, str, str]:
    (last,) = project_queue().insight.audit(limit=1)
    return last.by, last.action, last.target


def page_of(name: str) -> str:
    return f"{LIST}{name}/change/"


def messages(page: str) -> list[str]:
    return [
        unescape(one) for one in re.findall(r'<li class="(?:success|warning|error|info)">(.*?)</li>', page)
    ]


def errors(page: str) -> dict[str, str]:
    """The errors of a form by their fields; an empty name: of the whole form."""
    rows = re.findall(r'(?:field-(\w+)[^>]*>)|<ul class="errorlist[^>]*><li>(.*?)</li>', page, re.DOTALL)
    found, field = dict[str, str](), ""
    for named, said in rows:
        field = named or field
        if said:
            found[field] = unescape(said)
    return found


def post(client: Client, path: str, **changes: str | None) -> str:
    """Send the form with these changes; the page to which it leads."""
    data = {name: value for name, value in (FORM | changes).items() if value is not None}
    response = client.post(path, data, follow=True)
    assert response.status_code == 200
    return response.content.decode()


def staff(*permissions: str) -> Client:
    user = User.objects.create_user("staff", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    found = Client()
    found.force_login(user)
    return found


def test_a_schedule_is_added_with_all_its_options(client: Client) -> None:
    assert 'name="cron"' in client.get(ADD).content.decode()
    page = post(client, ADD, queue="mail", priority="5", max_attempts="3", gap="skip", repeat="twice", jitter="90",
                missed="all", missed_limit="7", tolerance="00:02:00", overlap="queue", start_0="2031-05-04", start_1="12:00:00")  # fmt: skip
    assert "was added successfully" in messages(page)[0]
    found = stored().get("nightly")
    assert (found.task, found.args, found.queue, found.priority, found.max_attempts) == (
        CONFIRM,
        {"order_id": 7},
        "mail",
        5,
        3,
    )
    assert found.timing == Timing(
        cron="0 3 * * *", timezone="Europe/London", gap="skip", repeat="twice", jitter=timedelta(seconds=90), missed="all",
        missed_limit=7, tolerance=timedelta(minutes=2), overlap="queue", start=datetime(2031, 5, 4, 12, tzinfo=UTC),
    )  # fmt: skip
    assert found.module is None
    assert LogEntry.objects.get().object_repr == "nightly"
    assert noted_last() == ("root", "schedule add", "nightly")


@pytest.mark.parametrize(
    ("changes", "field", "says"),
    [
        ({"cron": "0 0 31 2 *"}, "cron", "no month of"),
        ({"cron": "every day"}, "cron", "it has 2 fields"),
        ({"timezone": "Europe/Londn"}, "timezone", "did you mean 'Europe/London'"),
        ({"every": "60"}, "cron", "give exactly one of the three"),
        ({"cron": ""}, "cron", "give exactly one of the three"),
        ({"cron": "", "every": "0.1"}, "every", "from 1 second to 10 years"),
        ({"cron": "", "at_0": "2001-01-01", "at_1": "00:00:00"}, "", "has no tick after"),
        ({"arguments": "{}"}, "", "order_id"),
        ({"arguments": '{"order_id": "x"}'}, "", "order_id"),
        ({"arguments": '{"order_id": 1, "self": 2}'}, "", "self"),
        ({"arguments": "[1]"}, "arguments", "Enter a JSON object"),
        ({"arguments": "{"}, "arguments", "Enter a valid JSON"),
        ({"arguments": '{"order_id": ' + "7" * 5000 + "}"}, "arguments", "Enter a valid JSON"),
        ({"arguments": '{"a": ' + "[" * 100_000 + "]" * 100_000 + "}"}, "arguments", "Enter a valid JSON"),
        ({"name": "x" * 201}, "name", "1 to 200 characters"),
        ({"name": "x\0"}, "name", "Null characters"),
        ({"priority": "101"}, "priority", "-100"),
        ({"max_attempts": "0"}, "max_attempts", "0"),
        ({"queue": "two words"}, "queue", "white space"),
        ({"jitter": "2 00:00:00"}, "jitter", "1 day"),
        ({"missed_limit": "0"}, "missed_limit", "from 1 to 1,000"),
        ({"start_0": "2032-01-01", "start_1": "00:00", "end_0": "2031-01-01", "end_1": "00:00"}, "start", "there would be no tick"),
        ({"anchor_0": "2032-01-01", "anchor_1": "00:00"}, "anchor", "only every=... has an anchor"),
        ({"task": "no.such.task"}, "task", "Select a valid choice"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused_at_its_field(
    client: Client, changes: dict[str, str], field: str, says: str
) -> None:
    page = post(client, ADD, **changes)
    assert says in errors(page)[field]
    assert stored().find() == []


def test_a_name_that_is_taken_is_refused(client: Client, confirm: Task[..., Any]) -> None:
    stored().add("nightly", confirm.call(1), "@daily")
    assert "already exists" in errors(post(client, ADD))["name"]
    assert stored().get("nightly").args == {"order_id": 1}


def test_a_name_that_is_taken_meanwhile_is_told_on_the_list(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    add = Schedules.add

    def taken(self: Schedules, name: str, *given: Any, **timing: Any) -> None:
        add(self, name, *given, **timing)
        add(self, name, *given, **timing)

    monkeypatch.setattr(Schedules, "add", taken)
    (told,) = messages(post(client, ADD))
    assert told.startswith("Schedule 'nightly' exists already")


def test_an_edit_changes_what_was_edited_and_keeps_the_rest(client: Client, confirm: Task[..., Any]) -> None:
    job = confirm.using(unique_key="one", meta={"tag": "x"}, priority=3, queue="mail")
    stored().add("nightly", job.call(1), every=3600, start=WHEN, end=WHEN + timedelta(days=1), jitter=1.5)
    page = client.get(page_of("nightly")).content.decode()
    given = dict(re.findall(r'<input type="text" name="(\w+)" value="([^"]*)"', page))
    assert given["start_1"] == "12:00:01"
    changes = dict.fromkeys(FORM, None) | given | {"task": CONFIRM, "missed": "latest", "overlap": "skip", "missed_limit": "100", "priority": "3", "arguments": '{"order_id": 9}'}  # fmt: skip
    page = post(client, page_of("nightly"), **changes)
    assert "was changed successfully" in messages(page)[0]
    found = stored().get("nightly")
    assert (found.args, found.priority, found.queue) == ({"order_id": 9}, 3, "mail")
    assert (found.unique_key, found.meta) == ("one", {"tag": "x"})
    assert noted_last() == ("root", "schedule put", "nightly")
    assert found.timing == Timing(
        every=timedelta(hours=1), start=WHEN, end=WHEN + timedelta(days=1), jitter=timedelta(seconds=1.5), overlap="skip"
    )  # fmt: skip


def test_a_name_cannot_be_edited(client: Client, confirm: Task[..., Any]) -> None:
    stored().add("nightly", confirm.call(7), "0 3 * * *", timezone="Europe/London")
    post(client, page_of("nightly"), name="another", overlap="skip")
    assert [(one.name, one.timing and one.timing.overlap) for one in stored().find()] == [("nightly", "skip")]


def test_with_a_codec_arguments_are_shown_in_clear_and_stored_encoded(
    client: Client, confirm: Task[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(project_queue(), "codec", Secret("k1"))
    stored().add("nightly", confirm.using(unique_key="one").call(4711), "@daily")
    key = stored().get("nightly").unique_key
    assert "4711" in client.get(page_of("nightly")).content.decode()
    post(client, page_of("nightly"), arguments='{"order_id": 4712}')
    assert stored().get("nightly").args == {"order_id": 4712}
    assert stored().get("nightly").unique_key == key
    with connection.cursor() as cursor:
        cursor.execute("select args::text from pgqueue.schedules")
        assert "4712" not in str(cursor.fetchall())
    monkeypatch.setattr(project_queue(), "codec", Secret("k2"))
    page = client.get(page_of("nightly")).content.decode()
    unread = unescape(re.findall(r"<textarea[^>]*>(.*?)</textarea>", page, re.DOTALL)[0]).strip()
    assert "(unreadable)" in unread
    assert "enter them again" in errors(post(client, page_of("nightly"), arguments=unread))["arguments"]


def test_a_schedule_that_was_set_aside_is_mended(client: Client, confirm: Task[..., Any]) -> None:
    stored().add("nightly", confirm.call(7), "@daily")
    with connection.cursor() as cursor:
        cursor.execute("update pgqueue.schedules set cron = 'nonsense', error = 'wrong', failed_at = now()")
    assert "wrong" in client.get(page_of("nightly")).content.decode()
    post(client, page_of("nightly"))
    assert (stored().get("nightly").state, stored().get("nightly").rule) == (
        "active",
        "0 3 * * * Europe/London",
    )


def test_a_schedule_that_is_removed_meanwhile_is_told(
    client: Client, confirm: Task[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    stored().add("nightly", confirm.call(7), "@daily")
    get = Schedules.get

    def removed(self: Schedules, name: str) -> Any:
        self.remove(name)
        return get(self, name)

    monkeypatch.setattr(Schedules, "get", removed)
    (told,) = messages(post(client, page_of("nightly")))
    assert told.startswith("There is no schedule 'nightly'")


def test_a_declared_schedule_is_shown_with_the_reason_and_not_changed(
    client: Client, confirm: Task[..., Any]
) -> None:
    new = NewSchedule(
        name="declared", job=confirm.call(7).job, timing=Timing(cron="@daily"), module="shop.jobs"
    )
    project_queue().database.run(plans.apply([new], ["shop.jobs"]))
    page = client.get(page_of("declared")).content.decode()
    assert "The code of shop.jobs declares it" in page
    assert 'name="cron"' not in page
    assert 'name="_save"' not in page
    assert 'name="action" value="pause"' in page
    assert client.post(page_of("declared"), FORM).status_code == 403
    assert client.post(f"{LIST}declared/delete/", {"post": "yes"}).status_code == 403
    data = {"action": "delete_selected", "index": 0, "_selected_action": ["declared"], "post": "yes"}
    client.post(LIST, data, follow=True)
    assert stored().get("declared").timing == Timing(cron="@daily")


def test_a_schedule_of_another_apps_task_is_only_shown(client: Client) -> None:
    with connection.cursor() as cursor:
        cursor.execute("select pgqueue.schedule('theirs', 'their.task', cron => '@daily')")
    page = client.get(page_of("theirs")).content.decode()
    assert "This project has no task their.task" in page
    assert 'name="cron"' not in page
    assert client.post(page_of("theirs"), FORM).status_code == 403


def test_schedules_are_deleted_one_or_several(client: Client, confirm: Task[..., Any]) -> None:
    for name in ("a", "b/c d", "e"):
        stored().add(name, confirm.call(7), "@daily")
    client.post(f"{LIST}a/delete/", {"post": "yes"})
    with pytest.raises(UnknownSchedule):
        stored().get("a")
    data = {"action": "delete_selected", "index": 0, "_selected_action": ["b/c d", "e"], "post": "yes"}
    page = client.post(LIST, data, follow=True).content.decode()
    assert messages(page)[-1] == "Successfully deleted 2 schedules."
    assert stored().find() == []
    noted = [(one.by, one.action, one.target) for one in project_queue().insight.audit(limit=3)]
    assert noted == [("root", "schedule remove", name) for name in ("e", "b/c d", "a")]


def test_a_name_with_any_characters_has_a_form(client: Client) -> None:
    name = "rep/ort <b> 'of' \"customer\" %s {x} \u6771 _2F"
    post(client, ADD, name=name)
    (found,) = stored().find()
    assert found.name == name
    (path,) = re.findall(rf'<a href="({LIST}[^"]*/change/)', client.get(LIST).content.decode())
    post(client, unescape(path), name=name, overlap="skip")
    assert stored().get(name).timing == Timing(cron="0 3 * * *", timezone="Europe/London", overlap="skip")


@pytest.mark.parametrize("permission", ["add", "change", "delete"])
def test_each_permission_allows_its_own(permission: str, confirm: Task[..., Any]) -> None:
    stored().add("nightly", confirm.call(7), "0 3 * * *", timezone="Europe/London")
    client = staff("view_schedule", f"{permission}_schedule")
    assert (client.get(ADD).status_code == 200) == (permission == "add")
    assert ('name="cron"' in client.get(page_of("nightly")).content.decode()) == (permission == "change")
    added = client.post(ADD, FORM | {"name": "other"}).status_code
    changed = client.post(page_of("nightly"), FORM | {"overlap": "skip"}).status_code
    deleted = client.post(f"{LIST}nightly/delete/", {"post": "yes"}).status_code
    allowed = {"add": added, "change": changed, "delete": deleted}
    assert allowed.pop(permission) == 302
    assert [*allowed.values()] == [403, 403]


def test_an_edit_shows_no_secret_and_keeps_it(
    client: Client, confirm: Task[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(project_queue(), "redact", ("order_id",))
    stored().add("nightly", confirm.call(4711), "@daily")
    page = client.get(page_of("nightly")).content.decode()
    assert "4711" not in page
    assert "•••" in page
    changed = {"cron": "@hourly", "timezone": "UTC", "name": None}
    page = post(client, page_of("nightly"), **changed, arguments='{"order_id": "•••"}')
    assert "was changed successfully" in messages(page)[0]
    assert (stored().get("nightly").rule, stored().get("nightly").args) == ("@hourly UTC", {"order_id": 4711})
    post(client, page_of("nightly"), **changed, arguments='{"order_id": 8}')
    assert stored().get("nightly").args == {"order_id": 8}


def test_a_secret_does_not_go_to_another_task_by_an_edit(
    client: Client, confirm: Task[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(project_queue(), "redact", ("order_id",))
    other = next(name for name in project_queue().tasks if name != CONFIRM)
    stored().add("nightly", confirm.call(4711), "@daily")
    changed = {"cron": "@daily", "timezone": "UTC", "name": None, "task": other}
    page = post(client, page_of("nightly"), **changed, arguments='{"order_id": "•••"}')
    assert "write the value itself" in page
    assert stored().get("nightly").args == {"order_id": 4711}
