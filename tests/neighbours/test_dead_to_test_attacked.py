"""From a dead job to a test, attacked: hostile rows, hostile modules, codecs, and projects as users have them."""

import ast
import importlib
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from ciphers import Secret
from cli.commands import pgqueue
from hypothesis import given, settings
from hypothesis import strategies as st
from neighbours.test_dead_to_test import _job
from programs import ran

from pgqueue import JobPart, JobState, PgQueue
from pgqueue.app.reproduction import place_of, written_test
from pgqueue.dashboard.redaction import HIDDEN, Redaction
from pgqueue.testing import drain, in_database, replay
from pgqueue.values.jobs.job import AttemptError, Job
from pgqueue.values.jobs.reproduction import QueueImport, source_of

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
HOSTILE = [
    "quotes \"\"\" ''' \" ' \\",
    "line ends \n \r \r\n \x0b \x0c \x1c \x85 \u2028 \u2029 import os",
    "# ruff: noqa\n# ruff: noqa: F401\n#flake8:noqa\n# noqa\n# fmt: off\n# type: ignore\n# isort: skip_file",
    "# coding: utf-7\n# /// script\n# mypy: ignore-errors",
    "controls \x00 \x07 \x1b[31m \x7f, turned \u202e around, lone \ud800 and \udfff, \U0001f600 e\u0301 \u5024",
    "x" * 200,
    "",
]
texts = st.text() | st.sampled_from(HOSTILE) | st.text("#:=\n \"'\\|{}fmtofnqarxu-", max_size=80)
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
        source_of(_job(task=one, args={one: one}), QueueImport("app", "ARGS"), known=False) for one in HOSTILE
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
