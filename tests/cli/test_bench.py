"""``pgqueue bench`` on a real database: what it leaves alone, what it leaves behind, and that its counts add up; and a soak."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from bench import soak
from cli.commands import only_row, pgqueue, printed
from click.testing import CliRunner
from programs import Program, ran

from pgqueue import PgQueue
from pgqueue.bench import bench_schema, costs, loads
from pgqueue.bench import stage as bench_stage
from pgqueue.bench.bench_schema import COMMAND, SCHEMA
from pgqueue.bench.loads import LOADS
from pgqueue.bench.own_schema import make
from pgqueue.bench.stage import (
    FLOOR,
    OURS,
    BenchFailed,
    BenchProcesses,
    BenchStage,
    Contender,
    ProcessFailed,
    Sizes,
)
from pgqueue.cli import bench as run_verb

TINY = Sizes(
    jobs=40,
    singles=10,
    pickups=3,
    churn=80,
    behind=50,
    future=50,
    other=50,
    crowd=32,
    names=50,
    in_flight=50,
    idle_seconds=0.1,
)
PEER = Path(__file__).parents[1] / "bench" / "peer.py"
SOAK = ("--minutes", "0.01", "--rate", "50", "--every", "0.2")


def schemas(dsn: str) -> set[str]:
    with psycopg.connect(dsn) as connection:
        return {name for (name,) in connection.execute("select nspname from pg_namespace")}


@pytest.fixture(autouse=True)
def forks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The processes that a bench starts here are forks; those of a bench that is a process itself are not."""

    def fork(command: list[str], *, text: bool, **options: Any) -> Program:
        assert text
        assert command[0] == sys.executable
        return Program(command[1:], **options)

    forking = SimpleNamespace(Popen=fork, PIPE=subprocess.PIPE, DEVNULL=subprocess.DEVNULL)
    monkeypatch.setattr(bench_stage, "subprocess", forking)


@pytest.fixture
def foreign(empty_dsn: str) -> str:
    """A database in which another user has a schema of the bench's name."""
    with psycopg.connect(empty_dsn) as connection:
        connection.execute("create schema pgqueue_bench create table precious (a int)")
        connection.execute("comment on schema pgqueue_bench is 'made by the shop'")
    return empty_dsn


@pytest.fixture
def stage(empty_dsn: str) -> Iterator[BenchStage]:
    with bench_schema.open_schema(empty_dsn) as opened, BenchProcesses(opened.dsn) as crew:
        yield BenchStage(opened, crew)


@pytest.mark.parametrize("words", [["run", "--small"], ["clean"]], ids=lambda words: str(words[0]))
def test_a_schema_that_the_bench_did_not_make_is_refused_and_left_alone(
    words: list[str], foreign: str
) -> None:
    result = pgqueue("bench", *words, dsn=foreign)
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert line.startswith(
        'pgqueue: error: schema "pgqueue_bench" exists and was not made by `pgqueue bench`'
    )
    assert only_row(foreign, "select count(*) from pgqueue_bench.precious") == (0,)


def test_a_contender_refuses_such_a_schema_too(foreign: str) -> None:
    with (
        BenchProcesses(foreign) as crew,
        pytest.raises(ProcessFailed, match="was not made by `pgqueue bench`"),
    ):
        crew.call(OURS, "setup")
    assert only_row(foreign, "select count(*) from pgqueue_bench.precious") == (0,)


