"""From a dead job to a test: what is written fails as the job did, passes once the task is mended, and is only what it should be.

From a dead job to a test, attacked: hostile rows, hostile modules, codecs, and projects as users have them.
"""

import ast
import importlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from ciphers import Secret
from cli.commands import pgqueue
from hypothesis import given, settings
from hypothesis import strategies as st
from programs import ran

from pgqueue import Context, JobPart, JobState, PgQueue, RetryLater, Snooze
from pgqueue.app.reproduction import place_of, written_test
from pgqueue.errors import InvalidOption, UnknownTask
from pgqueue.testing import drain, in_database, replay
from pgqueue.values.jobs.job import AttemptError, Job
from pgqueue.values.jobs.reproduction import QueueImport, literal, source_of, text
from pgqueue.values.redaction import Redaction
from pgqueue.values.secret_forms import HIDDEN

HOSTILE = "x\"\"\"\n'''\n# fmt: off\n# -*- coding: utf-7 -*-\nraise SystemExit\r\u2028import os\x00\ud800\u202e# type: ignore\x0c"


def _job(**changes: Any) -> Job:
    instant = datetime(2031, 5, 4, 12, tzinfo=UTC)
    values: dict[str, Any] = {
        "id": 7,
        "state": JobState.DEAD,
        "queue": "default",
        "task": "shop.send",
        "args": {},
        "priority": 0,
        "run_at": instant,
        "created_at": instant,
        "started_at": instant,
        "ended_at": instant,
        "attempts": 1,
        "max_attempts": 1,
        "unique_key": None,
        "collisions": 0,
        "worker_id": None,
        "errors": (AttemptError(1, "ValueError", "no", "Traceback\n  ValueError: no", instant),),
        "reason": "failed",
        "result": None,
    }
    return Job(**(values | changes))


def _done(command: list[str], where: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=where, capture_output=True, text=True, check=False)  # noqa: S603 - our own files


def test_without_an_app_the_file_asks_pytest_for_the_queue() -> None:
    queue = PgQueue()
    assert place_of(queue, "shop.send") is None
    source = written_test(queue, _job())
    assert "def test_job_7_of_send(pgqueue_app):" in source
    assert 'pgqueue_app = "shop.jobs:queue"' in source


@pytest.mark.parametrize(
    "job",
    [
        _job(),
        _job(
            meta={"a": 1},
            args={"text": "x" * 200, "many": list(range(60)), "empty": {}, "deep": [[["y" * 70]]]},
        ),
        _job(
            task="shop." + "long_name_" * 15, args={"a": 1e16, "b": -0.0, "c": 1.5e-9, "d": True, "e": None}
        ),
        _job(args={"quotes": 'it\'s "so"', "other": 'say "x"', "слово": "値" * 40}),
        _job(args=json.loads('{"a":' * 90 + "1" + "}" * 90)),
        _job(
            task=HOSTILE,
            queue=HOSTILE,
            errors=(AttemptError(1, HOSTILE, HOSTILE, None, None),),
            args={HOSTILE: HOSTILE},
        ),
        _job(errors=(AttemptError(3, "E", "no", "line\n" * 500 + "w" * 900, None),), id=-9),
    ],
    ids=["plain", "long", "numbers", "quotes", "deep", "hostile", "traceback"],
)
@pytest.mark.parametrize(
    "place", [QueueImport("shop.jobs", "queue"), QueueImport("app", "q"), None], ids=["shop", "app", "none"]
)
def test_the_file_is_as_a_formatter_and_a_linter_want_it(
    job: Job, place: QueueImport | None, tmp_path: Path
) -> None:
    (tmp_path / "shop").mkdir()
    for name in (
        "shop/__init__",
        "shop/jobs",
        "app",
    ):  # a project that has the app: ruff puts its imports last
        (tmp_path / f"{name}.py").touch()
    written = tmp_path / "test_it.py"
    written.write_bytes(source_of(job, place, hidden="***").encode())
    ruff = [str(Path(sys.executable).with_name("ruff"))]
    for verb in (["format", "--isolated", "--diff"], ["check", "--isolated"]):
        done = _done([*ruff, *verb, written.name], tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
    args = (
        ast.literal_eval(_assigned(written.read_text(), "ARGS"))
        if "json.loads" not in written.read_text()
        else job.args
    )
    assert args == job.args


def test_hidden_values_are_told_of_at_the_top() -> None:
    assert (
        "Values are hidden"
        in source_of(_job(args={"token": "***"}), None, hidden="***").partition("import")[0]
    )
    assert "Values are hidden" not in source_of(_job(args={"token": "x"}), None, hidden="***")


@pytest.mark.parametrize(
    ("args", "said"), [({"$not_kept": 90_000}, "not kept"), ({"(unreadable)": "{"}, "cannot be read")]
)
def test_without_arguments_no_test_is_written(args: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidOption, match=said):
        source_of(_job(args=args), None)


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=60,
)


