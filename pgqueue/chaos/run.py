"""The run: work begins, faults happen one after the other, work ends, everything is accounted for, and a verdict is told."""

import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, field
from itertools import count
from statistics import median
from typing import Any

import msgspec
import psycopg

from pgqueue.app.pgqueue import PgQueue
from pgqueue.chaos import staging
from pgqueue.chaos.faults import Fault
from pgqueue.chaos.judge import LOST, TWICE, Judgement, judge
from pgqueue.chaos.kinds import TICK
from pgqueue.chaos.load import OrderLoad
from pgqueue.chaos.log import Tail
from pgqueue.chaos.overload import Overload, overload
from pgqueue.chaos.stage import ChaosStage, FleetProcess
from pgqueue.chaos.tasks import SCHEMA
from pgqueue.errors import PgQueueError

RECOVERS_WITHIN = 60.0
"""Seconds after a fault in which work must have gone on; later is a broken promise."""
STALLED_AFTER = 60.0
"""Seconds without an ended job after which the run no longer waits for the rest."""
ENQUEUERS = 2
LOOK_EVERY = 0.2

MOST_SHOWN = 10
IS_LOST = "is lost"
IS_DOUBLE = "has its effect"


@dataclass(frozen=True)
class ChaosPlan:
    """What a run does.

    Attributes:
        seconds: for how long faults happen.
        orders: how many to add in all; 0: as many as come in that time.
        rate: orders a second.
        workers: how many processes work.
        faults: which happen.
        seed: of all choices.
        rounds: how often each fault happens, however long that takes; 0: ``seconds`` decides.
        pause: seconds of quiet between two faults.
        overload: whether it has too much work, and no faults.
    """

    seconds: float
    orders: int
    rate: float
    workers: int
    faults: Sequence[Fault]
    seed: int
    rounds: int = 0
    pause: float = 0.0
    overload: bool = False


class FaultRun(msgspec.Struct, frozen=True):
    """A fault that happened.

    Attributes:
        name: which.
        lasted: from its begin to its end, in seconds.
        recovered: seconds from its end until a job that started afterwards had ended, and all jobs of lost workers were taken
            over; None: that did not come.
    """

    name: str
    lasted: float
    recovered: float | None


@dataclass
class RunOutcome:
    """What became of a run.

    Attributes:
        happened: the faults, in order.
        judged: what log and tables say.
        orders_without_jobs: rows of ``orders`` whose jobs are missing.
        jobs_without_orders: jobs whose row is missing.
        left: jobs that have not ended.
        surprises: what workers did that they should not.
        seconds: how long it took, the drain included.
        overload: what became of the overload, if there was one.
    """

    happened: list[FaultRun] = field(default_factory=list)
    judged: Judgement = field(default_factory=lambda: Judgement(0, ()))
    orders_without_jobs: int = 0
    jobs_without_orders: int = 0
    left: int = 0
    surprises: list[str] = field(default_factory=list)
    seconds: float = 0.0
    overload: Overload | None = None


def run(stage: ChaosStage, plan: ChaosPlan, tell: Callable[[str], object]) -> RunOutcome:
    """Run, drain, and judge.

    Args:
        stage: with an empty database.
        plan: what to do.
        tell: is called with each thing that happens.
    """
    outcome = RunOutcome()
    began = time.monotonic()
    stage.fleet.hire(plan.workers)
    if plan.overload:
        outcome.overload = overload(stage, plan.seconds, tell)
    else:
        _under_faults(stage, plan, outcome, tell)
    tell("The rest of the jobs is run.")
    _drain(stage)
    outcome.surprises += stage.fleet.surprises
    for worker in list(stage.fleet.workers):
        stage.fleet.workers.remove(worker)
        stage.fleet.stopped(worker)
    account(stage, outcome)
    outcome.seconds = time.monotonic() - began
    return outcome


def _under_faults(
    stage: ChaosStage, plan: ChaosPlan, outcome: RunOutcome, tell: Callable[[str], object]
) -> None:
    began = time.monotonic()
    enqueuers = [_enqueuer(stage, plan, first) for first in range(1, ENQUEUERS + 1)]
    if stage.watch.served_after(began, within=RECOVERS_WITHIN) is None:
        raise PgQueueError(
            f"no job ended within {RECOVERS_WITHIN:g} s: {stage.fleet.workers[0].last_words()}"
        )
    _strike(stage, plan, outcome, tell)
    _finish(stage, enqueuers, plan)


