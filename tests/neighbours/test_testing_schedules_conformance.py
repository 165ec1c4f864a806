"""Schedules in memory and on PostgreSQL: the same calls at the same instants, in any order, have the same answers."""

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from neighbours.places import NOON, SECOND
from store.samples import new_job

from pgqueue import PgQueue
from pgqueue.errors import PgQueueError
from pgqueue.store.plan import Plan
from pgqueue.store.schedules import schedules, ticks
from pgqueue.testing import Clock, in_memory
from pgqueue.values.schedules.schedule import NewSchedule, Schedule, ScheduleRun, Timing

Step = tuple[str, int, dict[str, Any]]
RULES: list[dict[str, Any]] = [
    {"every": 60},
    {"cron": "*/2 * * * *", "timezone": "Europe/London"},
    {"every": 7, "missed_limit": 5},
]
ACTS: dict[str, Callable[[datetime, dict[str, Any]], Plan[Any]]] = {
    "look": lambda now, _: ticks.fire_due(now=now),
    "put": lambda now, options: schedules.put(_new(**options), replace=True, now=now),
    "pause": lambda now, _: schedules.pause("one", "ann", now=now),
    "resume": lambda now, _: schedules.resume("one", now=now),
    "remove": lambda _, __: schedules.remove("one"),
    "fire": lambda now, _: ticks.fire("one", now=now),
    "backfill": lambda now, _: ticks.backfill("one", now - timedelta(minutes=5), now, now=now),
}
STEPS = st.lists(
    st.tuples(
        st.sampled_from([*ACTS, "look", "look", "cancel"]),
        st.integers(0, 300),
        st.fixed_dictionaries(
            {
                "rule": st.sampled_from(RULES),
                "overlap": st.sampled_from(["allow", "skip", "queue"]),
                "missed": st.sampled_from(["skip", "latest", "all"]),
            }
        ),
    ),
    min_size=3,
    max_size=14,
)


def _new(rule: dict[str, Any], **options: Any) -> NewSchedule:
    return NewSchedule(name="one", job=new_job(), timing=Timing(**rule, **options))


class Player:
    """Makes calls on a queue, and notes the answers; jobs are numbered in the order in which they are met."""

    def __init__(self, queue: PgQueue) -> None:
        self._queue = queue
        self._jobs: list[int] = []

    def play(self, steps: list[Step]) -> list[Any]:
        """What each call answered, and how all stands at the end."""
        now, said = NOON, list[Any]()
        for act, seconds, options in steps:
            now += seconds * SECOND
            if act == "cancel":
                said.append([self._queue.cancel(job_id) for job_id in self._jobs])
                continue
            again = True
            while again:  # a look may leave some ticks for the next one
                said.append(self._asked(ACTS[act](now, options)))
                again = act == "look" and bool(said[-1])
        return [*said, self._asked(ticks.runs("one", limit=1000)), self._asked(schedules.listed())]

    def _asked(self, plan: Plan[Any]) -> Any:
        try:
            answer = self._queue.database.run(plan)
        except PgQueueError as error:
            return type(error).__name__
        if isinstance(answer, ticks.FiringResult):
            return [self._number(job_id) for job_id in answer.jobs]
        if plan.name == "ticks.fire":
            return self._number(answer)
        if isinstance(answer, list):
            return [self._shown(one) for one in answer]
        return answer

    def _shown(self, one: ScheduleRun | Schedule) -> tuple[Any, ...]:
        if isinstance(one, ScheduleRun):
            return one.at, one.kind, one.state, one.job_state, self._number(one.job_id)
        return one.timing, one.state, one.last, one.next, one.paused_by

    def _number(self, job_id: int | None) -> int | None:
        if job_id is not None and job_id not in self._jobs:
            self._jobs.append(job_id)
        return None if job_id is None else self._jobs.index(job_id)


@pytest.fixture
def queue(dsn: str) -> Iterator[PgQueue]:
    """A queue on a database of its own."""
    made = PgQueue(dsn)
    yield made
    made.close()


_SAME: dict[str, Any] = {"rule": {"every": 60}, "overlap": "queue", "missed": "all"}


_EVERY_TWO: dict[str, Any] = {
    "rule": {"cron": "*/2 * * * *", "timezone": "Europe/London"},
    "overlap": "allow",
    "missed": "skip",
}


@example(
    steps=[("look", 60, _SAME), ("put", 0, _EVERY_TWO)]
)  # at the instant of the look, with the same next tick
@example(steps=[("look", 18, _SAME), ("put", 0, _SAME), ("backfill", 484, _SAME), ("look", 0, _SAME)])
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_any_calls_have_the_same_answers(queue: PgQueue, steps: list[Step]) -> None:
    first: Step = ("put", 0, {"rule": RULES[0], "overlap": "allow", "missed": "latest"})
    with psycopg.connect(queue.database.dsn) as connection:
        connection.execute(
            "delete from pgqueue.jobs; delete from pgqueue.job_history; delete from pgqueue.schedules; "
            "delete from pgqueue.schedule_ticks"
        )
    on_postgresql = Player(queue).play([first, *steps])
    with in_memory(queue, clock=Clock(NOON)):
        in_dicts = Player(queue).play([first, *steps])
    assert in_dicts == on_postgresql
