"""What a retry of jobs did: which are ready again, and why the others are not. Which are is decided in ``sql/jobs/revive.sql``."""

from collections.abc import Iterable, Iterator
from typing import Self

import msgspec


class BlockedRetry(msgspec.Struct, frozen=True):
    """A dead job that stays dead, since a live job has its unique key.

    Attributes:
        id: the dead job.
        twin: the live job; None: it has ended since, so another retry may succeed.
        unique_key: the key, as it is stored.
    """

    id: int
    twin: int | None
    unique_key: str


class Retried(msgspec.Struct, frozen=True):
    """What a retry did. It is true if any job is ready again; its length and its items are those of ``ids``.

    Attributes:
        ids: the jobs that are ready again, in order.
        held: dead jobs whose unique key a live job has.
        unreadable: dead jobs whose arguments the database cannot hold as JSON: they stay dead.
        not_dead: jobs that are not dead, or of which there is no record.
        out_of_turn: dead jobs of a flow that has ended, while another flow of its key has not: they stay dead.
    """

    ids: tuple[int, ...] = ()
    held: tuple[BlockedRetry, ...] = ()
    unreadable: tuple[int, ...] = ()
    not_dead: tuple[int, ...] = ()
    out_of_turn: tuple[int, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.ids)

    def __len__(self) -> int:
        return len(self.ids)

    def __iter__(self) -> Iterator[int]:
        return iter(self.ids)

    @classmethod
    def sum(cls, parts: Iterable[Self]) -> Self:
        """What several retries did."""
        columns = zip(*(msgspec.structs.astuple(part) for part in parts), strict=True)
        return cls(*(tuple(one for part in column for one in part) for column in columns))
