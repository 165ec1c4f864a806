"""For how long what pgqueue stores is kept, as values."""

from datetime import datetime, timedelta
from typing import Final

import msgspec

from pgqueue.errors import Duration, InvalidOption, as_duration

FOREVER: Final = timedelta(days=100_000)
"""This long, or longer: nothing is removed for its age."""


class Retention(msgspec.Struct, frozen=True):
    """For how long ended and dead jobs are kept, whichever program asks, of queues without a length of their own.

    Attributes:
        history: for how long ended jobs are kept.
        dead: for how long dead jobs are kept; None: for ever.
        history_args: the longest arguments that are kept of a succeeded job, in bytes as stored.
        changed: whether the call changed one of them.
    """

    history: timedelta
    dead: timedelta | None
    history_args: int
    changed: bool


class Kept(msgspec.Struct, frozen=True):
    """One kind of records, and for how long it is kept.

    Attributes:
        what: which, such as ``history`` or ``dead jobs``.
        queue: of which queue; None: of all queues that have no length of their own, or the kind knows no queues.
        keeps: for how long; None: no age decides.
        until: where no age decides, until when it is kept.
        rows: how many there are now, an estimate of PostgreSQL; None: it is not known without reading a table.
        bytes: how much space they take, with indices; None: as for ``rows``.
        oldest: when the oldest one was stored; of the history the beginning of its first day.
        next_at: when the next ones are old enough to be removed, which a worker does within ten minutes.
        frees_rows: how many are removed then, an estimate; None: it is not known.
        frees_bytes: how much space that frees; None: as for ``frees_rows``.
        set_at: when the length was changed; None: it is pgqueue's own.
        set_by: who changed it: an operator, or the host and process of a worker whose program gives it.
    """

    what: str
    queue: str | None
    keeps: timedelta | None
    until: str | None
    rows: int | None
    bytes: int | None
    oldest: datetime | None
    next_at: datetime | None
    frees_rows: int | None
    frees_bytes: int | None
    set_at: datetime | None
    set_by: str | None


class Removal(msgspec.Struct, frozen=True):
    """What the next tidying removes.

    Attributes:
        what: ``days of the history``, which are dropped whole; ``ended jobs`` of days that stay; ``dead jobs``.
        count: how many days or jobs.
        rows: how many rows these are; of days an estimate.
        bytes: how much space that frees; None: none at once, PostgreSQL uses it again.
    """

    what: str
    count: int
    rows: int
    bytes: int | None


def require_kept(history: timedelta | None) -> None:
    """Refuse to keep no history at all by an operator's word: whether ended jobs are written is decided by programs and queues.

    Raises:
        InvalidOption: it is zero.
    """
    if history == timedelta(0):
        raise InvalidOption(
            "history=0: say it of a queue (queues set QUEUE --keep-history 0), or in the program, PgQueue(history=0); "
            "here use a day or more"
        )


def as_kept_days(name: str, value: Duration) -> timedelta:
    """A length for which jobs are kept, checked; the name is of the option.

    Raises:
        InvalidOption: it is negative, or shorter than a day and not zero.
    """
    kept = as_duration(name, value)
    if kept < timedelta(0):
        raise InvalidOption(f"{name}={value!r}: use a timedelta of zero or more")
    # A length between zero and a day is a mistake: the caller meant days.
    if timedelta(0) < kept < timedelta(days=1):
        raise InvalidOption(
            f"{name}={value!r} is {kept}, but jobs are kept by whole days: "
            "give a day or more (30d, timedelta(days=30)), or 0 to keep none"
        )
    return kept
