"""Sending signals, and resolving callbacks: what the world tells jobs that wait, or will wait.

How a task waits is in :mod:`pgqueue.app.signals.waits`; how both meet is in :mod:`pgqueue.store.signals`.
"""

from typing import Any

from pgqueue.app.flows.handle import FlowHandle
from pgqueue.app.handle import JobHandle
from pgqueue.app.job_methods import JobMethods
from pgqueue.errors import InvalidCallback, InvalidOption, PayloadTooLarge, SignalRefused
from pgqueue.store import signals
from pgqueue.values.jobs.options import check_text
from pgqueue.values.payloads.codec import encoded_payload
from pgqueue.values.payloads.signature import DEFAULT_LIMIT, encode_plain
from pgqueue.values.signals import check_signal, flow_target, job_target, key_target

LARGEST_ID = (1 << 63) - 1
FOREIGN = (
    "this is no token of a callback of this queue: it is forged, cut off, or of another database or schema"
)


class SignalMethods(JobMethods):
    """Sends signals.

    Attributes:
        max_payload: the most bytes that a signal's payload may take as JSON.
    """

    max_payload: int = DEFAULT_LIMIT

    def signal(
        self,
        target: JobHandle[Any] | FlowHandle | int | str,
        name: str,
        payload: object = None,
        *,
        connection: object = None,
    ) -> bool:
        """Send a signal to a job, or to a key for which jobs wait. Only the first of a name to a target is kept.

        A signal that comes before anything waits for it is kept: to a job until that has ended, to a key for 30 days.

        Args:
            target: the handle of a job, a chain, a group or a workflow; a job's id; or a key, a text that the tasks name with ``ctx.wait_for(..., key=...)``.
            name: which signal.
            payload: what ``ctx.wait_for`` returns: anything that has a JSON form.
            connection: send on this connection, in its current transaction.

        Returns:
            False if this signal was sent before: its first payload stays.

        Raises:
            SignalRefused: the job has ended, or there is none of this id.
            PayloadNotEncodable: the payload has no JSON form that PostgreSQL can store.
            PayloadTooLarge: its JSON form is over the limit.
        """
        plan = signals.send(_target_of(target), check_signal(name), self._payload(payload))
        return _is_first(self.database.run(plan, connection), f"signal {name!r} to {target!r}")

    async def asignal(
        self,
        target: JobHandle[Any] | FlowHandle | int | str,
        name: str,
        payload: object = None,
        *,
        connection: object = None,
    ) -> bool:
        """As :meth:`signal`, awaited."""
        plan = signals.send(_target_of(target), check_signal(name), self._payload(payload))
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


def _target_of(target: object) -> str:
    match target:
        case JobHandle():
            return job_target(target.id)
        case FlowHandle():
            return flow_target(target.id)
        case str():
            return key_target(target)
        case int() if not isinstance(target, bool) and 0 < target <= LARGEST_ID:
            return job_target(target)
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
