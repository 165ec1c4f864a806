"""Compares two roll-ups: counts exactly, percentiles within a sketch's error. Pure rules.

A sketch's answer to "the 90th percentile" lies at a rank near 0.9, not at 0.9. So it is compared with two values: those
at the lowest and the highest rank that its error allows. With a KLL sketch of k = 200, the error is at most 1.33 % of the
ranks in 99 of 100 answers (see :mod:`pgqueue.spark.rollup.in_duckdb`). Of thousands of answers a few are off by more; none
should be off by 3.5 %, which is more than six standard deviations.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, TypeAlias

import msgspec

PERCENTILES = (0.5, 0.9, 0.99)
BOUND, OUTERMOST = 0.0133, 0.035
MAY_MISS = 0.01
RANKS = tuple(
    min(1.0, max(0.0, percentile + off))
    for percentile in PERCENTILES
    for off in (-OUTERMOST, -BOUND, 0.0, BOUND, OUTERMOST)
)
"""The ranks to request from the exact roll-up: five around each percentile."""
MIDDLES = slice(2, None, 5)
"""The places of the percentiles themselves among these ranks."""
MOST_EXAMPLES = 5

Key: TypeAlias = tuple[str, str, datetime]


class Exact(msgspec.Struct, frozen=True):
    """The ended jobs of a queue, task and hour.

    Attributes:
        queue: the queue's name.
        task: the task's name.
        hour: the hour in which they ended.
        counts: jobs, succeeded, cancelled, dead, attempts.
        wait: seconds of waiting at each requested rank; None: no job started.
        run: seconds of running at each requested rank; None: no job started.
    """

    queue: str
    task: str
    hour: datetime
    counts: tuple[int, ...]
    wait: list[float] | None
    run: list[float] | None


class SketchedHour(NamedTuple):
    """A row of the pipeline's hours, without its key.

    Attributes:
        counts: jobs, succeeded, cancelled, dead, attempts.
        wait: seconds of waiting at the three percentiles; None: no job started.
        run: seconds of running at the three percentiles; None: no job started.
    """

    counts: tuple[int, ...]
    wait: Sequence[float] | None
    run: Sequence[float] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """How far two roll-ups agree.

    Attributes:
        groups: the number of groups of queue, task and hour.
        percentiles: how many were compared.
        miscounted: groups that one roll-up lacks, or whose counts differ.
        missed: percentiles beyond the sketch's bound; one in a hundred is allowed.
        lost: percentiles that are off by more than a sketch can be.
        examples: descriptions of some differences.
    """

    groups: int
    percentiles: int
    miscounted: int
    missed: int
    lost: int
    examples: Sequence[str]

    @property
    def holds(self) -> bool:
        """Whether the roll-ups agree."""
        return not self.miscounted and not self.lost and self.missed <= MAY_MISS * max(self.percentiles, 1)


def compare(exact: Iterable[Exact], sketched: Mapping[Key, SketchedHour]) -> Agreement:
    """Compare the pipeline's roll-up with an exact one, made with :data:`RANKS`."""
    examples: list[str] = []
    seen: set[Key] = set()
    miscounted = missed = lost = percentiles = 0
    for one in exact:
        key = (one.queue, one.task, one.hour)
        seen.add(key)
        other = sketched.get(key)
        if other is None or other.counts != one.counts:
            miscounted += 1
            examples.append(f"{_name(key)}: {one.counts} here, {other and other.counts} there")
            continue
        for what, values, answers in (("wait", one.wait, other.wait), ("run", one.run, other.run)):
            offs = list(_offs(values, answers))
            percentiles += len(offs)
            missed += sum(off > BOUND for off in offs)
            lost += sum(off > OUTERMOST for off in offs)
            if max(offs, default=0) > OUTERMOST:
                examples.append(f"{_name(key)}: {what} {answers}, where the ranks around are {values}")
    extra = sketched.keys() - seen
    examples += [f"{_name(key)}: not here, {sketched[key].counts} there" for key in sorted(extra)]
    return Agreement(
        groups=len(seen | extra),
        percentiles=percentiles,
        miscounted=miscounted + len(extra),
        missed=missed,
        lost=lost,
        examples=examples[:MOST_EXAMPLES],
    )


def _offs(values: Sequence[float] | None, answers: Sequence[float] | None) -> Iterable[float]:
    """The rank error of each answer: 0 within the bound, OUTERMOST beyond it, 1 beyond OUTERMOST."""
    if values is None or answers is None:
        if values is not answers:
            yield 1.0
        return
    for place, answer in enumerate(answers):
        far_low, low, _, high, far_high = values[place * 5 : place * 5 + 5]
        if low <= answer <= high:
            yield 0.0
        else:
            yield OUTERMOST if far_low <= answer <= far_high else 1.0


def _name(key: Key) -> str:
    return f"{key[0]}, {key[1]}, {key[2]:%Y-%m-%d %H:00}"
