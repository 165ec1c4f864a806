"""The policy for jobs that kill their workers: its bounds, and what is recorded."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from pgqueue import Crashes, PgQueue
from pgqueue.errors import InvalidOption
from pgqueue.values.jobs.job import Claim
from pgqueue.values.workers.crashes import CrashCount, as_crashes, crash_verdict

NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)
CLAIM = Claim(1, UUID(int=1), 1, 4, 25, 0, "default", "work", "{}", NOON.timestamp(), NOON.timestamp(), 0.0)


@pytest.mark.parametrize(
    ("memory", "size"),
    [
        ("512 MB", 512_000_000),
        ("2GiB", 2 * 2**30),
        (" 1.5 gb ", 1_500_000_000),
        (10**6, 10**6),
        ("1000000", 10**6),
    ],
)
def test_memory_is_a_number_of_bytes_or_a_text_with_a_unit(memory: int | str, size: int) -> None:
    assert Crashes(memory=memory).bytes == size


@pytest.mark.parametrize(
    "memory",
    ["", "much", "-1 GB", "512 MBs", "1e9", 0, -1, True, 1.5, 10**30, "9" * 400, "0.5 MB", "٣ GB MB", float("nan"), b"1 GB"],
    ids=repr,
)  # fmt: skip
def test_nonsense_of_memory_is_refused_with_an_example(memory: Any) -> None:
    with pytest.raises(InvalidOption, match=r"Crashes\(memory=.*'512 MB'"):
        Crashes(memory=memory)


@pytest.mark.parametrize("limit", [0, -1, 10, True, 2.5, "3"], ids=repr)
def test_the_limit_is_a_whole_number_from_1_to_9(limit: Any, queue_of_nothing: PgQueue) -> None:
    with pytest.raises(InvalidOption, match="9"):
        Crashes(limit)
    with pytest.raises(InvalidOption, match="crashes"):
        as_crashes(limit)
    with pytest.raises(InvalidOption):
        queue_of_nothing.task(crashes=limit)
    assert not queue_of_nothing.tasks


@pytest.fixture
def queue_of_nothing() -> PgQueue:
    return PgQueue("postgresql://nowhere")


def test_what_then_is_one_of_two_words() -> None:
    with pytest.raises(InvalidOption, match="'isolate', 'dead'"):
        Crashes(then="kill")  # type: ignore[arg-type]  # this is the test


def test_a_task_has_the_policy_that_it_was_given(queue_of_nothing: PgQueue) -> None:
    def work() -> None: ...

    task = queue_of_nothing.task
    assert task(name="a")(work).crashes == Crashes(3, then="isolate")
    assert task(name="b", crashes=2)(work).crashes == Crashes(2)
    assert task(name="c", crashes=Crashes(1, then="dead"))(work).crashes.then == "dead"


@pytest.mark.parametrize(
    ("begun", "how", "memory", "said"),
    [
        (CrashCount(1), "", None, "killed 1 worker"),
        (CrashCount(3, 512_000_000), "", None, "killed 3 workers; last RSS 512 MB"),
        (
            CrashCount(3, 1),
            "its own process: exit code 7",
            20_000_000_000,
            "killed 3 workers, and its own process: exit code 7; last RSS 20.0 GB",
        ),
    ],
)
def test_the_error_says_how_many_workers_died_and_of_how_much(
    begun: CrashCount, how: str, memory: int | None, said: str
) -> None:
    died = crash_verdict(CLAIM, begun, None, how, memory)
    assert (died.reason, died.error.type, died.error.message) == ("crashed", "JobCrashed", said)
