"""What computes the roll-ups: DuckDB in this process for small days, Spark for large ones, from the same statements.

The statements (``statements/*.sql``) are in Spark's SQL. ``{name}`` in one is a table that is given to it, ``:name`` a value.
DuckDB runs them with macros for Spark's functions, see :mod:`pgqueue.spark.rollup.in_duckdb`.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import date
from functools import cache
from importlib.resources import files
from typing import Protocol, TypeVar

import pyarrow as pa

T = TypeVar("T")


class Engine(Protocol[T]):
    """Computes tables; ``T`` is what names one, computed or yet to compute."""

    def ended(self, days: Iterable[date]) -> T:
        """The ended jobs of some days; a day that is not in the lake gives no rows."""

    def failed(self, days: Iterable[date]) -> T:
        """Their failed attempts, as :data:`pgqueue.spark.rollup.attempts.FAILED`."""

    def of_days(self, table: str, days: Iterable[date]) -> T:
        """A roll-up table's rows of some days."""

    def workers(self) -> T:
        """All workers that ever ran."""

    def small(self, rows: pa.Table) -> T:
        """Rows that are made in this process."""

    def run(self, statement: str, /, values: Mapping[str, object] | None = None, **tables: T) -> T:
        """The result of a statement."""

    def kept(self, rows: T) -> AbstractContextManager[T]:
        """The same rows, computed only once within the block."""

    def fetched(self, rows: T) -> pa.Table:
        """A few rows, in this process."""

    def replace(
        self, table: str, days: Sequence[date], rows: T, made_from: Mapping[date, Mapping[str, str]]
    ) -> None:
        """Replace some days of a roll-up table with rows, in one commit."""


@cache
def statement(name: str) -> str:
    """The text of a statement, by its file's name."""
    return (files("pgqueue.spark.rollup") / "statements" / f"{name}.sql").read_text(encoding="utf-8")
