"""Retry policies made of tenacity's objects: they decide whether a failed job runs again, and after how long.

tenacity's own loop sleeps in the process; a durable queue writes the next time into the row instead. So its ``wait_*``,
``stop_*`` and ``retry_if_*`` objects are only called, with the state that they would see after the same failures.
"""

from dataclasses import dataclass, field
from datetime import timedelta

from tenacity import Future, RetryCallState, Retrying
from tenacity.retry import RetryBaseT, retry_if_exception_type
from tenacity.stop import StopBaseT, stop_after_attempt
from tenacity.wait import WaitBaseT, wait_exponential_jitter

from pgqueue.errors import InvalidOption

DEFAULT_ATTEMPTS = 25
DEFAULT_STOP = stop_after_attempt(DEFAULT_ATTEMPTS)
"""That of a policy that names none: its jobs have the number of attempts that their queue says, or 25."""
LONGEST_WAIT = timedelta(days=365)


@dataclass(frozen=True, slots=True)
class Retry:
    """When a failed job runs again.

    Attributes:
        wait: how long to wait, a tenacity ``wait_*``; in seconds from 1 to an hour, doubling, by default.
        stop: when to give up, a tenacity ``stop_*``; after 25 attempts by default. A plain
            ``stop_after_attempt(n)`` becomes the job's ``max_attempts``, which ``using(max_attempts=…)``
            changes for one job and which counts attempts that a crash ended, too.
        retry: which errors are retried, a tenacity ``retry_if_exception*``; all by default.

    Raises:
        InvalidOption: a value is not one of tenacity's objects.
    """

    wait: WaitBaseT = field(default_factory=lambda: wait_exponential_jitter(initial=1, max=3600))
    stop: StopBaseT = field(default_factory=lambda: DEFAULT_STOP)
    retry: RetryBaseT = field(default_factory=lambda: retry_if_exception_type(BaseException))

    def __post_init__(self) -> None:
        for name, example in (("wait", "wait_fixed(60)"), ("stop", "stop_after_attempt(3)"),
                              ("retry", "retry_if_exception_type(OSError)")):  # fmt: skip
            value = getattr(self, name)
            if not callable(value) or isinstance(value, type):
                raise InvalidOption(f"Retry({name}={value!r}): use one of tenacity's, for example {example}")

    @property
    def max_attempts(self) -> int | None:
        """The ``max_attempts`` that jobs of this policy get: ``stop_after_attempt``'s number; None: it names none."""
        if self.stop is DEFAULT_STOP or not isinstance(self.stop, stop_after_attempt):
            return None
        return self.stop.max_attempt_number

    def wants_again(self, error: BaseException, attempt: int, age: timedelta) -> bool:
        """Whether the policy allows another attempt.

        Args:
            error: how this attempt failed.
            attempt: which attempt it was, from 1.
            age: the time since the job's first failure.

        Returns:
            False if ``retry`` does not name the error, or ``stop`` (other than a plain ``stop_after_attempt``) stops.
        """
        state = _state(error, attempt, age)
        if not self.retry(state):
            return False
        return isinstance(self.stop, stop_after_attempt) or not self.stop(state)

    def delay(self, error: BaseException, attempt: int, age: timedelta) -> timedelta:
        """How long to wait before the next attempt; arguments as for :meth:`wants_again`."""
        seconds = self.wait(_state(error, attempt, age))
        return min(max(timedelta(seconds=seconds), timedelta(0)), LONGEST_WAIT)


def as_policy(given: Retry | int | None) -> Retry:
    """The policy of a decorator's ``retry=``: a number means that many attempts, None the default policy.

    Raises:
        InvalidOption: the value is none of these.
    """
    if given is None:
        return Retry()
    if isinstance(given, Retry):
        return given
    if isinstance(given, int) and not isinstance(given, bool) and given > 0:
        return Retry(stop=stop_after_attempt(given))
    raise InvalidOption(f"retry={given!r}: use a pgqueue.Retry, or a number of attempts from 1")


def _state(error: BaseException, attempt: int, age: timedelta) -> RetryCallState:
    state = RetryCallState(retry_object=Retrying(), fn=None, args=(), kwargs={})
    state.attempt_number = attempt
    state.outcome = Future(attempt)
    state.outcome.set_exception(error)
    state.start_time = 0.0
    state.outcome_timestamp = age.total_seconds()
    return state
