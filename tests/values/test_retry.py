"""tenacity's policies, read as "again in how long, or not at all?"."""

from datetime import timedelta

import pytest
from tenacity import (
    RetryCallState,
    retry_if_exception_message,
    retry_if_exception_type,
    retry_if_not_exception_type,
    retry_never,
    stop_after_attempt,
    stop_after_delay,
    stop_any,
    stop_never,
    wait_chain,
    wait_combine,
    wait_exponential,
    wait_exponential_jitter,
    wait_fixed,
    wait_incrementing,
    wait_random,
)
from tenacity.wait import wait_base

from pgqueue.values.jobs.retry import DEFAULT_ATTEMPTS, LONGEST_WAIT, Retry

NONE = timedelta(0)
HOUR = timedelta(hours=1)
ERROR = ValueError("no")


def _waits(policy: Retry, attempts: int) -> list[float]:
    return [policy.delay(ERROR, attempt, NONE).total_seconds() for attempt in range(1, attempts + 1)]


class _ByError(wait_base):
    """A policy of the user's own, which looks at all there is to see."""

    def __call__(self, retry_state: RetryCallState) -> float:
        assert retry_state.outcome is not None
        error = retry_state.outcome.exception()
        return float(str(error)) + retry_state.attempt_number + (retry_state.seconds_since_start or 0.0)


@pytest.mark.parametrize(
    ("policy", "seconds"),
    [
        (Retry(wait=wait_fixed(3)), [3, 3, 3]),
        (Retry(wait=wait_incrementing(start=1, increment=10)), [1, 11, 21]),
        (Retry(wait=wait_exponential(multiplier=1, max=3)), [1, 2, 3]),
        (Retry(wait=wait_chain(wait_fixed(1), wait_fixed(5))), [1, 5, 5]),
        (Retry(wait=wait_combine(wait_fixed(1), wait_fixed(2))), [3, 3, 3]),
        (Retry(wait=wait_fixed(1) + wait_fixed(4)), [5, 5, 5]),
    ],
)
def test_waits_are_those_of_tenacity(policy: Retry, seconds: list[float]) -> None:
    assert _waits(policy, 3) == seconds


def test_jittered_waits_stay_within_their_bounds() -> None:
    for attempt, wait in enumerate(_waits(Retry(), 30), start=1):
        assert min(2.0 ** (attempt - 1), 3600) <= wait <= 3600
    assert all(2 <= wait <= 4 for wait in _waits(Retry(wait=wait_random(2, 4)), 30))


def test_a_policy_of_ones_own_sees_the_error_the_attempt_and_the_age() -> None:
    delay = Retry(wait=_ByError()).delay(ValueError("100"), 3, timedelta(seconds=20))

    assert delay == timedelta(seconds=123)


@pytest.mark.parametrize(("seconds", "delay"), [(-5, NONE), (10**9, LONGEST_WAIT)])
def test_a_wait_is_neither_negative_nor_longer_than_a_year(seconds: float, delay: timedelta) -> None:
    assert Retry(wait=wait_fixed(seconds)).delay(ERROR, 1, NONE) == delay


def test_a_plain_number_of_attempts_is_the_jobs_own_and_not_asked_again() -> None:
    policy = Retry(stop=stop_after_attempt(3))

    assert policy.max_attempts == 3
    assert policy.wants_again(ERROR, 50, HOUR)
    assert Retry(stop=stop_after_attempt(DEFAULT_ATTEMPTS)).max_attempts == DEFAULT_ATTEMPTS
    assert Retry().max_attempts is None, "the queue says it"
    assert Retry(stop=stop_never).max_attempts is None


def test_stopping_after_a_delay_looks_at_how_long_the_job_has_been_failing() -> None:
    policy = Retry(stop=stop_after_delay(60))

    assert policy.wants_again(ERROR, 5, timedelta(seconds=59))
    assert not policy.wants_again(ERROR, 2, timedelta(seconds=60))


def test_combined_stops_are_asked_as_a_whole() -> None:
    for policy in (
        Retry(stop=stop_any(stop_after_attempt(3), stop_after_delay(60))),
        Retry(stop=stop_after_attempt(3) | stop_after_delay(60)),
    ):
        assert policy.max_attempts is None
        assert policy.wants_again(ERROR, 2, NONE)
        assert not policy.wants_again(ERROR, 3, NONE)
        assert not policy.wants_again(ERROR, 1, HOUR)


def test_only_the_errors_that_the_policy_names_are_worth_another_attempt() -> None:
    only = Retry(retry=retry_if_exception_type((ValueError, KeyError)))
    never_type = Retry(retry=retry_if_not_exception_type(ValueError))

    assert only.wants_again(ERROR, 1, NONE)
    assert not only.wants_again(TypeError(), 1, NONE)
    assert not never_type.wants_again(ERROR, 1, NONE)
    assert never_type.wants_again(TypeError(), 1, NONE)
    assert Retry(retry=retry_if_exception_message(match="n.")).wants_again(ERROR, 1, NONE)
    assert not Retry(retry=retry_never).wants_again(ERROR, 1, NONE)


def test_by_default_every_error_is_worth_another_attempt() -> None:
    for error in (ValueError(), SystemExit(1), KeyboardInterrupt()):
        assert Retry().wants_again(error, 24, HOUR)


def test_policies_are_values_and_do_not_share_state() -> None:
    assert isinstance(Retry().wait, wait_exponential_jitter)
    assert Retry(wait=(one := wait_fixed(1))).wait is one
    assert Retry().wait is not Retry().wait
