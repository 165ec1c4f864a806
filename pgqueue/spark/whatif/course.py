"""A course: when jobs were ready, when they started and for how long they ran; and what it comes to over time."""

from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise

import msgspec
import numpy as np
from numpy.typing import NDArray

from pgqueue.spark.whatif.jobs import SECOND, Numbers


class WaitTimes(msgspec.Struct, frozen=True, kw_only=True):
    """How long jobs waited, in seconds.

    Attributes:
        p50: half of the jobs waited no longer than this.
        p95: 95% of them.
        p99: 99% of them.
        max: all of them.
        late: the share of jobs that waited longer than is allowed.
    """

    p50: float
    p95: float
    p99: float
    max: float
    late: float


@dataclass(frozen=True, slots=True)
class Course:
    """When jobs were ready, when they started, and for how long they ran, in microseconds."""

    ready: Numbers
    started: Numbers
    lasts: Numbers

    @property
    def waits(self) -> Numbers:
        """How long each waited."""
        return self.started - self.ready

    @property
    def ended(self) -> Numbers:
        """When each ended."""
        return self.started + self.lasts


def waits_of(values: Numbers, late: timedelta) -> WaitTimes:
    """Waits, of one job at least, summed up; a longer one than ``late`` is late."""
    p50, p95, p99, longest = np.quantile(values, (0.5, 0.95, 0.99, 1), method="inverted_cdf") / SECOND
    share = float((values > late // timedelta(microseconds=1)).mean())
    return WaitTimes(p50=float(p50), p95=float(p95), p99=float(p99), max=float(longest), late=share)


def levels(begun: Numbers, over: Numbers) -> tuple[Numbers, Numbers]:
    """Return the instants at which something begins or is over, and how many there are from then on.

    At one instant, ends come first.
    """
    instants = np.concatenate((over, begun))
    steps = np.repeat(np.array([-1, 1]), begun.size)
    order = np.argsort(instants, kind="stable")
    return instants[order], np.cumsum(steps[order])


def most(instants: Numbers, levels: Numbers, edges: Numbers) -> Numbers:
    """The highest level in each stretch: that with which it begins counts, too."""
    places = np.searchsorted(instants, edges)
    before = np.concatenate(([0], levels))[places[:-1]]
    inside = np.maximum.reduceat(np.append(levels, 0), np.minimum(places[:-1], levels.size))
    found: Numbers = np.maximum(before, np.where(places[1:] > places[:-1], inside, 0))
    return found


def busy(course: Course, edges: Numbers) -> NDArray[np.float64]:
    """How long all jobs had run in sum, at each of these instants."""

    def since(instants: Numbers) -> NDArray[np.float64]:
        """Return, for each edge, the sum of the times that have passed since these instants."""
        instants = np.sort(instants) - edges[0]
        sums = np.concatenate(([0.0], np.cumsum(instants, dtype=np.float64)))
        count = np.searchsorted(instants, edges - edges[0])
        found: NDArray[np.float64] = count * (edges - edges[0]).astype(np.float64) - sums[count]
        return found

    return since(course.started) - since(course.ended)


def p95(course: Course, edges: Numbers) -> list[float | None]:
    """The wait of the jobs that were ready in each stretch that 95% of them did not exceed; None: there is none."""
    order = np.argsort(course.ready, kind="stable")
    values = course.waits[order]
    places = np.searchsorted(course.ready[order], edges).tolist()
    return [
        float(np.quantile(values[begin:end], 0.95, method="inverted_cdf")) / SECOND if end > begin else None
        for begin, end in pairwise(places)
    ]
