"""Made-up history: it is what real history could be, the same for the same wish, and it spoils nothing real."""

import hashlib
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from typing import Any

import msgspec
import psycopg
import pytest
from cli.commands import pgqueue, printed
from databases import dsn_of

from pgqueue import PgQueue
from pgqueue.errors import InvalidOption, PipelineError
from pgqueue.spark.demo import history as generating
from pgqueue.spark.demo.days import CROWD_HOUR, CROWD_TENANT, FIRST_ID, SLOWED, STORM_HOURS, Wish, spread
from pgqueue.spark.demo.history import generate, last_closed_day
from pgqueue.spark.demo.planned import crew_for, story
from pgqueue.spark.demo.world import BUSIEST, FAILURES, TASKS, shares
from pgqueue.values.jobs.job import AttemptError

UNTIL = date(2026, 3, 29)
"""A Sunday."""
WISH = Wish(rows=12_000, days=15, until=UNTIL)
ENDED = """
    select id, queue, task, outcome as how, run_at, created_at, started_at, finished_at as ended_at, worker_id, attempts,
           max_attempts, args::jsonb, errors, unique_key, collisions, priority, result from pgqueue.job_history
    union all
    select id, queue, task, reason, run_at, created_at, started_at, died_at, worker_id, attempts,
           max_attempts, args::jsonb, errors, unique_key, collisions, priority, null from pgqueue.dead_jobs"""


@pytest.fixture(scope="module")
def shop(copies: Any, migrated_server: Any) -> Any:
    """A database with a made-up history in it, to look at; no test changes it."""
    with copies.one() as name:
        dsn = dsn_of(migrated_server, name)
        queue = PgQueue(dsn)
        generate(queue.database, WISH)
        queue.close()
        with psycopg.connect(dsn) as connection:
            connection.execute("set timezone to 'UTC'")
            connection.execute(f"create temporary table ended as {ENDED}".encode())
            yield connection


def rows(connection: psycopg.Connection[Any], query: str, *values: object) -> list[tuple[Any, ...]]:
    return connection.execute(query.encode(), values).fetchall()


def digest(dsn: str) -> str:
    """Of everything that was made."""
    with psycopg.connect(dsn) as connection:
        connection.execute("set timezone to 'UTC'")
        told = [
            rows(connection, f"select * from ({ENDED}) as ended order by id"),
            rows(
                connection,
                "select id, started_at, ended_at, concurrency from pgqueue.former_workers order by id",
            ),
            rows(connection, "select * from pgqueue.deploys order by 1"),
        ]
    return hashlib.sha256(repr(told).encode()).hexdigest()


def test_every_row_that_was_asked_for_is_there_once_on_its_day(shop: psycopg.Connection[Any]) -> None:
    planned = {day.day: day.rows for day in story(WISH).days}
    assert sum(planned.values()) == WISH.rows
    assert dict(rows(shop, "select ended_at::date, count(distinct id) from ended group by 1")) == planned
    assert rows(shop, "select count(*) from pgqueue.job_history_default") == [(0,)]


@pytest.mark.parametrize(
    "never",
    [
        "started_at < run_at",
        "ended_at < started_at",
        "run_at < created_at",
        "attempts > max_attempts",
        "how = 'succeeded' and coalesce(jsonb_array_length(errors), 0) <> attempts - 1",
        "how in ('exhausted', 'refused', 'asked', 'undecodable') and coalesce(jsonb_array_length(errors), 0) <> attempts",
        "how = 'exhausted' and attempts <> max_attempts",
        "how = 'cancelled' and jsonb_array_length(errors) > attempts",
        "(started_at is null) <> (worker_id is null)",
        "started_at is null and how <> 'cancelled'",
        "started_at is null and coalesce(jsonb_array_length(errors), 0) <> attempts",
        "id <= 1000000000000",
        "(unique_key is not null) <> (task in ('send_receipt', 'charge_card', 'settle_account'))",
        "collisions > 0 and unique_key is null",
        "result is not null and how <> 'succeeded'",
        "jsonb_typeof(args) <> 'object' or args ->> 'tenant' !~ '^tenant-[0-9]+$'",
    ],
)
def test_no_row_is_one_that_a_worker_could_not_have_left(shop: psycopg.Connection[Any], never: str) -> None:
    assert rows(shop, f"select * from ended where {never} limit 1") == []


