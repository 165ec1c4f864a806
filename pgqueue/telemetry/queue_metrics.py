"""Metrics of the whole queue, read from its database when Prometheus asks: one look for all who ask within some seconds.

What is read is decided by ``queue.insight``. A number that may be an estimate has a companion, ``…_estimated``, which is 1 while
it is one: a label on the number itself would begin a new time series at each change, and break sums and alerts. While the database is
away, ``pgqueue_up`` is 0 and there is nothing else.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, TypeAlias

import psycopg
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from pgqueue.app.pgqueue import PgQueue
from pgqueue.errors import PgQueueError
from pgqueue.store.insight import insight
from pgqueue.store.jobs import control
from pgqueue.store.pipeline import lake
from pgqueue.telemetry.worker_metrics import MOST, OTHER, label
from pgqueue.values.insight.health import Health
from pgqueue.values.insight.series import Figures
from pgqueue.values.limits.status import LimitStatus
from pgqueue.values.queues.served_queues import is_served
from pgqueue.values.queues.standing import STATES, QueueStanding
from pgqueue.values.workers.health import WorkerProblem
from pgqueue.values.workers.worker import WorkerStatus

KEPT_FOR: Final = 5.0
"""Seconds for which an answer is given again: several servers of Prometheus cost the database as much as one."""
DEAD_TASKS: Final = 50
"""Tasks whose dead jobs have a time series of their own."""
WINDOW: Final = 300.0
"""Seconds over which times and failures are told."""

Value: TypeAlias = tuple[tuple[str, ...], float | None]


class QueueMetrics(Collector):
    """What ``queue.insight`` says, as Prometheus reads it."""

    def __init__(self, queue: PgQueue, *, patient: bool = True) -> None:
        """Read nothing yet.

        Args:
            queue: which one.
            patient: while the database is away, say so with ``pgqueue_up 0`` instead of raising.
        """
        self._queue = queue
        self._patient = patient
        self._lock = threading.Lock()
        self._at = -KEPT_FOR
        self._read: list[Metric] = []
        self._error = "not asked yet"

    def describe(self) -> Iterable[Metric]:
        """Nothing: what there is depends on the database."""
        return ()

    def collect(self) -> list[Metric]:
        """What Prometheus reads."""
        with self._lock:
            if time.monotonic() - self._at >= KEPT_FOR:
                self._read = self._look()
                self._at = time.monotonic()
            return self._read

    def problems(self) -> tuple[str, ...]:
        """Why the database cannot be asked; empty: it can."""
        self.collect()
        return (self._error,) if self._error else ()

    def _look(self) -> list[Metric]:
        try:
            found = [
                metric
                for look in (_standing, _dead, _workers, _schedules, _recent, _store, _lake)
                for metric in look(self._queue)
            ]
        except (PgQueueError, psycopg.Error) as error:
            if not self._patient:
                raise
            self._error = f"database: {' '.join(str(error).split())}"
            found = []
        else:
            self._error = ""
        return [_gauge("pgqueue_up", "1: the database answers.", (), [((), float(not self._error))]), *found]


def _standing(queue: PgQueue) -> Iterator[Metric]:
    standings = queue.insight.queues()
    health = queue.insight.health(standings)
    yield from _queues(standings[:MOST], [one for one in queue.workers.list() if one.alive and not one.quiet])
    yield from _problems(health)
    yield from _limits(queue.insight.limits()[:MOST], health)


def _problems(health: Health) -> Iterator[Metric]:
    counts = Counter((one.kind, one.level) for one in health.problems)
    yield _gauge(
        "pgqueue_problems",
        "What `pgqueue status` names, by kind and level.",
        ("kind", "level"),
        counts.items(),
    )


def _queues(standings: Sequence[QueueStanding], claiming: Sequence[WorkerStatus]) -> Iterator[Metric]:
    counts = [((one.queue, state), getattr(one, state)) for one in standings for state in STATES]
    yield _gauge("pgqueue_queue_jobs", "Jobs by state.", ("queue", "state"), counts)
    yield _gauge(
        "pgqueue_queue_jobs_estimated",
        "1: the number of jobs is about right, from a sample of a large table.",
        ("queue", "state"),
        [((one.queue, state), state in one.estimated) for one in standings for state in STATES],
    )
    yield _of_each(
        "pgqueue_queue_oldest_ready_seconds",
        "For how long the oldest ready job has been ready.",
        "queue",
        [(one.queue, one.oldest_ready or 0.0) for one in standings],
    )
    yield _of_each(
        "pgqueue_queue_ended_jobs_per_second",
        "Jobs that ended, over the last minute.",
        "queue",
        [(one.queue, one.rate) for one in standings],
    )
    yield _of_each(
        "pgqueue_queue_paused",
        "1: the queue is paused.",
        "queue",
        [(one.queue, one.paused_at is not None) for one in standings],
    )
    yield _of_each(
        "pgqueue_queue_workers",
        "Live workers that serve the queue and claim jobs.",
        "queue",
        [(one.queue, sum(is_served(worker.queues, one.queue) for worker in claiming)) for one in standings],
    )
    yield _of_each(
        "pgqueue_queue_unknown_jobs",
        "Waiting jobs of tasks that no live worker runs.",
        "queue",
        [(one.queue, one.unknown) for one in standings],
    )


def _dead(queue: PgQueue) -> Iterator[Metric]:
    found = queue.database.run(insight.dead_by_task(limit=DEAD_TASKS))
    counts = [((one.queue, one.task), one.jobs) for one in found.tasks]
    if found.others:
        counts.append(((OTHER, OTHER), found.others))
    yield _gauge("pgqueue_dead_jobs", "Dead jobs by task.", ("queue", "task"), counts)
    yield _gauge(
        "pgqueue_dead_jobs_estimated",
        "1: there are too many dead jobs to count them by task, and only the last ones were counted.",
        (),
        [((), not found.complete)],
    )


def _workers(queue: PgQueue) -> Iterator[Metric]:
    alive = [one for one in queue.workers.list() if one.alive]
    problems = queue.database.run(control.worker_problems())
    of: Sequence[tuple[str, int]] = (
        ("alive", len(alive)),
        ("quiet", sum(one.quiet for one in alive)),
        ("unresponsive", sum(one.blocked is not None for one in problems)),
        ("stalled", sum(one.not_looked is not None and one.blocked is None for one in problems)),
        ("not_listening", sum(one.not_listening is not None for one in problems)),
        ("serving", _count_serving(alive, problems)),
    )
    yield _of_each("pgqueue_workers", "Workers whose lease holds, by what they are.", "state", of)
    yield _gauge(
        "pgqueue_slots", "Jobs that they run at a time.", (), [((), sum(one.slots for one in alive))]
    )
    yield _gauge(
        "pgqueue_worker_problem_seconds",
        "For how long a live worker has a problem.",
        ("worker", "problem"),
        [value for one in problems[:MOST] for value in _problem(one)],
    )


def _count_serving(alive: Sequence[WorkerStatus], problems: Sequence[WorkerProblem]) -> int:
    return max(0, sum(not one.quiet for one in alive) - sum(not one.serves for one in problems))


def _problem(one: WorkerProblem) -> Iterator[Value]:
    worker = f"{one.host}:{one.pid}"
    yield (worker, "unresponsive"), None if one.blocked is None else one.blocked.seconds
    yield (worker, "stalled"), one.not_looked if one.blocked is None else None
    yield (worker, "not_listening"), one.not_listening


def _schedules(queue: PgQueue) -> Iterator[Metric]:
    lags = queue.insight.schedules(limit=MOST)
    yield _of_each(
        "pgqueue_schedule_lag_seconds",
        "For how long the next tick has been due.",
        "schedule",
        [(one.name, one.lag) for one in lags],
    )
    yield _of_each(
        "pgqueue_schedule_set_aside",
        "1: the schedule is set aside after an error.",
        "schedule",
        [(one.name, one.error is not None) for one in lags],
    )


def _limits(limits: Sequence[LimitStatus], health: Health) -> Iterator[Metric]:
    held = {name: one.since for one in health.problems if one.kind == "limit full" for name in one.names}
    yield _of_each(
        "pgqueue_limit_held_back_seconds",
        "For how long a full limit has held back the job that waits longest under it; 0: for less than 10 minutes.",
        "limit",
        [(one.name, (health.at - (held.get(one.name) or health.at)).total_seconds()) for one in limits],
    )
    yield _of_each(
        "pgqueue_limit_running_jobs",
        "Jobs that run under it.",
        "limit",
        [(one.name, one.running) for one in limits],
    )
    yield _of_each(
        "pgqueue_limit_waiting_jobs",
        "Jobs that wait under it.",
        "limit",
        [(one.name, one.waiting) for one in limits],
    )
    yield _of_each(
        "pgqueue_limit_waiting_jobs_estimated",
        "1: the number of jobs that wait is about right, from a sample of a large table.",
        "limit",
        [(one.name, one.estimated) for one in limits],
    )
    yield _of_each(
        "pgqueue_limit_most_jobs",
        "The most that may run of each key.",
        "limit",
        [(one.name, one.numbers.most) for one in limits],
    )


def _recent(queue: PgQueue) -> Iterator[Metric]:
    """Times of the last minutes, as the workers measured them; a worker's own histograms are exact, and last longer."""
    lines = [(one.name or OTHER, one.figures) for one in queue.insight.totals(WINDOW).lines[:MOST]]
    for name, said in (
        ("wait", "From when jobs were due to their claim, over 5 minutes."),
        ("run", "How long attempts ran, over 5 minutes."),
    ):
        spreads = [(task, spread) for task, one in lines if (spread := getattr(one, name)) is not None]
        values = [
            ((task, quantile), value)
            for task, one in spreads
            for quantile, value in (("0.5", one.p50), ("0.95", one.p95), ("0.99", one.p99))
        ]
        yield _quantiles(f"pgqueue_recent_{name}_seconds", said, values)
    yield _of_each(
        "pgqueue_recent_failed_attempts",
        "Attempts that failed within 5 minutes.",
        "task",
        _each(lines, lambda one: one.failed),
    )
    yield _of_each(
        "pgqueue_recent_succeeded_jobs",
        "Jobs that succeeded within 5 minutes.",
        "task",
        _each(lines, lambda one: one.succeeded),
    )
    yield _of_each(
        "pgqueue_recent_dead_jobs",
        "Jobs that died within 5 minutes.",
        "task",
        _each(lines, lambda one: one.dead),
    )


