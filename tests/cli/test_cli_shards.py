"""``pgqueue shards``: from one database to two, as an operator does it."""

import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner, Result
from databases import Copies, dsn_of

from pgqueue import PgQueue, Unique
from pgqueue.cli.main import main
from pgqueue.store.connections.dsn import connect_within, without_secrets
from pgqueue.store.shards.sharded import CONNECT_WITHIN
from pgqueue.values.shards import home_of, shard_of_id


@pytest.fixture
def two(copies: Copies, migrated_server: Any) -> Iterator[list[str]]:
    with copies.one() as one, copies.one() as other:
        yield [dsn_of(migrated_server, one), dsn_of(migrated_server, other)]


def test_a_queue_in_one_database_gets_a_second_shard(two: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    app = ModuleType("sharded_app")
    monkeypatch.setitem(sys.modules, "sharded_app", app)

    def run(dsns: list[str], *words: str) -> Result:
        app.queue = PgQueue(shards=dsns)  # type: ignore[attr-defined]  # the app's
        app.queue.task(name="keyed", unique=Unique(by="n"))(_echo)
        return CliRunner().invoke(main, ["--app", "sharded_app:queue", "shards", *words])

    before = PgQueue(two[0])
    before.task(name="keyed", unique=Unique(by="n"))(_echo)
    handles = [before.find_task("keyed").enqueue(n) for n in range(8)]
    before.close()
    moving = [one.id for n, one in enumerate(handles) if home_of(f'keyed{{"n":{n}}}', (0, 1)) == 1]

    assert "declare it alone" in run(two, "init").stderr
    assert run(two[:1], "init").stdout == "shard 0 of 0\n"
    added = run(two, "add")
    assert "shard 0 of 0, 1: keys move to the last\nshard 1 of 0, 1: keys move to the last\n" in added.stdout
    listed = run(two, "list")
    assert f"keys move {len(moving)}" in " ".join(listed.stdout.split())
    refused = run(two, "finish")
    assert (refused.exit_code, f"shard 0: {len(moving)} keys still live there" in refused.stdout) == (1, True)

    queue = PgQueue(shards=two)
    queue.task(name="keyed", unique=Unique(by="n"))(_echo)
    assert not any(queue.find_task("keyed").enqueue(n).accepted for n in range(8)), "they live where they did"
    assert [queue.cancel(one) for one in moving] == ["cancelled"] * len(moving)
    assert run(two, "finish").stdout == "the move has ended\n"
    homes = {shard_of_id(queue.find_task("keyed").enqueue(n).id) for n in range(8)}
    assert homes == {0, 1}
    assert run(two, "finish").stdout == "the move has ended\n"
    assert "every database of the list is a shard already" in run(two, "add").stderr
    queue.close()


def test_queues_and_schedules_are_listed_and_paused_on_all_shards(
    two: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    app = ModuleType("sharded_app")
    monkeypatch.setitem(sys.modules, "sharded_app", app)

    def run(*words: str) -> Result:
        app.queue = PgQueue(shards=two)  # type: ignore[attr-defined]  # the app's
        app.queue.task(name="plain")(_echo)
        return CliRunner().invoke(main, ["--app", "sharded_app:queue", *words])

    assert run("shards", "init").exit_code == 0
    added = run("schedules", "add", "nightly", "plain", "--args", '{"n": 1}', "--cron", "0 3 * * *")
    assert added.stdout == "nightly: added\n"
    assert run("schedules", "pause", "nightly").stdout == "nightly: paused\n"
    assert run("queues", "pause", "mail", "post").stdout == "mail: paused\npost: paused\n"
    for verb, shown in (("queues", "mail   paused"), ("schedules", "nightly  plain")):
        listed = run(verb, "list")
        assert (listed.exit_code, listed.stderr, shown in listed.stdout) == (0, "", True)


def test_messages_about_one_of_several_databases_say_which(
    two: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    app = ModuleType("sharded_app")
    monkeypatch.setitem(sys.modules, "sharded_app", app)

    def run(*words: str) -> Result:
        app.queue = PgQueue(shards=[two[0], AWAY])  # type: ignore[attr-defined]  # the app's
        return CliRunner().invoke(main, ["--app", "sharded_app:queue", *words])

    with psycopg.connect(two[1]) as connection:
        connection.execute("drop schema pgqueue cascade")
    where = [without_secrets(connect_within(dsn, CONNECT_WITHIN)) for dsn in two]
    app.queue = PgQueue(shards=two)  # type: ignore[attr-defined]  # the app's
    checked = CliRunner().invoke(main, ["--app", "sharded_app:queue", "migrate", "--check"])
    assert checked.stdout.startswith(f'{where[0]}: schema "pgqueue" is at revision')
    assert checked.stderr.startswith(f'pgqueue: {where[1]}: schema "pgqueue" has no tables yet')
    listed = CliRunner().invoke(main, ["--app", "sharded_app:queue", "shards", "list"])
    assert f'{where[1]}: schema "pgqueue" has no tables yet' in listed.stderr
    migrated = CliRunner().invoke(main, ["--app", "sharded_app:queue", "migrate"])
    assert [line.partition(": schema")[0] for line in migrated.stdout.splitlines()] == where

    app.queue = PgQueue(shards=two)  # type: ignore[attr-defined]  # the app's
    assert CliRunner().invoke(main, ["--app", "sharded_app:queue", "shards", "init"]).exit_code == 0
    assert run("queues", "list").stderr == "no queues\n"
    assert "host=127.0.0.1 port=1 does not answer: what is shown lacks its jobs" in caplog.text
    assert "check PgQueue(shards=[...]), and that the server runs" in run("migrate").stderr


def test_a_shard_can_be_taken_down_to_no_tables_and_installed_again(
    two: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    app = ModuleType("sharded_app")
    monkeypatch.setitem(sys.modules, "sharded_app", app)
    for words in (["shards", "init"], ["migrate", "--to", "base"], ["migrate"], ["shards", "init"]):
        app.queue = PgQueue(shards=two)  # type: ignore[attr-defined]  # the app's
        done = CliRunner().invoke(main, ["--app", "sharded_app:queue", *words])
        assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout == "shard 0 of 0, 1\nshard 1 of 0, 1\n"


def test_a_replica_is_refused_for_a_queue_with_shards_in_its_own_words(
    two: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    app = ModuleType("sharded_app")
    monkeypatch.setitem(sys.modules, "sharded_app", app)
    app.queue = PgQueue(shards=two)  # type: ignore[attr-defined]  # the app's
    words = ["--app", "sharded_app:queue", "--replica-dsn", two[0], "queues", "list"]
    assert "no replica is read for a queue with shards" in CliRunner().invoke(main, words).stderr


AWAY = "postgresql://127.0.0.1:1/none"


def _echo(n: int) -> int:
    return n
