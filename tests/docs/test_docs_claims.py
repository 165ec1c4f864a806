"""What the words say of the code is compared with the code: names, defaults, trees, pictures, links."""

import inspect
import re
import textwrap
import tomllib
from pathlib import Path

import pytest
from docs.pages import DOCS, ROOT, Block, blocks, page_id, pages, prose, words_in_code

from pgqueue import errors
from pgqueue.flask.config import OPTIONS
from pgqueue.values.jobs.job import BEGINNINGS, TRANSITIONS

README = ROOT / "README.md"
ARCHITECTURE = DOCS / "architecture.md"
REFERENCE = DOCS / "reference"
ENVIRONMENT = re.compile(r"\b(?:PGQUEUE_[A-Z_]+|DATABASE_URL)\b")
GENERATED = "\n::: "
"""Begins a line for which the site has what is read from the code; ``test_site.py`` follows the links to that."""
FOR_TESTS = {"PGQUEUE_TEST_DSN", "PGQUEUE_TEST_SERVER", "PGQUEUE_TEST_MODEL"}


def _text(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def _block(page: Path, word: str) -> Block:
    (found,) = [block for block in blocks(page) if block.word == word]
    return found


@pytest.mark.parametrize("page", pages(), ids=page_id)
def test_a_page_shows_every_table_that_its_blocks_need(page: Path) -> None:
    assert [one.code for one in blocks(page) if one.language == "setup" and "create table" in one.code] == []


def test_the_quick_start_needs_one_variable() -> None:
    code = "".join(one.code for one in blocks(README))
    assert set(ENVIRONMENT.findall(code)) == {"PGQUEUE_DSN"}


def test_the_install_page_names_every_distribution_that_is_installed_without_extras() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needed = {re.split(r"[\[><=]", one, maxsplit=1)[0] for one in project["dependencies"]}
    rows = re.findall(
        r"^\| `([\w-]+)`.* \| [\d.]+ \| [\d.]+ \|", (DOCS / "start" / "install.md").read_text(), re.MULTILINE
    )
    assert sorted(rows) == sorted({project["name"], *needed})


def test_the_readme_names_every_promise_and_the_test_of_each_that_has_one() -> None:
    rows = re.findall(r"^\| (\d+) \| .* \| (.*) \|$", _text(README), flags=re.MULTILINE)
    assert [number for number, _ in rows] == [*map(str, range(1, 14))]
    named = {(number, name) for number, cell in rows for name in re.findall(r"test_\w+\.py", cell)}
    files = [path.name for path in (ROOT / "tests" / "promises").glob("test_*.py")]
    assert named == {(name.split("_")[1], name) for name in files}


def test_the_picture_of_a_jobs_life_shows_every_transition_and_no_other() -> None:
    picture = _block(DOCS / "explain" / "life-of-a-job.md", "states")
    arrows = set(re.findall(r"^\s*(\S+) --> (\w+|\[\*\])", picture.code, flags=re.MULTILINE))
    known = {(str(one), str(next_)) for one, all_next in TRANSITIONS.items() for next_ in all_next}
    assert {(one, next_) for one, next_ in arrows if "[*]" not in (one, next_)} == known
    assert {next_ for one, next_ in arrows if one == "[*]"} == set(map(str, BEGINNINGS))
    final = {str(one) for one, all_next in TRANSITIONS.items() if not all_next}
    assert {one for one, next_ in arrows if next_ == "[*]"} == final


def test_the_tree_of_errors_names_every_error_under_its_base() -> None:
    parents: list[str] = []
    drawn = {}
    assert errors.__doc__ is not None
    tree = errors.__doc__.split("::\n\n", 1)[1].split("\n\n", 1)[0]
    for line in textwrap.dedent(tree).rstrip().splitlines():
        name = re.search(r"[A-Z]\w+", line)
        assert name is not None
        del parents[name.start() // 4 :]
        drawn[name[0]] = parents[-1] if parents else {"Waiting": "BaseException"}.get(name[0], "Exception")
        parents.append(name[0])
    found = inspect.getmembers(errors, lambda one: inspect.isclass(one) and one.__module__ == errors.__name__)
    raised = [(name, error) for name, error in found if not issubclass(error, Warning)]
    assert drawn == {name: error.__bases__[0].__name__ for name, error in raised}


def test_the_architecture_shows_the_floors_that_are_linted() -> None:
    project = tomllib.loads(_text(ROOT / "pyproject.toml"))
    contracts = project["tool"]["importlinter"]["contracts"]
    (layers,) = [contract["layers"] for contract in contracts if contract["type"] == "layers"]
    shown = [line.split()[0] for line in _block(ARCHITECTURE, "floors").code.splitlines()]
    assert shown == [name for layer in layers for name in re.findall(r"\w+", layer)]


def test_the_architecture_names_every_capability_that_a_floor_or_the_statements_have() -> None:
    table = (
        (ROOT / "docs/architecture.md").read_text().partition("## The capabilities")[2].partition("\n## ")[0]
    )
    named = {
        name
        for row in table.splitlines()
        if row.startswith("| `")
        for name in re.findall(r"`(\w+)`", row.split("|")[1])
    }
    places = (ROOT / "sql", *(ROOT / "pgqueue" / floor for floor in ("values", "store", "app")))
    folders = {
        one.name
        for place in places
        for one in place.iterdir()
        if one.is_dir() and not one.name.startswith("_")
    }
    assert folders <= named
    kept = folders | {one.stem for place in places for one in place.glob("*.py")}
    assert named - kept == set(), "named, and nowhere"


@pytest.mark.parametrize("page", pages(), ids=page_id)
def test_every_path_that_a_page_names_exists(page: Path) -> None:
    named = {
        word
        for word in words_in_code(page)
        if re.match(r"(pgqueue|sql|migrations|tests|docs)/", word) and "*" not in word
    }
    assert {path for path in named if not (ROOT / path).exists()} == set()


def test_the_glossary_is_the_one_list_of_words_in_order_each_with_one_short_meaning() -> None:
    _, *entries = re.split(r"^## (.+)\n", _text(DOCS / "explain" / "glossary.md"), flags=re.MULTILINE)
    terms, meanings = entries[::2], entries[1::2]
    assert terms == sorted(set(terms), key=str.lower)
    assert [term for term, text in zip(terms, meanings, strict=True) if not 1 < len(text.split()) <= 50] == []
    assert "| Word | Meaning |" not in _text(ARCHITECTURE)


def test_every_decision_that_the_code_names_is_on_record() -> None:
    records = {path.name for path in (DOCS / "adr").glob("*.md")}
    numbers = {str(int(name[:4])) for name in records if name[0].isdigit()}
    for folder, kind in (("pgqueue", "py"), ("sql", "sql"), ("tests", "py"), ("migrations", "py")):
        for path in (ROOT / folder).rglob(f"*.{kind}"):
            text = _text(path)
            assert set(re.findall(r"\bADR (\d+)", text)) <= numbers, path
            assert set(re.findall(r"docs/adr/([\w-]+\.md)", text)) <= records, path


@pytest.mark.parametrize("page", pages(), ids=page_id)
def test_every_link_leads_somewhere(page: Path) -> None:
    broken = [link for link in _links(page) if not _leads_somewhere(page, link)]
    assert broken == []


def _links(page: Path) -> list[str]:
    found = re.findall(r"\]\(([^)\s]+)\)", prose(page))
    return [link for link in found if not link.startswith(("http://", "https://"))]


def _leads_somewhere(page: Path, link: str) -> bool:
    path, _, anchor = link.partition("#")
    target = page.parent / path if path else page
    return target.exists() and (not anchor or anchor in _anchors(target) or GENERATED in _text(target))


def _anchors(page: Path) -> set[str]:
    heads = re.findall(r"^#+ (.+)$", prose(page), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def test_every_page_can_be_reached_from_the_readme() -> None:
    seen: set[Path] = set()
    ahead = [README]
    while ahead:
        page = ahead.pop()
        if page not in seen and page.suffix == ".md":
            seen.add(page)
            ahead += [(page.parent / link.partition("#")[0]).resolve() for link in _links(page)]
    assert {page for page in pages() if page not in seen} == set()


def test_the_settings_page_names_every_variable_that_is_read_and_no_other() -> None:
    sources = "\n".join(_text(path) for path in (ROOT / "pgqueue").rglob("*.py"))
    read = set(re.findall(r'"(PGQUEUE_[A-Z_]+|DATABASE_URL)"', sources))
    assert set(ENVIRONMENT.findall(_text(REFERENCE / "settings.md"))) == read


@pytest.mark.parametrize("page", pages(), ids=page_id)
def test_no_page_names_a_variable_that_is_not_a_setting(page: Path) -> None:
    settings = set(ENVIRONMENT.findall(_text(REFERENCE / "settings.md")))
    keys = {f"PGQUEUE_{name.upper()}" for name in OPTIONS} if page.name == "flask.md" else set()
    assert set(ENVIRONMENT.findall(_text(page))) <= settings | FOR_TESTS | keys
