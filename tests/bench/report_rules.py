"""The report's rules beside statsmodels and ruptures, on the anomalies that the tests plant (docs/adr/notes.md).

Run it: ``pip install ruptures statsmodels``, then ``PYTHONPATH=tests python tests/bench/report_rules.py``. For each rule it prints how
many planted anomalies were found, how many were found where nothing is planted, and the CPU time of a judgement.
"""

import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeAlias

import click
import numpy as np
import ruptures
from spark.report_worlds import HOURS, NOW, START, WEEK, Floats, quiet
from spark.test_spark_report_rules import AT, daily, found, nightly, runs, sample
from statsmodels.api import GLM, OLS, families
from statsmodels.tsa.seasonal import STL

from pgqueue.spark.report.rule_burst import storms
from pgqueue.spark.report.rule_forecast import _row, crossing, fit
from pgqueue.spark.report.rule_shift import judge as judge_shift
from pgqueue.spark.report.rule_unusual import FAR, MATTERS_JOBS, MATTERS_SHARE_OF_JOBS

SEEDS = range(8)
Series: TypeAlias = dict[str, Floats]
Rule: TypeAlias = Callable[[Any], Any]


def main() -> None:
    """Compare, and print."""
    warnings.simplefilter("ignore")
    click.echo(f"{'rule':42} {'found':>9} {'false':>9} {'ms':>8}")
    no_hour: set[int] = set()
    rules: dict[str, Rule] = {
        "hours: ours": ours_hours,
        "hours: STL of statsmodels": stl,
        "hours: STL, one season for all weeks": partial(stl, seasonal=101),
    }
    for name, rule in rules.items():
        told(name, rule, list(planted_hours()), [(task, no_hour) for task in quiet_hours()])
    changed, same = list(planted_shifts()), [(pair, None) for pair in equal_sides()]
    told("deploys: ours", ours_shift, changed, same)
    for model, penalty in (("l2", 0.1), ("l2", 0.5), ("rbf", 3.0), ("rbf", 10.0)):
        told(f"deploys: Pelt of ruptures, {model}, {penalty}", pelt(model, penalty), changed, same)
    stormy, calm = list(planted_storms()), [(task, no_hour) for task in quiet_hours()]
    told("storms: ours", ours_storm, stormy, calm)
    told("storms: Poisson GLM of statsmodels", glm, stormy, calm)
    forecasts()


def told(name: str, rule: Rule, planted: Sequence[tuple[Any, Any]], clean: Sequence[tuple[Any, Any]]) -> None:
    """Print how a rule decides."""
    began = time.process_time()
    hits = sum(rule(what) == expected for what, expected in planted)
    false = sum(rule(what) != expected for what, expected in clean)
    each = (time.process_time() - began) * 1e3 / (len(planted) + len(clean))
    click.echo(f"{name:42} {hits:4}/{len(planted):4} {false:4}/{len(clean):4} {each:8.1f}")


# Unusual hours: which hours of the judged week have an unusual number of jobs.


def planted_hours() -> Iterable[tuple[Series, set[int]]]:
    for seed in SEEDS:
        for at, times in ((AT, 3.0), (NOW + 6, 1 / 6), (AT, 0.0)):
            task = quiet(seed)
            task["jobs"][at] = task["attempts"][at] = np.floor(task["jobs"][at] * times)
            task["failed"][at] = 0
            yield task, {at}
    for night in range(6):
        yield nightly(night), {NOW + 24 * night + 3}


def quiet_hours() -> Iterable[Series]:
    for level, growth in ((0.3, 0.0), (5.0, 0.0), (200.0, 0.0), (20_000.0, 0.0), (500.0, 0.03)):
        yield from (quiet(seed, level, growth) for seed in SEEDS)


def ours_hours(task: Series) -> set[int]:
    return {one.hour - START for one in found(task) if one.metric in {"jobs", "silence"}}


def stl(task: Series, seasonal: int = 7) -> set[int]:
    even = 2 * np.sqrt(task["jobs"] + 3 / 8)
    parts = STL(
        even, period=WEEK, seasonal=seasonal, robust=True, seasonal_jump=17, trend_jump=25, low_pass_jump=17
    ).fit()
    usual = np.square(np.fmax(parts.seasonal + parts.trend, 0) / 2)
    spread = max(1.0, 1.4826 * float(np.median(np.abs(parts.resid))))
    off = np.abs(task["jobs"] - usual)
    matters = off >= np.fmax(MATTERS_JOBS, MATTERS_SHARE_OF_JOBS * usual)
    far = (np.abs(parts.resid) >= FAR * spread) & matters
    return {int(at) for at in np.flatnonzero(far) if at >= NOW}


# Deploys: True: slower, False: faster, None: no change.


def planted_shifts() -> Iterable[tuple[tuple[Floats, Floats], bool | None]]:
    for seed in SEEDS:
        yield (runs(seed), runs(seed + 100, times=2)), True
        yield (runs(seed), runs(seed + 100, times=0.5)), False
        yield (runs(seed), runs(seed + 100, times=1.4)), True
        tail = runs(seed + 100)
        tail[np.random.default_rng(seed).random(tail.size) < 0.2] *= 8
        yield (runs(seed), tail), True


