"""Lineage: what each run of a step read and wrote, as events of OpenLineage.

Where events go is the client's own configuration (``OPENLINEAGE_URL``, ``OPENLINEAGE_CONFIG``, ``OPENLINEAGE__TRANSPORT__…``). Without
one nothing is made. This process says what it did; a thread makes events of it and sends them. A receiver that does not answer
takes :data:`PATIENCE` seconds of the process's time at most, in all of its steps, and one line of its log; then nothing is sent for
:data:`RENEWED_AFTER` seconds. No step fails of it.
"""

import logging
import os
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from queue import SimpleQueue
from typing import Final

from pgqueue.errors import PgQueueError
from pgqueue.spark.lake.columns import DEPLOYS, ENDED, WORKERS
from pgqueue.spark.lake.comments import comment_of
from pgqueue.spark.lake.folder import LOCAL
from pgqueue.spark.lake.lake import Lake
from pgqueue.spark.lake.lineage_events import RunFacts, TableFacts, open_client
from pgqueue.store.columns import DEAD, HISTORY
from pgqueue.store.columns import ENDED as ENDED_COLUMNS
from pgqueue.store.connections.database import Database
from pgqueue.store.connections.label import address_of

log = logging.getLogger("pgqueue.pipeline")

SETTINGS: Final = ("OPENLINEAGE_URL", "OPENLINEAGE_CONFIG", "OPENLINEAGE__TRANSPORT")
"""A variable of the environment that begins so switches it on."""
PATIENCE: Final = 5.0
RENEWED_AFTER: Final = 300.0
THREAD: Final = "pgqueue-lineage"
TALKS: Final = ("urllib3.connectionpool", "openlineage.client", "openlineage.client.transport.http")
"""Loggers that tell of each attempt; of those in our thread one line is enough."""
ROLLUPS: Final = ("hours", "days", "failures", "tenants", "workers")
IN_LAKE: Final = tuple(f"rollup/{name}" for name in ROLLUPS)


@dataclass(frozen=True, slots=True)
class Flow:
    """What a step reads and writes, by name: tables of the lake, and tables of the database."""

    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    reads_database: tuple[str, ...] = ()
    writes_database: tuple[str, ...] = ()


ENDS: Final = ("job_history", "dead_jobs")
FLOWS: Final[Mapping[str, Flow]] = {
    "export": Flow(
        writes=(ENDED, WORKERS, DEPLOYS), reads_database=(*ENDS, "workers", "former_workers", "deploys")
    ),
    "verify": Flow(reads=(ENDED,), reads_database=ENDS, writes_database=("lake_days",)),
    "check": Flow(reads=(ENDED,), writes=("checks",)),
    "rollup": Flow(
        reads=(ENDED, WORKERS),
        writes=("rollup/busy", *IN_LAKE),
        writes_database=tuple(f"rollup_{name}" for name in ROLLUPS),
    ),
    "report": Flow(reads=(*IN_LAKE, DEPLOYS), writes=("report",)),
    "prune": Flow(reads=(ENDED,), writes_database=("job_history", "lake_days")),
    "erase": Flow(reads=(ENDED,), writes=(ENDED,), writes_database=ENDS),
    "compact": Flow(reads=(ENDED,), writes=(ENDED,)),
}
"""By step. A step that is not here has a run without tables."""


class Patience:
    """The seconds that this process still waits for receivers."""

    def __init__(self) -> None:
        self.left = PATIENCE
        self.since = float("-inf")

    def remaining(self) -> float:
        """The seconds that are left; some time after the first wait they are all there again."""
        now = time.monotonic()
        if now - self.since > RENEWED_AFTER:
            self.left, self.since = PATIENCE, now
        return self.left

    def spend(self, seconds: float) -> None:
        """Note a wait."""
        self.left = max(0.0, self.left - seconds)


patience = Patience()


class LineageRun:
    """The events of one run of a step."""

    def __init__(self, lake: Lake, step: str, database: Database | None) -> None:
        """Tell of the start, if lineage is configured. Nothing is raised."""
        self._lake, self._step = lake, step
        self._run = str(uuid.uuid4())
        self._sender = _Sender(step) if is_configured() and patience.remaining() > 0 else None
        self._database = None if database is None or self._sender is None else _Names.of(database)
        self._tell("START", None, None)

    def end(self, rows: int, error: BaseException | None) -> None:
        """Tell of the end, and wait for the receiver, within the process's patience. Nothing is raised."""
        if self._sender is None:
            return
        failed = "FAIL" if isinstance(error, Exception) else "ABORT"
        self._tell("COMPLETE" if error is None else failed, rows, error)
        self._sender.finish()

    def _tell(self, state: str, rows: int | None, error: BaseException | None) -> None:
        if self._sender is None:
            return
        try:
            reads, writes = _tables(
                self._lake, self._step, self._database, rows, with_columns=state != "START"
            )
        except PgQueueError as problem:  # the lake or the database cannot be read: the step says it itself
            log.warning("lineage of %s names no tables: %s", self._step, problem)
            reads, writes = (), ()
        self._sender.put(
            RunFacts(
                state=state,
                run=self._run,
                step=self._step,
                at=datetime.now(UTC),
                reads=reads,
                writes=writes,
                error=None if error is None else type(error).__name__,
            )
        )


