"""Who gets in, what is refused, and the headers of each answer.

Hostile values at the doors of the dashboard: every page, its JSON, every form; each is answered, and none reaches the database or the log.
"""

import logging
import re
from collections.abc import Callable, Sequence
from urllib.parse import quote

import pytest
from dashboard.people import ORIGIN, Person, die, key_in, key_of, rows_of
from werkzeug.test import Client

from pgqueue import PgQueue, chain
from pgqueue.dashboard import LOOPBACK_HOSTS, Dashboard, Right, User, on_this_machine
from pgqueue.dashboard.pages import ACTIONS, PAGES
from pgqueue.errors import InvalidOption

TOKEN = "correct-horse-battery"  # noqa: S105 - a test's own
LOCAL = {"REMOTE_ADDR": "127.0.0.1"}
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "PROPFIND")


def _anyone(_: object) -> User:
    return User("ann")


def test_every_answer_has_the_headers_that_keep_a_browser_safe(person: Callable[..., Person]) -> None:
    ann = person()
    for path in ("/jobs", "/api/jobs", "/nope", "/jobs/1", "/dead", "/static/dashboard.css", "/jobs/cancel"):
        headers = ann.get(path).headers
        policy = headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none';"), path
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["X-Frame-Options"] == "DENY"
        assert headers["Referrer-Policy"] == "same-origin"
    assert ann.get("/jobs").headers["Cache-Control"] == "no-store"


def test_no_page_has_code_or_styles_in_it(person: Callable[..., Person]) -> None:
    ann = person()
    for path in (
        "/overview",
        "/queues",
        "/limits",
        "/store",
        "/jobs",
        "/dead",
        "/workers",
        "/jobs/cancel",
        "/nope",
    ):
        text = ann.get(path).text
        assert " style=" not in text
        assert "<style" not in text
        assert "javascript:" not in text
        assert text.count("<script") == text.count('<script src="/static/') == 1
        assert not [word for word in ("onclick", "onload", "onerror", "onsubmit") if f" {word}=" in text]


def test_a_dashboard_says_who_may_see_it(queue: PgQueue) -> None:
    with pytest.raises(InvalidOption, match="say who may see it"):
        Dashboard(queue)
    with pytest.raises(InvalidOption, match="say who may see it"):
        Dashboard(queue, login=_anyone, token=TOKEN)
    with pytest.raises(InvalidOption, match="fewer than 16 characters"):
        Dashboard(queue, token="short")  # noqa: S106 - a test's own
    with pytest.raises(InvalidOption, match="give one queue"):
        Dashboard(login=_anyone)
    with pytest.raises(InvalidOption, match="there are look"):
        User.with_rights("ann", ["fly"])


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"HTTP_HOST": "[::1]:8765", "REMOTE_ADDR": "::1"}, 200),
        ({"HTTP_HOST": "LOCALHOST:8765"}, 200),
        ({"HTTP_HOST": "evil.example"}, 421),
        ({"HTTP_HOST": "localhost.evil.example"}, 421),
        ({"HTTP_HOST": "[broken"}, 421),
        ({"REMOTE_ADDR": "10.0.0.7"}, 403),
        ({"REMOTE_ADDR": ""}, 403),
        ({"HTTP_X_FORWARDED_FOR": "10.0.0.7"}, 403),
        ({"HTTP_FORWARDED": "for=10.0.0.7"}, 403),
    ],
)
def test_only_users_of_this_machine_get_in_under_its_own_names(
    queue: PgQueue, headers: dict[str, str], status: int
) -> None:
    client = Client(Dashboard(queue, login=on_this_machine, hosts=LOOPBACK_HOSTS))
    assert client.get("/jobs", environ_overrides={**LOCAL, **headers}).status_code == status


def test_without_a_user_no_page_and_no_action_answers(queue: PgQueue) -> None:
    dashboard = Dashboard(queue, login=lambda _: None, actions=True)
    client = Client(dashboard)
    for path in _paths(dashboard):
        for method in METHODS:
            answer = client.open(path, method=method, headers=ORIGIN)
            assert answer.status_code in {403, 404, 405} or path.startswith("/static"), (method, path)