@given(ANY)
def test_a_literal_is_its_value(value: object) -> None:
    assert ast.literal_eval(literal(value)) == value


@given(st.text(alphabet=st.sampled_from(["'", '"', "\\", "\n", "a", "\ud800", "\u2028", "é"])))
def test_a_text_is_its_value_and_one_line(value: str) -> None:
    assert ast.literal_eval(text(value)) == value
    assert len(text(value).splitlines()) == 1


def _assigned(source: str, name: str) -> str:
    (found,) = [
        one.value
        for one in ast.parse(source).body
        if isinstance(one, ast.Assign) and ast.unparse(one.targets[0]) == name
    ]
    return ast.unparse(found)


def test_a_replay_runs_its_own_job_alone() -> None:
    queue = PgQueue()
    ran: list[object] = []

    @queue.task(name="parent")
    def parent(ctx: Context, number: int) -> None:
        ran.append((ctx.attempt, number))
        child.enqueue()

    @queue.task(name="child")
    def child() -> None:
        ran.append("child")

    replay(queue, "parent", {"number": 3})
    assert ran == [(1, 3)]
    with pytest.raises(UnknownTask, match="paren"):
        replay(queue, "paren", {})


def test_a_replay_does_not_raise_a_snooze_and_raises_what_the_last_attempt_dies_of() -> None:
    queue = PgQueue()
    ran = list[bool]()

    @queue.task(name="later")
    def later(*, snoozes: bool) -> None:
        ran.append(snoozes)
        raise Snooze(5) if snoozes else RetryLater(5)

    replay(queue, "later", {"snoozes": True})
    with pytest.raises(RetryLater):
        replay(queue, "later", {"snoozes": False})
    assert ran == [True, False]


