"""``pgqueue demo``, end to end and rule by rule."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from click.testing import CliRunner
from programs import Program
from rich.console import Console

from pgqueue import AttemptError, PgQueue
from pgqueue.bench.own_schema import mark_of
from pgqueue.cli import demo as command
from pgqueue.cli import demo_stage, demo_verdict
from pgqueue.cli.demo import Screen
from pgqueue.cli.demo_verdict import (
    ChangedFile,
    DemoFile,
    DemoSummary,
    Direct,
    Measure,
    Record,
    UnreadableFile,
    measure_file,
)
from pgqueue.cli.main import main

FILES = 300
SETTINGS = ("PGQUEUE_DSN", "DATABASE_URL", "PGQUEUE_DIRECT_DSN", "PGQUEUE_APP")
GOOD = Measure("5f", 3, 1)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(FILES):
        (tmp_path / f"{number:03}.txt").write_text(f"{number}\n" * number)
    return tmp_path


def start_demo(*args: str) -> "subprocess.Popen[str]":
    bare = {name: value for name, value in os.environ.items() if name not in SETTINGS}
    pipe = subprocess.PIPE
    return Program(["-m", "pgqueue", *args], env=bare, stdout=pipe, stderr=pipe)


def schemas(dsn: str) -> set[str]:
    with psycopg.connect(dsn) as connection:
        return {name for (name,) in connection.execute("select nspname from pg_namespace")}


def test_without_a_dsn_the_demo_keeps_every_promise_on_a_server_of_its_own(folder: Path) -> None:
    with start_demo("demo", str(folder), "--json") as process:
        told, lines = process.communicate()
    summary = json.loads(told)
    assert process.returncode == 0, lines
    assert "the demo starts an embedded PostgreSQL" in lines
    assert "Killed worker" in lines
    assert "Every promise was kept" in lines
    assert (summary["files"], summary["jobs"]) == (FILES + 3, FILES + 3)
    assert (summary["lost"], summary["done_twice"], summary["wrong"], summary["broken"]) == ([], [], [], [])
    assert summary["reclaimed"] > 0
    assert {Path(dead["path"]).name: len(dead["errors"]) for dead in summary["dead"]} == {
        "vanishes.txt": 2,
        "directory.txt": 2,
        "mem": 2,
    }


def test_tampering_with_the_results_makes_the_demo_fail_and_say_what_broke(
    folder: Path, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def tampered(connection: psycopg.Connection[Any]) -> list[Record]:
        for statement, name in (
            ("update pgqueue_demo.files set times = 0 where path = %s", "000.txt"),
            ("update pgqueue_demo.files set times = 2 where path = %s", "001.txt"),
            ("update pgqueue_demo.files set sha256 = 'ab' where path = %s", "002.txt"),
            (
                "delete from pgqueue_demo.job_history using pgqueue_demo.files where id = job_id and path = %s",
                "003.txt",
            ),
        ):
            assert connection.execute(statement.encode(), [str(folder / name)]).rowcount == 1
        return honest(connection)

    honest = demo_stage.records
    monkeypatch.setattr(demo_stage, "records", tampered)
    done = CliRunner().invoke(main, ["--dsn", dsn, "demo", str(folder)])
    assert done.exit_code == 1, done.output
    broken = [line.strip() for line in done.output.splitlines() if line.startswith("  BROKEN ")]
    assert [line.partition(" such as")[0] for line in broken] == [
        f"BROKEN jobs: {FILES + 2} for {FILES + 3} files",
        "BROKEN lost: 2 with no end, or no result,",
        "BROKEN done twice in effect: 1 with more than one end or result,",
        "BROKEN wrong: 1 with a result that reading the file does not confirm,",
    ]
    assert "Every promise was kept" not in done.output


def test_the_dashboard_shows_the_run_live_and_stays_until_ctrl_c(folder: Path, dsn: str) -> None:
    with start_demo("--dsn", dsn, "demo", str(folder), "--dashboard") as process:
        assert process.stdout is not None
        said, address, shown = [], "", ""
        for line in process.stdout:
            said.append(line)
            if found := re.search(r"live: (http://127[.]0[.]0[.]1:[0-9]+/)", line):
                address = found[1]
                assert "pgqueue" in httpx.get(address, follow_redirects=True).text
            if "The dashboard stays" in line:
                shown = httpx.get(f"{address}jobs?state=dead").text
                process.send_signal(signal.SIGINT)
    assert process.returncode == 0, said
    assert "vanishes.txt" in shown
    assert "read-only" in shown
    assert "pgqueue_demo" not in schemas(dsn)
    with pytest.raises(httpx.ConnectError):
        httpx.get(address)


def test_with_a_dsn_the_demo_works_beside_the_real_queue_and_leaves_no_trace(
    folder: Path, dsn: str, queue: PgQueue
) -> None:
    @queue.task(name="measure")
    def measure(path: str) -> None: ...

    real = measure.enqueue("/not/the/demo's")
    with start_demo("--dsn", dsn, "demo", str(folder)) as process:
        told, lines = process.communicate()
    assert process.returncode == 0, told + lines
    assert "in a browser: pgqueue demo --dashboard" in told
    assert real.status() == "ready"
    assert "pgqueue_demo" not in schemas(dsn)


def test_a_demo_that_is_told_to_stop_takes_its_workers_and_its_schema_with_it(
    folder: Path, empty_dsn: str
) -> None:
    with start_demo("--dsn", empty_dsn, "demo", str(folder)) as process:
        assert process.stdout is not None
        started = next(line for line in process.stdout if line.startswith("  Workers "))
        assert "pgqueue_demo" in schemas(empty_dsn)
        process.send_signal(signal.SIGTERM)
        _, lines = process.communicate()
    assert process.returncode == 1, lines
    assert "Aborted!" in lines
    assert "pgqueue_demo" not in schemas(empty_dsn)
    for pid in re.findall(r"\d+", started):
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid), 0)


def test_a_schema_that_the_demo_did_not_make_is_left_alone(folder: Path, empty_dsn: str) -> None:
    with psycopg.connect(empty_dsn) as connection:
        connection.execute("create schema pgqueue_demo create table precious (a int)")
    done = CliRunner().invoke(main, ["--dsn", empty_dsn, "demo", str(folder)])
    assert done.exit_code == 2
    assert 'schema "pgqueue_demo" exists and was not made by `pgqueue demo`' in done.output
    with psycopg.connect(empty_dsn) as connection:
        connection.execute("select from pgqueue_demo.precious")


def test_a_schema_that_an_interrupted_demo_left_behind_is_made_again(empty_dsn: str) -> None:
    with psycopg.connect(empty_dsn) as connection:
        connection.execute("create schema pgqueue_demo create table stale (a int)")
        connection.execute(f"comment on schema pgqueue_demo is '{mark_of(demo_stage.COMMAND)}'")
    with demo_stage.stage(empty_dsn) as connection:
        assert connection.execute("select to_regclass('pgqueue_demo.stale')").fetchone() == (None,)
    assert "pgqueue_demo" not in schemas(empty_dsn)


def test_two_demos_do_not_share_a_database(folder: Path, empty_dsn: str) -> None:
    with demo_stage.stage(empty_dsn):
        done = CliRunner().invoke(main, ["--dsn", empty_dsn, "demo", str(folder)])
        assert "pgqueue_demo" in schemas(empty_dsn)
    assert done.exit_code == 2
    assert "another `pgqueue demo` runs in this database" in done.output


def test_a_folder_that_is_none_or_empty_is_refused_by_name(tmp_path: Path) -> None:
    missing = CliRunner().invoke(main, ["demo", str(tmp_path / "nowhere")])
    assert missing.exit_code == 2
    assert "nowhere' does not exist" in missing.output
    empty = CliRunner().invoke(main, ["demo", str(tmp_path)])
    assert empty.exit_code == 2
    assert f"{tmp_path} holds no file that can be read" in empty.output


def test_rows_and_jobs_are_added_together_or_not_at_all(empty_dsn: str, tmp_path: Path) -> None:
    with demo_stage.stage(empty_dsn) as connection:
        with connection.transaction(force_rollback=True):
            demo_stage.enqueue(connection, [DemoFile(tmp_path / "a", (0, 0)), DemoFile(tmp_path / "b")])
            added = demo_stage.records(connection)
            assert [(record.states, record.max_attempts) for record in added] == [
                (("ready",), 5),
                (("ready",), 2),
            ]
        assert demo_stage.records(connection) == []
        assert demo_stage.progress(connection).jobs == 0


def test_the_demo_gives_up_on_jobs_that_nobody_takes_from_a_dead_worker(
    empty_dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "STALLED_AFTER", 0.0)
    with demo_stage.stage(empty_dsn) as connection:
        demo_stage.enqueue(connection, [DemoFile(tmp_path / "a", (0, 0))])
        connection.execute(
            "with gone as (insert into pgqueue_demo.workers (id, lease_until, pid, concurrency, host, version) "
            "values (gen_random_uuid(), now() - interval '1 s', 1, 1, 'here', '1') returning id) "
            "update pgqueue_demo.jobs set status = 'running', worker_id = gone.id from gone"
        )
        with demo_stage.WorkerProcesses(empty_dsn, tmp_path) as crew:
            seen = list(command._watch(connection, crew, Screen(Console(quiet=True))))  # noqa: SLF001 - how long it waits
    assert {(now.ended, now.jobs, now.running, now.with_live_worker) for now in seen} == {(0, 1, 1, 0)}


def test_a_worker_that_ends_by_itself_is_reported_with_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo_stage, "WORKER", (sys.executable, "-c", "exit('no such thing')"))
    with demo_stage.WorkerProcesses("postgresql://nowhere", tmp_path) as crew:
        os.waitid(os.P_PID, crew.start(), os.WEXITED | os.WNOWAIT)
        with pytest.raises(demo_stage.WorkerFailed, match="ended by itself, with status 1") as failed:
            crew.check()
    assert failed.value.log == "no such thing"


def test_regular_files_are_found_below_and_links_and_unwanted_folders_are_not(tmp_path: Path) -> None:
    for name in ("b/c.py", "a.py", "b/__pycache__/c.pyc"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (tmp_path / "link").symlink_to(tmp_path / "a.py")
    Path(os.fsdecode(bytes(tmp_path) + b"/\xff")).touch()
    found, unnamed = demo_verdict.regular_files(tmp_path, leaving_out={"__pycache__"})
    assert [file.path for file in found] == [tmp_path / "a.py", tmp_path / "b/c.py"]
    assert unnamed == 1


def test_no_trap_can_be_read_by_anyone(tmp_path: Path) -> None:
    traps = demo_verdict.set_traps(tmp_path)
    assert measure_file(traps[0].path).lines == 1
    traps[0].path.unlink()
    assert set(demo_verdict.direct_readings(traps).values()) == {UnreadableFile()}


def test_a_direct_reading_tells_a_changed_file_from_an_unreadable_one(tmp_path: Path) -> None:
    for name in ("same", "grown", "gone"):
        (tmp_path / name).write_text("abc\ndef")
    files, _ = demo_verdict.regular_files(tmp_path)
    with (tmp_path / "grown").open("a") as grown:
        grown.write("more")
    (tmp_path / "gone").unlink()
    found = demo_verdict.direct_readings(files)
    sha256 = "d53d6b91af7caf8fe3d8021f116270137c0079d579a1e16965da80c2ed138ffb"
    assert found[str(tmp_path / "same")] == Measure(sha256, 7, 1)
    assert (found[str(tmp_path / "grown")], found[str(tmp_path / "gone")]) == (ChangedFile(), ChangedFile())


def done(
    path: str, times: int = 1, measure: Measure | None = GOOD, states: Sequence[str] = ("succeeded",)
) -> Record:
    return Record(path, tuple(states), times, measure, (AttemptError(1, "WorkerLost", "gone"),), 5)


def dead(path: str, *attempts: int) -> Record:
    return Record(
        path, ("dead",), errors=tuple(AttemptError(n, "OSError", "no") for n in attempts), max_attempts=2
    )


def judged(*pairs: tuple[Record, Direct]) -> DemoSummary:
    return demo_verdict.summarise(
        [record for record, _ in pairs], {record.path: found for record, found in pairs}, seconds=2.0
    )


def test_a_flawless_run_breaks_no_promise() -> None:
    summary = judged(
        (done("a"), GOOD), (dead("b", 1, 2), UnreadableFile()), (done("c"), GOOD), (done("d"), ChangedFile())
    )
    assert demo_verdict.broken_promises(summary) == []
    assert summary.jobs_per_second == 2.0
    assert summary.changed == ["d"]


@pytest.mark.parametrize(
    ("record", "found", "promise"),
    [
        pytest.param(done("x", states=()), GOOD, "jobs: 1 for 2 files", id="no record of the job"),
        pytest.param(done("x", states=("ready",), times=0, measure=None), GOOD, "lost: 1", id="not ended"),
        pytest.param(done("x", times=0, measure=None), GOOD, "lost: 1", id="ended without a result"),
        pytest.param(
            done("x", states=("cancelled",), times=0), GOOD, "lost: 1", id="cancelled without a request"
        ),
        pytest.param(done("x", times=2), GOOD, "done twice in effect: 1", id="two results"),
        pytest.param(done("x", states=("succeeded", "dead")), GOOD, "done twice in effect: 1", id="two ends"),
        pytest.param(done("x", measure=Measure("60", 3, 1)), GOOD, "wrong: 1", id="another hash"),
        pytest.param(done("x", measure=Measure("5f", 4, 1)), GOOD, "wrong: 1", id="another size"),
        pytest.param(done("x"), UnreadableFile(), "wrong: 1", id="a result of what cannot be read"),
        pytest.param(done("x"), UnreadableFile(), "not dead: 1", id="success of what cannot be read"),
        pytest.param(dead("x", 1, 2), GOOD, "dead: 1 with a dead job, but", id="dead for no reason"),
        pytest.param(
            dead("x", 2), UnreadableFile(), "dead: 1 with a dead job without", id="an error not kept"
        ),
    ],
)
def test_each_broken_promise_is_named(record: Record, found: Direct, promise: str) -> None:
    complaints = demo_verdict.broken_promises(judged((done("a"), GOOD), (record, found)))
    assert any(complaint.startswith(promise) for complaint in complaints), complaints


def test_a_run_in_which_nothing_was_reclaimed_proves_nothing() -> None:
    complaints = demo_verdict.broken_promises(judged((dead("b", 1, 2), UnreadableFile())))
    assert complaints == ["reclaimed: no job of the killed worker was taken over"]
