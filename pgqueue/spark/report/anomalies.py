"""Which hours were unusual? Each task against what its own earlier weeks let expect.

The rule is ``rule_unusual``; ``rule_events`` joins what it finds to events.
"""

from collections.abc import Iterable, Iterator, Sequence
from heapq import nsmallest

from pgqueue.spark.report import words
from pgqueue.spark.report.plots import usual_week
from pgqueue.spark.report.rollups import Period, Rollups
from pgqueue.spark.report.rule_events import Episode, Event, events
from pgqueue.spark.report.rule_expected import FEWEST_WEEKS, Hours
from pgqueue.spark.report.rule_unusual import (
    JOBS,
    MATTERS_JOBS,
    SILENCE,
    WAIT,
    UnusualHour,
    count_week,
    judge,
)
from pgqueue.spark.report.section import Plot, Question, ReportColumn, Section, SectionState, Value, ValueKind

MOST_HOURS = 5_000
"""The most unusual hours that are kept, those with the highest scores."""

DRAWN = 3
NAMED = 3
"""Tasks of an event that its sentence names."""
QUESTION = Question(
    name="anomalies",
    title="What was unusual?",
    compared=(
        "Each hour of each task in the reported week with what the same weekday and hour of earlier weeks, and the growth "
        "of the load, let expect: how many jobs ended, how long one in ten of them waited, which share of attempts "
        "failed, and whether the task fell silent. An hour counts if chance does not explain it (one quiet report in 20 "
        "has a false finding), if not more than one earlier week was nearly as unusual, and if the difference matters: "
        "20 jobs and 30%; 5 seconds and twice; 5 percentage points and 5 attempts. Hours of many tasks at once are one "
        "event. What the rule can find, tried on made-up histories with 40 tasks: of a task with 200 jobs an hour, a stop or "
        "three times the jobs for 3 hours in 100 of 100, with growth of 0 to 20% a week; of a task with 5 jobs an hour, a "
        "stop in 25 of 25 and three times the jobs in 21 of 25; of one with 2 jobs an hour, neither."
    ),
    advice=(
        "For silence, check that the enqueuer runs and that workers serve the queue. For longer waits, see the "
        "sections on crowding and capacity. For failures, see their reasons below."
    ),
    caption="Times at which a task was out of line, worst first",
    columns=(
        ReportColumn("event", "Event", ValueKind.COUNT),
        ReportColumn("queue", "Queue", ValueKind.TEXT),
        ReportColumn("task", "Task", ValueKind.TEXT),
        ReportColumn("first_hour", "From (UTC)", ValueKind.HOUR),
        ReportColumn("hours", "Hours", ValueKind.COUNT),
        ReportColumn("metric", "", ValueKind.TEXT),
        ReportColumn("value", "", ValueKind.NUMBER),
        ReportColumn("usual", "", ValueKind.NUMBER),
        ReportColumn("score", "", ValueKind.NUMBER),
        ReportColumn("former_weeks", "Former weeks", ValueKind.COUNT),
        ReportColumn("last_hour", "", ValueKind.HOUR),
        ReportColumn("finding", "What happened", ValueKind.TEXT),
    ),
)


def unusual_hours(rollups: Rollups) -> tuple[list[tuple[str, str, UnusualHour]], int]:
    """The unusual hours of the reported week with the highest scores: queue, task, finding; and how many tasks were judged."""
    known, start = rollups.period.known, rollups.period.start
    judged = [(queue, task, judge(hours, known, start)) for queue, task, hours in _tasks(rollups)]
    found = ((queue, task, one) for queue, task, unusual in judged for one in unusual)
    most = nsmallest(MOST_HOURS, found, key=lambda one: (-abs(one[2].score), one[2].hour, *one[:2]))
    return most, len(judged)


def section(rollups: Rollups) -> Section:
    """The answer."""
    if not _comparable(rollups.period):
        return QUESTION.answered(
            SectionState.UNKNOWN,
            f"Not enough weeks to tell: an hour is compared with the same weekday and hour of {FEWEST_WEEKS} former weeks "
            f"or more, and the lake holds {words.some(len(rollups.period.days), 'day')} up to now.",
        )
    hours, tasks = unusual_hours(rollups)
    found = events(hours, tasks)
    if not found:
        return QUESTION.answered(
            SectionState.OK, "No task had an hour that its former weeks do not let expect."
        )
    sentences = tuple(event_sentence(one, tasks) for one in found)
    bad = sum(1 for one in found if not one.better)
    better = f" {words.some(len(found) - bad, 'change')} for the better." if bad < len(found) else ""
    often = (
        ("Nothing was out of line", "Once, something was")[bad]
        if bad <= 1
        else f"{words.count(bad)} times, something was"
    )
    answer = f"{often}{' out of line' if bad else ''} with former weeks.{better}"
    return QUESTION.answered(
        SectionState.LOOK if bad else SectionState.OK,
        f"{answer} First: {sentences[0]}",
        findings=sentences,
        rows=_rows(found),
        plots=_plots(rollups, [episode for one in found for episode in one.episodes]),
    )


