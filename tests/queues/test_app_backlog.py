"""What a process remembers of a queue that has a bound, and what an enqueue asks of one."""

import logging

import psycopg
import pytest
from looking import ask
from store.crowd import Deed, at_once
from store.crowd import ask as run_on
from store.samples import new_job

from pgqueue import Limit, PgQueue
from pgqueue.errors import BacklogFull, QueueClosed
from pgqueue.store.jobs import enqueue
from pgqueue.store.plan import Plan, Statement
from pgqueue.store.queues import queues
from pgqueue.values.queues.defaults import FRESH_FOR, LOOKS_TAKE, WARN_EVERY, QueueCache

THREADS, EACH, BOUND = 16, 20, 50


@pytest.fixture
def now(queue: PgQueue) -> list[float]:
    """What time it is for what the process remembers."""
    now = [0.0]
    queue.database.known = QueueCache(lambda: now[0])
    return now


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    names = list[str]()

    def noted(name: str, params: dict[str, object], *, returns: bool = True) -> Statement:
        names.append(name)
        return Statement(name, params, returns)

    monkeypatch.setattr(enqueue, "Statement", noted)
    monkeypatch.setattr(queues, "Statement", noted)
    return names


def test_a_process_looks_once_a_second_and_a_queue_without_a_bound_is_never_looked_at(
    queue: PgQueue, now: list[float], sent: list[str]
) -> None:
    send = queue.task(name="send", queue="mail")(lambda: None)
    for _ in range(2):
        send.enqueue()
        send.using(unique_key=str(len(sent))).enqueue()
    assert sent == ["jobs/enqueue", "jobs/enqueue_unique", "jobs/enqueue_now", "jobs/enqueue_unique"]
    queue.control.set("mail", backlog=100)
    sent.clear()
    for _ in range(2):
        send.enqueue()
        send.using(delay=5).enqueue()
        send.using(unique_key=f"later {len(sent)}").enqueue()
        now[0] += 0.4
    assert sent == ["jobs/enqueue", "queues/room", "jobs/enqueue", "jobs/enqueue", "jobs/enqueue_unique", "jobs/enqueue_now", "jobs/enqueue",
                     "jobs/enqueue_unique"]  # fmt: skip


def test_a_process_that_raises_the_bound_enqueues_at_once(queue: PgQueue, now: list[float]) -> None:
    send = queue.task(name="send", queue="mail")(lambda: None)
    queue.control.set("mail", backlog=1, when_full="refuse")
    send.enqueue()
    now[0] += FRESH_FOR + 0.01
    with pytest.raises(BacklogFull):
        send.enqueue()
    queue.control.set("mail", backlog=2)
    send.enqueue()
    assert ask(queue, "select count(*) from pgqueue.jobs") == [(2,)]


def test_a_change_acts_within_a_second(queue: PgQueue, now: list[float]) -> None:
    send = queue.task(name="send", queue="mail")(lambda: None)
    send.enqueue()
    ask(
        queue,
        "insert into pgqueue.queues (name, backlog, when_full) values ('mail', 1, 'refuse') returning 1",
    )
    send.enqueue()
    now[0] += FRESH_FOR + 0.01
    with pytest.raises(BacklogFull):
        send.enqueue()
    ask(queue, "update pgqueue.queues set backlog = 3 returning 1")
    with pytest.raises(BacklogFull):
        send.enqueue()
    now[0] += FRESH_FOR + 0.01
    send.enqueue()
    ask(queue, "update pgqueue.queues set closed_at = now() returning 1")
    now[0] += FRESH_FOR + 0.01
    with pytest.raises(QueueClosed):
        send.enqueue()


def test_to_look_takes_a_twentieth_of_the_time_at_the_most(now: list[float]) -> None:
    known = QueueCache(lambda: now[0])
    known.note_room("mail", None, took=0.5)
    now[0] = 0.5 * LOOKS_TAKE - 0.01
    assert known.has_room("mail")
    now[0] += 0.02
    assert not known.has_room("mail")


