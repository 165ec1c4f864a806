"""What is kept for how long: lengths of queues, days that are cleared, what is shown, and what a preview says."""

from collections.abc import Callable
from datetime import UTC, datetime, time, timedelta
from typing import Any

import pytest
from looking import ask

from pgqueue import PgQueue
from pgqueue.errors import InvalidOption
from pgqueue.store import retention
from pgqueue.store.plan import Statement
from pgqueue.values.retention import FOREVER, Kept

DAY = timedelta(days=1)
NOON = datetime.combine(datetime.now(UTC).date(), time(12), UTC)


@pytest.fixture
def ended(queue: PgQueue) -> PgQueue:
    """A queue whose history has 12 days, each with a job of mail, of noise and of other; some days ago is 0…11."""
    for ago in range(12):
        day = NOON - ago * DAY
        ask(queue, "select pgqueue.make_history_day(%s::date)", day)
        ask(
            queue,
            "insert into pgqueue.job_history (id, run_at, created_at, finished_at, collisions, priority, attempts, max_attempts,"
            " outcome, queue, task, args) select %s, %s, %s, %s, 0, 0, 1, 1, 'succeeded', queue, 't', '{}'"
            " from unnest('{mail,noise,other}'::text[]) as queue",
            *[ago, day, day, day],
        )
    return queue


def left(queue: PgQueue, name: str) -> list[int]:
    """How many days ago the jobs of this queue ended that are left."""
    return [
        ago for (ago,) in ask(queue, "select id from pgqueue.job_history where queue = %s order by id", name)
    ]


def tidy(queue: PgQueue) -> tuple[int, int]:
    run = queue.database.run
    return run(retention.drop_history(now=NOON)), run(retention.clear_history(now=NOON))


def test_each_queue_keeps_its_history_for_its_own_time_and_the_others_for_that_of_all(ended: PgQueue) -> None:
    ended.control.set("mail", keep_history=10 * DAY)
    ended.control.set("noise", keep_history=2 * DAY)
    ended.control.keep(history=5 * DAY)

    dropped, cleared = tidy(ended)

    assert left(ended, "mail") == [*range(11)]
    assert left(ended, "noise") == [0, 1, 2]
    assert left(ended, "other") == [*range(6)]
    assert (dropped, cleared) == (1, 8 + 5)


def test_a_day_is_cleared_once(ended: PgQueue) -> None:
    ended.control.set("noise", keep_history=2 * DAY)
    tidy(ended)
    assert ended.database.run(retention.clear_history(now=NOON)) == 0
    looked = ask(ended, "select count(*) from pgqueue.queues where history_cut = %s", (NOON - 2 * DAY).date())
    assert looked == [(1,)]
    assert ended.database.run(retention.clear_history(now=NOON + DAY)) == 1


def test_a_queue_that_gives_up_its_length_has_the_length_of_all_again(ended: PgQueue) -> None:
    ended.control.set("noise", keep_history=FOREVER)  # the days stay
    ended.control.set("mail", keep_history=10 * DAY)
    tidy(ended)
    assert left(ended, "mail") == [*range(11)]
    ended.control.set("mail", unset=["keep_history"])
    tidy(ended)
    assert left(ended, "mail") == left(ended, "other") == [*range(8)]
    assert left(ended, "noise") == [*range(12)]


def test_a_shorter_length_clears_what_a_longer_one_left(ended: PgQueue) -> None:
    ended.control.set("noise", keep_history=6 * DAY)
    tidy(ended)
    ended.control.set("noise", keep_history=1 * DAY)
    tidy(ended)
    assert left(ended, "noise") == [0, 1]


def meanwhile(monkeypatch: pytest.MonkeyPatch, name: str, act: Callable[[], object]) -> None:
    """Do this once, just before a plan of the tidying asks this statement."""
    left_to_do = [act]

    def asked(which: str, *given: Any, **more: Any) -> Statement:
        if which == name and left_to_do:
            left_to_do.pop()()
        return Statement(which, *given, **more)

    monkeypatch.setattr(retention, "Statement", asked)


