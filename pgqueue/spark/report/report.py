"""The report of a week: asks every question, and writes the answers on one page and as tables.

DuckDB reads and reduces the roll-ups in this process. The page and the tables are written when all answers are complete, each in one
rename.
"""

from dataclasses import dataclass
from datetime import date
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
from pyarrow import parquet

from pgqueue.errors import LakeError
from pgqueue.spark.lake.folder import Folder
from pgqueue.spark.report import anomalies, capacity, failing, overview, regressions, tenants
from pgqueue.spark.report.rendering import check_out, page, place_of
from pgqueue.spark.report.rollups import Period, Rollups, opened, period
from pgqueue.spark.report.section import ReportColumn, ReportTable, Section, SectionState, Value, ValueKind
from pgqueue.spark.report.words import day_of, instant

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime
    from os import PathLike

    from pgqueue.spark.config import Config
    from pgqueue.spark.lake.lake import Lake

WEEKS = 8
"""The default number of earlier weeks with which the reported week is compared."""

QUESTIONS: tuple["Callable[[Rollups], Section]", ...] = (
    overview.overview,
    anomalies.section,
    regressions.section,
    failing.storms,
    tenants.crowding,
    capacity.section,
    overview.objectives,
    failing.failures,
    tenants.costs,
)
"""In the order of the page."""

SAID = 20
"""Sentences of a section in the summary."""


TYPES = {
    ValueKind.TEXT: pa.string(),
    ValueKind.COUNT: pa.int64(),
    ValueKind.NUMBER: pa.float64(),
    ValueKind.SECONDS: pa.float64(),
    ValueKind.SHARE: pa.float64(),
    ValueKind.MONEY: pa.float64(),
    ValueKind.HOUR: pa.timestamp("us", tz="UTC"),
    ValueKind.DAY: pa.date32(),
}
"""The types of values in Parquet."""


class SectionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A section, for programs.

    Attributes:
        title: the question.
        state: ``look``, ``ok`` or ``unknown``.
        answer: one or two sentences.
        findings: one sentence each, at most SAID.
        found: the number of all findings.
        table: its file below the lake; None: the lake is empty.
    """

    title: str
    state: str
    answer: str
    findings: list[str]
    found: int
    table: str | None


class ReportSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The report, for programs.

    Attributes:
        until: the last day; None: the lake is empty.
        weeks: the number of earlier weeks compared.
        days: how many days of all these weeks the lake holds.
        html: where the page is.
        sections: by name.
    """

    until: date | None
    weeks: int
    days: int
    html: str
    sections: dict[str, SectionRecord]


@dataclass(frozen=True, kw_only=True)
class Answers:
    """Every question's answer.

    Attributes:
        period: the weeks of the report; None: the lake is empty.
        sections: in the order of the page.
        weeks: the requested number of earlier weeks.
    """

    period: Period | None
    sections: tuple[Section, ...]
    weeks: int


def report(
    lake: "Lake",
    config: "Config",
    *,
    until: date | None = None,
    out: "str | PathLike[str] | None" = None,
    weeks: int = WEEKS,
) -> str:
    """Report on the week up to a day.

    Args:
        lake: with roll-ups in it.
        config: names the currency of costs.
        until: the last day of the week; the newest in the lake by default.
        out: the page's file or URI; ``report/report-<day>.html`` in the lake by default.
        weeks: the number of earlier weeks to compare with.

    Returns:
        The page's path or URI.

    Raises:
        InvalidOption: there are no roll-ups of that day, ``weeks`` is out of range, or ``out`` is a folder.
        LakeError: there is no lake, it cannot be read or written to, or it was never rolled up.
    """
    check_out(out, "week.html")
    return write(answers(lake, config, until=until, weeks=weeks), lake, out=out).html


def answers(lake: "Lake", config: "Config", *, until: date | None = None, weeks: int = WEEKS) -> Answers:
    """Ask every question; nothing is written.

    Raises:
        InvalidOption: as for :func:`report`.
        LakeError: as for :func:`report`.
    """
    lake.marker()
    about = period(lake, until, weeks)
    if about is None:
        return Answers(period=None, sections=(_empty(),), weeks=weeks)
    currency = config.cost.currency if config.cost else ""
    with opened(lake, about, currency) as rollups:
        sections = tuple(question(rollups) for question in QUESTIONS)
    return Answers(period=about, sections=sections, weeks=weeks)


def write(found: Answers, lake: "Lake", *, out: "str | PathLike[str] | None" = None) -> ReportSummary:
    """Write the page and the tables.

    Args:
        found: the answers.
        lake: its ``report`` folder gets the tables.
        out: the page's file or URI; in the lake by default.

    Raises:
        LakeError: one of them cannot be written.
    """
    html = page(found.sections, found.period, f"History of {lake.owner}")
    until = day_of(found.period.until) if found.period else None
    folder, name, shown = _place(lake, out, until)
    written = {
        table.name: _write_table(lake, table) for section in found.sections for table in section.tables
    }
    try:
        folder.write(name, html)
    except LakeError as error:
        raise LakeError(f"the page cannot be written to {shown}; choose another --out ({error})") from error
    return ReportSummary(
        until=until,
        weeks=found.weeks,
        days=len(found.period.days) if found.period else 0,
        html=shown,
        sections={section.name: _section_record(section, written) for section in found.sections},
    )


def _place(lake: "Lake", out: "str | PathLike[str] | None", until: date | None) -> tuple[Folder, str, str]:
    """Return the folder of the page, its name there, and its path or URI for people."""
    if out is None:
        name = f"report/report-{until or 'empty'}.html"
        return lake.folder, name, f"{lake.uri}/{name}".removeprefix("file://")
    shown = str(out) if "://" in str(out) else str(Path(out).expanduser().absolute())
    return *place_of(out), shown


def _empty() -> Section:
    return Section(
        name="overview",
        title="What happened?",
        state=SectionState.UNKNOWN,
        answer="The lake is empty: nothing has been exported and rolled up yet.",
        compared="Nothing.",
        advice="Run `pgqueue pipeline export` and `pgqueue pipeline rollup`, then this report again.",
    )


def _section_record(section: Section, written: dict[str, str]) -> SectionRecord:
    return SectionRecord(
        title=section.title,
        state=str(section.state),
        answer=section.answer,
        findings=list(section.findings[:SAID]),
        found=len(section.findings),
        table=next((written[table.name] for table in section.tables), None),
    )


def _write_table(lake: "Lake", table: ReportTable) -> str:
    """Replace a table's file in one rename; return its path below the lake."""
    path = f"report/{table.name}/{table.name}.parquet"
    data = BytesIO()
    parquet.write_table(_in_arrow(table), data)
    lake.folder.write(path, data.getvalue())
    return path


def _in_arrow(table: ReportTable) -> pa.Table:
    arrays = [
        pa.array([_storable_value(row[index], column) for row in table.rows], TYPES[column.kind])
        for index, column in enumerate(table.columns)
    ]
    return pa.Table.from_arrays(arrays, names=[column.name for column in table.columns])


def _storable_value(value: Value, column: ReportColumn) -> "Value | date | datetime":
    if value is None or isinstance(value, str):
        return value
    if column.kind is ValueKind.HOUR:
        return instant(int(value))
    return day_of(int(value)) if column.kind is ValueKind.DAY else value
