"""What ``pgqueue top`` shows at one moment: what is read, and the rows of its tables."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from pgqueue.app.pgqueue import PgQueue
from pgqueue.cli.table import Column
from pgqueue.cli.times import short_duration
from pgqueue.values.insight.health import Health, Level, count_text
from pgqueue.values.insight.now import Running
from pgqueue.values.insight.series import Figures, Spread, Total
from pgqueue.values.payloads.storable import spelled_out
from pgqueue.values.queues.standing import STATES, QueueStanding
from pgqueue.values.shards import ReplicaStatus
from pgqueue.values.workers.worker import SHOWN, WorkerStatus

QUEUES = (
    Column("queue", least=16),
    Column("state", 1, state=True, least=0),
    Column("ready", 0),
    Column("running", 0),
    Column("scheduled", 6),
    Column("blocked", 5),
    Column("dead", 2, bad=True),
    Column("oldest", 3),
    Column("ended/s", 4),
)
TASKS = (
    Column("task", least=16),
    Column("started/min", 4),
    Column("failed", 0, bad=True),
    Column("dead", 1, bad=True),
    Column("run p50", 5),
    Column("run p95", 2),
    Column("wait p95", 3),
)
WORKERS = (
    Column("worker", least=16),
    Column("id", 5, least=0),
    Column("state", 0, state=True, least=0),
    Column("slots", 1),
    Column("claims", 2),
    Column("queues", 3),
)
JOBS = (
    Column("job", least=0),
    Column("task", 1, least=16),
    Column("queue", 4, least=8),
    Column("worker", 3, state=True),
    Column("attempt", 5, least=0),
    Column("for", 0, state=True, least=0),
)
COLOURS: Mapping[Level, str] = {"critical": "bold red", "warning": "yellow", "info": "green"}
"""Of the verdict, by the level of the worst problem; an operator's decision is none."""
MOST = 200
"""Running jobs that are read."""
Row = tuple[str, ...]


class Snapshot(msgspec.Struct, frozen=True):
    """What there was at one moment.

    Attributes:
        at: when it had been read, on this machine's clock.
        health: whether all is right, and the problems, the worst first.
        queues: how every queue stands.
        workers: at their last heartbeats.
        running: the jobs that were claimed first at the front.
        tasks: what happened to the jobs of each task in the last ``minutes``.
        minutes: over how many minutes.
        replica: how far the replica is behind that was read; None: the primary was.
    """

    at: datetime
    health: Health
    queues: Sequence[QueueStanding]
    workers: Sequence[WorkerStatus]
    running: Running
    tasks: Sequence[Total]
    minutes: float
    replica: ReplicaStatus | None = None


def read(queue: PgQueue, window: timedelta) -> Snapshot:
    """Read it.

    Args:
        queue: whose.
        window: over which tasks are summed up.
    """
    queues = queue.insight.queues()
    return Snapshot(
        health=queue.redaction.shown(queue.insight.health(queues)),
        queues=queue.redaction.shown(queues),
        workers=queue.redaction.shown(queue.workers.list()),
        running=queue.insight.running(limit=MOST),
        tasks=queue.insight.totals(window).lines,
        minutes=window / timedelta(minutes=1),
        at=datetime.now(UTC),
        replica=queue.insight.replica(),
    )


def verdict(found: Snapshot) -> tuple[str, str]:
    """Whether all is right, in a sentence, with its style; what solves the one problem, or how many others there are."""
    health = found.health
    if health.well or not health.problems:
        return spelled_out(health.sentence), COLOURS["info"]
    worst, others = health.problems[0], len(health.urgent) - 1
    if others:
        more = f" And {count_text(others, 'other problem')}: pgqueue status"
    else:
        more = "" if worst.command is None else f" ({worst.command})"
    return spelled_out(f"{health.sentence}{more}"), COLOURS[worst.level]