def equal_sides() -> Iterable[tuple[Floats, Floats]]:
    for count, sigma in ((120, 0.6), (5_000, 0.6), (5_000, 0.02), (50_000, 1.5)):
        yield from (
            (runs(2 * seed, count, sigma=sigma), runs(2 * seed + 1, count, sigma=sigma)) for seed in SEEDS
        )
    for seed in SEEDS:
        evening = runs(seed + 100)
        evening[-600:] *= 6  # six of 48 hours
        yield runs(seed), evening


def ours_shift(sides: tuple[Floats, Floats]) -> bool | None:
    shift = judge_shift(*map(sample, sides))
    return None if shift is None else shift.slower


def pelt(model: str, penalty: float) -> Rule:
    """Change points in the hourly medians or 90th percentiles: one within two hours of the deploy, by a fifth or more."""

    def judged(sides: tuple[Floats, Floats]) -> bool | None:
        samples = [sample(side) for side in sides]
        for name, least in (("medians", 1.2), ("tails", 1.3)):
            before, after = (np.log(getattr(one, name)) for one in samples)
            line = np.concatenate([before, after]).reshape(-1, 1)
            points = ruptures.Pelt(model=model, min_size=6).fit(line).predict(pen=penalty)
            change = float(np.median(after) - np.median(before))
            if any(abs(at - before.size) <= 2 for at in points[:-1]) and abs(change) >= np.log(least):
                return change > 0
        return None

    return judged


# Storms: which hours of the judged week are stormy.


def planted_storms() -> Iterable[tuple[Series, set[int]]]:
    for seed in SEEDS:
        for jobs, retries in ((200, (300, 500, 250)), (20, (40, 60, 30))):
            task = quiet(seed)
            task["jobs"][AT : AT + 3], task["failed"][AT : AT + 3] = jobs, retries
            yield task, {AT, AT + 1, AT + 2}


def ours_storm(task: Series) -> set[int]:
    ran = task["jobs"] > 0
    each = storms((START + np.arange(HOURS))[ran], task["jobs"][ran], task["failed"][ran], begin=START + NOW)
    return {hour - START for one in each for hour in one.hours}


def glm(task: Series) -> set[int]:
    ran = np.flatnonzero(task["jobs"] > 0)
    jobs, retries = task["jobs"][ran], task["failed"][ran]
    model = GLM(retries, np.ones((ran.size, 1)), family=families.Poisson(), offset=np.log(jobs)).fit(
        scale="X2"
    )
    far = model.resid_pearson / np.sqrt(model.scale) >= FAR
    many = (retries >= 20) & (retries >= 5 * np.fmax(model.mu, 1))
    return {int(at) for at in ran[far & many] if at >= NOW}


# Forecasts: how many of the days after it lie in the 80% range, and how far off the likeliest day of crossing is.


def forecasts() -> None:
    """Print how both forecast."""
    for name, ranges in {"forecast: ours": ours_ranges, "forecast: OLS of statsmodels": ols_ranges}.items():
        began = time.process_time()
        shares = [covered(ranges, alike) for alike in (0.0, 0.5, 0.8)]
        each = (time.process_time() - began) * 1e3 / (3 * 200)
        click.echo(
            f"{name:42} {' '.join(f'{one:.3f}' for one in shares)} of days in the 80% range {each:8.1f}"
        )
    days, values = daily(56, slope=0.005, seed=1)
    line = fit(days, values)
    assert line is not None
    alike = np.allclose(line.coefficients, ols(days, values).params)
    click.echo(f"the same line: {alike}, reaching 80% on {crossing(line, 0.8, days[-1])}")


def covered(ranges: Callable[..., tuple[Floats, Floats]], alike: float) -> float:
    """The share of days in the range, where each day's noise is ``alike`` times the day before's, and chance."""
    inside = 0
    for seed in range(200):
        days, values = daily(63, slope=0.002, seed=seed, noise=0.0)
        noise = np.random.default_rng(seed).normal(0, 0.03, 63)
        for at in range(1, 63):
            noise[at] += alike * noise[at - 1]
        low, high = ranges(days[:56], np.asarray(values[:56]) + noise[:56], days[56:])
        truth = np.asarray(values[56:]) + noise[56:]
        inside += int(np.sum((truth >= low) & (truth <= high)))
    return inside / (200 * 7)


def ours_ranges(days: Sequence[int], values: Sequence[float], ahead: Sequence[int]) -> tuple[Floats, Floats]:
    line = fit(days, values)
    assert line is not None
    middle, half = (np.array([each(day) for day in ahead]) for each in (line.expected, line.half))
    return middle - half, middle + half


def ols(days: Sequence[int], values: Sequence[float]) -> Any:
    return OLS(np.asarray(values), np.array([_row(day, days[0]) for day in days])).fit()


def ols_ranges(days: Sequence[int], values: Sequence[float], ahead: Sequence[int]) -> tuple[Floats, Floats]:
    frame = (
        ols(days, values)
        .get_prediction(np.array([_row(day, days[0]) for day in ahead]))
        .summary_frame(alpha=0.2)
    )
    return frame["obs_ci_lower"].to_numpy(), frame["obs_ci_upper"].to_numpy()


if __name__ == "__main__":
    main()
