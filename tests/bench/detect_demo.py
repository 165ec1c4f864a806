"""What the rules find in the demo's made-up history, seed by seed: ``PYTHONPATH=tests python -m bench.detect_demo``.

The history is planned as in the demo (``pgqueue.spark.demo.planned``), and its jobs run on the made-up workers
(``pgqueue.spark.demo.slots``). Tenants and failures are drawn here with NumPy, by the same distributions as
``statements/day.sql``. All is summed to hours: no database, no Spark.
"""

from collections import defaultdict
from collections.abc import Iterable
from datetime import date
from typing import TypeAlias

import click
import numpy as np

from pgqueue.spark.demo.days import CROWD_TENANT, TENANTS, Cell, MadeUpDay, Wish
from pgqueue.spark.demo.planned import PlannedHistory, story
from pgqueue.spark.demo.slots import course_of
from pgqueue.spark.report import rule_burst, rule_crowd, rule_events, rule_expected, rule_unusual
from pgqueue.spark.report.words import hour as hour_text

WEEKS = 8

Jobs: TypeAlias = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


@click.command(help=__doc__)
@click.option("--seeds", default=20)
@click.option("--rows", default=180_000)
@click.option("--days", default=31)
def main(seeds: int, rows: int, days: int) -> None:
    """Print the events, storms and crowding tenants of each seed."""
    for seed in range(1, seeds + 1):
        plan = story(Wish(rows=rows, days=days, until=date(2026, 11, 27), seed=seed))
        click.echo(f"seed {seed}: planted storm {plan.events.storm}, crowd {plan.events.crowd}")
        for line in found(plan, np.random.default_rng(seed)):
            click.echo(f"    {line}")


def found(plan: PlannedHistory, chance: np.random.Generator) -> Iterable[str]:
    """What the rules find, a line each."""
    end = (plan.wish.until - date(1970, 1, 1)).days * 24 + 24
    start = end - (WEEKS + 1) * rule_expected.WEEK
    known = np.arange(start, end) >= end - 24 * plan.wish.days
    tasks: dict[tuple[str, str], list[Jobs]] = defaultdict(list)
    queues: dict[str, list[Jobs]] = defaultdict(list)
    for day in plan.days:
        for cell, jobs in _drawn(day, plan.wish.seed, chance):
            tasks[cell.queue, cell.task].append(jobs)
            queues[cell.queue].append(jobs)
    marked = []
    for (queue, task), parts in tasks.items():
        hour, jobs, failed, wait = _by_hour(np.concatenate(parts))
        columns = {"jobs": jobs, "attempts": jobs + failed, "failed": failed, "wait": wait}
        judged = rule_unusual.judge(rule_expected.Hours(hour=hour.astype(int), **columns), known, start)
        marked += [(queue, task, one) for one in judged]
        for storm in rule_burst.storms(hour.astype(int), jobs, failed, begin=end - 28 * 24):
            yield f"storm: {task}, {hour_text(storm.first)}, {storm.retries} retries"
    for event in rule_events.events(marked, len(tasks)):
        names = ", ".join(
            f"{one.task} {one.peak.metric} {one.peak.value:g}/{one.peak.usual:.3g}" for one in event.episodes
        )
        yield f"event: {hour_text(event.first)}, {event.tasks} tasks: {names}"
    for queue, parts in queues.items():
        for tenant, crowded in _crowding(np.concatenate(parts), start, end):
            yield f"crowding: tenant-{tenant} in {queue}, {len(crowded.hours)} hours, {crowded.others} others"


def _drawn(day: MadeUpDay, seed: int, chance: np.random.Generator) -> Iterable[tuple[Cell, Jobs]]:
    """The jobs of a day, cell by cell: the hour in which each ended, its tenant, run time, wait and failures."""
    course, begin, first = course_of(day, seed), (day.day - date(1970, 1, 1)).days * 24, 0
    for cell in day.cells:
        own = slice(first, first := first + cell.rows)
        tenant = np.floor(np.exp(chance.random(cell.rows) * np.log(TENANTS + 1)))
        tenant[: cell.crowd] = CROWD_TENANT
        failures = np.fmin(chance.geometric(1 - cell.fails, cell.rows) - 1, cell.max_attempts)
        ended, ran, waited = (
            np.array(numbers[own], float) / 1e6 for numbers in (course.ended, course.ran, course.waited)
        )
        yield cell, np.array([begin + ended // 3_600, tenant, ran, waited, failures]).T


def _by_hour(jobs: Jobs) -> tuple[Jobs, Jobs, Jobs, Jobs]:
    """Of a task: its hours, and in each the jobs that ended, the failures, and the 90th percentile of the waits."""
    hours = np.unique(jobs[:, 0])
    parts = [jobs[jobs[:, 0] == hour] for hour in hours]
    return (
        hours,
        np.array([float(len(part)) for part in parts]),
        np.array([part[:, 4].sum() for part in parts]),
        np.array([np.quantile(part[:, 3], 0.9) for part in parts]),
    )


def _crowding(jobs: Jobs, start: int, end: int) -> Iterable[tuple[int, rule_crowd.Crowding]]:
    at, tenants = (jobs[:, 0] - start).astype(int), jobs[:, 1]

    def summed(of: rule_expected.Flags, values: rule_expected.Floats) -> rule_expected.Floats:
        return np.bincount(at[of], values[of], minlength=end - start).astype(float)

    every = np.ones(at.size, dtype=np.bool_)
    total = summed(every, jobs[:, 2])
    for tenant in np.unique(tenants):
        own = summed(tenants == tenant, jobs[:, 2])
        if np.any((own > 0) & (own >= total / 2)):
            others = tenants != tenant
            queue = {
                "own_run": own,
                "other_run": total - own,
                "other_jobs": summed(others, np.ones(at.size)),
                "other_wait": summed(others, jobs[:, 3]),
            }
            there = total > 0
            sharing = rule_crowd.Sharing(
                hour=np.arange(start, end)[there], **{name: values[there] for name, values in queue.items()}
            )
            crowded = rule_crowd.judge(sharing, begin=end - 28 * 24)
            if crowded:
                yield int(tenant), crowded


if __name__ == "__main__":
    main()
