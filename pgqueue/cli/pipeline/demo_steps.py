"""The pipeline's steps in the demo: jobs like a user's, except that the export runs with tomorrow's date."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, time, timedelta

from pgqueue.spark.pipeline_jobs import WORK, Surroundings, Work

SOON_AFTER = time(0, 5)


def tomorrow(now: datetime) -> datetime:
    """A few minutes after the next midnight, in UTC: then the jobs of ``now`` are closed history."""
    return datetime.combine(now.astimezone(UTC).date() + timedelta(days=1), SOON_AFTER, tzinfo=UTC)


def work(
    now: datetime, written: Callable[[str], object], answered: Callable[[str, str], object]
) -> Mapping[str, Work]:
    """What the steps do.

    Args:
        now: the time for the export, in place of the database's clock.
        written: called with the report's path.
        answered: called with each question that has findings, and its answer.
    """

    def export(given: Surroundings) -> str:
        from pgqueue.spark.lake.export import ExportOptions  # noqa: PLC0415 - PySpark
        from pgqueue.spark.lake.export import export as export_days  # noqa: PLC0415 - PySpark

        options = ExportOptions(now=now)
        done = export_days(given.session, given.database, given.lake, options=options, tell=given.check)
        files, size = sum(one.files for one in done), sum(one.bytes for one in done)
        rows = sum(one.history + one.dead for one in done)
        return f"{len(done)} days, {rows:,} rows, {files:,} files, {size / 1e6:,.0f} MB"

    def report(given: Surroundings) -> str:
        from pgqueue.spark.report.report import answers, write  # noqa: PLC0415 - PySpark

        # The real jobs ran within seconds: compared with the shop's days, that day looks idle.
        until = (now - timedelta(days=2)).date()
        found = write(answers(given.session(), given.lake, given.config, until=until), given.lake)
        for section in found.sections.values():
            if section.state == "look":
                answered(section.title, section.answer)
        written(found.html)
        return "1 page"

    return {**WORK, "export": export, "report": report}
