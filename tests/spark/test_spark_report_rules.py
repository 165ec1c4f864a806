"""The report's rules, without Spark: what is planted is found, and a quiet background finds nothing, seed by seed."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from spark.report_worlds import HOURS, NOW, START, WEEKS, quiet, rhythm

from pgqueue.spark.report.rule_burst import storms
from pgqueue.spark.report.rule_crowd import Crowding, Sharing
from pgqueue.spark.report.rule_crowd import judge as judge_crowd
from pgqueue.spark.report.rule_events import events
from pgqueue.spark.report.rule_expected import WEEK, Floats, Hours
from pgqueue.spark.report.rule_forecast import Crossing, crossing, fit
from pgqueue.spark.report.rule_shift import RANKS, RunTimeSample, effect, windows
from pgqueue.spark.report.rule_shift import judge as judge_shift
from pgqueue.spark.report.rule_unusual import (
    FAILED,
    JOBS,
    SILENCE,
    WAIT,
    UnusualHour,
    count_week,
    far_enough,
    judge,
)

SEEDS = range(8)
KNOWN = np.ones(HOURS, dtype=np.bool_)
AT = NOW + 60
CHANGED = 20_751
"""2026-10-25, when Europe's clocks changed at 01:00 UTC, counted from 1970."""
TASKS = 40
"""Of the report that a task is judged in."""


def found(task: dict[str, Floats]) -> list[UnusualHour]:
    ran = task["jobs"] > 0
    hours = Hours(
        hour=(START + np.arange(HOURS))[ran], **{name: values[ran] for name, values in task.items()}
    )
    return [one for one in judge(hours, KNOWN, START) if abs(one.score) >= far_enough(TASKS)]


def kinds(task: dict[str, Floats]) -> list[tuple[str, int, bool]]:
    """Which metric, in which hour, and whether above the usual."""
    return [(one.metric, one.hour - START, one.score > 0) for one in found(task)]


# Unusual hours.


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("level", "growth"), [(0.3, 0.0), (5.0, 0.0), (200.0, 0.0), (20_000.0, 0.0), (500.0, 0.03)]
)
def test_a_quiet_task_has_no_unusual_hour(seed: int, level: float, growth: float) -> None:
    assert found(quiet(seed, level, growth)) == []


@pytest.mark.parametrize("seed", SEEDS)
def test_three_times_the_jobs_in_one_hour_are_found_and_nothing_else(seed: int) -> None:
    task = quiet(seed)
    task["jobs"][AT] *= 3
    task["attempts"][AT] = task["jobs"][AT] + task["failed"][AT]
    assert kinds(task) == [(JOBS, AT, True)]


def test_a_finding_says_what_was_and_what_is_usual() -> None:
    task = quiet(1)
    before = np.median(task["jobs"].reshape(WEEKS, WEEK)[:-1, 60])
    task["jobs"][AT] = 1_500
    (one,) = found(task)
    assert (one.value, one.weeks, one.hour) == (1_500, 8, START + AT)
    assert one.usual == pytest.approx(before, rel=0.1)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_quarter_of_the_jobs_is_found_too(seed: int) -> None:
    task = quiet(seed)
    at = NOW + 6
    for name in ("jobs", "attempts"):
        task[name][at] //= 6
    task["failed"][at] = 0
    assert kinds(task) == [(JOBS, at, False)]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_long_wait_is_found_and_a_doubled_one_of_milliseconds_is_not(seed: int) -> None:
    task = quiet(seed)
    task["wait"][AT] = 120
    assert kinds(task) == [(WAIT, AT, True)]
    task["wait"] /= 1_000
    assert found(task) == []


@pytest.mark.parametrize("seed", SEEDS)
def test_a_quarter_of_the_attempts_failing_is_found(seed: int) -> None:
    task = quiet(seed)
    task["failed"][AT] = task["attempts"][AT] // 4
    assert kinds(task) == [(FAILED, AT, True)]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_busy_task_that_falls_silent_is_found(seed: int) -> None:
    task = quiet(seed)
    for values in task.values():
        values[AT] = 0
    assert kinds(task) == [(SILENCE, AT, False)]


