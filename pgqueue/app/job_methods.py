"""What an app asks of one job, by its id: its record, its result, why it does not run, a cancel, a retry; and what it tells jobs.

How a task waits for a signal is in :mod:`pgqueue.app.signals.waits`; how both meet is in :mod:`pgqueue.store.signals`.
"""

from collections.abc import Callable
from datetime import timedelta
from functools import cached_property
from typing import Any, ClassVar, TypeVar

from pgqueue.app.flows.flows import Flows
from pgqueue.app.hooks.hooks import Hooks
from pgqueue.app.hooks.observer import Observers
from pgqueue.app.notes import opened_progress
from pgqueue.app.operator import operator_name
from pgqueue.app.results import await_until_ended, not_found, result_of, wait_until_ended
from pgqueue.errors import (
    InvalidCallback,
    InvalidOption,
    JobNotFound,
    PayloadTooLarge,
    SignalRefused,
    UnknownQueue,
)
from pgqueue.store import audit, signals
from pgqueue.store.connections.database import Database
from pgqueue.store.insight import why as store_why
from pgqueue.store.jobs import control, notes
from pgqueue.store.jobs.sweep import aagain_after_deadlock, again_after_deadlock
from pgqueue.store.plan import Plan
from pgqueue.values.bulk.operation import Retried
from pgqueue.values.hints import did_you_mean
from pgqueue.values.insight.why import Why
from pgqueue.values.jobs.attempt_log import AttemptLog, opened_log
from pgqueue.values.jobs.job import Job, JobState, NewJob
from pgqueue.values.jobs.note import Progress
from pgqueue.values.jobs.options import check_text
from pgqueue.values.payloads.codec import Codec, decode_job, encoded_payload
from pgqueue.values.payloads.signature import DEFAULT_LIMIT, encode_plain
from pgqueue.values.signals import SignalTarget, check_signal, job_target, key_target

T = TypeVar("T")
IDS = range(-(1 << 63), 1 << 63)
FOREIGN = (
    "this is no token of a callback of this queue: it is forged, cut off, or of another database or schema"
)


