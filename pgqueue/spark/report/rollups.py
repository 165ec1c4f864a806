"""Reads the report's data: the roll-up tables of some weeks, and nothing else.

DuckDB reads and reduces the tables in this process, by the statements in ``statements/``. What does not fit into memory it keeps on
the disk. Hours and days become whole numbers counted from 1970 in UTC, so no time zone of a session can shift them.
"""

from collections import defaultdict, namedtuple
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import dataset

from pgqueue.errors import InvalidOption, LakeError
from pgqueue.spark.lake.columns import DEPLOY_SCHEMA, DEPLOYS
from pgqueue.spark.report.rule_expected import WEEK, Flags
from pgqueue.spark.report.words import day_number, day_of, instant
from pgqueue.spark.rollup.in_duckdb import new_sketch, read_sketch
from pgqueue.spark.rollup.tables import SCHEMAS, folder

if TYPE_CHECKING:
    from pgqueue.spark.lake.lake import Lake

DAY = 24
HOUR_SECONDS = 3_600
WEEK_DAYS = 7
RECENT_DAYS = 28
MOST_WEEKS = 52
VIEWS = (
    "table every_hour as select * exclude (wait_sketch, run_sketch) replace ({hour}) from lake_hours",
    "table failures as select * replace ({hour}) from lake_failures",
    "table tenants as select * replace ({hour}) from lake_tenants",
    "table workers as select * replace ({hour}) from lake_workers",
    "view hours as from every_hour where jobs > 0",
    "view busy as select hour, sum(busy_seconds) as busy_seconds from every_hour group by hour",
)
"""What the statements read. Tables are read from the lake once, without the sketches, which are large."""
HOUR = "epoch_us(hour) // 3600000000 as hour"