def test_what_is_checked_of_them_is_there(shop: psycopg.Connection[Any]) -> None:
    kinds = dict(rows(shop, "select how, count(*) from ended group by 1"))
    assert kinds.keys() == {"succeeded", "cancelled", "exhausted", "refused", "asked", "undecodable"}
    assert rows(shop, "select count(*) > 0 from ended where how = 'cancelled' and started_at is null") == [
        (True,)
    ]
    assert rows(shop, "select max(attempts), count(*) filter (where collisions > 0) > 0 from ended") == [
        (8, True)
    ]


def test_errors_are_of_the_workers_own_form_and_in_the_order_of_time(shop: psycopg.Connection[Any]) -> None:
    found = rows(
        shop, "select created_at, started_at, ended_at, errors, how from ended where errors is not null"
    )
    assert len(found) > 200
    for created_at, started_at, ended_at, errors, how in found:
        told = msgspec.convert(errors, tuple[AttemptError, ...])
        instants = [error.at for error in told if error.at]
        assert [error.attempt for error in told] == list(range(1, len(told) + 1))
        assert all(before < after for before, after in pairwise([created_at, *instants])), errors
        last = ended_at if how not in {"succeeded", "cancelled"} else started_at or ended_at
        assert instants[-1] <= last
        assert all(error.message and error.traceback for error in told)


def test_messages_differ_in_numbers_only_where_they_mean_the_same(shop: psycopg.Connection[Any]) -> None:
    query = """
        select count(distinct message), count(distinct regexp_replace(message, '[0-9a-f]*[0-9][0-9a-f]*', '#', 'g'))
        from ended, jsonb_to_recordset(errors) as error (message text)"""
    ((as_told, as_meant),) = rows(shop, query)
    assert as_told > 200
    assert as_meant < 60
    assert not rows(
        shop,
        "select from ended, jsonb_to_recordset(errors) as e (message text) where strpos(message, %s) > 0",
        "%",
    )


def test_every_job_ran_while_its_worker_was_there(shop: psycopg.Connection[Any]) -> None:
    query = """
        select count(*), count(worker.id),
               count(*) filter (where ended.started_at < worker.started_at or ended.ended_at > worker.ended_at)
        from ended left join pgqueue.former_workers as worker on worker.id = worker_id where worker_id is not null"""
    ((ran, known, outside),) = rows(shop, query)
    assert ran == known > 11_000
    assert outside == 0


def test_workers_are_neither_idle_nor_out_of_their_depth() -> None:
    big = story(Wish(rows=20_000_000, days=30, until=UNTIL))
    for day in big.days:
        for hour in range(24):
            cells = [cell for cell in day.cells if cell.hour == hour]
            slots = [len(one.workers) for one in day.shifts if one.begins <= hour * 3_600_000_000][-1]
            busy = sum(cell.busy for cell in cells) / (3600 * slots)
            assert 0.03 < busy < 0.8, (day.day, hour)
    assert crew_for(0.0) == (2, 2)


def test_days_have_a_rhythm_weeks_too_and_there_is_growth() -> None:
    days = {day.day: day for day in story(Wish(rows=3_000_000, days=28, until=UNTIL)).days}
    weeks = [sum(days[UNTIL - timedelta(days=7 * week + day)].rows for day in range(7)) for week in range(4)]
    assert sorted(weeks, reverse=True) == weeks
    assert days[UNTIL].rows < 0.7 * days[UNTIL - timedelta(days=5)].rows
    hours = [sum(cell.rows for cell in days[UNTIL].cells if cell.hour == hour) for hour in (4, 11)]
    assert hours[0] * 2 < hours[1]


def test_what_is_hidden_is_there_to_be_found(shop: psycopg.Connection[Any]) -> None:
    events = story(WISH).events
    by_release = rows(
        shop,
        "select ended_at >= %s, percentile_cont(0.5) within group (order by extract(epoch from ended_at - started_at)) "
        "from ended where task = %s and how = 'succeeded' group by 1 order by 1",
        events.slower.at,
        SLOWED,
    )
    assert 1.5 < by_release[1][1] / by_release[0][1] < 2.1
    storm = rows(
        shop,
        "select avg(attempts) from ended where queue = %s and ended_at::date = %s "
        "and extract(hour from ended_at) between %s and %s",
        BUSIEST,
        events.storm,
        STORM_HOURS[0],
        STORM_HOURS[-1],
    )
    assert storm[0][0] > 2
    crowd = rows(
        shop,
        "select args ->> 'tenant' from ended where queue = %s and ended_at::date = %s and extract(hour from ended_at) = %s "
        "group by 1 order by count(*) desc limit 1",
        BUSIEST,
        events.crowd,
        CROWD_HOUR,
    )
    assert crowd == [(f"tenant-{CROWD_TENANT}",)]
    assert rows(shop, "select deployed_at, version from pgqueue.deploys order by 1") == [
        (release.at, release.version) for release in events.releases
    ]


