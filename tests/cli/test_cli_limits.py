"""``pgqueue limits`` and ``queue.control.limits``: look at limits, who holds their places, change their numbers, recount."""

import json
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from cli.commands import cells, only_row, pgqueue, printed
from looking import ask

from pgqueue import Limit, PgQueue, Rate
from pgqueue.cli.limits import SHOWN
from pgqueue.errors import InvalidOption
from pgqueue.store.limits import limit_control
from pgqueue.testing import drain


@pytest.fixture
def limited(queue: PgQueue, dsn: str) -> PgQueue:
    """Two limited tasks; two jobs of customer 7 wait and one runs on a live worker, one of customer 8 on a lost one."""

    @queue.task(name="send", limit=[Limit(3, by="customer"), Rate("60/minute", burst=5, name="api")])
    def send(customer: int) -> None: ...

    @queue.task(name="plain")
    def plain() -> None: ...

    jobs = [send.enqueue(customer) for customer in (7, 7, 7, 8)]
    plain.enqueue()
    for job, lease in ((jobs[0], "1 h"), (jobs[3], "-1 h")):
        worker = uuid4()
        ask(
            dsn,
            "insert into pgqueue.workers (id, lease_until, host, pid, concurrency, version) "
            "values (%s, now() + %s::interval, 'web', 42, 5, '0.1')",
            worker,
            lease,
        )
        ask(
            dsn,
            "update pgqueue.jobs set status = 'running', worker_id = %s, claimed_at = now() where id = %s",
            worker,
            job.id,
        )
    return queue


BY_CUSTOMER = "task:send:customer"
HOURLY = "task:send:customer:per-hour"


def test_list_counts_running_waiting_and_lost_jobs(limited: PgQueue) -> None:
    found = {
        one.name: (one.running, one.waiting, one.lost, one.numbers.most) for one in limited.insight.limits()
    }
    assert found == {BY_CUSTOMER: (2, 2, 1, 3), "name:api": (2, 2, 1, None)}


def test_show_names_the_keys_and_who_holds_places(limited: PgQueue) -> None:
    found = limited.insight.limit(BY_CUSTOMER)
    assert [(one.key, one.running, one.waiting) for one in found.keys] == [
        (f'{BY_CUSTOMER} {{"customer":7}}', 1, 2),
        (f'{BY_CUSTOMER} {{"customer":8}}', 1, 0),
    ]
    assert [(one.task, one.worker) for one in found.holders] == [("send", "web:42")] * 2
    with pytest.raises(InvalidOption, match="did you mean 'task:send:customer'"):
        limited.insight.limit("task:send:custmer")


def test_show_prints_a_bounded_number_of_keys_and_holders_and_json_has_all(queue: PgQueue, dsn: str) -> None:
    """To print 100,000 keys took a minute."""

    @queue.task(name="send", limit=Limit(2, by="customer"))
    def send(customer: int) -> None: ...

    queue.enqueue_many(send.call(number) for number in range(SHOWN + 5))
    queue.control.limits.set(BY_CUSTOMER, Limit(3))  # stored, so that a command without the app knows it
    ask(
        dsn,
        "update pgqueue.jobs set status = 'running', worker_id = gen_random_uuid(), claimed_at = now() where lane <> %s",
        f'{BY_CUSTOMER} {{"customer":3}}',
    )
    shown = pgqueue("limits", "show", BY_CUSTOMER, dsn=dsn)
    assert len(shown.stdout.splitlines()) == 1 + 2 * (1 + SHOWN)
    assert shown.stderr.splitlines() == [
        "and 5 more keys; --json shows all",
        "and 4 more jobs that hold places; --json shows all",
    ]
    found = json.loads(pgqueue("limits", "show", BY_CUSTOMER, "--json", dsn=dsn).stdout)
    assert (len(found["keys"]), len(found["holders"])) == (SHOWN + 5, SHOWN + 4)
    assert (found["limit"]["running"], found["limit"]["waiting"]) == (SHOWN + 4, 1)


def test_a_rate_shows_when_its_next_job_may_start(queue: PgQueue) -> None:
    @queue.task(name="call", limit=Rate(every=60))
    def call(number: int) -> None: ...

    call.enqueue(1)
    call.enqueue(2)
    now = datetime(2031, 5, 4, 12, tzinfo=UTC)
    drain(queue, now=now)
    (key,) = queue.database.run(limit_control.show("task:call:per-interval", queue.limits, now=now)).keys
    assert (key.waiting, key.next_start) == (1, now + timedelta(minutes=1))


def test_what_makes_no_sense_is_refused_and_changes_nothing(limited: PgQueue, dsn: str) -> None:
    control = limited.control.limits
    before = ask(dsn, "select * from pgqueue.limits order by name")
    for name, limit, said in (
        (BY_CUSTOMER, Rate("1/second"), "is a limit of concurrency"),
        ("name:api", Limit(1), "is a rate"),
        ("name:apy", Rate("1/second"), "did you mean 'name:api'"),
        ("queue:a b", Limit(1), "white space"),
        (BY_CUSTOMER, Limit(1, by="customer"), "only numbers"),
        ("name:api", Rate("1/second", burst=5, cost=2), "only numbers"),
        (BY_CUSTOMER, 5, "use Limit"),
    ):
        with pytest.raises(InvalidOption, match=said):
            control.set(name, limit)  # type: ignore[arg-type]
    assert ask(dsn, "select * from pgqueue.limits order by name") == before


async def test_each_method_has_an_awaited_twin(limited: PgQueue) -> None:
    control = limited.control.limits
    see = limited.insight
    assert await see.alimits() == see.limits()
    assert await see.alimit(BY_CUSTOMER) == see.limit(BY_CUSTOMER)
    assert await see.aweights() == see.weights()
    changed = await control.aset(BY_CUSTOMER, Limit(9), by="ann")
    assert (changed.numbers.most, changed.set_by) == (9, "ann")
    await control.aunset(BY_CUSTOMER)
    assert {one.set_by for one in see.limits()} == {None}


