from typing import Any

import psycopg
import pytest
from cli.commands import cells, pgqueue, printed

from pgqueue import JobState, PgQueue
from pgqueue.cli import bulk as bulk_command
from pgqueue.store.bulk import bulk


@pytest.fixture
def graves(queue: PgQueue, connection: psycopg.Connection[Any]) -> PgQueue:
    """A queue with three dead jobs: 1 and 2 of sell, 3 of buy in the queue quick; 1 has been dead for eight days."""
    sell = queue.task(name="sell", max_attempts=1)(lambda: None)
    buy = queue.task(name="buy", queue="quick", max_attempts=1)(lambda: None)
    sell.using(unique_key="one").enqueue()
    sell.enqueue()
    buy.enqueue()
    with queue.take(3) as jobs:
        for job in jobs:
            job.fail("no stock")
    connection.execute("update pgqueue.dead_jobs set died_at = now() - interval '8 days' where id = 1")
    connection.commit()
    return queue


def dead(queue: PgQueue) -> list[int]:
    return [job.id for job in queue.insight.search(state=JobState.DEAD).jobs]


@pytest.mark.usefixtures("graves")
def test_list_shows_dead_jobs_with_their_reason_and_error(dsn: str) -> None:
    rows = cells(pgqueue("dead", "list", dsn=dsn))
    assert [row[:4] for row in rows] == [
        ["3", "quick", "buy", "1/1"],
        ["2", "default", "sell", "1/1"],
        ["1", "default", "sell", "1/1"],
    ]
    assert rows[0][-4:] == ["exhausted", "pgqueue.errors.JobError:", "no", "stock"]


@pytest.mark.parametrize(
    ("words", "ids"),
    [([], [3, 2, 1]), (["--task", "sell"], [2, 1]), (["--queue", "quick"], [3]), (["--before", "2"], [1])],
)
@pytest.mark.usefixtures("graves")
def test_list_filters_and_prints_json(words: list[str], ids: list[int], dsn: str) -> None:
    assert [job["id"] for job in printed(pgqueue("dead", "list", "--json", *words, dsn=dsn))] == ids


SELECTIONS = [
    (["2", "3"], [1]),
    (["--task", "sell"], [3]),
    (["--queue", "quick"], [2, 1]),
    (["--older-than", "7d"], [3, 2]),
    (["--task", "buy", "--older-than", "7d"], [3, 2, 1]),
    (["--error", "JobError", "--queue", "default"], [3]),
    (["--error", "OSError"], [3, 2, 1]),
    (["--all"], []),
]


@pytest.mark.parametrize(("words", "left"), SELECTIONS)
def test_retry_returns_the_chosen_jobs_to_their_lines(
    words: list[str], left: list[int], graves: PgQueue, dsn: str
) -> None:
    assert pgqueue("dead", "retry", *words, dsn=dsn).exit_code == 0
    assert dead(graves) == left
    assert len(graves.insight.search(state=JobState.READY).jobs) == 3 - len(left)


@pytest.mark.parametrize(("words", "left"), SELECTIONS)
def test_purge_forgets_the_chosen_jobs(words: list[str], left: list[int], graves: PgQueue, dsn: str) -> None:
    assert pgqueue("dead", "purge", "--yes", *words, dsn=dsn).exit_code == 0
    assert [job.id for job in graves.insight.search().jobs] == left


@pytest.mark.parametrize("verb", ["retry", "purge"])
@pytest.mark.parametrize(
    "words", [[], ["1", "--all"], ["1", "--task", "sell"], ["--all", "--queue", "quick"]]
)
def test_without_a_clear_choice_nothing_is_done(
    verb: str, words: list[str], graves: PgQueue, dsn: str
) -> None:
    assert pgqueue("dead", verb, *words, dsn=dsn, answer="y\n").exit_code == 2
    assert dead(graves) == [3, 2, 1]


@pytest.mark.parametrize("answer", ["n\n", ""])
def test_purge_asks_first_and_takes_silence_for_no(answer: str, graves: PgQueue, dsn: str) -> None:
    result = pgqueue("dead", "purge", "--task", "sell", dsn=dsn, answer=answer)
    assert result.exit_code == 1
    assert "this will delete 2 dead jobs for ever" in result.stderr
    assert dead(graves) == [3, 2, 1]


def test_purge_goes_on_when_told_yes(graves: PgQueue, dsn: str) -> None:
    result = pgqueue("dead", "purge", "--older-than", "7d", dsn=dsn, answer="y\n")
    assert (result.exit_code, result.stdout) == (
        0,
        "1 deleted: the dead jobs dead for longer than 7 days\n",
    )
    assert dead(graves) == [3, 2]


