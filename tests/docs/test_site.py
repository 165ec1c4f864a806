"""The site of the documentation: it is built strictly, whole, made of the code, and works without a network."""

import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

import click
import psycopg
import pytest
from docs.pages import ROOT
from docs.surface import members, parameters
from playwright.sync_api import Browser, Page, Route, expect, sync_playwright

import pgqueue
from pgqueue import testing
from pgqueue.cli.main import main
from pgqueue.worker.worker import Worker

SITE: Final = ROOT / "site"
CHROMIUM: Final = shutil.which("chromium")
AXE: Final = (files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")
BROKEN: Final = """() => axe.run(document, {resultTypes: ["violations"]})
    .then(found => found.violations.map(one => [one.id, one.nodes.length, one.nodes[0].html]))"""
TELEPHONE: Final = 390
"""Pixels."""
KINDS: Final = (
    "", "start/first-job/", "guides/workers/", "guides/dashboard/", "explain/life-of-a-job/", "pipeline/scale/",
    "reference/queue/", "reference/cli/", "reference/database/", "reference/metrics/", "project/CHANGELOG/",
    "adr/notes/", "source/tests/promises/test_7_clock_skew.py/", "404.html",
)  # fmt: skip
"""A page of each kind."""
pytestmark = pytest.mark.timeout(600)  # the first test builds the site, and two tests open each page
NEEDED = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium; `make test` installs it")


class Reader(HTMLParser):
    """What a page says, where it leads, and what can be led to.

    Attributes:
        links: what its links and pictures name.
        anchors: the ids of its parts.
        loaded: what its scripts, styles and pictures are.
        words: the text of its article.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.loaded: list[str] = []
        text = path.read_text(encoding="utf-8")
        self.feed(text)
        article = text.partition("<article")[2].partition("</article>")[0]
        self.words = re.sub(r"<[^>]+>", " ", re.sub(r"<wbr\s*/?>|</?span[^>]*>", "", article))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.anchors |= {name for name in (given.get("id"), given.get("name")) if name}
        if tag == "a" and (link := given.get("href")):
            self.links.append(link)
        elif (source := given.get("src")) or (tag == "link" and (source := given.get("href"))):
            self.loaded.append(source)


@pytest.fixture(scope="module")
def site() -> Path:
    """The folder of the site, built once; a warning of the generator is an error."""
    program = [sys.executable, str(ROOT / "docs/site/build.py")]
    done = subprocess.run(program, capture_output=True, text=True, check=False)  # noqa: S603 - our own program
    assert done.returncode == 0, done.stdout + done.stderr
    return SITE


@pytest.fixture(scope="module")
def read(site: Path) -> dict[str, Reader]:
    """Every page by its address from the root of the site."""
    return {
        path.relative_to(site).as_posix().removesuffix("index.html"): Reader(path)
        for path in site.rglob("*.html")
    }


@pytest.fixture(scope="module")
def reference(read: dict[str, Reader]) -> set[str]:
    """The words of the pages of the reference."""
    return set(
        re.findall(
            r"\w+", " ".join(page.words for name, page in read.items() if name.startswith("reference/"))
        )
    )


def test_every_link_leads_to_a_part_of_the_site(site: Path, read: dict[str, Reader]) -> None:
    broken = [
        (name, link)
        for name, page in read.items()
        for link in page.links
        if not _leads(site, read, name, link)
    ]
    assert broken == []


def _leads(site: Path, read: dict[str, Reader], name: str, link: str) -> bool:
    target, anchor = urldefrag(urljoin(f"https://site/{name}", link))
    address = urlsplit(target)
    if address.netloc != "site" or name == "404.html":
        return True
    path = unquote(address.path.removeprefix("/"))
    if path in read:
        return not anchor or anchor in read[path].anchors
    return (site / path).is_file()


def test_nothing_is_loaded_from_another_host(site: Path, read: dict[str, Reader]) -> None:
    assert {one for page in read.values() for one in page.loaded if "//" in one} == set()
    styles = "".join(path.read_text(encoding="utf-8") for path in site.rglob("*.css"))
    assert re.findall(r"(?:@import|url\()\s*[\"']?(?:https?:)?//[^)]*", styles) == []


def test_every_public_name_is_in_the_reference(reference: set[str]) -> None:
    assert {*pgqueue.__all__, *testing.__all__} - {"__version__"} - reference == set()


def test_no_private_name_is_explained(read: dict[str, Reader]) -> None:
    private = re.compile(r"pgqueue\..*\._(?!_)")
    assert {one for page in read.values() for one in page.anchors if private.match(one)} == set()


HELD = [thing for name in pgqueue.__all__ if isinstance(thing := getattr(pgqueue, name), type)]


@pytest.mark.parametrize("thing", [*HELD, Worker], ids=lambda thing: thing.__name__)
def test_every_public_member_and_parameter_is_in_the_reference(thing: type, reference: set[str]) -> None:
    names = {name for name in members(thing) if not name.startswith("_") and hasattr(thing, name)}
    given = {name for member in names for name in parameters(getattr(thing, member, None))}
    assert (names | given | parameters(thing)) - reference == set()


def test_every_command_and_option_is_in_the_reference_with_the_words_of_its_help(
    read: dict[str, Reader],
) -> None:
    said = " ".join(read["reference/cli/"].words.replace("&lt;", "<").replace("&gt;", ">").split())
    missing = [one for one in _helped(main, "pgqueue") if " ".join(one.split()) not in said]
    assert missing == []


def _helped(command: click.Command, name: str, parent: click.Context | None = None) -> Iterator[str]:
    """The name of each command and option, and what ``--help`` says of the option."""
    with click.Context(command, parent=parent, info_name=name) as context:
        yield context.command_path
        for option in command.get_params(context):
            record = option.get_help_record(context)
            if record is not None and isinstance(option, click.Option) and "--help" not in option.opts:
                yield " ".join(record)
        if isinstance(command, click.Group):
            for inner in command.list_commands(context):
                found = command.get_command(context, inner)
                assert found is not None
                yield from _helped(found, inner, context)


def test_every_table_and_column_is_in_the_reference_and_each_column_is_explained(
    read: dict[str, Reader], connection: psycopg.Connection[Any]
) -> None:
    rows = connection.execute(
        "select table_name, column_name from information_schema.columns "
        r"where table_schema = 'pgqueue' and table_name !~ '^job_history_(\d+|default)$|^alembic_version$'"
    ).fetchall()
    page = (ROOT / "build/pages/reference/database.md").read_text(encoding="utf-8")
    sections = dict(re.findall(r"^### `(\w+)`\n(.*?)(?=^###? |\Z)", page, re.DOTALL | re.MULTILINE))
    assert [
        (table, column) for table, column in rows if not re.search(rf"\b{column}\b", sections.get(table, ""))
    ] == []
    assert re.findall(r"^\| `\w+` \| [\w ]+ \|  \|$", page, re.MULTILINE) == []
    assert {table for table, _ in rows} <= read["reference/database/"].anchors


def test_every_sql_function_is_in_the_reference_with_its_parameters(
    read: dict[str, Reader], connection: psycopg.Connection[Any]
) -> None:
    rows = connection.execute(
        "select proname, coalesce(proargnames, '{}') from pg_proc "
        "where pronamespace = 'pgqueue'::regnamespace and prorettype <> 'trigger'::regtype and prokind = 'f'"
    ).fetchall()
    words = set(re.findall(r"\w+", read["reference/database/"].words))
    assert {one for name, given in rows for one in (name, *given)} - words == set()


def test_every_metric_that_the_rules_and_the_board_use_is_in_the_reference(read: dict[str, Reader]) -> None:
    words = set(re.findall(r"\w+", read["reference/metrics/"].words))
    used = set(
        re.findall(r"\bpgqueue_\w+", "".join(_text(path) for path in (ROOT / "docs/metrics").iterdir()))
    )
    assert {re.sub(r"_(?:bucket|sum|count)$", "", name) for name in used} - words == set()


def test_the_index_for_language_models_has_a_line_for_each_page(site: Path) -> None:
    lines = re.findall(r"^- \[.+\]\((.*)\): (.*)$", _text(site / "llms.txt"), re.MULTILINE)
    whole = _text(site / "llms-full.txt")
    assert len(lines) > 90
    for address, words in lines:
        assert (site / address / "index.html").is_file()
        assert words
        assert f"<!-- {address} -->" in whole
    assert "send_receipt" in whole


def test_every_page_that_a_message_or_a_docstring_names_exists() -> None:
    named = {
        page
        for folder, kind in (("pgqueue", "py"), ("sql", "sql"))
        for path in (ROOT / folder).rglob(f"*.{kind}")
        for page in re.findall(r"\bdocs/[\w/.-]+\.md", _text(path))
    }
    assert {page for page in named if not (ROOT / page).exists()} == set()


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Nothing."""


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """A plain server of files."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=site)) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield started
        started.close()


@pytest.fixture
def page(browser: Browser, address: str) -> Iterator[Page]:
    """A window that reaches no other host; what it asks of one, and what it complains of, fails the test."""
    refused: list[str] = []

    def refuse(route: Route) -> None:
        refused.append(route.request.url)
        route.abort()

    context = browser.new_context(viewport={"width": TELEPHONE, "height": 800})
    context.route(re.compile(f"^(?!data:|blob:|{re.escape(address)})"), refuse)
    opened = context.new_page()
    opened.on("pageerror", lambda error: refused.append(str(error)))
    yield opened
    context.close()
    assert refused == []


@NEEDED
def test_no_page_is_wider_than_a_telephone_or_asks_another_host(
    page: Page, address: str, read: dict[str, Reader]
) -> None:
    wide = []
    for name in read:
        page.goto(address + name, wait_until="domcontentloaded")
        if page.evaluate("document.scrollingElement.scrollWidth") > TELEPHONE:
            wide.append(name)
    assert wide == []


@NEEDED
@pytest.mark.parametrize(("scheme", "width"), [("light", 1440), ("dark", TELEPHONE)])
def test_axe_finds_nothing_on_any_kind_of_page(
    page: Page, address: str, scheme: Literal["light", "dark"], width: int
) -> None:
    page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    page.set_viewport_size({"width": width, "height": 900})
    found = []
    for name in KINDS:
        page.goto(address + name)
        page.evaluate(AXE)
        found += [(name, *one) for one in page.evaluate(BROKEN)]
    assert found == []


@NEEDED
def test_the_search_finds_words_of_guides_and_of_the_reference(page: Page, address: str) -> None:
    page.set_viewport_size({"width": 1440, "height": 900})
    page.goto(address)
    for words, target in (
        ("quarantined", "guides/crashes/"),
        ("aenqueue_many", "reference/queue/"),
        ("fence", "explain/leases-and-fences/"),
    ):
        query = page.locator("[data-md-component=search-query]")
        query.clear()
        query.press_sequentially(words)
        expect(page.locator(f".md-search-result__link[href*='{target}']").first).to_be_attached(
            timeout=60_000
        )
