"""The alerts of an app: what ``@queue.alert`` declares, and the stored ones as operators see them, ``queue.alerts``.

What a module declares is owned by that module: an alert is removed by an app that has tasks of its module and does not
declare it any more, and by no other app. A worker that starts applies what its app declares; every worker looks at all
alerts. When an alert is told is decided in :mod:`pgqueue.values.alerts.state`.
"""

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pgqueue.app.operator import operator_name
from pgqueue.app.registry import Registry
from pgqueue.app.schedules.declared_schedules import modules_of
from pgqueue.app.task import Task
from pgqueue.errors import Duration, InvalidOption, PayloadError, as_limit
from pgqueue.store.alerts import alerts
from pgqueue.store.plan import Plan
from pgqueue.values.alerts.alert import Alert, Rule
from pgqueue.values.alerts.state import AlertStatus, NewAlert, Terms
from pgqueue.values.jobs.options import check_text
from pgqueue.values.schedules.schedule import LONGEST_NAME, Applied

log = logging.getLogger("pgqueue")

_LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class DeclaredAlert:
    """An alert that the app's code declares."""

    name: str
    task: Task[..., Any]
    rule: Rule
    terms: Terms

    def stored(self) -> NewAlert:
        """The alert to store. The task is tried now: its annotations may name what follows the declaration.

        Raises:
            InvalidOption: the task does not take an :class:`Alert` as its one argument, or cannot be told so.
        """
        sample = Alert(
            name=self.name, state="firing", kind=self.rule.kind, summary="", value=0.0,
            threshold=self.rule.threshold, since=_LONG_AGO, at=_LONG_AGO,
        )  # fmt: skip
        try:
            job = self.task.call(sample).job
        except PayloadError as error:
            raise InvalidOption(
                f"alert {self.name!r}: its task is given one argument, a pgqueue.Alert: {error}"
            ) from error
        if (
            job.run_at is not None
            or job.delay is not None
            or job.expires_at is not None
            or job.unique_key is not None
        ):
            raise InvalidOption(
                f"alert {self.name!r}: run_at, delay, expires_at and unique_key are of one job; give its task none of them"
            )
        (argument,) = json.loads(job.args)
        return NewAlert(
            self.name, self.task.function.__module__, self.rule, self.terms, job.task, argument, job.queue,
            job.priority, job.max_attempts, job.expires_in,
        )  # fmt: skip


class Alerts:
    """The stored alerts of a queue. Each method runs one plan; the awaited one has an ``a`` before its name."""

    def __init__(self, queue: Registry, declared: Mapping[str, DeclaredAlert]) -> None:
        """Made by the queue; see :attr:`pgqueue.PgQueue.alerts`."""
        self._queue = queue
        self._declared = declared

    def declared(self) -> Sequence[NewAlert]:
        """What the app's code declares, ready to be stored.

        Raises:
            InvalidOption: the task of one cannot be told.
            UnknownQueue: the queue of one's task is not declared.
        """
        found = [one.stored() for one in self._declared.values()]
        for one in found:
            self._queue.require_queue(one.queue)
        return found

    def application(self) -> Plan[Applied]:
        """The plan of :meth:`apply`, for workers."""
        return alerts.apply(self.declared(), modules_of(self._queue.tasks))

    def apply(self) -> Applied:
        """Store what the app's code declares, all or none, and remove what its modules no longer declare.

        Returns:
            The names of those that were added, changed and removed, and of those whose name is taken.
        """
        return log_applied(self._queue.database.run(self.application()))

    async def aapply(self) -> Applied:
        """As :meth:`apply`, awaited."""
        return log_applied(await self._queue.database.arun(self.application()))

    def list(self) -> Sequence[AlertStatus]:
        """Every stored alert in the order of names, and how it stands."""
        return self._queue.database.run(alerts.listed())

    async def alist(self) -> Sequence[AlertStatus]:
        """As :meth:`list`, awaited."""
        return await self._queue.database.arun(alerts.listed())

    def silence(self, name: str, length: Duration, *, by: str | None = None) -> datetime | None:
        """Have the task of an alert told nothing for a time; looks go on. Told then: an alert that still holds.

        Args:
            name: which alert.
            length: for how long; seconds, or a timedelta.
            by: who; by default the user and the host of this process.

        Returns:
            Until when.

        Raises:
            InvalidOption: there is none of this name.
        """
        return self._queue.database.run(_silence_plan(name, length, by))

    async def asilence(self, name: str, length: Duration, *, by: str | None = None) -> datetime | None:
        """As :meth:`silence`, awaited."""
        return await self._queue.database.arun(_silence_plan(name, length, by))

    def unsilence(self, name: str, *, by: str | None = None) -> None:
        """Have the task of a silenced alert told again.

        Args:
            name: which alert.
            by: who.

        Raises:
            InvalidOption: there is none of this name.
        """
        self._queue.database.run(alerts.silence(name, None, by=operator_name(by)))

    async def aunsilence(self, name: str, *, by: str | None = None) -> None:
        """As :meth:`unsilence`, awaited."""
        await self._queue.database.arun(alerts.silence(name, None, by=operator_name(by)))

    def remove(self, name: str, *, by: str | None = None) -> bool:
        """Delete an alert. One that code declares comes back when a worker of that code starts.

        Args:
            name: which alert.
            by: who.

        Returns:
            False: there was none of this name.
        """
        return self._queue.database.run(alerts.remove(name, by=operator_name(by)))

    async def aremove(self, name: str, *, by: str | None = None) -> bool:
        """As :meth:`remove`, awaited."""
        return await self._queue.database.arun(alerts.remove(name, by=operator_name(by)))


def checked_name(name: str) -> str:
    """Check an alert's name, and return it.

    Raises:
        InvalidOption: it is empty or too long, or PostgreSQL cannot hold it.
    """
    if not isinstance(name, str) or not 1 <= len(name) <= LONGEST_NAME or name != name.strip():
        raise InvalidOption(
            f"name={name!r:.80}: the name of an alert has 1 to {LONGEST_NAME} characters and no white space at its ends"
        )
    return check_text("name", name)


def checked_rule(name: str, rule: object) -> Rule:
    """Check that this is a condition, and return it.

    Raises:
        InvalidOption: it is none.
    """
    if not isinstance(rule, Rule):
        raise InvalidOption(
            f"alert {name!r}: {rule!r:.80} is no condition; give one such as OldestReady(queue='mail', over=300)"
        )
    return rule


def log_applied(applied: Applied) -> Applied:
    """Log what became of declared alerts."""
    for what in ("added", "changed", "removed"):
        if names := getattr(applied, what):
            log.info("alerts %s", what, extra={"alerts": names})
    if applied.taken:
        log.error("alerts not stored: another module has the name", extra={"alerts": applied.taken})
    return applied


def _silence_plan(name: str, length: Duration, by: str | None) -> Plan[datetime | None]:
    return alerts.silence(name, as_limit("length", length), by=operator_name(by))