@dataclass(frozen=True, kw_only=True)
class Period:
    """The reported week, and the earlier weeks with which it is compared.

    Attributes:
        until: the last day, counted from 1970.
        weeks: the number of earlier weeks.
        days: the days of all these weeks that the lake holds, ascending.
    """

    until: int
    weeks: int
    days: tuple[int, ...]

    @property
    def end(self) -> int:
        """The hour after the last one."""
        return (self.until + 1) * DAY

    @property
    def begin(self) -> int:
        """The first hour of the reported week."""
        return self.end - WEEK

    @property
    def start(self) -> int:
        """The first hour of the first earlier week."""
        return self.end - (self.weeks + 1) * WEEK

    def around(self, first: int, last: int) -> tuple[int, int]:
        """The range of a picture around some hours: its first hour, and the hour after its last."""
        begin = max(self.start, first // DAY * DAY - 2 * DAY)
        return begin, min(self.end, (last // DAY + 3) * DAY)

    @property
    def recent(self) -> int:
        """The first hour in which the report looks for deploys, storms and crowding."""
        return max(self.start, self.end - RECENT_DAYS * DAY)

    @property
    def first_day(self) -> int:
        """The first day of the reported week."""
        return self.until + 1 - WEEK_DAYS

    @property
    def known(self) -> Flags:
        """For every hour of all weeks, whether the lake holds its day."""
        there = np.isin(np.arange(self.start // DAY, self.until + 1), np.asarray(self.days, dtype=np.int64))
        return np.repeat(there, DAY)

    @property
    def reported(self) -> tuple[int, ...]:
        """The days of the reported week that the lake holds."""
        return tuple(day for day in self.days if day >= self.first_day)


class Group(NamedTuple):
    """The rows of a task, or of a tenant of a queue.

    Attributes:
        keys: their names, in the order of the statement.
        values: an array for each other column; null is NaN.
    """

    keys: tuple[str, ...]
    values: Mapping[str, npt.NDArray[Any]]


class Rollups:
    """The tables of some weeks; ``hour`` is counted from 1970.

    ============  =====================================================================
    ``hours``     by queue and task; no row for an hour in which no job ended
    ``busy``      by hour only: ``busy_seconds``, also of hours in which no job ended
    ``failures``  by queue, task and reason
    ``tenants``   by queue and tenant; null: jobs without one
    ``workers``   by worker
    ============  =====================================================================

    Attributes:
        period: their weeks.
        deploys: the hour and the version of each, of any time.
        currency: the currency of costs; may be empty.
    """

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, lake: "Lake", period: Period, currency: str = ""
    ) -> None:
        """Read the tables.

        Args:
            connection: where they are put.
            lake: where they are.
            period: the weeks to read.
            currency: the currency of costs; may be empty.
        """
        self.period = period
        self.currency = currency
        deploys = lake.rows(DEPLOYS, DEPLOY_SCHEMA).to_pylist()
        self.deploys = [
            (int(one["deployed_at"].timestamp()) // HOUR_SECONDS, one["version"]) for one in deploys
        ]
        self._connection = connection
        self._lake = lake
        for table in ("hours", "failures", "tenants", "workers"):
            connection.register(f"lake_{table}", self._of_days(table, period.days))
        for view in VIEWS:
            connection.execute(f"create {view.format(hour=HOUR)}")

    def rows(self, name: str, values: Mapping[str, object] | None = None, **tables: pa.Table) -> list[Any]:
        """The rows of a statement, with an attribute for each column.

        Args:
            name: the statement.
            values: of its parameters.
            tables: what it reads besides the roll-ups.
        """
        for table, given in tables.items():
            self._connection.register(table, given)
        found = self._connection.execute(_statement(name), values)
        kind: Any = namedtuple("Row", [column[0] for column in found.description])  # type: ignore[misc]  # noqa: PYI024 - the statement has the names
        return list(map(kind._make, found.fetchall()))

    def groups(self, name: str, values: Mapping[str, object] | None = None) -> Iterator[Group]:
        """The groups of a statement that makes a row of each: its keys, and lists."""
        batches = self._connection.sql(_statement(name), params=values).to_arrow_reader()
        lists = [field.name for field in batches.schema if pa.types.is_list(field.type)]
        keys = [field.name for field in batches.schema if field.name not in lists]
        for batch in batches:
            for row in range(batch.num_rows):
                arrays = {one: batch[one][row].values.to_numpy(zero_copy_only=False) for one in lists}
                yield Group(tuple(batch[key][row].as_py() for key in keys), arrays)

    def merged(self, column: str, by: Sequence[str], first: int, beyond: int) -> dict[tuple[str, ...], Any]:
        """The sketches of the hours from ``first`` to below ``beyond``, merged: one for each value of the columns ``by``."""
        merged: dict[tuple[str, ...], Any] = defaultdict(new_sketch)
        days = [day for day in self.period.days if first <= day * DAY + DAY - 1 and day * DAY < beyond]
        hour, sketch = pc.field("hour"), pc.field(column)
        wanted = (hour >= instant(first)) & (hour < instant(beyond)) & sketch.is_valid()
        for batch in self._of_days("hours", days).to_batches(columns=[*by, column], filter=wanted):
            for *key, found in zip(*(values.to_pylist() for values in batch.columns), strict=True):
                merged[tuple(key)].merge(read_sketch(found))
        return merged

    def _of_days(self, table: str, days: Iterable[int]) -> dataset.Dataset:
        return self._lake.dataset(folder(table), SCHEMAS[table], map(day_of, days))


@contextmanager
def opened(lake: "Lake", weeks: Period, currency: str = "") -> Iterator[Rollups]:
    """The tables of these weeks, until the block ends.

    Raises:
        LakeError: a file cannot be read.
    """
    try:
        with duckdb.connect() as connection:
            yield Rollups(connection, lake, weeks, currency)
    except (duckdb.Error, pa.ArrowException, OSError) as error:
        raise LakeError(f"{lake.uri} cannot be reported on: {' '.join(str(error).split())}") from error


def period(lake: "Lake", until: date | None, weeks: int) -> Period | None:
    """The days to report on; None: the lake is empty.

    Args:
        lake: the lake with the roll-ups.
        until: the last day; the newest by default.
        weeks: the number of earlier weeks to compare with.

    Raises:
        InvalidOption: the lake has no roll-ups of that day, or ``weeks`` is out of range.
        LakeError: there are jobs in the lake and no roll-ups of them.
    """
    if not 1 <= weeks <= MOST_WEEKS:
        raise InvalidOption(f"weeks={weeks}: compare with 1 to {MOST_WEEKS} former weeks")
    days = sorted(day_number(entry.day) for entry in lake.entries("rollup/hours") if entry.day is not None)
    if not days:
        if lake.days():
            raise LakeError(
                f"{lake.uri} has jobs and no roll-ups of them: run `pgqueue pipeline rollup` first"
            )
        return None
    last = days[-1] if until is None else day_number(until)
    if last not in days:
        raise InvalidOption(
            f"until={day_of(last)}: the lake has roll-ups of {day_of(days[0])} to {day_of(days[-1])}, and not of that day"
        )
    first = last + 1 - (weeks + 1) * WEEK_DAYS
    return Period(until=last, weeks=weeks, days=tuple(day for day in days if first <= day <= last))


@cache
def _statement(name: str) -> str:
    return (files("pgqueue.spark.report") / "statements" / f"{name}.sql").read_text(encoding="utf-8")