def test_a_process_that_was_refused_once_is_refused_by_every_way_to_enqueue(
    queue: PgQueue, now: list[float]
) -> None:
    send = queue.task(name="send", queue="mail")(lambda: None)
    queue.control.set("mail", backlog=2, when_full="refuse")
    send.using(unique_key="a").enqueue()  # finds room, which is remembered until 1.0
    now[0] = 0.9
    send.enqueue()  # what it says of the queue is remembered until 1.9
    now[0] = 1.1
    with pytest.raises(BacklogFull):
        send.using(unique_key="b").enqueue()
    with pytest.raises(BacklogFull):
        send.enqueue()


def test_jobs_that_wait_for_a_limit_count_and_so_do_those_of_the_batch(queue: PgQueue) -> None:
    limited = queue.task(name="limited", queue="mail", limit=Limit(1))(lambda: None)
    plain = queue.task(name="plain", queue="other")(lambda: None)
    for name in ("mail", "other"):
        queue.control.set(name, backlog=2, when_full="refuse")
    queue.enqueue_many([limited.call(), limited.call()])
    with pytest.raises(BacklogFull):
        queue.enqueue_many([limited.call()])
    with pytest.raises(BacklogFull):  # none is ready yet
        queue.enqueue_many(plain.call() for _ in range(3))
    assert ask(queue, "select count(*) from pgqueue.jobs") == [(2,)]


def test_a_full_queue_is_warned_of_once_a_minute(
    queue: PgQueue, now: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    send = queue.task(name="send", queue="mail")(lambda: None)
    send.enqueue()
    queue.control.set("mail", backlog=1)
    with caplog.at_level(logging.WARNING, "pgqueue"):
        for seconds in (0.0, 2.0, WARN_EVERY - 1, WARN_EVERY + 1):
            now[0] = 10.0 + seconds
            send.enqueue()
    assert [record.message.startswith("queue is full") for record in caplog.records] == [True, True]


def test_16_enqueuers_at_once_exceed_a_bound_by_what_they_add_within_a_second(dsn: str) -> None:
    """Each of them has looked before; the clock of their memory stands still."""

    def adding() -> Deed[int]:
        known = QueueCache(lambda: 0.0)

        def deed(connection: object) -> int:
            connection.autocommit = True  # type: ignore[attr-defined]  # of psycopg
            added = 0
            for _ in range(EACH):
                plan: Plan[object] = enqueue.enqueue(new_job(queue="mail"), known=known)
                try:
                    run_on(connection, plan)  # type: ignore[arg-type]  # the same
                except BacklogFull:
                    return added
                added += 1
            return added

        return deed

    ask(dsn, "insert into pgqueue.queues (name, backlog, when_full) values ('mail', %s, 'refuse')", BOUND)
    first = at_once(dsn, *[adding() for _ in range(THREADS)])
    assert BOUND <= sum(first) <= THREADS * EACH
    assert at_once(dsn, *[adding() for _ in range(THREADS)]) == [0] * THREADS
    assert ask(dsn, "select count(*) from pgqueue.jobs") == [(sum(first),)]


def test_sql_refuses_or_warns_as_well(queue: PgQueue) -> None:
    ask(
        queue,
        "insert into pgqueue.queues (name, backlog, when_full) values ('mail', 1, 'refuse') returning 1",
    )
    ask(queue, "select pgqueue.enqueue('send', queue => 'mail')")
    with pytest.raises(Exception, match="this queue has no room, its bound is 1 ready jobs"):
        ask(queue, "select pgqueue.enqueue('send', queue => 'mail')")
    ask(queue, "update pgqueue.queues set when_full = null returning 1")
    ask(queue, "select pgqueue.enqueue('send', queue => 'mail')")
    assert ask(queue, "select count(*) from pgqueue.jobs") == [(2,)]


def test_in_pipeline_mode_a_few_jobs_are_refused_for_what_their_queue_says(queue: PgQueue, dsn: str) -> None:
    @queue.task(queue="mail")
    def note() -> None: ...

    queue.control.set("mail", backlog=5, when_full="refuse")
    with psycopg.connect(dsn) as connection, connection.pipeline():
        assert len(queue.enqueue_many([note.call()] * 3, connection=connection)) == 3
        with pytest.raises(BacklogFull):
            queue.enqueue_many([note.call()] * 3, connection=connection)
    queue.control.close("mail")
    with psycopg.connect(dsn) as connection, connection.pipeline(), pytest.raises(QueueClosed):
        queue.enqueue_many([note.call()] * 3, connection=connection)
