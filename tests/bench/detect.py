"""How well the report's rules detect: ``PYTHONPATH=tests python -m bench.detect [--json] [--histories 100] [--only hours]``.

It makes histories whose truth is known (:mod:`bench.detect_worlds`), feeds the rules directly, and prints false
findings for each report of a week, the share of planted events that are found, and how many days a forecast covers. No
Spark, no database. docs/pipeline/report.md has the figures.
"""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import click
import numpy as np
from bench.detect_worlds import (
    EVENTS,
    HOLIDAY,
    HOURS,
    NOON,
    NOW,
    WEEK,
    WORLDS,
    Floats,
    Series,
    World,
    daily,
    runs,
    sharings,
    task,
    tasks,
    with_event,
)

from pgqueue.spark.report import (
    rule_burst,
    rule_crowd,
    rule_events,
    rule_expected,
    rule_forecast,
    rule_shift,
    rule_unusual,
)

Row: TypeAlias = dict[str, Any]
KNOWN = np.ones(HOURS, dtype=np.bool_)
TASKS = 40
"""Tasks of a report."""
GROWTHS = (0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5)


@click.command(help=__doc__)
@click.option("--histories", default=100, help="of each world and event; reports are a fifth as many")
@click.option("--only", type=click.Choice(["hours", "crowding", "deploys", "storms", "forecast"]))
@click.option("--json", "as_json", is_flag=True)
def main(histories: int, only: str | None, *, as_json: bool) -> None:
    """Measure each rule, and print."""
    parts: dict[str, Callable[[int], Iterable[Row]]] = {
        "hours": hours,
        "crowding": crowding,
        "deploys": deploys,
        "storms": storms,
        "forecast": forecast,
    }
    rows = []
    for name, part in parts.items():
        for row in part(histories) if only in {None, name} else ():
            rows.append({"rule": name, **row})
            if not as_json:
                values = " ".join(
                    f"{key} {value:g}" for key, value in row.items() if not isinstance(value, str)
                )
                click.echo(f"{name:9} {row['world']:42} {row.get('event', ''):24} {values}")
    if as_json:
        click.echo(json.dumps(rows))


# Unusual hours.


