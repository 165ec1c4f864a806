"""A comparison in words and in the cells of a table, for the shell and for the page."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pgqueue.spark.report import words

if TYPE_CHECKING:
    from pgqueue.spark.whatif.compare import ReplayRow, WaitTimes
    from pgqueue.spark.whatif.whatif import ReplayComparison

HEADS = ("queue", "task", "jobs", "wait p50", "p95", "p99", "longest", "late")
"""The columns of the table of tasks."""


def answer(found: "ReplayComparison") -> Iterator[str]:
    """What would be, beside what was, in sentences."""
    days = str(found.first) if found.first == found.last else f"{found.first} to {found.last}"
    p50, p95, p99, longest, late = _pairs(found.was, found.would_be)
    yield f"{words.some(found.jobs, 'job')} of {days}; {'; '.join(map(words.clean, found.settings))}."
    yield (
        f"Waits, was \N{RIGHTWARDS ARROW} would be: p50 {p50}, p95 {p95}, p99 {p99}, longest {longest}; "
        f"late (longer than {words.span(found.late_after)}) {late}."
    )
    was, would_be = found.load_was, found.load_would_be
    yield (
        f"Most waiting at once {_pair(words.count(was.backlog), words.count(would_be.backlog))}; most running at once "
        f"{_pair(words.count(was.running), words.count(would_be.running))}; {words.share(found.busy)} of the slots' time is "
        f"busy; the last job ends {_pair(f'{was.last_end:%Y-%m-%d %H:%M:%S}', f'{would_be.last_end:%Y-%m-%d %H:%M:%S}')} UTC."
    )


def cells(row: "ReplayRow") -> list[str]:
    """The cells of a task's row, behind its queue and its name."""
    return [words.count(row.jobs), *_pairs(row.was, row.would_be)]


def not_known(found: "ReplayComparison") -> Iterator[str]:
    """What the replay leaves out."""
    left = found.left_out
    if left.never_started:
        yield f"Left out: {words.some(left.never_started, 'job')} that ended without an attempt."
    if left.not_served:
        yield f"Left out: {words.some(left.not_served, 'job')} of queues that these workers do not serve."
    if left.earlier_attempts:
        yield (
            f"Left out: {words.some(left.earlier_attempts, 'attempt')} before the last one of a job; the lake does not say how "
            "long these ran."
        )


def _pairs(was: "WaitTimes", would_be: "WaitTimes") -> list[str]:
    spans = [
        _pair(words.span(one), words.span(other))
        for one, other in zip(
            (was.p50, was.p95, was.p99, was.max),
            (would_be.p50, would_be.p95, would_be.p99, would_be.max),
            strict=True,
        )
    ]
    return [*spans, _pair(words.share(was.late), words.share(would_be.late))]


def _pair(was: str, would_be: str) -> str:
    return f"{was} \N{RIGHTWARDS ARROW} {would_be}"
