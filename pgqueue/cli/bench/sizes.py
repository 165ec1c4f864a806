"""How much is measured."""

from dataclasses import dataclass


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
