"""Convert: brings a lake of an earlier release to Delta tables, in its place. Needs no Spark.

There, a manifest for each day of each table named the files that count, and the folders of ended jobs had the queue's name. Each
day is written again, with the queue as a column, and committed under the generation that it had. The lake's marker changes last:
until then the earlier release can use the lake, and a conversion that was killed can be run again. The former files are deleted
with other files that do not count, a week later.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import date, datetime
from urllib.parse import unquote

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from pgqueue.errors import LakeError, LakeOfAnother
from pgqueue.spark.lake.columns import ENDED, ENDED_SCHEMA
from pgqueue.spark.lake.files import PARTITION, Written, shaped, written_file
from pgqueue.spark.lake.folder import UNFINISHED, opened
from pgqueue.spark.lake.lake import ABOUT, MARKER, Lake
from pgqueue.spark.lake.record import BEFORE_DELTA, FORMAT, Batch, DataFile, Day, EndedDay, Marker, encode
from pgqueue.spark.lake.records import Records
from pgqueue.spark.lake.table import Table
from pgqueue.spark.lake.writer_lock import writer_lock
from pgqueue.store.database import Database
from pgqueue.store.pipeline import lake as plans

QUEUE_FOLDER = "queue="
QUEUE_NAME = "queue_name"
"""The column that had the queue's name where a folder could not have it."""
NO_NAME = "__HIVE_DEFAULT_PARTITION__"
"""The folder of the queue whose name is empty."""
STAGING = "_staging"


@dataclass(frozen=True, slots=True)
class Converted:
    """A day of a table that was written again.

    Attributes:
        table: the table's folder in the lake.
        day: the UTC day; None: the table has no days.
        rows: the number of its rows.
    """

    table: str
    day: date | None
    rows: int


class _Manifest(msgspec.Struct, frozen=True):
    """What an earlier release recorded of a day, as far as it is needed."""

    table: str
    day: date | None
    generation: int
    files: tuple[DataFile, ...]
    written_at: datetime
    made_from: dict[str, str] = {}
    batches: tuple[Batch, ...] = ()
    verified_at: datetime | None = None


def convert(
    database: Database, lake: Lake, *, tell: Callable[[Converted], object] = lambda _: None
) -> list[Converted]:
    """Bring a lake to Delta tables, if an earlier release wrote it.

    Args:
        database: the lake's.
        lake: where it is.
        tell: called with each day as soon as it is committed.

    Returns:
        The days that were written again; empty: the lake had Delta tables already.

    Raises:
        PipelineError: another process writes to the lake.
        LakeError: there is no lake, it is another database's, or a file of it is missing or has other rows than its manifest says.
    """
    with writer_lock(database) as lock:
        marker = _marker(lake)
        if marker.format != BEFORE_DELTA:
            return []
        origin = database.run(plans.origin(database.catalogue.schema))
        if marker.origin != origin:
            raise LakeOfAnother(f"{lake.uri} holds the history of {marker.origin}, and this is {origin}")
        records, found = Records(lake.folder), []
        for manifest in _manifests(lake):
            lock.require_held()
            table = Table(lake.folder, manifest.table)
            if table.generation(manifest.day) < manifest.generation:
                found.append(_converted(lake, table, records, manifest))
                tell(found[-1])
        lock.require_held()
        lake.folder.write(MARKER, encode(msgspec.structs.replace(marker, format=FORMAT)))
        lake.passed("converted")
        for path in _paths_of_manifests(lake):
            lake.folder.remove(path)
        lake.folder.remove_all(STAGING)
    return found


def _marker(lake: Lake) -> Marker:
    if not lake.exists():
        raise LakeError(f"{lake.uri} is no lake: check --lake")
    try:
        return msgspec.json.decode(lake.folder.read(MARKER), type=Marker)
    except msgspec.DecodeError as error:
        raise LakeError(f"{lake.uri}/{MARKER} cannot be read as one of ours ({error})") from error


def _paths_of_manifests(lake: Lake) -> list[str]:
    records = f"{ABOUT}/records/"
    return [
        path
        for path in lake.folder.paths(ABOUT)
        if path.endswith(".json")
        and path != MARKER
        and not path.startswith(records)
        and UNFINISHED not in path
    ]