def test_a_length_that_is_raised_while_a_worker_tidies_holds_at_once(
    ended: PgQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended.control.set("noise", keep_history=FOREVER)
    ended.control.set("mail", keep_history=2 * DAY)
    meanwhile(monkeypatch, "retention/clear_pages", lambda: ended.control.set("mail", keep_history=60 * DAY))
    tidy(ended)
    assert left(ended, "mail") == [*range(12)]
    ended.control.set("mail", keep_history=2 * DAY)
    tidy(ended)
    assert left(ended, "mail") == [0, 1, 2]


def test_a_length_that_is_given_up_while_a_worker_tidies_is_seen_by_the_next_tidying(
    ended: PgQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended.control.set("noise", keep_history=FOREVER)
    ended.control.set("mail", keep_history=10 * DAY)
    tidy(ended)
    ask(ended, "update pgqueue.retention set history_cut = null")
    meanwhile(
        monkeypatch,
        "retention/note_cleared",
        lambda: (ended.control.set("mail", unset=["keep_history"]), ended.control.set("fresh", priority=1)),
    )
    tidy(ended)
    tidy(ended)
    assert left(ended, "mail") == [*range(8)]


def test_a_tidying_under_a_wrong_clock_keeps_no_later_one_from_its_days(ended: PgQueue) -> None:
    ended.control.set("noise", keep_history=FOREVER)
    ended.control.set("mail", keep_history=20 * DAY)
    ended.database.run(retention.clear_history(now=NOON + 12 * DAY))
    assert left(ended, "mail") == [*range(9)]
    ask(ended, "update pgqueue.queues set history_cut = %s where name = 'mail'", (NOON + 30 * DAY).date())
    assert ended.database.run(retention.clear_history(now=NOON + 14 * DAY)) == 2
    assert left(ended, "mail") == [*range(7)]


def test_where_there_is_a_lake_days_stay_whole(ended: PgQueue) -> None:
    ended.control.set("noise", keep_history=2 * DAY)
    ask(
        ended,
        "insert into pgqueue.lake_days (day, history_rows, dead_rows, checksum, below, lake) values (%s, 0, 0, 0, 0, '/lake')",
        NOON.date(),
    )
    tidy(ended)
    assert 7 in left(ended, "noise")


def test_clearing_goes_through_a_day_in_pieces(ended: PgQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    day = NOON - 3 * DAY
    ask(
        ended,
        "insert into pgqueue.job_history (id, run_at, created_at, finished_at, collisions, priority, attempts, max_attempts,"
        " outcome, queue, task, args) select 100, %s, %s, %s, 0, 0, 1, 1, 'succeeded',"
        " case when n %% 2 = 0 then 'noise' else 'other' end, 't', '{}' from generate_series(1, 400) n",
        *[day, day, day],
    )
    monkeypatch.setattr(retention, "PAGES_AT_ONCE", 1)
    ended.control.set("noise", keep_history=2 * DAY)
    tidy(ended)
    assert left(ended, "noise") == [0, 1, 2]
    assert left(ended, "other").count(100) == 200


@pytest.mark.parametrize(
    ("given", "days", "ended_jobs", "dead"),
    [
        ({"history": 2 * DAY}, 9, 0, 0),
        ({"history": 2 * DAY, "queue": "noise"}, 4, 5, 0),
        ({"history": 30 * DAY, "queue": "mail"}, 0, 8, 0),
        ({"history": FOREVER}, 0, 0, 0),
        ({"dead": 3 * DAY}, 4, 0, 2),
        ({"dead": 3 * DAY, "queue": "mail"}, 4, 0, 1),
    ],
)
def test_a_preview_says_what_the_tidying_then_does(
    ended: PgQueue, given: dict[str, Any], days: int, ended_jobs: int, dead: int
) -> None:
    for number, (name, ago) in enumerate((("mail", 4), ("other", 4), ("mail", 1))):
        ask(
            ended,
            "insert into pgqueue.dead_jobs (id, run_at, created_at, died_at, collisions, priority, attempts, max_attempts, reason,"
            " queue, task, args) values (%s, now(), now(), %s, 0, 0, 1, 1, 'asked', %s, 't', '{}')",
            *[number, NOON - ago * DAY, name],
        )
    said = ended.database.run(retention.preview(**given, now=NOON))
    assert [(one.what, one.count) for one in said] == [
        ("days of the history", days),
        ("ended jobs", ended_jobs),
        ("dead jobs", dead),
    ]
    given = dict(given)
    queue = given.pop("queue", None)
    if queue is None:
        ended.control.keep(**given)
    else:
        ended.control.set(queue, **{f"keep_{name}": length for name, length in given.items()})
    assert tidy(ended) == (days, ended_jobs)
    assert ended.database.run(retention.drop_dead(now=NOON)) == dead


def shown(queue: PgQueue) -> dict[tuple[str, str | None], Kept]:
    return {(one.what, one.queue): one for one in queue.database.run(retention.shown(now=NOON))}


def test_the_real_defaults_are_shown_before_any_program_has_given_a_length(queue: PgQueue) -> None:
    found = shown(queue)
    assert (found["history", None].keeps, found["dead jobs", None].keeps) == (7 * DAY, None)
    assert found["ticks of schedules", None].keeps == 30 * DAY
    assert found["figures of minutes", None].keeps == timedelta(hours=48)
    assert {one.set_by for one in found.values()} == {None}
    assert ask(queue, "select history, dead, history_args from pgqueue.retention") == [(7 * DAY, None, 8_000)]


def test_it_says_when_the_next_day_goes_and_what_that_frees(ended: PgQueue) -> None:
    ask(ended, "analyze pgqueue.job_history")
    ended.control.keep(history=20 * DAY, by="ann", why="a review")
    one = shown(ended)["history", None]
    first = datetime.combine((NOON - 11 * DAY).date(), time(), UTC)
    assert (one.oldest, one.next_at, one.set_by) == (first, first + 21 * DAY, "ann")
    assert (one.frees_rows, one.rows) == (3, 36)
    assert 0 < (one.frees_bytes or 0) < (one.bytes or 0)
    ended.control.set("mail", keep_history=FOREVER)
    assert shown(ended)["history", None].next_at is None
    assert shown(ended)["history", "mail"].keeps == FOREVER


def test_every_change_is_in_the_audit_with_what_held_before(queue: PgQueue) -> None:
    queue.control.keep(history=30 * DAY, dead=90 * DAY, by="ann", why="a review")
    queue.database.run(retention.keep_for(3 * DAY, None, said_by="web-1 4711"))
    queue.database.run(retention.keep_for(3 * DAY, None, said_by="web-1 4711"))
    first, second = reversed(queue.insight.audit())
    assert (first.by, first.action, first.target) == ("ann", "keep", "*")
    assert first.details is not None
    assert (first.details["history"], first.details["dead"], first.details["why"]) == (
        "30 days",
        "90 days",
        "a review",
    )
    assert isinstance(first.details["before"], dict)
    assert first.details["before"]["dead"] == "for ever"
    assert second.by == "web-1 4711"


def test_dead_jobs_are_kept_for_ever_again_if_one_says_so(queue: PgQueue) -> None:
    queue.control.keep(dead=3 * DAY)
    assert queue.control.keep(dead=FOREVER).dead is None
    assert shown(queue)["dead jobs", None].keeps is None


@pytest.mark.parametrize(
    "given", [{}, {"history": 3_600}, {"history": 0}, {"dead": -1}, {"history_args": -1}]
)
def test_a_length_out_of_range_is_refused(queue: PgQueue, given: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption):
        queue.control.keep(**given)