class JobMethods:
    """What an app asks of one job, by its id, and the signals that it sends: each method runs one plan of the store.

    Attributes:
        codec: encodes what is stored of jobs, and decodes it; None: it is stored in clear.
        queues: the queues there are; None: any.
        max_payload: the most bytes that a job's arguments, or a signal's payload, may take as JSON.
        observers: told of the jobs that were added.
        hooks: the app's functions that are called with events.
    """

    codec: Codec | None = None
    queues: frozenset[str] | None
    max_payload: int = DEFAULT_LIMIT
    observers: Observers
    hooks: Hooks
    _queues_setting: ClassVar[str] = "PgQueue(queues=...)"
    """How a message names the place where ``queues`` is declared. A framework's queue overrides it."""
    _at_enqueue: tuple[Callable[[NewJob], NewJob], ...] = ()

    def __init__(self, database: Database) -> None:
        self.database = database

    @cached_property
    def flows(self) -> Flows:
        """The chains, groups and workflows: list them, look at one, cancel it, run it again."""
        return Flows(lambda: self.database)

    @property
    def keeps_history(self) -> bool:
        """Whether ended jobs are kept at all."""
        return True

    def require_queue(self, queue: str) -> None:
        """Refuse a queue that was not declared, where queues are declared.

        Raises:
            UnknownQueue: it is not one of them; the message lists them.
        """
        if self.queues is not None and queue not in self.queues:
            raise UnknownQueue(
                f"queue {queue!r} is not one of those declared in {self._queues_setting}: "
                f"{', '.join(sorted(self.queues))}{did_you_mean(queue, self.queues)}"
            )

    def job(self, job_id: int) -> Job:
        """All that is recorded of a job, live or ended.

        Raises:
            JobNotFound: there is no record of it: not committed (yet), rolled back, or its history was dropped.
        """
        return self._found(job_id, self.database.run(control.show(_id(job_id))))

    async def ajob(self, job_id: int) -> Job:
        """As :meth:`job`, awaited."""
        return self._found(job_id, await self.database.arun(control.show(_id(job_id))))

    def cancel(self, job_id: int, *, by: str | None = None) -> JobState | None:
        """Cancel a job.

        Args:
            job_id: which.
            by: who does it, for the audit; None: the audit has no line.

        Returns:
            CANCELLED if it was waiting; RUNNING if its worker has been asked to stop it; None if it has ended.
        """
        return again_after_deadlock(self.database.run)(_cancel_plan(job_id, by))

    async def acancel(self, job_id: int, *, by: str | None = None) -> JobState | None:
        """As :meth:`cancel`, awaited."""
        return await aagain_after_deadlock(self.database.arun)(_cancel_plan(job_id, by))

    def retry(self, job_id: int, *, without_key: bool = False, by: str | None = None) -> Retried:
        """Make a dead job ready again, with all its attempts. ``queue.control.run_now`` starts a scheduled one before its time.

        Args:
            job_id: which.
            without_key: return it without its unique key, so that no live job is in its way.
            by: who does it, for the audit; None: the audit has no line.

        Returns:
            A dataclass, which Flask and FastAPI send as JSON. It is true if the job is ready; else its fields say why not, and
            which live job has the unique key.
        """
        return again_after_deadlock(self.database.run)(_retry_plan(job_id, by, without_key=without_key))

    async def aretry(self, job_id: int, *, without_key: bool = False, by: str | None = None) -> Retried:
        """As :meth:`retry`, awaited."""
        return await aagain_after_deadlock(self.database.arun)(
            _retry_plan(job_id, by, without_key=without_key)
        )

    def why(self, job_id: int) -> Why:
        """Why a job does not run, in a sentence, with the facts that it was made of: not due, paused, no worker, a full limit.

        Args:
            job_id: which.
        """
        return self.database.run(store_why.why(_id(job_id)))

    async def awhy(self, job_id: int) -> Why:
        """As :meth:`why`, awaited."""
        return await self.database.arun(store_why.why(_id(job_id)))

    def result(self, job_id: int, *, timeout: float | timedelta | None = None) -> Any:  # noqa: ANN401 - any JSON
        """Wait until a job has ended, and return what its task returned, as plain JSON values.

        Args:
            job_id: which.
            timeout: seconds, or a timedelta; None: as long as it takes.

        Raises:
            JobNotDone: it has not ended in time; the message says why, as far as is known.
            JobFailed: it is dead or was cancelled.
            JobNotFound: there is no record of it.
            ResultNotKept: it has succeeded, and its result was not kept; the message says why.
            PayloadNotDecodable: the queue's codec cannot decode the result.
        """
        look = wait_until_ended(self.database, _id(job_id), timeout, keeps_history=self.keeps_history)
        return result_of(look, self.codec)

    async def aresult(self, job_id: int, *, timeout: float | timedelta | None = None) -> Any:  # noqa: ANN401, ASYNC109
        """As :meth:`result`, awaited."""
        look = await await_until_ended(self.database, _id(job_id), timeout, keeps_history=self.keeps_history)
        return result_of(look, self.codec)

    def progress(self, job_id: int) -> Progress | None:
        """How far a job is, as its task last reported with ``ctx.progress``; None: it has not.

        Args:
            job_id: which.
        """
        return opened_progress(self.codec, self.database.run(notes.progress(_id(job_id))))

    async def aprogress(self, job_id: int) -> Progress | None:
        """As :meth:`progress`, awaited."""
        return opened_progress(self.codec, await self.database.arun(notes.progress(_id(job_id))))

    def logs(self, job_id: int) -> list[AttemptLog]:
        """The last lines that the attempts of a job logged, where :class:`pgqueue.middleware.KeepLogs` keeps them; the oldest first.

        A running attempt's lines are written about once a second. Of the last 20 attempts at most 200 lines each are kept.

        Args:
            job_id: which.
        """
        found = self.database.run(notes.logs(_id(job_id)))
        return [opened_log(self.codec, one.value, one.at, one.part) for one in found]

    async def alogs(self, job_id: int) -> list[AttemptLog]:
        """As :meth:`logs`, awaited."""
        found = await self.database.arun(notes.logs(_id(job_id)))
        return [opened_log(self.codec, one.value, one.at, one.part) for one in found]

    def signal(
        self,
        target: SignalTarget | int | str,
        name: str,
        payload: object = None,
        *,
        connection: object = None,
        by: str | None = None,
    ) -> bool:
        """Send a signal to a job, or to a key for which jobs wait. Only the first of a name to a target is kept.

        A signal that comes before anything waits for it is kept: to a job until that has ended, to a key for 30 days.

        Args:
            target: the handle of a job, a chain, a group or a workflow; a job's id; or a key, a text that the tasks name with ``ctx.wait_for(..., key=...)``.
            name: which signal.
            payload: what ``ctx.wait_for`` returns: anything that has a JSON form.
            connection: send on this connection, in its current transaction.
            by: who sends it, for the audit; None: the audit has no line.

        Returns:
            False if this signal was sent before: its first payload stays.

        Raises:
            SignalRefused: the job has ended, or there is none of this id.
            PayloadNotEncodable: the payload has no JSON form that PostgreSQL can store.
            PayloadTooLarge: its JSON form is over the limit.
        """
        plan = self._sending(target, name, payload, by)
        return _is_first(self.database.run(plan, connection), f"signal {name!r} to {target!r}")

    async def asignal(
        self,
        target: SignalTarget | int | str,
        name: str,
        payload: object = None,
        *,
        connection: object = None,
        by: str | None = None,
    ) -> bool:
        """As :meth:`signal`, awaited."""
        plan = self._sending(target, name, payload, by)
        return _is_first(await self.database.arun(plan, connection), f"signal {name!r} to {target!r}")

    def resolve(self, token: str, payload: object = None, *, connection: object = None) -> bool:
        """Send the signal that a token of ``ctx.callback()`` stands for.

        Args:
            token: which.
            payload: what ``ctx.wait_for`` returns.
            connection: send on this connection, in its current transaction.

        Returns:
            False if it was resolved before: its first payload stays.

        Raises:
            InvalidCallback: this queue did not make the token.
            SignalRefused: the token has expired, or its job has ended.
            PayloadNotEncodable: the payload has no JSON form that PostgreSQL can store.
            PayloadTooLarge: its JSON form is over the limit.
        """
        plan = signals.resolve(_checked_token(token), self._payload(payload))
        return _is_first(self.database.run(plan, connection), "the token")

    async def aresolve(self, token: str, payload: object = None, *, connection: object = None) -> bool:
        """As :meth:`resolve`, awaited."""
        plan = signals.resolve(_checked_token(token), self._payload(payload))
        return _is_first(await self.database.arun(plan, connection), "the token")

    def _sending(
        self, target: SignalTarget | int | str, name: str, payload: object, by: str | None
    ) -> Plan[signals.Sent]:
        to = _target_of(target)
        plan = signals.send(to, check_signal(name), self._payload(payload))
        if by is None:
            return plan
        return audit.audited(
            plan,
            "signal",
            to.replace(":", " ", 1),
            by=operator_name(by),
            changed=lambda sent: sent == "first",
            name=name,
        )

    def _payload(self, payload: object) -> str | None:
        data = encode_plain(payload, "payload")
        if data is None:
            return None
        if len(data) > self.max_payload:
            raise PayloadTooLarge(
                f"the payload takes {len(data):,} bytes as JSON, over the limit of {self.max_payload:,}; store it "
                "elsewhere and send a reference, or raise PgQueue(max_payload=...)"
            )
        return encoded_payload(self.codec, data).decode()

    def _state(self, job_id: int) -> JobState:
        return self._found(job_id, self.database.run(control.show(job_id).on_primary())).state

    async def _astate(self, job_id: int) -> JobState:
        return self._found(job_id, await self.database.arun(control.show(job_id).on_primary())).state

    def _found(self, job_id: int, job: Job | None) -> Job:
        if job is None:
            raise not_found(job_id, keeps_history=self.keeps_history)
        return decode_job(self.codec, job)


