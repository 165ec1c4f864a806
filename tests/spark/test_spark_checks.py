"""Checks of the lake's jobs: each finds what it is for, and its results are rows."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cli.commands import pgqueue, printed
from looking import ask
from spark.lake_history import DAY, NEXT, died, ended, no_session

from pgqueue import PgQueue
from pgqueue.errors import ConfigurationError
from pgqueue.spark.checks import CHECKS, OWN, SCHEMA, check
from pgqueue.spark.config import Check, parse
from pgqueue.spark.lake.columns import ENDED, ENDED_SCHEMA, ENDED_TABLE
from pgqueue.spark.lake.export import export
from pgqueue.spark.lake.lake import Lake
from pgqueue.spark.lake.records import EndedDay, ExportBatch
from pgqueue.store.pipeline.lake import Checksum

AT = datetime(2026, 1, 20, 12, tzinfo=UTC)
GOOD: dict[str, Any] = {
    "queue": "mail",
    "task": "send",
    "outcome": "succeeded",
    "created_at": AT - timedelta(seconds=9),
    "run_at": AT,
    "started_at": AT,
    "ended_at": AT,
    "attempts": 1,
    "args": '{"n": 1}',
    "ended_in": 7,
}
BAD: dict[str, dict[str, Any]] = {
    "another_day": {"ended_at": AT + timedelta(days=1)},
    "ended_before_its_start": {"started_at": AT + timedelta(seconds=61)},
    "started_before_it_was_enqueued": {"created_at": AT + timedelta(seconds=61)},
    "succeeded_without_an_attempt": {"attempts": 0},
    "dead_without_an_error": {"outcome": "dead", "errors": "[]"},
    "errors_are_no_list": {"errors": '{"attempt": 1}'},
    "unknown_outcome": {"outcome": "Succeeded"},
    "doubled": {"id": 1},
}


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake")


def put(queue: PgQueue, lake: Lake, jobs: list[dict[str, Any]]) -> None:
    """A lake with these jobs of one day."""
    import pyarrow as pa  # noqa: PLC0415 - only here

    from pgqueue.store.pipeline import lake as plans  # noqa: PLC0415 - only here

    lake.create(queue.database.run(plans.origin("pgqueue")))
    numbered = [{"id": number, **GOOD, **job} for number, job in enumerate(jobs, start=1)]
    written = lake.write_rows(ENDED, DAY, pa.Table.from_pylist(numbered, ENDED_SCHEMA))
    batch = ExportBatch(
        generation=1,
        since=0,
        below=9,
        highest=7,
        exported_at=AT,
        history=Checksum(len(jobs)),
        dead=Checksum(),
    )
    lake.commit(
        ENDED_TABLE, written, [EndedDay(table=ENDED, day=DAY, generation=1, written_at=AT, batches=(batch,))]
    )


def test_jobs_that_are_as_they_should_be_pass_every_check(queue: PgQueue, dsn: str, lake: Lake) -> None:
    ended(dsn, DAY, 30)
    died(dsn, DAY, 3)
    ask(dsn, "update pgqueue.job_history set attempts = 1 where outcome = 'succeeded'")
    export(no_session, queue.database, lake)
    found = check(queue.database, lake)
    assert [one.name for one in found] == [one.name for one in OWN]
    assert [(one.name, one.found) for one in found if not one.passed] == []
    assert {one.jobs for one in found} == {33}


@pytest.mark.parametrize("name", [one.name for one in OWN])
def test_each_check_finds_what_it_is_for(queue: PgQueue, lake: Lake, name: str) -> None:
    put(
        queue,
        lake,
        [
            {},
            {"outcome": "dead", "errors": '[{"attempt": 1}]'},
            BAD[name],
            {"outcome": "cancelled", "attempts": 0, "started_at": None},
        ],
    )
    failed = [(one.name, one.jobs, one.found) for one in check(queue.database, lake) if not one.passed]
    assert failed == [(name, 4, 1)]


def test_own_checks_have_a_task_and_a_share(queue: PgQueue, lake: Lake) -> None:
    put(queue, lake, [{"task": "bill", "priority": number} for number in range(10)] + [{}] * 2)
    told = parse(
        """
        [[check]]
        name = "urgent"
        where = "priority > 7 -- two of ten"
        task = "bill"
        most = 0.2
        [[check]]
        name = "no customer"
        where = "args->>'customer' is null"
        """
    )
    *_, urgent, nameless = check(queue.database, lake, told.checks)
    assert (urgent.task, urgent.jobs, urgent.found, urgent.passed, urgent.example) == ("bill", 10, 2, True, 9)
    assert (nameless.jobs, nameless.found, nameless.passed, nameless.example) == (12, 12, False, 1)
    less = [Check(name="urgent", where="priority > 7", task="bill", most=0.19)]
    assert check(queue.database, lake, less)[-1].passed is False


def test_a_day_is_checked_again_when_its_rows_or_the_checks_change(
    queue: PgQueue, dsn: str, lake: Lake
) -> None:
    for day in (DAY, NEXT):
        ended(dsn, day, 2)
    export(no_session, queue.database, lake)
    assert {one.day for one in check(queue.database, lake)} == {DAY, NEXT}
    assert check(queue.database, lake) == []
    assert {one.day for one in check(queue.database, lake, days=[NEXT])} == {NEXT}
    ended(dsn, NEXT, 1)
    export(no_session, queue.database, lake)
    assert {one.day for one in check(queue.database, lake)} == {NEXT}
    mine = [Check(name="mine", where="false")]
    assert {one.day for one in check(queue.database, lake, mine)} == {DAY, NEXT}
    rows = lake.dataset(CHECKS, SCHEMA).to_table().to_pylist()
    assert len(rows) == 2 * (len(OWN) + 1)
    assert {(row["day"], row["jobs"]) for row in rows} == {(DAY, 2), (NEXT, 3)}


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("customer = 1", "check 'mine': .*Referenced column \"customer\" not found"),
        ("task in (select content from read_text('/etc/passwd'))", "disabled by configuration"),
    ],
)
def test_a_condition_that_cannot_be_used_is_refused_before_anything_is_checked(
    queue: PgQueue, lake: Lake, *, where: str, said: str
) -> None:
    put(queue, lake, [{}])
    with pytest.raises(ConfigurationError, match=said) as told:
        check(queue.database, lake, [Check(name="mine", where=where)])
    assert "\n" not in str(told.value)
    assert lake.entries(CHECKS) == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[check]", r"write \[\[check\]\], with two brackets"),
        ('[[check]]\nwhere = "true"', "check 1: name is missing"),
        ('[[check]]\nname = "a"', "check 1: where is missing"),
        ('[[check]]\nname = "a"\nwhere = "b"\nmost = 1', "check 1: most = 1: use a share"),
        ('[[check]]\nname = "a"\nwhere = "b"\nshare = 1', "check 1: unknown key 'share'"),
        ('[[check]]\nname = "a"\nwhere = "b"\n' * 2, "check 1 and check 2 are both called 'a'"),
    ],
)
def test_a_check_that_is_written_wrongly_is_told(text: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        parse(text)


def test_the_verb_says_what_failed_and_ends_with_one(
    queue: PgQueue, dsn: str, lake: Lake, tmp_path: Path
) -> None:
    put(queue, lake, [{}, {"attempts": 0}])
    config = tmp_path / "pipeline.toml"
    config.write_text('[[check]]\nname = "to mail"\nwhere = "queue = \'mail\'"\ntask = "send"\nmost = 0.5\n')
    words = ("pipeline", "check", "--lake", lake.uri, "--config", str(config))
    result = pgqueue(*words, dsn=dsn)
    assert (result.exit_code, result.stdout) == (1, "1 day checked: 7 checks passed, 2 failed\n")
    assert result.stderr == (
        f"{DAY}: succeeded_without_an_attempt: 1 of 2 jobs, such as 2\n"
        f"{DAY}: to mail: 2 of 2 jobs of task send, such as 1; allowed are 50.0%\n"
    )
    assert pgqueue(*words, dsn=dsn).stdout == "0 days checked: 0 checks passed, 0 failed\n"
    found = printed(
        pgqueue("pipeline", "check", "--lake", lake.uri, "--days", "2026-01-19", "--json", dsn=dsn)
    )
    assert found == []
