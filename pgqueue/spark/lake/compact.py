"""Compact: writes the small files of a day again as one.

Each export of late rows adds a file to a day. The rows stay the same, so the day keeps its generation, its record and its
verification, and no roll-up is made again. The former files are deleted a week later, with others that do not count.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date

from pgqueue.errors import LakeError
from pgqueue.spark.lake import checksum
from pgqueue.spark.lake.columns import ENDED, ENDED_SCHEMA
from pgqueue.spark.lake.database_rows import ORDER
from pgqueue.spark.lake.files import ROWS_PER_FILE, WrittenFile, rows_of
from pgqueue.spark.lake.lake import Lake
from pgqueue.spark.lake.records import EndedDay
from pgqueue.spark.lake.steps import WriterLock, lake_step
from pgqueue.spark.lake.table import DataFile
from pgqueue.store.connections.database import Database


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactedDay:
    """A day whose files were merged.

    Attributes:
        day: the UTC day.
        before: how many files it had.
        after: how many it has.
        rows: the rows that were written again.
    """

    day: date
    before: int
    after: int
    rows: int


def compact(
    database: Database,
    lake: Lake,
    *,
    rows_per_file: int = ROWS_PER_FILE,
    days: Collection[date] | None = None,
    tell: Callable[[CompactedDay], object] = lambda _: None,
) -> list[CompactedDay]:
    """Merge files of the same day into files with a bounded number of rows. A killed call can be repeated.

    Args:
        database: the lake's.
        lake: the lake.
        rows_per_file: the most rows of a merged file; as many are in memory at once.
        days: these days only.
        tell: called with each day that was changed.

    Returns:
        The days that were changed, oldest first.

    Raises:
        PipelineError: another process is writing to the lake.
        LakeError: a file cannot be read.
    """
    with lake_step(database, lake, "compact") as (lock, size):
        chosen = [entry for entry in lake.days() if days is None or entry.day in days]
        found = merge(lake, lock, chosen, rows_per_file, tell)
        size.days, size.rows = len(found), sum(one.rows for one in found)
    return found


def merge(
    lake: Lake,
    lock: WriterLock,
    entries: Iterable[EndedDay],
    rows_per_file: int,
    tell: Callable[[CompactedDay], object] = lambda _: None,
) -> list[CompactedDay]:
    """Merge the files of each of these days; see :func:`compact`.

    Args:
        lake: the lake.
        lock: the lock of its writer.
        entries: the days.
        rows_per_file: the most rows of a merged file.
        tell: called with each day that was changed.
    """
    found = []
    for entry in entries:
        groups = list(_groups(entry.files, rows_per_file))
        if not groups:
            continue
        written = [_merge_files(lake, entry, group) for group in groups]
        removed = [_below(file) for group in groups for file in group]
        lock.require_held()
        lake.table(ENDED).exchange(written, removed)
        lake.passed("compacted")
        found.append(_compacted_day(entry, written, removed))
        tell(found[-1])
    return found


def _groups(files: Sequence[DataFile], most: int) -> Iterator[list[DataFile]]:
    """Yield files to merge: small ones together, as long as their rows fit into one file."""
    group: list[DataFile] = []
    for file in sorted(files, key=lambda file: file.rows):
        if sum(one.rows for one in group) + file.rows > most:
            break  # all that follow are larger
        group.append(file)
    if len(group) > 1:
        yield group
        yield from _groups([file for file in files if file not in group], most)


def _merge_files(lake: Lake, entry: EndedDay, group: Sequence[DataFile]) -> WrittenFile:
    place, former = lake.folder.at(ENDED), [_below(file) for file in group]
    with checksum.errors():
        rows = rows_of(place, former, ENDED_SCHEMA).to_table()
    (written,) = lake.write_rows(ENDED, entry.day, rows.sort_by([(name, "ascending") for name in ORDER]))
    found = checksum.in_files(place, [written.path], ENDED_SCHEMA, 0)
    if found != checksum.in_files(place, former, ENDED_SCHEMA, 0):
        raise LakeError(f"day {entry.day} was written with other rows than it has: run it again")
    return written


def _compacted_day(entry: EndedDay, written: Sequence[WrittenFile], removed: Sequence[str]) -> CompactedDay:
    before = len(entry.files)
    return CompactedDay(
        day=entry.day,
        before=before,
        after=before - len(removed) + len(written),
        rows=sum(one.rows for one in written),
    )


def _below(file: DataFile) -> str:
    return file.path.removeprefix(f"{ENDED}/")
