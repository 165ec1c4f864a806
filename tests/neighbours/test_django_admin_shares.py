"""Shares in the admin: their weights are seen and changed with the checks of ``queue.control``."""

import re
from collections.abc import Iterator
from html import unescape
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.admin.utils import quote
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client
from neighbours import django_admin_pages
from neighbours.django_backend_database import database
from pytest_postgresql.executors import NoopExecutor

from pgqueue.django.djangoqueue import project_queue
from pgqueue.values.limits.limit import Limit

LIST = "/admin/pgqueue/share/"
ACME = ' {"tenant":"acme"}'

empty, client = django_admin_pages.an_empty_database, django_admin_pages.a_client


@pytest.fixture(scope="module")
def shared(django_server: NoopExecutor) -> Iterator[dict[str, str]]:
    with database(django_server, "pgqueue_test_django_admin_shares") as where:
        yield where


@pytest.fixture(autouse=True)
def shares(empty: None) -> None:  # noqa: ARG001 - the database
    """The weight of a share, and a limit, which is none."""
    with connection.cursor() as cursor:
        cursor.execute("delete from pgqueue.limits")
    project_queue().control.limits.set("queue:mail", Limit(3), by="ann")
    project_queue().control.limits.weigh({"tenant": "acme"}, 5, by="ann")


def weights() -> dict[str, int]:
    return dict(project_queue().insight.weights())


def page(key: str) -> str:
    return f"{LIST}{quote(key)}/change/"


def errors(answer: Any) -> str:
    found = re.findall(r'<ul class="errorlist[^>]*>(.*?)</ul>', answer.content.decode(), re.DOTALL)
    return unescape(" ".join(found))


def test_the_list_shows_shares_and_no_limits(client: Client) -> None:
    shown = unescape(client.get(LIST).content.decode())
    assert re.findall(r'class="field-weighs">(.*?)<', shown) == ["5"]
    assert re.findall(r'class="field-set_by">(.*?)<', shown) == ["ann"]
    assert '{"tenant":"acme"}' in shown
    assert "queue:mail" not in shown


def test_a_share_is_given_a_weight_another_one_and_none(client: Client) -> None:
    given = {"share": '{"tenant": "wile"}', "weight": "9"}
    assert client.post(f"{LIST}add/", given).status_code == 302
    assert weights() == {ACME: 5, ' {"tenant":"wile"}': 9}
    assert client.post(page(ACME), {"weight": "7"}).status_code == 302
    assert weights()[ACME] == 7
    said = client.post(LIST, {"action": "forget", "_selected_action": ACME}, follow=True)
    assert "1 share given weight 1." in said.content.decode()
    assert weights() == {' {"tenant":"wile"}': 9}
    assert LogEntry.objects.count() == 3
    with connection.cursor() as cursor:
        cursor.execute(
            "select count(*) from pgqueue.audit where action = 'share weighed' and said_by = 'root'"
        )
        assert cursor.fetchone() == (3,)


@pytest.mark.parametrize(
    ("values", "weight", "said"),
    [
        ('{"tenant": "acme"}', "0", "weight"),
        ('{"tenant": "acme"}', "1001", "weight"),
        ('{"tenant": "acme"}', "many", "whole number"),
        ("{}", "2", "required"),
        ("[1]", "2", "fair_by"),
        ("{", "2", "valid JSON"),
    ],
)
def test_what_is_refused_changes_nothing(client: Client, values: str, weight: str, said: str) -> None:
    answer = client.post(f"{LIST}add/", {"share": values, "weight": weight})
    assert (answer.status_code, said in errors(answer)) == (200, True)
    assert weights() == {ACME: 5}


def test_a_user_who_may_only_look_changes_nothing(client: Client) -> None:
    looks = User.objects.create_user("ann", is_staff=True)
    looks.user_permissions.add(Permission.objects.get(codename="view_share"))
    client.force_login(looks)
    assert 'name="weight"' not in client.get(page(ACME)).content.decode()
    assert client.post(page(ACME), {"weight": "9"}).status_code == 403
    assert client.get(f"{LIST}add/").status_code == 403
    client.post(LIST, {"action": "forget", "_selected_action": ACME})
    assert weights() == {ACME: 5}


def test_a_limit_is_no_share(client: Client) -> None:
    """Neither its page nor an action on it."""
    assert client.get(f"{LIST}queue_3Amail/change/").status_code == 302
    client.post(LIST, {"action": "forget", "_selected_action": "queue:mail"})
    assert [one.name for one in project_queue().insight.limits()] == ["queue:mail"]