def nightly(missed: int | None, *, at: int = 3, late: bool = False) -> dict[str, Floats]:
    """One job every night, but for one night of the judged week."""
    jobs = (np.arange(HOURS) % 24 == at).astype(float)
    if missed is not None:
        hour = NOW + 24 * missed + at
        jobs[hour] = 0
        jobs[hour + 1] = float(late)
    return {"jobs": jobs, "attempts": jobs.copy(), "failed": jobs * 0, "wait": jobs * 2.0}


def test_a_nightly_task_that_did_not_run_one_night_is_silent() -> None:
    assert kinds(nightly(None)) == []
    assert kinds(nightly(2)) == [(SILENCE, NOW + 2 * 24 + 3, False)]


def test_a_nightly_task_that_ended_an_hour_late_is_not_silent() -> None:
    assert kinds(nightly(2, late=True)) == []


def test_counts_that_only_look_regular_are_not_by_the_clock() -> None:
    level = rhythm(3.0)
    jobs = np.floor(level + np.random.default_rng(1).uniform(-0.3, 0.3, HOURS))
    assert np.any(jobs[NOW:] == 0)
    assert found({"jobs": jobs, "attempts": jobs.copy(), "failed": jobs * 0, "wait": jobs * 0}) == []


def test_a_nightly_task_that_missed_a_night_weeks_ago_is_still_watched() -> None:
    task = nightly(2)
    task["jobs"][NOW - 2 * WEEK + 3] = 0
    assert kinds(task) == [(SILENCE, NOW + 2 * 24 + 3, False)]


def test_a_weekly_task_that_did_not_run_is_silent() -> None:
    jobs = (np.arange(HOURS) % WEEK == 50).astype(float)
    jobs[NOW + 50] = 0
    task = {"jobs": jobs, "attempts": jobs, "failed": jobs * 0, "wait": jobs}
    assert kinds(task) == [(SILENCE, NOW + 50, False)]


def test_an_hourly_task_that_missed_one_hour_is_silent_and_one_that_was_late_is_not() -> None:
    jobs = np.ones(HOURS)
    jobs[AT] = 0
    task = {"jobs": jobs, "attempts": jobs.copy(), "failed": jobs * 0, "wait": jobs}
    assert kinds(task) == [(SILENCE, AT, False)]
    jobs[AT + 1] = 2
    assert kinds(task) == []


@pytest.mark.parametrize("level", [0.05, 0.5, 3.0, 7.0, 10.0])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_task_whose_jobs_come_by_chance_is_never_silent(level: float, seed: int) -> None:
    jobs = np.random.default_rng(seed).poisson(level, HOURS).astype(float)
    assert found({"jobs": jobs, "attempts": jobs.copy(), "failed": jobs * 0, "wait": jobs * 0}) == []


def test_a_bad_week_in_the_past_does_not_hide_or_make_an_unusual_hour() -> None:
    task = quiet(3)
    past = slice(NOW - 3 * WEEK + 50, NOW - 3 * WEEK + 62)
    task["jobs"][past] = 0
    task["wait"][past] = 400
    assert kinds(task) == []
    task["jobs"][AT] *= 3
    assert kinds(task) == [(JOBS, AT, True)]


def test_two_former_weeks_are_too_few_to_judge_by() -> None:
    task = quiet(1)
    task["jobs"][: HOURS - 3 * WEEK] = 0
    task["jobs"][AT] *= 5
    assert found(task) == []
    task = quiet(1)
    task["jobs"][: HOURS - 4 * WEEK] = 0
    task["jobs"][AT] *= 5
    assert kinds(task) == [(JOBS, AT, True)]


def test_an_hour_with_two_former_weeks_is_not_judged_though_others_have_three() -> None:
    task = quiet(1)
    task["jobs"][: HOURS - 4 * WEEK + 100] = 0
    task["jobs"][AT] *= 5
    assert found(task) == []


@pytest.mark.parametrize(
    ("usual", "now", "expected"), [(10_000, 11_500, 0), (10_000, 14_000, 1), (40, 55, 0)]
)
def test_a_task_that_never_varies_may_vary_a_little(usual: float, now: float, expected: int) -> None:
    jobs = np.full(HOURS, float(usual))
    jobs[AT] = now
    task = {"jobs": jobs, "attempts": jobs.copy(), "failed": jobs * 0, "wait": jobs * 0}
    assert kinds(task) == [(JOBS, AT, True)] * expected


