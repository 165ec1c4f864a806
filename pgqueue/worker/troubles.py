"""Why a worker's plan is tried again, and what the log says of it.

:class:`Troubles` logs, for each connection and each :class:`RetryCause`, that the worker tries again: at the first failure, then
at growing intervals, and once more when the database works again.
"""

import time
from collections.abc import Collection
from enum import Enum

import psycopg

from pgqueue.errors import SchemaMissing
from pgqueue.store.connections.answering import NoAnswer
from pgqueue.store.jobs.refusals import in_one_line
from pgqueue.worker.joblog import worker_log

log = worker_log()

KEEPS_CONNECTION = ("40", "55", "57014")
"""SQLSTATEs after which the connection is as good as before."""
FIRST_REMINDER = 60.0
"""Seconds from the line that reports a failure to the next line about the same cause."""
LONGEST_REMINDER = 600.0
"""Seconds. Each reminder comes after twice the time of the one before it, and after this time at most."""
NO_SLOT_WORDS = (
    "too many clients already",
    "remaining connection slots are reserved",
    "too many connections for",
    "no more connections allowed",
)
"""libpq gives no SQLSTATE for a refused connection, so its message is searched: three of PostgreSQL, one of PgBouncer."""


class RetryCause(Enum):
    """Why a plan is tried again; the value is what the log says."""

    LOST = "the connection was lost, or the database cannot be reached; the worker tries again"
    NO_ANSWER = (
        "the database did not answer in time: the worker closed the connection, and tries again on a new one"
    )
    NO_SLOT = (
        "the server has no free connection slot; the worker tries again: "
        "close other connections, or raise max_connections or the limit of the role or database"
    )
    READ_ONLY = "the database is read-only; the worker tries again until it takes writes"
    REFUSED = "the database refused a statement for now; the worker tries again"
    NO_TABLES = "the tables are missing or incomplete; the worker tries again: run `pgqueue migrate`"


OF_CONNECTION = frozenset({RetryCause.LOST, RetryCause.NO_ANSWER, RetryCause.NO_SLOT})
"""Causes that are over when any plan succeeds on the connection; the others, when the plan itself does."""


def cause_of(error: BaseException) -> RetryCause:
    """Why this error, of those that pass, was raised."""
    if isinstance(error, NoAnswer):
        return RetryCause.NO_ANSWER
    if isinstance(error, SchemaMissing):
        return RetryCause.NO_TABLES
    state = error.sqlstate if isinstance(error, psycopg.Error) else None
    if state == "53300" or (state is None and _no_slot_line(error) is not None):
        return RetryCause.NO_SLOT
    if state == "25006":
        return RetryCause.READ_ONLY
    if state is None or (state.startswith(("08", "25", "57")) and state not in KEEPS_CONNECTION):
        return RetryCause.LOST
    return RetryCause.REFUSED


def first_line(error: BaseException) -> str:
    """What a log line says of an error: the lines that follow repeat the statement. Of a missing slot, the server's words alone."""
    return _no_slot_line(error) or in_one_line(error)


def _no_slot_line(error: BaseException) -> str | None:
    """Return the server's line that says that no connection is free; None: it does not say that."""
    lines = f"{error.__cause__ or error}".splitlines()
    return next((line.strip() for line in lines if any(words in line for words in NO_SLOT_WORDS)), None)


class Reminder:
    """Decides which failures of one cause are logged, and counts them.

    The first is logged, then one after 1 minute, 2, 4 and so on, up to 10 minutes. After a success the intervals begin
    with 1 minute again; a failure less than 1 minute after a logged one is not logged, so that a cause that comes and goes
    does not fill the log.

    Attributes:
        failures: how many there were since they began.
        since: when the first of them was, on the monotonic clock; None: there was none.
    """

    def __init__(self) -> None:
        self.failures = 0
        self.since: float | None = None
        self._logged = False
        self._logged_at = -LONGEST_REMINDER
        self._pause = FIRST_REMINDER

    def failed(self, now: float | None = None) -> bool:
        """Note a failure, now or at this instant of the monotonic clock; returns whether to log it."""
        now = time.monotonic() if now is None else now
        self.failures += 1
        if self.since is None:
            self.since = now
        if now < self._logged_at + self._pause:
            return False
        if self._logged:
            self._pause = min(2 * self._pause, LONGEST_REMINDER)
        self._logged, self._logged_at = True, now
        return True

    def ended(self, now: float | None = None) -> float | None:
        """Note that the failures are over, now or at this instant; returns how many seconds they lasted, if one of them was logged."""
        since, logged = self.since, self._logged
        self.failures, self.since, self._logged, self._pause = 0, None, False, FIRST_REMINDER
        now = time.monotonic() if now is None else now
        return now - since if since is not None and logged else None


class Troubles:
    """Logs that a connection's plans fail and are tried again, and that they work again."""

    def __init__(self, connection: str) -> None:
        self._connection = connection
        self._reminders: dict[RetryCause, Reminder] = {}

    def failed(self, error: BaseException) -> None:
        """A plan is tried again after this error: log it, unless the log has a line of this cause that is recent."""
        cause = cause_of(error)
        reminder = self._reminders.setdefault(cause, Reminder())
        if reminder.failed():
            extra: dict[str, object] = {"connection": self._connection, "error": first_line(error)}
            if reminder.since is not None and reminder.failures > 1:
                extra |= {"tries": reminder.failures, "seconds": round(time.monotonic() - reminder.since, 1)}
            log.warning(cause.value, extra=extra)

    def connection_works(self) -> None:
        """A plan has succeeded on the connection."""
        if self._reminders:
            self._end(OF_CONNECTION & self._reminders.keys())

    def plan_done(self) -> None:
        """A plan that had failed has succeeded."""
        self._end(self._reminders.keys())

    def plan_given_up(self) -> None:
        """A plan that had failed is not tried again: its caller was told, or has been cancelled."""
        for cause in self._reminders.keys() - OF_CONNECTION:
            self._reminders[cause].ended()

    def _end(self, causes: Collection[RetryCause]) -> None:
        lasted = [self._reminders[cause].ended() for cause in causes]
        if told := [seconds for seconds in lasted if seconds is not None]:
            log.warning(
                "the database works again",
                extra={"connection": self._connection, "seconds": round(max(told), 1)},
            )
