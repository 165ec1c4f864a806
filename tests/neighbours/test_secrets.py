"""One rule for secrets: a secret that stands in all places of jobs is shown by no page, no command and no report.

The pages are found by following every link of the admin and of the dashboard, the commands by what the command itself has. So a
new page and a new command are looked at, too.
"""

import html
import re
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING
from urllib.parse import quote, urljoin, urlsplit

import click
import pytest
from cli.commands import pgqueue
from cli.test_cli_steering import commands
from dashboard.world import stored_alert
from django.contrib.admin import site
from django.contrib.auth.models import User
from django.test import Client, override_settings
from neighbours import django_admin_pages
from neighbours.planted import SECRET, TASK, marks_in, planted

from pgqueue.cli.main import main
from pgqueue.dashboard.pages import ACTIONS, PAGES
from pgqueue.django import queue
from pgqueue.django.djangoqueue import project_queue

if TYPE_CHECKING:
    from pgqueue.dashboard.page import Page, PageAction

shared, empty = django_admin_pages.a_shared_database, django_admin_pages.an_empty_database
client = django_admin_pages.a_client
START = ("/admin/", "/jobs/overview")
NO_LOOK = re.compile(
    r"/logout|/password_change|/jsi18n|/static/|/admin/(auth|shop|r)/|[?&](e|_popup|_to_field)="
)
INT = r"<int:[a-z_]+>"


def _pattern(page: "Page") -> str:
    """The addresses of a page."""
    return re.sub(INT, "[0-9]+", page.path).replace("<which>", "[^/]+")


PAGE = re.compile("|".join(f"/jobs{_pattern(one)}" for one in PAGES))
DEAD_ENDS = re.compile(r"/queue\?|/(cancel|move|reprioritise)\?state=")
"""Links to a queue without jobs, and to actions that jobs in some states do not know."""
CHOICES = 6
"""Addresses with other filters of one page that are looked at."""
NO_LOOKS = {
    ("adopt", "pgqueuer"), ("adopt", "procrastinate"), ("bench", "run"), ("chaos",), ("demo",), ("keys", "used"), ("shards", "list"),
}  # fmt: skip
"""Commands with JSON that do something of their own, or ask another database."""
PIPELINE = "pipeline"
JOBS = ("dead", "retried", "succeeded", "running", "waiting", "behind")


@pytest.fixture
def where(shared: dict[str, str]) -> str:
    return f"postgresql://{shared['USER']}@/{shared['NAME']}?host={shared['HOST']}&port={shared['PORT']}"


@pytest.fixture
def there() -> Iterator[dict[str, int]]:
    with closing(project_queue()) as known, planted(known) as found:
        stored_alert(known)
        yield found
    # The queue of the project is that of all tests, and pages list the limits of its tasks.
    known._tasks.pop(TASK)  # noqa: SLF001
    known._limits.pop(NAMED["limit"], None)  # noqa: SLF001


NAMED = {"queue": "unserved", "schedule": "planted", "limit": "task:planted.mail.send:password", "task": TASK}
"""What is given as ``name``, by the first word of what a page or an action is called."""


def test_no_page_of_the_dashboard_or_the_admin_shows_a_secret(client: Client, there: dict[str, int]) -> None:
    seen = crawled(client, [*START, *direct(there)])
    shown = [f"{address}: {mark}" for address, text in seen.items() for mark in marks_in(text)]
    assert not shown, "\n".join(shown)
    paths = {urlsplit(one).path for one in seen}
    for page in PAGES:
        assert any(re.fullmatch(f"/jobs{_pattern(page)}", one) for one in paths), page
    for model in site._registry:  # noqa: SLF001 - Django has no other way
        if model.__module__ == "pgqueue.django.models" and model.__name__ != "Share":
            one = re.compile(f"/admin/pgqueue/{model.__name__.lower()}/[^/]+/change/")
            assert any(map(one.fullmatch, paths)), model
    assert SECRET in queue.job(there["dead"]).args["password"]


def direct(there: dict[str, int]) -> Iterator[str]:
    """The address of each page and each action of the dashboard, of each thing that it can be of."""
    ids = {
        "job_id": [there[name] for name in JOBS],
        "flow_id": [there["flow"]],
        "number": [queue.insight.audit()[0].id],
    }
    names = {**NAMED, "worker": str(queue.workers.list()[0].id)}
    kinds: list[Page | PageAction] = [*PAGES, *ACTIONS]
    for kind in kinds:
        name = names.get(kind.name.partition("-")[0], "planted")
        for number in ids[found[1]] if (found := re.search(r"<int:(\w+)>", kind.path)) else [0]:
            path = re.sub(INT, str(number), kind.path).replace("<which>", names["worker"])
            yield f"/jobs{path}?name={quote(name)}" if number == 0 else f"/jobs{path}"


