"""When will the workers be too few? Daily busy hours against the workers' capacity; the rule is ``rule_forecast``."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from pgqueue.spark.report import words
from pgqueue.spark.report.plots import forecast
from pgqueue.spark.report.rollups import HOUR_SECONDS, WEEK_DAYS, Rollups
from pgqueue.spark.report.rule_forecast import FEWEST_DAYS, Crossing, Fit, crossing, fit
from pgqueue.spark.report.section import Plot, Question, ReportColumn, Section, SectionState, Value, ValueKind

LEVELS = (0.8, 1.0)
QUESTION = Question(
    name="capacity",
    title="When will the workers be too few?",
    compared=(
        "Hours of run time on each day (last attempts only: the run time of earlier ones is not recorded) with the "
        "workers' capacity: their concurrency times how long they were alive, on the median day of the reported week. "
        "Forecast: growth by a factor each week with a weekday pattern, by least squares on logarithms, as many days ahead "
        "as there are days behind; four days in five are expected within the range (in made-up histories that grow by 0 to "
        "15% a week, 79 to 82 days in 100 were). It does not know of launches, holidays, new customers, or the end of a "
        "growth. A worker that only waits for replies of other services counts as busy."
    ),
    advice=(
        "Above 80% in the busiest hour, jobs begin to wait. Add workers or concurrency before the earliest date, or "
        "move what can wait to quieter hours with a delay or a lower priority."
    ),
    caption="When the load reaches 80% and 100% of today's capacity (\N{EN DASH}: not as far as can be seen)",
    columns=(
        ReportColumn("measure", "What", ValueKind.TEXT),
        ReportColumn("level", "Reaches", ValueKind.SHARE),
        ReportColumn("now", "Now", ValueKind.SHARE),
        ReportColumn("growth_a_week", "Grows by, a week", ValueKind.SHARE),
        ReportColumn("earliest", "Earliest", ValueKind.DAY),
        ReportColumn("likely", "Likely", ValueKind.DAY),
        ReportColumn("latest", "Latest", ValueKind.DAY),
        ReportColumn("days_fitted", "Days it is based on", ValueKind.COUNT),
        ReportColumn("days_ahead", "Days looked ahead", ValueKind.COUNT),
        ReportColumn("finding", "", ValueKind.TEXT),
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Daily:
    """The load and the capacity of a day.

    Attributes:
        day: counted from 1970.
        busy: hours of run time.
        capacity: hours that the day's workers could have run.
        peak: the load of the busiest hour, as a share of its capacity; None: no worker ran.
    """

    day: int
    busy: float
    capacity: float
    peak: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """One measure of load, and its forecast.

    Attributes:
        name: the measure's name.
        now: its mean over the reported week, as a share of capacity.
        line: the line fitted to shares of today's capacity.
        crossings: when each of LEVELS is reached.
    """

    name: str
    now: float
    line: Fit
    crossings: tuple[Crossing, ...]


def section(rollups: Rollups) -> Section:
    """The answer."""
    days = daily_loads(rollups)
    recent = [one.capacity for one in days if one.day >= rollups.period.first_day and one.capacity > 0]
    if not recent:
        return QUESTION.answered(
            SectionState.UNKNOWN,
            "No worker is known to have run in the reported week, so there is no capacity.",
        )
    capacity = median(recent)
    now = sum(one.busy for one in days if one.day >= rollups.period.first_day) / sum(recent)
    if len(days) < FEWEST_DAYS:
        return QUESTION.answered(
            SectionState.UNKNOWN,
            f"Not enough days for a forecast: it takes {FEWEST_DAYS}, and the lake holds {len(days)} up to now. In the "
            f"reported week the workers were busy {words.share(now)} of their time.",
        )
    outlooks = outlook(days, capacity, rollups.period.until)
    return _answer_section(outlooks, days, capacity, rollups.period.until)


def daily_loads(rollups: Rollups) -> list[Daily]:
    """The load of each day that the lake holds."""
    rows = rollups.rows("loads", {"fewest_slots": HOUR_SECONDS / 2})
    found = {row.day: row for row in rows}
    return [_daily(day, found.get(day)) for day in rollups.period.days]


def outlook(days: Sequence[Daily], capacity: float, until: int) -> list[Outlook]:
    """The forecasts of the load: of whole days, and of the busiest hour of each."""
    lines = {
        "the whole day": [(one.day, one.busy / capacity) for one in days],
        "the busiest hour of the day": [(one.day, one.peak) for one in days if one.peak is not None],
    }
    found = []
    for name, points in lines.items():
        line = fit([day for day, _ in points], [value for _, value in points])
        recent = [value for day, value in points if day > until - WEEK_DAYS]
        if line is None or not recent:
            continue
        crossings = tuple(crossing(line, level, until) for level in LEVELS)
        found.append(Outlook(name=name, now=sum(recent) / len(recent), line=line, crossings=crossings))
    return found


def sentence(one: Outlook, level: float, crossed: Crossing, until: int) -> str:
    """A sentence that says when a measure reaches a level."""
    what, full = one.name.capitalize(), words.share(level)
    seen = words.some(one.line.days, "day")
    if one.now >= level:
        return f"{what} is at {words.share(one.now)} of capacity now, above {full}."
    if crossed.likely is None and crossed.earliest is None:
        return f"{what} stays below {full} of capacity as far as can be seen ({seen} ahead)."
    if crossed.likely is None:
        return (
            f"{what} is not expected to reach {full} of capacity in the {seen} that can be seen; a bad day could from "
            f"{words.day(crossed.earliest or until)} on."
        )
    earliest = words.day(crossed.earliest or crossed.likely)
    latest = f"by {words.day(crossed.latest)}" if crossed.latest else "not within what can be seen"
    return (
        f"{what} is expected to reach {full} of capacity on {words.day(crossed.likely)}; at the earliest on {earliest}, at "
        f"the latest {latest}."
    )


def _daily(day: int, row: Any) -> Daily:  # noqa: ANN401 - a row of the statement, or None
    if row is None:
        return Daily(day=day, busy=0.0, capacity=0.0, peak=None)
    return Daily(
        day=day,
        busy=(row.busy or 0.0) / HOUR_SECONDS,
        capacity=(row.slots or 0.0) / HOUR_SECONDS,
        peak=row.peak,
    )


def _answer_section(
    outlooks: Sequence[Outlook], days: Sequence[Daily], capacity: float, until: int
) -> Section:
    rows = [
        (one, level, crossed, sentence(one, level, crossed, until))
        for one in outlooks
        for level, crossed in zip(LEVELS, one.crossings, strict=True)
    ]
    soon = [
        said
        for one, level, crossed, said in rows
        if one.now >= level or (crossed.likely is not None and crossed.likely <= until + 28)
    ]
    first = soon[0] if soon else rows[0][-1] if rows else ""
    day = outlooks[0] if outlooks else None
    growth = "" if day is None else _growth(day)
    now = (
        ""
        if day is None
        else f"In the reported week the workers were busy {words.share(day.now)} of their time. "
    )
    return QUESTION.answered(
        SectionState.LOOK if soon else SectionState.OK,
        f"{now}{growth}{first}",
        findings=(said for *_, said in rows),
        rows=(_row(*one) for one in rows),
        plots=_plots(outlooks, days, capacity, until),
    )


def _growth(one: Outlook) -> str:
    low, middle, high = one.line.growth
    if low <= 0 <= high:
        return "There is no clear trend. "
    word = "grows" if middle > 0 else "falls"
    sizes = sorted((abs(low), abs(high)))
    return (
        f"The load {word} by {words.share(abs(middle))} a week "
        f"({words.share(sizes[0])} to {words.share(sizes[1])}). "
    )


def _row(one: Outlook, level: float, crossed: Crossing, said: str) -> tuple[Value, ...]:
    return (
        *(one.name, level, one.now, one.line.growth.middle),
        *(crossed.earliest, crossed.likely, crossed.latest, one.line.days, one.line.days, said),
    )


def _plots(outlooks: Sequence[Outlook], days: Sequence[Daily], capacity: float, until: int) -> Iterable[Plot]:
    for one in outlooks[:1]:
        line = one.line
        ahead = [
            (day, *(value * capacity for value in line.range(day)))
            for day in range(until + 1, until + 1 + line.days)
        ]
        yield Plot(
            title="Hours of run time a day, and where they go",
            says="Daily busy hours, the fitted line into the future with its range, and the levels of 80% and 100%.",
            draw=forecast([one.day for one in days], [one.busy for one in days], ahead, capacity),
        )