def hours(histories: int) -> Iterator[Row]:
    """False findings of reports, then the events that are found."""
    for number, world in enumerate([*WORLDS, HOLIDAY]):
        yield false_findings(world, number, histories // 5)
    for world in WORLDS:
        if world.levels[1] < TASKS or world.local:
            continue
        for event, times in EVENTS.items():
            yield found_events(world, event, times, 200.0, histories)
    for level in (2.0, 5.0, 10.0, 20.0, 50.0, 1_000.0):
        for event, times in EVENTS.items():
            yield found_events(WORLDS[1], event, times, level, histories)


def false_findings(world: World, number: int, reports: int) -> Row:
    """The findings of quiet reports."""
    found, judged = 0, 0.0
    for seed in range(reports):
        chance = np.random.default_rng((1, number, seed))
        made = tasks(chance, world, TASKS)
        before = time.process_time()
        found += len(events(made, world))
        judged += time.process_time() - before
    return {
        "world": world.name,
        "event": "none",
        "found_per_report": found / reports,
        "ms_per_task": round(judged / reports / TASKS * 1e3, 2),
    }


def found_events(world: World, event: str, times: float, level: float, histories: int) -> Row:
    """The share of histories in which the event is found, as one of TASKS tasks."""
    hits = others = 0
    for seed in range(histories):
        chance = np.random.default_rng((2, seed))
        made = with_event(chance, task(chance, world, level), times)
        first, last = (world.start + NOW + NOON + hour for hour in (0, 2))
        found = events([made], world)
        right = [
            one
            for one in found
            for part in one.episodes[:1]
            if one.first <= last and one.last >= first and (part.peak.score > 0) == (times > 1)
        ]
        hits += bool(right)
        others += len(found) - len(right)
    return {
        "world": f"{world.name}, {level:g} jobs/h",
        "event": event,
        "found": hits / histories,
        "others": others / histories,
    }


def events(made: Sequence[Series], world: World) -> list[rule_events.Event]:
    """The events of a report on TASKS tasks."""
    found = []
    for number, one in enumerate(made):
        ran = one["jobs"] > 0
        columns = {name: values[ran] for name, values in one.items()}
        hours = rule_expected.Hours(hour=(world.start + np.arange(HOURS))[ran], **columns)
        found += [("queue", str(number), hour) for hour in rule_unusual.judge(hours, KNOWN, world.start)]
    return rule_events.events(found, TASKS)


# Crowding.


def crowding(histories: int) -> Iterator[Row]:
    """Queues in which a tenant is named though none crowds, and in which the one that crowds is named."""
    for jobs in (2.0, 5.0, 10.0, 30.0, 200.0):
        for spread in (0.5, 1.5):
            where = f"{jobs:g} jobs/h, spread of waits {spread:g}"
            for event, big, times in (
                ("none", 0, 1.0),
                ("big, none waits", 8, 1.0),
                ("x10, 4 hours", 4, 10.0),
                ("x40, one hour", 1, 40.0),
            ):
                yield {"world": where, "event": event, **named(jobs, spread, big, times, histories)}


def named(jobs: float, spread: float, big: int, times: float, histories: int) -> Row:
    """The share of histories in which the first tenant is named, and in which another is."""
    hits = others = 0
    for seed in range(histories):
        queues = sharings(np.random.default_rng((3, seed)), jobs, spread=spread, big=big, times=times)
        found = [
            number
            for number, queue in enumerate(queues)
            if rule_crowd.judge(rule_crowd.Sharing(hour=np.arange(HOURS), **queue), begin=HOURS - 4 * WEEK)
        ]
        hits += 0 in found
        others += any(number > 0 for number in found)
    return {"found": hits / histories, "others": others / histories}


# Deploys.


def deploys(histories: int) -> Iterator[Row]:
    """Tasks that a deploy made slower."""
    for count in (200, 5_000):
        for times in (1.0, 1.2, 1.5, 2.0):
            hits = 0
            for seed in range(histories):
                chance = np.random.default_rng((4, seed))
                hits += (
                    rule_shift.judge(sample(runs(chance, count)), sample(runs(chance, count, times=times)))
                    is not None
                )
            yield {"world": f"{count} runs", "event": f"x{times:g}", "found": hits / histories}


def sample(values: Floats) -> rule_shift.RunTimeSample:
    """One side of a deploy."""
    parts = np.array_split(values, 48)
    return rule_shift.RunTimeSample(
        runs=values.size,
        mean=float(values.mean()),
        quantiles=[float(one) for one in np.quantile(values, rule_shift.RANKS)],
        p50=float(np.quantile(values, 0.5)),
        p90=float(np.quantile(values, 0.9)),
        medians=[float(np.median(part)) for part in parts],
        tails=[float(np.quantile(part, 0.9)) for part in parts],
    )


# Storms.


def storms(histories: int) -> Iterator[Row]:
    """Storms of failures of three hours, in which each job fails several times."""
    for level in (5.0, 20.0, 200.0):
        for retries in (0.0, 0.5, 2.0):
            hits = 0
            for seed in range(histories):
                chance = np.random.default_rng((5, seed))
                made = task(chance, WORLDS[1], level)
                at = slice(NOW + NOON, NOW + NOON + 3)
                made["failed"][at] += chance.poisson(retries * made["jobs"][at])
                ran = made["jobs"] > 0
                hits += bool(
                    rule_burst.storms(
                        np.arange(HOURS)[ran], made["jobs"][ran], made["failed"][ran], begin=HOURS - 4 * WEEK
                    )
                )
            yield {
                "world": f"{level:g} jobs/h",
                "event": f"{retries:g} retries a job",
                "found": hits / histories,
            }


# Forecasts.


def forecast(histories: int) -> Iterator[Row]:
    """The share of the next 14 and 56 days within the 80 % range, fitted to 56 days."""
    for growth in GROWTHS:
        for noise, alike in ((0.03, 0.0), (0.1, 0.0), (0.1, 0.5)):
            near, far = [], []
            for seed in range(histories):
                values = daily(np.random.default_rng((6, seed)), 112, growth, noise, alike)
                inside = covered(values)
                near.append(np.mean(inside[:14]))
                far.append(np.mean(inside))
            where = f"{growth:.0%} a week, noise {noise:.0%}" + (f", alike {alike}" if alike else "")
            yield {
                "world": where,
                "event": "",
                "next_14": round(float(np.mean(near)), 3),
                "next_56": round(float(np.mean(far)), 3),
            }


def covered(values: Floats) -> Floats:
    """Which of the days after the first 56 are in the range."""
    days = [20_000 + number for number in range(values.size)]
    line = rule_forecast.fit(days[:56], list(values[:56]))
    assert line is not None
    ranges = np.array([line.range(day) for day in days[56:]])
    return ((values[56:] >= ranges[:, 0]) & (values[56:] <= ranges[:, 2])).astype(float)


if __name__ == "__main__":
    main()
