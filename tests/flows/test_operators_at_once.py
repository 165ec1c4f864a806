"""Two people cancel and retry a flow while workers run it: nothing is stuck, no job runs beside itself, nothing is lost."""

import random
import threading
from collections.abc import Callable
from contextlib import suppress

import pytest
from flows.test_cancelling import assert_nothing_left
from flows.world import World, a_world

from pgqueue import FlowHandle, Workflow, group
from pgqueue.errors import DatabaseError, FlowRefused

world = a_world
ROUNDS = 12


def _flow(world: World) -> FlowHandle:
    flow = Workflow("busy", if_failed="continue")
    flow.add("first", group([world.note.call(n) for n in range(30)]))
    flow.add("second", group([world.note.call(n) for n in range(30)]), after="first")
    flow.add("third", world.note.call("third"), after={"second": "wait"})
    flow.add("last", world.note.call("last"), after={"third": "cancel"})
    return flow.enqueue()


class Crowd:
    """Threads that work on one flow until the operators are done.

    Attributes:
        problems: what was raised in them.
    """

    def __init__(self, world: World, handle: FlowHandle, seed: int) -> None:
        self.problems: list[BaseException] = []
        self._world = world
        self._handle = handle
        self._seed = seed
        self._stop = threading.Event()

    def run(self) -> None:
        """Two operators and two workers, until the operators are done."""
        workers = [threading.Thread(target=self._guarded, args=(self._work, number)) for number in range(2)]
        operators = [
            threading.Thread(target=self._guarded, args=(self._operate, number)) for number in range(2)
        ]
        for thread in [*workers, *operators]:
            thread.start()
        for thread in operators:
            thread.join(60)
        self._stop.set()
        for thread in workers:
            thread.join(60)

    def _guarded(self, run: Callable[[random.Random], None], number: int) -> None:
        try:
            run(random.Random(f"{self._seed} {number}"))  # noqa: S311 - not for secrets
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            self.problems.append(error)

    def _operate(self, draw: random.Random) -> None:
        for _ in range(ROUNDS):
            with suppress(FlowRefused):
                draw.choice(_ACTIONS)(self._handle)

    def _work(self, draw: random.Random) -> None:
        while not self._stop.is_set():
            try:
                with self._world.queue.take(5, timeout=0.05) as jobs:
                    for job in jobs:
                        if draw.random() < 0.1:
                            job.fail("told to")
            except DatabaseError as error:  # a worker would write its verdicts again
                if "deadlock" not in str(error):
                    raise


@pytest.mark.parametrize("seed", range(3))
def test_cancels_retries_and_workers_at_once_leave_nothing_stuck(seed: int, world: World) -> None:
    handle = _flow(world)
    crowd = Crowd(world, handle, seed)
    crowd.run()
    assert not crowd.problems

    world.rows("delete from pgqueue.workers returning id")  # what a rolled-back take still held
    world.run()
    handle.cancel()
    world.run()
    assert_nothing_left(world)
    assert world.rows(MISCOUNTED) == []
    handle.retry(what="all")
    world.run()
    assert world.states == ["succeeded"]
    assert_nothing_left(world)


MISCOUNTED = """
select parent_id from pgqueue.nodes where parent_id is not null group by parent_id
having count(*) filter (where state in ('failed', 'cancelled'))
       <> (select sum(failed) from pgqueue.node_counts where node_id = parent_id)"""
"""Groups whose count of failed members is not that of their members."""


_ACTIONS: list[Callable[[FlowHandle], object]] = [
    lambda handle: handle.cancel(),
    lambda handle: handle.retry(),
    lambda handle: handle.retry(what="failed"),
    lambda handle: handle.show(),
    lambda handle: handle.jobs[0].cancel(),
]