def summary(found: Snapshot) -> str:
    """The totals, in one line."""
    queues = found.queues
    counts = ", ".join(
        f"{'~' * any(state in one.estimated for one in queues)}{sum(getattr(one, state) for one in queues):,} {state}"
        for state in STATES
    )
    alive = [one for one in found.workers if one.alive]
    slots = sum(one.slots for one in alive)
    rate = sum(one.rate for one in queues)
    workers = "1 worker" if len(alive) == 1 else f"{len(alive):,} workers"
    replica = "" if found.replica is None else f"; {spelled_out(str(found.replica))}"
    return f"{counts}; {rate:,.1f} ended/s; {workers}, {slots:,} slots{replica}"


def queue_rows(found: Snapshot) -> dict[str, Row]:
    """A row for each queue, those whose ready job has waited longest first."""
    ordered = sorted(found.queues, key=lambda one: (-(one.oldest_ready or 0.0), one.queue))
    return {one.queue: _queue_row(one) for one in ordered}


def task_rows(found: Snapshot) -> dict[str, Row]:
    """A row for each task: those of which most attempts failed first, then the slowest."""
    ordered = sorted(found.tasks, key=_trouble)
    return {one.name or "": _task_row(one, found.minutes) for one in ordered}


def worker_rows(found: Snapshot) -> dict[str, Row]:
    """A row for each worker, those first whose state is another than ``alive``."""
    held = Counter(str(job.worker_id) for job in found.running.jobs)
    ordered = sorted(found.workers, key=lambda one: one.state == "alive")
    return {str(one.id): _worker_row(one, held[str(one.id)]) for one in ordered}


def job_rows(found: Snapshot) -> dict[str, Row]:
    """A row for each running job, those that were claimed first at the front."""
    return {
        str(one.job_id): (
            str(one.job_id),
            spelled_out(one.task),
            spelled_out(one.queue),
            spelled_out(one.worker or str(one.worker_id)[:SHOWN]) + (" (lost)" if one.lost else ""),
            f"{one.attempt}/{one.max_attempts}",
            short_duration(one.seconds) + (" (to be cancelled)" if one.cancel_requested else ""),
        )
        for one in found.running.jobs
    }


def _queue_row(one: QueueStanding) -> Row:
    state = " ".join(
        word for word, since in (("paused", one.paused_at), ("closed", one.closed_at)) if since is not None
    )
    return (
        spelled_out(one.queue),
        state or "open",
        *(f"{'~' * (state in one.estimated)}{getattr(one, state):,}" for state in STATES),
        short_duration(one.oldest_ready),
        f"{one.rate:,.1f}",
    )


def _task_row(one: Total, minutes: float) -> Row:
    figures = one.figures
    ended = figures.succeeded + figures.failed
    failed = f"{figures.failed:,} ({figures.failed / ended:.0%})" if figures.failed and ended else "0"
    return (
        "(other tasks)" if one.name is None else spelled_out(one.name),
        f"{figures.started / minutes:,.1f}",
        failed,
        f"{figures.dead:,}",
        short_duration(figures.run.p50 if figures.run else None),
        short_duration(_p95(figures.run)),
        short_duration(_p95(figures.wait)),
    )


def _trouble(one: Total) -> tuple[float, float]:
    figures: Figures = one.figures
    ended = figures.succeeded + figures.failed
    return -(figures.failed / ended if ended else 0.0), -(_p95(figures.run) or 0.0)


def _p95(spread: Spread | None) -> float | None:
    return None if spread is None else spread.p95


def _worker_row(one: WorkerStatus, held: int) -> Row:
    busy = min(held, one.slots)  # a claim waits only while no slot is free
    served = "all" if one.queues is None else ", ".join(one.queues)
    return (
        spelled_out(one.name),
        str(one.id)[:SHOWN],
        one.state,
        str(one.slots),
        str(busy) if held == busy else f"{busy} +{held - busy} claimed",
        spelled_out(served),
    )
