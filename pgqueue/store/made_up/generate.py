"""Plans that make up history: PostgreSQL makes the rows of past days; other plans check the schema first.

:mod:`pgqueue.spark.made_up.days` decides what the rows are; here a day is a JSON array of cells.
"""

from collections.abc import Mapping, Sequence
from datetime import date, datetime
from uuid import UUID

import msgspec

from pgqueue.store.plan import Statement, Steps, plan


class Ground(msgspec.Struct, frozen=True):
    """The state of the schema before a history is made.

    Attributes:
        today: the UTC day of the database's clock.
        used: whether the queue was ever used for real jobs.
    """

    today: date
    used: bool


class Found(msgspec.Struct, frozen=True):
    """The state of a day.

    Attributes:
        day: the UTC day.
        rows: how many made-up rows it has.
        in_lake: whether the day was exported to a lake.
    """

    day: date
    rows: int
    in_lake: bool


@plan
def ground(first_id: int) -> Steps[Ground]:
    """Look at the schema.

    Args:
        first_id: the first id of made-up jobs; real jobs have lower ids.
    """
    rows = yield Statement("made_up/ground", {"first_id": first_id})
    return Ground(*rows[0])


@plan
def found(days: Mapping[date, int], ids: int) -> Steps[list[Found]]:
    """The state of the given days.

    Args:
        days: each with the id before its first id.
        ids: how many ids each has.
    """
    params = {"days": list(days), "first_ids": list(days.values()), "ids": ids}
    rows = yield Statement("made_up/found", params)
    return [Found(*row) for row in rows]


@plan
def prepare(first: date, last: date) -> Steps[None]:
    """Make the missing partitions of the days."""
    yield Statement("made_up/days", {"first": first, "last": last})


@plan
def deploys(instants: Sequence[datetime], versions: Sequence[str]) -> Steps[None]:
    """Record the deploys: time and version."""
    yield Statement("made_up/deploys", {"instants": instants, "versions": versions}, returns=False)


@plan
def crew(workers: Mapping[str, Sequence[object]], version: str) -> Steps[None]:
    """Record the workers.

    Args:
        workers: the columns ``ids``, ``started_at``, ``ended_at``, ``concurrency`` and ``hosts``.
        version: the release of pgqueue that they ran.
    """
    yield Statement("made_up/crew", {**workers, "version": version}, returns=False)


@plan(transaction=True)
def day(
    day: date,
    *,
    first_id: int,
    seed: int,
    cells: bytes,
    failures: bytes,
    workers: Sequence[UUID],
    tenants: int,
    crowd: int,
) -> Steps[None]:
    """Make the rows of a day, all or none.

    Args:
        day: the UTC day.
        first_id: the id before the day's first id.
        seed: decides the values that differ between rows.
        cells: what to make, a JSON array.
        failures: how attempts fail: a JSON object of arrays.
        workers: the workers; cells name them by their places in the list.
        tenants: the number of tenants.
        crowd: the number of the crowding tenant.
    """
    yield Statement("made_up/settings", {})
    params = {
        "day": day,
        "first_id": first_id,
        "seed": seed,
        "cells": cells.decode(),
        "failures": failures.decode(),
        "workers": workers,
        "tenants": tenants,
        "crowd": crowd,
    }
    yield Statement("made_up/day", params, returns=False)
