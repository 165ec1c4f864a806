"""What the lake refuses, in words, before anything is done; and what keeps the database's history where it is."""

import re
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from deltalake import write_deltalake
from looking import ask
from spark.lake_history import DAY, ENDED, NEXT, ended, history_ids

from pgqueue import PgQueue
from pgqueue.errors import (
    ConfigurationError,
    InvalidOption,
    LakeError,
    LakeOfAnother,
    LakeTooNew,
    PipelineError,
)
from pgqueue.spark.lake import prune as pruning
from pgqueue.spark.lake.database_rows import final_below
from pgqueue.spark.lake.export import ExportOptions
from pgqueue.spark.lake.lake import Lake
from pgqueue.spark.lake.prune import Fate, prune
from pgqueue.spark.lake.records import NAME, SCHEMA, EndedDay, ExportBatch, Verification
from pgqueue.spark.lake.status import DayState, status
from pgqueue.spark.lake.steps import writer_lock
from pgqueue.store import retention
from pgqueue.store.connections.connection import StepRunner
from pgqueue.store.connections.database import Database
from pgqueue.store.pipeline import lake as plans
from pgqueue.store.pipeline.lake import Origin, first_open_day
from pgqueue.store.plan import Plan, Steps, T, plan, run

OURS = Origin("1", 2, "pgqueue")
COLUMNS = pa.schema([("id", pa.int64()), ("day", pa.date32())])
NONE, A_MINUTE = timedelta(0), timedelta(minutes=1)  # other tests' databases are made on the same server


@pytest.fixture
def lake(queue: PgQueue, tmp_path: Path) -> Lake:
    made = Lake(tmp_path / "lake")
    made.create(queue.database.run(plans.origin("pgqueue")))
    return made


@pytest.fixture
def writing(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    """A transaction that has a number, and may end a job of any day."""
    with psycopg.connect(dsn, application_name="night batch") as connection:
        connection.execute("insert into pgqueue.queues (name) values ('other')")
        yield connection


def test_an_empty_folder_becomes_a_lake_and_any_other_is_refused(tmp_path: Path) -> None:
    Lake(tmp_path / "new").create(OURS)
    assert Lake(tmp_path / "new").marker().origin == OURS
    (tmp_path / "begun" / "_pgqueue").mkdir(parents=True)
    (tmp_path / "begun" / "_pgqueue" / ".unfinished-1-lake.json").touch()
    Lake(tmp_path / "begun").create(OURS)

    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").touch()
    with pytest.raises(LakeError, match=r"no lake, and not empty \(cat.jpg is in it\)"):
        Lake(tmp_path / "photos").create(OURS)
    with pytest.raises(LakeError, match="is no lake: run `pgqueue pipeline export` first"):
        Lake(tmp_path / "photos").days()
    with pytest.raises(LakeError, match=r"cannot write in the lake .*Not a directory"):
        Lake(tmp_path / "photos" / "cat.jpg" / "lake").create(OURS)


def test_a_lake_of_another_database_or_schema_is_refused(queue: PgQueue, tmp_path: Path) -> None:
    Lake(tmp_path).create(OURS)

    with pytest.raises(LakeOfAnother, match="holds the history of schema pgqueue of database 2 on server 1"):
        Lake(tmp_path).create(Origin("1", 2, "other"))
    with pytest.raises(LakeOfAnother):
        prune(queue.database, Lake(tmp_path))
    with pytest.raises(LakeOfAnother):
        status(queue.database, Lake(tmp_path))


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        ('{"format": 2}', LakeTooNew, "has format 2, and this release reads up to 1: upgrade pgqueue"),
        ('{"format": 1}', LakeError, "cannot be read as one of ours .*missing required field"),
        ("", LakeError, "cannot be read as one of ours"),
    ],
)
def test_a_marker_or_record_that_is_not_of_this_release_is_refused(
    tmp_path: Path, text: str, error: type[LakeError], words: str
) -> None:
    Lake(tmp_path).create(OURS)
    lake = Lake(tmp_path)
    lake.table("ended").commit(COLUMNS, [], {DAY: 1})
    row = {"table": "ended", "day": DAY, "generation": 1, "recorded_at": None, "record": text}
    write_deltalake(tmp_path / NAME, pa.Table.from_pylist([row], SCHEMA))
    with pytest.raises(error, match=words):
        lake.days()

    (tmp_path / "_pgqueue" / "lake.json").write_text(text)
    with pytest.raises(error, match=words):
        Lake(tmp_path).create(OURS)


