"""What becomes of a job whose attempt raised, and how the error is kept."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
import pytest
from tenacity import retry_if_exception_type, retry_never, stop_after_delay, wait_fixed

from pgqueue import errors
from pgqueue.errors import Dead, InvalidOption, RetryLater, Snooze, TimedOut
from pgqueue.values.jobs.error_text import LONGEST_MESSAGE, LONGEST_TRACEBACK, describe
from pgqueue.values.jobs.job import AttemptError, Claim
from pgqueue.values.jobs.retry import Retry
from pgqueue.values.jobs.verdict import (
    NOT_KEPT,
    NOT_RETURNED,
    Again,
    Cancelled,
    Died,
    Returned,
    Stop,
    Succeeded,
    Verdict,
    as_stopped,
    fallbacks,
    judge,
    without_result,
)

NOON = datetime(2031, 5, 4, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
POLICY = Retry(wait=wait_fixed(7))


def _claim(**changes: Any) -> Claim:
    claim = Claim(
        1, UUID(int=1), 1, 1, 3, 0, "default", "bill", "{}", NOON.timestamp(), NOON.timestamp(), 0.0
    )
    return msgspec.structs.replace(claim, **changes)


def _judged(error: BaseException, *, retry: Retry = POLICY, seconds: float = 0.0, **changes: Any) -> Verdict:
    return judge(_claim(**changes), error, retry=retry, seconds=seconds)


def test_a_failed_attempt_is_followed_by_another_after_the_policys_wait() -> None:
    verdict = _judged(ValueError("no"))

    assert isinstance(verdict, Again)
    assert (verdict.delay, verdict.error.type, verdict.error.message) == (
        timedelta(seconds=7),
        "ValueError",
        "no",
    )


@pytest.mark.parametrize("error", [ValueError(), SystemExit(1), KeyboardInterrupt(), TimedOut("late")])
def test_the_last_attempt_is_the_last_whatever_it_raised(error: BaseException) -> None:
    assert isinstance(_judged(error, attempt=2), Again)
    verdict = _judged(error, attempt=3)
    assert isinstance(verdict, Died)
    assert verdict.reason == "exhausted"


@pytest.mark.parametrize("attempt", [1, 3, 9])
def test_a_snooze_is_no_failure_even_on_the_last_attempt(attempt: int) -> None:
    assert _judged(Snooze(MINUTE), attempt=attempt) == Returned(_claim(attempt=attempt), MINUTE)


def test_retry_later_brings_its_own_delay_but_spends_an_attempt() -> None:
    verdict = _judged(RetryLater(MINUTE, "busy"), attempt=2)
    assert isinstance(verdict, Again)
    assert (verdict.delay, verdict.error.message) == (MINUTE, "busy")

    last = _judged(RetryLater(MINUTE), attempt=3)
    assert isinstance(last, Died)
    assert last.reason == "exhausted"


def test_retry_later_is_heard_whatever_the_policy_thinks_of_errors() -> None:
    assert isinstance(_judged(RetryLater(MINUTE), retry=Retry(retry=retry_never)), Again)


def test_dead_is_dead_at_once() -> None:
    verdict = _judged(Dead("no such order"), seconds=2.5)

    assert isinstance(verdict, Died)
    assert (verdict.reason, verdict.error.message, verdict.seconds) == ("asked", "no such order", 2.5)


@pytest.mark.parametrize(("reason", "kept"), [("", None), ("not needed", "not needed")])
def test_cancelled_is_no_failure_even_on_the_last_attempt_and_keeps_a_reason(
    reason: str, kept: str | None
) -> None:
    verdict = _judged(errors.Cancelled(reason), attempt=3)

    assert isinstance(verdict, Cancelled)
    assert (None if verdict.error is None else verdict.error.message) == kept


@pytest.mark.parametrize("error", [Snooze(MINUTE), RetryLater(MINUTE), Dead("no"), ValueError()])
def test_an_attempt_that_was_cancelled_ends_so_whatever_it_raised(error: Exception) -> None:
    assert isinstance(as_stopped(_judged(error), Stop.CANCEL), Cancelled)


def test_a_task_that_ends_its_job_as_the_worker_stops_has_obeyed_the_worker() -> None:
    assert as_stopped(_judged(errors.Cancelled()), Stop.SHUTDOWN) == Returned(_claim())
    dead = _judged(Dead("no"))
    assert as_stopped(dead, Stop.SHUTDOWN) is dead


def test_an_error_that_the_policy_does_not_name_is_refused_another_attempt() -> None:
    verdict = _judged(TypeError(), retry=Retry(retry=retry_if_exception_type(ValueError)))

    assert isinstance(verdict, Died)
    assert verdict.reason == "refused"


def test_the_age_of_the_failures_counts_the_earlier_ones_and_this_attempt() -> None:
    policy = Retry(stop=stop_after_delay(60), wait=wait_fixed(1))

    assert isinstance(_judged(ValueError(), retry=policy, failing_seconds=50.0, seconds=9.0), Again)
    assert isinstance(_judged(ValueError(), retry=policy, failing_seconds=50.0, seconds=10.0), Died)


@pytest.mark.parametrize("error", [Snooze, RetryLater])
def test_a_delay_into_the_past_is_refused_where_it_is_raised(error: type[Snooze | RetryLater]) -> None:
    assert error(timedelta(0)).delay == timedelta(0)
    with pytest.raises(InvalidOption, match="use seconds or a timedelta, from zero to ten years"):
        error(-MINUTE)


def test_a_success_that_cannot_be_stored_is_recorded_without_its_result() -> None:
    recorded, *others = fallbacks(Succeeded(_claim(), 2.0, b'"\\u0000"'), ValueError("no NUL"))

    assert recorded == without_result(_claim(), 2.0, "the database refused it: no NUL")
    assert isinstance(recorded, Succeeded)
    assert (recorded.result, recorded.seconds) == (NOT_RETURNED, 2.0)
    assert recorded.error == AttemptError(1, NOT_KEPT, "the database refused it: no NUL")
    assert [type(one) for one in others] == [Succeeded, Again, Again]
    assert others[0] == Succeeded(_claim(), 2.0, NOT_RETURNED)


def test_a_success_without_a_result_that_cannot_be_stored_spends_its_attempt() -> None:
    assert [type(one) for one in fallbacks(Succeeded(_claim(attempt=3), 2.0), ValueError())] == [Died, Died]


@pytest.mark.parametrize("attempt", [1, 3])
def test_a_failure_that_cannot_be_stored_spends_its_attempt_for_the_reason_of_the_refusal(
    attempt: int,
) -> None:
    claim = _claim(attempt=attempt)

    for refused in (Returned(claim), Cancelled(claim), judge(claim, ValueError(), retry=POLICY, seconds=0.0)):
        for recorded, message in zip(
            fallbacks(refused, ValueError("cannot store")),
            ["cannot store", "the database refused to store how this attempt ended"],
            strict=True,
        ):
            assert isinstance(recorded, Again | Died)
            assert isinstance(recorded, Died) is (attempt == 3)
            assert recorded.error.message == message


class _Broken(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even this")


def _raised(error: BaseException) -> BaseException:
    with pytest.raises(type(error)) as caught:
        raise error
    return caught.value


def test_an_error_is_named_in_full_and_builtins_by_their_short_name() -> None:
    assert describe(KeyError("a"), 2).type == "KeyError"
    assert describe(_Broken(), 2).type == f"{__name__}._Broken"
    assert describe(KeyError("a"), 2).attempt == 2
    assert describe(KeyError("a"), 2).message == "'a'"


def test_an_error_that_cannot_say_what_it_is_is_kept_all_the_same() -> None:
    described = describe(_raised(_Broken()), 1)

    assert described.message == "<its __str__ raised RuntimeError>"
    assert described.traceback is not None


def test_a_long_error_is_kept_by_the_head_of_its_message_and_the_tail_of_its_traceback() -> None:
    described = describe(_raised(ValueError("head" + "x" * 50_000 + "tail")), 1)

    assert len(described.message) == LONGEST_MESSAGE
    assert described.message.startswith("head")
    assert described.traceback is not None
    assert LONGEST_MESSAGE < len(described.traceback) < LONGEST_TRACEBACK
    assert described.traceback.rstrip().endswith("tail")
    assert "in _raised" in described.traceback
    assert "ValueError: head" in described.traceback


@pytest.mark.parametrize("text", ["a\0b", "a\ud800b", "\udcff\0"])
def test_what_jsonb_cannot_hold_is_replaced(text: str) -> None:
    described = describe(_raised(ValueError(text)), 1)

    for kept in (described.message, described.traceback):
        assert kept
        assert "\0" not in kept
        assert kept == kept.encode().decode()
    assert msgspec.json.encode(described)


def test_an_error_that_was_never_raised_has_no_traceback() -> None:
    assert describe(ValueError("no"), 1).traceback is None
    assert "ValueError: no" in (describe(_raised(ValueError("no")), 1).traceback or "")
