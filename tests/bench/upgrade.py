"""How long an upgrade makes claims wait: ``python tests/bench/upgrade.py [DSN] [--rows 10000000]``.

An empty database gets this release's tables, as many waiting jobs and as many jobs of the history as asked, and a tenth of that of
dead jobs. Then a made-up next revision is installed, and taken back, while a worker of this release claims and completes jobs and
a program enqueues. It prints the longest time that a claim, a completion and an enqueue waited.
"""

import argparse
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psycopg

from pgqueue.embedded import embedded_server
from pgqueue.store.jobs import claim, finish
from pgqueue.store.schema import schema
from pgqueue.store.workers import leases
from pgqueue.values.jobs.verdict import Succeeded

sys.path.insert(0, str(Path(__file__).parents[1]))

from store.crowd import ask
from store.releases import NEXT, next_release
from store.samples import LEASE, worker_info

DAYS = 10
"""Over so many days the history is spread."""
AT_ONCE = 10
"""Jobs in one claim."""
PAUSE = 0.002
"""Seconds between two statements of one program."""
FILL = (
    "select pgqueue.ensure_history_days(current_date - 10, current_date)",
    """insert into pgqueue.jobs (queue, task, args, status, run_at, priority)
       select 'default', 'task-' || n % 5, '{"n": 1}', case when n % 10 < 8 then 'ready' else 'scheduled' end,
              now() + (n % 1000 - 999) * interval '1 hour', n % 3
       from generate_series(1, %(rows)s) as n""",
    """insert into pgqueue.job_history (id, run_at, created_at, started_at, finished_at, worker_id, collisions, priority, attempts,
                                        max_attempts, outcome, queue, task, args)
       select -n, now(), now(), now(), now() - n % %(days)s * interval '1 day', gen_random_uuid(), 0, 0, 1, 25, 'succeeded',
              'default', 'task-' || n % 5, '{"n": 1}'
       from generate_series(1, %(rows)s) as n""",
    """insert into pgqueue.dead_jobs (id, run_at, created_at, died_at, collisions, priority, attempts, max_attempts, reason,
                                      queue, task, args)
       select -n, now(), now(), now(), 0, 0, 3, 3, 'exhausted', 'default', 'task-' || n % 5, '{}'
       from generate_series(1, %(rows)s / 10) as n""",
    "vacuum analyze",
)


class Load:
    """A worker of this release and an enqueuer; each notes when its statements began and how long they took."""

    def __init__(self, dsn: str) -> None:
        """Begin with nothing noted."""
        self._dsn = dsn
        self._stopping = threading.Event()
        self.took: dict[str, list[tuple[float, float]]] = {"claim": [], "complete": [], "enqueue": []}

    def work(self) -> None:
        """Claim jobs and complete them, until stopped."""
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            me = worker_info()
            ask(connection, leases.register(me, LEASE))
            while not self._stopping.wait(PAUSE):
                with self._timed("claim"):
                    claims = ask(connection, claim.claim(me.id, {"default": AT_ONCE}))
                with self._timed("complete"):
                    ask(connection, finish.finish(me.id, [Succeeded(one, 0.0) for one in claims], keep=True))

    def enqueue(self) -> None:
        """Enqueue one job after the other, until stopped."""
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            while not self._stopping.wait(PAUSE):
                with self._timed("enqueue"):
                    connection.execute("insert into pgqueue.jobs (task) values ('task-1')")

    def stop(self) -> None:
        """End both."""
        self._stopping.set()

    @contextmanager
    def _timed(self, kind: str) -> Iterator[None]:
        began = time.monotonic()
        yield
        self.took[kind].append((began, time.monotonic() - began))

    def longest(self, since: float) -> dict[str, float]:
        """The longest statement of each kind that began after an instant, or lasted beyond it, in seconds."""
        return {
            kind: max((took for began, took in found if began + took > since), default=0.0)
            for kind, found in self.took.items()
        }


def fill(dsn: str, rows: int) -> None:
    """Make the rows."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("set synchronous_commit = off")
        for statement in FILL:
            connection.execute(
                statement.replace("%(rows)s", str(rows)).replace("%(days)s", str(DAYS)).encode()
            )


def measure(load: Load, name: str, change: Callable[[], None]) -> None:
    """Print how long a change took, and how long statements waited meanwhile and in the second after it."""
    began = time.monotonic()
    change()
    took = time.monotonic() - began
    time.sleep(1)
    waits = ", ".join(f"{kind} {seconds * 1000:,.0f} ms" for kind, seconds in load.longest(began).items())
    sys.stdout.write(f"{name}: {took:,.1f} s; longest {waits}\n")
    sys.stdout.flush()


def main() -> None:
    """Fill, upgrade and downgrade."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dsn", nargs="?")
    parser.add_argument("--rows", type=int, default=10_000_000)
    given = parser.parse_args()
    with ExitStack() as stack:
        dsn = given.dsn or stack.enter_context(embedded_server())
        schema.migrate(dsn)
        measure(Load(dsn), f"{given.rows:,} rows", lambda: fill(dsn, given.rows))
        threads, load = stack.enter_context(ThreadPoolExecutor(2)), Load(dsn)
        stack.callback(load.stop)
        running = [threads.submit(load.work), threads.submit(load.enqueue)]
        upgrade_and_downgrade(dsn, load)
        load.stop()
        for one in running:
            one.result()


def upgrade_and_downgrade(dsn: str, load: Load) -> None:
    """Install the next revision, and take it back."""
    measure(load, "no change", lambda: time.sleep(5))
    with next_release() as after:
        measure(load, f"up to {NEXT}", lambda: after.migrate(dsn))
        measure(load, f"down to {schema.REVISION}", lambda: after.migrate(dsn, schema.REVISION))


if __name__ == "__main__":
    main()