def test_a_place_that_spark_would_misread_or_nobody_knows_is_refused() -> None:
    with pytest.raises(LakeError, match=r"Spark takes \[ in a path for a pattern"):
        Lake("/data/lake [1]")
    with pytest.raises(LakeError, match="gopher://lake is no place for a lake"):
        Lake("gopher://lake")


def test_one_at_a_time_writes_and_the_other_is_told_the_pid(queue: PgQueue, lake: Lake) -> None:
    with writer_lock(queue.database) as first:
        with pytest.raises(PipelineError, match=r"another process is writing .*pid \d+, pgqueue") as refused:
            prune(queue.database, lake)
        (holder,) = queue.database.run(plans.holder())
        assert f"pid {holder.pid}" in str(refused.value)

        ask(queue.database.dsn, "select pg_terminate_backend(%(pid)s)", pid=holder.pid)
        with pytest.raises(PipelineError, match="held the lake's lock was lost"):
            first.require_held()
        assert prune(queue.database, lake) == []


def test_a_holder_that_has_just_gone_is_waited_for(
    queue: PgQueue, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server notices a moment later that a connection was closed, or its process killed."""
    former = psycopg.connect(dsn, autocommit=True)
    assert run(plans.lock(), StepRunner(former, queue.database.catalogue))
    tried = plans.lock

    @plan
    def lock() -> Steps[bool]:
        taken = yield from tried()
        former.close()  # after the first try, which fails
        return taken

    monkeypatch.setattr(plans, "lock", lock)
    with writer_lock(queue.database) as second:
        second.require_held()


def test_a_pooler_is_no_place_for_a_lock(dsn: str) -> None:
    pooled = Database(dsn, behind_pooler=True)

    with pytest.raises(ConfigurationError, match="--direct-dsn"), writer_lock(pooled):
        pass
    with writer_lock(Database(dsn, behind_pooler=True, direct_dsn=dsn)):
        pass
    pooled.close()


def test_a_day_is_closed_a_margin_after_its_end() -> None:
    midnight = datetime(2026, 1, 21, tzinfo=UTC)

    assert first_open_day(midnight, NONE) == NEXT
    assert first_open_day(midnight, timedelta(seconds=1)) == DAY
    assert first_open_day(midnight + timedelta(minutes=1), timedelta(minutes=1)) == NEXT


def test_a_transaction_that_may_still_add_to_a_day_is_named(
    queue: PgQueue, writing: psycopg.Connection[Any]
) -> None:
    barrier = queue.database.run(plans.barrier())
    pid = writing.info.backend_pid

    below, others = final_below(queue.database, barrier, NONE)
    assert below <= barrier
    (said,) = (str(one) for one in others if one.pid == pid)
    assert re.match(rf"pid {pid}, night batch \(postgres in database .*, for \d", said)
    writing.rollback()
    below, others = final_below(queue.database, barrier, A_MINUTE)
    assert (below > barrier, others) == (True, ())


def test_an_export_waits_for_a_transaction_to_end(
    queue: PgQueue, writing: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    barrier = queue.database.run(plans.barrier())
    looks = []
    really = queue.database.run

    def run(plan: Plan[T], connection: object = None) -> T:
        looks.append(plan)
        if len(looks) == 3:
            writing.commit()
        return really(plan, connection)

    monkeypatch.setattr(queue.database, "run", run)
    assert final_below(queue.database, barrier, A_MINUTE)[0] > barrier
    assert len(looks) >= 3


def test_a_transaction_that_only_reads_is_in_nobodys_way(queue: PgQueue, dsn: str) -> None:
    with psycopg.connect(dsn) as connection:
        connection.execute("select count(*) from pgqueue.job_history")
        barrier = queue.database.run(plans.barrier())
        assert final_below(queue.database, barrier, A_MINUTE)[0] > barrier


@pytest.mark.parametrize(
    "bad", [{"margin": timedelta(-1)}, {"wait": -0.1}, {"wait": "1 h"}, {"rows_per_file": 0}]
)
def test_options_out_of_range_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption, match=next(iter(bad))):
        ExportOptions(**bad)


def test_lengths_of_time_are_seconds_or_timedeltas() -> None:
    lengths = ExportOptions(margin=timedelta(minutes=1), wait=timedelta(seconds=0.5))
    assert ExportOptions(margin=60, wait=0.5) == lengths


def test_days_are_open_or_closed_by_the_databases_clock(queue: PgQueue, dsn: str, tmp_path: Path) -> None:
    ended(dsn, DAY, 2)
    ended(dsn, NEXT, 3, partition=False)
    nowhere = Lake(tmp_path / "nowhere")

    found = status(queue.database, nowhere, now=datetime(2026, 1, 21, 0, 1, tzinfo=UTC))
    assert [(one.day, one.state, one.waiting) for one in found] == [
        (DAY, DayState.CLOSED, 2),
        (NEXT, DayState.OPEN, 3),
    ]
    assert [one.state for one in status(queue.database, nowhere, margin=120)] == [DayState.CLOSED] * 2


def _verified(queue: PgQueue, lake: Lake, day: date) -> EndedDay:
    """A day as an export and a verify would leave it, but for the files."""
    below = queue.database.run(plans.horizon()).xmax
    held = queue.database.run(
        plans.contents(day, below=below, dead=queue.database.run(plans.dead_bounds()).get(day, plans.NO_DEAD))
    )
    at = datetime.now(UTC)
    batch = ExportBatch(
        generation=1, since=0, below=below, highest=None, exported_at=at, history=held.history, dead=held.dead
    )
    verified = Verification(
        at=at, history=held.history, dead=held.dead, standing=held.history, versions=held.versions
    )
    entry = EndedDay(
        table="ended",
        day=day,
        generation=lake.table("ended").generation(day) + 1,
        written_at=at,
        batches=(batch,),
        verified=verified,
    )
    lake.commit(COLUMNS, [], [entry])
    noted = plans.note_verified(day, history=held.history, dead=held.dead, below=below, lake=lake.uri)
    queue.database.run(noted)
    return entry


def test_the_newest_days_are_kept(queue: PgQueue, dsn: str, lake: Lake) -> None:
    ended(dsn, DAY, 2)
    ended(dsn, NEXT, 3)
    for day in (DAY, NEXT):
        _verified(queue, lake, day)
    noon = datetime(2026, 1, 28, 12, tzinfo=UTC)

    found = prune(queue.database, lake, keep=7 * 86_400, lock_wait=60, now=noon)
    assert [(one.day, one.fate) for one in found] == [(DAY, Fate.PRUNED), (NEXT, Fate.KEPT)]
    found = prune(queue.database, lake, days=[DAY])
    assert found == []
    with pytest.raises(InvalidOption, match="keep"):
        prune(queue.database, lake, keep=timedelta(-1))
    with pytest.raises(InvalidOption, match="lock_wait"):
        prune(queue.database, lake, lock_wait=-1)


def test_a_day_that_only_its_manifest_calls_verified_is_not_dropped(
    queue: PgQueue, dsn: str, lake: Lake
) -> None:
    ended(dsn, DAY, 2)
    _verified(queue, lake, DAY)
    ask(dsn, "delete from pgqueue.lake_days")

    assert [one.fate for one in prune(queue.database, lake)] == [Fate.WAITING]
    assert len(history_ids(dsn)) == 2


def test_a_prune_gives_up_on_a_history_that_is_in_use_and_says_who_uses_it(
    queue: PgQueue, dsn: str, lake: Lake
) -> None:
    ended(dsn, DAY, 2)
    _verified(queue, lake, DAY)
    with psycopg.connect(dsn, application_name="long report") as reader:
        reader.execute("select count(*) from pgqueue.job_history")
        (one,) = prune(queue.database, lake, lock_wait=NONE)
        assert one.fate is Fate.BUSY
        assert one.reason.count(f"pid {reader.info.backend_pid}, long report") == 1
    assert [one.fate for one in prune(queue.database, lake)] == [Fate.PRUNED]


def test_the_days_of_a_prune_share_one_wait(
    queue: PgQueue, dsn: str, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    for day in (DAY, NEXT):
        ended(dsn, day, 2)
    for day in (DAY, NEXT):
        _verified(queue, lake, day)
    until = pruning._until  # noqa: SLF001 - what is counted
    ends = set()

    def noted(end: float, attempt: Callable[..., bool | None], *args: object) -> bool | None:
        ends.add(end)
        return until(end, attempt, *args)

    monkeypatch.setattr(pruning, "_until", noted)
    assert [one.fate for one in prune(queue.database, lake)] == [Fate.PRUNED] * 2
    assert len(ends) == 1


def test_nobody_can_add_to_a_day_while_it_is_compared_and_dropped(
    queue: PgQueue, dsn: str, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended(dsn, DAY, 2)
    _verified(queue, lake, DAY)
    refused = []

    def passed(point: str) -> None:
        if point == "held":
            with psycopg.connect(dsn, options="-c lock_timeout=1") as late:
                try:
                    late.execute(ENDED, {"day": DAY, "count": 1, "queue": "late"})
                except psycopg.errors.LockNotAvailable as error:
                    refused.append(error)

    monkeypatch.setattr(lake, "passed", passed)
    assert [one.fate for one in prune(queue.database, lake)] == [Fate.PRUNED]
    assert len(refused) == 1


def _dropped(queue: PgQueue) -> int:
    """Keep a day of history; how many days went."""
    queue.database.run(retention.keep_for(timedelta(days=1), None, said_by="test"))
    return queue.database.run(retention.drop_history())


def test_retention_drops_only_what_is_wholly_in_the_lake_where_there_is_one(
    queue: PgQueue, dsn: str, lake: Lake
) -> None:
    last = NEXT + timedelta(days=1)
    for day in (DAY, NEXT, last):
        ended(dsn, day, 2)
    _verified(queue, lake, DAY)
    _verified(queue, lake, NEXT)
    late = ended(dsn, NEXT, 1)

    _dropped(queue)

    days = "select distinct (finished_at at time zone 'UTC')::date from pgqueue.job_history order by 1"
    assert ask(dsn, days) == [(NEXT,), (last,)]
    assert late[0] in history_ids(dsn)
    assert ask(dsn, "select day from pgqueue.lake_days where pruned_below = below") == [(DAY,)]
    _verified(queue, lake, NEXT)
    ask(dsn, "select pgqueue.ensure_history_days(%(day)s, %(day)s)", day=last + timedelta(days=1))
    assert _dropped(queue) == 2, "a day without rows goes, too"
    assert ask(dsn, days) == [(last,)]


def test_retention_drops_old_days_as_ever_where_there_is_no_lake(queue: PgQueue, dsn: str) -> None:
    ended(dsn, DAY, 2)

    assert _dropped(queue) == 1
    assert history_ids(dsn) == []
