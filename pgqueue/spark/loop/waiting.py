"""Waits for the jobs of a run, and says meanwhile how far they are."""

import logging
import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import psycopg

from pgqueue.errors import ConnectionFailed
from pgqueue.spark.loop.progress import OnProgress, Pace, ProgressLine
from pgqueue.store.connections.patience import Patience, waiting_at_most
from pgqueue.store.insight import runs
from pgqueue.values.insight.runs import Run

if TYPE_CHECKING:
    from pgqueue.app.pgqueue import PgQueue

logger = logging.getLogger("pgqueue.spark")
SHORTEST, LONGEST = 0.5, 10.0
"""Seconds between two looks at a run."""
SHARE = 20
"""The pause after a look is this many times as long as the look, within the bounds of pauses."""
UNREACHABLE = 30
"""How often in a row the database may be out of reach before waiting ends with the error."""
LEAST_LOOK, LONGEST_LOOK = 2.0, 60.0
"""Seconds that a look at a run may take: until the end of the wait, within these bounds."""
LATE = 30.0
"""Seconds after which a warning says that no job of the run has started."""


def wait_for(
    queue: "PgQueue",
    run: str,
    *,
    seconds: float | None = None,
    progress: OnProgress | bool = True,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], object] = time.sleep,
) -> None:
    """Wait until no job of a run waits or runs.

    While the database cannot be reached, it asks again for some minutes, or until the seconds have passed.

    Args:
        queue: of the database.
        run: the run's name.
        seconds: at most for so long; None: for as long as it takes.
        progress: as for :func:`apply`.
        clock: seconds on a clock that goes on evenly.
        sleep: waits for a number of seconds.

    Raises:
        TimeoutError: the seconds have passed.
        KeyboardInterrupt: someone interrupted it; a line says how to go on.
        InvalidOption: there is no such run.
    """
    line = ProgressLine(clock=clock)
    tell: OnProgress = line if progress is True else progress or _nothing
    end = math.inf if seconds is None else clock() + seconds
    pace, began, asked_why = Pace(), clock(), False
    try:
        while True:
            found, started = _looked(queue, run, end, clock, sleep)
            tell(pace.progress(found, clock()))
            if not found.live:
                return
            if clock() >= end:
                why = "" if _has_started(found) else f"; {_not_started(queue, found)}"
                raise TimeoutError(
                    f"run {run!r}: {found.live:,} of {found.jobs:,} jobs have not ended; they go on: "
                    f"call apply() with the same run again to wait on{why}"
                )
            if not asked_why and clock() - began >= LATE and not _has_started(found):
                asked_why = True
                logger.warning("run %r: %s", run, _not_started(queue, found))
            pause = min(max(SHORTEST, SHARE * (clock() - started)), LONGEST)
            sleep(max(0.0, min(pause, end - clock())))
    except KeyboardInterrupt:
        line.close()
        logger.warning(
            "interrupted: the jobs of run %r go on. Call apply() with the same run again to wait on; "
            "pgqueue.spark.status(%r) says how far they are, pgqueue.spark.cancel(%r) cancels them",
            run,
            run,
            run,
        )
        raise
    finally:
        line.close()


def _looked(
    queue: "PgQueue", run: str, end: float, clock: Callable[[], float], sleep: Callable[[float], object]
) -> tuple[Run, float]:
    """Return the run and when the look at it began; while the database cannot be reached, look again until the wait's end."""
    failed = 0
    while True:
        started = clock()
        longest = min(max(LEAST_LOOK, end - started), LONGEST_LOOK)
        try:
            with waiting_at_most(Patience(connection=longest, answer=longest)):
                return queue.database.run(runs.glance(run)), started
        except (ConnectionFailed, psycopg.OperationalError) as error:
            failed += 1
            if clock() >= end:
                raise TimeoutError(
                    f"run {run!r}: the database cannot be reached ({str(error).strip()}); the jobs go on: "
                    "call apply() with the same run again to wait on"
                ) from error
            if failed >= UNREACHABLE:
                raise
            if failed == 1:
                logger.warning(
                    "the database cannot be reached: %s; run %r goes on by itself, and is looked at again every %.0f s, "
                    "%d times",
                    str(error).strip(),
                    run,
                    LONGEST,
                    UNREACHABLE - 1,
                )
        sleep(max(0.0, min(LONGEST, end - clock())))


def _has_started(run: Run) -> bool:
    """Return whether a job has started, or none is due."""
    return bool(run.running or run.ended or run.dead or not (run.ready or run.blocked))


def _not_started(queue: "PgQueue", run: Run) -> str:
    """Say what to do about a run of which no job has started."""
    written = queue.database.run(runs.written(run.name))
    first = written.ids[0][0] if written is not None and written.ids else "JOB"
    return (
        f"no job has started yet: is a worker running that has the task {', '.join(run.tasks)} and serves its queue? "
        f"`pgqueue why {first}` says why the first job waits"
    )


def _nothing(_: object) -> None:
    pass
