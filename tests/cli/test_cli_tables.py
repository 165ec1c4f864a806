"""Tables in a terminal: no word is broken and no line is too wide, in every command that prints a table.

The commands are found by what their code calls, so a new one is tested without a line here, unless it needs arguments.
"""

import fcntl
import inspect
import json
import os
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import FunctionType
from typing import Any, Final

import click
import pytest
from bench import day
from dashboard.world import stored_alert, worker_row
from looking import ask
from rich.cells import cell_len

from pgqueue import Limit, PgQueue, chain, cli
from pgqueue.cli.main import main
from pgqueue.cli.table import Column, When, cut, fit
from pgqueue.cli.times import age

LONG: Final = "shop.newsletters.weekly.send_to_everybody_who_has_asked_for_it_and_some_others"
HOSTILE: Final = f"{LONG}\x1b[31m漢字\u202e.end"
PRINTERS: Final = {"print_table", "print_page", "print_fields"}
BEGIN: Final = "\x1e"
PROGRAM: Final = f"""
import json, sys
import click
from pgqueue.cli.main import main
for words in json.loads(sys.argv[1]):
    print({BEGIN!r} + " ".join(words), flush=True)
    try:
        main(words, standalone_mode=False)
    except click.exceptions.Exit:
        pass
    except click.ClickException as error:
        error.show()
    sys.stdout.flush()
"""
ARGUMENTS: Final[dict[str, Callable[[dict[str, str]], list[str]]]] = {
    "compare": lambda _: ["9h", "--window", "4h"],
    "jobs show": lambda known: [known["dead"]],
    "limits show": lambda _: [day.LIMIT],
    "queues show": lambda _: [HOSTILE],
    "schedules show": lambda _: [HOSTILE],
    "schedules next": lambda _: [HOSTILE],
    "workers show": lambda _: [day.STALLED_WORKER],
    "jobs list": lambda _: ["--limit", "20"],
    "dead list": lambda _: ["--limit", "20"],
    "shards list": lambda _: ["--app", "sharded:queue"],
}
"""What the commands are given that need it, or that would print much."""
CHANGES: Final = {
    "queues set",
    "jobs cancel",
    "jobs move",
    "jobs reprioritise",
    "dead retry",
    "dead purge",
    "audit resume",
}
"""Commands that print a table of what they change."""
ELSEWHERE: Final = {"pipeline", "top", "bench", "chaos", "demo", "adopt"}
"""Groups that need a lake or measure: their tables are printed by the same function."""


