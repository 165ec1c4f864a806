"""Operations on many jobs: which jobs a filter means, what is done to them, and what is left alone.

The filter in Python and the one in PostgreSQL: what contains what, and which name a pattern stands for.
"""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

import msgspec
import psycopg
import pytest
from ciphers import Secret
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from looking import ask, wait_until

from pgqueue import JobState, PgQueue, chain
from pgqueue.app.operator import me
from pgqueue.errors import InvalidOption, UnknownQueue
from pgqueue.store.bulk import bulk, bulk_jobs
from pgqueue.values.bulk.filter import JobFilter, contains, like
from pgqueue.values.bulk.operation import BulkAction, BulkResult, Operation, Preview, SkipReason, TaskCount
from pgqueue.values.jobs.options import stands_for


def states(queue: PgQueue) -> dict[int, str]:
    return {job.id: job.state for job in queue.insight.search().jobs}


def audited(queue: PgQueue) -> list[tuple[Any, ...]]:
    """Who did what to how many jobs, the first entry first."""
    return [(one.by, one.action, one.target, one.jobs) for one in reversed(queue.insight.audit())]


@pytest.fixture
def send(queue: PgQueue) -> Any:
    @queue.task(name="shop.send")
    def send(customer_id: int = 0, tags: list[str] | None = None) -> None: ...

    return send


