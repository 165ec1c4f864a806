"""Decides which of Spark's filters PostgreSQL evaluates, and which days remain.

PostgreSQL gets a filter only if it decides it exactly as Spark would; all others are returned to Spark. So text is
compared for equality only (its order depends on the database's collation), JSON is not compared, and a filter whose
value has another type than the column is returned.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime

from pyspark.sql import datasource as spark

from pgqueue.store.pipeline.extract_tables import ColumnKind, SparkTable
from pgqueue.store.pipeline.extract_where import ColumnCondition, Operator

COMPARED: dict[type[spark.Filter], Operator] = {
    spark.EqualTo: Operator.EQUAL,
    spark.EqualNullSafe: Operator.SAME,
    spark.LessThan: Operator.LESS,
    spark.LessThanOrEqual: Operator.AT_MOST,
    spark.GreaterThan: Operator.MORE,
    spark.GreaterThanOrEqual: Operator.AT_LEAST,
}
ORDERED = {Operator.LESS, Operator.AT_MOST, Operator.MORE, Operator.AT_LEAST}
IN_ORDER = {ColumnKind.BIGINT, ColumnKind.INTEGER, ColumnKind.SMALLINT, ColumnKind.TIMESTAMP, ColumnKind.DATE}
PYTHON = {
    ColumnKind.BIGINT: int,
    ColumnKind.INTEGER: int,
    ColumnKind.SMALLINT: int,
    ColumnKind.BOOLEAN: bool,
    ColumnKind.TEXT: str,
    ColumnKind.TIMESTAMP: datetime,
    ColumnKind.DATE: date,
}


def pushed_condition(table: SparkTable, found: spark.Filter) -> ColumnCondition | None:
    """A filter as a condition for PostgreSQL; None: Spark evaluates it."""
    if isinstance(found, spark.Not):
        inner = pushed_condition(table, found.child)
        return None if inner is None else replace(inner, negated=not inner.negated)
    path: tuple[str, ...] = getattr(found, "attribute", ())
    kind = table.columns.get(path[0]) if len(path) == 1 else None
    if kind is None or kind is ColumnKind.JSON:
        return None
    return _column_condition(path[0], kind, found)


def _column_condition(column: str, kind: ColumnKind, found: spark.Filter) -> ColumnCondition | None:
    match found:
        case spark.IsNull():
            return ColumnCondition(column, Operator.IS_NULL)
        case spark.IsNotNull():
            return ColumnCondition(column, Operator.IS_NULL, negated=True)
        case spark.In():
            return _exactly(ColumnCondition(column, Operator.IN, tuple(found.value)), kind)
    operator = COMPARED.get(type(found))
    if operator is None or (operator in ORDERED and kind not in IN_ORDER):
        return None
    return _exactly(ColumnCondition(column, operator, (found.value,)), kind)  # type: ignore[attr-defined]  # all of COMPARED have one


def _exactly(condition: ColumnCondition, kind: ColumnKind) -> ColumnCondition | None:
    said = bool(condition.values) and all(_tellable(value, kind) for value in condition.values)
    return condition if said else None


def _tellable(value: object, kind: ColumnKind) -> bool:
    if type(value) is not PYTHON[kind]:
        return False
    if isinstance(value, datetime):
        return value.tzinfo is not None
    return not (isinstance(value, str) and "\0" in value)  # PostgreSQL's text cannot hold NUL


@dataclass(frozen=True)
class Days:
    """The UTC days on which the wanted jobs can have ended.

    Attributes:
        first: the first day; None: no limit.
        last: the last day; None: no limit.
        among: these days only; None: all between.
    """

    first: date | None = None
    last: date | None = None
    among: frozenset[date] | None = None

    def __contains__(self, day: date) -> bool:
        return (
            (self.first is None or self.first <= day)
            and (self.last is None or day <= self.last)
            and (self.among is None or day in self.among)
        )

    def also(self, *, first: date | None = None, last: date | None = None) -> "Days":
        """These days, further limited by a first and a last day."""
        return replace(
            self,
            first=max(filter(None, (self.first, first)), default=None),
            last=min(filter(None, (self.last, last)), default=None),
        )

    def only(self, days: Iterable[date]) -> "Days":
        """These days, further limited to the given ones."""
        among = frozenset(days)
        return replace(self, among=among if self.among is None else self.among & among)


def days_of(table: SparkTable, conditions: Iterable[ColumnCondition]) -> Days:
    """The days that conditions leave; only conditions on the day or the time of a job's end matter."""
    left = Days()
    for condition in conditions:
        if condition.column in {"day", table.ended} and not condition.negated:
            left = _narrow_days(left, condition)
    return left


def _narrow_days(left: Days, condition: ColumnCondition) -> Days:
    days = [
        value.astimezone(UTC).date() if isinstance(value, datetime) else value for value in condition.values
    ]
    match condition.operator:
        case Operator.EQUAL | Operator.SAME | Operator.IN:
            return left.only(days)
        case Operator.LESS | Operator.AT_MOST:
            return left.also(last=days[0])
        case Operator.MORE | Operator.AT_LEAST:
            return left.also(first=days[0])
    return left
