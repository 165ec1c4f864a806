"""Metrics of one process: what its observers are told, and what its worker knows of itself; with their labels and histograms.

An observer is told of batches, and a batch is most often of one task: so it is counted as a whole, not job by job. The
values are turned into what Prometheus reads when it asks. Wait times compare this machine's clock with the database's.
"""

import time
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Generic, TypeAlias, TypeVar

from pgqueue.app.hooks.observer import Observer, claimed_parts, ended_parts
from pgqueue.values.hints import extra_for
from pgqueue.values.jobs.job import Claim, EnqueueAnswer, NewJob, Outcome
from pgqueue.values.jobs.verdict import Died, Verdict
from pgqueue.values.workers.health import Vitals, not_live, not_ready

with extra_for("metrics", "pgqueue.telemetry.worker_metrics", "prometheus_client"):
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
    from prometheus_client.metrics_core import Metric
    from prometheus_client.registry import Collector

V = TypeVar("V")

MOST: Final = 200
"""Names of tasks and queues are data, and each label is a time series: all after these are counted together as OTHER."""
LONGEST: Final = 200
OTHER: Final = "(other)"
SECONDS: Final = (
    0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1_800.0, 3_600.0,
)  # fmt: skip
JOBS: Final = (1.0, 2.0, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1_000.0)
Labels: TypeAlias = tuple[str, ...]
NAMES = ("queue", "task")
ADDED = (Outcome.ADDED, Outcome.REPLACED)


class JobMetrics(Observer, Collector):
    """Counts what happens to jobs in this process; ``queue.observe(metrics)``, and a registry of Prometheus has it, too."""

    def __init__(self) -> None:
        self._enqueued: BoundedLabels[int] = BoundedLabels(2)
        self._waits: BoundedLabels[Histogram] = BoundedLabels(2)
        self._runs: BoundedLabels[Histogram] = BoundedLabels(2)
        self._outcomes: BoundedLabels[Counter[str]] = BoundedLabels(2)
        self._claimed, self._completed = Histogram(JOBS), Histogram(JOBS)
        self._lost = self._reclaimed = 0

    def enqueued(self, jobs: Sequence[NewJob], results: Sequence[EnqueueAnswer]) -> None:
        """Count those that were added."""
        added = (
            (job.queue, job.task) for job, one in zip(jobs, results, strict=False) if one.outcome in ADDED
        )
        for names, count in Counter(added).items():
            key = self._enqueued.key(names)
            self._enqueued[key] = self._enqueued.get(key, 0) + count

    def claimed(self, claims: Sequence[Claim]) -> None:
        """Count how long they waited, from when they could run."""
        self._claimed.add([float(len(claims))])
        now = time.time()
        for queue, task, _, due in claimed_parts(claims):
            _histogram(self._waits, (queue, task)).add_waits(due, now)

    def ended(self, verdicts: Sequence[Verdict]) -> None:
        """Count how they ended, and how long they ran."""
        self._completed.add([float(len(verdicts))])
        for queue, task, some, succeeded in ended_parts(verdicts):
            outcomes = self._outcomes.setdefault(self._outcomes.key((queue, task)), Counter())
            runs = _histogram(self._runs, (queue, task))
            runs.add(succeeded)
            if len(succeeded) == len(some):  # most often
                outcomes["succeeded"] += len(some)
            else:
                outcomes.update(one.label for one in some)
                died = (one.seconds for one in some if isinstance(one, Died))
                runs.add(sorted(one for one in died if one is not None))

    def lost(self, claims: Sequence[Claim]) -> None:
        """Count claims that are no longer this process's."""
        self._lost += len(claims)

    def reclaimed(self, verdicts: Sequence[Verdict]) -> None:
        """Count jobs that this process took over from lost workers."""
        self._reclaimed += len(verdicts)

    def collect(self) -> Iterator[Metric]:
        """What Prometheus reads."""
        enqueued = CounterMetricFamily("pgqueue_jobs_enqueued", "Jobs that this process added.", labels=NAMES)
        for names, count in list(self._enqueued.items()):
            enqueued.add_metric(_labels(names), count)
        yield enqueued
        ended = CounterMetricFamily(
            "pgqueue_attempts",
            "Attempts that this process recorded, by how they ended.",
            labels=(*NAMES, "outcome"),
        )
        for names, outcomes in list(self._outcomes.items()):
            for outcome, count in list(outcomes.items()):
                ended.add_metric((*_labels(names), outcome), count)
        yield ended
        yield _family(
            "pgqueue_job_wait_seconds", "From when a job could run to its claim.", NAMES, self._waits
        )
        yield _family(
            "pgqueue_job_run_seconds", "How long attempts ran that ended their job.", NAMES, self._runs
        )
        yield _family(
            "pgqueue_claim_batch_jobs", "Jobs of each claim that found any.", (), {(): self._claimed}
        )
        yield _family(
            "pgqueue_completion_batch_jobs", "Attempts recorded at once.", (), {(): self._completed}
        )
        yield CounterMetricFamily(
            "pgqueue_jobs_lost",
            "Claims lost to other workers, with their lease or to another attempt.",
            self._lost,
        )
        yield CounterMetricFamily(
            "pgqueue_jobs_reclaimed", "Jobs taken over from lost workers.", self._reclaimed
        )


