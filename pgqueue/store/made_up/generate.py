"""Plans that make up history: rows of past days, made inside PostgreSQL, and what is asked before.

What the rows are to be is decided elsewhere (:mod:`pgqueue.spark.made_up.days`); here a day is a JSON array of cells.
"""

from collections.abc import Mapping, Sequence
from datetime import date, datetime
from uuid import UUID

import msgspec

from pgqueue.store.plan import Statement, Steps, plan


class Ground(msgspec.Struct, frozen=True):
    """What a history would be put on.

    Attributes:
        today: by the database's clock, in UTC.
        used: whether the queue has ever been used for anything real.
    """

    today: date
    used: bool


class Found(msgspec.Struct, frozen=True):
    """What there is of a day.

    Attributes:
        day: which.
        rows: how many rows were made up.
        in_lake: whether the day has been taken to a lake.
    """

    day: date
    rows: int
    in_lake: bool


@plan
def ground(first_id: int) -> Steps[Ground]:
    """Look at the schema.

    Args:
        first_id: made-up jobs have ids from here on, real ones lower ones.
    """
    rows = yield Statement("made_up/ground", {"first_id": first_id})
    return Ground(*rows[0])


@plan
def found(days: Mapping[date, int], ids: int) -> Steps[list[Found]]:
    """Look which days are there.

    Args:
        days: each with the id before its first.
        ids: how many ids each has.
    """
    params = {"days": list(days), "first_ids": list(days.values()), "ids": ids}
    rows = yield Statement("made_up/found", params)
    return [Found(*row) for row in rows]


@plan
def prepare(first: date, last: date) -> Steps[None]:
    """Make the partitions of the days, where they are missing."""
    yield Statement("made_up/days", {"first": first, "last": last})


@plan
def deploys(instants: Sequence[datetime], versions: Sequence[str]) -> Steps[None]:
    """Note when which version went live."""
    yield Statement("made_up/deploys", {"instants": instants, "versions": versions}, returns=False)


@plan
def crew(workers: Mapping[str, Sequence[object]], version: str) -> Steps[None]:
    """Note who worked.

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
        day: which.
        first_id: the id before the day's first.
        seed: decides whatever differs from row to row.
        cells: what to make, a JSON array.
        failures: how attempts fail: a JSON object of arrays.
        workers: who worked; cells name them by their places.
        tenants: how many there are.
        crowd: the number of the one that crowds.
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
