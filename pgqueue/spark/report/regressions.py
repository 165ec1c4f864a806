"""What did a deploy make slower, or faster? Run times of each task before and after; the rule is ``rule_shift``.

Tasks whose merged sketches hardly changed are left out; the rule decides on the others.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pgqueue.spark.report import words
from pgqueue.spark.report.plots import around
from pgqueue.spark.report.rollups import DAY, RECENT_DAYS, Rollups
from pgqueue.spark.report.rule_shift import (
    FEWEST_RUNS,
    LEAST_RATIO,
    RANKS,
    DeployWindow,
    RunTimeSample,
    Shift,
    judge,
    windows,
)
from pgqueue.spark.report.section import Plot, Question, ReportColumn, Section, SectionState, Value, ValueKind
from pgqueue.spark.rollup.in_duckdb import quantile_of, quantiles_of

DRAWN = 2
QUESTION = Question(
    name="regressions",
    title="Did a deploy make anything slower?",
    compared=(
        f"For each deploy of the last {RECENT_DAYS} days, the run times of each task's last attempts in equally long "
        "spans before and after it (whole days, one to seven; the hour of the deploy is left out). A change counts if "
        "the median moved by a fifth or the 90th percentile by 30%, if it is large among all runs, more than chance "
        "and the sketches' error, and if three in four hours after the deploy show it. Deploys and growing data both "
        "make tasks slower: a step at the line is the deploy's, a slope across it is not."
    ),
    advice=(
        "Look at what the version changed in the slower tasks; roll back or fix. A task that became faster is listed, "
        "too, so that you can see that a fix worked."
    ),
    caption="Tasks whose run time changed with a deploy, slower ones first",
    columns=(
        ReportColumn("queue", "Queue", ValueKind.TEXT),
        ReportColumn("task", "Task", ValueKind.TEXT),
        ReportColumn("deployed_hour", "Deployed (UTC)", ValueKind.HOUR),
        ReportColumn("version", "Version", ValueKind.TEXT),
        ReportColumn("direction", "Became", ValueKind.TEXT),
        ReportColumn("p50_before", "Half over, before", ValueKind.SECONDS),
        ReportColumn("p50_after", "Half over, after", ValueKind.SECONDS),
        ReportColumn("p90_before", "1 in 10 over, before", ValueKind.SECONDS),
        ReportColumn("p90_after", "1 in 10 over, after", ValueKind.SECONDS),
        ReportColumn("runs_before", "Runs before", ValueKind.COUNT),
        ReportColumn("runs_after", "Runs after", ValueKind.COUNT),
        ReportColumn("effect", "", ValueKind.NUMBER),
        ReportColumn("extra_seconds_a_day", "More run time a day", ValueKind.SECONDS),
        ReportColumn("window_hours", "", ValueKind.COUNT),
        ReportColumn("other_deploys", "", ValueKind.COUNT),
        ReportColumn("finding", "", ValueKind.TEXT),
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTimeChange:
    """A task whose run time changed with a deploy.

    Attributes:
        queue: the task's queue.
        task: the task's name.
        window: the deploy, and the hours compared.
        before: run times before it.
        after: run times after it.
        shift: the rule's result.
    """

    queue: str
    task: str
    window: DeployWindow
    before: RunTimeSample
    after: RunTimeSample
    shift: Shift

    @property
    def cost(self) -> float:
        """Additional seconds of run time a day; below zero: fewer."""
        return (self.after.mean - self.before.mean) * self.after.runs / (self.window.hours / DAY)


def section(rollups: Rollups) -> Section:
    """The answer."""
    period = rollups.period
    deploys = [(at, version) for at, version in rollups.deploys if period.recent <= at < period.end]
    if not deploys:
        return QUESTION.answered(
            SectionState.UNKNOWN,
            f"No deploys are known in the {RECENT_DAYS} days up to now, so nothing could be compared. Say "
            "`pgqueue pipeline deployed VERSION` when you deploy.",
        )
    found, left = windows(deploys, first=period.days[0] * DAY, end=period.end)
    young = f" {words.some(left, 'deploy')} had no full day before or after to compare." if left else ""
    if not found:
        return QUESTION.answered(SectionState.UNKNOWN, f"Too early to tell:{young}")
    changes = _distinct(_changes(rollups, found))
    return _answer_section(rollups, found, changes, young)


def sentence(one: RunTimeChange) -> str:
    """A sentence that says what changed."""
    shift, window = one.shift, one.window
    which = "The typical run" if shift.typical else "The slow runs"
    before, after = (one.before.p50, one.after.p50) if shift.typical else (one.before.p90, one.after.p90)
    measure = "half took longer than" if shift.typical else "one in ten took longer than"
    ratio = words.times(shift.ratio if shift.slower else 1 / shift.ratio)
    others = f" ({words.some(window.others, 'other deploy')} in these days)" if window.others else ""
    length = words.some(window.hours // DAY, "day")
    return (
        f"{which} of {words.task_of(one.queue, one.task)} became {ratio} {'as long' if shift.slower else 'as short'} "
        f"with {words.clean(window.versions)} ({words.hour(window.hour)}): {measure} {words.span(before)} in the "
        f"{length} before, {words.span(after)} in the {length} after{others}."
    )


def _answer_section(
    rollups: Rollups, found: Sequence[DeployWindow], changes: Sequence[RunTimeChange], young: str
) -> Section:
    looked = words.some(len(found), "deploy")
    if not changes:
        return QUESTION.answered(
            SectionState.OK, f"No task's run time changed with any of {looked} in a way that matters.{young}"
        )
    sentences = tuple(sentence(one) for one in changes)
    slower = [one for one in changes if one.shift.slower]
    parts = [
        f"{words.some(len(slower), 'task')} became slower" if slower else "",
        f"{words.some(len(changes) - len(slower), 'task')} became faster"
        if len(slower) < len(changes)
        else "",
    ]
    counted = " and ".join(part for part in parts if part)
    return QUESTION.answered(
        SectionState.LOOK if slower else SectionState.OK,
        f"{counted} with a deploy ({looked} looked at). {sentences[0]}{young}",
        findings=sentences,
        rows=map(_row, changes, sentences),
        plots=_plots(rollups, changes[:DRAWN]),
    )


def _changes(rollups: Rollups, found: Sequence[DeployWindow]) -> Iterable[RunTimeChange]:
    for window in found:
        before = _runs(rollups, window.hour - window.hours, window.hours)
        after = _runs(rollups, window.hour + 1, window.hours)
        for queue, task in sorted(before.keys() & after.keys()):
            former, later = before[queue, task], after[queue, task]
            if not any(_moved(former.sketch, later.sketch, rank) for rank in (0.5, 0.9)):
                continue
            one, other = former.sample(), later.sample()
            shift = judge(one, other)
            if shift is not None:
                yield RunTimeChange(
                    queue=queue, task=task, window=window, before=one, after=other, shift=shift
                )


def _distinct(changes: Iterable[RunTimeChange]) -> list[RunTimeChange]:
    """Keep, of overlapping comparisons of one task, only the one with the greatest effect; sort by cost, the highest first."""
    kept: list[RunTimeChange] = []
    for one in sorted(changes, key=lambda one: (-abs(one.shift.effect - 0.5), one.window.hour)):
        same = [other for other in kept if (other.queue, other.task) == (one.queue, one.task)]
        if not any(_overlap(one.window, other.window) for other in same):
            kept.append(one)
    return sorted(kept, key=lambda one: (not one.shift.slower, -abs(one.cost)))


def _overlap(one: DeployWindow, other: DeployWindow) -> bool:
    return abs(one.hour - other.hour) <= one.hours + other.hours


class Runs(NamedTuple):
    """Run times of a task in a span of hours.

    Attributes:
        sketch: of all runs.
        row: the task's row of the statement.
    """

    sketch: Any
    row: Any

    def sample(self) -> RunTimeSample:
        """What the rule compares."""
        return RunTimeSample(
            runs=self.sketch.n,
            mean=self.row.run_seconds / self.sketch.n,
            quantiles=quantiles_of(self.sketch, RANKS),
            p50=quantile_of(self.sketch, 0.5),
            p90=quantile_of(self.sketch, 0.9),
            medians=self.row.medians,
            tails=self.row.tails,
        )


def _runs(rollups: Rollups, first: int, hours: int) -> dict[tuple[str, str], Runs]:
    """The run times of each task with enough jobs in a span; only these have enough runs."""
    span = {"first": first, "beyond": first + hours}
    sketches = rollups.merged("run_sketch", ("queue", "task"), **span)
    return {
        (row.queue, row.task): Runs(sketches[row.queue, row.task], row)
        for row in rollups.rows("tasks_in_span", {**span, "fewest_jobs": FEWEST_RUNS})
    }


def _moved(before: Any, after: Any, rank: float) -> bool:  # noqa: ANN401 - sketches have no type
    one, other = quantile_of(before, rank), quantile_of(after, rank)
    return max(one, other) >= LEAST_RATIO * min(one, other)


def _row(one: RunTimeChange, said: str) -> tuple[Value, ...]:
    before, after, window = one.before, one.after, one.window
    became = "slower" if one.shift.slower else "faster"
    return (
        *(one.queue, one.task, window.hour, window.versions, became),
        *(before.p50, after.p50, before.p90, after.p90, before.runs, after.runs),
        *(one.shift.effect, one.cost, window.hours, window.others, said),
    )


def _plots(rollups: Rollups, changes: Sequence[RunTimeChange]) -> Iterable[Plot]:
    for one in changes:
        window = one.window
        first, last = window.hour - window.hours, window.hour + window.hours
        own = {"queue": one.queue, "task": one.task, "first": first, "last": last}
        rows = rollups.rows("run_times", own)
        where = words.task_of(one.queue, one.task)
        yield Plot(
            title=f"{where}: run times by hour around the deploy of {words.clean(window.versions)}",
            says=f"Two lines, the 50th and the 90th percentile of the run time of {where}, with the deploy between them.",
            draw=around(
                window.hour,
                window.versions,
                {row.hour: row.run_p50 for row in rows},
                {row.hour: row.run_p90 for row in rows},
            ),
        )
