"""``pgqueue workers``: look at workers, and ask them to do something, by name or all at once."""

import asyncio
import os
import signal
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from cli.commands import Process, cells, only_row, pgqueue, printed, started
from looking import ask, wait_until

from pgqueue import PgQueue
from pgqueue.cli.supervisor import MOST_EARLY_DEATHS, Supervisor
from pgqueue.errors import UnknownWorker
from pgqueue.store.catalogue import catalogue_of
from pgqueue.store.connections.connection import StepRunner
from pgqueue.store.plan import Statement
from pgqueue.store.workers import workers
from pgqueue.values.workers.worker import WorkerRequest


@pytest.fixture
def crew(dsn: str) -> list[str]:
    """Three workers: one with five slots of a choice, one with a supervisor, and a take."""
    ids = [str(uuid4()) for _ in range(3)]
    for name, number, minimum, most, supervised in (
        ("web-1", 0, 5, 50, False),
        ("web-2", 1, 20, 20, True),
        ("old", 2, None, 20, False),
    ):
        ask(
            dsn,
            "insert into pgqueue.workers (id, lease_until, host, pid, concurrency, version, minimum, slots, supervised) "
            "values (%s, now() + interval '1 h', %s, 42, %s, '0.1', %s, %s, %s)",
            ids[number],
            name,
            most,
            minimum,
            minimum,
            supervised,
        )
    return ids


def asked(dsn: str) -> list[tuple[object, ...]]:
    """What the workers are asked to do."""
    return ask(
        dsn,
        "select host, ask_minimum, ask_maximum, ask_quiet, ask_end from pgqueue.workers where asked_at is not null "
        "order by host",
    )


@pytest.mark.parametrize("which", ["all", "web-1:42"])
def test_workers_that_end_while_they_are_asked_are_not_asked(dsn: str, crew: list[str], which: str) -> None:
    assert crew
    with psycopg.connect(dsn, autocommit=True) as connection:
        database = StepRunner(connection, catalogue_of("pgqueue"))
        steps = workers.ask(which, WorkerRequest(end="stop", by="ann")).steps()
        listing = next(steps)
        assert isinstance(listing, Statement)
        listed = database.execute(listing)
        ask(dsn, "delete from pgqueue.workers")
        asking = steps.send(listed)
        assert isinstance(asking, Statement)
        asked_of = database.execute(asking)
        if which != "all":
            with pytest.raises(UnknownWorker, match=r"web-1:42 .* ended a moment ago"):
                steps.send(asked_of)
            return
        with pytest.raises(StopIteration) as end:
            steps.send(asked_of)
    assert end.value.value.asked == ()


def test_list_shows_slots_and_state(dsn: str, crew: list[str]) -> None:
    ask(dsn, "update pgqueue.workers set quiet = true where host = 'web-2'")
    shown = {row[1]: row[2:5] for row in cells(pgqueue("workers", "list", dsn=dsn))}
    assert shown == {
        "web-1:42": ["alive", "5", "5-50"],
        "web-2:42": ["quiet", "20", "all"],
        "old:42": ["alive", "20", "all"],
    }
    listed = printed(pgqueue("workers", "list", "--json", dsn=dsn))
    assert {one["id"] for one in listed} == set(crew)
    assert [one["listens"] for one in listed if one["host"] == "old"] == [False]


def test_show_tells_what_was_asked_and_by_whom(dsn: str, crew: list[str]) -> None:
    assert pgqueue("workers", "set", crew[0], "--concurrency", "7", "--by", "ada", dsn=dsn).exit_code == 0
    shown = printed(pgqueue("workers", "show", "web-1:42", "--json", dsn=dsn))
    assert (shown["asked_concurrency"], shown["asked_by"], shown["slots"]) == ("7", "ada", 5)
    assert "ada" in pgqueue("workers", "show", crew[0][:6], dsn=dsn).stdout


