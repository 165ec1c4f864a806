"""Former releases as the database sees them: the statements that they send, word for word.

``former/NNNN`` holds a copy of the ``sql/`` of the release of that revision, taken when the next one began. Its workers
name the columns of that revision and expect its answers, so this file fills in the parameters and reads the rows itself:
today's plans belong to today's statements.
"""

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count, cycle
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg

FORMER = Path(__file__).parent / "former"
RELEASES = ("0002", "0003", "0004", "0005", "0006", "0007", "0009")
STATEMENTS = {
    release: {
        str(file.relative_to(FORMER / release).with_suffix("")): file.read_text()
        for file in (FORMER / release).rglob("*.sql")
    }
    for release in RELEASES
}
LEASE = "30 seconds"
ENDS = ("complete", "bury", "put_back", "cancel_ended")
AT_ONCE = 4
"""How many jobs it claims and ends in a turn."""
TURNS = 20
"""After so many turns psycopg has each statement prepared."""
WELL = dict.fromkeys(("blocked_for", "blocked_job", "blocked_task", "blocked_where", "not_returned"))
"""What a worker of revision 0005 says with a heartbeat if there is nothing to say of its health."""
SINCE_0008 = dict.fromkeys(("running", "looked", "look_within", "not_listening", "seldom"))
"""What a worker of revision 0008 says of its claims with a heartbeat, and asks besides with a poll, if that is nothing."""
SINCE_0007: dict[str, Any] = {
    **dict.fromkeys(("expires_at", "expires_in", "memory", "minimum", "maximum", "answer")),
    "room": True,
    "slots": 1,
    "draining": False,
    "supervised": False,
}
"""What a program of revision 0007 says of a job that does not expire, and a worker of one slot."""
SINCE_0004 = {
    "bury": ("end", {"outcomes": "dead"}),
    "cancel_ended": ("end", {"outcomes": "cancelled"}),
    "put_back": ("requeue", {}),
    "departed": ("lost_workers", {}),
    "left_behind": ("lost_jobs", {}),
    "retire": ("leave_without_jobs", {}),
    "tick": ("poll", {}),
}
"""Statements of revision 0003 that have another name from revision 0004, or 0005, on, with an array of one value for each job."""


class FormerRelease:
    """A former release's statements, on one connection."""

    def __init__(self, connection: psycopg.Connection[Any], release: str) -> None:
        """Wrap a connection that commits each statement."""
        self._connection = connection
        self._statements = STATEMENTS[release]
        self._counts_claims = release == "0002"
        self._no_more = "\t\\N" * ((release >= "0004") + (release >= "0007"))
        self._claimed_columns = 11 + (release >= "0004") + (release >= "0006") + (release >= "0007")
        self._fences = count(1)
        self.id = uuid4()

    def send(self, name: str, **params: Any) -> list[tuple[Any, ...]]:
        """Send a statement as that release did; its rows."""
        if not self._knows(name):
            name, values = SINCE_0004[name]
            params |= {array: [value] * len(params["ids"]) for array, value in values.items()}
        cursor = self._connection.execute(
            self._statements[name].encode(), SINCE_0007 | SINCE_0008 | {"now": None} | params, binary=True
        )
        return cursor.fetchall() if cursor.description else []

    def _knows(self, name: str) -> bool:
        return name in self._statements

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
            tasks=None,
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
            "meta": None,
        }
        ids = {self.send(name, **job)[0][0] for name in ("enqueue_now", "enqueue", "enqueue_unique")}
        ids.add(
            self.send("enqueue_for_period", **job | {"unique_key": str(uuid4()), "period": "1 minute"})[0][0]
        )
        return ids | self._copy()

    def _copy(self) -> set[int]:
        ((first, last),) = self.send("reserve_ids", count=1)
        row = f"{first}\tdefault\tbill\t{{}}\t0\tready\t2020-01-01T00:00:00+00:00\t25" + self._no_more + "\n"
        with self._connection.cursor().copy(self._statements["enqueue_copy"].encode()) as copy:
            copy.write(row)
        assert first == last
        return {first}

    def claim(self, most: int) -> list[tuple[int, int]]:
        """Take jobs; the id and the number of the claim of each."""
        line = {"mark_ranks": [-101], "mark_run_ats": ["0001-01-01T00:00:00+00:00"], "mark_ids": [0]}
        fence = next(self._fences)
        rows = self.send(
            "claim", worker=self.id, queues=["default"], quotas=[most], limit=None, fence=fence, **line
        )
        assert all(len(row) == self._claimed_columns for row in rows)
        assert self._counts_claims or all(row[1] == fence for row in rows)
        return [(row[0], row[1]) for row in rows]

    def end(self, how: str, taken: list[tuple[int, int]]) -> set[int]:
        """Record the same verdict on each; the ids for which it was taken."""
        taken = sorted(taken)
        error = json.dumps({"attempt": 1, "type": "ValueError", "message": "no"})
        numbers = [number for _, number in taken]
        fence = (
            {"claims": numbers, "claim": None} if self._counts_claims else {"fences": numbers, "fence": None}
        )
        rows = self.send(
            how,
            worker=self.id,
            ids=[job_id for job_id, _ in taken],
            **fence,
            seconds=[0.5] * len(taken),
            results=['{"total": 3}'] * len(taken),
            keep=True,
            errors=[error] * len(taken),
            reasons=["asked"] * len(taken),
            delays=[0.0] * len(taken),
            refunds=[1] * len(taken),
            unknown_afters=None,
            only_requested=False,
        )
        return {row[0] for row in rows}

    def keep_order(self) -> None:
        """Do what its workers do beside their jobs: beat, tick, look for lost workers and for history to come."""
        assert len(self.send("renew", worker=self.id, lease=LEASE, **WELL)) == 1
        line = {"mark_ranks": [-101], "mark_run_ats": ["0001-01-01T00:00:00+00:00"], "mark_ids": [0]}
        self.send("tick", limit=5000, queues=["default"], elsewhere=True, **line)
        self.send("expire_workers")
        lost: list[UUID] = [row[0] for row in self.send("departed")]
        if self._counts_claims:
            if lost:
                self.send("reclaim", workers=lost)
            self.send("ensure_history_days", days=7)
        else:
            found = [job_id for job_id, _ in self.send("left_behind", workers=lost)] if lost else []
            self.send("take_over", ids=found, workers=lost)
            for (day,) in self.send("missing_history_days", days=7):
                self.send("make_history_day", day=day)
        self.send("release_holds", limit=100)


class FormerWorker:
    """A program of a former release: it enqueues, claims and ends jobs, one turn after the other, until stopped."""

    def __init__(self, dsn: str, release: str) -> None:
        """Begin with nothing done."""
        self.enqueued: set[int] = set()
        self.ended: list[int] = []
        self._dsn = dsn
        self._release = release
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
            release, ways = FormerRelease(own, self._release), cycle(ENDS)
            release.register()
            while not self._stopping.is_set():
                self._turn(release, next(ways))
            while taken := release.claim(100):
                self._end(release, "complete", taken)
            release.send("leave", worker=release.id)
            release.send("retire", worker=release.id)

    def goes_on(self, jobs: int = TURNS) -> None:
        """Return when it has ended some more jobs; by default so many that it has done so in every way and by prepared statements."""
        with self._told:
            goal = len(self.ended) + jobs
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
def at_work(dsn: str, release: str) -> Iterator[FormerWorker]:
    """Such a program, for the length of a block; what goes wrong with it fails the test."""
    worker = FormerWorker(dsn, release)
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(worker.run)
        try:
            worker.goes_on()
            yield worker
        finally:
            worker.stop()
        running.result()