def crawled(client: Client, start: Sequence[str]) -> dict[str, str]:
    """The text of each page that is there, of these and of those to which links lead, by its address; of pages of the dashboard the
    JSON, too."""
    left, seen, known = deque(start), dict[str, str](), {*start}
    choices = Counter[str]()
    while left:
        address = left.popleft()
        response = client.get(address)
        assert not marks_in(response.text) or response.status_code == 200, (address, marks_in(response.text))
        expected = {200, 302, 400, 404} if DEAD_ENDS.search(address) else {200, 302}
        assert address in start or response.status_code in expected, address
        if response.status_code == 200:
            seen[address] = response.text
        if "html" not in response.headers.get("Content-Type", "") or response.status_code != 200:
            continue
        links = re.findall(r'(?:href|action)="([^"#]*)', response.text)
        found = {urljoin(address, one.replace("&amp;", "&")) for one in links}
        if PAGE.fullmatch(urlsplit(address).path):
            found.add(address.replace("/jobs/", "/jobs/api/", 1))
        for one in sorted(found - known):
            parts = urlsplit(one)
            if not one.startswith(("/admin/", "/jobs/")) or NO_LOOK.search(one):
                continue
            if is_choice := bool(parts.query) and "name=" not in parts.query:
                choices[parts.path] += 1
            if not is_choice or choices[parts.path] <= CHOICES:
                known.add(one)
                left.append(one)
    return seen


ARGUMENTS: dict[str, list[str]] = {
    "job_id": [f"@{name}" for name in JOBS],
    "flow_id": ["@flow"],
    "limit": ["task:planted.mail.send:password"],
    "run": ["planted"],
    "worker": ["@worker"],
}
NAMES = {"queues": ["paused", "unserved"], "schedules": ["planted"]}
"""What is given for an argument ``name``, by the first word of the command."""
PREVIEWS = [
    ["dead", "retry", "--all", "--dry-run"],
    ["dead", "purge", "--all", "--dry-run"],
    ["jobs", "cancel", "--all", "--dry-run"],
    ["jobs", "move", "--to", "elsewhere", "--all", "--dry-run"],
    ["jobs", "reprioritise", "--priority", "3", "--all", "--dry-run"],
    ["jobs", "show", "@dead", "--pytest"],
    ["workflows", "show", "@flow", "--mermaid"],
    ["top", "--once"],
    ["metrics"],
    ["retention"],
]


def looks() -> Iterator[list[str]]:
    """The words of each command that only looks, once for each thing that it can be asked about."""
    for path, command in commands(main):
        options = {name for param in command.params for name in param.opts}
        if "--json" not in options or "--by" in options or path in NO_LOOKS or path[0] == PIPELINE:
            continue
        given = [one for one in command.params if isinstance(one, click.Argument) and one.required]
        assert len(given) <= 1, path
        for param in given:
            asked = NAMES[path[0]] if param.name == "name" else ARGUMENTS[str(param.name)]
            yield from ([*path, one] for one in asked)
        if not given:
            yield [*path]
    yield from PREVIEWS


def test_no_command_that_looks_shows_a_secret_unless_it_is_asked_to(
    where: str, there: dict[str, int]
) -> None:
    named = {f"@{name}": str(number) for name, number in there.items()}
    named["@worker"] = str(queue.workers.list()[0].id)
    shown, revealed = list[str](), set[str]()
    for words in looks():
        given = [named.get(word, word) for word in words]
        for more in ([], ["--json"]) if "--json" not in words and words not in PREVIEWS[5:] else ([],):
            result = pgqueue(*given, *more, dsn=where)
            assert result.exit_code == 0, (given, result.stderr)
            shown += [f"{' '.join([*given, *more])}: {mark}" for mark in marks_in(result.output)]
            if marks_in(pgqueue(*given, *more, "--reveal", dsn=where).output):
                revealed.add(" ".join(words[:2]))
    assert not shown, "\n".join(shown)
    assert revealed >= {
        "jobs list",
        "jobs show",
        "dead list",
        "why @behind",
        "schedules show",
        "audit list",
        "dead purge",
    }


@pytest.mark.parametrize(
    "query", ["args__password__startswith=zq7", "errors__icontains=zq7", "unique_key__startswith=mail"]
)
def test_no_filter_of_the_admin_tells_what_is_hidden(
    client: Client, there: dict[str, int], query: str
) -> None:
    assert there
    assert client.get(f"/admin/pgqueue/job/?{query}").status_code == 400
    page = client.get("/admin/pgqueue/job/", {"q": '{"password": "x"}'}).text
    assert "is hidden here, so it cannot be searched for" in html.unescape(page)


def test_without_the_dashboard_among_its_addresses_the_admin_stands_alone(
    client: Client, there: dict[str, int]
) -> None:
    path = f"/admin/pgqueue/job/{there['dead']}/change/"
    assert f'href="/jobs/jobs/{there["dead"]}"' in client.get(path).text
    assert 'href="/jobs/alerts"' in client.get("/admin/pgqueue/job/").text
    with override_settings(ROOT_URLCONF="neighbours.urls_of_the_admin"):
        assert "pgqueue-links" not in client.get(path).text
        assert "PermissionError" in client.get(path).text


def test_staff_users_come_from_the_dashboard_to_the_admin(client: Client) -> None:
    assert '<a class="quiet" href="/admin/pgqueue/">Admin</a>' in client.get("/jobs/queues").text
    User.objects.update(is_staff=False)
    assert "/admin/" not in client.get("/jobs/queues").text
