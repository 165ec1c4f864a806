"""From a dead job to a test: what is written fails as the job did, passes once the task is mended, and is only what it should be."""

import ast
import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgqueue import Context, PgQueue, RetryLater, Snooze
from pgqueue.app.reproduction import place_of, written_test
from pgqueue.errors import InvalidOption, UnknownTask
from pgqueue.testing import replay
from pgqueue.values.jobs.job import AttemptError, Job, JobState
from pgqueue.values.jobs.reproduction import QueueImport, source_of
from pgqueue.values.payloads.literal import literal, text

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
