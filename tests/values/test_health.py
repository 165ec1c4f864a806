"""What a worker says of its health, in words, and as text that every database stores."""

import pytest

from pgqueue.values.workers.health import BLOCKED_FOR_LONG, LONGEST, BlockedLoop, WorkerProblem, storable

BY_A_JOB = BlockedLoop(45.0, "shop.report", 12, "/srv/jobs.py:31 in report")


def test_a_blocked_loop_is_said_with_worker_task_job_line_and_seconds() -> None:
    assert str(WorkerProblem("web-1", 4711, BY_A_JOB, 0)) == (
        "worker web-1:4711: its event loop has been blocked for 45 s by task shop.report (job 12) "
        "at /srv/jobs.py:31 in report"
    )


def test_what_is_no_job_is_said_by_its_asyncio_task() -> None:
    assert "for 45 s by asyncio task my own at x.py:1 in f" in str(
        BlockedLoop(45.0, "my own", None, "x.py:1 in f")
    )


@pytest.mark.parametrize(
    ("count", "said"),
    [(1, "1 function goes on after its timeout, "), (3, "3 functions go on after their timeout, ")],
)
def test_functions_that_have_not_returned_are_counted(count: int, said: str) -> None:
    words = str(WorkerProblem("web-1", 4711, None, count))
    assert words.startswith(f"worker web-1:4711: {said}")
    assert "event loop" not in words


@pytest.mark.parametrize(
    ("seconds", "serves"), [(None, True), (BLOCKED_FOR_LONG - 0.1, True), (BLOCKED_FOR_LONG, False)]
)
def test_a_worker_serves_until_its_loop_was_blocked_for_long(seconds: float | None, serves: bool) -> None:  # noqa: FBT001 - a table
    blocked = None if seconds is None else BlockedLoop(seconds, "t", 1, "w")
    assert WorkerProblem("web-1", 1, blocked, 9).serves is serves


def test_a_name_becomes_text_that_every_database_stores() -> None:
    assert storable("half \ud800, NUL \0, é") == r"half \ud800, NUL \x00, \xe9"
    assert storable("a" + "b" * LONGEST) == "a" + "b" * (LONGEST - 1)
    assert storable("a" * LONGEST + "b", end=True) == "a" * (LONGEST - 1) + "b"
