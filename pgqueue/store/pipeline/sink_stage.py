"""Plans that stage the rows of a DataFrame, each attempt at a partition under its own number.

:mod:`pgqueue.store.pipeline.sink` decides which of them become jobs.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime
from functools import lru_cache
from itertools import islice
from uuid import UUID

import msgspec

from pgqueue.store.plan import Copy, Statement, Steps, plan

ROWS_PER_CHUNK = 500
NULL = rb"\N"
ESCAPES = str.maketrans({"\\": r"\\", "\t": r"\t", "\n": r"\n", "\r": r"\r"})
"""The characters that COPY treats specially, and their escapes."""


class StagedJob(msgspec.Struct, frozen=True, gc=False):
    """A row as a future job.

    Attributes:
        place: which row of its partition it is, from 1.
        queue: the queue's name.
        priority: -100…100, higher runs sooner; None: as its queue says.
        max_attempts: after how many attempts the job is dead; None: as its queue says.
        args: the arguments as a JSON object, without control characters, as msgspec writes it.
        run_at: the earliest time to run, or None: at once.
        unique_key: the key that no two live jobs may share, or None.
        meta: what the job keeps for other programs, as JSON, or None.
        lane: the keys of its limits, where the database cannot make them of its arguments; None: it does.
        cost: what its start takes of each rate, with ``lane``; None: 1.
        refusal: why it cannot be a job, as JSON: ``reason``, ``contents``, ``key``; None: it becomes one.
    """

    place: int
    queue: str
    priority: int | None
    max_attempts: int | None
    args: bytes
    run_at: datetime | None = None
    unique_key: str | None = None
    meta: bytes | None = None
    lane: str | None = None
    cost: int | None = None
    refusal: bytes | None = None


class Part(msgspec.Struct, frozen=True):
    """A partition as one attempt staged it.

    Attributes:
        partition: its number.
        attempt: the attempt's number.
        rows: how many rows were staged.
        keyed: how many of them have a unique key.
        refused: how many of them cannot be jobs.
    """

    partition: int
    attempt: UUID
    rows: int
    keyed: int
    refused: int = 0


@plan(transaction=True)
def stage(write: UUID, part: Part, jobs: Iterable[StagedJob]) -> Steps[None]:
    """Stage some rows of a partition; called once for every block of rows.

    Args:
        write: the write's number.
        part: the partition and the attempt; its counts are not used.
        jobs: read while they are sent, so their producer must not use this connection.
    """
    named = {"write": write, "attempt": part.attempt, "partition": part.partition}
    yield Statement("pipeline/sink_touch", named, returns=False)
    yield Copy("pipeline/sink_stage", _copy_chunks(part.attempt, jobs))


def _copy_chunks(attempt: UUID, jobs: Iterable[StagedJob]) -> Iterator[bytes]:
    rows, number = iter(jobs), str(attempt).encode()
    while chunk := list(islice(rows, ROWS_PER_CHUNK)):
        yield b"".join(
            b"%b\t%d\t%b\t%b\t%b\t%b\t%b\t%b\t%b\t%b\n"
            % (
                number,
                job.place,
                _copy_options(job.queue, job.priority, job.max_attempts),
                # JSON has escaped control characters; COPY wants backslashes escaped, too.
                job.args.replace(b"\\", b"\\\\"),
                NULL if job.run_at is None else job.run_at.isoformat().encode(),
                NULL if job.unique_key is None else job.unique_key.translate(ESCAPES).encode(),
                NULL if job.meta is None else job.meta.replace(b"\\", b"\\\\"),
                NULL if job.refusal is None else job.refusal.replace(b"\\", b"\\\\"),
                NULL if job.lane is None else job.lane.translate(ESCAPES).encode(),
                NULL if job.cost is None else b"%d" % job.cost,
            )
            for job in chunk
        )


@lru_cache(maxsize=1024)
def _copy_options(queue: str, *numbers: int | None) -> bytes:
    said = (NULL if number is None else b"%d" % number for number in numbers)
    return b"\t".join((queue.translate(ESCAPES).encode(), *said))