@pytest.fixture
def small_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Portions of two jobs, three looked at by each statement."""
    monkeypatch.setattr(bulk, "AT_ONCE", 2)
    monkeypatch.setattr(bulk_jobs, "LOOKED_AT", 3)


@pytest.mark.usefixtures("small_portions")
def test_each_criterion_means_the_jobs_that_it_says(queue: PgQueue, send: Any) -> None:
    other = queue.task(name="other", queue="mail")(lambda: None)
    first = send.using(priority=5, queue="mail-a").enqueue(7, ["x", "y"]).id
    second = send.using(priority=-5, queue="mail_b", meta={"tenant": "acme"}, delay=60).enqueue(8).id
    third = other.enqueue().id
    moment = queue.job(second).created_at

    def matching(**criteria: Any) -> list[int]:
        found: list[int] = []
        for one in queue.control.jobs(**criteria).preview().groups:
            found += [
                job.id for job in queue.insight.search(queue=one.queue, task=one.task, state=one.state).jobs
            ]
        plan = bulk_jobs.find(_operation(**criteria), after=-1, up_to=99)
        assert sorted(found) == [one.id for one in queue.database.run(plan)[0]]
        return sorted(found)

    assert matching(everything=True) == [first, second, third]
    assert matching(queue="mail") == [third]
    assert matching(queue="mail*") == [first, second, third]
    assert matching(queue="mail-*") == [first]
    assert matching(queue="mail_*") == [second]
    assert matching(task="shop.*", state="ready") == [first]
    assert matching(state=["scheduled", "blocked"]) == [second]
    assert matching(args={"customer_id": 7}) == [first]
    assert matching(args={"tags": ["y"]}) == [first]
    assert matching(args={"customer_id": "7"}) == []
    assert matching(meta={"tenant": "acme"}) == [second]
    assert matching(min_priority=0) == [first, third]
    assert matching(min_priority=0, max_priority=4) == [third]
    assert matching(enqueued_after=moment) == [second, third]
    assert matching(enqueued_before=moment) == [first]
    assert matching(ids=[third, first, 99]) == [first, third]
    assert matching(ids=[]) == []
    assert matching(error="ValueError") == []


def _operation(**criteria: Any) -> Any:
    return Operation(action=BulkAction.CANCEL, filter=JobFilter.checked(criteria))


def test_a_moved_job_is_claimed_from_its_new_queue_by_its_new_priority(queue: PgQueue, send: Any) -> None:
    low, high = (send.using(queue="a").enqueue().id for _ in range(2))
    queue.control.jobs(ids=[high]).reprioritise(50)
    queue.control.jobs(queue="a").move("b")
    with queue.take(2, queues=["b"]) as jobs:
        assert [job.id for job in jobs] == [high, low]


@pytest.mark.parametrize(
    ("criteria", "said"),
    [
        ({}, "would mean every job"),
        ({"everything": True, "queue": "mail"}, "contradict each other"),
        ({"everything": 1}, "use True or False"),
        ({"state": "dead"}, "dead ones have verbs of their own"),
        ({"state": "redy"}, "live jobs are blocked, scheduled, ready, running"),
        ({"state": []}, "name at least one state"),
        ({"min_priority": 101}, "from -100 to 100"),
        ({"min_priority": 5, "max_priority": 4}, "no job is in these bounds"),
        ({"enqueued_after": datetime(2030, 1, 1)}, "no time zone"),  # noqa: DTZ001 - that is refused
        (
            {
                "enqueued_after": datetime(2030, 1, 1, tzinfo=UTC),
                "enqueued_before": datetime(2030, 1, 1, tzinfo=UTC),
            },
            "no job is in these bounds",
        ),
        ({"ids": [True]}, "is no id of a job"),
        ({"ids": "12"}, "use a list of ids"),
        ({"ids": range(10_001)}, "10,001 are given, at most 10,000"),
        ({"queue": ""}, "an empty text"),
        ({"queue": "a\0"}, "without NUL"),
        ({"args": [1]}, "use an object"),
        ({"args": {"a": "\0"}}, "NUL"),
        ({"args": {"a": object()}}, "args="),
        ({"tsk": "x"}, "did you mean 'task'"),
        ({"died_before": datetime(2030, 1, 1, tzinfo=UTC)}, "these jobs are alive"),
    ],
)
def test_criteria_that_make_no_sense_are_refused_and_change_nothing(
    queue: PgQueue, send: Any, criteria: dict[str, Any], said: str
) -> None:
    send.enqueue()
    with pytest.raises(InvalidOption, match=said):
        queue.control.jobs(**criteria).cancel()
    assert [*states(queue).values()] == ["ready"]
    assert queue.insight.audit() == []


def test_operations_that_make_no_sense_are_refused_and_change_nothing(queue: PgQueue, send: Any) -> None:
    send.using(queue="mail").enqueue()
    jobs = queue.control.jobs(queue="mail")
    with pytest.raises(InvalidOption, match="the jobs are in this queue"):
        jobs.move("mail")
    with pytest.raises(InvalidOption, match="white space"):
        jobs.move("two words")
    with pytest.raises(InvalidOption, match="from -100 to 100"):
        jobs.reprioritise(101)
    with pytest.raises(InvalidOption, match="move leaves running jobs alone"):
        queue.control.jobs(state="running").move("b")
    with pytest.raises(InvalidOption, match="use one of cancel, move, reprioritise"):
        jobs.preview("retry_dead")
    with pytest.raises(InvalidOption, match="dead jobs have one state"):
        queue.control.dead(state="ready")  # type: ignore[call-arg]  # no criterion of dead jobs
    with pytest.raises(InvalidOption, match="no such operation"):
        queue.control.resume_operation(1)
    queue.control.pause("mail")
    with pytest.raises(InvalidOption, match="no such operation"):
        queue.control.resume_operation(queue.insight.audit()[0].id)
    assert [one.action for one in queue.insight.audit()] == ["pause"]


def test_an_undeclared_queue_is_no_target(dsn: str) -> None:
    queue = PgQueue(dsn, queues=["mail"])
    with pytest.raises(UnknownQueue, match="mail"):
        queue.control.jobs(queue="mail").move("nail")


@pytest.mark.usefixtures("small_portions")
def test_portions_are_told_as_they_commit(queue: PgQueue, send: Any, dsn: str) -> None:
    for _ in range(5):
        send.enqueue()
    seen: list[tuple[int, int]] = []

    def tell(result: BulkResult) -> None:
        ((count, noted),) = ask(
            dsn, "select (select count(*) from pgqueue.jobs), (select max(jobs) from pgqueue.audit)"
        )
        assert noted == result.done
        seen.append((result.done, count))

    queue.control.jobs(everything=True).cancel(progress=tell)
    assert seen == [(2, 3), (3, 2), (5, 0), (5, 0)]


@pytest.mark.usefixtures("small_portions")
def test_an_interrupted_operation_continues_where_it_stopped(queue: PgQueue, send: Any) -> None:
    ids = [send.using(queue="a").enqueue().id for _ in range(6)]

    def stop(result: BulkResult) -> None:
        if result.done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        queue.control.jobs(task="shop.*").move("b", by="ann", progress=stop)
    (entry,) = queue.insight.audit()
    assert (entry.jobs, entry.unfinished, entry.counts) == (3, True, {"done": 3})
    assert [queue.job(one).queue for one in ids] == ["b"] * 3 + ["a"] * 3
    queue.control.jobs(ids=ids[:1]).move("elsewhere")
    late = send.using(queue="a").enqueue()

    done = queue.control.resume_operation(entry.id, by="bob")
    assert (done.operation, done.done) == (entry.id, 6)
    assert queue.job(ids[0]).queue == "elsewhere"  # it had passed that one
    assert queue.job(late.id).queue == "a"  # that came after it had begun
    assert [(one.by, one.action, one.jobs, one.unfinished) for one in queue.insight.audit()] == [
        ("bob", "continue", None, False),
        (me(), "move", 1, False),
        ("ann", "move", 6, False),
    ]
    with pytest.raises(InvalidOption, match="has ended"):
        queue.control.resume_operation(entry.id)


@pytest.mark.usefixtures("small_portions")
def test_a_locked_job_is_done_when_it_is_free(
    queue: PgQueue, send: Any, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "PAUSE", 0.01)
    monkeypatch.setattr(bulk, "ROUNDS", 10_000)
    ids = [send.enqueue().id for _ in range(4)]
    with psycopg.connect(dsn) as other, ThreadPoolExecutor(1) as thread:
        other.execute("select from pgqueue.jobs where id = %s for update", [ids[1]])
        doing = thread.submit(queue.control.jobs(everything=True).cancel)
        wait_until(lambda: [*states(queue).values()].count("cancelled") == 3)
        assert ask(dsn, "select later from pgqueue.audit") == [([ids[1]],)]
        other.rollback()
        done = doing.result()
    assert (done.done, done.skipped) == (4, {})
    assert set(states(queue).values()) == {"cancelled"}


def test_a_job_that_stays_locked_is_skipped_and_counted(
    queue: PgQueue, send: Any, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "ROUNDS", 0)
    ids = [send.enqueue().id for _ in range(3)]
    with psycopg.connect(dsn) as other:
        other.execute("select from pgqueue.jobs where id = %s for update", [ids[1]])
        done = queue.control.jobs(everything=True).cancel()
    assert (done.done, done.skipped) == (2, {SkipReason.LOCKED: 1})
    assert [one.id for one in done.examples] == [ids[1]]
    assert states(queue)[ids[1]] == "ready"
    assert not queue.insight.audit()[0].unfinished
    assert queue.control.jobs(everything=True).cancel().done == 1


@pytest.mark.parametrize("change", ["queue = 'other'", "args = '{\"customer_id\": 8}'"])
def test_a_job_that_changes_after_it_was_found_is_asked_again_whether_it_matches(
    queue: PgQueue, send: Any, dsn: str, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    kept = send.using(queue="mail").enqueue(7).id
    gone = send.using(queue="mail").enqueue(7).id
    change_them = bulk_jobs.change

    def changed_first(*args: Any, **options: Any) -> Any:
        ask(dsn, f"update pgqueue.jobs set {change} where id = %s returning 1", kept)
        return change_them(*args, **options)

    monkeypatch.setattr(bulk, "change", changed_first)
    done = queue.control.jobs(queue="mail", args={"customer_id": 7}).cancel()
    assert (done.done, done.skipped) == (1, {})
    assert states(queue) == {kept: "ready", gone: "cancelled"}


@pytest.mark.usefixtures("small_portions")
def test_a_job_that_the_database_refuses_fails_alone(queue: PgQueue, send: Any, dsn: str) -> None:
    ids = [send.enqueue().id for _ in range(5)]
    ask(
        dsn,
        "create function refuse() returns trigger language plpgsql as $$ begin raise 'not this one'; end $$; "
        "create trigger refuse before update on pgqueue.jobs for each row when (old.id = 2) execute function refuse()",
    )
    assert ids[1] == 2
    done = queue.control.jobs(everything=True).move("b")
    assert (done.done, done.skipped) == (4, {SkipReason.REFUSED: 1})
    assert "not this one" in (done.examples[0].detail or "")
    assert [queue.job(one).queue for one in ids] == ["b", "default", "b", "b", "b"]
    assert queue.insight.audit()[0].counts == {"done": 4, "refused": 1}


def test_a_right_that_is_missing_ends_the_operation_and_loses_nothing(
    queue: PgQueue, send: Any, dsn: str
) -> None:
    for _ in range(3):
        send.enqueue()
    ask(
        dsn,
        "create function refuse() returns trigger language plpgsql as $$ begin "
        "raise insufficient_privilege using message = 'no right'; end $$; "
        "create trigger refuse before update on pgqueue.jobs for each row execute function refuse()",
    )
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        queue.control.jobs(everything=True).move("b")
    (entry,) = queue.insight.audit()
    assert (entry.jobs, entry.unfinished) == (0, True)
    ask(dsn, "drop trigger refuse on pgqueue.jobs")
    assert queue.control.resume_operation(entry.id).done == 3


@pytest.mark.usefixtures("small_portions")
def test_two_operators_do_each_job_once_and_the_audit_says_both(queue: PgQueue, send: Any, dsn: str) -> None:
    for _ in range(40):
        send.enqueue()
    other = PgQueue(dsn)
    together = threading.Barrier(2)

    def cancel(one: PgQueue, by: str) -> BulkResult:
        together.wait()
        return one.control.jobs(everything=True).cancel(by=by)

    with ThreadPoolExecutor(2) as threads:
        results = [
            one.result()
            for one in [threads.submit(cancel, queue, "ann"), threads.submit(cancel, other, "bob")]
        ]
    other.close()
    assert sum(one.done for one in results) == 40
    assert not any(one.skipped for one in results)
    assert sorted((by, jobs) for by, _, _, jobs in audited(queue)) == [
        ("ann", results[0].done),
        ("bob", results[1].done),
    ]
    assert ask(dsn, "select count(*), count(distinct id) from pgqueue.job_history") == [(40, 40)]


def test_a_job_whose_flow_is_locked_is_skipped(
    queue: PgQueue, send: Any, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "ROUNDS", 0)
    chain(send.call(1), send.call(2)).enqueue()
    alone = send.enqueue(9)
    with psycopg.connect(dsn) as other:
        other.execute("select from pgqueue.flows for update")
        done = queue.control.jobs(everything=True).cancel()
    assert (done.done, done.skipped) == (1, {SkipReason.LOCKED: 2})
    assert alone.status() is JobState.CANCELLED


def test_a_codec_hides_arguments_and_messages_from_filters(dsn: str) -> None:
    queue = PgQueue(dsn, codec=Secret("key"))

    @queue.task(name="send")
    def task(customer_id: int) -> None: ...

    job = task.using(meta={"tenant": "acme"}).enqueue(7)
    for criterion in ({"args": {"customer_id": 7}}, {"message": "no"}):
        with pytest.raises(InvalidOption, match="codec encodes it"):
            queue.control.jobs(**criterion)
    found = queue.control.jobs(meta={"tenant": "acme"}).preview()
    assert [(one.id, one.args) for one in found.sample] == [(job.id, {"customer_id": 7})]
    queue.close()


def test_a_preview_changes_nothing_and_tells_queue_task_and_state(queue: PgQueue, send: Any) -> None:
    for number in range(1, 4):
        send.using(queue="mail").enqueue(number)
    send.using(delay=60).enqueue(5)
    found = queue.control.jobs(task="shop.send").preview("move", to="b")
    assert [(one.queue, one.task, one.state, one.count) for one in found.groups] == [
        ("mail", "shop.send", "ready", 3),
        ("default", "shop.send", "scheduled", 1),
    ]
    assert found.count == 4
    assert [job.args["customer_id"] for job in sorted(found.sample, key=lambda job: job.id)] == [1, 5]
    assert queue.insight.audit() == []
    assert {job.queue for job in queue.insight.search().jobs} == {"mail", "default"}


def test_arguments_that_are_no_jsonb_stop_no_filter(queue: PgQueue, send: Any, dsn: str) -> None:
    wanted = send.enqueue(7).id
    hostile = send.enqueue(7).id
    ask(dsn, 'update pgqueue.jobs set args = \'{"customer_id": 7, "a": 1e400000}\' where id = %s', hostile)
    assert queue.control.jobs(args={"customer_id": 7}).cancel().done == 1
    assert states(queue)[wanted] == "cancelled"


async def test_awaited_twins_do_the_same(queue: PgQueue, send: Any) -> None:
    for _ in range(3):
        send.using(queue="mail").enqueue()
    told: list[int] = []
    jobs = queue.control.jobs(queue="mail")
    assert (await jobs.apreview("cancel")).count == 3
    assert (await jobs.areprioritise(3)).done == 3
    assert (await jobs.amove("b", by="ann", progress=lambda result: told.append(result.done))).done == 3
    assert told == [3, 3]
    assert (await queue.control.jobs(queue="b", task="x").acancel()).done == 0
    assert (await queue.control.jobs(queue="b", state="waiting").acancel()).done == 3
    assert (await queue.control.dead(everything=True).apreview()).count == 0
    assert (await queue.control.dead(everything=True).aretry()).done == 0
    assert (await queue.control.dead(everything=True).apurge()).done == 0
    assert (await queue.insight.aaudit(limit=1))[0].action == "purge_dead"
    with pytest.raises(InvalidOption, match="no such operation"):
        await queue.control.aresume_operation(99)


@pytest.mark.usefixtures("small_portions")
def test_an_operation_that_two_continue_at_once_does_each_job_once_and_ends_once(
    queue: PgQueue, send: Any, dsn: str
) -> None:
    """The first to take it up ends it while the second is at work; the second then goes on to the end, and finds no more."""
    ids = [send.using(queue="a").enqueue().id for _ in range(12)]

    def stop(result: BulkResult) -> None:
        if result.done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        queue.control.jobs(queue="a").cancel(by="ann", progress=stop)
    (entry,) = queue.insight.audit()
    ends: list[Any] = []

    def overtake(result: BulkResult) -> None:
        if not ends:
            assert result.done == 4
            with closing(PgQueue(dsn)) as other:
                assert other.control.resume_operation(entry.id, by="bob").done == 12
        found = ask(dsn, "select ended_at from pgqueue.audit where id = %s", entry.id)
        ends.extend(row[0] for row in found)

    queue.control.resume_operation(entry.id, by="eve", progress=overtake)
    assert None not in ends
    assert len({*ends}) == 1
    (done,) = [one for one in queue.insight.audit() if one.id == entry.id]
    assert (done.jobs, done.counts, done.unfinished) == (12, {"done": 12}, False)
    assert ask(dsn, "select count(*), count(distinct id) from pgqueue.job_history") == [(12, 12)]
    assert {*states(queue)} == {*ids}


@pytest.mark.usefixtures("small_portions")
def test_jobs_that_come_under_a_filter_or_leave_it_meanwhile_are_done_by_what_they_are_when_they_are_reached(
    queue: PgQueue, send: Any, dsn: str
) -> None:
    ids = [send.using(queue="a" if number % 2 else "b").enqueue().id for number in range(12)]
    begun = threading.Event()

    def swap(_: BulkResult) -> None:
        if not begun.is_set():
            begun.set()
            ask(
                dsn,
                "update pgqueue.jobs set queue = case queue when 'a' then 'b' else 'a' end where id = any(%s) returning 1",
                ids[6:],
            )

    done = queue.control.jobs(queue="a").cancel(progress=swap)
    cancelled = {one for one, state in states(queue).items() if state == "cancelled"}
    assert cancelled == {*ids[1:6:2], *ids[6::2]}
    assert (done.done, done.skipped) == (6, {})


def test_a_preview_compares_no_group_with_the_others() -> None:
    """With 100,000 queues, it took minutes."""
    compared = 0

    class Watched(TaskCount, frozen=True):
        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return TaskCount.__eq__(self, other)

        __hash__ = TaskCount.__hash__

    groups: list[TaskCount] = [Watched(f"tenant-{n}", "send", JobState.READY, 1) for n in range(50)]
    groups.append(Watched("tenant-1", "send", JobState.RUNNING, 3))
    found = Preview.of(Operation(action=BulkAction.MOVE, filter=JobFilter(), to="mail"), groups, ())
    assert (found.count, found.left_alone, len(found.groups), compared) == (50, 3, 50, 0)


scalars = st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from([1.0, 0.5, "", "a", "1"])
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=6,
)
objects = st.dictionaries(st.sampled_from("ab"), values, max_size=2)
names = st.text(st.sampled_from("ab*%_\\"), min_size=1, max_size=4)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=300)
@given(objects, objects)
def test_containment_is_jsonbs(connection: psycopg.Connection[Any], whole: Any, part: Any) -> None:
    texts = [msgspec.json.encode(value).decode() for value in (whole, part)]
    row = connection.execute("select %s::jsonb @> %s::jsonb", texts).fetchone()
    assert row == (contains(whole, part),)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=300)
@given(names, names)
def test_a_pattern_is_the_same_for_like(connection: psycopg.Connection[Any], pattern: str, name: str) -> None:
    row = connection.execute("select %s::text like %s::text", [name, like(pattern)]).fetchone()
    assert row == (stands_for(pattern, name),)
