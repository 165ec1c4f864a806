"""Every shell block and systemd unit of the words names commands, verbs, options and targets that exist."""

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
BY_OTHERS = {
    DOCS / "pipeline" / "dbt.md": {"yaml", "jinja"},
    DOCS / "moving" / "from-celery.md": {"diff"},
}
"""Languages of a page that ``tests/spark/test_spark_schedulers.py`` and ``tests/neighbours/test_celery_example.py`` run."""
EXAMPLES = DOCS / "examples" / "deploy"
UNITS = {one.name for one in (EXAMPLES / "systemd").iterdir()}
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
        said = dict(
            pair.split("=")
            for line in re.findall("^Environment=(.*)$", block.code, re.MULTILINE)
            for pair in line.split()
        )
        code = re.sub(r"\$\{(\w+)\}", lambda name: said[name[1]], block.code)
        return [shlex.split(line) for line in re.findall("^ExecStart=(.*)$", code, re.MULTILINE)]
    return []


def _check(words: list[str], page: Path) -> None:
    match Path(words[0]).name, *words[1:]:
        case "make", target, *variables:
            makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
            assert target in re.findall(r"^([\w-]+):", makefile, re.MULTILINE), "make has no such target"
            known = re.findall(r"^(\w+) \?=", makefile, re.MULTILINE)
            assert {one.partition("=")[0] for one in variables} <= set(known), "make reads no such variable"
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
            _check_deploying(words)


def _check_deploying(words: list[str]) -> None:
    match words:
        case "sudo", *rest:
            _check_deploying(rest)
        case "systemctl", "daemon-reload":
            pass
        case "systemctl", "enable" | "start" | "restart", *units:
            for unit in units:
                assert unit == "--now" or _unit(unit) in UNITS, (
                    "docs/examples/deploy/systemd has no such unit"
                )
        case "kubectl", "apply", "--filename", file:
            assert (EXAMPLES / "kubernetes" / file).is_file(), "there is no such manifest"
        case ("kubectl", "wait", *_) | ("docker", "compose", "up", *_):
            pass
        case _:
            pytest.fail(f"no test checks {words[0]!r}")


def _unit(name: str) -> str:
    """The file of a unit that systemctl is given: of an instance, the template."""
    return re.sub("@[^.]*", "@", name if "." in name else f"{name}.service")


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