def _strike(stage: ChaosStage, plan: ChaosPlan, outcome: RunOutcome, tell: Callable[[str], object]) -> None:
    began = time.monotonic()
    for fault in _order(plan):
        if not plan.rounds and time.monotonic() - began >= plan.seconds:
            return
        happened = _happen(stage, fault)
        outcome.happened.append(happened)
        tell(_describe_fault(happened, fault, stage))
        stage.fleet.replace_ended()
        stage.hold(plan.pause)


def _order(plan: ChaosPlan) -> Iterator[Fault]:
    chance = random.Random(plan.seed)  # noqa: S311 - a choice that can be repeated
    for _ in range(plan.rounds) if plan.rounds else count():
        yield from chance.sample(list(plan.faults), len(plan.faults))


def _happen(stage: ChaosStage, fault: Fault) -> FaultRun:
    began = time.monotonic()
    with fault.block(stage):
        stage.hold(fault.seconds + fault.leases * stage.lease)
    ended = time.monotonic()
    served = stage.watch.served_after(ended, within=RECOVERS_WITHIN)
    if not stage.taken_over(within=RECOVERS_WITHIN):
        stage.lost.clear()
        served = None
    elif served is not None:
        served = max(served, stage.taken_over_at)
    if fault.after is not None:
        fault.after(stage)
    stage.faults.append((began, time.monotonic() + stage.lease))
    return FaultRun(fault.name, ended - began, None if served is None else served - ended)


def _describe_fault(happened: FaultRun, fault: Fault, stage: ChaosStage) -> str:
    after = (
        f"it was {happened.recovered:.1f} s until work went on"
        if happened.recovered is not None
        else f"work did not go on within {RECOVERS_WITHIN:g} s"
    )
    return f"{fault.name}: {fault.does}; {after}; {stage.watch.ended:,} jobs have ended"


def _enqueuer(stage: ChaosStage, plan: ChaosPlan, first: int) -> FleetProcess:
    load = OrderLoad(
        first=first,
        step=ENQUEUERS,
        orders=-(-plan.orders // ENQUEUERS),
        rate=plan.rate / ENQUEUERS,
        batch=max(1, min(100, int(plan.rate / ENQUEUERS / 10))),
        seed=plan.seed,
    )
    return stage.fleet.run(["-m", "pgqueue.chaos.load", msgspec.json.encode(load).decode()])


def _finish(stage: ChaosStage, enqueuers: Sequence[FleetProcess], plan: ChaosPlan) -> None:
    """Wait until the enqueuers have added all orders; without a number of orders, tell them to stop."""
    while plan.orders and any(one.status is None for one in enqueuers):
        stage.hold(LOOK_EVERY)
        stage.fleet.replace_ended()
    for one in enqueuers:
        if (status := one.end() if one.status is None else one.status) != 0:
            stage.fleet.surprises.append(f"an enqueuer ended with status {status}: {one.last_words()}")


def _drain(stage: ChaosStage) -> None:
    """Stop the schedule, and wait until all jobs have ended, or none has for STALLED_AFTER seconds."""
    with closing(PgQueue(stage.dsn, schema=SCHEMA)) as queue, suppress(psycopg.Error, PgQueueError):
        queue.schedules.pause(TICK)
    ended, since = stage.watch.ended, time.monotonic()
    while time.monotonic() - since < STALLED_AFTER:
        stage.hold(LOOK_EVERY)
        stage.fleet.replace_ended()
        if stage.watch.ended != ended:
            ended, since = stage.watch.ended, time.monotonic()
        with suppress(psycopg.Error, PgQueueError), stage.connection() as connection:
            if not staging.live(connection):
                return


def account(stage: ChaosStage, outcome: RunOutcome) -> None:
    """Compare the log with the tables."""
    names: dict[int, str] = {}
    with stage.connection() as connection:
        outcome.left = staging.live(connection)
        outcome.orders_without_jobs, outcome.jobs_without_orders = staging.count_uncoupled(connection)
        outcome.judged = judge(
            Tail(stage.folder).news(),
            staging.last_look(connection, names),
            names,
            left=stage.fleet.left,
            forgotten=stage.forgotten,
            crashes=stage.crashes,
            faults=stage.faults,
        )


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


def outcome_fields(outcome: RunOutcome, *, seed: int, left_out: dict[str, str]) -> dict[str, Any]:
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


def recoveries(happened: Sequence[FaultRun]) -> dict[str, list[float]]:
    """Seconds to recover, by fault; of faults after which work did not go on there is none."""
    found: dict[str, list[float]] = defaultdict(list)
    for one in happened:
        found[one.name] += [] if one.recovered is None else [one.recovered]
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