@pytest.mark.parametrize(
    ("words", "row"),
    [
        (["set", "--concurrency", "50"], ("web-2", 50, 50, None, None)),
        (["set", "--concurrency", "5-50"], ("web-2", 5, 50, None, None)),
        (["quiet"], ("web-2", None, None, True, None)),
        (["resume"], ("web-2", None, None, False, None)),
        (["stop"], ("web-2", None, None, None, "stop")),
        (["restart"], ("web-2", None, None, None, "restart")),
    ],
)
def test_a_worker_is_asked_by_name(
    dsn: str, crew: list[str], words: list[str], row: tuple[object, ...]
) -> None:
    done = pgqueue("workers", *words, "web-2:42", dsn=dsn)
    assert done.exit_code == 0, done.stderr
    assert done.stdout.startswith(f"web-2:42 ({crew[1][:8]}): asked to ")
    assert asked(dsn) == [row]


@pytest.mark.usefixtures("crew")
def test_all_are_asked_and_those_that_cannot_are_named(dsn: str) -> None:
    done = pgqueue("workers", "restart", "--all", dsn=dsn)
    assert done.exit_code == 0
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["web-2:42"]
    assert "not asked: old:42" in done.stderr
    assert "it is a take" in done.stderr
    assert "not asked: web-1:42" in done.stderr
    assert "no supervisor" in done.stderr
    assert asked(dsn) == [("web-2", None, None, None, "restart")]


@pytest.mark.usefixtures("crew")
@pytest.mark.parametrize(
    ("words", "refusal"),
    [
        (["quiet"], "name one worker, or give --all"),
        (["quiet", "web-1:42", "--all"], "name one worker, or give --all"),
        (["quiet", "web-9:42"], "there is no worker 'web-9:42'; there are old:42"),
        (["quiet", "old:42"], "it is a take"),
        (["restart", "web-1:42"], "no supervisor"),
        (["set", "web-1:42"], "Missing option '--concurrency'"),
        (["set", "web-1:42", "--concurrency", "0"], "concurrency=0"),
        (["set", "web-1:42", "--concurrency", "-3"], "concurrency=-3"),
        (["set", "web-1:42", "--concurrency", "50-5"], "concurrency=50-5"),
        (["set", "web-1:42", "--concurrency", "many"], "concurrency=many"),
        (["quiet", "web-1:42", "--by", "a\0b"], "by='a\\x00b'"),
    ],
)
def test_bad_input_is_refused_and_nothing_is_asked(dsn: str, words: list[str], refusal: str) -> None:
    done = pgqueue("workers", *words, dsn=dsn)
    assert done.exit_code == 2
    assert refusal in done.stderr
    assert asked(dsn) == []


def test_without_a_live_worker_all_means_none(dsn: str) -> None:
    done = pgqueue("workers", "quiet", "--all", dsn=dsn)
    assert (done.exit_code, done.stderr) == (1, "no live worker\n")


def _children(dsn: str) -> set[int]:
    return {pid for (pid,) in ask(dsn, "select pid from pgqueue.workers where supervised")}


def test_supervised_workers_restart_and_stop_when_they_are_asked(
    dsn: str, shop: Path, queue: PgQueue
) -> None:
    with started("worker", "--processes", "2", dsn=dsn, folder=shop) as supervisor:
        wait_until(lambda: len(_children(dsn)) == 2)
        first = _children(dsn)
        assert len(queue.workers.restart("all").asked) == 2
        supervisor.until("it starts again")
        wait_until(lambda: len(_children(dsn) - first) == 2)
        second = _children(dsn)
        for _ in range(3):  # a storm of requests restarts each process at least once, and none is lost
            queue.workers.restart("all")
        wait_until(lambda: len(_children(dsn)) == 2 and not _children(dsn) & second)

        def all_stopped() -> bool:
            """Ask again: one that restarts once more is no worker for a moment, and is not asked."""
            queue.workers.stop("all")
            return not supervisor.runs

        wait_until(all_stopped)
        _all_stopped(supervisor)
        assert supervisor.ended() == 0
    assert only_row(dsn, "select count(*) from pgqueue.workers") == (0,)


def _all_stopped(supervisor: Process) -> None:
    for _ in range(2):
        supervisor.until("worker process stopped, as it was asked to")


