"""Erase: removes chosen jobs from the lake's days, from the database where their day is not pruned yet, and from roll-ups.

The files that hold such jobs are written again without them. A day is changed in this order: the rows are deleted from the
database, the new files are written and compared with the rows that stay, one commit of the table exchanges the files. At the end
all files that do not count are deleted: a reader of an older version of the table must not find the jobs there. Then the changed
days are verified, and the roll-ups that may name what was erased are made again. Each step looks at the lake for what is left to
do, so a killed call can be repeated.

A condition is an expression of DuckDB over the columns of ended jobs. It runs without access to other files.
"""

import hashlib
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta

import duckdb
import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import dataset

from pgqueue.errors import ConfigurationError, InvalidOption, LakeError
from pgqueue.spark.config import Config
from pgqueue.spark.lake import checksum
from pgqueue.spark.lake.checksum import InFiles
from pgqueue.spark.lake.columns import ENDED, ENDED_SCHEMA, ENDED_TABLE, hash_of, require_shown
from pgqueue.spark.lake.files import WrittenFile, rows_of
from pgqueue.spark.lake.lake import Lake
from pgqueue.spark.lake.records import EndedDay, Erasure, ExportBatch
from pgqueue.spark.lake.steps import Size, WriterLock, log_step, writer_lock
from pgqueue.spark.lake.verify import VerifyResult, verify
from pgqueue.spark.rollup.attempts import DEFAULT
from pgqueue.spark.rollup.in_duckdb import path_of
from pgqueue.spark.rollup.rollup import rollup
from pgqueue.spark.rollup.tables import SCHEMAS, folder
from pgqueue.spark.session import SessionOrStart
from pgqueue.store.connections.database import Database
from pgqueue.store.pipeline import lake as plans
from pgqueue.store.pipeline.lake import Checksum
from pgqueue.values.redaction import Redaction

OF_KEY = "unique_key = $key"
AT_ONCE = timedelta(0)
POSITION = "pgqueue_position"


