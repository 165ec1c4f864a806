"""Promise 5: limits hold across all workers of all hosts, while workers are killed; decided from what the jobs wrote to a file."""

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from looking import ask, wait_until
from promises.processes import live_jobs, processes
from promises.workshop import Workshop

from pgqueue import PgQueue
from pgqueue.app.task import Call


class Line(NamedTuple):
    """One line of the file."""

    at: float
    what: str
    task: str
    key: str
    job: int
    pid: int


def read(log: Path, killed: dict[int, float]) -> list[Line]:
    """What the jobs wrote, in order; and an end for each attempt whose process was killed."""
    found = [line.split() for line in log.read_text(encoding="utf-8").splitlines()]
    lines = [Line(float(at), what, task, key, int(job), int(pid)) for at, what, task, key, job, pid in found]
    ended = Counter((one.job, one.pid) for one in lines if one.what == "end")
    for one in [*lines]:
        if one.what == "start" and one.pid in killed:
            if ended[one.job, one.pid]:
                ended[one.job, one.pid] -= 1
            else:
                lines.append(one._replace(at=max(one.at, killed[one.pid]), what="end"))
    return sorted(lines, key=lambda one: (one.at, one.what == "start"))


def most_at_once(lines: list[Line], group: Callable[[Line], str]) -> dict[str, int]:
    """How many attempts of each group ran at once, at most."""
    now: Counter[str] = Counter()
    most: Counter[str] = Counter()
    for one in lines:
        now[group(one)] += 1 if one.what == "start" else -1
        most[group(one)] = max(most[group(one)], now[group(one)])
    return dict(most)


def test_limits_are_never_exceeded_by_four_processes_of_eight_slots_that_are_killed_at_random(
    dsn: str, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    log.touch()
    queue = PgQueue(dsn)
    workshop = Workshop(queue)
    queue.enqueue_many(_jobs(workshop, str(log)))
    killed: dict[int, float] = {}
    with processes(dsn) as start:
        workers = [start(concurrency=8, lease=2.0) for _ in range(4)]
        for kill in range(6):
            wait_until(partial(_wrote, log, 60 * (kill + 1), dsn))
            worker = workers.pop(random.randrange(4))  # noqa: S311 - any of them
            killed[worker.pid] = time.monotonic()
            worker.kill()
            workers.append(start(concurrency=8, lease=2.0))
        wait_until(lambda: live_jobs(dsn) == 0)
    lines = read(log, killed)
    assert len({one.job for one in lines}) == 320
    at_once = most_at_once(lines, lambda one: f"{one.task} {one.key}")
    assert [at_once[f"in_order {key}"] for key in "abcde"] == [1] * 5
    assert (
        max(at_once[f"limited {key}"] for key in "abc") <= 3
    )  # that 3 are reached: tests/limits/test_worker_limits.py
    assert most_at_once(lines, lambda one: one.task)["in_order"] <= 3
    assert ask(dsn, "select count(*) from pgqueue.jobs where in_lane or status = 'running'") == [(0,)]
    queue.close()


def _wrote(log: Path, lines: int, dsn: str) -> bool:
    return len(log.read_text(encoding="utf-8").splitlines()) > lines or not live_jobs(dsn)


def _jobs(workshop: Workshop, log: str) -> Iterator[Call[None]]:
    for number in range(320):
        if number % 2:
            yield workshop.limited.call(log=log, key="abc"[number % 3])
        else:
            yield workshop.in_order.call(log=log, key="abcde"[number % 5])