@pytest.mark.parametrize("actions", [True, False])
def test_a_login_that_only_looks_can_change_nothing_by_any_request(queue: PgQueue, *, actions: bool) -> None:
    @queue.task(name="sell")
    def sell() -> None: ...

    die(queue, "buy", {"order_id": 7}, {"order_id": 8}, error=ValueError("no stock"))
    sell.enqueue()
    chain(sell.call(), sell.call()).enqueue()
    queue.schedules.add("default", sell.call(), "0 4 * * *")
    before = rows_of(queue)
    rights = (Right.LOOK,) if actions else Right
    dashboard = Dashboard(queue, login=lambda _: User.with_rights("eve", rights), actions=actions)
    person = Person(dashboard)
    page = person.get("/jobs")
    key = key_of(page)

    tried = 0
    for path in {*_paths(dashboard), *_paths(dashboard, 3)}:
        for method in METHODS:
            fields = {"pgqueue_csrf": key, "to": "mail", "priority": "9", "slots": "3"}
            data = fields if method in {"POST", "PUT", "PATCH"} else None
            answer = person.client.open(path, method=method, data=data, headers=ORIGIN)
            assert answer.status_code < 500 or answer.status_code == 501, (method, path, answer.text)
            tried += 1

    assert tried > 200
    assert rows_of(queue) == before


def test_a_form_of_another_page_is_refused(person: Callable[..., Person], queue: PgQueue) -> None:
    @queue.task(name="sell")
    def sell() -> None: ...

    job = sell.enqueue()
    ann = person()
    page = ann.get(f"/jobs/{job.id}/cancel")
    key = key_of(page)
    good, path = {"pgqueue_csrf": key}, f"/jobs/{job.id}/cancel"

    for headers in (
        {},
        {"Origin": "null"},
        {"Origin": "http://evil.example"},
        {"Origin": "http://localhost:81"},
        {"Origin": "ftp://localhost"},
        {"Sec-Fetch-Site": "cross-site"},
    ):
        assert ann.client.post(path, data=good, headers=headers).status_code == 403, headers
    for data in ({}, {"pgqueue_csrf": ""}, {"pgqueue_csrf": "0" * 32}, {"pgqueue_csrf": "é"}):
        assert ann.client.post(path, data=data, headers=ORIGIN).status_code == 403, data
    without_cookie = Client(ann.client.application)
    assert without_cookie.post(path, data={"pgqueue_csrf": ""}, headers=ORIGIN).status_code == 403
    assert queue.job(job.id).state == "ready"

    assert ann.client.post(path, data=good, headers=ORIGIN).status_code == 303
    assert queue.job(job.id).state == "cancelled"


def test_cookies_are_for_our_pages_alone(person: Callable[..., Person]) -> None:
    cookie = person().get("/jobs", base_url="https://jobs.example/ops").headers["Set-Cookie"]
    assert {"HttpOnly", "SameSite=Strict", "Secure", "Path=/ops"} <= {
        part.strip() for part in cookie.split(";")
    }


def test_a_token_opens_a_session(queue: PgQueue) -> None:
    person = Person(Dashboard(queue, token=TOKEN, actions=True))
    refused = person.get("/jobs?state=dead")
    assert refused.status_code == 401
    assert 'value="/jobs?state=dead"' in refused.text
    assert person.get("/api/jobs").status_code == 401
    key = key_in(refused)

    wrong = person.client.post(
        "/login", data={"token": "correct-horse-batterx", "pgqueue_csrf": key}, headers=ORIGIN
    )
    assert (wrong.status_code, "This is not the token." in wrong.text) == (401, True)
    form = {"token": TOKEN, "name": "ann", "to": "/jobs?state=dead", "pgqueue_csrf": key}
    assert (
        person.client.post("/login", data=form, headers={"Origin": "http://evil.example"}).status_code == 403
    )
    done = person.client.post("/login", data=form, headers=ORIGIN)
    assert (done.status_code, done.headers["Location"]) == (303, "/jobs?state=dead")
    assert "HttpOnly" in done.headers["Set-Cookie"]
    assert "ann" in person.get("/jobs").text

    assert person.client.post("/logout", data={"pgqueue_csrf": key}, headers=ORIGIN).status_code == 303
    assert person.get("/jobs").status_code == 401


