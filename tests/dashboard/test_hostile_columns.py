"""Every page answers, whatever an instant or a JSON value of any row is: an older release, a restore or SQL may have written it."""

from collections.abc import Callable, Iterator
from datetime import timedelta

import psycopg
import pytest
from dashboard.people import Person
from dashboard.world import World, shop, stored_alert, worker_row
from looking import ask
from psycopg.conninfo import make_conninfo
from store.hostile import LIFT

from pgqueue import Limit, PgQueue, Workflow
from pgqueue.dashboard.pages import PAGES

COLUMNS = """
select attrelid::regclass::text, array_agg(attname::text)
from pg_attribute join pg_class on pg_class.oid = attrelid join pg_type on pg_type.oid = atttypid
where relnamespace = 'pgqueue'::regnamespace and relkind in ('r', 'p') and not relispartition and attnum > 0
  and not attisdropped and attgenerated = '' and coalesce(nullif(typbasetype, 0), atttypid) = any(%s::regtype[])
group by 1 order by 1
"""
CHECKS = """
do $$ declare one record; begin
    for one in select conname, conrelid::regclass as place from pg_constraint
               where contype = 'c' and connamespace = 'pgqueue'::regnamespace and conrelid <> 0 and coninhcount = 0 loop
        execute format('alter table %s drop constraint %I', one.place, one.conname);
    end loop;
end $$
"""
LEVELS = 1_500
JSON = {
    "arrays": "[" * LEVELS + "]" * LEVELS,
    "objects": '{"a":' * LEVELS + "1" + "}" * LEVELS,
    "a rule": '{"kind": "oldest_ready", "queue": ' + "[" * LEVELS + "]" * LEVELS + "}",
    "a number": "7",
    "a list of numbers": "[7, 1e4000]",
}


@pytest.fixture
def full(queue: PgQueue) -> Iterator[World]:
    """A shop with a row in each table that pages read."""
    with shop(queue) as world:
        worker_row(queue)
        stored_alert(queue)

        @queue.task(name="shop.night", limit=Limit(1))
        def night() -> None: ...

        queue.schedules.add("nightly", night.call(), every=timedelta(hours=1))
        for _ in range(2):
            night.enqueue()
        flow = Workflow("shop.flow")
        flow.add("first", night.call())
        flow.add("second", night.call(), after="first")
        flow.enqueue()
        queue.control.pause("media", why="a move", by="bob")
        yield world


def set_all(dsn: str, types: list[str], value: str) -> None:
    """Write the value into every column of these types, past all checks and triggers."""
    with psycopg.connect(make_conninfo(dsn, options="-c session_replication_role=replica")) as connection:
        connection.execute(LIFT)
        connection.execute(CHECKS)
        for table, columns in connection.execute(COLUMNS, [types]).fetchall():
            for column in columns:
                try:
                    with connection.transaction():
                        connection.execute(f"update {table} set {column} = %s".encode(), [value])
                except psycopg.errors.UniqueViolation:  # it keeps the rows apart
                    pass


@pytest.mark.parametrize("at", ["infinity", "-infinity", "4000-01-01 00:00+00 BC", "290000-01-01 00:00+00"])
def test_every_page_answers_whatever_the_instants_are(
    queue: PgQueue, dsn: str, full: World, person: Callable[..., Person], at: str
) -> None:
    set_all(dsn, ["timestamptz"], at)
    assert refused(person(), full) == {}
    assert queue.insight.counts()


@pytest.mark.parametrize("value", JSON.values(), ids=JSON)
def test_every_page_answers_whatever_the_json_values_are(
    queue: PgQueue, dsn: str, full: World, person: Callable[..., Person], value: str
) -> None:
    set_all(dsn, ["json", "jsonb"], value)
    ask(queue, "update pgqueue.alerts set rule = %s", value)
    assert queue.alerts.list()
    assert refused(person(), full) == {}


def refused(ann: Person, world: World) -> dict[str, int]:
    """The addresses that do not answer as they should, with how they do."""
    paths = [page.path for page in PAGES if page.place is not None]
    paths += [f"/jobs/{number}" for number in world]
    paths += ["/schedule?name=nightly", "/queue?name=mail", "/task?name=shop.night", "/workflows/1"]
    paths += [f"/limit?name={name}" for name in ("task:shop.night",)]
    answers = {path: ann.get(path).status_code for whole in paths for path in (whole, f"/api{whole}")}
    return {path: status for path, status in answers.items() if status != 200}
