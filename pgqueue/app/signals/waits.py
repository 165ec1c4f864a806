"""How a task waits: what it waits for, checked, and what its attempt makes of what the database says.

What the database is asked, and how no signal is lost, is in :mod:`pgqueue.store.signals`.
"""

from typing import Any, Protocol

from pgqueue.app.twins import awaits, blocks
from pgqueue.errors import Duration, Waiting, WaitTimedOut, as_limit
from pgqueue.store import signals
from pgqueue.store.connections.database import Database
from pgqueue.store.plan import Plan
from pgqueue.values.jobs.job import Claim
from pgqueue.values.payloads.codec import Codec, payload_text
from pgqueue.values.payloads.storable import value_of
from pgqueue.values.signals import SignalWait, check_signal, flow_target, job_target, key_target


class WaitHost(Protocol):
    """What runs attempts, as a task that waits sees it.

    Attributes:
        database: where the job is.
        codec: decodes payloads.
    """

    database: Database
    codec: Codec | None

    def is_async(self, claim: Claim) -> bool:
        """Whether the claim's task is an ``async def`` function."""


class CanWait:
    """The methods of a context by which a task waits."""

    __slots__ = ()

    job: Claim
    _host: WaitHost

    @blocks
    def wait_for(self, name: str, *, key: str | None = None, timeout: Duration | None = None) -> Any:  # noqa: ANN401 - any JSON
        """What was sent with a signal; if it is not there yet, the attempt ends here, and the job waits for it.

        A job that waits has no worker and no connection. When the signal comes, or the timeout is over, the job runs
        again from its beginning, the attempt not counted, and this call returns or raises at once. Let ``Waiting`` pass.

        Args:
            name: which signal; each name is one wait, whose signal every later attempt gets again.
            key: wait for a signal to this key, as other jobs may do, too; None: to this job.
            timeout: seconds, or a timedelta, counted from the first time; None: as long as it takes.

        Raises:
            WaitTimedOut: the time was over before a signal came.
            Waiting: the signal is not there.
        """
        awaited = _for_signal(self.job.id, name, key, timeout)
        return _payload(awaited, self._host.database.run(signals.look(awaited)), self._host.codec)

    @awaits
    async def await_for(self, name: str, *, key: str | None = None, timeout: Duration | None = None) -> Any:  # noqa: ANN401, ASYNC109 - as the blocking one
        """As :meth:`wait_for`, awaited."""
        awaited = _for_signal(self.job.id, name, key, timeout)
        return _payload(awaited, await self._host.database.arun(signals.look(awaited)), self._host.codec)

    @blocks
    def pause(self, name: str, duration: Duration) -> None:
        """End the attempt, and let the job wait for a time; in attempts after that time this returns at once.

        Args:
            name: which pause of this job.
            duration: seconds, or a timedelta, counted from the first time.

        Raises:
            Waiting: the time is not over.
        """
        awaited = _for_time(self.job.id, name, duration)
        _require_over(awaited, self._host.database.run(signals.look(awaited)))

    @awaits
    async def apause(self, name: str, duration: Duration) -> None:
        """As :meth:`pause`, awaited."""
        awaited = _for_time(self.job.id, name, duration)
        _require_over(awaited, await self._host.database.arun(signals.look(awaited)))

    @blocks
    def callback(self, name: str, *, timeout: Duration | None = None) -> str:
        """A token with which another system sends the signal ``name`` to this job: :meth:`wait_for` gets its payload.

        Args:
            name: which signal. The same name gives the same token in every attempt.
            timeout: for how long the token is valid, which is the deadline of the wait, too; None: until the job ends.
        """
        return self._host.database.run(_callback(self.job.id, name, timeout))

    @awaits
    async def acallback(self, name: str, *, timeout: Duration | None = None) -> str:  # noqa: ASYNC109 - as the blocking one
        """As :meth:`callback`, awaited."""
        return await self._host.database.arun(_callback(self.job.id, name, timeout))


def signal_of_flow(ctx: CanWait, flow_id: int, name: str, timeout: Duration | None) -> Any:  # noqa: ANN401 - any JSON
    """As :meth:`CanWait.wait_for`, for a signal that is sent to the whole flow."""
    awaited = SignalWait(ctx.job.id, check_signal(name), flow_target(flow_id), as_limit("timeout", timeout))
    return _payload(awaited, ctx._host.database.run(signals.look(awaited)), ctx._host.codec)  # noqa: SLF001 - of this module's own class


def _for_signal(job_id: int, name: str, key: str | None, timeout: Duration | None) -> SignalWait:
    target = job_target(job_id) if key is None else key_target(key)
    return SignalWait(job_id, check_signal(name), target, as_limit("timeout", timeout))


def _for_time(job_id: int, name: str, duration: Duration) -> SignalWait:
    return SignalWait(job_id, check_signal(name), None, as_limit("duration", duration))


def _callback(job_id: int, name: str, timeout: Duration | None) -> Plan[str]:
    return signals.callback(_for_signal(job_id, name, None, timeout))


def _payload(awaited: SignalWait, looked: signals.SignalLook, codec: Codec | None) -> Any:  # noqa: ANN401 - any JSON
    """What came with the signal.

    Raises:
        WaitTimedOut: the deadline has passed.
        Waiting: it has not come yet.
        PayloadNotDecodable: the queue's codec cannot decode it.
    """
    if looked.over:
        raise WaitTimedOut(f"job {awaited.job_id}: {awaited} did not come before its deadline")
    if not looked.arrived:
        raise Waiting(awaited)
    return None if looked.payload is None else value_of(payload_text(codec, looked.payload))


def _require_over(awaited: SignalWait, looked: signals.SignalLook) -> None:
    if not looked.over:
        raise Waiting(awaited)