def test_tenants_are_as_unequal_as_tenants_are(shop: psycopg.Connection[Any]) -> None:
    sizes = [
        n for (n,) in rows(shop, "select count(*) from ended group by args ->> 'tenant' order by 1 desc")
    ]
    assert len(sizes) > 300
    assert sum(sizes[:20]) > 0.4 * sum(sizes)


@pytest.mark.parametrize("skew", [None, 0.9, 0.1])
def test_the_busiest_queue_has_the_part_that_was_asked_for(skew: float | None) -> None:
    parts = shares(skew)
    assert sum(parts.values()) == pytest.approx(1)
    days = story(Wish(rows=1_000_000, days=3, until=UNTIL, skew=skew)).days
    busiest = sum(cell.rows for day in days for cell in day.cells if cell.queue == BUSIEST)
    assert busiest / 1_000_000 == pytest.approx(0.24 if skew is None else skew, abs=0.03)


def test_the_same_wish_makes_the_same_history_however_many_make_it_and_wherever(
    copies: Any, migrated_server: Any
) -> None:
    told = []
    for seed, connections, zone in ((1, 1, "UTC"), (1, 4, "Asia/Kolkata"), (2, 4, "UTC")):
        with copies.one() as name:
            dsn = dsn_of(migrated_server, name)
            with psycopg.connect(dsn) as connection:
                connection.execute(f"alter database {name} set timezone to '{zone}'".encode())
            queue = PgQueue(dsn)
            generate(queue.database, Wish(rows=700, days=5, until=UNTIL, seed=seed), connections=connections)
            queue.close()
            told.append(digest(dsn))
    assert told[0] == told[1] != told[2]