def walked(group: click.Group, before: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        words = (*before, name)
        yield " ".join(words), command
        if isinstance(command, click.Group):
            yield from walked(command, words)


def prints(function: FunctionType, seen: set[FunctionType]) -> bool:
    """Whether a function, or one of its own module that it calls, prints a table."""
    seen.add(function)
    names = {one for code in codes(function.__code__) for one in code.co_names}
    if names & PRINTERS:
        return True
    called = (function.__globals__.get(name) for name in names)
    own = {
        inspect.unwrap(one) for one in called if inspect.isfunction(one) and "pgqueue.cli" in one.__module__
    }
    return any(prints(one, seen) for one in own - seen if isinstance(one, FunctionType))


def codes(code: Any) -> Iterator[Any]:
    yield code
    for one in code.co_consts:
        if inspect.iscode(one):
            yield from codes(one)


def printing() -> list[str]:
    """The commands that print a table."""
    found = []
    for name, command in walked(main):
        function = inspect.unwrap(command.callback) if command.callback else None
        if (
            name.split()[0] not in ELSEWHERE
            and isinstance(function, FunctionType)
            and prints(function, set())
        ):
            found.append(name)
    return [one for one in found if one not in CHANGES]


@pytest.fixture
def known(queue: PgQueue, dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A day of a shop, and rows with long and hostile names of each kind; the ids that commands ask for."""
    day.fill(queue, dsn, jobs=1_000)
    task = queue.task(name=HOSTILE, queue=HOSTILE, max_attempts=1, limit=Limit(1, name=HOSTILE))(lambda: None)
    other = queue.task(name=LONG, queue=LONG[:60], max_attempts=1)(lambda: None)
    chain(other.call(), other.call(), name=HOSTILE).enqueue()
    for _ in range(3):
        other.enqueue()
    with queue.take(1, queues=[LONG[:60]], timeout=5) as jobs:
        dead = jobs[0].id
        jobs[0].fail(ConnectionRefusedError(" ".join(["the server did not answer within 30 seconds"] * 4)))
    task.enqueue()
    queue.schedules.add(HOSTILE, other.call(), "*/5 * * * *", timezone="America/Argentina/Buenos_Aires")
    worker_row(
        queue, host="a-very-long-host-name.of-a-cluster.example.internal", queues=[HOSTILE, LONG, "mail"]
    )
    queue.control.pause(HOSTILE, why=" ".join(["a long reason"] * 9), by=HOSTILE)
    queue.control.jobs(queue=LONG[:60]).reprioritise(4, by=f"somebody@{LONG}")
    stored_alert(queue, silenced=True)
    ask(dsn, "update pgqueue.alerts set error = %s", " ".join(["it failed, and here are many words"] * 5))
    nowhere = f"postgresql://reader@127.0.0.1:1/{LONG}"
    (tmp_path / "sharded.py").write_text(
        f"from pgqueue import PgQueue\nqueue = PgQueue(shards={[dsn, nowhere]!r})\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return {"dead": str(dead)}


def run(verbs: list[list[str]], dsn: str, *, width: int | None, **env: str) -> dict[str, str]:
    """What each command prints; ``width``: the columns of the terminal; None: into a pipe."""
    words = [sys.executable, "-c", PROGRAM, json.dumps(verbs)]
    names = {name: value for name, value in os.environ.items() if name not in {"NO_COLOR", "COLUMNS"}}
    names |= {"PGQUEUE_DSN": dsn, "TERM": "xterm-256color", **env}
    if width is None:
        done = subprocess.run(words, env=names, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=True)  # noqa: S603 - ours
        said = done.stdout
    else:
        said = in_terminal(words, names, width)
    parts = said.decode().replace("\r\n", "\n").split(BEGIN)
    return {one.partition("\n")[0]: one.partition("\n")[2] for one in parts[1:]}


def in_terminal(words: list[str], env: dict[str, str], width: int) -> bytes:
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
    with subprocess.Popen(words, env=env, stdin=theirs, stdout=theirs, stderr=theirs) as process:  # noqa: S603 - ours
        os.close(theirs)
        said = b""
        try:
            while part := os.read(ours, 65_536):
                said += part
        except OSError:  # the other side is closed
            pass
        os.close(ours)
    assert process.returncode == 0, said.decode()
    return said


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


@pytest.fixture
def verbs(known: dict[str, str]) -> list[list[str]]:
    found = [[*name.split(), *(ARGUMENTS[name](known) if name in ARGUMENTS else ())] for name in printing()]
    return [*found, ["why", known["dead"]], ["status"]]


AGE: Final = re.compile(r"in|ago|~?\d[\d,.:]*;?|(s|min|h|d)[.,;]?")
"""A number, or a word of an age: they may differ between two looks."""
LEFT_OUT: Final = re.compile(r"left out: .*?show\s+all\n", re.DOTALL)


@pytest.mark.parametrize("width", [80, 120])
def test_no_word_is_broken_and_no_line_is_too_wide(dsn: str, verbs: list[list[str]], width: int) -> None:
    assert {"jobs list", "dead list", "queues list", "workers list", "workflows list", "schedules list", "limits list",
            "alerts list", "audit list", "compare", "retention", "keys used", "shards list"} <= {*printing()}  # fmt: skip
    whole = run(verbs, dsn, width=None)
    shown = run(verbs, dsn, width=width)
    assert len(shown) == len(verbs)
    for verb, text in shown.items():
        assert text, verb
        lines = LEFT_OUT.sub("", plain(text)).splitlines()
        of_whole = set(whole[verb].split())
        for line in lines:
            assert line == line.rstrip(), (verb, line)
            words = len(line.split())  # a word, and a field's value, stays whole, to be copied
            one_word = words == 1 or (words == 2 and "show" in verb)
            assert cell_len(line) <= width or one_word, (verb, line)
            broken = [
                one
                for one in line.split()
                if one not in of_whole and "…" not in one and not AGE.fullmatch(one)
            ]
            assert not broken, (verb, line, broken)


def test_the_first_column_tells_the_rows_apart(dsn: str, verbs: list[list[str]]) -> None:
    lists = [one for one in verbs if "list" in one]
    whole, shown = run(lists, dsn, width=None), run(lists, dsn, width=80)
    for verb in shown:
        for row, of in zip(first_cells(shown[verb]), first_cells(whole[verb]), strict=True):
            start, _, end = row.partition("…")
            assert of.startswith(start), (verb, row, of)
            assert of.endswith(end), (verb, row, of)
            assert row == of or len(row) >= 20, (verb, row)


def first_cells(text: str) -> list[str]:
    """Of the rows: sentences have no two blanks in them."""
    rows = (line.strip() for line in plain(text).splitlines())
    return [row.partition("  ")[0] for row in rows if "  " in row]


def test_a_pipe_gets_everything_and_no_colour(dsn: str, verbs: list[list[str]]) -> None:
    for verb, text in run(verbs, dsn, width=None).items():
        assert "\x1b" not in text, verb
        assert "…" not in text, verb
        assert text.splitlines() == [line.rstrip() for line in text.splitlines()], verb


def test_words_that_ask_for_a_look_are_coloured_unless_the_reader_wants_no_colour(
    dsn: str, known: dict[str, str]
) -> None:
    assert known
    lists = [
        ["queues", "list"],
        ["workers", "list"],
        ["jobs", "list", "--state", "dead", "--limit", "5"],
        ["status"],
    ]
    text = "".join(run(lists, dsn, width=160).values())
    for word, code in (("paused", "33"), ("stalled", "1;31"), ("dead", "1;31")):
        assert re.search(rf"\x1b\[{code}m *{word}", text), word
    without = "".join(run(lists, dsn, width=160, NO_COLOR="1").values())
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]m", without)
    assert "stalled" in without


ROW = ("a.very.long.name.of.a.task", "failed", 1_234, datetime(2030, 1, 31, tzinfo=UTC), "many words " * 9)
COLUMNS = (
    Column("task"),
    Column("state", 1, state=True, least=0),
    Column("jobs", 2, bad=True),
    Column("at", 4),
    Column("error", 3),
)


def heads(width: int | None) -> list[str]:
    return [one.strip() for one in fit(COLUMNS, [ROW], width=width).heads]


def test_what_is_less_important_is_left_out_first() -> None:
    assert heads(None)[0:3] == ["task", "state", "jobs"]
    assert heads(100) == ["task", "state", "jobs", "at", "error"]
    assert heads(60) == ["task", "state", "jobs", "error"]
    assert heads(44) == ["task", "state", "jobs"]
    assert heads(36) == ["task", "state"]
    assert heads(10) == ["task"]
    assert fit(COLUMNS, [ROW], width=44).left_out == ["at", "error"]


def test_a_column_that_says_nothing_is_left_out_from_the_right() -> None:
    assert fit(("a", "b", "c"), [("x" * 30, "y" * 30, "z" * 30)], width=50).left_out == ["c"]


def test_a_blank_column_takes_no_room_from_others() -> None:
    row = ("x" * 30, None, "y" * 30, "z" * 30)
    found = fit(("a", "b", "c", Column("d", 2)), [row], width=52)
    assert [one.strip() for one in found.heads] == ["a", "c", "d"]
    assert found.left_out == []
    assert len(fit(("a", "b", "c", "d"), [row], width=None).heads) == 4


def test_names_that_differ_at_their_end_differ_when_they_are_cut() -> None:
    names = [("shop.newsletters.weekly.send_first",), ("shop.newsletters.weekly.send_second",)]
    (one,), (two,) = fit(("task",), names, width=24).rows
    assert one.text != two.text


def test_numbers_stand_at_the_right_and_names_at_the_left() -> None:
    rows = [("a", 1, "~1,000", "12 s", "1/3"), ("b", 1000, "2", "340 ms", "10/20")]
    found = fit(("name", "jobs", "about", "for", "attempts"), rows, width=None)
    assert [[cell.text for cell in row] for row in found.rows] == [
        ["a   ", "   1", "~1,000", "  12 s", "1/3     "],
        ["b   ", "1000", "     2", "340 ms", "10/20   "],
    ]


def test_a_cut_name_keeps_both_ends_and_wide_letters_count_twice() -> None:
    assert cut("shop.mail.send_receipt", 12, middle=True) == "shop.m…ceipt"
    assert cut("shop.mail.send_receipt", 12) == "shop.mail.s…"
    assert cut("漢字漢字漢字", 7) == "漢字漢…"
    assert cell_len(cut("漢字漢字漢字", 8, middle=True)) <= 8


def test_an_instant_is_an_age_where_it_is_narrow() -> None:
    ago = datetime.now(UTC) - timedelta(hours=3, minutes=1)
    row = [("x" * 20, ago, When("ended", ago))]
    (cells,) = fit(("a", "at", "what"), row, width=44).rows
    assert [one.text.strip() for one in cells[1:]] == ["3 h ago", "ended 3 h ago"]
    now = datetime(2030, 1, 1, tzinfo=UTC)
    assert [age(now + timedelta(seconds=one), now) for one in (0, -59, -3_600, 300, 90_000)] == [
        "0 s ago", "59 s ago", "1 h ago", "in 5 min", "in 1 d",
    ]  # fmt: skip


def test_every_verb_says_its_sentences_with_the_function_that_wraps_them() -> None:
    """A terminal breaks the words of what ``click.echo(spelled_out(…))`` prints; only text with line ends of its own may be."""
    for file in Path(cli.__file__).parent.rglob("*.py"):
        for said in re.findall(r"click\.echo\(\s*spelled_out\([^\n]*", file.read_text(encoding="utf-8")):
            assert 'keep="\\n"' in said or file.name == "output.py", (file, said)