def _each(lines: Sequence[tuple[str, Figures]], read: Callable[[Figures], int]) -> list[tuple[str, float]]:
    return [(name, read(one)) for name, one in lines]


def _store(queue: PgQueue) -> Iterator[Metric]:
    health = queue.insight.store()
    for name, said in (
        ("bytes", "Size on disk, with indices."),
        (
            "dead_rows",
            "Rows that vacuum has not removed yet, as the statistics of PostgreSQL have it: always an estimate.",
        ),
    ):
        yield _of_each(
            f"pgqueue_table_{name}",
            said,
            "table",
            [(one.name, getattr(one, name)) for one in health.tables[:MOST]],
        )
    oldest = max((one.transactions for one in health.horizon), default=0)
    yield _gauge(
        "pgqueue_vacuum_held_back_transactions",
        "Transactions since the oldest snapshot that holds vacuum back.",
        (),
        [((), oldest)],
    )


def _lake(queue: PgQueue) -> Iterator[Metric]:
    last = max(queue.database.run(lake.verified_days()), default=None)
    end = None if last is None else datetime.combine(last, datetime.min.time(), UTC) + timedelta(days=1)
    yield _gauge(
        "pgqueue_lake_verified_until_timestamp_seconds",
        "The end of the last day that is verified in a lake.",
        (),
        [((), None if end is None else end.timestamp())],
    )


def _of_each(name: str, said: str, what: str, values: Iterable[tuple[str, float | None]]) -> Metric:
    return _gauge(name, said, (what,), [((one,), value) for one, value in values])


def _quantiles(name: str, said: str, values: Iterable[Value]) -> Metric:
    """Return a summary without a sum and a count: those would have to grow for ever, and the workers' histograms have them."""
    family = Metric(name, said, "summary")
    for (task, quantile), value in values:
        if value is not None:
            family.add_sample(name, {"task": label(task), "quantile": quantile}, value)
    return family


def _gauge(name: str, said: str, labels: Sequence[str], values: Iterable[Value]) -> Metric:
    family = GaugeMetricFamily(name, said, labels=labels)
    for texts, value in values:
        if value is not None:
            family.add_metric([label(text) for text in texts], value)
    return family
