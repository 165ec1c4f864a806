"""The previous release as the database sees it: the statements that it sends, word for word.

``former/0002`` holds a copy of that release's ``sql/``, taken when revision 0003 began. Its workers name the columns of
revision 0002 and expect its answers, so this file fills in the parameters and reads the rows itself: today's plans
belong to today's statements.
"""

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg

FORMER = Path(__file__).parent / "former" / "0002"
STATEMENTS = {file.stem: file.read_text() for file in FORMER.glob("*.sql")}
LEASE = "30 seconds"
ENDS = ("complete", "bury", "put_back", "cancel_ended")
AT_ONCE = 4
"""How many jobs it claims and ends in a turn."""
TURNS = 20
"""After so many turns psycopg has each statement prepared."""


class FormerRelease:
    """The former release's statements, on one connection."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        """Wrap a connection that commits each statement."""
        self._connection = connection
        self.id = uuid4()

    def send(self, name: str, **params: Any) -> list[tuple[Any, ...]]:
        """Send a statement as that release did; its rows."""
        cursor = self._connection.execute(STATEMENTS[name].encode(), {"now": None} | params, binary=True)
        return cursor.fetchall() if cursor.description else []

    def register(self) -> None:
        """Become a worker."""
        self.send(
            "register",
            worker=self.id,
            lease=LEASE,
            host="host",
            pid=1,
            concurrency=1,
            version="former",
            queues=None,
        )

    def enqueue(self) -> set[int]:
        """Add a job by each way in; their ids."""
        job: dict[str, Any] = {
            "queue": "default",
            "task": "bill",
            "args": '{"text": "\\u00e9"}',
            "priority": 0,
            "max_attempts": 25,
            "run_at": None,
            "delay": None,
            "period": None,
            "unique_key": str(uuid4()),
            "unique_until_started": False,
        }
        ids = {self.send(name, **job)[0][0] for name in ("enqueue_now", "enqueue", "enqueue_unique")}
        ids.add(
            self.send("enqueue_for_period", **job | {"unique_key": str(uuid4()), "period": "1 minute"})[0][0]
        )
        return ids | self._copy()

    def _copy(self) -> set[int]:
        ((first, last),) = self.send("reserve_ids", count=1)
        row = f"{first}\tdefault\tbill\t{{}}\t0\tready\t2020-01-01T00:00:00+00:00\t25\n"
        with self._connection.cursor().copy(STATEMENTS["enqueue_copy"].encode()) as copy:
            copy.write(row)
        assert first == last
        return {first}

    def claim(self, count: int) -> list[tuple[int, int]]:
        """Take jobs; the id and the number of the claim of each."""
        mark = {"mark_ranks": [-101], "mark_run_ats": ["0001-01-01T00:00:00+00:00"], "mark_ids": [0]}
        rows = self.send("claim", worker=self.id, queues=["default"], quotas=[count], **mark)
        assert all(len(row) == 11 for row in rows)
        return [(row[0], row[1]) for row in rows]

    def end(self, how: str, taken: list[tuple[int, int]]) -> set[int]:
        """Record the same verdict on each; the ids for which it was taken."""
        taken = sorted(taken)
        error = json.dumps({"attempt": 1, "type": "ValueError", "message": "no"})
        rows = self.send(
            how,
            worker=self.id,
            ids=[job_id for job_id, _ in taken],
            claims=[claims for _, claims in taken],
            claim=None,
            seconds=[0.5] * len(taken),
            results=['{"total": 3}'] * len(taken),
            keep=True,
            errors=[error] * len(taken),
            reasons=["asked"] * len(taken),
            delays=[0.0] * len(taken),
            refunds=[1] * len(taken),
            only_requested=False,
        )
        return {row[0] for row in rows}

    def keep_order(self) -> None:
        """Do what its workers do beside their jobs: beat, tick, look for lost workers and for history to come."""
        assert self.send("renew", worker=self.id, lease=LEASE) == [(self.id,)]
        line = {"mark_ranks": [-101], "mark_run_ats": ["0001-01-01T00:00:00+00:00"], "mark_ids": [0]}
        self.send("tick", limit=5000, queues=["default"], elsewhere=True, **line)
        self.send("expire_workers")
        lost: list[UUID] = [row[0] for row in self.send("departed")]
        if lost:
            self.send("reclaim", workers=lost)
        self.send("ensure_history_days", days=7)
        self.send("release_holds")


class FormerWorker:
    """A program of the former release: it enqueues, claims and ends jobs, one turn after the other, until stopped."""

    def __init__(self, dsn: str) -> None:
        """Begin with nothing done."""
        self.enqueued: set[int] = set()
        self.ended: list[int] = []
        self._dsn = dsn
        self._stopping = threading.Event()
        self._told = threading.Condition()
        self._failed: Exception | None = None

    def run(self) -> None:
        """Take turns; whatever is left at the end succeeds."""
        try:
            self._run()
        except Exception as error:
            with self._told:
                self._failed = error
                self._told.notify_all()
            raise

    def _run(self) -> None:
        with psycopg.connect(self._dsn, autocommit=True, options="-c statement_timeout=10s") as own:
            release, ways = FormerRelease(own), cycle(ENDS)
            release.register()
            while not self._stopping.is_set():
                self._turn(release, next(ways))
            while taken := release.claim(100):
                self._end(release, "complete", taken)
            release.send("leave", worker=release.id)
            release.send("retire", worker=release.id)

    def goes_on(self) -> None:
        """Return when it has ended some more jobs, in every way and by prepared statements."""
        with self._told:
            goal = len(self.ended) + TURNS
            assert self._told.wait_for(lambda: self._failed or len(self.ended) >= goal, timeout=60)
        if self._failed:
            raise self._failed

    def stop(self) -> None:
        """End after the turn at hand."""
        self._stopping.set()

    def _turn(self, release: FormerRelease, how: str) -> None:
        self.enqueued |= release.enqueue()
        self._end(release, how, release.claim(AT_ONCE))
        release.keep_order()

    def _end(self, release: FormerRelease, how: str, taken: list[tuple[int, int]]) -> None:
        done = release.end(how, taken)
        assert done == {job_id for job_id, _ in taken}
        if how != "put_back":
            with self._told:
                self.ended += done
                self._told.notify_all()


@contextmanager
def at_work(dsn: str) -> Iterator[FormerWorker]:
    """Such a program, for the length of a block; what goes wrong with it fails the test."""
    worker = FormerWorker(dsn)
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(worker.run)
        try:
            worker.goes_on()
            yield worker
        finally:
            worker.stop()
        running.result()
