"""Debounce and throttle: in memory, on PostgreSQL, and in one open transaction of it; and over random histories."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import count
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from neighbours.places import HOUR, MINUTE, NOON, SECOND, a_clock, a_database, every_place, one_database

from pgqueue import Debounce, JobState, Outcome, PgQueue, Task, Throttle, Unique, chain
from pgqueue.errors import InvalidOption
from pgqueue.testing import Clock, drain, in_database, in_memory

queue, clock, emptied, database = every_place, a_clock, a_database, one_database

_names = count()


def _index(queue: PgQueue, unique: Unique, **options: Any) -> Task[[int, str], None]:
    @queue.task(name="index", unique=unique, **options)
    def index(user: int, text: str) -> None:
        pass

    return index


def _texts(queue: PgQueue) -> list[str]:
    return [ran.args["text"] for ran in drain(queue)]


def test_without_a_bound_it_is_ten_times_the_wait() -> None:
    assert Debounce(6).most == MINUTE
    assert Debounce(timedelta(days=3650)).most == timedelta(days=3650)


def test_a_debounced_job_expires_so_long_after_the_time_at_which_it_would_have_run(
    queue: PgQueue, clock: Clock
) -> None:
    index = _index(queue, Debounce(5, by=("user",)), expires_in=10)
    index.enqueue(1, "a")
    clock.travel(4)
    handle = index.enqueue(1, "b")
    clock.travel(14)
    assert _texts(queue) == ["b"]
    handle = index.enqueue(1, "c")
    clock.travel(15)
    assert _texts(queue) == []
    assert handle.status() is JobState.DEAD


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Debounce(0), "wait=0"),
        (lambda: Debounce(-1), "wait=-1"),
        (lambda: Debounce(float("nan")), "wait=nan"),
        (lambda: Debounce("5"), "wait='5'"),  # type: ignore[arg-type]  # what users type
        (lambda: Debounce(5, most=0), "most=0"),
        (lambda: Debounce(5, most=4), "most=4 is shorter than wait=5"),
        (lambda: Debounce(5, by=(1,)), r"by=\(1,\)"),  # type: ignore[arg-type]  # what users type
        (lambda: Throttle(0), "period=0"),
        (lambda: Throttle(-1), "period=-1"),
        (lambda: Throttle(float("inf")), "period=inf"),
        (lambda: Throttle(5, trailing="yes"), "trailing='yes'"),  # type: ignore[arg-type]  # what users type
    ],
)
def test_lengths_that_make_no_sense_are_refused(make: Any, words: str) -> None:
    with pytest.raises(InvalidOption, match=words):
        make()


@pytest.mark.parametrize("unique", [Debounce(5, by="user"), Throttle(5, by="user")])
def test_what_contradicts_is_refused_and_changes_nothing(queue: PgQueue, unique: Unique) -> None:
    index = _index(queue, unique)
    for options in ({"delay": 5}, {"run_at": NOON}):
        with pytest.raises(InvalidOption, match="contradict each other"):
            index.using(**options)
    with pytest.raises(InvalidOption, match="no parameter 'usr'; did you mean 'user'"):
        index.using(unique=Debounce(5, by="usr"))
    with pytest.raises(InvalidOption, match="has no key"):
        index.using(unique=Debounce(5)).enqueue(1, "a")
    with pytest.raises(InvalidOption, match="cannot be kept"):
        chain(index.call(1, "a"), index.call(2, "b")).enqueue()
    with pytest.raises(InvalidOption, match="cannot be kept with a schedule"):
        queue.schedules.add("hourly", index.call(1, "a"), every=HOUR)
    assert queue.insight.search().jobs == ()


def test_two_policies_are_equal_only_if_all_they_say_is() -> None:
    assert Debounce(5) == Debounce(5)
    assert (
        len(
            {Debounce(5), Debounce(6), Debounce(5, most=7), Throttle(5), Throttle(5, trailing=True), Unique()}
        )
        == 6
    )


@dataclass
class Model:
    """What is to happen to the jobs of one key."""

    unique: Unique
    waiting: tuple[datetime, datetime, str] | None = None
    """When the job was enqueued first, when it runs, and its argument."""
    held_until: datetime = NOON
    ran: list[str] = field(default_factory=list)

    def enqueue(self, now: datetime, text: str) -> Outcome:
        unique = self.unique
        if unique.delay is not None and unique.most is not None:
            first = now if self.waiting is None else self.waiting[0]
            outcome = Outcome.ADDED if self.waiting is None else Outcome.REPLACED
            self.waiting = first, min(now + unique.delay, first + unique.most), text
            return outcome
        if self.waiting is not None:
            if not unique.trailing:
                return Outcome.REJECTED
            self.waiting = *self.waiting[:2], text
            return Outcome.REPLACED
        if now < self.held_until and not unique.trailing:
            return Outcome.REJECTED
        run_at = max(now, self.held_until)
        assert isinstance(unique.period, timedelta)
        self.waiting, self.held_until = (now, run_at, text), run_at + unique.period
        return Outcome.ADDED

    def drain(self, now: datetime) -> None:
        if self.waiting is not None and self.waiting[1] <= now:
            self.ran.append(self.waiting[2])
            self.waiting = None


HISTORIES = st.lists(
    st.one_of(
        st.tuples(st.just("wait"), st.integers(1, 40)),
        st.tuples(st.just("enqueue"), st.lists(st.integers(0, 1), min_size=1, max_size=3)),
        st.tuples(st.just("drain"), st.just(0)),
    ),
    max_size=30,
)
POLICIES = st.one_of(
    st.builds(
        Debounce, st.integers(1, 20), most=st.one_of(st.none(), st.integers(20, 60)), by=st.just("user")
    ),
    st.builds(Throttle, st.integers(1, 30), trailing=st.booleans(), by=st.just("user")),
)


@contextmanager
def _place(dsn: str | None, clock: Clock) -> Iterator[PgQueue]:
    queue = PgQueue("")
    with in_memory(queue, clock=clock) if dsn is None else in_database(queue, dsn, clock=clock):
        yield queue


def _check(dsn: str | None, unique: Unique, history: list[tuple[str, Any]]) -> None:
    """Do what the history says, to jobs of two keys, and compare with the model."""
    clock, name = Clock(NOON), f"queue{next(_names)}"
    models, numbers, ran = [Model(unique), Model(unique)], count(), list[tuple[int, str]]()
    with _place(dsn, clock) as queue:

        @queue.task(name=name, queue=name, unique=unique)
        def index(user: int, text: str) -> None:
            ran.append((user, text))

        for what, value in [*history, ("wait", 200), ("drain", 0)]:
            if what == "wait":
                clock.travel(value * SECOND)
            elif what == "drain":
                drain(queue, queues=[name])
                for user, model in enumerate(models):
                    model.drain(clock.now)
                    assert [text for one, text in ran if one == user] == model.ran
            else:
                calls = [(user, str(next(numbers))) for user in value]
                handles = (
                    [index.enqueue(*calls[0])]
                    if len(calls) == 1
                    else queue.enqueue_many(index.call(*call) for call in calls)
                )
                expected = [models[user].enqueue(clock.now, text) for user, text in calls]
                assert [one.outcome for one in handles] == expected


ENQUEUE, DRAIN = ("enqueue", [0]), ("drain", 0)
TWICE = ("enqueue", [0, 0, 1, 0])
STORIES = {
    "debounced": (Debounce(5, by="user"), [ENQUEUE, ("wait", 4), TWICE, ("wait", 4), DRAIN, ("wait", 1), DRAIN]),
    "an endless stream": (Debounce(5, most=12, by="user"), [ENQUEUE, DRAIN, ("wait", 1)] * 14),
    "throttled": (Throttle(60, by="user"), [TWICE, DRAIN, ("wait", 59), ENQUEUE, DRAIN, ("wait", 1), TWICE, DRAIN]),
    "a trailing job": (
        Throttle(60, trailing=True, by="user"),
        [ENQUEUE, DRAIN, ("wait", 10), ENQUEUE, TWICE, ("wait", 49), DRAIN, ("wait", 1), DRAIN, ("wait", 59), ENQUEUE, DRAIN],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("unique", "history"), STORIES.values(), ids=STORIES)
@pytest.mark.parametrize("place", ["memory", "database"])
def test_known_histories_are_as_the_model_says(
    database: str, place: str, unique: Unique, history: list[tuple[str, Any]]
) -> None:
    _check(None if place == "memory" else database, unique, history)


@given(POLICIES, HISTORIES)
@example(
    Throttle(10, trailing=True, by="user"), [("enqueue", [0]), ("drain", 0), ("enqueue", [0]), ("wait", 9)]
)
@settings(max_examples=300)
def test_random_histories_in_memory_are_as_the_model_says(
    unique: Unique, history: list[tuple[str, Any]]
) -> None:
    _check(None, unique, history)


@given(POLICIES, HISTORIES)
@settings(max_examples=40)
def test_random_histories_on_postgresql_are_as_the_model_says(
    database: str, unique: Unique, history: list[tuple[str, Any]]
) -> None:
    _check(database, unique, history)