@dataclass(frozen=True, slots=True)
class EraseCondition:
    """What chooses jobs.

    Attributes:
        text: an expression of DuckDB over the columns of ended jobs.
        values: the values of its parameters.
        words: the texts by which a person or a thing is named, such as the key.
    """

    text: str
    values: Mapping[str, str] = field(default_factory=dict)
    words: Sequence[str] = ()

    @property
    def digest(self) -> str:
        """The SHA-256 of the condition."""
        said = json.dumps([self.text, dict(self.values)], sort_keys=True)
        return hashlib.sha256(said.encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasedDay:
    """A day with chosen jobs.

    Attributes:
        day: the UTC day.
        rows: how many there were in the lake.
        database: how many of them were still in the database.
        in_flows: how many more stay, since their chain, group or workflow has not ended.
    """

    day: date
    rows: int
    database: int
    in_flows: int = 0


def _hours(length: timedelta) -> int:
    return -(-length // timedelta(hours=1))


def of_tenant(tenant: str, config: Config) -> EraseCondition:
    """The jobs of a tenant.

    Raises:
        ConfigurationError: the configuration does not say where a job's tenant is.
    """
    if config.tenant is None:
        raise ConfigurationError(
            'jobs have no tenants: write tenant = "$.customer_id", with your own path, into the file that --config names'
        )
    values = {"tenant": tenant, "path": str(path_of(config.tenant))}
    return EraseCondition("json_extract_string(args, $path) = $tenant", values, (tenant,))


def of_key(key: str) -> EraseCondition:
    """The jobs with a unique key."""
    return EraseCondition(OF_KEY, {"key": key}, (key,))


def erase_everywhere(
    spark: SessionOrStart,
    database: Database,
    lake: Lake,
    config: Config,
    condition: EraseCondition,
    *,
    reason: str = "",
    days: Collection[date] | None = None,
    keep_files: timedelta = AT_ONCE,
    redaction: Redaction = DEFAULT,
    tell: Callable[[ErasedDay], object] = lambda _: None,
) -> tuple[list[ErasedDay], list[VerifyResult]]:
    """Erase jobs, verify the changed days, and make their roll-ups again.

    Args:
        spark: the session for large days, or what starts it once one is needed.
        database: the lake's.
        lake: the lake.
        config: promises, tenants and costs, as the roll-ups were made with.
        condition: which jobs.
        reason: recorded with each changed day.
        days: these days only.
        keep_files: as for :func:`erase`.
        redaction: as the roll-ups were made with.
        tell: called with each changed day.

    Returns:
        The days that had such jobs, and the result of verifying every day that was changed and is not verified.

    Raises:
        InvalidOption, LakeError, PipelineError: as :func:`erase`.
    """
    found = erase(database, lake, condition, reason=reason, days=days, keep_files=keep_files, tell=tell)
    changed = {entry.day: entry for entry in lake.days() if entry.erased}
    unverified = [day for day, entry in changed.items() if entry.verified is None]
    verified = verify(spark, database, lake, days=unverified) if unverified else []
    # This roll-up has every day, and holds messages of jobs.
    made = {entry.day: entry.made_from for entry in lake.entries(folder("failures"))}
    outdated = [
        day
        for day, entry in changed.items()
        if day in made and made[day].get("ended") != str(entry.generation)
    ]
    if outdated:
        rollup(spark, database, lake, config, days=outdated, redaction=redaction)
    for table in SCHEMAS:
        lake.sweep(folder(table), kept_hours=_hours(keep_files))
    return found, verified


def erase(
    database: Database,
    lake: Lake,
    condition: EraseCondition,
    *,
    reason: str = "",
    days: Collection[date] | None = None,
    dry_run: bool = False,
    keep_files: timedelta = AT_ONCE,
    tell: Callable[[ErasedDay], object] = lambda _: None,
) -> list[ErasedDay]:
    """Remove chosen jobs from the lake, and from the database's history and dead jobs.

    Jobs that are not in the lake are not touched: those that wait or run, and those of days that were not exported. A changed
    day has to be verified again.

    Args:
        database: the lake's.
        lake: the lake.
        condition: which jobs.
        reason: recorded with each changed day, such as the number of a request.
        days: these days only.
        dry_run: only count them.
        keep_files: for how long the files of earlier versions stay, which hold these jobs: readers that follow the change data
            feed need them. They are deleted by the next erasure that does not keep them, or after a week.
        tell: called with each day that has such jobs, as soon as it is changed.

    Returns:
        The days that had such jobs, oldest first.

    Raises:
        InvalidOption: the condition cannot be used.
        LakeError: a day's files were changed since they were verified, or cannot be read; or the condition names a column
            that the lake hides.
        ConfigurationError: the key of the lake's hashes is missing.
        PipelineError: another process is writing to the lake.
    """
    _require(condition)
    with writer_lock(database) as lock:
        lake.require(database.run(plans.origin(database.catalogue.schema)))
        condition = _in_the_lake(condition, lake)
        if not dry_run:
            lake.hidden()  # a changed day is verified again, which needs the key
        eraser = _Eraser(database, lake, lock, condition, reason)
        found = []
        with nullcontext(Size()) if dry_run else log_step(lake, "erase", database) as size:
            for entry in lake.days():
                if days is not None and entry.day not in days:
                    continue
                rows = eraser.count(entry)
                if rows:
                    erased = (
                        ErasedDay(day=entry.day, rows=rows, database=0) if dry_run else eraser.erase(entry)
                    )
                    found.append(erased)
                    size.days, size.rows = size.days + 1, size.rows + erased.rows
                    tell(erased)
            if not dry_run:
                lake.sweep(ENDED, kept_hours=_hours(keep_files))
    return found


class _Eraser:
    """One run, while no other process writes to the lake."""

    def __init__(
        self,
        database: Database,
        lake: Lake,
        lock: WriterLock,
        condition: EraseCondition,
        reason: str,
    ) -> None:
        self.database = database
        self.lake = lake
        self.lock = lock
        self.condition = condition
        self.reason = reason

    def count(self, entry: EndedDay) -> int:
        with checksum.errors():
            return len(_find_chosen(self._rows([one.path for one in entry.files]), self.condition, "1"))

    def erase(self, entry: EndedDay) -> ErasedDay:
        """Erase a day's jobs."""
        self._require_unchanged(entry)
        there, in_flows, written, removed = 0, 0, [], []
        staying: list[pa.Table] = []
        for file in entry.files:
            with checksum.errors():
                rows = self._rows([file.path]).to_table()
                numbered = rows.append_column(POSITION, pa.array(range(rows.num_rows)))
                chosen = _find_chosen(numbered, self.condition, f'"{POSITION}"')
            gone = self._without_live_flows(rows, chosen)
            in_flows += len(chosen) - len(gone)
            if not gone:
                staying.append(rows.select(["outcome", "ended_in"]))
                continue
            kept, unwanted = _divide_rows(rows, gone)
            there += self._from_database(entry.day, unwanted)
            written += self._write_kept(entry.day, kept)
            removed.append(file.path.removeprefix(f"{ENDED}/"))
            staying.append(kept.select(["outcome", "ended_in"]))
        stay = pa.concat_tables(staying)
        if removed:
            self._commit(entry, written, removed, stay)
        return ErasedDay(day=entry.day, rows=entry.rows - stay.num_rows, database=there, in_flows=in_flows)

    def _without_live_flows(self, rows: pa.Table, chosen: Sequence[int]) -> list[int]:
        """Those of the chosen positions whose jobs belong to no flow that goes on."""
        ids = dict(zip(chosen, rows["id"].take(pa.array(chosen, pa.int64())).to_pylist(), strict=True))
        live = self.database.run(plans.in_live_flows(ids.values())) if ids else set()
        return [position for position in chosen if ids[position] not in live]

    def _rows(self, paths: Sequence[str]) -> dataset.Dataset:
        named = [path.removeprefix(f"{ENDED}/") for path in paths]
        return rows_of(self.lake.folder.at(ENDED), named, ENDED_TABLE)

    def _require_unchanged(self, entry: EndedDay) -> None:
        """Refuse a verified day whose files have changed since: its new files get a checksum of their own."""
        if entry.verified is None:
            return
        named = [one.path.removeprefix(f"{ENDED}/") for one in entry.files]
        found = checksum.in_files(self.lake.folder.at(ENDED), named, ENDED_SCHEMA, 0)
        if (found.history, found.dead) != (entry.verified.history, entry.verified.dead):
            raise LakeError(
                f"the files of day {entry.day} were changed since they were verified, and nothing was erased from it: "
                f"run `pgqueue pipeline verify --day {entry.day}`, which says what to do"
            )

    def _from_database(self, day: date, gone: pa.Table) -> int:
        self.lock.require_held()
        ended = zip(gone["id"].to_pylist(), gone["ended_in"].to_pylist(), strict=True)
        there = self.database.run(plans.erase(day, list(ended), self.condition.words))
        self.lake.passed("erased from the database")
        return there

    def _write_kept(self, day: date, kept: pa.Table) -> list[WrittenFile]:
        rows = kept.select(ENDED_SCHEMA.names).cast(ENDED_SCHEMA)
        written = self.lake.write_rows(ENDED, day, rows)
        named = [one.path for one in written]
        found = checksum.in_files(self.lake.folder.at(ENDED), named, ENDED_SCHEMA, 0)
        if found != (checksum.of_rows(rows, 0) if written else InFiles()):
            raise LakeError(f"day {day} was written with other rows than were to stay: run it again")
        return written

    def _commit(
        self, entry: EndedDay, written: Sequence[WrittenFile], removed: Sequence[str], staying: pa.Table
    ) -> None:
        now = datetime.now(UTC)
        erasure = Erasure(
            at=now,
            rows=entry.rows - staying.num_rows,
            condition=self.condition.digest,
            reason=self.reason,
        )
        changed = EndedDay(
            table=ENDED,
            day=entry.day,
            generation=entry.generation + 1,
            written_at=now,
            batches=tuple(_count_rows(batch, staying) for batch in entry.batches),
            erased=(*entry.erased, erasure),
        )
        self.lock.require_held()
        why = f"erase: {self.reason}" if self.reason else "erase"
        self.lake.commit(ENDED_TABLE, written, [changed], removed=removed, why=why)


def _in_the_lake(condition: EraseCondition, lake: Lake) -> EraseCondition:
    if condition.text == OF_KEY and "unique_key" in lake.choice.hashed:
        # The lake hashes unique keys, so one is looked for by its hash.
        hashed = hash_of(condition.values["key"], lake.hidden().key)
        return EraseCondition(OF_KEY, {"key": hashed}, condition.words)
    require_shown(condition.text, lake.choice)
    return condition


def _require(condition: EraseCondition) -> None:
    if not condition.text.strip():
        raise InvalidOption("the condition is empty: write an expression, such as unique_key = 'user 42'")
    try:
        _find_chosen(ENDED_TABLE.empty_table(), condition, "1")
    except duckdb.Error as error:
        said = str(error).partition("\n")[0]
        raise InvalidOption(
            f"the condition cannot be used ({said}); it is an expression of DuckDB over these columns: "
            f"{', '.join(ENDED_TABLE.names)}"
        ) from error


def _find_chosen(rows: dataset.Dataset | pa.Table, condition: EraseCondition, wanted: str) -> list[int]:
    """Return the expression ``wanted`` for each row that the condition chooses."""
    with checksum.engine_for_conditions() as engine:
        engine.register("ended", rows)
        statement = f"select {wanted} from ended where ({condition.text}\n)"
        found = engine.execute(statement, dict(condition.values) or None).fetchall()
    return [row[0] for row in found]


def _divide_rows(rows: pa.Table, chosen: Sequence[int]) -> tuple[pa.Table, pa.Table]:
    """Return the rows that stay, and those at the chosen positions."""
    is_chosen = pc.is_in(pa.array(range(rows.num_rows)), pa.array(chosen))
    return rows.filter(pc.invert(is_chosen)), rows.filter(is_chosen)


def _count_rows(batch: ExportBatch, rows: pa.Table) -> ExportBatch:
    number = rows["ended_in"]
    within = rows.filter(pc.and_(pc.greater_equal(number, batch.since), pc.less(number, batch.below)))
    dead = pc.sum(pc.equal(within["outcome"], "dead")).as_py() or 0
    return msgspec.structs.replace(
        batch,
        highest=pc.max(within["ended_in"]).as_py(),
        history=Checksum(within.num_rows - dead),
        dead=Checksum(dead),
    )