def test_a_call_that_was_interrupted_is_finished_by_the_same_call(
    queue: PgQueue, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wish = Wish(rows=900, days=6, until=UNTIL)
    made = []

    def stop(day: Any) -> None:
        made.append(day.day)
        if len(made) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        generate(queue.database, wish, connections=1, told=stop)
    again = generate(queue.database, wish)
    assert (again.days, again.before) == (6 - len(made), len(made))
    with psycopg.connect(dsn) as connection:
        assert rows(connection, f"select count(*), count(distinct id) from ({ENDED}) as ended") == [
            (900, 900)
        ]
    monkeypatch.setattr(generating, "_make", None)  # would fail if anything were left to do
    assert generate(queue.database, wish).rows == 0


def test_a_queue_that_was_ever_used_is_left_alone_unless_told_otherwise(queue: PgQueue, dsn: str) -> None:
    @queue.task
    def real() -> None: ...

    real.enqueue().cancel()
    refused = pgqueue("pipeline", "generate", "--rows", "10", "--days", "1", dsn=dsn)
    assert refused.exit_code == 2
    assert 'schema "pgqueue" is in use' in refused.stderr
    assert "--force-beside" in refused.stderr
    with psycopg.connect(dsn) as connection:
        assert rows(connection, f"select count(*) from ({ENDED}) as ended") == [(1,)]
    words = ("--rows", "10", "--days", "1", "--force-beside", "--json")
    assert printed(pgqueue("pipeline", "generate", *words, dsn=dsn))["rows"] == 10


@pytest.mark.parametrize("what", ["history", "dead", "worker", "id"])
def test_any_trace_of_real_use_is_seen(queue: PgQueue, dsn: str, what: str) -> None:
    """Jobs that were restored from a dump never took an id here; those of a queue that keeps no history leave but that."""
    traces = {
        "id": "select nextval('pgqueue.jobs_id_seq')",
        "history": "insert into pgqueue.job_history (id, run_at, created_at, finished_at, collisions, priority, attempts, "
        "max_attempts, outcome, queue, task, args) values (7, now(), now(), now(), 0, 0, 1, 1, 'succeeded', 'q', 't', '{}')",
        "dead": "insert into pgqueue.dead_jobs (id, run_at, created_at, died_at, collisions, priority, attempts, "
        "max_attempts, reason, queue, task, args) values (7, now(), now(), now(), 0, 0, 1, 1, 'asked', 'q', 't', '{}')",
        "worker": "insert into pgqueue.workers (id, lease_until, pid, concurrency, host, version) "
        "values (gen_random_uuid(), now(), 1, 1, 'here', '1')",
    }
    with psycopg.connect(dsn) as connection:
        connection.execute(traces[what].encode())
    with pytest.raises(PipelineError, match="is in use"):
        generate(queue.database, Wish(rows=5, days=1, until=UNTIL))


def test_another_history_is_not_mixed_into_the_days_of_one(queue: PgQueue) -> None:
    generate(queue.database, Wish(rows=50, days=2, until=UNTIL))
    with pytest.raises(PipelineError, match=r"2026-03-2[89] holds .* made-up rows of another history"):
        generate(queue.database, Wish(rows=60, days=2, until=UNTIL))
    assert generate(queue.database, Wish(rows=60, days=2, until=UNTIL - timedelta(days=2))).rows == 60


def test_a_day_in_the_lake_is_not_made_again(queue: PgQueue, dsn: str) -> None:
    with psycopg.connect(dsn) as connection:
        connection.execute(
            "insert into pgqueue.lake_days (day, history_rows, dead_rows, checksum, below, lake) "
            "values (%s, 1, 0, 0, 1, '/lake')",
            [UNTIL],
        )
    with pytest.raises(PipelineError, match="2026-03-29 is in a lake already"):
        generate(queue.database, Wish(rows=50, days=2, until=UNTIL))


def test_a_day_that_is_not_over_is_refused(queue: PgQueue) -> None:
    with pytest.raises(PipelineError, match="is not over"):
        generate(queue.database, Wish(rows=50, days=2, until=datetime.now(UTC).date() + timedelta(days=1)))


def test_the_last_day_is_yesterday_by_default(dsn: str) -> None:
    told = printed(pgqueue("pipeline", "generate", "--rows", "40", "--days", "3", "--json", dsn=dsn))
    assert date.fromisoformat(told["last"]) - date.fromisoformat(told["first"]) == timedelta(days=2)
    assert datetime.now(UTC).date() - date.fromisoformat(told["last"]) in {
        timedelta(days=1),
        timedelta(days=2),
    }


def test_the_last_day_is_one_that_an_export_takes_by_now(queue: PgQueue) -> None:
    midnight = datetime(2031, 5, 4, tzinfo=UTC)
    days = [
        last_closed_day(queue.database, now=midnight + timedelta(seconds=seconds)).day for seconds in (59, 60)
    ]
    assert days == [2, 3]


def test_the_command_says_what_is_hidden(dsn: str) -> None:
    words = ("--rows", "40", "--days", "3", "--until", "2026-03-29", "--skew", "0.9")
    told = pgqueue("pipeline", "generate", *words, dsn=dsn)
    assert told.exit_code == 0, told.output
    assert "make_thumbnail takes 1.8 times as long from shop-1 on" in told.stdout
    assert "webhooks: tenant-42 on 2026-03-28, 14:00 to 15:00" in told.stdout


@pytest.mark.parametrize(
    ("wish", "complaint"),
    [
        ({"rows": 0, "days": 1}, "rows=0"),
        ({"rows": 1, "days": 0}, "days=0"),
        ({"rows": 60_000_000, "days": 1}, "use more days"),
        ({"rows": 1, "days": 1, "skew": 1.0}, "skew=1.0"),
        ({"rows": 1, "days": 1, "seed": -1}, "seed=-1"),
        ({"rows": 1, "days": 20_000}, "use fewer"),
    ],
)
def test_a_wish_out_of_range_is_refused_with_its_value(wish: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InvalidOption, match=complaint):
        Wish(until=UNTIL, **wish)


@pytest.mark.parametrize("weights", [[1.0], [1.0, 0.0, 3.0], [0.1] * 7])
@pytest.mark.parametrize("total", [0, 1, 5, 1000])
@pytest.mark.parametrize("start", [0.0, 0.5, 0.999])
def test_whole_parts_add_up_and_are_off_by_less_than_one(
    weights: Sequence[float], total: int, start: float
) -> None:
    parts = spread(total, weights, start)
    assert sum(parts) == total
    for part, weight in zip(parts, weights, strict=True):
        assert abs(part - total * weight / sum(weights)) < 1 + 1e-6


def test_the_shop_is_of_a_piece() -> None:
    assert len({task.queue for task in TASKS}) == 6
    assert len({task.name for task in TASKS}) == len(TASKS) == 15
    assert sum(task.share for task in TASKS) == pytest.approx(1)
    assert not FAILURES.keys() & {task.name for task in TASKS}
    assert story(Wish(rows=1, days=1, until=UNTIL)).days[0].first_id > FIRST_ID
