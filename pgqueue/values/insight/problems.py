"""Whether all is right with the queue, and the problems of queues and workers, with how each is said. Pure rules.

The facts are read by :mod:`pgqueue.store.insight.health`; the other problems are in :mod:`pgqueue.values.insight.problems_of_work`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from shlex import quote
from typing import Final, TypeAlias, get_args

import msgspec

from pgqueue.values.insight.health import (
    LEVELS,
    URGENT,
    Health,
    Level,
    Problem,
    ProblemKind,
    count_text,
    names_text,
)
from pgqueue.values.insight.health_facts import HealthFacts, LostWorker
from pgqueue.values.insight.problems_of_work import (
    failing_tasks,
    firing_alerts,
    late_schedules,
    limits_that_hold,
)
from pgqueue.values.queues.served_queues import is_served
from pgqueue.values.queues.standing import QueueStanding
from pgqueue.values.workers.lease import duration_text
from pgqueue.values.workers.worker import WorkerStatus

NAMED: Final = 5
"""Queues, tasks or workers that one problem names."""
LOST_WITHIN: Final = timedelta(days=1)
"""A worker that was lost is told of for this long …"""
LOST_LATELY: Final = timedelta(hours=1)
"""… and is a warning for this long."""


def judge_health(queues: Sequence[QueueStanding], facts: HealthFacts) -> Health:
    """Say whether all is right.

    Args:
        queues: how the queues stand.
        facts: what else was read.
    """
    problems = sorted((one for rule in RULES for one in rule(queues, facts)), key=_worst_first)
    open_queues = [one for one in queues if one.paused_at is None]
    claiming = [one for one in facts.workers if _claims(one)]
    served = sum(_is_served(one.queue, claiming) for one in open_queues)
    waiting = [one for one in open_queues if one.oldest_ready is not None]
    oldest = max(waiting, key=lambda one: one.oldest_ready or 0.0, default=None)
    well = not any(one.level in URGENT for one in problems)
    health = Health(
        at=facts.now,
        well=well,
        sentence="" if well else problems[0].sentence,
        workers=len(claiming),
        queues=served,
        oldest_ready=None if oldest is None else oldest.oldest_ready,
        oldest_in=None if oldest is None else oldest.queue,
        problems=tuple(problems),
    )
    return msgspec.structs.replace(health, sentence=_all_right(health)) if well else health


def _all_right(health: Health) -> str:
    oldest = health.oldest_ready
    ready = "no job is ready" if oldest is None else f"the oldest ready job waits {duration_text(oldest)}"
    serve = "serves" if health.workers == 1 else "serve"
    return f"All right: {count_text(health.workers, 'worker')} {serve} {count_text(health.queues, 'queue')}, {ready}."


def _worst_first(problem: Problem) -> tuple[int, int, int, tuple[str, ...]]:
    kinds = get_args(ProblemKind)
    return LEVELS.index(problem.level), kinds.index(problem.kind), -(problem.jobs or 0), problem.names


def _claims(worker: WorkerStatus) -> bool:
    return worker.alive and not worker.quiet


def _is_served(queue: str, workers: Iterable[WorkerStatus]) -> bool:
    return any(is_served(one.queues, queue) for one in workers)


def _unserved(queues: Sequence[QueueStanding], facts: HealthFacts) -> Iterator[Problem]:
    """Queues with ready jobs that no live worker serves, as one problem."""
    claiming = [one for one in facts.workers if _claims(one)]
    in_lanes: dict[str, datetime] = {}
    for head in facts.heads:
        in_lanes[head.queue] = min(head.since, in_lanes.get(head.queue, head.since))
    waiting = [
        one
        for one in queues
        if one.paused_at is None and (one.oldest_ready is not None or one.queue in in_lanes)
    ]
    left = [one for one in waiting if not _is_served(one.queue, claiming)]
    if not left:
        if not any(one.alive for one in facts.workers):
            yield Problem(
                kind="no worker",
                level="warning",
                sentence="No worker is alive; no job is ready.",
                about="worker",
                count=0,
                command="pgqueue worker",
            )
        return
    left.sort(key=lambda one: (-_waiting(one, in_lanes), one.queue))
    names = tuple(one.queue for one in left[:NAMED])
    jobs = sum(_waiting(one, in_lanes) for one in left)
    oldest = [facts.now - timedelta(seconds=one.oldest_ready) for one in left if one.oldest_ready is not None]
    since = min([*oldest, *(in_lanes[one.queue] for one in left if one.queue in in_lanes)])
    about = any("ready" in one.estimated for one in left)
    said = (
        f"{'about ' if about else ''}{count_text(jobs, 'job')} wait{'s' if jobs == 1 else ''}, "
        f"the oldest for {facts.ago(since)}"
    )
    quiet = sum(
        one.alive and one.quiet and any(is_served(one.queues, name) for name in names)
        for one in facts.workers
    )
    if quiet:
        serve, are = ("serves", "is") if quiet == 1 else ("serve", "are")
        said += (
            f"; {count_text(quiet, 'worker')} that {serve} {'it' if len(left) == 1 else 'them'} {are} quiet"
        )
    none = not any(one.alive for one in facts.workers)
    start = "No worker is alive" if none else f"No worker serves {names_text(names, len(left))}"
    where = f" in {names_text(names, len(left))}" if none else ""
    chosen = f" --queues {quote(','.join(names))}" if len(left) <= NAMED and not none else ""
    yield Problem(
        kind="no worker" if none else "queue not served",
        level="critical",
        sentence=f"{start}: {said}{where}.",
        about="queue",
        names=names,
        count=len(left),
        since=since,
        jobs=jobs,
        estimated=about,
        command="pgqueue workers resume all" if quiet else f"pgqueue worker{chosen}",
    )


def _waiting(queue: QueueStanding, in_lanes: Mapping[str, datetime]) -> int:
    return queue.ready + (queue.blocked if queue.queue in in_lanes else 0)


def _workers(_: Sequence[QueueStanding], facts: HealthFacts) -> Iterator[Problem]:
    """Live workers that claim no jobs, and those whose lease has passed and that no sweep has seen."""
    supervised = {one.name for one in facts.workers if one.supervised}
    for one in facts.troubles:
        name = f"{one.host}:{one.pid}"
        end = f"pgqueue workers {'restart' if name in supervised else 'stop'} {quote(name)}"
        if one.blocked is not None:
            since = facts.now - timedelta(seconds=one.blocked.seconds)
            said = f"claims nothing: its event loop has been blocked {one.blocked}"
            yield _of_worker(
                "worker unresponsive", "warning" if one.serves else "critical", name, said, since, end
            )
        elif one.not_looked is not None:
            since = facts.now - timedelta(seconds=one.not_looked)
            said = f"has claimed no job, and asked for none, for {duration_text(one.not_looked)}"
            yield _of_worker("worker stalled", "critical", name, said, since, end)
    swept = any(one.alive for one in facts.workers)
    takes_over = "a live worker takes its jobs over at its next sweep"
    for lost in facts.workers:
        if not lost.alive:
            said = f"has lost its lease: {takes_over if swept else 'no worker is alive that could take its jobs over'}"
            yield _of_worker("worker lost", "warning", lost.name, said, None, "pgqueue workers list")


def _of_worker(  # noqa: PLR0917 - the fields of the problem
    kind: ProblemKind, level: Level, name: str, said: str, since: datetime | None, command: str
) -> Problem:
    return Problem(
        kind=kind,
        level=level,
        sentence=f"Worker {name} {said}.",
        about="worker",
        names=(name,),
        since=since,
        command=command,
    )


def _lost(_: Sequence[QueueStanding], facts: HealthFacts) -> Iterator[Problem]:
    """The workers that were lost: those of the last hour, and those before, as one problem each."""
    late = [one for one in facts.lost if facts.now - one.at <= LOST_LATELY]
    former = facts.lost[len(late) :]
    groups: list[tuple[Sequence[LostWorker], Level, str]] = [
        (late, "warning", "hour"),
        (former, "info", "day"),
    ]
    for found, level, within in groups:
        if not found:
            continue
        jobs, first = sum(one.jobs for one in found), found[0]
        ago = f"{facts.ago(first.at)} ago"
        who = f"Worker {first.name} was lost {ago}"
        if len(found) > 1:
            who = f"{len(found):,} workers were lost within the last {within}, the last one, {first.name}, {ago}"
        took = (
            f", with {count_text(jobs, 'job')}, which {'was' if jobs == 1 else 'were'} taken over"
            if jobs
            else "; no job was lost"
        )
        yield Problem(
            kind="worker lost",
            level=level,
            sentence=f"{who}{took}.",
            about="worker",
            names=tuple(one.name for one in found[:NAMED]),
            count=len(found),
            since=first.at,
            jobs=jobs,
            command="pgqueue workers list",
        )


def _unknown(queues: Sequence[QueueStanding], facts: HealthFacts) -> Iterator[Problem]:
    for one in queues:
        if one.unknown and one.paused_at is None:
            tasks = names_text(one.unknown_tasks[:NAMED], len(one.unknown_tasks))
            since = one.unknown_since
            ago = "" if since is None else f", and none has for {facts.ago(since)}"
            wait = "waits" if one.unknown == 1 else "wait"
            yield Problem(
                kind="task unknown",
                level="critical",
                sentence=f"No live worker runs {tasks}{ago}: {count_text(one.unknown, 'job')} of queue {one.queue} {wait}. "
                "Is the module imported by the worker's --app?",
                about="queue",
                names=(one.queue,),
                since=since,
                jobs=one.unknown,
                command=f"pgqueue worker --queues {quote(one.queue)}",
            )


def _stopped(queues: Sequence[QueueStanding], facts: HealthFacts) -> Iterator[Problem]:
    for one in queues:
        if one.paused_at is not None:
            yield _of_queue(
                "queue paused", one, facts, "has been paused", (one.paused_at, one.paused_by, one.paused_why)
            )
        if one.closed_at is not None:
            yield _of_queue(
                "queue closed",
                one,
                facts,
                "has taken no new jobs",
                (one.closed_at, one.closed_by, one.closed_why),
            )


def _of_queue(
    kind: ProblemKind,
    queue: QueueStanding,
    facts: HealthFacts,
    said: str,
    stopped: tuple[datetime, str | None, str | None],
) -> Problem:
    at, by, why = stopped
    jobs = queue.ready if kind == "queue paused" else None
    waiting = (
        f"; {'about ' if 'ready' in queue.estimated else ''}{count_text(jobs, 'job')} wait{'s' if jobs == 1 else ''}"
        if jobs
        else ""
    )
    return Problem(
        kind=kind,
        level="info",
        sentence=f"Queue {queue.queue} {said} for {facts.ago(at)}{f', by {by}' if by else ''}"
        f"{f': {why}' if why else ''}{waiting}.",
        about="queue",
        names=(queue.queue,),
        since=at,
        jobs=jobs,
        estimated=bool(jobs) and "ready" in queue.estimated,
        command=f"pgqueue queues resume {quote(queue.queue)}",
    )


Rule: TypeAlias = Callable[[Sequence[QueueStanding], HealthFacts], Iterator[Problem]]
RULES: Final[tuple[Rule, ...]] = (
    _unserved,
    _workers,
    _lost,
    failing_tasks,
    _unknown,
    limits_that_hold,
    late_schedules,
    firing_alerts,
    _stopped,
)
