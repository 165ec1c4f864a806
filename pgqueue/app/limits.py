"""The limits as operators change them: ``queue.control.limits``. ``queue.insight.limits()`` lists them. What they do is decided in :mod:`pgqueue.store.limits.limits`."""

from collections.abc import Mapping

from pgqueue.app.operator import operator_name
from pgqueue.app.registry import Registry
from pgqueue.errors import InvalidOption
from pgqueue.store.limits import limit_control
from pgqueue.store.plan import Plan
from pgqueue.values.jobs.options import check_number, check_one_queue, check_text
from pgqueue.values.limits.limit import QUEUE, AnyLimit, LimitNumbers, Rate
from pgqueue.values.limits.status import LaneChange, LimitStatus
from pgqueue.values.limits.task_limits import share_key
from pgqueue.values.queues.served_queues import WEIGHTS
from pgqueue.values.queues.settings import Existing


class LimitControl:
    """Changes the numbers of limits, and takes jobs out of them; workers keep new numbers from their next claim on.

    Each method has an async version with an ``a`` before its name. All raise ``InvalidOption`` for a
    name that no limit has; ``delete`` and ``move`` take a name that only jobs have.
    """

    def __init__(self, queue: Registry) -> None:
        self._queue = queue

    def set(
        self, name: str, limit: AnyLimit, *, existing: Existing = "replace", by: str | None = None
    ) -> LimitStatus:
        """Give a limit other numbers. They hold until they are set again or unset, whatever the code says.

        Args:
            name: of the limit; ``queue:mail`` limits the queue mail as a whole.
            limit: the numbers: a ``Limit``, or for a rate a ``Rate``, without ``by``, ``name`` and ``cost``.
            existing: what is done if it has other numbers: ``replace`` stores these, ``keep`` leaves them, ``fail`` raises
                an error and changes nothing.
            by: who; by default the user and the host of this process.

        Returns:
            What holds now.

        Raises:
            InvalidOption: no limit has the name, or a value is out of its range.
            LimitExists: it has other numbers, and ``existing`` is ``fail``.
        """
        return self._queue.database.run(self._change(name, limit, existing, by))

    async def aset(
        self, name: str, limit: AnyLimit, *, existing: Existing = "replace", by: str | None = None
    ) -> LimitStatus:
        """As :meth:`set`, awaited."""
        return await self._queue.database.arun(self._change(name, limit, existing, by))

    def unset(self, name: str, *, by: str | None = None) -> None:
        """Restore the numbers that the code declares; a limit that no code declares is forgotten.

        Args:
            name: of the limit.
            by: who.
        """
        self._queue.database.run(limit_control.unset(name, self._queue.limits, by=operator_name(by)))

    async def aunset(self, name: str, *, by: str | None = None) -> None:
        """As :meth:`unset`, awaited."""
        await self._queue.database.arun(limit_control.unset(name, self._queue.limits, by=operator_name(by)))

    def delete(self, name: str, *, by: str | None = None) -> LaneChange:
        """Forget a limit that no code declares any more, and free the jobs that have it in their lane.

        A job that has neither another limit nor a share is ready; the others wait for those they have. Jobs are changed in short
        transactions, unless the caller has a transaction open that it joins.

        Args:
            name: of the limit; it need not be stored, if jobs have it.
            by: who; by default the user and the host of this process.

        Returns:
            How many jobs were freed, and how many were left since other transactions had them locked.
        """
        return self._queue.database.run(self._delete(name, by))

    async def adelete(self, name: str, *, by: str | None = None) -> LaneChange:
        """As :meth:`delete`, awaited."""
        return await self._queue.database.arun(self._delete(name, by))

    def move(self, name: str, to: str | None, *, by: str | None = None) -> LaneChange:
        """Put the jobs that have a limit in their lane under another limit, or under none. The limit itself stays.

        The key of a job keeps its values, so both limits must be by the same arguments.

        Args:
            name: of the limit; it need not be stored, if jobs have it.
            to: the name of the other limit; None: none.
            by: who; by default the user and the host of this process.

        Returns:
            How many jobs were moved, and how many were left since other transactions had them locked.
        """
        return self._queue.database.run(self._move(name, to, by))

    async def amove(self, name: str, to: str | None, *, by: str | None = None) -> LaneChange:
        """As :meth:`move`, awaited."""
        return await self._queue.database.arun(self._move(name, to, by))

    def weigh(self, share: Mapping[str, object], weight: int | None, *, by: str | None = None) -> None:
        """Have more or fewer jobs of a share start than of others. Workers keep to it within a second.

        Args:
            share: the value of each ``fair_by`` argument of its task, such as ``{"tenant": "acme"}``.
            weight: how many of its jobs start for one of a share of weight 1, 1 to 1,000; None: 1.
            by: who; by default the user and the host of this process.
        """
        self._queue.database.run(self._weigh(share, weight, by))

    async def aweigh(self, share: Mapping[str, object], weight: int | None, *, by: str | None = None) -> None:
        """As :meth:`weigh`, awaited."""
        await self._queue.database.arun(self._weigh(share, weight, by))

    def _delete(self, name: str, by: str | None) -> Plan[LaneChange]:
        return limit_control.delete(check_text("limit", name), self._queue.limits, by=operator_name(by))

    def _move(self, name: str, to: str | None, by: str | None) -> Plan[LaneChange]:
        names = check_text("limit", name), None if to is None else check_text("to", to)
        return limit_control.move(*names, self._queue.limits, by=operator_name(by))

    def _weigh(self, share: Mapping[str, object], weight: int | None, by: str | None) -> Plan[None]:
        if weight is not None:
            check_number("weight", weight, WEIGHTS)
        codec = self._queue.codec
        key = share_key(share, None if codec is None else codec.key)
        return limit_control.weigh(key, weight, by=operator_name(by))

    def _change(self, name: str, limit: AnyLimit, existing: Existing, by: str | None) -> Plan[LimitStatus]:
        numbers = _numbers(limit)
        return limit_control.change(
            _check_name(name), numbers, self._queue.limits, existing=existing, by=operator_name(by)
        )


def _check_name(name: str) -> str:
    if check_text("limit", name).startswith(QUEUE):
        check_one_queue("queue", name.removeprefix(QUEUE))
    return name


def _numbers(limit: object) -> LimitNumbers:
    if not isinstance(limit, AnyLimit):
        raise InvalidOption(f"limit={limit!r:.80}: use Limit(5), or Rate('100/minute', burst=20)")
    other = limit.cost != 1 if isinstance(limit, Rate) else limit.ordered or limit.when_full != "wait"
    if limit.by or limit.name is not None or other:
        raise InvalidOption(f"{limit!r:.200}: give only numbers; what else it says is as in the code")
    return limit.numbers
