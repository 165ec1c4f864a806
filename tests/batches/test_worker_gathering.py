"""Groups of claims in memory: when the next one is due."""

import math
from datetime import UTC, datetime
from uuid import UUID

from documents import Document

from pgqueue import Batch, PgQueue
from pgqueue.values.jobs.job import Claim
from pgqueue.worker.batch_groups import BatchGroups

NOON = datetime(2031, 5, 4, 12, tzinfo=UTC)


def _claim(job_id: int, args: str) -> Claim:
    return Claim(
        job_id, UUID(int=7), 1, 1, 25, 0, "default", "index", args, NOON.timestamp(), NOON.timestamp(), 0.0
    )


def test_after_a_group_was_taken_the_next_due_instant_is_that_of_the_groups_that_are_left() -> None:
    """Else the worker would look again and again without a pause."""
    queue = PgQueue("")

    @queue.batch_task(Document, name="index", size=3, wait=5, by="tenant")
    def index(jobs: Batch[Document]) -> None: ...

    gathering = BatchGroups(None)
    assert gathering.add(_claim(1, '{"number": 1}'), index, 100.0) is None
    assert gathering.add(_claim(2, '{"number": 2, "tenant": "two"}'), index, 103.0) is None
    assert gathering.due == 105.0
    assert gathering.take_due(104.9) == []
    assert [[one.id for one in group.claims] for group in gathering.take_due(105.0)] == [[1]]
    assert (gathering.due, gathering.count) == (108.0, 1)
    assert len(gathering.take_due(108.0)) == 1
    assert (gathering.due, gathering.count) == (math.inf, 0)
