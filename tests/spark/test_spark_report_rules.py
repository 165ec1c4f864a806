"""The report's rules, without Spark: what is planted is found, and a quiet background finds nothing, seed by seed."""

import math
from dataclasses import replace

import numpy as np
import pytest
from spark.report_worlds import HOURS, NOW, START, WEEKS, quiet, rhythm

from pgqueue.spark.report.rule_burst import storms
from pgqueue.spark.report.rule_crowd import Crowding, Sharing
from pgqueue.spark.report.rule_crowd import judge as judge_crowd
from pgqueue.spark.report.rule_forecast import Crossing, crossing, fit, student
from pgqueue.spark.report.rule_shift import RANKS, RunTimeSample, effect, windows
from pgqueue.spark.report.rule_shift import judge as judge_shift
from pgqueue.spark.report.rule_unusual import (
    FAILED,
    JOBS,
    SILENCE,
    WAIT,
    WEEK,
    Floats,
    Hours,
    UnusualHour,
    count_week,
    judge,
)

SEEDS = range(8)
KNOWN = np.ones(HOURS, dtype=np.bool_)
AT = NOW + 60


def found(task: dict[str, Floats]) -> list[UnusualHour]:
    ran = task["jobs"] > 0
    hours = Hours(
        hour=(START + np.arange(HOURS))[ran], **{name: values[ran] for name, values in task.items()}
    )
    return judge(hours, KNOWN, START)


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
    assert (one.value, one.usual, one.weeks, one.hour) == (1_500, before, 8, START + AT)
    assert one.low <= one.usual <= one.high


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


def daily(count: int, *, slope: float, seed: int, noise: float = 0.01) -> tuple[list[int], list[float]]:
    """A line with quiet weekends."""
    chance = np.random.default_rng(seed)
    days = [20_000 + number for number in range(count)]
    values = [0.4 + slope * number - 0.1 * ((day + 3) % 7 >= 5) for number, day in enumerate(days)]
    return days, [value + chance.normal(0, noise) for value in values]


def test_two_weeks_are_the_least_for_a_forecast() -> None:
    days, values = daily(14, slope=0, seed=1)
    assert fit(days[:13], values[:13]) is None
    assert fit(days, values) is not None


@pytest.mark.parametrize("seed", SEEDS)
def test_a_growing_load_crosses_when_it_should_and_within_its_range(seed: int) -> None:
    days, values = daily(56, slope=0.005, seed=seed)
    line = fit(days, values)
    assert line is not None
    exact = next(20_000 + n for n in range(500) if 0.4 + 0.005 * n - 0.1 * ((20_003 + n) % 7 >= 5) >= 0.8)
    when = crossing(line, 0.8, days[-1])
    assert when.likely is not None
    assert when.earliest is not None
    assert when.latest is not None
    assert when.earliest <= when.likely <= when.latest
    assert abs(when.likely - exact) <= 4
    low, middle, high = line.growth
    assert low < middle < high
    assert middle == pytest.approx(0.035, rel=0.1)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_level_load_crosses_nothing(seed: int) -> None:
    days, values = daily(56, slope=0.0, seed=seed)
    line = fit(days, values)
    assert line is not None
    assert crossing(line, 0.8, days[-1]) == Crossing(None, None, None)


def test_four_days_in_five_fall_into_the_range() -> None:
    inside = 0
    for seed in range(60):
        days, values = daily(63, slope=0.002, seed=seed, noise=0.03)
        line = fit(days[:56], values[:56])
        assert line is not None
        inside += sum(
            abs(value - line.expected(day)) <= line.half(day)
            for day, value in zip(days[56:], values[56:], strict=True)
        )
    assert 0.74 <= inside / (60 * 7) <= 0.9


def test_no_forecast_reaches_further_than_the_past() -> None:
    days, values = daily(20, slope=0.005, seed=1)
    line = fit(days, values)
    assert line is not None
    assert crossing(line, 0.8, days[-1]).likely is None


def test_days_that_resemble_each_other_widen_the_range() -> None:
    days = [20_000 + number for number in range(56)]
    chance = np.random.default_rng(1)
    apart = chance.normal(0, 0.03, 56)
    waves = 0.03 * np.sqrt(2) * np.sin(np.arange(56) / 5)
    plain, wavy = (fit(days, [0.5 + float(one) for one in noise]) for noise in (apart, waves))
    assert plain is not None
    assert wavy is not None
    assert wavy.half(days[-1] + 1) > 1.5 * plain.half(days[-1] + 1)


@pytest.mark.parametrize(("freedom", "expected"), [(6, 1.440), (12, 1.356), (48, 1.299), (1_000, 1.282)])
def test_students_quantiles_are_those_of_the_tables(freedom: int, expected: float) -> None:
    assert math.isclose(student(0.9, freedom), expected, rel_tol=0.005)
