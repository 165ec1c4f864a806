"""Hostile values of ``expires_at``: through Python they are refused; through SQL a job has expired or has not, and is never stuck."""

from datetime import UTC, datetime
from typing import Any

import pytest
from looking import ask, until
from running import Running

from pgqueue import JobState, PgQueue
from pgqueue.errors import InvalidOption

PAST = ["-infinity", "0001-01-01 00:00+00 BC", "1899-12-31 23:59+00", "1970-01-01 00:00+00"]
FUTURE = ["infinity", "294276-01-01 00:00+00", "9999-12-31 23:59+00"]


@pytest.mark.parametrize(
    "value",
    [
        "infinity",
        "2031-01-01",
        1_900_000_000,
        float("inf"),
        datetime(2031, 1, 1),  # noqa: DTZ001 - that is what is wrong with it
        datetime(1899, 12, 31, tzinfo=UTC),
        datetime(9000, 1, 1, tzinfo=UTC),
        datetime.max.replace(tzinfo=UTC),
    ],
)
def test_python_refuses_what_is_no_instant_of_a_job(queue: PgQueue, value: Any) -> None:
    @queue.task
    def work() -> None: ...

    with pytest.raises(InvalidOption, match="expires_at="):
        work.using(expires_at=value).enqueue()
    assert queue.insight.search().jobs == ()


@pytest.mark.parametrize("state", ["ready", "scheduled"])
async def test_whatever_sql_writes_a_job_is_expired_or_runs(
    queue: PgQueue, running: Running, state: str
) -> None:
    calls: list[int] = []

    @queue.task
    def work(number: int) -> None:
        calls.append(number)

    handles = [await work.aenqueue(number) for number in range(len(PAST + FUTURE))]
    for handle, value in zip(handles, PAST + FUTURE, strict=True):
        ask(
            queue,
            "update pgqueue.jobs set expires_at = %s::text::timestamptz, status = %s::text where id = %s returning 1",
            value, state, handle.id,
        )  # fmt: skip
    assert all([(await queue.awhy(handle.id)).sentence for handle in handles])
    async with running(queue):
        await until(lambda: all(handle.status().ended for handle in handles))
    jobs = [queue.job(handle.id) for handle in handles]
    late, in_time = jobs[: len(PAST)], jobs[len(PAST) :]
    assert [(one.state, one.reason, one.attempts) for one in late] == [(JobState.DEAD, "expired", 0)] * len(
        PAST
    )
    assert [one.state for one in in_time] == [JobState.SUCCEEDED] * len(FUTURE)
    assert sorted(calls) == [*range(len(PAST), len(jobs))]


async def test_a_job_that_expires_at_the_instant_of_its_claim_is_not_started(
    queue: PgQueue, running: Running
) -> None:
    """The database sets ``expires_at`` to the very instant that the claim writes: both are of one statement."""
    calls: list[int] = []

    @queue.task
    def work(number: int) -> None:
        calls.append(number)

    ask(
        queue,
        "create function meet() returns trigger language plpgsql as $$ begin "
        "new.expires_at := new.claimed_at + interval '1 microsecond' * (old.args ->> 'number')::integer; return new; end $$; "
        "create trigger meet before update on pgqueue.jobs for each row "
        "when (new.status = 'running' and old.status = 'ready') execute function meet(); select 1",
    )
    at_it, before = work.enqueue(0), work.enqueue(-1)
    after = work.enqueue(60_000_000)
    async with running(queue):
        await until(lambda: all(one.status().ended for one in (at_it, before, after)))
    assert calls == [60_000_000]
    assert [queue.job(one.id).reason for one in (at_it, before, after)] == ["expired", "expired", None]
