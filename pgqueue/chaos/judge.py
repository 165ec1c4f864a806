"""What the log and the tables say together: whether each promise held. The rules are those of :mod:`pgqueue.chaos.history`.

Three things are added. A step of a job does not run again once the next step has begun. And where commits were lost with a
primary whose replica had not got them, jobs that anything happened to at that time are not judged, only counted: that is
what such a setting means. And where an answer to a worker was lost with its connection, the claim is taken to have ended with
the last act of its task (see :func:`unanswered_ends`).
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice, pairwise
from math import nextafter
from operator import attrgetter
from typing import NamedTuple, TypeAlias

import msgspec

from pgqueue.chaos.history import many_jobs, one_job
from pgqueue.chaos.history.events import (
    Claimed,
    Declared,
    Ended,
    Enqueued,
    Event,
    JobName,
    Left,
    Live,
    Reclaimed,
    Recorded,
    Started,
    Violation,
)
from pgqueue.chaos.history.index import DEFAULT_RULES, ENDED, History, ObservedAttempt, ObservedJob, Rules
from pgqueue.chaos.kinds import LIMIT, MOST_AT_ONCE, STEPS, is_step, parts_of
from pgqueue.chaos.log import LogLine
from pgqueue.chaos.stage import ProcessEnd

DRAINED = Rules(drained=True)

Rule: TypeAlias = Callable[[History, Rules], Iterator[Violation]]
"""Finds the violations of one promise."""
RULES: tuple[Rule, ...] = (
    one_job.one_record,
    one_job.ended_once,
    one_job.one_holder,
    one_job.nothing_from_the_superseded,
    one_job.no_reclaim_inside_a_lease,
    one_job.every_claim_spends,
    one_job.dead_when_none_is_left,
    many_jobs.one_live_job_per_key,
    many_jobs.limits_hold,
    many_jobs.rates_hold,
    many_jobs.keys_are_ordered,
    one_job.runs_elsewhere_soon,
    one_job.effects_commit_with_the_job,
    many_jobs.in_order,
    many_jobs.ticks_fire_once,
    many_jobs.flows_are_exact,
)
"""A function for each part of a promise, in the order of the promises."""
MOST = 1_000
"""Violations of each kind that are counted."""
Span: TypeAlias = tuple[float, float]
"""From when until when, in seconds of the monotonic clock."""
FORGETS = 1.0
"""Three times the wal_writer_delay of a server, and what a busy machine adds."""
_since = attrgetter("since")
LOST, TWICE = 1, 8
"""The promises whose violations the verdict counts by name."""


def check(events: Iterable[Event], rules: Rules = DEFAULT_RULES, *, most: int = 20) -> list[Violation]:
    """The violations of all promises, in the order of the promises.

    A history of 1,174,643 jobs took less than 75 s, with the read of its log (docs/reliability.md).

    Args:
        events: the history, in any order: it is sorted by time.
        rules: what it is judged by.
        most: at most how many violations of one kind are named.
    """
    history = History(events)
    return [found for rule in RULES for found in islice(rule(history, rules), most)]


class Judgement(NamedTuple):
    """What is to be told of a history.

    Attributes:
        jobs: how many jobs there were.
        violations: of promises.
        lost_by_setting: jobs that were enqueued and are gone, where commits were lost with a primary.
        not_judged: jobs that were touched at such a time, the former among them.
    """

    jobs: int
    violations: Sequence[Violation]
    lost_by_setting: int = 0
    not_judged: int = 0


def judge(
    lines: Iterable[LogLine],
    looked: Iterable[Event],
    names: Mapping[int, str],
    *,
    left: Mapping[int, ProcessEnd],
    forgotten: Sequence[Span] = (),
    crashes: Sequence[Span] = (),
    faults: Sequence[Span] = (),
) -> Judgement:
    """Judge a run.

    Args:
        lines: of the log.
        looked: the last look at the tables; ``names`` is filled when it has been read.
        names: of jobs, by id.
        left: when processes were gone, by process.
        forgotten: the spans of time in which commits may have been lost.
        crashes: the spans of time in which a server may have crashed.
        faults: the spans of time in which an answer may not have reached a worker.
    """
    seen = list(looked)
    jobs = sum(isinstance(event, Recorded | Live) for event in seen)
    read = _read(lines, names)
    seen += read.events
    exempt = jobs_in_spans(seen, forgotten) if forgotten else frozenset[JobName]()
    committed = {one.job for one in seen if isinstance(one, Enqueued) and one.commit == "acknowledged"}
    lost = committed & exempt - set(names.values())
    if exempt:
        seen = [event for event in seen if getattr(event, "job", None) not in exempt]
    seen += _worker_ends(read.workers, left, seen)
    seen = heard_late(seen)
    seen += unanswered_ends(seen, crashes, faults)
    seen.append(Declared(at=0.0, limit=LIMIT, most=MOST_AT_ONCE))
    violations = [*check(seen, DRAINED, most=MOST), *steps_again(read.steps)]
    return Judgement(jobs, violations, len(lost), len(exempt))


class _ReadLog(NamedTuple):
    """The lines of a log. ``workers`` says which process each worker was."""

    events: list[Event]
    steps: list[Started]
    workers: dict[str, int]


def _read(lines: Iterable[LogLine], names: Mapping[int, str]) -> _ReadLog:
    """Sort lines. A job that is known by its id alone gets its name, or is left out if no table has it."""
    read = _ReadLog([], [], {})
    for event, process in lines:
        if isinstance(event, Started) and is_step(event.job):
            read.steps.append(event)
        elif not isinstance(event, Reclaimed):
            read.events.append(event)
        elif isinstance(event.job, int) and event.job in names:
            read.events.append(msgspec.structs.replace(event, job=names[event.job]))
        if isinstance(event, Started):
            read.workers[event.worker] = process
    return read


def _worker_ends(
    workers: Mapping[str, int], left: Mapping[int, ProcessEnd], events: Iterable[Event]
) -> Iterator[Left]:
    """When workers were gone, by the ends of their processes.

    A worker whose lease has passed goes on with a new id. Its former one is told by its jobs, taken over while the process lived:
    that one did not return them when the process was told to stop.
    """
    taken: dict[str, float] = {}
    for event in events:
        if isinstance(event, Reclaimed):
            taken[event.worker] = min(event.at, taken.get(event.worker, event.at))
    for worker, process in workers.items():
        if process in left:
            at, returned = left[process]
            yield Left(at=at, worker=worker, returned=returned and taken.get(worker, at) >= at)


def heard_late(events: Sequence[Event]) -> list[Event]:
    """Put lines back in their order that came late: a worker waits for the answer, and for the processor.

    - A verdict that lets its job run again was recorded when its task had stopped, or later. The job may be claimed before the
      line comes; the fence shows that it was not before the verdict.
    - A claim of which the answer came after a sweeper had taken the job from that very claim was made before that.
    """
    moved: dict[int, Event] = {}
    for life in _lives_of_many_claims(events):
        for turn in life.turns:
            end, claim = turn.closed, turn.claimed
            if isinstance(end, Ended) and turn.stopped is not None and end.state not in ENDED:
                moved[id(end)] = msgspec.structs.replace(end, at=min(end.at, turn.stopped.at))
            taken = [one for one in life.excess if isinstance(one, Reclaimed) and turn.is_named(one)]
            if claim is not None and taken and taken[0].at < claim.at:
                moved[id(claim)] = msgspec.structs.replace(claim, at=nextafter(taken[0].at, 0.0))
    return [moved.get(id(event), event) for event in events]


def _lives_of_many_claims(events: Sequence[Event]) -> Iterable[ObservedJob]:
    claims = Counter(event.job for event in events if isinstance(event, Claimed))
    again = {job for job, count in claims.items() if count > 1}
    return History(event for event in events if getattr(event, "job", None) in again).lives.values()


def unanswered_ends(
    events: Sequence[Event], crashes: Sequence[Span], faults: Sequence[Span]
) -> Iterator[Ended]:
    """The ends of claims that no line tells of, of jobs that were claimed again.

    - A claim is not on disk when the worker is told of it. A server that crashes within :data:`FORGETS` seconds may forget it.
    - A worker that was cut off while it sent a verdict, or returned a claim, is not told whether that was done. Without a fault
      between the two claims there was no such cut. The attempt has stopped by then, or never started.

    An attempt that still ran when its job was claimed again stays what it is, a violation, unless a crash may have forgotten it.
    """
    for life in _lives_of_many_claims(events):
        turns = sorted((turn for turn in life.turns if turn.claimed is not None), key=_since)
        for turn, later in pairwise(turns):
            if turn.closed is None and turn.superseded is None:
                yield from _end(turn, later, life.job, crashes, faults)


def _end(
    turn: ObservedAttempt,
    later: ObservedAttempt,
    job: JobName,
    crashes: Sequence[Span],
    faults: Sequence[Span],
) -> Iterator[Ended]:
    """Yield the end of one claim, if it may have ended before the later one."""
    superseded = Ended(
        at=turn.since, job=job, worker=turn.worker, attempt=turn.attempt, state=None, fence=turn.fence
    )
    if any(begin - FORGETS <= turn.since <= end and begin <= later.since for begin, end in crashes):
        yield superseded
    elif not any(begin <= later.since and turn.since <= end for begin, end in faults):
        return
    elif turn.started is None:
        yield superseded
    elif turn.stopped is not None and turn.stopped.at <= later.since:
        yield msgspec.structs.replace(superseded, at=turn.stopped.at, state="ready", spent=False)


def jobs_in_spans(events: Iterable[Event], spans: Sequence[Span]) -> frozenset[JobName]:
    """The jobs to which anything happened in these spans, and those that come after them."""
    found = {
        job
        for event in events
        if isinstance(job := getattr(event, "job", None), str)
        and any(begin <= event.at <= end for begin, end in spans)
    }
    orders = {name.rpartition("/")[0] for name in found}
    return frozenset(
        job
        for event in events
        if isinstance(job := getattr(event, "job", None), str) and job.rpartition("/")[0] in orders
    )


def steps_again(steps: Iterable[Started]) -> Iterator[Violation]:
    """Steps that ran in an attempt after one that had come to the next step: their results were recorded by then."""
    last: dict[str, int] = {}
    first: dict[str, list[Started]] = {}
    for event in steps:
        job, part = parts_of(event.job)
        if part == STEPS[0]:
            first.setdefault(job, []).append(event)
        else:
            last[job] = min(last.get(job, event.attempt), event.attempt)
    for job, began in first.items():
        for event in began:
            if event.attempt > last.get(job, event.attempt):
                what = f"job {job} ran its step {STEPS[0]} again in attempt {event.attempt}, after its result was recorded"
                yield Violation(1, what, (event,))