def _id(job_id: int) -> int:
    if isinstance(job_id, bool) or not isinstance(job_id, int):
        raise InvalidOption(f"job_id={job_id!r}: a job's id is a whole number, as in handle.id")
    if job_id not in IDS:
        raise JobNotFound(f"no record of job {job_id}: ids go up to {IDS[-1]}")
    return job_id


def _target_of(target: object) -> str:
    match target:
        case str():
            return key_target(target)
        case int() if not isinstance(target, bool) and 0 < target <= IDS[-1]:
            return job_target(target)
        case SignalTarget():
            return target._signal_target  # noqa: SLF001 - of a handle, for this alone
        case _:
            raise InvalidOption(
                f"signal({target!r:.80}): give the handle of a job or a flow, a job's id, or a key"
            )


def _checked_token(token: str) -> str:
    try:
        return check_text("token", token)
    except InvalidOption:
        raise InvalidCallback(FOREIGN) from None


def _is_first(sent: signals.Sent, what: str) -> bool:
    """Whether a signal was the first of its name.

    Raises:
        SignalRefused: nothing can wait for it.
        InvalidCallback: the token is none of this queue's.
    """
    match sent:
        case "invalid":
            raise InvalidCallback(FOREIGN)
        case "expired":
            raise SignalRefused(f"{what} has expired, so nothing waits for it any more")
        case "gone":
            raise SignalRefused(
                f"{what}: the job has ended, or never was (or is not committed); nothing can wait for the signal"
            )
    return sent == "first"


def _cancel_plan(job_id: int, by: str | None) -> Plan[JobState | None]:
    return _noted(control.cancel(_id(job_id)), "cancel", job_id, by)


def _retry_plan(job_id: int, by: str | None, *, without_key: bool) -> Plan[Retried]:
    return _noted(control.retry(_id(job_id), without_key=without_key), "retry", job_id, by)


def _noted(done: Plan[T], action: str, job_id: int, by: str | None) -> Plan[T]:
    """The plan itself, or for an operator one that also writes the audit."""
    if by is None:
        return done
    return audit.audited(done, action, f"job {job_id}", by=operator_name(by), jobs=lambda _: 1)
