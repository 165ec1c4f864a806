"""Everything that a measurement needs: the schema, the processes, the sizes."""

from dataclasses import dataclass

from pgqueue.app.pgqueue import PgQueue
from pgqueue.bench import floor, peer
from pgqueue.bench.bench_schema import SCHEMA, BenchSchema
from pgqueue.bench.contract import ContenderSettings
from pgqueue.bench.floor import TABLES
from pgqueue.bench.processes import FLOOR, OURS, BenchProcesses, Contender
from pgqueue.errors import PgQueueError
from pgqueue.store.schema import schema

STUCK = 30.0
"""Seconds without a job after which a worker that has not run all of them ends: a busy machine pauses for some."""
UNENDED = {OURS: f"{SCHEMA}.all_jobs where ended_at is null", FLOOR: f"{SCHEMA}.floor_jobs"}

FILL = {OURS: peer.fill, FLOOR: floor.fill}


class BenchFailed(PgQueueError):
    """A measurement that says nothing: jobs are missing, or did not come."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How much is measured of each load.

    Attributes:
        jobs: to drain, or to enqueue at once.
        singles: enqueued one by one.
        pickups: jobs that an idle worker picks up.
        churn: jobs that run under a held snapshot, a round of ``jobs`` after another.
        behind: ready jobs that wait behind those measured.
        future: jobs of the highest priority that are not due.
        other: jobs in a queue that is not served.
        names: queues with one job each.
        crowd: enqueued by all concurrent enqueuers together.
        in_flight: jobs that run at a time where memory is measured.
        idle_seconds: for which an idle worker is watched.
        concurrency: of workers.
    """

    jobs: int = 20_000
    singles: int = 2_000
    pickups: int = 200
    churn: int = 120_000
    behind: int = 1_000_000
    future: int = 1_000_000
    other: int = 1_000_000
    names: int = 100_000
    crowd: int = 8_000
    in_flight: int = 1_000
    idle_seconds: float = 30.0
    concurrency: int = 20

    @property
    def drains(self) -> int:
        """How many rounds of jobs run under a held snapshot; two at least, a first and a last."""
        return max(2, self.churn // self.jobs)


FULL = Sizes()
SMALL = Sizes(
    jobs=2_000,
    singles=200,
    pickups=20,
    churn=4_000,
    behind=5_000,
    future=5_000,
    other=5_000,
    names=2_000,
    crowd=400,
    in_flight=1_000,
    idle_seconds=2.0,
)


@dataclass(frozen=True, slots=True)
class BenchStage:
    """What measurements share.

    Attributes:
        place: the schema.
        crew: the processes.
        concurrency: of workers.
        floor: whether the bare client is measured, too.
    """

    place: BenchSchema
    crew: BenchProcesses
    concurrency: int = 20
    floor: bool = True

    def begin(self, contender: Contender) -> None:
        """Make everything again, for a contender."""
        self.crew.clear()
        self.place.fresh()
        if contender is OURS:
            schema.migrate(self.place.dsn, schema=SCHEMA)
        else:
            self.place.connection.execute(TABLES.encode())

    def fill(self, contender: Contender, count: int, **settings: object) -> None:
        """Enqueue jobs that wait for a worker, in this process: what is not measured needs no program of its own.

        Args:
            contender: for whom.
            count: how many.
            settings: as :mod:`pgqueue.bench.contract` names them.
        """
        given = {name: str(value) for name, value in settings.items()}
        FILL[contender](ContenderSettings.read({"DSN": self.place.dsn} | given), count)

    def queue(self) -> PgQueue:
        """The queue, for enqueuers in this process."""
        return PgQueue(self.place.dsn, schema=SCHEMA)

    def work(self, contender: Contender, jobs: int, *, processes: int = 1, **settings: object) -> float:
        """Have workers run all jobs there are; how many in a second, from the first start to the last.

        Raises:
            BenchFailed: that is not how many they ran.
        """
        # Two do not know of each other's jobs, so each goes on until there are no more.
        end = {"STOP_AFTER": jobs, "IDLE": STUCK} if processes == 1 else {"IDLE": 0.5, "FIRST": 2}
        workers = [
            self.crew.start(contender, "worker", **({"CONC": self.concurrency} | end | settings))
            for _ in range(processes)
        ]
        reports = [report for report in [worker.result() for worker in workers] if report["count"]]
        ran = sum(report["count"] for report in reports)
        left = self.place.one(f"select count(*) from {UNENDED[contender]}")
        if ran != jobs or left:
            raise BenchFailed(f"{contender.name} ran {ran:,} of {jobs:,} jobs, and {left:,} have not ended")
        return rate(jobs, max(one["last"] for one in reports) - min(one["first"] for one in reports))


def rate(jobs: int, seconds: float) -> float:
    """Jobs a second."""
    return jobs / max(seconds, 1e-6)