def is_configured() -> bool:
    """Whether the environment says where events go."""
    return any(name.startswith(SETTINGS) and value for name, value in os.environ.items())


def _tables(
    lake: Lake, step: str, database: "_Names | None", rows: int | None, *, with_columns: bool
) -> tuple[tuple[TableFacts, ...], tuple[TableFacts, ...]]:
    flow = FLOWS.get(step, Flow())
    ours = [] if database is None else list(map(database.table, flow.reads_database))
    reads = [*ours, *(_of_lake(lake, name, with_columns=with_columns) for name in flow.reads)]
    first = flow.writes[0] if flow.writes else None
    writes = [
        _of_lake(
            lake,
            name,
            with_columns=with_columns,
            rows=rows if name == first else None,
            made_from=_copied(ours) if step == "export" and name == ENDED and with_columns else {},
        )
        for name in flow.writes
    ]
    if database is not None:
        writes += map(database.table, flow.writes_database)
    return tuple(reads), tuple(writes)


@dataclass(frozen=True, slots=True)
class _Names:
    """What the tables of a database are called."""

    namespace: str
    schema: str

    @classmethod
    def of(cls, database: Database) -> "_Names":
        server, name = address_of(database)
        return cls(server, f"{name}.{database.catalogue.schema}")

    def table(self, name: str) -> TableFacts:
        return TableFacts(namespace=self.namespace, name=f"{self.schema}.{name}")


def _of_lake(
    lake: Lake,
    table: str,
    *,
    with_columns: bool,
    rows: int | None = None,
    made_from: Mapping[str, tuple[tuple[str, str, str], ...]] | None = None,
) -> TableFacts:
    scheme, _, place = lake.folder.at(table).partition("?")[0].partition("://")
    bucket, _, path = place.partition("/")
    return TableFacts(
        namespace="file" if scheme == LOCAL else f"{scheme}://{bucket}",
        name=place if scheme == LOCAL else path,
        columns=tuple(_columns(lake, table)) if with_columns else (),
        rows=rows,
        made_from=made_from or {},
    )


def _columns(lake: Lake, table: str) -> Iterator[tuple[str, str, str]]:
    for one in lake.table(table).schema():
        yield one.name, str(one.type), comment_of(one)


def _copied(ends: list[TableFacts]) -> dict[str, tuple[tuple[str, str, str], ...]]:
    """For each column of ended jobs, the columns of the history and of the dead jobs that it copies."""
    history, dead = ends[:2]
    there = {one.name for one in HISTORY}, {one.name for one in DEAD}
    renamed = {"ended_at": ("finished_at", "died_at"), "reason": (None, "reason")}
    found: dict[str, tuple[tuple[str, str, str], ...]] = {}
    for column in ENDED_COLUMNS:
        named = renamed.get(column.name, (column.name, column.name))
        found[column.name] = tuple(
            (table.namespace, table.name, name)
            for table, has, name in zip((history, dead), there, named, strict=True)
            if name in has
        )
    return found | {"day": found["ended_at"]}


class _Sender:
    """A thread that sends the events of one run; the process ends without it."""

    def __init__(self, step: str) -> None:
        self._step = step
        self._facts: SimpleQueue[RunFacts | None] = SimpleQueue()
        self._problem: BaseException | None = None
        self._thread = threading.Thread(target=self._send, name=THREAD, daemon=True)
        self._thread.start()

    def put(self, facts: RunFacts) -> None:
        self._facts.put(facts)

    def finish(self) -> None:
        """Wait until all is sent, or the process's patience ends."""
        self._facts.put(None)
        started = time.monotonic()
        self._thread.join(patience.remaining())
        patience.spend(time.monotonic() - started)
        if self._thread.is_alive():
            self._problem = TimeoutError(f"no answer within {PATIENCE:g} s")
        if self._problem is not None:
            patience.left = 0.0
            log.warning(
                "the lineage of %s was not sent (%s: %s); the step is not affected",
                self._step,
                type(self._problem).__name__,
                " ".join(str(self._problem).split()),
            )

    def _send(self) -> None:
        try:
            for name in TALKS:
                logging.getLogger(name).addFilter(_is_not_ours)
            emit = open_client()
            while (facts := self._facts.get()) is not None:
                emit(facts)
        except Exception as error:  # noqa: BLE001 - whatever a transport raises: the step goes on
            self._problem = error


def _is_not_ours(record: logging.LogRecord) -> bool:
    return record.threadName != THREAD
