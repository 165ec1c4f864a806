"""Programs of this release and of others at work on one database, and a made-up next revision of the schema.

``next/`` is what a next release might be: the files of its revision, which do each kind of thing that a revision may do, and those
of its statements that differ from this release's. :mod:`store.former` has those of the release before this one.
"""

import asyncio
import re
import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from datetime import timedelta
from importlib import resources
from itertools import count, cycle
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psycopg
import pytest
from looking import wait_until
from psycopg.conninfo import make_conninfo
from store.former import former_release, former_statements, statements_of
from store.sqlfiles import SQL
from tenacity import wait_none

from pgqueue import Context, Dead, PgQueue, Retry
from pgqueue.store.catalogue import MIGRATE_HINT, Catalogue
from pgqueue.store.schema import build_ahead, schema
from pgqueue.worker.worker import Worker

HERE = Path(__file__).parent
NEXT = f"{int(schema.REVISION) + 1:04}"
"""The revision of the made-up next release."""
FORMER = former_release()
"""The version of the release before this one; None: there was none."""
AHEAD = 40
"""How many jobs may wait before a program enqueues no more."""
TURNS = 20
"""Attempts after which a program has ended jobs in every way."""
PATIENCE = "-c statement_timeout=10s"
"""A statement that waits for longer fails, and so does the test."""
ENDED = """
select count(*) from (select id from pgqueue.job_history union all select id from pgqueue.dead_jobs) as ended where id = any(%(ids)s)
"""

SCRIPT = """
from pgqueue.store.schema.schema import run_revision

revision = "{revision}"
down_revision = "{before}"


def upgrade():
    run_revision(revision, "up")


def downgrade():
    run_revision(revision, "down")
"""


def differing(release: str) -> dict[str, str]:
    """The statements of a release, by its revision or version, that differ from this release's, by their names."""
    if release == schema.REVISION:
        return {}
    return statements_of(HERE / "next" / "statements") if release == NEXT else former_statements(SQL)


def refused(dsn: str, statements: dict[str, str]) -> dict[str, str]:
    """The statements that the server cannot plan, and why."""
    found = {}
    with psycopg.connect(dsn) as connection:
        for name, text in statements.items():
            try:
                with connection.transaction(force_rollback=True):
                    _begin(connection, text)
            except psycopg.Error as error:
                found[name] = str(error)
    return found


def _begin(connection: psycopg.Connection[Any], text: str) -> None:
    """Have the server read a statement and plan it; COPY, which has no plan, is sent without a row, and DO is not sent."""
    if re.search("^do ", text, re.MULTILINE):
        return
    if re.search("^copy ", text, re.MULTILINE):
        with connection.cursor().copy(text.encode()):
            return
    for number, place in enumerate(dict.fromkeys(re.findall(r"%\((\w+)\)s", text)), start=1):
        text = text.replace(f"%({place})s", f"${number}")
    connection.execute(f"prepare former as {text.replace('%%', '%')}".encode())
    connection.execute("deallocate former")


class OfRelease(Catalogue):
    """The statements of a release: this one's, and in their places those that differ."""

    def __init__(self, release: str) -> None:
        super().__init__("pgqueue", MIGRATE_HINT)
        for name, text in differing(release).items():
            assert self[name], "a release that has a statement more has plans of its own"
            self._texts[name] = text.encode()


class NextRelease:
    """The next release's migrations: :mod:`pgqueue.store.schema.schema` with one revision more."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        shutil.copytree(_package("migrations"), folder / "migrations")
        shutil.copytree(_package("sql") / "schema", folder / "sql" / "schema")
        script = SCRIPT.format(revision=NEXT, before=schema.REVISION)
        (folder / "migrations" / "versions" / f"{NEXT}_pre_next.py").write_text(script)
        for file in (HERE / "next" / "schema").iterdir():
            shutil.copy(file, self.file(file.name))

    def file(self, name: str) -> Path:
        """A file of its revision, by the name without the revision's number."""
        return self._folder / "sql" / "schema" / f"{NEXT}_{name}"

    @contextmanager
    def installed(self) -> Iterator[None]:
        """For the length of a block this process migrates as the next release does."""
        with pytest.MonkeyPatch.context() as patch:
            for module in (schema, build_ahead):
                patch.setattr(module, "shipped", lambda folder: self._folder / folder)
            patch.setattr(schema, "REVISION", NEXT)
            patch.setattr(schema, "KNOWN", schema.KNOWN | {NEXT})
            yield

    def migrate(self, dsn: str, revision: str = "head") -> None:
        """As :func:`pgqueue.store.schema.schema.migrate`."""
        with self.installed():
            schema.migrate(dsn, revision=revision)


