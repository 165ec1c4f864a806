"""Limits and shares in the admin: seen whether or not they are stored, and changed with the checks of ``queue.control``."""

import re
from html import unescape
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.admin.utils import quote
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client
from neighbours import django_admin_pages

from pgqueue.django.djangoqueue import project_queue
from pgqueue.values.limits.limit import Limit, LimitNumbers, Rate
from pgqueue.values.limits.status import LimitStatus

LIST, SHARES = "/admin/pgqueue/limit/", "/admin/pgqueue/share/"
ACME = ' {"tenant":"acme"}'
MAIL, API = "queue:mail", "queue:api"

shared, empty = django_admin_pages.a_shared_database, django_admin_pages.an_empty_database
client = django_admin_pages.a_client


@pytest.fixture(autouse=True)
def limits(empty: None) -> None:  # noqa: ARG001 - the database
    """A limit of concurrency, a rate, and the weight of a share, which is no limit."""
    with connection.cursor() as cursor:
        cursor.execute("delete from pgqueue.limits")
    control = project_queue().control.limits
    control.set(MAIL, Limit(3), by="ann")
    control.set(API, Rate("100/minute", burst=20), by="ann")
    control.weigh({"tenant": "acme"}, 5, by="ann")


def stored(name: str) -> LimitStatus | None:
    return next((one for one in project_queue().insight.limits() if one.name == name), None)


def numbers(name: str) -> LimitNumbers:
    """What holds, without what the code says."""
    found = stored(name)
    assert found is not None
    return found.numbers._replace(declared="")


def page(name: str) -> str:
    return f"{LIST}{name.replace(':', '_3A')}/change/"


def errors(answer: Any) -> str:
    """What a form or the page after it says is wrong."""
    found = re.findall(
        r'<ul class="errorlist[^>]*>(.*?)</ul>|<li class="error">(.*?)</li>',
        answer.content.decode(),
        re.DOTALL,
    )
    return unescape(" ".join(first or second for first, second in found))


def test_the_list_says_what_holds_what_runs_and_waits_and_who_set_it(client: Client) -> None:
    shown = client.get(LIST).content.decode()
    assert re.findall(r'class="field-says">(.*?)<', shown) == ["one each 0.6 s, burst 20", "3 at once"]
    assert re.findall(r'class="field-set_by">(.*?)<', shown) == ["ann", "ann"]
    assert "acme" not in shown


def test_a_change_holds_and_the_audit_and_the_admins_log_name_the_user(client: Client) -> None:
    assert client.post(page(MAIL), {"most": "8"}).status_code == 302
    assert client.post(page(API), {"rate": "5/second", "burst": ""}).status_code == 302
    assert numbers(MAIL) == LimitNumbers(8, None, None)
    assert numbers(API) == LimitNumbers(None, 200_000, 1)
    assert [one.set_by for one in project_queue().insight.limits()] == ["root", "root"]
    assert LogEntry.objects.count() == 2
    with connection.cursor() as cursor:
        cursor.execute("select count(*) from pgqueue.audit where action = 'limit set' and said_by = 'root'")
        assert cursor.fetchone() == (2,)
    assert client.post(page(API), {"apart": "2", "rate": ""}).status_code == 302
    assert numbers(API) == LimitNumbers(None, 2_000_000, 1)


def test_a_form_that_changes_nothing_stores_nothing(client: Client) -> None:
    assert 'value="3"' in client.get(page(MAIL)).content.decode()
    assert client.post(page(MAIL), {"most": "3"}).status_code == 302
    assert client.post(page(API), {"rate": "", "apart": "", "burst": "20"}).status_code == 302
    assert [one.set_by for one in project_queue().insight.limits()] == ["ann", "ann"]


def test_a_queue_as_a_whole_is_limited_and_unset_again(client: Client) -> None:
    given = {"name": "queue:reports", "most": "1", "rate": "", "apart": "", "burst": ""}
    assert client.post(f"{LIST}add/", given).status_code == 302
    assert numbers("queue:reports") == LimitNumbers(1, None, None)
    assert "already exists" in errors(client.post(f"{LIST}add/", given | {"most": "9"}))
    assert numbers("queue:reports") == LimitNumbers(1, None, None)
    said = client.post(LIST, {"action": "unset", "_selected_action": "queue:reports"}, follow=True)
    assert "1 limit unset." in said.content.decode()
    assert stored("queue:reports") is None
    assert "there is none of this name" in errors(
        client.post(f"{LIST}add/", given | {"name": "task:shop.send"}, follow=True)
    )