def of_vitals(now: Vitals) -> Iterator[Metric]:
    """What a worker knows of itself, as Prometheus reads it."""
    counted = (
        ("claims", "Statements that asked for jobs.", now.claims),
        ("empty_claims", "Statements that asked for jobs and found none.", now.empty_claims),
        ("lost_leases", "Leases that were lost.", now.lost_leases),
        ("blocked_loops", "How many times the event loop was blocked.", now.blocks),
    )
    for name, said, count in counted:
        yield CounterMetricFamily(f"pgqueue_worker_{name}", said, count)
    measured = (
        ("live", "1: the worker lives; 0: it should be started again.", not not_live(now)),
        ("ready", "1: the worker serves.", not not_ready(now)),
        (
            "stalled",
            "1: the worker has not looked for jobs in time.",
            not now.stopping and now.looked > now.look_within,
        ),
        ("listening", "1: notifications arrive, or are not expected.", now.not_listening is None),
        ("last_look_seconds", "Seconds since it claimed, found nothing or had no free slot.", now.looked),
        ("lease_renewed_seconds", "Seconds since the database renewed its lease.", now.renewed or 0.0),
        (
            "loop_blocked_seconds",
            "For how long its event loop is blocked.",
            now.blocked.seconds if now.blocked else 0.0,
        ),
        ("slots", "Jobs that it runs at a time.", now.slots),
        ("slots_taken", "Slots that are not free.", now.slots_taken),
        ("backlog_attempts", "Ended attempts that the database does not have yet.", now.backlog),
        (
            "functions_not_returned",
            "Functions that go on after their timeout, or after their job was lost.",
            now.not_returned,
        ),
    )
    for name, said, value in measured:
        yield GaugeMetricFamily(f"pgqueue_worker_{name}", said, float(value))


def label(text: str) -> str:
    """A name as a label: text that UTF-8 can hold, of at most 200 characters. Quotes and line ends are escaped by the library."""
    return text[:LONGEST].replace("\0", "\\0").encode("utf-8", "backslashreplace").decode()


class BoundedLabels(dict[tuple[str, ...], V], Generic[V]):
    """Values by labels: at most ``most`` of them, and one for all others."""

    def __init__(self, width: int, *, most: int = MOST) -> None:
        """``width``: how many labels a value has. ``most``: after this many values all others are counted as one."""
        super().__init__()
        self._other = (OTHER,) * width
        self._most = most

    def key(self, labels: tuple[str, ...]) -> tuple[str, ...]:
        """Under which labels a value of these is held."""
        return labels if labels in self or len(self) < self._most else self._other


class Histogram:
    """How many numbers are at most each bound."""

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        """``bounds`` are in rising order."""
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def add(self, numbers: Sequence[float]) -> None:
        """Count numbers, which are in ascending order."""
        self._sum += sum(numbers)
        counts, bounds, below, many = self._counts, self._bounds, 0, len(numbers)
        place = 0
        while below < many:  # only the bounds between which there is a number
            place = _place(bounds, numbers[below], place)
            upto = bisect_right(numbers, bounds[place], below) if place < len(bounds) else many
            counts[place] += upto - below
            below = upto

    def add_waits(self, since: Sequence[float], now: float) -> None:
        """Count the seconds from instants to the present; an instant in the future counts as 0.

        Args:
            since: in seconds, in ascending order.
            now: the present, by the same clock.
        """
        if since[-1] > now:
            since = [min(one, now) for one in since]
        self._sum += len(since) * now - sum(since)  # of 500 instants of this century exact to 0.1 ms
        end, place = len(since), 0
        while end:
            place = _place(self._bounds, now - since[end - 1], place)
            start = 0
            if place < len(self._bounds):
                start = min(bisect_left(since, now - self._bounds[place], 0, end), end - 1)
            self._counts[place] += end - start
            end = start

    def buckets(self) -> tuple[list[tuple[str, float]], float]:
        """Each bound as text, with how many numbers are at most that; and the sum of all."""
        found, total = [], 0
        counts, summed = list(self._counts), self._sum
        for bound, count in zip((*map(str, self._bounds), "+Inf"), counts, strict=True):
            total += count
            found.append((bound, float(total)))
        return found, summed


def _histogram(held: BoundedLabels[Histogram], names: Labels) -> Histogram:
    return held.setdefault(held.key(names), Histogram(SECONDS))


def _family(
    name: str, said: str, names: Iterable[str], held: dict[Labels, Histogram]
) -> HistogramMetricFamily:
    family = HistogramMetricFamily(name, said, labels=tuple(names))
    for labels, histogram in list(held.items()):
        buckets, summed = histogram.buckets()
        family.add_metric(_labels(labels), buckets, summed)
    return family


def _labels(names: Labels) -> Labels:
    return tuple(map(label, names))


def _place(bounds: Sequence[float], number: float, first: int) -> int:
    """Return the place of the first bound that a number does not exceed."""
    place = bisect_right(bounds, number, first)
    return place - 1 if place > first and bounds[place - 1] == number else place