def _package(name: str) -> Path:
    return Path(str(resources.files(f"pgqueue.{name}")))


@contextmanager
def next_release() -> Iterator[NextRelease]:
    """The next release, for the length of a block."""
    with TemporaryDirectory() as folder:
        yield NextRelease(Path(folder))


class Program:
    """A program of a release: it enqueues by each way in, and its worker runs what is there, so that jobs end in each way."""

    def __init__(self, dsn: str, release: str) -> None:
        self.enqueued: set[int] = set()
        self.ran: list[int] = []
        self._dsn = dsn
        self._told = threading.Condition()
        self._enough, self._failed = threading.Event(), False
        self._queue = PgQueue(make_conninfo(dsn, options=PATIENCE))
        self._queue.database.catalogue = OfRelease(release)
        self._queue.task(name="bill", retry=Retry(wait=wait_none()))(self._bill)
        self._worker = Worker(self._queue, concurrency=4, poll=timedelta(seconds=0.2))

    def goes_on(self, runs: int = TURNS) -> None:
        """Return when its worker has begun some more attempts, it has enqueued some more jobs, and the end of one of those is recorded."""
        with self._told:
            first, added = len(self.ran), len(self.enqueued) + 1
            assert self._told.wait_for(
                lambda: self._failed or (len(self.ran) >= first + runs and len(self.enqueued) >= added),
                timeout=60,
            )
        assert not self._failed
        with psycopg.connect(self._dsn, autocommit=True, options=PATIENCE) as own:
            wait_until(lambda: own.execute(ENDED, {"ids": self.ran[first:]}).fetchall() != [(0,)])

    def enough(self) -> None:
        self._enough.set()

    def _bill(self, ctx: Context, end: str = "succeed") -> None:
        with self._told:
            self.ran.append(ctx.job.id)
            self._told.notify_all()
        if end == "die":
            raise Dead("no")
        if end == "again" and ctx.job.attempt == 1:
            raise ValueError(end)

    def enqueue(self) -> None:
        bill, key = self._queue.find_task("bill"), count()
        with psycopg.connect(self._dsn, autocommit=True) as own:
            for end in cycle(("succeed", "die", "again")):
                if self._enough.is_set():
                    return
                ids = {bill.enqueue(end).id, bill.using(unique_key=f"{id(self)} {next(key)}").enqueue(end).id}
                ids |= {one.id for one in self._queue.enqueue_many(bill.call(end) for _ in range(2))}
                ids |= {row[0] for row in own.execute("select pgqueue.enqueue('bill', '{}')")}
                with self._told:
                    self.enqueued |= ids
                    self._told.notify_all()
                while not self._enough.wait(0.01) and _live(own) > AHEAD:
                    pass

    def work(self) -> None:
        asyncio.run(self._work())

    async def _work(self) -> None:
        try:
            await self._worker.run()
        finally:
            await self._queue.aclose()

    def watch(self, deed: Any) -> None:
        try:
            deed()
        except BaseException:
            with self._told:
                self._failed = True
                self._told.notify_all()
            raise

    def stop(self) -> None:
        """Let the worker end its jobs and leave."""
        self.enough()
        self._worker.stop()

    def close(self) -> None:
        self._queue.close()


def _live(connection: psycopg.Connection[Any]) -> int:
    ((number,),) = connection.execute("select count(*) from pgqueue.jobs").fetchall()
    return int(number)


@contextmanager
def at_work(dsn: str, release: str = schema.REVISION) -> Iterator[Program]:
    """Such a program, for the length of a block; what goes wrong with it fails the test."""
    program = Program(dsn, release)
    with closing(program), ThreadPoolExecutor(2) as threads:
        doing = [threads.submit(program.watch, deed) for deed in (program.work, program.enqueue)]
        try:
            program.goes_on()
            yield program
        finally:
            program.stop()
        for one in doing:
            one.result()