@pytest.mark.parametrize(
    ("name", "given", "said"),
    [
        (MAIL, {"most": "0"}, "0"),
        (MAIL, {"most": "-1"}, "-1"),
        (MAIL, {"most": ""}, "give one of"),
        (MAIL, {"most": "three"}, "whole number"),
        (API, {"rate": "often"}, "often"),
        (API, {"rate": "5/second", "apart": "2"}, "give one of"),
        (API, {"apart": "2", "burst": "7"}, "no burst"),
        (API, {"apart": "-1"}, "-1"),
        (API, {"rate": "5/second", "burst": "0"}, "burst"),
    ],
)
def test_numbers_that_are_refused_change_nothing(
    client: Client, name: str, given: dict[str, str], said: str
) -> None:
    before = stored(name)
    answer = client.post(page(name), given)
    assert (answer.status_code, said in errors(answer)) == (200, True)
    assert stored(name) == before


def test_a_user_who_may_only_look_changes_nothing(client: Client) -> None:
    looks = User.objects.create_user("ann", is_staff=True)
    looks.user_permissions.add(Permission.objects.get(codename="view_limit"))
    client.force_login(looks)
    assert 'name="most"' not in client.get(page(MAIL)).content.decode()
    assert client.post(page(MAIL), {"most": "9"}).status_code == 403
    assert client.get(f"{LIST}add/").status_code == 403
    client.post(LIST, {"action": "unset", "_selected_action": MAIL})
    assert numbers(MAIL) == LimitNumbers(3, None, None)
    looks.user_permissions.add(Permission.objects.get(codename="change_limit"))
    client.force_login(User.objects.get(pk=looks.pk))
    assert client.post(page(MAIL), {"most": "9"}).status_code == 302
    assert numbers(MAIL) == LimitNumbers(9, None, None)


def test_a_name_that_no_limit_has_leads_back(client: Client) -> None:
    for name in ("queue:none", " share", "a\x00b"):
        assert client.get(f"{LIST}{name}/change/").status_code == 302


def weights() -> dict[str, int]:
    return dict(project_queue().insight.weights())


def share_page(key: str) -> str:
    return f"{SHARES}{quote(key)}/change/"


def test_the_list_shows_shares_and_no_limits(client: Client) -> None:
    shown = unescape(client.get(SHARES).content.decode())
    assert re.findall(r'class="field-weighs">(.*?)<', shown) == ["5"]
    assert re.findall(r'class="field-set_by">(.*?)<', shown) == ["ann"]
    assert '{"tenant":"acme"}' in shown
    assert "queue:mail" not in shown


def test_a_share_is_given_a_weight_another_one_and_none(client: Client) -> None:
    given = {"share": '{"tenant": "wile"}', "weight": "9"}
    assert client.post(f"{SHARES}add/", given).status_code == 302
    assert weights() == {ACME: 5, ' {"tenant":"wile"}': 9}
    assert client.post(share_page(ACME), {"weight": "7"}).status_code == 302
    assert weights()[ACME] == 7
    said = client.post(SHARES, {"action": "forget", "_selected_action": ACME}, follow=True)
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
def test_a_refused_weight_changes_nothing(client: Client, values: str, weight: str, said: str) -> None:
    answer = client.post(f"{SHARES}add/", {"share": values, "weight": weight})
    assert (answer.status_code, said in errors(answer)) == (200, True)
    assert weights() == {ACME: 5}


def test_a_user_who_may_only_look_changes_no_share(client: Client) -> None:
    looks = User.objects.create_user("ann", is_staff=True)
    looks.user_permissions.add(Permission.objects.get(codename="view_share"))
    client.force_login(looks)
    assert 'name="weight"' not in client.get(share_page(ACME)).content.decode()
    assert client.post(share_page(ACME), {"weight": "9"}).status_code == 403
    assert client.get(f"{SHARES}add/").status_code == 403
    client.post(SHARES, {"action": "forget", "_selected_action": ACME})
    assert weights() == {ACME: 5}


def test_a_limit_is_no_share(client: Client) -> None:
    """Neither its page nor an action on it."""
    assert client.get(f"{SHARES}queue_3Amail/change/").status_code == 302
    client.post(SHARES, {"action": "forget", "_selected_action": "queue:mail"})
    assert [one.name for one in project_queue().insight.limits()] == [API, MAIL]
