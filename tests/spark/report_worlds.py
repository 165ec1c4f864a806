"""Roll-ups made by hand for the report: nine weeks of a small shop, quiet or with trouble planted in the last ones."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pgqueue.spark.lake.columns import DEPLOY_SCHEMA, DEPLOYS
from pgqueue.spark.lake.lake import Lake
from pgqueue.spark.rollup.in_duckdb import make_sketches
from pgqueue.spark.rollup.tables import SCHEMAS
from pgqueue.store.pipeline.lake import Origin

Floats: TypeAlias = npt.NDArray[np.float64]
Rows: TypeAlias = list[dict[str, Any]]

WEEK = 168
WEEKS = 9
START = 479_976
HOURS = WEEKS * WEEK
NOW = HOURS - WEEK
"""The index of the first hour of the judged week."""

DAYS = [date(1970, 1, 1) + timedelta(days=START // 24 + number) for number in range(HOURS // 24)]
EVIL = "<script>alert('x')</script> & $x^2$\x07"
"""A queue's name that must stay text."""

TEMPLATES = 6
SPAN = 60
"""Runs in each template of a sketch."""


def rhythm(level: float) -> Floats:
    """A level by day and night, and half of it at weekends."""
    hours = np.arange(HOURS)
    daily = 1 + 0.7 * np.sin(2 * np.pi * hours / 24)
    weekly = np.where(hours // 24 % 7 >= 5, 0.5, 1.0)
    return level * daily * weekly


def quiet(seed: int, level: float = 200.0, growth: float = 0.0) -> dict[str, Floats]:
    """Nine weeks of a task: counts by chance around a rhythm, waits that scatter, one in fifty attempts failing."""
    chance = np.random.default_rng(seed)
    mean = rhythm(level) * (1 + growth) ** (np.arange(HOURS) / WEEK)
    jobs = chance.poisson(mean * chance.lognormal(0, 0.05, HOURS)).astype(float)
    failed = chance.binomial(jobs.astype(int), 0.02).astype(float)
    wait = 3 * (1 + mean / max(level, 1)) * chance.lognormal(0, 0.25, HOURS)
    return {"jobs": jobs, "attempts": jobs + failed, "failed": failed, "wait": wait}


@dataclass(frozen=True, kw_only=True)
class World:
    """What is in the roll-up tables.

    Attributes:
        tasks: by queue and task: jobs, attempts, failed and wait of every hour, and how many times as long runs take.
        failures: rows of ``failures``.
        tenants: rows of ``tenants``.
        busy: by hour, how much of the capacity is used.
        deploys: index of an hour, and a version.
        kept: the share of jobs that keep the promise of 0.99.
    """

    tasks: dict[tuple[str, str], dict[str, Floats]]
    failures: Rows
    tenants: Rows
    busy: Floats
    deploys: list[tuple[int, str]]
    kept: float


STORM, CROWD = NOW + 58, [NOW + 30, NOW + 31, NOW + 54, NOW + 80]
SURGE, MISSED, SLOWED = NOW + 10, NOW + 3 * 24 + 3, NOW - 3 * 24 + 11
"""Where trouble is planted: indices of hours."""


def world(seed: int, *, trouble: bool) -> World:
    """A quiet shop, or one with one trouble of each kind."""
    one = np.ones(HOURS)
    nightly = (np.arange(HOURS) % 24 == 3).astype(float)
    tasks = {
        ("mail", "send"): quiet(seed),
        ("mail", "digest"): {
            "jobs": nightly,
            "attempts": nightly.copy(),
            "failed": 0 * one,
            "wait": 2.0 * one,
        },
        ("hooks", "deliver"): quiet(seed + 1, 300),
        ("hooks", "ping"): quiet(seed + 2, 50),
        ("reports", "build"): quiet(seed + 3, 20),
        (EVIL, "größe ✉"): quiet(seed + 4, 2),
    }
    for task in tasks.values():
        task["slow"] = one.copy()
    busy = 0.3 * (1 + rhythm(0.2)) * np.random.default_rng(seed).lognormal(0, 0.15, HOURS)
    if trouble:
        _trouble(tasks)
        busy = busy + np.arange(HOURS) / HOURS * 0.35
    tenants = list(_tenants(seed, trouble=trouble))
    failures = list(_failures(tasks, trouble=trouble))
    deploys = [(NOW - 20 * 24 + 9, "v1"), (SLOWED, "v2")]
    kept = 0.97 if trouble else 0.995
    return World(tasks=tasks, failures=failures, tenants=tenants, busy=busy, deploys=deploys, kept=kept)


def _trouble(tasks: dict[tuple[str, str], dict[str, Floats]]) -> None:
    send, digest = tasks["mail", "send"], tasks["mail", "digest"]
    send["jobs"][SURGE] = send["attempts"][SURGE] = 3_000
    send["failed"][SURGE] = 60
    send["attempts"][SURGE] += 60
    digest["jobs"][MISSED] = digest["attempts"][MISSED] = 0
    tasks["reports", "build"]["slow"][SLOWED:] = 2.2
    for at in range(STORM, STORM + 3):
        tasks["hooks", "deliver"]["failed"][at] += 900
        tasks["hooks", "deliver"]["attempts"][at] += 900
        tasks["hooks", "ping"]["wait"][at] = 90


def _tenants(seed: int, *, trouble: bool) -> Iterator[dict[str, Any]]:
    chance = np.random.default_rng(seed)
    load = rhythm(900) * chance.lognormal(0, 0.05, HOURS)
    for at in range(HOURS):
        crowded = trouble and at in CROWD
        for tenant, part in (("acme", 0.2), ("bolt", 0.5), (EVIL, 0.3), (None, 0.1)):
            run = part * load[at]
            jobs = 1 + round(run / 4)
            wait = 60.0 if crowded else 5 * float(chance.lognormal(0, 0.2))
            if crowded and tenant == "acme":
                run = 30_000.0
            yield {
                "at": at,
                "queue": "mail",
                "tenant": tenant,
                "jobs": jobs,
                "run_seconds": run,
                "wait_seconds": wait * jobs,
                "wait_p90": wait,
                "cost": run * 0.01,
            }


def _failures(
    tasks: Mapping[tuple[str, str], dict[str, Floats]], *, trouble: bool
) -> Iterator[dict[str, Any]]:
    for (queue, task), values in tasks.items():
        for at in np.flatnonzero(values["failed"]):
            stormy = trouble and (queue, task) == ("hooks", "deliver") and STORM <= at < STORM + 3
            error, reason = ("HTTPError", "503 from ?") if stormy else ("ValueError", f"no {EVIL} in ?")
            yield {
                "at": int(at),
                "queue": queue,
                "task": task,
                "error_type": error,
                "reason": reason,
                "failures": int(values["failed"][at]),
                "jobs": int(values["failed"][at]),
                "dead": 0,
                "sample": f"sample of {reason}",
            }


def lake_of(folder: Path, made: World, *, first: int = 0) -> Lake:
    """A lake with a world's roll-ups from an hour on."""
    lake = Lake(folder)
    lake.create(Origin("1", 2, "pgqueue"))
    rows = {
        "hours": _hours(made),
        "failures": made.failures,
        "tenants": made.tenants,
        "workers": _workers(),
    }
    for table, found in rows.items():
        lake.replace_days(f"rollup/{table}", DAYS[first // 24 :], _table(found, table, first))
    deploys = [
        {"deployed_at": _instant(at), "version": version} for at, version in made.deploys if at >= first
    ]
    lake.replace(DEPLOYS, pa.Table.from_pylist(deploys, DEPLOY_SCHEMA))
    return lake


def _table(rows: Iterable[Mapping[str, Any]], table: str, first: int) -> pa.Table:
    ready = [
        {"day": _instant(row["at"]).date(), "hour": _instant(row["at"]), **row}
        for row in rows
        if row["at"] >= first
    ]
    return pa.Table.from_pylist(ready, SCHEMAS[table])


def _workers() -> Rows:
    row = {
        "worker_id": "w",
        "host": "h",
        "concurrency": 10,
        "alive_seconds": 3_600.0,
        "busy_seconds": 0.0,
        "utilisation": 0.0,
    }
    return [{"at": at, **row} for at in range(HOURS)]


class Template(NamedTuple):
    """How long the jobs of an hour ran; many hours share one."""

    mean: float
    quantiles: list[float]
    sketch: bytes

    @classmethod
    def of(cls, runs: Floats) -> "Template":
        sketched = make_sketches(pa.chunked_array([[runs.tolist()]]))
        return cls(float(runs.mean()), np.quantile(runs, (0.5, 0.9, 0.99)).tolist(), sketched[0].as_py())


def _hours(made: World) -> Iterator[dict[str, Any]]:
    """The hours; sketches are those of a few templates, times as slow as the world says."""
    templates: dict[tuple[int, float], Template] = {}
    chance = np.random.default_rng(0)
    for names, values in made.tasks.items():
        for at in np.flatnonzero(values["jobs"]):
            key = (int(at) % TEMPLATES, float(values["slow"][at]))
            if key not in templates:
                templates[key] = Template.of(key[1] * chance.lognormal(0, 0.5, SPAN))
            yield _hour(names, int(at), templates[key], made)


def _hour(names: tuple[str, str], at: int, template: Template, made: World) -> dict[str, Any]:
    (queue, task), values, (run_p50, run_p90, run_p99) = names, made.tasks[names], template.quantiles
    jobs, retries, wait = int(values["jobs"][at]), int(values["failed"][at]), float(values["wait"][at])
    promised = jobs if queue == "mail" else None
    return {
        "at": at,
        "queue": queue,
        "task": task,
        "jobs": jobs,
        "succeeded": jobs,
        "cancelled": 0,
        "dead": 0,
        "attempts": int(values["attempts"][at]),
        "retries": retries,
        "run_seconds": template.mean * SPAN,
        "wait_seconds": wait * jobs,
        "busy_seconds": float(made.busy[at]) * 36_000 if task == "send" else 0.0,
        "wait_p50": wait / 2,
        "wait_p90": wait,
        "wait_p99": wait * 2,
        "run_p50": run_p50,
        "run_p90": run_p90,
        "run_p99": run_p99,
        "slo_good": promised and round(made.kept * promised),
        "slo_total": promised,
        "slo_objective": promised and 0.99,
        "wait_sketch": template.sketch,
        "run_sketch": template.sketch,
    }


def _instant(at: int) -> datetime:
    return datetime.fromtimestamp((START + at) * 3_600, UTC)
