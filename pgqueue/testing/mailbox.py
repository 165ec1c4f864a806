"""Signals and waits in memory, for tests without a database.

Each public method of :class:`Mailbox` answers the plan of its name in :mod:`pgqueue.store.signals`; the table of jobs tells
it which job waits, and asks whom a deadline admits.
"""

from collections.abc import Mapping
from datetime import datetime

from pgqueue.store.signals import Sent, SignalLook
from pgqueue.testing.flows import FlowBook
from pgqueue.testing.row import JobRow
from pgqueue.values.jobs.job import JobState
from pgqueue.values.signals import SignalWait, reason_of


class Mailbox:
    """The signals that were sent, and what jobs wait for."""

    def __init__(self, rows: Mapping[int, JobRow], flows: FlowBook) -> None:
        self._rows = rows
        self._flows = flows
        self._sent: dict[tuple[str, str], str | None] = {}
        self._deadlines: dict[tuple[int, str], datetime] = {}
        self._passed: set[tuple[int, str]] = set()
        self._waiting: dict[int, SignalWait] = {}
        self._tokens: dict[str, SignalWait] = {}

    def send(self, target: str, name: str, payload: str | None, *, now: datetime) -> Sent:
        """Keep a signal, and admit the jobs that wait for it."""
        if (target, name) in self._sent:
            return "repeated"
        if self._is_gone(target):
            return "gone"
        self._sent[target, name] = payload
        for job_id, awaited in list(self._waiting.items()):
            if awaited.reason == reason_of(target, name):
                self._admit(job_id, now)
        return "first"

    def resolve(self, token: str, payload: str | None, *, now: datetime) -> Sent:
        """Send the signal that a token stands for."""
        awaited = self._tokens.get(token)
        if awaited is None or awaited.target is None:
            return "invalid"
        over = self._deadlines.get((awaited.job_id, awaited.reason), now) < now
        if over and (awaited.target, awaited.name) not in self._sent:
            return "expired"
        return self.send(awaited.target, awaited.name, payload, now=now)

    def callback(self, awaited: SignalWait, *, now: datetime) -> str:
        """The token of a callback."""
        self._note_deadline(awaited, now)
        token = f"in-memory.{awaited.job_id}.{awaited.name}"
        self._tokens[token] = awaited
        return token

    def look(self, awaited: SignalWait, *, now: datetime) -> SignalLook:
        """Whether what an attempt waits for is there, or the wait is over."""
        wait = awaited.job_id, awaited.reason
        arrived = awaited.target is not None and (awaited.target, awaited.name) in self._sent
        if not arrived and wait in self._deadlines and self._deadlines[wait] <= now:
            self._passed.add(wait)
        payload = self._sent[awaited.target, awaited.name] if awaited.target and arrived else None
        return SignalLook(wait in self._passed, arrived, payload)

    def wait(self, row: JobRow, awaited: SignalWait, *, now: datetime) -> None:
        """Block a job until its signal or its deadline, unless the signal is there."""
        row.attempts -= 1
        row.wait(JobState.READY)
        if awaited.target is None or (awaited.target, awaited.name) not in self._sent:
            self._note_deadline(awaited, now)
            self._waiting[row.id] = awaited
            row.state, row.expires_at = JobState.BLOCKED, None  # it was started in time

    def admit_lapsed(self, *, now: datetime) -> None:
        """Admit the jobs whose deadline has passed."""
        for job_id, awaited in list(self._waiting.items()):
            wait = job_id, awaited.reason
            if wait in self._deadlines and self._deadlines[wait] <= now:
                self._passed.add(wait)
                self._admit(job_id, now)

    def revive(self, job_id: int) -> None:
        """Forget the deadlines of a dead job that is to run again."""
        self._passed = {wait for wait in self._passed if wait[0] != job_id}
        self._deadlines = {wait: until for wait, until in self._deadlines.items() if wait[0] != job_id}

    def awaited(self, job_id: int, now: datetime) -> tuple[str, float | None] | None:
        """What a blocked job waits for, and for how many seconds at most; None: no signal and no time."""
        awaited = self._waiting.get(job_id)
        if awaited is None:
            return None
        until = self._deadlines.get((job_id, awaited.reason))
        return awaited.reason, None if until is None else (until - now).total_seconds()

    def _is_gone(self, target: str) -> bool:
        kind, _, which = target.partition(":")
        if kind == "job":
            row = self._rows.get(int(which))
            return row is None or row.state.ended
        if kind == "flow":
            flow = self._flows.flow(int(which))
            return flow is None or flow.ended_at is not None
        return False

    def _note_deadline(self, awaited: SignalWait, now: datetime) -> None:
        if awaited.timeout is not None:
            self._deadlines.setdefault((awaited.job_id, awaited.reason), now + awaited.timeout)

    def _admit(self, job_id: int, now: datetime) -> None:
        del self._waiting[job_id]
        row = self._rows.get(job_id)
        if row is not None and row.state is JobState.BLOCKED:
            row.admit(now)
