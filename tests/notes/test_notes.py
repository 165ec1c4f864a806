"""Notes in the tables: which ones tidying deletes, how much it reads, and what SQL and other connections see of them."""

import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from store.crowd import ask
from store.samples import NOON, adding, error_of, new_job, running, taking

from pgqueue.store.catalogue import catalogue_of
from pgqueue.store.jobs import control, finish, notes
from pgqueue.store.jobs.notes import NoteKey
from pgqueue.store.workers import upkeep
from pgqueue.values.jobs.verdict import Cancelled, Died, Succeeded, Verdict

STEP: NoteKey = ("step", "charge")


@pytest.fixture
def own(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        yield connection


def noted(own: psycopg.Connection[Any]) -> set[int]:
    return {job for (job,) in own.execute("select job_id from pgqueue.notes")}


def test_only_the_notes_of_jobs_that_are_neither_live_nor_dead_are_deleted(
    own: psycopg.Connection[Any],
) -> None:
    ask(own, adding(*(new_job() for _ in range(4)), now=NOON))
    succeeded, dead, cancelled, live = ask(own, taking(now=NOON))
    for one in (succeeded, dead, cancelled, live):
        for name in ("one", "two"):
            assert ask(own, notes.keep(one, ("step", name), "1"))
    verdicts: list[Verdict] = [
        Succeeded(succeeded, 0.0),
        Died(dead, 0.0, "asked", error_of(dead)),
        Cancelled(cancelled),
    ]
    ask(own, finish.finish(live.worker_id, verdicts, keep=False))

    assert ask(own, upkeep.drop_notes()) == 4
    assert noted(own) == {dead.id, live.id}
    assert ask(own, upkeep.drop_notes()) == 0

    assert ask(own, control.retry(dead.id))
    assert ask(own, upkeep.drop_notes()) == 0
    assert ask(own, notes.recall(dead.id)) == {("step", "one"): "1", ("step", "two"): "1"}


def test_the_notes_of_a_purged_job_are_deleted(own: psycopg.Connection[Any]) -> None:
    one = ask(own, running())
    assert ask(own, notes.keep(one, STEP, "1"))
    ask(own, finish.finish(one.worker_id, [Died(one, 0.0, "asked", error_of(one))], keep=True))
    assert ask(own, control.purge_dead([one.id])) == 1
    assert ask(own, upkeep.drop_notes()) == 1


def test_of_a_large_table_a_statement_reads_a_sample_and_many_runs_find_everything(
    own: psycopg.Connection[Any],
) -> None:
    """Half of the notes are of a job that is live; the others are found in portions."""
    one = ask(own, running())
    own.execute(
        "insert into pgqueue.notes (job_id, kind, name, value) "
        "select case when n %% 10 = 0 then %s + n else %s end, 'step', n, to_json(repeat('x', 500)) "
        "from generate_series(1, 20000) as n",
        [one.id, one.id],
    )
    ((looked, deleted),) = own.execute(catalogue_of("pgqueue")["notes/drop"]).fetchall()
    assert 0 < deleted < looked < 15_000
    runs = 0
    while noted(own) != {one.id}:
        ask(own, upkeep.drop_notes())
        runs += 1
    assert runs < 200
    assert own.execute("select count(*) from pgqueue.notes").fetchone() == (18_000,)


def test_a_run_goes_on_while_much_is_to_be_deleted(own: psycopg.Connection[Any]) -> None:
    own.execute(
        "insert into pgqueue.notes (job_id, kind, name, value) "
        "select 1000000 + n, 'step', 'charge', to_json(repeat('x', 500)) from generate_series(1, 20000) as n"
    )
    assert ask(own, upkeep.drop_notes()) > 15_000


def test_two_tidiers_and_a_job_that_notes_at_the_same_time_disturb_each_other_in_nothing(
    own: psycopg.Connection[Any], dsn: str
) -> None:
    one = ask(own, running())
    stop = threading.Event()
    failures: list[BaseException] = []

    def tidy() -> None:
        try:
            with psycopg.connect(dsn, autocommit=True) as mine:
                while not stop.is_set():
                    ask(mine, upkeep.drop_notes())
        except BaseException as error:  # noqa: BLE001 - it fails the test, in the test's own thread
            failures.append(error)

    threads = [threading.Thread(target=tidy) for _ in range(2)]
    for thread in threads:
        thread.start()
    for number in range(200):
        own.execute(
            "insert into pgqueue.notes (job_id, kind, name, value) values (999, 'step', %s, '1')",
            [str(number)],
        )
        assert ask(own, notes.keep(one, ("checkpoint", ""), str(number)))
        assert ask(own, notes.keep(one, ("step", str(number)), "1"))
    stop.set()
    for thread in threads:
        thread.join()
    assert not failures
    ask(own, upkeep.drop_notes())
    assert noted(own) == {one.id}
    assert len(ask(own, notes.recall(one.id))) == 201
