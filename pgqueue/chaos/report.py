"""The end of a run, for people and as JSON. The last line is the verdict."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from statistics import median
from typing import Any

from pgqueue.chaos.judge import LOST, TWICE
from pgqueue.chaos.run import RECOVERS_WITHIN, FaultRun, RunOutcome

MOST_SHOWN = 10
IS_LOST = "is lost"
IS_DOUBLE = "has its effect"


def complaints(outcome: RunOutcome) -> list[str]:
    """What broke, a sentence each; empty: every promise was kept."""
    found = [f"promise {one.promise}: {one.sentence}" for one in outcome.judged.violations]
    found += outcome.surprises
    found += outcome.overload.complaints() if outcome.overload else []
    if outcome.orders_without_jobs:
        found.append(f"promise 1: {outcome.orders_without_jobs:,} orders were committed without their jobs")
    if outcome.jobs_without_orders:
        found.append(f"promise 1: {outcome.jobs_without_orders:,} jobs were committed without their orders")
    found += [
        f"promise 6: after {one.name} work did not go on within {RECOVERS_WITHIN:g} s"
        for one in outcome.happened
        if one.recovered is None
    ]
    return found


def count_lost_jobs(outcome: RunOutcome) -> int:
    """How many jobs are lost: committed, and in no table, or never run to their end."""
    named = [one for one in outcome.judged.violations if one.promise == LOST and IS_LOST in one.sentence]
    return len(named) + outcome.orders_without_jobs + outcome.left


def twice(outcome: RunOutcome) -> int:
    """How many jobs have their effect more than once."""
    return sum(
        one.promise == TWICE and IS_DOUBLE in one.sentence and one.sentence.endswith("times")
        for one in outcome.judged.violations
    )


def recoveries(happened: Sequence[FaultRun]) -> dict[str, list[float]]:
    """Seconds to recover, by fault; of faults after which work did not go on there is none."""
    found: dict[str, list[float]] = defaultdict(list)
    for one in happened:
        found[one.name] += [] if one.recovered is None else [one.recovered]
    return found


def rows(outcome: RunOutcome) -> list[tuple[str, int, str, str]]:
    """A row for each kind of fault: its name, how often, and the median and longest seconds to recover."""
    counts = {
        name: sum(one.name == name for one in outcome.happened) for name in recoveries(outcome.happened)
    }
    return [
        (
            name,
            counts[name],
            *((f"{median(times):.2f}", f"{max(times):.2f}") if times else ("never", "never")),
        )
        for name, times in sorted(recoveries(outcome.happened).items())
    ]


def verdict(outcome: RunOutcome) -> str:
    """The last line."""
    facts = (
        f"{outcome.judged.jobs:,} jobs, {len(outcome.happened):,} faults, {count_lost_jobs(outcome):,} lost, "
        f"{twice(outcome):,} double effects"
    )
    broken = len(complaints(outcome))
    if broken:
        return f"BROKEN: {broken:,} complaints; {facts}"
    times = [(seconds, name) for name, all_ in recoveries(outcome.happened).items() for seconds in all_]
    longest = f"; longest recovery {max(times)[0]:.1f} s ({max(times)[1]})" if times else ""
    return f"KEPT: {facts}{longest}"


def as_json(outcome: RunOutcome, *, seed: int, left_out: dict[str, str]) -> dict[str, Any]:
    """All of it, for programs."""
    return {
        "seed": seed,
        "seconds": round(outcome.seconds, 1),
        "jobs": outcome.judged.jobs,
        "faults": len(outcome.happened),
        "lost": count_lost_jobs(outcome),
        "double_effects": twice(outcome),
        "lost_by_setting": outcome.judged.lost_by_setting,
        "not_judged": outcome.judged.not_judged,
        "left_out": left_out,
        "recoveries": {
            name: {"times": len(times), "median": median(times), "longest": max(times)}
            for name, times in recoveries(outcome.happened).items()
            if times
        },
        "overload": outcome.overload and asdict(outcome.overload),
        "broken": complaints(outcome),
        "verdict": verdict(outcome),
    }
