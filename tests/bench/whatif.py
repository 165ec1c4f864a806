"""What-if beside real workers: ``python tests/bench/whatif.py [--folder DIR] [--only CASE] [--rounds 1] [DSN]``.

Each case is a load that real workers run twice, under two settings. Both histories are exported to lakes. Then what-if predicts each
of the two from the other one, and its waits are compared with those that were recorded. Jobs sleep, so that the processor decides
little. ``--folder`` keeps the lakes: a second call with the same folder only predicts.
"""

import argparse
import asyncio
import multiprocessing
import random
import shutil
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import permutations
from pathlib import Path
from typing import NoReturn, TypeAlias

import psycopg

from pgqueue import Limit, PgQueue
from pgqueue.embedded import embedded_server
from pgqueue.spark.lake.export import ExportOptions, export
from pgqueue.spark.lake.lake import Lake
from pgqueue.spark.whatif.settings import ReplayLimit, ReplaySettings
from pgqueue.spark.whatif.trust import FIGURES, NEAR
from pgqueue.spark.whatif.whatif import ReplayComparison, whatif
from pgqueue.store.schema import schema
from pgqueue.values.queues.served_queues import ALL, ServedQueues, parse_served
from pgqueue.worker.worker import Worker

Crew: TypeAlias = tuple[int, int]
"""How many workers, and how many slots each has."""
Arrival: TypeAlias = tuple[float, "Burst", int, int, int]
"""A job: when it is enqueued, of which burst, how long it takes in ms, its priority and its key."""
PLACES = 3
"""Jobs of a key that run at once."""
LONGEST = 300
"""Seconds that a load may take."""
PAUSE = 0.01
"""Seconds between two batches of the enqueuer."""


@dataclass(frozen=True)
class Burst:
    """Jobs that are enqueued at a rate.

    Attributes:
        seconds: for how long.
        rate: how many each second.
        ms: the shortest and the longest that one takes.
        queue: their queue.
        priorities: one of these, at random.
        keys: how many keys of the limit they have; 0: they are of the task without a limit.
    """

    seconds: float
    rate: float
    ms: tuple[int, int]
    queue: str = "mail"
    priorities: Sequence[int] = (0,)
    keys: int = 0


@dataclass(frozen=True)
class Case:
    """A load, and the two settings that run it.

    Attributes:
        crews: the settings.
        load: one after the other in each list; the lists side by side.
        weights: of the queues.
    """

    crews: tuple[Crew, Crew]
    load: Sequence[Sequence[Burst]]
    weights: Mapping[str, int] = field(default_factory=dict)

    @property
    def serving(self) -> ServedQueues:
        """The queues of the workers."""
        return parse_served(self.weights) if self.weights else ALL

    @property
    def limits(self) -> tuple[ReplayLimit, ...]:
        """The limits of the tasks."""
        limited = any(burst.keys for line in self.load for burst in line)
        return (ReplayLimit("task:limited:key", PLACES),) if limited else ()


TWO, FOUR = (2, 4), (4, 4)
CALM = Burst(14, 20, (100, 300))
CASES = {
    "long waits": Case((TWO, FOUR), [[Burst(8, 110, (100, 300)), CALM]]),
    "short waits": Case((TWO, FOUR), [[Burst(25, 25, (50, 150))]]),
    "short jobs": Case((TWO, FOUR), [[Burst(6, 260, (50, 100)), Burst(14, 40, (50, 100))]]),
    "long jobs": Case((TWO, FOUR), [[Burst(2, 60, (1_000, 2_000)), Burst(15, 3, (1_000, 2_000))]]),
    "two queues with weights": Case(
        (TWO, FOUR),
        [[Burst(8, 55, (100, 300)), CALM], [Burst(8, 55, (100, 300), queue="pages")]],
        {"mail": 3, "pages": 1},
    ),
    "priorities": Case((TWO, FOUR), [[Burst(8, 110, (100, 300), priorities=(0, 0, 5, -5)), CALM]]),
    "a limit": Case((TWO, FOUR), [[Burst(15, 8, (400, 800), keys=2)], [Burst(15, 10, (100, 300))]]),
    "another concurrency": Case(((2, 3), (2, 6)), [[Burst(8, 80, (100, 300)), CALM]]),
}  # fmt: skip