def test_clean_drops_what_an_interrupted_bench_left_and_nothing_else(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        make(connection, SCHEMA, COMMAND)
    assert "is dropped" in pgqueue("bench", "clean", dsn=dsn).stdout
    assert "pgqueue_bench" not in schemas(dsn)
    assert "pgqueue" in schemas(dsn)
    again = pgqueue("bench", "clean", dsn=dsn)
    assert (again.exit_code, again.stdout) == (0, 'there is no schema "pgqueue_bench"\n')


def test_two_benches_do_not_share_a_database(empty_dsn: str) -> None:
    with bench_schema.open_schema(empty_dsn):
        for verb in ("run", "clean"):
            result = pgqueue("bench", verb, dsn=empty_dsn)
            assert result.exit_code == 2
            assert "another `pgqueue bench` runs in this database" in result.stderr
        assert "pgqueue_bench" in schemas(empty_dsn)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_every_process_and_drops_the_schema(number: signal.Signals, empty_dsn: str) -> None:
    words = ["--loads", "M", "--no-floor", "--idle-seconds", "99"]
    command = ["-m", "pgqueue", "--dsn", empty_dsn, "bench", "run", *words]
    with Program(command, stderr=subprocess.PIPE) as bench:
        worker = _pid_of_the_worker(empty_dsn, bench)
        bench.send_signal(number)
        _, told = bench.communicate()
    assert bench.returncode == 130
    assert told.splitlines()[-1] == "pgqueue: interrupted; the bench's schema is dropped"
    assert "pgqueue_bench" not in schemas(empty_dsn)
    with pytest.raises(ProcessLookupError):
        os.kill(worker, 0)


def _pid_of_the_worker(dsn: str, bench: "subprocess.Popen[str]") -> int:
    """Wait until a worker of the bench has ended a job."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        while bench.poll() is None:
            try:
                row = connection.execute(
                    "select pid from pgqueue_bench.workers where exists (select from pgqueue_bench.job_history)"
                ).fetchone()
            except psycopg.Error:  # not made yet
                continue
            if row is not None:
                return int(row[0])
    raise AssertionError("the bench ended by itself")


def test_a_worker_whose_bench_was_killed_ends_by_itself(stage: BenchStage) -> None:
    stage.begin(OURS)
    nobodys_parent = os.getpid() + 1
    assert stage.crew.call(OURS, "worker", IDLE=0, PARENT=nobodys_parent)["count"] == 0


@pytest.mark.timeout(300)  # it runs every load: 30 s of CPU
def test_every_load_finds_its_figures_beside_their_yardsticks_and_leaves_no_trace(
    dsn: str, queue: PgQueue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_verb, "SMALL", TINY)
    monkeypatch.setattr(costs, "SETTLE", 0.0)
    monkeypatch.setenv("PGQUEUE_DIRECT_DSN", "postgresql://nowhere.invalid/")
    real = queue.task(name="noop")(print).enqueue()
    chosen = {name: load for name, load in LOADS.items() if name != "D"}  # which has a test of its own
    report = printed(pgqueue("bench", "run", "--small", "--json", "--loads", ",".join(chosen), dsn=dsn))
    found = {result["name"]: result for result in report["results"]}
    assert set(found) == {figure.name for load in chosen.values() for figure in load.figures}
    for load in chosen.values():
        for figure in load.described(TINY):
            result = found[figure.name]
            assert (result["what"], result["unit"], result["beside"]) == (
                figure.what,
                figure.unit,
                figure.beside,
            )
            assert len(result["ours"]) == 1
            assert len(result["other"]) == (figure.beside is not None)
            assert (result["ratio"] is None) == (figure.beside is None)
    assert found["W dead"]["other"] == [2.0]  # the floor updates each job and deletes it
    assert (report["format"], report["rounds"], report["sizes"]["jobs"]) == (1, 1, TINY.jobs)
    assert set(report["server"]) == set(bench_schema.SETTINGS)
    assert "pgqueue_bench" not in schemas(dsn)
    assert real.status() == "ready"
    _compares_with(dsn, report, tmp_path / "before.json")


def _compares_with(dsn: str, report: dict[str, Any], path: Path) -> None:
    """``--compare`` shows the earlier ratio and how the new one differs, figure by figure."""
    (before,) = [result for result in report["results"] if result["name"] == "A2"]
    path.write_text(json.dumps(report))
    words = ("bench", "run", "--small", "--loads", "A2", "--compare", str(path))
    (now,) = printed(pgqueue(*words, "--json", dsn=dsn))["results"]
    assert now["before"] == before["ratio"]
    assert now["change"] == pytest.approx(now["ratio"] / before["ratio"] - 1)
    result = pgqueue(*words, dsn=dsn)
    assert result.exit_code == 0, result.stderr
    table = result.stdout
    assert "before" in table
    assert f"{before['ratio']:.2f}" in table


def test_rounds_and_sizes_are_those_asked_for_and_the_floor_can_be_left_out(
    empty_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_verb, "SMALL", TINY)
    words = ("--small", "--loads", "A2", "--rounds", "2", "--jobs", "7", "--no-floor", "--json")
    report = printed(pgqueue("bench", "run", *words, dsn=empty_dsn))
    (result,) = report["results"]
    assert result["what"] == "enqueue 7 in one call"
    assert len(result["ours"]) == report["rounds"] == 2
    assert (result["other"], result["beside"], result["ratio"]) == ([], None, None)


@pytest.mark.parametrize("contender", [OURS, FLOOR], ids=lambda contender: contender.name)
def test_a_drain_that_did_not_run_exactly_its_jobs_is_no_result(
    contender: Contender, stage: BenchStage
) -> None:
    stage.begin(contender)
    stage.crew.call(contender, "bulk", 5)
    with pytest.raises(BenchFailed, match="of 4 jobs"):
        stage.work(contender, 4)


def test_a_worker_that_knows_how_many_jobs_there_are_does_not_end_in_a_pause(stage: BenchStage) -> None:
    stage.begin(OURS)
    stage.crew.call(OURS, "bulk", 1)
    stage.crew.call(OURS, "bulk", 1, DELAY=3)  # a worker ends after 2 s by default
    assert stage.work(OURS, 2) > 0


def test_jobs_that_two_workers_leave_are_noticed(stage: BenchStage) -> None:
    stage.begin(OURS)
    stage.crew.call(OURS, "bulk", 5)
    stage.crew.call(OURS, "bulk", 1, DELAY=3600)
    with pytest.raises(BenchFailed, match="ran 5 of 5 jobs, and 1 have not ended"):
        stage.work(OURS, 5)


def test_jobs_of_load_e_stand_beside_the_measured_ones_to_the_end(stage: BenchStage) -> None:
    loads._among(stage, TINY, TINY.future, **loads.FUTURE)  # noqa: SLF001 - what is left of it
    left = "select count(*), min(priority), min(run_at) > now() from pgqueue_bench.jobs"
    assert only_row(stage.place.dsn, left) == (TINY.future, 100, True)


def test_load_f_is_compared_with_the_same_without_the_trigger(stage: BenchStage) -> None:
    loads._crowd(stage, TINY, loads.NO_WAKE_UP)  # noqa: SLF001 - the part under test
    enabled = "select tgenabled from pg_trigger where tgname = 'jobs_wake_idle_workers'"
    assert only_row(stage.place.dsn, enabled) == ("D",)


def test_load_d_holds_a_snapshot_while_late_jobs_and_retries_arrive(stage: BenchStage) -> None:
    found = LOADS["D"].measure(stage, TINY, {})
    assert set(found) == {figure.name for figure in LOADS["D"].figures}
    assert found["D behind"].ours >= 0
    tried = "select count(*), max(attempts) from pgqueue_bench.all_jobs where task = 'flaky'"
    assert only_row(stage.place.dsn, tried) == (TINY.drains * costs.FLAKY, 2)
    held = "select count(*) from pg_stat_activity where backend_xmin is not null and pid <> pg_backend_pid()"
    with stage.place.snapshot():
        assert stage.place.one(held) > 0


def test_others_at_work_on_the_server_are_named(stage: BenchStage, empty_dsn: str) -> None:
    with psycopg.connect(empty_dsn, application_name="the shop") as other:
        other.execute("select 1")  # in a transaction that stays open
        with stage.place.snapshot():  # on a connection of the bench's own
            others = stage.place.others()
    assert "the shop" in others
    assert bench_schema.COMMAND not in others
    assert "the shop" not in stage.place.others()


def test_a_soak_accounts_for_every_job(empty_dsn: str) -> None:
    soaked = json.loads(CliRunner().invoke(soak.soak, [*SOAK, "--json", "--dsn", empty_dsn]).stdout)
    ends = soaked["ends"]
    assert ends["enqueued"] == ends["succeeded"] > 0
    assert (ends["dead"], ends["left"], soaked["verdict"]["lost"]) == (0, 0, 0)
    assert len(soaked["samples"]) >= 2
    for sample in soaked["samples"]:
        assert sample["index_bytes"]["jobs_pkey"] > 0
        assert not [name for name in sample["index_bytes"] if name.startswith("job_history")]
    assert "pgqueue_bench" not in schemas(empty_dsn)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--schema", "other", "bench", "clean"], "works in the schema pgqueue_bench and no other"),
        (["--behind-pooler", "bench", "clean"], "measures a server, not a pooler"),
        (["bench", "run", "--loads", "B,Bz"], "no load 'Bz'. Did you mean 'B"),
        (["bench", "run", "--loads", "nope"], "The loads: A1, A2, B, Bs, B2, C, D, E, Q, F, W, M."),
        (["bench", "run", "--jobs", "0"], "0 is not in the range x>=1"),
        (["bench", "run", "--compare", "nowhere.json"], "No such file"),
        (["bench", "run", "--compare", str(PEER)], "is no result of `pgqueue bench run --json`"),
        (["bench", "cleen"], "Did you mean 'clean'?"),
    ],
)
def test_what_cannot_be_done_is_refused_before_anything_is_touched(
    words: list[str], told: str, empty_dsn: str
) -> None:
    result = pgqueue(*words, dsn=empty_dsn)
    assert result.exit_code == 2
    assert told in " ".join(result.stderr.split())
    assert "pgqueue_bench" not in schemas(empty_dsn)


@pytest.mark.parametrize("words", [["run"], ["clean"]])
def test_an_unreachable_server_is_one_line_without_the_password(words: list[str]) -> None:
    result = pgqueue("--dsn", "postgresql://shop:sekret@localhost:1/shop", "bench", *words)
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert line.startswith("pgqueue: error: cannot connect to ")
    assert "sekret" not in line


@pytest.mark.parametrize("verb", ["run", "clean"])
def test_a_dsn_that_cannot_be_read_is_not_repeated(verb: str) -> None:
    result = pgqueue("--dsn", "postgresql://shop:sek%ret@localhost/shop", "bench", verb)
    assert result.exit_code == 2
    assert "DSN cannot be read" in result.stderr
    assert "sek" not in result.stderr


def test_a_user_without_the_right_to_make_a_schema_is_told_so(empty_dsn: str) -> None:
    with psycopg.connect(empty_dsn, autocommit=True) as connection:
        connection.execute("drop role if exists bench_guest")
        connection.execute("create role bench_guest")
        try:
            result = pgqueue("--dsn", f"{empty_dsn}&options=-crole%3Dbench_guest", "bench", "run")
        finally:
            connection.execute("drop role bench_guest")
    assert result.exit_code == 2
    assert 'this user may not make the schema "pgqueue_bench"' in result.stderr


def test_children_are_told_what_the_bench_decides_and_nothing_of_the_users_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "echo_settings.py").write_text(
        "import json, os; print(json.dumps({k: os.environ.get(k) for k in "
        "('DSN', 'SYNC', 'GAP', 'PGQUEUE_DSN', 'PGQUEUE_DIRECT_DSN', 'HOME')}))"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("PGQUEUE_DSN", "PGQUEUE_DIRECT_DSN", "SYNC", "GAP"):
        monkeypatch.setenv(name, "the user's")
    with BenchProcesses("postgresql://here") as crew:
        told = crew.call(Contender("echo", "echo_settings"), "go", GAP=0.5)
    assert told == {
        "DSN": "postgresql://here",
        "SYNC": None,
        "GAP": "0.5",
        "PGQUEUE_DSN": None,
        "PGQUEUE_DIRECT_DSN": None,
        "HOME": str(tmp_path),
    }


def test_a_contender_that_fails_is_reported_with_its_last_words() -> None:
    with (
        BenchProcesses("postgresql://here") as crew,
        pytest.raises(ProcessFailed, match=r"`floor bulk` ended with status 2: .*nought"),
    ):
        crew.call(FLOOR, "bulk", "nought")


def test_the_harness_finds_the_verbs_and_the_words_that_it_expects(empty_dsn: str) -> None:
    def said(*words: str, **settings: str) -> Any:
        done = ran(
            [str(PEER), *words], env=os.environ | {"DSN": empty_dsn} | settings, cwd=PEER.parent, timeout=60
        )
        assert done.returncode == 0, done.stderr
        lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
        return json.loads(lines[-1]) if lines else None

    assert said("setup") is None
    assert said("enqueue1", "3")["n"] == 3
    assert said("bulk", "4", PAD="9")["n"] == 4
    args = only_row(empty_dsn, "select args from pgqueue_bench.jobs order by id desc limit 1")[0]
    assert len(args["pad"]) == 9
    report = said("worker", "--latency", STOP_AFTER="7", SYNC="1", CONC="2")
    assert report["count"] == 7
    assert report["last"] >= report["first"]
    assert report["rss_mb"] > 0
    assert len(report["lat_ms"]) == 3
