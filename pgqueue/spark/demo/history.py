"""Makes up history: refuses a schema in real use, then makes the days, several at a time.

:mod:`pgqueue.spark.demo.days` plans the days, :mod:`pgqueue.spark.demo.slots` runs their jobs, PostgreSQL makes the rows (``statements/*.sql``). Each day is one transaction, so the same call
repeated finishes an interrupted one.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import cache
from importlib.resources import files
from time import perf_counter
from typing import Any, NamedTuple

import msgspec

from pgqueue.errors import PipelineError
from pgqueue.spark.demo.days import CROWD_TENANT, FIRST_ID, IDS_A_DAY, TENANTS, Events, MadeUpDay, Wish
from pgqueue.spark.demo.planned import PlannedHistory, story
from pgqueue.spark.demo.world import FAILURES, TASKS
from pgqueue.store.arrays import numbers
from pgqueue.store.catalogue import in_schema
from pgqueue.store.connections.database import Database
from pgqueue.store.pipeline import lake
from pgqueue.values.version import __version__

_FAILURES = msgspec.json.encode({**FAILURES, **{task.name: task.failures for task in TASKS}}).decode()


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratedHistory:
    """The history that a call made.

    Attributes:
        first: the first day of the history.
        last: its last day.
        days: how many days were made by this call.
        rows: how many jobs ended on them.
        before: how many days existed already.
        seconds: how long it took.
        events: the events that a report should find.
    """

    first: date
    last: date
    days: int
    rows: int
    before: int
    seconds: float
    events: Events


class _Found(NamedTuple):
    """A day's made-up rows, and whether the day was exported to a lake."""

    day: date
    rows: int
    in_lake: bool


def last_closed_day(database: Database, *, now: datetime | None = None) -> date:
    """The last UTC day that an export would write now; ``now`` replaces the database's clock."""
    return lake.first_open_day(database.run(lake.horizon(now=now)).at, lake.MARGIN) - timedelta(days=1)


def generate(
    database: Database,
    wish: Wish,
    *,
    beside: bool = False,
    connections: int | None = None,
    told: Callable[[MadeUpDay], object] | None = None,
) -> GeneratedHistory:
    """Make up a history.

    Args:
        database: where to make it.
        wish: the history to make.
        beside: whether to make it also in a schema with real jobs.
        connections: how many days to make at a time; by default the number of processors.
        told: called with each day when it is made.

    Raises:
        PipelineError: the schema is in use for real jobs, or a day is not over, or holds another history.
    """
    since = perf_counter()
    database.verify()
    planned = story(wish)
    missing = _missing_days(database, planned, beside=beside)
    if missing:
        _prepare(database, planned)
        _make(database, planned, missing, connections or os.cpu_count() or 1, told or (lambda _: None))
    return GeneratedHistory(
        first=wish.first,
        last=wish.until,
        days=len(missing),
        rows=sum(day.rows for day in missing),
        before=wish.days - len(missing),
        seconds=perf_counter() - since,
        events=planned.events,
    )


def _missing_days(database: Database, planned: PlannedHistory, *, beside: bool) -> list[MadeUpDay]:
    ((today, used),) = _run(database, "ground", {"first_id": FIRST_ID})
    schema = database.catalogue.schema
    if planned.wish.until >= today:
        raise PipelineError(
            f"{planned.wish.until} is not over (the database says it is {today}, UTC); "
            "give an earlier day to --until"
        )
    if used and not beside:
        raise PipelineError(
            f'schema "{schema}" is in use: it holds or held real jobs. Made-up history would stay between '
            "them for good: use another database or --schema, or --force-beside if that is what you want"
        )
    days, first_ids = [day.day for day in planned.days], [day.first_id for day in planned.days]
    found = _run(database, "found", {"days": days, "first_ids": first_ids, "ids": IDS_A_DAY})
    return [day for day, there in zip(planned.days, found, strict=True) if not _is_there(day, _Found(*there))]


def _is_there(day: MadeUpDay, there: _Found) -> bool:
    if there.in_lake:
        raise PipelineError(
            f"{day.day} is in a lake already, and cannot be changed there; give another day to --until"
        )
    if there.rows not in {0, day.rows}:
        raise PipelineError(
            f"{day.day} holds {there.rows:,} made-up rows of another history; this history has {day.rows:,}: "
            "ask for the same rows, days, seed and skew as before, or for other days with --until"
        )
    return there.rows > 0 or day.rows == 0


def _prepare(database: Database, planned: PlannedHistory) -> None:
    wish, workers = planned.wish, planned.workers
    _run(database, "days", {"first": wish.first, "last": wish.until})
    releases = planned.events.releases
    instants, versions = [release.at for release in releases], [release.version for release in releases]
    _run(database, "deploys", {"instants": instants, "versions": versions})
    columns: dict[str, object] = {
        "ids": [one.id for one in workers],
        "started_at": [one.started_at for one in workers],
        "ended_at": [one.ended_at for one in workers],
        "concurrency": [one.concurrency for one in workers],
        "hosts": [one.host for one in workers],
        "version": __version__,
    }
    _run(database, "crew", columns)


def _make(
    database: Database,
    planned: PlannedHistory,
    days: Sequence[MadeUpDay],
    connections: int,
    told: Callable[[MadeUpDay], object],
) -> None:
    from pgqueue.spark.demo.slots import course_of  # noqa: PLC0415 - needs NumPy

    workers = [one.id for one in planned.workers]

    def make(day: MadeUpDay) -> None:
        course = course_of(day, planned.wish.seed)
        params = {
            **{name: numbers(values) for name, values in course._asdict().items()},
            "day": day.day,
            "first_id": day.first_id,
            "seed": planned.wish.seed,
            "cells": msgspec.json.encode(day.cells).decode(),
            "failures": _FAILURES,
            "workers": workers,
            "tenants": TENANTS,
            "crowd": CROWD_TENANT,
        }
        with database.connect() as connection, connection.transaction():
            connection.execute(_text(database, "settings"))
            connection.execute(_text(database, "day"), params)
        told(day)

    with ThreadPoolExecutor(connections, thread_name_prefix="pgqueue-generate") as pool:
        making = [pool.submit(make, day) for day in days]
        try:
            for one in wait(making, return_when=FIRST_EXCEPTION).done:
                one.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _run(database: Database, name: str, params: Mapping[str, object]) -> list[tuple[Any, ...]]:
    with database.connect() as connection:
        cursor = connection.execute(_text(database, name), params)
        return cursor.fetchall() if cursor.description else []


def _text(database: Database, name: str) -> bytes:
    return in_schema(_written(name), database.catalogue.schema).encode()


@cache
def _written(name: str) -> str:
    return (files("pgqueue.spark.demo") / "statements" / f"{name}.sql").read_text(encoding="utf-8")
