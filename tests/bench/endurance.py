"""What a soak proves: that nothing was lost, that the rate was held, that indices stayed bounded. Pure rules."""

from collections.abc import Sequence

import msgspec

HELD = 0.95
"""The share of the requested rate that counts as held."""
WORST_BACKLOG = 5.0
"""Seconds' worth of jobs that may be waiting at the end; more: the worker fell behind."""
BOUNDED = 2.0
"""How many times as large the indices may be in the last third as they ever were in the middle one."""
UNDER_WAY = 0.5
"""Seconds' worth of jobs that may be under way between the clock and the count."""


class SoakSample(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen at one look.

    Attributes:
        seconds: since the first job was enqueued.
        enqueued: how many so far.
        started: how many the worker has started so far.
        p99_wait_ms: of the jobs that started since the look before, how long 99 of 100 had waited at most.
        worker_mb: the worker's memory.
        jobs_bytes: the tables' size, the history's left out.
        index_bytes: the size of each of their indices.
        history_bytes: the history's size, with its indices.
        dead_tuples: that vacuum has not cleaned away yet, by the server's estimate.
        enqueued_per_second: since the look before.
        started_per_second: since the look before.
    """

    seconds: float
    enqueued: int
    started: int
    p99_wait_ms: float | None
    worker_mb: float
    jobs_bytes: int
    index_bytes: dict[str, int]
    history_bytes: int
    dead_tuples: int
    enqueued_per_second: float | None = None
    started_per_second: float | None = None

    @property
    def backlog(self) -> int:
        """How many wait; the two were not counted at quite the same moment."""
        return max(0, self.enqueued - self.started)

    @property
    def all_index_bytes(self) -> int:
        """The size of all indices together."""
        return sum(self.index_bytes.values())

    def since(self, before: "SoakSample") -> "SoakSample":
        """This one, with its rates."""
        elapsed = max(self.seconds - before.seconds, 1e-6)
        return msgspec.structs.replace(
            self,
            enqueued_per_second=(self.enqueued - before.enqueued) / elapsed,
            started_per_second=(self.started - before.started) / elapsed,
        )


class SoakEnds(msgspec.Struct, frozen=True):
    """What became of all jobs.

    Attributes:
        enqueued: how many there were.
        seconds: how long it took to enqueue them.
        backlog: how many waited when the last was enqueued.
        succeeded: in the history.
        dead: dead or cancelled, which no job should be.
        left: not ended.
    """

    enqueued: int
    seconds: float
    backlog: int
    succeeded: int
    dead: int
    left: int


class SoakVerdict(msgspec.Struct, frozen=True):
    """What was proved.

    Attributes:
        lost: jobs without any record; below zero: with more than one.
        index_growth: how many times as large as in the middle third the indices grew in the last one; None: too few
            looks to tell.
        complaints: what went wrong, in words; empty: all is well.
        notes: what else is to be said.
    """

    lost: int
    index_growth: float | None
    complaints: list[str]
    notes: list[str]


def judge(samples: Sequence[SoakSample], ends: SoakEnds, *, rate: int) -> SoakVerdict:
    """Judge a soak.

    Args:
        samples: in order.
        ends: what became of all jobs.
        rate: what was asked for, in jobs a second.
    """
    lost = ends.enqueued - ends.succeeded - ends.dead - ends.left
    growth = index_growth(samples)
    return SoakVerdict(lost, growth, [*_complaints(ends, lost, rate)], [_note(growth)])


def index_growth(samples: Sequence[SoakSample]) -> float | None:
    """The largest the indices were in the last third, as a multiple of the largest they were in the middle one."""
    third = len(samples) // 3
    if not third:
        return None
    middle = max(sample.all_index_bytes for sample in samples[third:-third])
    last = max(sample.all_index_bytes for sample in samples[-third:])
    return last / middle if middle else None


def _complaints(ends: SoakEnds, lost: int, rate: int) -> list[str]:
    found = []
    if lost:
        found.append(f"{lost:,} jobs are lost" if lost > 0 else f"{-lost:,} jobs ended more than once")
    if ends.dead:
        found.append(f"{ends.dead:,} jobs are dead or cancelled, though none failed")
    if ends.enqueued < HELD * rate * (ends.seconds - UNDER_WAY):
        achieved = ends.enqueued / ends.seconds
        found.append(f"only {achieved:,.0f} jobs/s could be enqueued, {rate:,} were asked for")
    if ends.backlog > WORST_BACKLOG * rate:
        found.append(f"{ends.backlog:,} jobs were waiting at the end, more than {WORST_BACKLOG:.0f} s' worth")
    if ends.left:
        found.append(f"{ends.left:,} jobs were not run in the end")
    return found


def _note(growth: float | None) -> str:
    if growth is None:
        return "too few looks to tell whether the indices stay bounded"
    held = "stayed bounded" if growth <= BOUNDED else "did NOT stay bounded"
    return f"the indices {held}: in the last third {growth:.2f} times their largest size in the middle one"