@pytest.mark.parametrize(
    "words", [["--max-jobs-per-process", "3"], ["--max-memory", "1 MB", "--processes", "2"]], ids=str
)
def test_a_process_is_replaced_by_its_supervisor_and_every_job_runs_once(
    dsn: str, shop: Path, words: list[str]
) -> None:
    for number in range(12):
        pgqueue("--app", "shop:queue", "enqueue", "shop.send", f'{{"order_id": {number}}}', dsn=dsn)
    with started("worker", "--concurrency", "1", *words, dsn=dsn, folder=shop) as supervisor:
        supervisor.until("worker process is to be replaced")
        supervisor.until("it starts again")
        wait_until(lambda: ask(dsn, "select count(*) from pgqueue.job_history") == [(12,)])
        supervisor.signal(signal.SIGTERM)
        assert supervisor.ended() == 0
    assert ask(dsn, "select distinct outcome::text, attempts from pgqueue.job_history") == [("succeeded", 1)]


def test_a_worker_without_a_supervisor_stops_when_it_is_asked(dsn: str, shop: Path, queue: PgQueue) -> None:
    with started("worker", dsn=dsn, folder=shop) as worker:
        wait_until(queue.workers.list)
        assert pgqueue("workers", "stop", "--all", dsn=dsn).exit_code == 0
        worker.until("worker stopped")
        assert worker.ended() == 0


async def test_a_supervisor_gives_up_on_children_that_die_though_another_was_asked_to_stop(
    tmp_path: Path,
) -> None:
    once = tmp_path / "once"
    script = f"if mkdir {once} 2> {tmp_path}/log; then exit 85; else exit 3; fi"
    supervisor = Supervisor(["sh", "-c", script], 2, first_pause=0.001)
    assert await asyncio.wait_for(supervisor.run(), 60) == 3
    assert supervisor._early_deaths.count(MOST_EARLY_DEATHS) == 1  # noqa: SLF001 - what decides


def test_a_signal_still_restarts_a_child(dsn: str, shop: Path) -> None:
    with started("worker", "--processes", "2", dsn=dsn, folder=shop) as supervisor:
        wait_until(lambda: len(_children(dsn)) == 2)
        first = min(_children(dsn))
        os.kill(first, signal.SIGTERM)
        wait_until(lambda: len(_children(dsn) - {first}) == 2)
        supervisor.signal(signal.SIGTERM)
        assert supervisor.ended() == 0


@pytest.mark.usefixtures("crew")
def test_what_workers_are_asked_is_in_the_audit(dsn: str) -> None:
    pgqueue("workers", "set", "web-1:42", "--concurrency", "7", "--by", "ann", dsn=dsn)
    pgqueue("workers", "quiet", "--all", "--by", "bob", dsn=dsn)
    pgqueue("workers", "stop", "nobody:1", dsn=dsn)
    entries = printed(pgqueue("audit", "list", "--json", dsn=dsn))
    assert [(one["by"], one["action"], one["target"]) for one in entries] == [
        ("bob", "worker quiet", "all"),
        ("ann", "worker set", "web-1:42"),
    ]
    assert entries[1]["details"]["slots"] == "7"
    assert "web-2:42" in entries[0]["details"]["workers"]


def test_jobs_that_died_in_a_process_that_was_replaced_decide_the_exit_code(dsn: str, shop: Path) -> None:
    pgqueue("--app", "shop:queue", "enqueue", "shop.leave", dsn=dsn)
    for number in range(5):
        pgqueue("--app", "shop:queue", "enqueue", "shop.send", f'{{"order_id": {number}}}', dsn=dsn)
    words = ["--until-empty", "--concurrency", "1", "--max-jobs-per-process", "2"]
    with started("worker", *words, dsn=dsn, folder=shop) as supervisor:
        supervisor.until("it starts again")
        assert supervisor.code(within=60) == 3


@pytest.mark.parametrize("bound", [["--max-time", "1m"], ["--max-jobs", "9"]], ids=str)
def test_bounds_of_a_process_do_not_go_with_its_replacement(dsn: str, bound: list[str]) -> None:
    refused = pgqueue("--app", "shop:queue", "worker", *bound, "--max-memory", "1 GB", dsn=dsn)
    assert refused.exit_code == 2
    assert "give one of both" in " ".join(refused.stderr.split())