def event_sentence(one: Event, tasks: int) -> str:
    """A sentence or two that say what happened; of many tasks, what happened to the worst."""
    if one.tasks == 1:
        return " ".join(sentence(episode) for episode in one.episodes)
    worst = one.episodes[0]
    names = dict.fromkeys(words.task_of(episode.queue, episode.task) for episode in one.episodes)
    others = words.list_text(list(names)[1:], NAMED)
    where = "The whole system" if one.whole else "Many tasks" if one.tasks > NAMED else "Several tasks"
    return (
        f"{where}, {words.hours(one.first, one.last)}: {words.count(one.tasks)} of {words.some(tasks, 'task')} were out of "
        f"line at once, so look for one cause, such as a holiday, workers that were down, a slow database or a service that "
        f"they all call. The worst: {sentence(worst)} The others: {others}."
    )


def sentence(one: Episode) -> str:
    """A sentence that says what happened."""
    peak, where = one.peak, words.task_of(one.queue, one.task)
    when, most = words.hours(one.first, one.last), "" if one.hours == 1 else " at the peak"
    if peak.metric == SILENCE:
        return f"{where} was silent, {when}: no job ended; usually {words.some(peak.usual, 'job')} in such an hour."
    if peak.metric == JOBS:
        more = "more" if peak.score > 0 else "fewer"
        return (
            f"{where} ended {more} jobs than usual, {when}: {words.count(peak.value)} in an hour{most}; "
            f"usually {words.count(peak.usual)}."
        )
    if peak.metric == WAIT:
        longer = "longer" if peak.score > 0 else "less"
        return (
            f"Jobs of {where} waited {longer} than usual, {when}: one in ten over {words.span(peak.value)}{most}; "
            f"usually {words.span(peak.usual)}."
        )
    often = "more" if peak.score > 0 else "less"
    return (
        f"{where} failed {often} often than usual, {when}: {words.share(peak.value)} of attempts{most}; "
        f"usually {words.share(peak.usual)}."
    )


def _comparable(period: Period) -> bool:
    """Whether any weekday of the reported week has enough earlier weeks."""
    return any(
        sum(day - 7 * week in period.days for week in range(1, period.weeks + 1)) >= FEWEST_WEEKS
        for day in period.reported
    )


def _tasks(rollups: Rollups) -> Iterator[tuple[str, str, Hours]]:
    """Every task's hours: queue, task, hours."""
    for (queue, task), found in rollups.groups("task_hours"):
        yield (
            queue,
            task,
            Hours(**{name: found[name] for name in ("hour", "jobs", "attempts", "failed", "wait")}),
        )


def _rows(found: Sequence[Event]) -> Iterable[tuple[Value, ...]]:
    """The worst row of each event, then the others."""
    placed = [
        (place > 0, number, episode)
        for number, one in enumerate(found, start=1)
        for place, episode in enumerate(one.episodes)
    ]
    for _, number, one in sorted(placed, key=lambda row: row[:2]):
        peak = one.peak
        yield (
            *(number, one.queue, one.task, one.first, one.hours, peak.metric, peak.value, peak.usual),
            *(peak.score, peak.weeks, one.last, sentence(one)),
        )


def _drawable(peak: UnusualHour) -> bool:
    # One job a night makes no picture.
    return peak.metric in {JOBS, SILENCE} and max(peak.usual, peak.value) >= MATTERS_JOBS


def _plots(rollups: Rollups, episodes: Sequence[Episode]) -> Iterable[Plot]:
    period = rollups.period
    wanted = list(dict.fromkeys((one.queue, one.task) for one in episodes if _drawable(one.peak)))
    chosen = wanted[:DRAWN]
    if not chosen:
        return
    hours_of = {(queue, task): hours for queue, task, hours in _tasks(rollups) if (queue, task) in chosen}
    for queue, task in chosen:
        hours = hours_of[queue, task]
        where = words.task_of(queue, task)
        marked = [
            hour
            for one in episodes
            if (one.queue, one.task) == (queue, task) and _drawable(one.peak)
            for hour in range(one.first, one.last + 1)
        ]
        yield Plot(
            title=f"{where}: jobs that ended, by hour",
            says=f"The reported week of {where} as a line, on the band of what is usual; marked where it leaves it.",
            draw=usual_week(period.begin, count_week(hours, period.known, period.start), marked),
        )
