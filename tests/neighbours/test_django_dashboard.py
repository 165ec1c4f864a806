"""The dashboard in a Django project: its users look and act as far as their permissions go."""

import re

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client, override_settings

from pgqueue.django import queue

pytestmark = pytest.mark.usefixtures("django_dsn")
ORIGIN = {"Origin": "http://testserver"}


def _client(*permissions: str) -> Client:
    user = User.objects.create_user("ann")
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    client = Client(enforce_csrf_checks=True)
    client.force_login(user)
    return client


def _cancel(client: Client, job_id: int) -> int:
    asked = client.get(f"/jobs/jobs/{job_id}/cancel")
    found = re.search(r'name="pgqueue_csrf" value="(\w+)"', asked.text)
    data = {"pgqueue_csrf": found[1] if found else ""}
    return client.post(f"/jobs/jobs/{job_id}/cancel", data, headers=ORIGIN).status_code


def test_a_user_with_the_permission_looks_and_another_does_not() -> None:
    assert _client().get("/jobs/jobs").status_code == 403
    User.objects.all().delete()
    page = _client("view_job").get("/jobs/jobs")
    assert page.status_code == 200
    assert 'href="/jobs/dead"' in page.text
    assert "default-src 'none'" in page.headers["Content-Security-Policy"]


def test_djangos_test_client_follows_the_way_to_the_first_page() -> None:
    page = _client("view_job").get("/jobs/", follow=True)
    assert (page.status_code, page.redirect_chain) == (200, [("/jobs/overview", 302)])


def test_a_browser_that_is_not_logged_in_is_sent_to_the_login_and_comes_back() -> None:
    asked = Client().get("/jobs/jobs?state=dead")
    assert (asked.status_code, asked.headers["Location"]) == (
        302,
        "/accounts/login/?next=/jobs/jobs%3Fstate%3Ddead",
    )
    with override_settings(LOGIN_URL="admin:login"):
        assert Client().get("/jobs/").headers["Location"] == "/admin/login/?next=/jobs/"


def test_a_program_that_is_not_logged_in_is_refused() -> None:
    assert Client().get("/jobs/api/jobs").status_code == 403
    assert Client().post("/jobs/jobs/1/cancel").status_code == 403


def test_a_user_acts_as_far_as_permissions_go_and_the_audit_says_who() -> None:
    def sell() -> None: ...

    task = queue.tasks.get("dashboard.sell") or queue.task(name="dashboard.sell")(sell)
    job = task.enqueue()
    assert _cancel(_client("view_job", "retry_job"), job.id) == 403
    assert queue.job(job.id).state == "ready"
    User.objects.all().delete()
    assert _cancel(_client("view_job", "cancel_job"), job.id) == 303
    assert queue.job(job.id).state == "cancelled"
    assert [(one.action, one.by) for one in queue.insight.audit()] == [("cancel", "ann")]
