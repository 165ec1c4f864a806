"""The errors that are kept with a job are bounded in number and size, however often it fails."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from store.crowd import ask
from store.samples import MINUTE, NOON, adding, new_job, shown, taking

from pgqueue.store.jobs import control, finish
from pgqueue.values.jobs.job import AttemptError, Claim
from pgqueue.values.jobs.verdict import Again, Died

KEPT = 10
LARGEST = 64 * 1024


@pytest.fixture
def own(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        yield connection


def _failed(
    own: psycopg.Connection[Any], number: int, *, words: str = "no", trace: str | None = None
) -> Claim:
    """Claim the job, a minute after the attempt before, and have it fail."""
    now = NOON + number * MINUTE
    (taken,) = ask(own, taking(now=now))
    error = AttemptError(attempt=taken.attempt, type="ValueError", message=words, traceback=trace)
    ask(own, finish.finish(taken.worker_id, [Again(taken, timedelta(0), error)], keep=True, now=now))
    return taken


def _size(own: psycopg.Connection[Any]) -> int:
    ((size,),) = own.execute("select octet_length(errors::text) from pgqueue.jobs").fetchall()
    return int(size)


def test_the_first_and_the_last_nine_errors_are_kept_and_the_others_counted(
    own: psycopg.Connection[Any],
) -> None:
    (job,) = ask(own, adding(new_job(max_attempts=100)))
    for number in range(30):
        _failed(own, number)

    errors = ask(own, shown(job)).errors

    assert [error.attempt for error in errors] == [1, *range(22, 31)]
    assert errors[0].left_out == 30 - KEPT
    assert {error.left_out for error in errors[1:]} == {0}


def test_the_time_since_the_first_failure_is_right_when_most_errors_are_left_out(
    own: psycopg.Connection[Any],
) -> None:
    ask(own, adding(new_job(max_attempts=100)))
    seconds = [_failed(own, number).failing_seconds for number in range(25)]

    assert seconds == [60.0 * number for number in range(25)]


def test_after_a_revival_the_time_counts_from_the_first_failure_since(own: psycopg.Connection[Any]) -> None:
    (job,) = ask(own, adding(new_job(max_attempts=100)))
    for number in range(15):
        _failed(own, number)
    (taken,) = ask(own, taking(now=NOON + 15 * MINUTE))
    dead = Died(taken, 0.0, "asked", AttemptError(attempt=taken.attempt, type="Dead", message="no"))
    ask(own, finish.finish(taken.worker_id, [dead], keep=True, now=NOON + 15 * MINUTE))
    ask(own, control.retry_dead([job], now=NOON + 16 * MINUTE))

    seconds = [_failed(own, 20 + number).failing_seconds for number in range(15)]

    assert seconds == [60.0 * number for number in range(15)]
    errors = ask(own, shown(job)).errors
    assert (errors[0].attempt, errors[0].left_out, len(errors)) == (1, 31 - KEPT, KEPT)


@pytest.mark.parametrize("letter", ["x", "\N{PILE OF POO}", "\n"])
def test_the_errors_of_a_job_take_no_more_than_64_kb(own: psycopg.Connection[Any], letter: str) -> None:
    (job,) = ask(own, adding(new_job(max_attempts=100)))
    for number in range(15):
        _failed(own, number, words=letter * 7_000)
        assert _size(own) <= LARGEST

    errors = ask(own, shown(job)).errors
    assert errors[0].attempt == 1
    assert errors[-1].attempt == 15
    assert errors[0].left_out == 15 - len(errors)


def test_only_the_last_error_keeps_its_traceback_and_the_others_its_last_lines(
    own: psycopg.Connection[Any],
) -> None:
    (job,) = ask(own, adding(new_job(max_attempts=100)))
    trace = "".join(f"line {number}\n" for number in range(800))
    for number in range(3):
        _failed(own, number, trace=trace)
    _failed(own, 3)
    _failed(own, 4, trace="short\n")
    _failed(own, 5, trace=trace)

    kept = [error.traceback for error in ask(own, shown(job)).errors]

    assert kept[-1] == trace
    assert kept[3:5] == [None, "short\n"]
    for one in kept[:3]:
        assert one is not None
        first, *lines = one.splitlines(keepends=True)
        assert first == "…\n"
        assert "".join(lines) == "".join(trace.splitlines(keepends=True)[-len(lines) :])
        assert 900 < len(one) <= 1_002


def test_errors_that_were_kept_whole_are_cut_at_the_next_failure(own: psycopg.Connection[Any]) -> None:
    (job,) = ask(own, adding(new_job(max_attempts=1000)))
    own.execute(
        "update pgqueue.jobs set attempts = 364, errors = (select jsonb_agg(jsonb_build_object('attempt', n, 'type', 'E', "
        "'message', repeat(md5(n::text), 60), 'at', timestamptz '2031-05-04 12:00+00' + n * interval '1 second') order by n) "
        "from generate_series(1, 364) as n)"
    )

    assert _failed(own, 10).failing_seconds == 599.0
    assert _failed(own, 11).failing_seconds == 659.0

    errors = ask(own, shown(job)).errors
    assert [errors[0].attempt, errors[-1].attempt] == [1, 366]
    assert errors[0].left_out == 366 - len(errors)
    assert _size(own) <= LARGEST