def test_a_dozen_jobs_at_an_hour_without_any_are_no_matter() -> None:
    task = nightly(None)
    task["jobs"][AT] = 15
    assert kinds(task) == []
    task["jobs"][AT] = 40
    assert kinds(task) == [(JOBS, AT, True)]


@pytest.mark.parametrize(("now", "expected"), [(7.5, 0), (9.0, 1)])
def test_a_wait_of_four_seconds_more_is_no_matter(now: float, expected: int) -> None:
    task = quiet(1)
    task["wait"][:] = 3.0
    task["wait"][AT] = now
    assert kinds(task) == [(WAIT, AT, True)] * expected


@pytest.mark.parametrize("seed", SEEDS)
def test_a_task_that_is_always_wild_has_no_unusual_hour(seed: int) -> None:
    task = quiet(seed)
    chance = np.random.default_rng(seed + 50)
    task["jobs"] = np.round(task["jobs"] * chance.lognormal(0, 0.4, HOURS))
    task["attempts"] = task["jobs"] + task["failed"]
    task["wait"] *= 20 * chance.lognormal(0, 0.4, HOURS)
    assert found(task) == []


def test_one_wait_of_few_jobs_is_not_judged() -> None:
    task = quiet(1, 4.0)
    task["jobs"][:] = task["attempts"][:] = 8
    task["failed"][:] = 0
    task["wait"][AT] = 500
    assert found(task) == []


def test_days_that_the_lake_does_not_hold_are_not_silence() -> None:
    task = quiet(1)
    task["jobs"][AT - 12 : AT + 12] = 0
    known = KNOWN.copy()
    known[AT - 12 : AT + 12] = False
    ran = task["jobs"] > 0
    hours = Hours(
        hour=(START + np.arange(HOURS))[ran], **{name: values[ran] for name, values in task.items()}
    )
    assert judge(hours, known, START) == []
    assert {one.metric for one in judge(hours, KNOWN, START)} == {SILENCE}


def test_a_picture_has_the_week_on_its_band() -> None:
    task = quiet(1)
    task["jobs"][AT] *= 3
    hours = Hours(hour=START + np.arange(HOURS), **task)
    week = count_week(hours, KNOWN, START)
    assert [int(at) for at in np.flatnonzero((week.jobs > week.high) | (week.jobs < week.low))] == [AT - NOW]


