"""Every shell block and systemd unit of the words names commands, verbs, options and targets that exist."""

import configparser
import re
import shlex
import tomllib
from pathlib import Path

import click
import pytest
from django.core.management import get_commands
from docs.pages import DOCS, ROOT, Block, blocks, page_id, pages

from pgqueue.cli.main import main
from pgqueue.django.management.commands.pgqueue import NO_RELOAD, RELOAD
from pgqueue.values.hints import DISTRIBUTION

COMMANDS = {"sh", "ini"}
CHECKED = {"python", "sql", "setup", *COMMANDS}
BY_OTHERS = {DOCS / "pipeline" / "dbt.md": {"yaml", "jinja"}}
"""Languages of a page that ``tests/spark/test_spark_schedulers.py`` runs."""
SUBMITTED = "$(python -m pgqueue.cli.submit --where)"
SHELL = [page for page in pages() if any(block.language in COMMANDS for block in blocks(page))]


@pytest.mark.parametrize("page", pages(), ids=page_id)
def test_every_block_of_a_page_is_run_or_checked(page: Path) -> None:
    checked = CHECKED | BY_OTHERS.get(page, set())
    unchecked = [str(one) for one in blocks(page) if one.language not in checked and one.word == ""]
    assert unchecked == []


@pytest.mark.parametrize("page", SHELL, ids=page_id)
def test_every_command_that_a_page_shows_can_be_given(page: Path) -> None:
    for block in blocks(page):
        for words in _command_lines(block):
            try:
                _check(words, block.page)
            except (click.UsageError, AssertionError) as error:
                pytest.fail(f"{block}: {shlex.join(words)}: {error}")


def _command_lines(block: Block) -> list[list[str]]:
    if block.language == "sh":
        return [words for line in block.code.splitlines() if (words := shlex.split(line, comments=True))]
    if block.language == "ini":
        unit = configparser.ConfigParser()
        unit.optionxform = str  # type: ignore[assignment, method-assign]  # configparser's documented way
        unit.read_string(block.code)
        return [["export", unit["Service"]["Environment"]], shlex.split(unit["Service"]["ExecStart"])]
    return []


def _check(words: list[str], page: Path) -> None:
    match Path(words[0]).name, *words[1:]:
        case "make", target:
            targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
            assert target in targets, "make has no such target"
        case ("pip", "install", "--find-links", "dist", what, *others) | ("pip", "install", what, *others):
            _check_extras(what)
            _check_tested(others)
        case "export", assignment:
            name = assignment.partition("=")[0]
            settings = (ROOT / "docs/reference/settings.md").read_text(encoding="utf-8")
            assert f"`{name}`" in settings, "there is no such setting"
        case ("pgqueue", *rest) | ("flask", "--app", _, "pgqueue", *rest):
            _parse(main, "pgqueue", rest)
        case "dbt", "build", *_:
            pass
        case "spark-submit", "--master", _, *rest if SUBMITTED in rest:
            _parse(main, "pgqueue", rest[rest.index(SUBMITTED) + 1 :])
        case "python", "manage.py", "pgqueue", *rest:
            _parse(main, "manage.py pgqueue", [word for word in rest if word not in {RELOAD, NO_RELOAD}])
        case "python", "manage.py", command, *_:
            assert command in get_commands(), "Django has no such command"
        case "python", script:
            files = [block.argument for block in blocks(page) if block.word == "file"]
            assert script in files, "the page shows no such file"
        case _:
            pytest.fail(f"no test checks {words[0]!r}")


def _check_extras(what: str) -> None:
    place, _, extras = what.partition("[")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert place == DISTRIBUTION, "it has another name"
    for extra in filter(None, extras.rstrip("]").split(",")):
        assert extra in project["project"]["optional-dependencies"], "there is no such extra"


def _check_tested(packages: list[str]) -> None:
    """Other packages that a page installs are those with which the tests run."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    tested = {
        re.split("[><=]", one, maxsplit=1)[0] for one in project["project"]["optional-dependencies"]["dev"]
    }
    for package in packages:
        assert package in tested, f"no test runs with {package}"


def _parse(command: click.Command, name: str, words: list[str], parent: click.Context | None = None) -> None:
    """Have click read the words as it would when they are given, and run nothing."""
    words = [word for word in words if word != "--help"]
    if not isinstance(command, click.Group):
        command.make_context(name, words, parent=parent).close()
        return
    with click.Context(command, parent=parent, info_name=name) as context:
        _, rest, _ = command.make_parser(context).parse_args(words)
        if rest:
            verb, inner, rest = command.resolve_command(context, rest)
            assert verb is not None
            assert inner is not None
            _parse(inner, verb, rest, context)