PLACE = QueueImport("shop.jobs", "queue")
APP = """
from dataclasses import dataclass

from pgqueue import Batch, Context, PgQueue, RetryLater

queue = PgQueue()


@dataclass
class Line:
    sku: str
    count: int


@queue.task(max_attempts=1)
def charge(order_id: int, currency: str, lines: list[Line]) -> float:
    return sum(line.count for line in lines) * {"EUR": 1.0}[currency]


@queue.task(max_attempts=1)
async def mail(to: str) -> str:
    return to.split("@")[1]


@queue.batch_task(Line, size=10, max_attempts=1)
def index(jobs: Batch[Line]) -> None:
    for job in jobs:
        if job.args.count < 0:
            job.fail(ArithmeticError(f"{job.args.sku}: {job.args.count}"))


@queue.task(max_attempts=1)
def bill(ctx: Context, *lines: int, **more: str) -> float:
    return sum(lines) / (int(more["number"]) - ctx.meta["shift"])


@queue.task(name="a-task/'quoted'", max_attempts=1)
def named(text: str) -> str:
    return text.encode("ascii").decode()


@queue.task(max_attempts=1)
def busy(line: str) -> None:
    raise RetryLater(60, "busy")


@queue.task(max_attempts=1)
def gone(number: int) -> None:
    raise RuntimeError("it was here when the job ran")
"""
MENDED = (
    ('{"EUR": 1.0}[currency]', '{"EUR": 1.0}.get(currency, 2.0)'),
    ('to.split("@")[1]', 'to.split("@")[-1]'),
    ("if job.args.count < 0", "if job.args.count < -9"),
    (' - ctx.meta["shift"])', ' + ctx.meta["shift"])'),
    ('text.encode("ascii").decode()', "text"),
    ('raise RetryLater(60, "busy")', "return"),
)
LATER = APP[: APP.rindex("@queue.task")]
"""The app of another release: the last task is not in it."""
HOSTILE_TEXTS = [
    "quotes \"\"\" ''' \" ' \\",
    "line ends \n \r \r\n \x0b \x0c \x1c \x85 \u2028 \u2029 import os",
    "# ruff: noqa\n# ruff: noqa: F401\n#flake8:noqa\n# noqa\n# fmt: off\n# type: ignore\n# isort: skip_file",
    "# coding: utf-7\n# /// script\n# mypy: ignore-errors",
    "controls \x00 \x07 \x1b[31m \x7f, turned \u202e around, lone \ud800 and \udfff, \U0001f600 e\u0301 \u5024",
    "x" * 200,
    "",
]
texts = st.text() | st.sampled_from(HOSTILE_TEXTS) | st.text("#:=\n \"'\\|{}fmtofnqarxu-", max_size=80)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(10**120), 10**120)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(texts, inner, max_size=5),
    max_leaves=30,
)


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    (tmp_path / "shop_of_replays.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    yield importlib.import_module("shop_of_replays")
    sys.modules.pop("shop_of_replays", None)


def _died(app: ModuleType, dsn: str) -> dict[str, Job]:
    """Jobs that died in a database, by a name."""
    with in_database(app.queue, dsn):
        line = app.Line("a'b\"c\n", 2)
        jobs = {
            "charge": app.charge.enqueue(2**70, "USD", [line]),
            "mail": app.mail.enqueue("no address \N{SNOWMAN}\u202e"),
            "index": app.index.enqueue("x" * 90, -1),
            "bill": app.bill.using(meta={"shift": 7}).enqueue(1, 2, number="7"),
            "named": app.named.enqueue("\N{LATIN SMALL LETTER E WITH ACUTE}\x1b"),
            "busy": app.busy.enqueue("x"),
            "gone": app.gone.enqueue(1),
        }
        drain(app.queue, raises=False, allow_real=True)
        found = {name: app.queue.job(handle.id) for name, handle in jobs.items()}
    assert {job.state for job in found.values()} == {JobState.DEAD}
    return found


def _printed(job: Job, dsn: str) -> str:
    done = pgqueue("--app", "shop_of_replays:queue", "jobs", "show", str(job.id), "--pytest", dsn=dsn)
    assert done.exit_code == 0, done.output
    return done.stdout_bytes.decode()


def _pytest(folder: Path) -> dict[str, str]:
    """Each test of a folder, with the line in which pytest says how it ended."""
    left_out = ("postgresql", "pytest_postgresql", "asyncio", "timeout", "hypothesispytest", "django")
    words = ["-m", "pytest", "-q", "-rA", "--tb=line", *(f"-pno:{name}" for name in left_out)]
    env = {"HOME": str(folder), "PYTHONDONTWRITEBYTECODE": "1", "COLUMNS": "300"}
    said = ran(words, env=env, cwd=folder, timeout=60)
    found = re.finditer(r"^(?:PASSED|FAILED) test_(\w+)\.py::.*$", said.stdout, re.MULTILINE)
    ended = {one[1]: one[0] for one in found}
    assert ended, said.stdout + said.stderr
    return ended


def test_every_kind_of_job_that_died_in_a_database_fails_so_again_until_its_bug_is_gone(
    app: ModuleType, tmp_path: Path, dsn: str
) -> None:
    died = _died(app, dsn)
    for name, job in died.items():
        (tmp_path / f"test_{name}.py").write_text(_printed(job, dsn), encoding="utf-8")
    said = _pytest(tmp_path)
    for name, job in died.items():
        assert said[name].startswith("FAILED "), said
        assert job.errors[-1].type.rpartition(".")[2] in said[name], said[name]

    mended = LATER
    for bug, remedy in MENDED:
        assert bug in mended
        mended = mended.replace(bug, remedy)
    (tmp_path / "shop_of_replays.py").write_text(mended)
    said = _pytest(tmp_path)
    assert "UnknownTask: no task 'shop_of_replays.gone' is registered" in said.pop("gone")
    assert {line.partition(" ")[0] for line in said.values()} == {"PASSED"}, said


def test_the_file_says_that_the_app_has_no_such_task(app: ModuleType, tmp_path: Path, dsn: str) -> None:
    job = _died(app, dsn)["gone"]
    assert "no task of this name" not in _printed(job, dsn)
    del sys.modules["shop_of_replays"]
    (tmp_path / "shop_of_replays.py").write_text(LATER)
    importlib.invalidate_caches()
    assert "# The app has no task of this name: the test fails with UnknownTask.\n" in _printed(job, dsn)


def test_a_file_is_utf_8_whatever_the_shell_speaks(app: ModuleType, tmp_path: Path, dsn: str) -> None:
    job = _died(app, dsn)["mail"]
    words = ["-m", "pgqueue", "--app", "shop_of_replays:queue", "--dsn", dsn, "jobs", "show", str(job.id)]
    env = {"PYTHONIOENCODING": "latin-1", "PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    done = subprocess.run(  # noqa: S603 - our own words
        [sys.executable, *words, "--pytest"], env=env, cwd=tmp_path, capture_output=True, check=True
    )
    assert "\N{SNOWMAN}" in done.stdout.decode()


def test_files_of_hostile_jobs_are_as_ruff_has_them_in_the_apps_project(tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    for name in ("shop/__init__", "shop/jobs", "app"):
        (tmp_path / f"{name}.py").touch()
    found: list[str] = []

    @settings(max_examples=100)
    @given(args=st.dictionaries(texts, json_values, max_size=6), task=texts)
    def collect(args: dict[str, Any], task: str) -> None:
        error = AttemptError(1, task, task, task)
        source = source_of(_job(args=args, task=task, reason=task, errors=(error,), meta=args), PLACE)
        body = ast.parse(source).body
        kinds = [type(one).__name__ for one in body]
        assert kinds == ["Expr", "ImportFrom", "ImportFrom", "Assign", "Assign", "FunctionDef"]
        assert repr(ast.literal_eval(body[3].value)) == repr(args)  # type: ignore[attr-defined]
        found.append(source)

    collect()
    found += [
        source_of(_job(task=one, args={one: one}), QueueImport("app", "ARGS"), known=False)
        for one in HOSTILE_TEXTS
    ]
    for number, source in enumerate(found):
        (tmp_path / f"test_{number}.py").write_text(source, encoding="utf-8")
    for words in (["check"], ["format", "--diff"]):
        done = subprocess.run(  # noqa: S603 - our own files
            [Path(sys.executable).with_name("ruff"), *words, "--isolated", "--no-cache", "."],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "noqa" not in done.stderr  # no text of a job is a directive, not even one that ruff warns of


@pytest.mark.parametrize("name", ["replay", "ARGS", "META", "json", "app"])
def test_a_queue_may_have_any_name(name: str) -> None:
    source = source_of(_job(), QueueImport("shop.jobs", name))
    assert f"from shop.jobs import {name} as queue\n" in source or name == "app"
    assert f"replay({'app' if name == 'app' else 'queue'}, " in source


def test_modules_of_any_kind_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    class Lazy:
        __slots__ = ()

    module = ModuleType("nameless")
    del module.__dict__["__name__"]
    queue = PgQueue("dbname=never_asked")
    module.__dict__["queue"] = queue
    monkeypatch.setitem(sys.modules, "a_lazy_one", Lazy())
    monkeypatch.setitem(sys.modules, "nameless", module)
    assert place_of(queue, "shop.send") == QueueImport("nameless", "queue")


def test_everything_that_is_hidden_is_told_of(queue: PgQueue) -> None:
    deep: dict[str, Any] = {}
    for _ in range(150):
        deep = {"in": deep}
    for hiding in (
        _job(args={"token": "secret"}),
        _job(args=deep),
        _job(meta={"token": "secret"}),
        _job(errors=(AttemptError(1, "E", "no", "E: password=hunter22 is wrong"),)),
    ):
        source = written_test(queue, Redaction().job(hiding), hidden=HIDDEN)
        assert "# Values are hidden here" in source.partition("import")[0]
        assert "hunter22" not in source


def test_meta_that_cannot_be_read_is_left_out() -> None:
    assert "META" not in source_of(_job(meta={"(unreadable)": "{"}), PLACE)


def test_a_long_line_of_an_error_is_cut_with_a_word() -> None:
    message = "no order: " + "x" * 500 + " in shop 7"
    assert message in source_of(_job(errors=(AttemptError(1, "E", message),)), PLACE)
    cut = source_of(_job(errors=(AttemptError(1, "E", "y" * 50_000),)), PLACE)
    assert "more characters" in cut
    assert len(cut) < 5_000


def test_arguments_in_their_envelope_are_decoded_by_the_apps_codec() -> None:
    codec, got = Secret("key"), list[int]()
    queue = PgQueue("dbname=never_asked", codec=codec)
    queue.task(name="sell")(_noting(got))
    plain = _stored(codec, b'{"number": 7}')
    replay(queue, "sell", {"$encoded": plain})
    replay(queue, "sell", {"number": 8})
    assert got == [7, 8]


def _noting(got: list[int]) -> Callable[[int], None]:
    def sell(number: int) -> None:
        got.append(number)

    return sell


def _stored(codec: Secret, data: bytes) -> str:
    return str(codec.encode(data, JobPart("args", "sell")))