def main() -> None:
    """Run what is not recorded yet, and print what is predicted beside what was."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dsn", nargs="?")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--only", choices=CASES)
    parser.add_argument("--rounds", type=int, default=1)
    given = parser.parse_args()
    with ExitStack() as stack:
        folder = given.folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for number in range(given.rounds):
            for name, case in CASES.items():
                if given.only in {None, name}:
                    places = [folder / f"{name}-{number}-{workers}x{slots}" for workers, slots in case.crews]
                    if not all(place.exists() for place in places):
                        dsn = given.dsn or stack.enter_context(embedded_server())
                        asyncio.run(_record(dsn, case, places))
                    _compare(name, case, places)


async def _record(dsn: str, case: Case, places: Sequence[Path]) -> None:
    jobs = [*_arrivals(case)]
    for place in places:
        shutil.rmtree(place, ignore_errors=True)
    await asyncio.gather(
        *(_run(dsn, case, crew, jobs, place) for crew, place in zip(case.crews, places, strict=True))
    )


def _arrivals(case: Case) -> Iterator[Arrival]:
    chance = random.Random(7)  # noqa: S311 - no secret
    for line in case.load:
        begin = 0.0
        for burst in line:
            at = begin
            while (at := at + chance.expovariate(burst.rate)) < begin + burst.seconds:
                yield (
                    at,
                    burst,
                    chance.randint(*burst.ms),
                    chance.choice(burst.priorities),
                    chance.randrange(max(1, burst.keys)),
                )
            begin += burst.seconds


async def _run(dsn: str, case: Case, crew: Crew, jobs: Sequence[Arrival], place: Path) -> None:
    own = _database(dsn, f"whatif_{crew[0]}_{crew[1]}")
    queue = _tasks(own)
    spawn = multiprocessing.get_context("spawn")
    workers = [spawn.Process(target=_work, args=(own, crew[1], dict(case.weights))) for _ in range(crew[0])]
    for worker in workers:
        worker.start()
    try:
        await asyncio.to_thread(_wait_for, own, f"select count(*) = {crew[0]} from pgqueue.workers")
        await asyncio.sleep(2)
        await _enqueue(queue, sorted(jobs, key=lambda job: job[0]))
        await asyncio.to_thread(_wait_for, own, "select count(*) = 0 from pgqueue.jobs")
    finally:
        for worker in workers:
            worker.terminate()
        for worker in workers:
            await asyncio.to_thread(worker.join)
    options = ExportOptions(now=datetime.now(UTC) + timedelta(days=2))
    await asyncio.to_thread(export, _no_session, queue.database, Lake(place), options=options)
    await queue.aclose()


async def _enqueue(queue: PgQueue, jobs: Sequence[Arrival]) -> None:
    free, limited = queue.find_task("free"), queue.find_task("limited")
    began = time.monotonic()
    left = deque(jobs)
    while left:
        calls = []
        while left and left[0][0] <= time.monotonic() - began:
            _, burst, ms, priority, key = left.popleft()
            task = limited if burst.keys else free
            calls.append(task.using(queue=burst.queue, priority=priority).call(ms, key=key))
        if calls:
            await queue.aenqueue_many(calls)
        await asyncio.sleep(PAUSE)


def _compare(name: str, case: Case, places: Sequence[Path]) -> None:
    lakes = [Lake(place) for place in places]
    for one, other in permutations(range(2)):
        crew, new = case.crews[one], case.crews[other]
        found, truth = _predicted(case, lakes[one], new), _predicted(case, lakes[other], new)
        sys.stdout.write(f"{name}, {crew[0]}x{crew[1]} -> {new[0]}x{new[1]}, {found.jobs:,} jobs\n")
        for figure in FIGURES:
            sys.stdout.write(f"  {_line(figure, found, truth)}\n")
        sys.stdout.flush()


def _predicted(case: Case, lake: Lake, crew: Crew) -> ReplayComparison:
    settings = ReplaySettings(workers=crew[0], concurrency=crew[1], serving=case.serving, had=case.limits)
    return whatif(lake, [one.day for one in lake.days()], settings)


def _line(figure: str, found: ReplayComparison, truth: ReplayComparison) -> str:
    assert found.check is not None
    was, replayed, would_be, real = (
        getattr(one, figure) for one in (found.was, found.check.replayed, found.would_be, truth.was)
    )
    off = abs(would_be - real) / real
    verdict = found.doubts.get(figure) or ("predicted" if off <= NEAR else "PREDICTED WRONGLY")
    return f"{figure} was {was:.3f}, replayed {replayed:.3f}; would be {would_be:.3f}, real {real:.3f}, {off:4.0%} off: {verdict}"


def _work(dsn: str, slots: int, weights: Mapping[str, int]) -> None:
    asyncio.run(Worker(_tasks(dsn), concurrency=slots, queues=weights or None).run())


def _tasks(dsn: str) -> PgQueue:
    queue = PgQueue(dsn)

    @queue.task(name="free")
    async def free(ms: int, key: int) -> None:
        del key
        await asyncio.sleep(ms / 1_000)

    @queue.task(name="limited", limit=Limit(PLACES, by="key"))
    async def limited(ms: int, key: int) -> None:
        del key
        await asyncio.sleep(ms / 1_000)

    return queue


def _database(dsn: str, name: str) -> str:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(f"drop database if exists {name} with (force)".encode())
        connection.execute(f"create database {name}".encode())
    own = psycopg.conninfo.make_conninfo(dsn, dbname=name)
    schema.migrate(own, schema="pgqueue")
    return own


def _wait_for(dsn: str, query: str) -> None:
    until = time.monotonic() + LONGEST
    with psycopg.connect(dsn, autocommit=True) as connection:
        while not connection.execute(query.encode()).fetchall()[0][0]:
            if time.monotonic() > until:
                raise TimeoutError(f"not within {LONGEST} s: {query}")
            time.sleep(0.2)


def _no_session() -> NoReturn:
    raise AssertionError("a small day is exported without a session")


if __name__ == "__main__":
    main()