def test_retry_touches_no_job_that_is_not_dead(graves: PgQueue, dsn: str) -> None:
    graves.retry(2)
    result = pgqueue("dead", "retry", "2", "3", "99", dsn=dsn)
    assert (result.exit_code, result.stdout) == (1, "3: ready\n")
    assert result.stderr == "2: not changed: ready\n99: there is no record of it\n"


REMEDIES = (
    "cancel that job, or wait until it has ended, and retry again; or retry without the key: "
    "pgqueue dead retry --without-key\n"
)


def test_retry_names_the_live_job_that_keeps_a_job_dead_and_what_can_be_done(
    graves: PgQueue, dsn: str
) -> None:
    graves.tasks["sell"].using(unique_key="one").enqueue()
    result = pgqueue("dead", "retry", "1", dsn=dsn)
    assert (result.exit_code, result.stderr) == (
        1,
        f"1: stays dead: live job 4 has its unique key 'one'; {REMEDIES}",
    )


def test_retry_by_filter_names_those_that_stay_and_succeeds_if_any_went(graves: PgQueue, dsn: str) -> None:
    graves.tasks["sell"].using(unique_key="one").enqueue()
    result = pgqueue("dead", "retry", "--task", "sell", dsn=dsn)
    assert (result.exit_code, result.stdout) == (0, "1 ready again: the dead jobs of task sell\n")
    assert result.stderr == (
        "1: live job 4 has its unique key\n"
        f"1 skipped, such as 1: live jobs have their unique keys: {REMEDIES}"
    )
    again = pgqueue("dead", "retry", "--task", "sell", dsn=dsn)
    assert (again.exit_code, again.stdout) == (1, "0 ready again: the dead jobs of task sell\n")


def test_retry_without_the_key_makes_the_job_ready_beside_the_live_one(graves: PgQueue, dsn: str) -> None:
    graves.tasks["sell"].using(unique_key="one").enqueue()
    assert pgqueue("dead", "retry", "--without-key", "1", dsn=dsn).stdout == "1: ready\n"
    assert graves.job(1).unique_key is None


def test_retry_says_that_arguments_cannot_be_read(
    graves: PgQueue, connection: psycopg.Connection[Any], dsn: str
) -> None:
    connection.execute("update pgqueue.dead_jobs set args = '\"none\"' where id = 2")
    connection.commit()
    result = pgqueue("dead", "retry", "2", dsn=dsn)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(
        "2: stays dead: its arguments are no JSON object that PostgreSQL can hold"
    )
    assert pgqueue("dead", "retry", "--task", "sell", dsn=dsn).stderr == (
        "1 skipped, such as 2: their arguments cannot be read\n"
    )
    assert dead(graves) == [3, 2]


def test_a_filter_that_no_dead_job_matches_is_no_failure(graves: PgQueue, dsn: str) -> None:
    result = pgqueue("dead", "retry", "--task", "nothing", dsn=dsn)
    assert (result.exit_code, result.stdout) == (0, "0 ready again: the dead jobs of task nothing\n")
    assert dead(graves) == [3, 2, 1]


@pytest.mark.usefixtures("graves")
def test_a_long_retry_tells_how_far_it_is(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "AT_ONCE", 1)
    monkeypatch.setattr(bulk_command, "TELL_EVERY", 0.0)
    result = pgqueue("dead", "retry", "--all", dsn=dsn)
    assert result.stdout == "3 ready again: all dead jobs\n"
    assert result.stderr == "".join(f"{count} ready again so far\n" for count in (1, 2, 3, 3))


@pytest.mark.usefixtures("graves")
def test_purge_of_an_id_that_is_not_dead_is_no_success(dsn: str) -> None:
    assert pgqueue("dead", "purge", "--yes", "1", "99", dsn=dsn).exit_code == 1


@pytest.mark.usefixtures("graves")
def test_show_writes_a_test_of_a_dead_job(dsn: str) -> None:
    assert "no stock" in pgqueue("jobs", "show", "2", dsn=dsn).output
    written = pgqueue("jobs", "show", "2", "--pytest", dsn=dsn).output
    assert "def test_job_2_of_sell(pgqueue_app):" in written
    assert "no stock" in written
    both = pgqueue("jobs", "show", "2", "--pytest", "--json", dsn=dsn)
    assert (both.exit_code, "not both" in both.output) == (2, True)