def test_a_program_gives_the_token_itself(queue: PgQueue) -> None:
    client = Client(Dashboard(queue, token=TOKEN))
    assert client.get("/api/jobs", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200
    assert client.get("/api/jobs", headers={"Authorization": "Bearer no"}).status_code == 401
    assert client.get("/api/jobs", headers={"Authorization": f"Basic {TOKEN}"}).status_code == 401


@pytest.mark.parametrize("cookie", ["", "x", "YW5u.x.y", "616e6e.aaaaaa.bbbbbbbbbbbbbbbbbbb", "\xe9.a.b"])
def test_a_session_that_we_did_not_sign_is_none(queue: PgQueue, cookie: str) -> None:
    client = Client(Dashboard(queue, token=TOKEN))
    client.set_cookie("pgqueue_session", cookie)
    assert client.get("/jobs").status_code == 401


@pytest.mark.parametrize("to", ["//evil.example", "https://evil.example", "/\\evil.example", "/a\nb", ""])
def test_a_login_leads_to_no_other_site(queue: PgQueue, to: str) -> None:
    person = Person(Dashboard(queue, token=TOKEN))
    page = person.get("/jobs")
    key = key_of(page)
    form = {"token": TOKEN, "to": to, "pgqueue_csrf": key}
    assert person.client.post("/login", data=form, headers=ORIGIN).headers["Location"] == "/"


@pytest.mark.parametrize(
    "name", ["..%2fdashboard.py", "..%5cdashboard.py", "nope.css", "%2fetc%2fpasswd", "macros.html", "."]
)
def test_no_other_file_is_served(person: Callable[..., Person], name: str) -> None:
    assert person().get(f"/static/{name}").status_code == 404


def _paths(dashboard: Dashboard, job_id: int = 1) -> list[str]:
    """Each rule, its placeholders filled with what there is."""
    urls = dashboard.urls.bind("localhost")
    values = {"job_id": job_id, "flow_id": 1, "number": 1, "which": "all", "name": "dashboard.css"}
    return [
        urls.build(
            rule.endpoint,
            {"name": "default", **{name: values.get(name, "default") for name in rule.arguments}},
        )
        for rule in dashboard.urls.iter_rules()
    ]


PARAMETERS = (
    "name",
    "state",
    "queue",
    "task",
    "key",
    "args",
    "after",
    "error",
    "died",
    "below",
    "by",
    "to",
    "n",
    "db",
)
MARKUP = "<script>alert(1)</script>"
HOSTILE = {
    "nul": "a\0b",
    "quotes": "'\"\\;--%s{0}",
    "markup": MARKUP,
    "int64": "9223372036854775808",
    "digits": "9" * 400,
    "superscript": "²",
    "float": "1e400",
    "nan": "NaN",
    "deep": '{"a":' * 1_600,
}


def _addresses(job: int, paths: Sequence[str]) -> list[str]:
    return [re.sub(r"<\w+>", "a%00b", re.sub(r"<int:\w+>", str(job), path)) for path in paths]


@pytest.mark.parametrize("which", HOSTILE)
def test_no_parameter_of_a_page_is_a_fault(
    queue: PgQueue, person: Callable[..., Person], caplog: pytest.LogCaptureFixture, which: str
) -> None:
    task = queue.task(name="t'\"<b>")(lambda x: x)
    job = task.using(queue=f"q{MARKUP}", unique_key=f"k{MARKUP}").enqueue(MARKUP).id
    someone, value = person(), quote(HOSTILE[which])
    caplog.set_level(logging.WARNING)
    names = PARAMETERS if which == "nul" else ("args", "below", "task", "name")
    for path in _addresses(job, [page.path for page in PAGES]):
        alone = [f"{name}={value}" for name in names]
        for address in (
            *(f"/api{path}?{query}" for query in alone),
            f"{path}?{'&'.join(alone)}",
            f"{path}?name=q",
        ):
            answer = someone.get(address)
            assert answer.status_code < 500, address
            assert answer.mimetype != "text/html" or MARKUP not in answer.text, address
            if which == "nul" and address.startswith("/api"):
                assert answer.status_code in {400, 404}, address
                assert "leave the character NUL out" in answer.text or "db=" in address, address
    assert caplog.records == []


def test_no_field_of_a_form_is_a_fault(
    queue: PgQueue, person: Callable[..., Person], caplog: pytest.LogCaptureFixture
) -> None:
    job = queue.task(name="t")(lambda x: x).enqueue(MARKUP).id
    someone = person()
    key = key_in(someone.get(f"/jobs/{job}/cancel"))
    caplog.set_level(logging.WARNING)
    for path in _addresses(job, [action.path for action in ACTIONS]):
        for value in HOSTILE.values():
            fields = dict.fromkeys(
                (*PARAMETERS, "why", "most", "weight", "share", "priority", "count", "sure"), value
            )
            answer = someone.client.post(
                f"{path}?name=x", data={"pgqueue_csrf": key, **fields}, headers=ORIGIN
            )
            assert answer.status_code < 500, (path, value)
    assert caplog.records == []


def test_a_number_beyond_64_bits_is_refused_by_name(person: Callable[..., Person]) -> None:
    answer = person().get("/api/audit?below=9223372036854775808")
    assert answer.status_code == 400
    assert "give a whole number of 64 bits" in answer.text


def test_a_priority_is_taken_as_it_was_typed_or_refused(
    queue: PgQueue, person: Callable[..., Person]
) -> None:
    job = queue.task(name="t")(lambda x: x).enqueue(1)
    for typed in ("00000000010000", "1e1", "5 000", "101"):
        answer = person().do("/jobs/reprioritise?queue=default", priority=typed)
        assert "give a whole number" in answer.text or "use a whole number" in answer.text
        assert queue.job(job.id).priority == 0