@pytest.mark.usefixtures("limited")
def test_the_command_lists_shows_sets_and_recounts(dsn: str) -> None:
    pgqueue("limits", "set", "queue:mail", "--most", "5", "--by", "ann", dsn=dsn)
    (row,) = [row for row in cells(pgqueue("limits", "list", dsn=dsn)) if row[0] == "queue:mail"]
    assert (row[1:6], row[-1]) == (["5", "at", "once", "0", "0"], "ann")
    pgqueue("limits", "set", "queue:mail", "--most", "6", dsn=dsn)
    assert only_row(dsn, "select most from pgqueue.limits where name = 'queue:mail'") == (6,)
    shown = printed(pgqueue("limits", "show", "queue:mail", "--json", dsn=dsn))
    assert (shown["limit"]["running"], shown["holders"]) == (0, [])
    assert "no job runs under it" in pgqueue("limits", "show", "queue:mail", dsn=dsn).stderr
    assert pgqueue("limits", "recount", dsn=dsn).exit_code == 0
    ask(dsn, "update pgqueue.jobs set queue = 'mail' where status = 'running'")
    recounted = pgqueue("limits", "recount", "--json", dsn=dsn)
    assert recounted.exit_code == 1
    assert "1 places are held by lost workers" in recounted.stderr
    for wrong in (
        ["--most", "0"],
        ["--most", "1", "--rate", "1/s"],
        [],
        ["--every", "1", "--burst", "2"],
        ["--rate", "x"],
    ):
        assert pgqueue("limits", "set", "queue:mail", *wrong, dsn=dsn).exit_code == 2
    pgqueue("limits", "unset", "queue:mail", dsn=dsn)
    assert ask(dsn, "select name from pgqueue.limits where name = 'queue:mail'") == []


def test_deleting_a_limit_with_braces_in_its_name_asks_with_that_name(dsn: str) -> None:
    ask(
        dsn,
        "insert into pgqueue.jobs (task, lane, in_lane, status) values ('send', 'name:{x}', true, 'blocked')",
    )
    asked = pgqueue("limits", "delete", "name:{x}", "--dry-run", dsn=dsn)
    assert "this will free them and forget limit name:{x}\n" in asked.stdout
    assert (
        "1 freed; name:{x} is forgotten" in pgqueue("limits", "delete", "name:{x}", "--yes", dsn=dsn).stdout
    )


def test_a_share_is_weighed_and_what_is_no_share_or_weight_is_refused(dsn: str) -> None:
    queue = PgQueue(dsn)
    assert pgqueue("limits", "weigh", '{"tenant": "acme"}', "5", dsn=dsn).exit_code == 0
    assert list(queue.insight.weights().values()) == [5]
    for wrong in (
        ["acme", "5"],
        ["{}", "5"],
        ['["tenant"]', "5"],
        ['{"tenant": 1}', "0"],
        ['{"tenant": 1}', "1001"],
    ):
        assert pgqueue("limits", "weigh", *wrong, dsn=dsn).exit_code == 2
    assert list(queue.insight.weights().values()) == [5]
    assert pgqueue("limits", "weigh", '{"tenant":"acme"}', dsn=dsn).exit_code == 0
    assert queue.insight.weights() == {}
    assert ask(dsn, "select action from pgqueue.audit order by id") == [("share weighed",)] * 2
    queue.close()


def test_the_jobs_of_a_limit_are_moved_and_freed_after_a_question(queue: PgQueue, dsn: str) -> None:
    @queue.task(name="send", limit=Rate("1/hour", by="customer"))
    def send(customer: int) -> None: ...

    for customer in (7, 7, 8):
        send.enqueue(customer)
    queue.control.limits.set(HOURLY, Rate("2/hour"))  # stored, so that commands without the app know both
    ask(
        dsn,
        "insert into pgqueue.limits select 'task:send:customer:per-day', most, every, burst, declared from pgqueue.limits",
    )
    lanes = "select lane from pgqueue.jobs order by id"
    before = ask(dsn, lanes)
    for verb in (["delete", HOURLY], ["move", HOURLY, "--to-none"]):
        said = pgqueue("limits", *verb, "--dry-run", dsn=dsn)
        assert f"3 jobs have limit {HOURLY} in their lane, 3 of them wait there now" in said.stdout
        assert pgqueue("limits", *verb, dsn=dsn, answer="n\n").exit_code == 1
    for wrong in ([], ["--to", "x", "--to-none"], ["--to", "nothing"]):
        assert pgqueue("limits", "move", HOURLY, *wrong, "--yes", dsn=dsn).exit_code == 2
    assert ask(dsn, lanes) == before
    moved = pgqueue(
        "limits", "move", HOURLY, "--to", "task:send:customer:per-day", "--yes", "--by", "ann", dsn=dsn
    )
    assert moved.stdout == "3 moved to task:send:customer:per-day\n"
    freed = pgqueue("limits", "delete", "task:send:customer:per-day", dsn=dsn, answer="y\n")
    assert freed.stdout == "3 freed; task:send:customer:per-day is forgotten\n"
    assert ask(dsn, "select distinct lane, in_lane, status from pgqueue.jobs") == [(None, None, "ready")]
    assert ask(dsn, "select name from pgqueue.limits") == [(HOURLY,)]
    noted = ask(dsn, "select action, target from pgqueue.audit order by id")
    assert noted[1:] == [("limit moved", HOURLY), ("limit deleted", "task:send:customer:per-day")]
