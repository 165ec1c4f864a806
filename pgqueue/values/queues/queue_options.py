"""The options of a queue that are the same wherever its database is, checked."""

from collections.abc import Iterable
from datetime import timedelta
from typing import NamedTuple, Self

from pgqueue.errors import Duration, InvalidOption, as_duration
from pgqueue.values.jobs.options import check_number, check_queues
from pgqueue.values.payloads.signature import DEFAULT_LIMIT, HIGHEST_LIMIT


class QueueOptions(NamedTuple):
    """The options of a queue that are the same wherever its database is; see :class:`pgqueue.PgQueue`."""

    queues: frozenset[str] | None
    history: timedelta | None
    dead: timedelta | None
    history_args: int | None
    max_payload: int

    @classmethod
    def checked(
        cls,
        *,
        queues: Iterable[str] | None = None,
        history: Duration | None = None,
        dead: Duration | None = None,
        history_args: int | None = None,
        max_payload: int = DEFAULT_LIMIT,
    ) -> Self:
        """Check them.

        Raises:
            InvalidOption: one of them is out of its range.
        """
        check_number("max_payload", max_payload, range(1, HIGHEST_LIMIT + 1))
        if history_args is not None:
            check_number("history_args", history_args, range(2**31))
        return cls(
            None if queues is None else frozenset(check_queues(queues)),
            None if history is None else _retention("history", history),
            None if dead is None else _retention("dead", dead),
            history_args,
            max_payload,
        )


def _retention(name: str, value: Duration) -> timedelta:
    kept = as_duration(name, value)
    if kept < timedelta(0):
        raise InvalidOption(f"{name}={value!r}: use a timedelta of zero or more")
    # A length between zero and a day is a mistake: the caller meant days.
    if timedelta(0) < kept < timedelta(days=1):
        raise InvalidOption(
            f"{name}={value!r} is {kept}, but jobs are kept by whole days: "
            "use timedelta(days=...), or 0 to keep none"
        )
    return kept
