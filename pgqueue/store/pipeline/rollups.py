"""Plans that keep the roll-up tables and the list of deploys.

:mod:`pgqueue.spark.rollup.rollup` computes the figures; these plans replace a day's old figures with new ones.
"""

import re
from collections.abc import Iterable, Mapping
from datetime import date, datetime
from types import MappingProxyType

from pgqueue.store.catalogue import catalogue_of
from pgqueue.store.plan import Copy, Statement, Steps, plan
from pgqueue.values.insight.now import Deploy

TABLES = ("hours", "days", "failures", "tenants", "workers")
SENT = re.compile(r"copy \S+ \(([^)]+)\) from stdin")


def _statement_columns(table: str) -> tuple[str, ...]:
    """Return the columns that the table's statement sends, in its order: the statement is the only list of them."""
    text = catalogue_of("pgqueue")[f"pipeline/rollup_{table}"].decode()
    found = SENT.search(text)
    assert found is not None, text  # noqa: S101 - for the type checker: the file is ours
    return tuple(name.strip() for name in found[1].split(","))


ROLLUPS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {table: _statement_columns(table) for table in TABLES}
)
"""The roll-up tables, ``rollup_`` before each name, with their columns in the order in which they are sent."""


@plan(transaction=True)
def replace_day(day: date, made_from: str, rows: Mapping[str, Iterable[bytes]]) -> Steps[None]:
    """Replace a day's figures in one transaction: no reader sees half a day.

    Two callers that replace the same day do so one after the other.

    Args:
        day: a UTC day.
        made_from: the state of the lake and of the configuration from which the figures were made; see :func:`rollup_days`.
        rows: the rows of each of :data:`ROLLUPS` as CSV, in the order of its columns.
    """
    yield Statement("pipeline/rollup_note", {"day": day, "made_from": made_from}, returns=False)
    yield Statement("pipeline/rollup_clear", {"day": day}, returns=False)
    yield Copy("pipeline/rollup_hours", rows["hours"])
    yield Copy("pipeline/rollup_days", rows["days"])
    yield Copy("pipeline/rollup_failures", rows["failures"])
    yield Copy("pipeline/rollup_tenants", rows["tenants"])
    yield Copy("pipeline/rollup_workers", rows["workers"])


@plan
def rollup_days() -> Steps[dict[date, str]]:
    """The days in the roll-ups, and what each was made from."""
    return {row[0]: row[1] for row in (yield Statement("pipeline/rollup_made", {}))}


@plan
def note_deploy(version: str, *, at: datetime | None = None) -> Steps[Deploy]:
    """Record that a version went live.

    Args:
        version: any name for it.
        at: the time; by default now, on the database's clock. An earlier record of the same instant is replaced.
    """
    ((deployed_at,),) = yield Statement("pipeline/rollup_deployed", {"version": version, "at": at})
    return Deploy(deployed_at, version)