def _manifests(lake: Lake) -> Iterator[_Manifest]:
    for path in _paths_of_manifests(lake):
        try:
            yield msgspec.json.decode(lake.folder.read(path), type=_Manifest)
        except msgspec.DecodeError as error:
            raise LakeError(f"{lake.uri}/{path} cannot be read as a manifest ({error})") from error


def _converted(lake: Lake, table: Table, records: Records, manifest: _Manifest) -> Converted:
    """Write a day again, and commit it."""
    parts = [_rows(lake, manifest, file) for file in manifest.files]
    if not parts and not table.exists() and manifest.table != ENDED:
        return Converted(
            manifest.table, manifest.day, 0
        )  # no columns are known; the next roll-up makes the day again
    schema = _schema(table, manifest, parts)
    written = _written(lake, manifest, schema, parts)
    there = sum(one.rows for one in written)
    wanted = sum(file.rows for file in manifest.files)
    if there != wanted:
        raise LakeError(
            f"{manifest.table} {manifest.day or ''} has {there} rows in its files, and {wanted} in its manifest: nothing was "
            "converted of it; restore the files, or export the day again with the release that wrote it"
        )
    records.add([_record(manifest)])
    columns = schema if manifest.day is None else schema.append(pa.field(PARTITION, pa.date32()))
    table.commit(columns, written, {manifest.day: manifest.generation}, replaced=[manifest.day])
    lake.passed("day converted")
    return Converted(manifest.table, manifest.day, there)


def _record(manifest: _Manifest) -> Day:
    """The record of a day. That it was verified is not taken over: the files are others."""
    if manifest.table == ENDED:
        return EndedDay(
            table=ENDED,
            day=manifest.day,
            generation=manifest.generation,
            written_at=manifest.written_at,
            batches=manifest.batches,
        )
    return Day(
        table=manifest.table,
        day=manifest.day,
        generation=manifest.generation,
        written_at=manifest.written_at,
        made_from=manifest.made_from,
    )


def _schema(table: Table, manifest: _Manifest, parts: list[pa.Table]) -> pa.Schema:
    """The columns of a day's files, without the day."""
    if manifest.table == ENDED:
        return ENDED_SCHEMA
    if parts:
        return pa.unify_schemas([part.schema for part in parts])
    return pa.schema([field for field in table.schema() if field.name != PARTITION])


def _rows(lake: Lake, manifest: _Manifest, file: DataFile) -> pa.Table:
    """The rows of a former file, in the columns of the table."""
    files, root = opened(lake.folder.at(""))
    try:
        rows = parquet.ParquetFile(f"{root}/{file.path}", filesystem=files).read()
    except (OSError, pa.ArrowException) as error:
        raise LakeError(f"a file of {manifest.table} {manifest.day or ''} cannot be read: {error}") from error
    return _with_queue(rows, file.path) if manifest.table == ENDED else rows


def _with_queue(rows: pa.Table, path: str) -> pa.Table:
    """Ended jobs with the queue's name in a column, and null in columns that the file does not have."""
    folder = next(part for part in path.split("/") if part.startswith(QUEUE_FOLDER))
    name = unquote(folder.removeprefix(QUEUE_FOLDER))
    queue = pa.repeat(pa.scalar("" if name == NO_NAME else name), rows.num_rows)
    if QUEUE_NAME in rows.column_names:
        queue = pc.coalesce(rows[QUEUE_NAME], queue)
    return shaped(rows.append_column("queue", queue), ENDED_SCHEMA, None)


def _written(lake: Lake, manifest: _Manifest, schema: pa.Schema, parts: Iterable[pa.Table]) -> list[Written]:
    """One file with the rows of all parts; none if there are no rows."""
    whole = pa.concat_tables([schema.empty_table(), *parts], promote_options="default")
    if not whole.num_rows:
        return []
    if manifest.table == ENDED:
        whole = whole.sort_by([(name, "ascending") for name in ("queue", "task", "ended_at", "id")])
    return [written_file(lake.folder.at(manifest.table), manifest.day, whole)]