def in_growth(seed: int, growth: float, times: float) -> dict[str, Floats]:
    task = quiet(seed, 200.0, growth)
    at = slice(AT, AT + 3)
    task["jobs"][at] = np.round(task["jobs"][at] * times)
    task["failed"][at] = np.fmin(task["failed"][at], task["jobs"][at])
    task["attempts"][at] = task["jobs"][at] + task["failed"][at]
    return task


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("growth", [0.05, 0.1, 0.2, 0.5])
@pytest.mark.parametrize(("times", "metric"), [(3.0, JOBS), (2.0, JOBS), (0.3, JOBS), (0.0, SILENCE)])
def test_growth_hides_no_event(seed: int, growth: float, times: float, metric: str) -> None:
    found = kinds(in_growth(seed, growth, times))
    assert {(AT + hour, times > 1) for hour in range(3)} == {(at, up) for _, at, up in found}
    assert {name for name, _, _ in found} == {metric}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("ago", [4 * WEEK, WEEK * 5 // 2])
def test_a_step_of_the_load_is_nothing_unusual_later_and_hides_nothing(seed: int, ago: int) -> None:
    task = quiet(seed)
    for name in ("jobs", "attempts", "failed"):
        task[name][HOURS - ago :] *= 2
    assert kinds(task) == []
    for values in task.values():
        values[AT : AT + 3] = 0
    assert kinds(task) == [(SILENCE, AT + hour, False) for hour in range(3)]


def test_a_load_that_doubles_for_the_whole_week_is_one_event() -> None:
    task = quiet(1)
    for name in ("jobs", "attempts", "failed"):
        task[name][NOW:] *= 2
    (event,) = events((("mail", "send", one) for one in found(task)), TASKS)
    assert [(one.peak.metric, one.peak.score > 0, one.hours > 50) for one in event.episodes] == [
        (JOBS, True, True)
    ]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_small_task_that_falls_silent_for_long_is_found_by_what_it_missed(seed: int) -> None:
    jobs = np.random.default_rng(seed).poisson(5.0, HOURS).astype(float)
    jobs[AT : AT + 5] = 0
    task = {"jobs": jobs, "attempts": jobs, "failed": jobs * 0, "wait": jobs * 0}
    assert {(metric, up) for metric, _, up in kinds(task)} == {(SILENCE, False)}


@pytest.mark.parametrize("seed", SEEDS)
def test_silence_as_long_as_in_two_former_weeks_is_usual(seed: int) -> None:
    task = quiet(seed)
    for week in (0, 2, 5):
        for values in task.values():
            values[AT - week * WEEK : AT - week * WEEK + 3] = 0
    assert kinds(task) == []


def by_local_time(seed: int, level: float, since: int) -> tuple[dict[str, Floats], int]:
    """Nine weeks of a task that works from 7 to 18 o'clock in Berlin; they end some days after its clocks changed."""
    start = (CHANGED + since) * 24 - HOURS
    hours = start + np.arange(HOURS)
    clock = hours + np.where(hours >= CHANGED * 24 + 1, 1, 2)
    mean = level * np.where((clock % 24 >= 7) & (clock % 24 < 18), 1.0, 0.1)
    jobs = np.random.default_rng(seed).poisson(mean).astype(float)
    return {"jobs": jobs, "attempts": jobs.copy(), "failed": jobs * 0, "wait": jobs * 0}, start


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("since", [3, 8, 22])
@pytest.mark.parametrize("level", [20.0, 2_000.0])
def test_a_change_of_the_clocks_is_nothing_unusual(seed: int, level: float, since: int) -> None:
    task, start = by_local_time(seed, level, since)
    hours = Hours(hour=start + np.arange(HOURS), **task)
    assert [one for one in judge(hours, KNOWN, start) if abs(one.score) >= far_enough(TASKS)] == []
    if level > 1_000:
        task["jobs"][AT : AT + 2] *= 3
        assert {one.hour for one in judge(hours, KNOWN, start)} == {start + AT, start + AT + 1}


def test_a_holiday_is_one_event_of_the_whole_system_with_its_tasks() -> None:
    marked = []
    for seed in range(12):
        task = quiet(seed, 300.0)
        day = slice(NOW + 48, NOW + 72)
        for name in ("jobs", "attempts", "failed"):
            task[name][day] = np.floor(task[name][day] * 0.4)
        marked += [("mail", f"task-{seed}", one) for one in found(task)]
    (event,) = events(marked, 12)
    assert (event.tasks, event.whole, event.better) == (12, True, False)
    assert START + NOW + 48 <= event.first <= event.last < START + NOW + 72


def test_events_at_different_times_are_different_events() -> None:
    marked = []
    for seed, at in enumerate((AT, AT + 30)):
        task = quiet(seed)
        task["jobs"][at] *= 4
        marked += [("mail", f"task-{seed}", one) for one in found(task)]
    assert [one.tasks for one in events(marked, 20)] == [1, 1]


def test_the_more_tasks_a_report_has_the_farther_an_hour_must_be() -> None:
    (one,) = found(in_one_hour())
    just = one._replace(score=far_enough(40) + 0.01)
    assert len(events([("mail", "send", just)], 40)) == 1
    assert events([("mail", "send", just)], 80) == []


def in_one_hour() -> dict[str, Floats]:
    task = quiet(1)
    task["jobs"][AT] *= 4
    return task


# A shift of run times.


def sample(values: Floats, hours: int = 48) -> RunTimeSample:
    parts = np.array_split(values, hours)
    return RunTimeSample(
        runs=values.size,
        mean=float(values.mean()),
        quantiles=[float(one) for one in np.quantile(values, RANKS)],
        p50=float(np.quantile(values, 0.5)),
        p90=float(np.quantile(values, 0.9)),
        medians=[float(np.median(part)) for part in parts],
        tails=[float(np.quantile(part, 0.9)) for part in parts],
    )


def runs(seed: int, count: int = 5_000, *, times: float = 1.0, sigma: float = 0.6) -> Floats:
    """Run times around a second; what each hour brings scatters by a tenth."""
    chance = np.random.default_rng(seed)
    hourly = np.repeat(chance.lognormal(0, 0.1, 50), -(-count // 50))[:count]
    return times * hourly * chance.lognormal(0, sigma, count)


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize(("count", "sigma"), [(120, 0.6), (5_000, 0.6), (5_000, 0.02), (50_000, 1.5)])
def test_the_same_code_on_both_sides_is_no_shift(seed: int, count: int, sigma: float) -> None:
    former, later = (runs(2 * seed + side, count, sigma=sigma) for side in (0, 1))
    assert judge_shift(sample(former), sample(later)) is None


@pytest.mark.parametrize("seed", SEEDS)
def test_a_task_that_takes_twice_as_long_became_slower(seed: int) -> None:
    shift = judge_shift(sample(runs(seed)), sample(runs(seed + 100, times=2)))
    assert shift is not None
    assert (shift.slower, shift.typical) == (True, True)
    assert shift.ratio == pytest.approx(2, rel=0.15)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_task_that_takes_half_as_long_became_faster(seed: int) -> None:
    shift = judge_shift(sample(runs(seed)), sample(runs(seed + 100, times=0.5)))
    assert shift is not None
    assert (shift.slower, shift.typical) == (False, True)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_tail_that_grew_is_told_from_a_middle_that_moved(seed: int) -> None:
    later = runs(seed + 100)
    slow = np.random.default_rng(seed).random(later.size) < 0.2
    later[slow] *= 8
    shift = judge_shift(sample(runs(seed)), sample(later))
    assert shift is not None
    assert (shift.slower, shift.typical) == (True, False)


def test_one_bad_evening_after_a_deploy_is_not_the_deploys() -> None:
    later = runs(9)
    later[2_000:] *= 6  # most of the runs, and yet six hours of 48
    medians = [*sample(later[:2_000], 42).medians, *sample(later[2_000:], 6).medians]
    assert judge_shift(sample(runs(1)), replace(sample(later), medians=medians, tails=medians)) is None
    assert judge_shift(sample(runs(1)), sample(later)) is not None


def test_too_few_runs_are_no_evidence() -> None:
    assert judge_shift(sample(runs(1, 90)), sample(runs(2, 5_000, times=4))) is None


def test_microseconds_are_no_matter() -> None:
    assert judge_shift(sample(runs(1) / 1e4), sample(runs(2, times=3) / 1e4)) is None


def test_the_effect_is_the_share_of_pairs_with_ties_by_half() -> None:
    assert effect([1, 2, 3], [2, 2, 5]) == pytest.approx((1.5 + 1.5 + 3) / 9)
    assert effect([1, 1], [1, 1]) == 0.5


def test_windows_reach_to_the_neighbouring_deploys_in_whole_days() -> None:
    found, left = windows([(240, "b"), (100, "a"), (240, "c"), (395, "late")], first=0, end=400)
    assert left == 1
    assert [(one.hour, one.versions, one.hours, one.others) for one in found] == [
        (100, "a", 96, 0),
        (240, "b, c", 120, 0),
    ]


def test_a_window_is_a_day_at_least_though_another_deploy_lies_in_it() -> None:
    found, _ = windows([(100, "a"), (110, "b")], first=0, end=400)
    assert [(one.hours, one.others) for one in found] == [(24, 1), (24, 1)]


# Storms.


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("level", [3.0, 200.0, 20_000.0])
def test_usual_retries_are_no_storm(seed: int, level: float) -> None:
    task = quiet(seed, level)
    ran = task["jobs"] > 0
    assert storms((START + np.arange(HOURS))[ran], task["jobs"][ran], task["failed"][ran], begin=START) == []


@pytest.mark.parametrize("seed", SEEDS)
def test_hours_with_many_times_the_retries_are_one_storm(seed: int) -> None:
    task = quiet(seed)
    task["jobs"][AT : AT + 3] = 200
    task["failed"][AT : AT + 3] = [300, 500, 250]
    (storm,) = storms(START + np.arange(HOURS), task["jobs"], task["failed"], begin=START + NOW)
    assert (storm.first, storm.last, storm.retries, storm.jobs) == (START + AT, START + AT + 2, 1_050, 600)
    assert storm.expected == pytest.approx(600 * 0.02, rel=0.3)


def test_two_storms_with_a_day_between_are_two_and_a_pause_of_an_hour_is_none() -> None:
    task = quiet(1)
    for at in (AT, AT + 2, AT + 30):
        task["failed"][at] = task["jobs"][at] = 600
    told = storms(START + np.arange(HOURS), task["jobs"], task["failed"], begin=START + NOW)
    assert [(one.first - START, one.last - START) for one in told] == [(AT, AT + 2), (AT + 30, AT + 30)]


def test_a_task_that_always_retries_a_lot_is_not_stormy() -> None:
    chance = np.random.default_rng(1)
    jobs = np.full(HOURS, 100.0)
    assert storms(START + np.arange(HOURS), jobs, chance.poisson(150, HOURS).astype(float), begin=START) == []


# Tenants.


def shared(seed: int) -> dict[str, Floats]:
    """A queue with a tenant that takes a tenth, and others whose wait follows the time of day."""
    chance = np.random.default_rng(seed)
    load = rhythm(1_000) * chance.lognormal(0, 0.1, HOURS)
    jobs = np.fmax(1, np.round(load / 5))
    wait = (2 + 4 * load / 1_000) * chance.lognormal(0, 0.3, HOURS)
    own = 0.1 * load * chance.lognormal(0, 0.3, HOURS)
    return {"own_run": own, "other_run": load, "other_jobs": jobs, "other_wait": wait * jobs}


def crowding(queue: dict[str, Floats]) -> Crowding | None:
    return judge_crowd(Sharing(hour=START + np.arange(HOURS), **queue), begin=START + NOW)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("times", [1.0, 12.0])
def test_a_tenant_that_slows_nobody_does_not_crowd(seed: int, times: float) -> None:
    queue = shared(seed)
    queue["own_run"][NOW::11] *= 3 * times  # often big, at no cost to others
    assert crowding(queue) is None


@pytest.mark.parametrize("seed", SEEDS)
def test_a_tenant_that_slows_others_whenever_it_is_big_crowds(seed: int) -> None:
    queue = shared(seed)
    at = [NOW + 30, NOW + 31, NOW + 54, NOW + 80]
    queue["own_run"][at] = 20_000
    queue["other_wait"][at] = 60 * queue["other_jobs"][at]
    one = crowding(queue)
    assert one is not None
    assert one.hours == tuple(START + hour for hour in at)
    assert one.share > 0.9
    assert one.wait == pytest.approx(60)
    assert one.usual < 15
    assert one.cost == pytest.approx(
        sum((60 - one.usual) * queue["other_jobs"][hour] for hour in at), rel=0.05
    )


def test_one_hour_does_only_if_it_is_striking() -> None:
    queue = shared(1)
    queue["own_run"][AT] = 20_000
    queue["other_wait"][AT] = 25 * queue["other_jobs"][AT]
    assert crowding(queue) is None
    queue["other_wait"][AT] = 400 * queue["other_jobs"][AT]
    assert crowding(queue) is not None


@pytest.mark.parametrize(("others", "expected"), [(9.0, False), (10.0, True)])
def test_a_few_jobs_of_others_that_waited_are_no_evidence(others: float, *, expected: bool) -> None:
    queue = shared(1)
    at = [NOW + 30, NOW + 31, NOW + 54, NOW + 80]
    queue["own_run"][at] = 20_000
    queue["other_jobs"][at] = others
    queue["other_wait"][at] = 400 * others
    assert (crowding(queue) is not None) is expected


@pytest.mark.parametrize(("share", "expected"), [(0.7, False), (0.9, True)])
def test_a_tenant_is_big_by_its_own_usual_share(share: float, *, expected: bool) -> None:
    queue = shared(1)
    queue["own_run"] = queue["other_run"].copy()  # half of the queue's run time, as usual
    at = [NOW + 30, NOW + 31, NOW + 54, NOW + 80]
    queue["own_run"][at] *= share / (1 - share)
    queue["other_wait"][at] *= 20
    assert (crowding(queue) is not None) is expected


def test_a_queue_that_is_often_late_anyway_is_not_one_tenants_fault() -> None:
    queue = shared(2)
    late = slice(None, None, 3)
    queue["other_wait"][late] = 60 * queue["other_jobs"][late]
    big = np.arange(NOW, HOURS, 21)
    queue["own_run"][big] = 20_000
    assert crowding(queue) is None


def test_others_that_brought_the_load_themselves_are_not_crowded() -> None:
    queue = shared(3)
    at = [NOW + 30, NOW + 31, NOW + 54, NOW + 80]
    queue["own_run"][at] = 20_000
    queue["other_run"][at] *= 3
    queue["other_wait"][at] = 60 * queue["other_jobs"][at]
    assert crowding(queue) is None


# Forecasts.


def daily(count: int, *, growth: float, seed: int, noise: float = 0.01) -> tuple[list[int], list[float]]:
    """A load that grows by a share a week, with quiet weekends."""
    chance = np.random.default_rng(seed)
    days = [20_000 + number for number in range(count)]
    return days, [mean * float(np.exp(chance.normal(0, noise))) for mean in map(partial(_mean, growth), days)]


def _mean(growth: float, day: int) -> float:
    return float(0.4 * (1 + growth) ** ((day - 20_000) / 7) * (0.75 if (day + 3) % 7 >= 5 else 1.0))


def test_two_weeks_are_the_least_for_a_forecast() -> None:
    days, values = daily(14, growth=0, seed=1)
    assert fit(days[:13], values[:13]) is None
    assert fit(days, values) is not None


@pytest.mark.parametrize("seed", SEEDS)
def test_a_growing_load_crosses_when_it_should_and_within_its_range(seed: int) -> None:
    days, values = daily(56, growth=0.07, seed=seed)
    line = fit(days, values)
    assert line is not None
    exact = next(day for day in range(20_000, 20_500) if _mean(0.07, day) >= 0.8)
    when = crossing(line, 0.8, days[-1])
    assert when.likely is not None
    assert when.earliest is not None
    assert when.latest is not None
    assert when.earliest <= when.likely <= when.latest
    assert abs(when.likely - exact) <= 4
    low, middle, high = line.growth
    assert low < middle < high
    assert middle == pytest.approx(0.07, rel=0.1)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_level_load_crosses_nothing(seed: int) -> None:
    days, values = daily(56, growth=0.0, seed=seed)
    line = fit(days, values)
    assert line is not None
    assert crossing(line, 0.8, days[-1]) == Crossing(None, None, None)


@pytest.mark.parametrize("growth", [0.0, 0.05, 0.15])
def test_four_days_in_five_fall_into_the_range_at_every_growth(growth: float) -> None:
    inside = 0
    for seed in range(60):
        days, values = daily(112, growth=growth, seed=seed, noise=0.1)
        line = fit(days[:56], values[:56])
        assert line is not None
        ranges = map(line.range, days[56:])
        inside += sum(one.low <= value <= one.high for one, value in zip(ranges, values[56:], strict=True))
    assert 0.74 <= inside / (60 * 56) <= 0.86


def test_a_day_without_load_does_not_end_a_forecast() -> None:
    days, values = daily(56, growth=0.0, seed=1)
    line = fit(days, [0.0 if day % 30 == 0 else value for day, value in zip(days, values, strict=True)])
    assert line is not None
    assert 0.3 < line.range(days[-1] + 1).middle < 0.5
    assert fit(days, [0.0] * 56) is None


def test_no_forecast_reaches_further_than_the_past() -> None:
    days, values = daily(20, growth=0.07, seed=1)
    line = fit(days, values)
    assert line is not None
    assert crossing(line, 0.8, days[-1]).likely is None


def test_days_that_resemble_each_other_make_the_growth_less_certain() -> None:
    days = [20_000 + number for number in range(56)]
    apart = np.random.default_rng(1).normal(0, 0.03, 56)
    waves = 0.03 * np.sqrt(2) * np.sin(np.arange(56) / 5)
    plain, wavy = (fit(days, [0.5 + float(one) for one in noise]) for noise in (apart, waves))
    assert plain is not None
    assert wavy is not None
    assert wavy.growth.high - wavy.growth.low > 1.5 * (plain.growth.high - plain.growth.low)
