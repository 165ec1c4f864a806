"""The states of a job, and which may follow which; the times of a claim."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgqueue.values.jobs.job import BEGINNINGS, ENDED, TRANSITIONS, Claim, JobState


def _reachable(start: JobState) -> set[JobState]:
    found: set[JobState] = set()
    frontier = {start}
    while frontier:
        found |= frontier
        frontier = {after for state in frontier for after in TRANSITIONS[state]} - found
    return found


def test_every_state_can_be_reached_from_those_that_jobs_begin_in() -> None:
    assert set().union(*map(_reachable, BEGINNINGS)) == set(JobState)


@pytest.mark.parametrize("state", JobState)
def test_every_job_can_end(state: JobState) -> None:
    assert _reachable(state) & {JobState.SUCCEEDED, JobState.CANCELLED, JobState.DEAD}


@pytest.mark.parametrize("state", JobState)
def test_an_ended_job_stays_where_it_is_unless_a_dead_one_is_retried(state: JobState) -> None:
    assert state.ended == (state in ENDED)
    if state.ended:
        assert TRANSITIONS[state] <= (BEGINNINGS if state is JobState.DEAD else set())


def test_the_table_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        TRANSITIONS[JobState.DEAD] = frozenset()  # type: ignore[index]  # what is refused


@given(st.datetimes(datetime(1900, 1, 1), datetime(2242, 3, 16), timezones=st.just(UTC)))  # noqa: DTZ001 - the strategy sets UTC
def test_the_times_of_a_claim_are_exact_to_the_microsecond(instant: datetime) -> None:
    """They come as PostgreSQL's ``date_part`` has them: microseconds divided by a million, as a double."""
    seconds = (instant - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) / 1_000_000
    claim = Claim(1, UUID(int=1), 1, 1, 25, 0, "default", "task", "{}", seconds, seconds, 0.0)

    assert claim.run_at == claim.created_at == instant
