"""The options of a queue that are the same wherever its database is, checked."""

from collections.abc import Iterable
from datetime import timedelta
from typing import NamedTuple, Self

from pgqueue.errors import Duration
from pgqueue.values.jobs.options import check_number, check_queues
from pgqueue.values.payloads.signature import DEFAULT_LIMIT, HIGHEST_LIMIT
from pgqueue.values.retention import as_kept_days
from pgqueue.values.secret_names import SECRETS, check_secrets


class QueueOptions(NamedTuple):
    """The options of a queue that are the same wherever its database is; see :class:`pgqueue.PgQueue`."""

    queues: frozenset[str] | None
    history: timedelta | None
    dead: timedelta | None
    history_args: int | None
    max_payload: int
    redact: tuple[str, ...]

    @classmethod
    def checked(
        cls,
        *,
        queues: Iterable[str] | None = None,
        history: Duration | None = None,
        dead: Duration | None = None,
        history_args: int | None = None,
        max_payload: int = DEFAULT_LIMIT,
        redact: Iterable[str] = SECRETS,
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
            None if history is None else as_kept_days("history", history),
            None if dead is None else as_kept_days("dead", dead),
            history_args,
            max_payload,
            check_secrets(redact),
        )
