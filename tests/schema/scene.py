"""The made-up shop in which each role tries what there is to do."""

from collections.abc import Iterator
from itertools import count
from typing import NamedTuple

import pytest
from dashboard.world import World, shop, stored_alert, worker_row
from looking import ask

from pgqueue import Limit, PgQueue, chain


class Scene(NamedTuple):
    """What the owner has made, and makes for one call each.

    Attributes:
        own: the owner's queue.
        world: its jobs.
        flow: a flow that runs.
        numbers: for names that were not there before.
    """

    own: PgQueue
    world: World
    flow: int
    numbers: Iterator[int]

    def ready(self) -> int:
        return self.own.tasks["shop.search.reindex"].enqueue(what="x").id

    def scheduled(self) -> int:
        return self.own.tasks["shop.search.reindex"].using(delay=3600).enqueue(what="x").id

    def dead(self) -> int:
        (found,) = ask(self.own, "select min(id) from pgqueue.dead_jobs")[0]
        return int(found)

    def new_flow(self) -> int:
        return chain(*[self.own.tasks["shop.search.reindex"].call(what="x")] * 2).enqueue().id

    def cancelled_flow(self) -> int:
        flow = self.new_flow()
        self.own.flows.cancel(flow)
        return flow

    def run(self) -> str:
        name = f"run-{next(self.numbers)}"
        ask(
            self.own,
            "insert into pgqueue.sink_writes (id, run, task, rows, enqueued, rejected, changed) "
            "values (gen_random_uuid(), %s, 'shop.send', 0, 0, 0, 0)",
            name,
        )
        return name

    def worker(self) -> str:
        pid = 50_000 + next(self.numbers)
        worker_row(self.own, pid=pid)
        return f"web-2:{pid}"

    def schedule(self) -> str:
        name = f"schedule {next(self.numbers)}"
        self.own.schedules.add(name, self.own.tasks["shop.search.reindex"].call(what="x"), "0 4 * * *")
        return name

    def limit(self) -> str:
        name = f"queue:{self.queue()}"
        self.own.control.limits.set(name, Limit(2))
        return name

    def limit_that_code_has_forgotten(self) -> str:
        name = f"forgotten-{next(self.numbers)}"
        ask(
            self.own,
            "insert into pgqueue.jobs (task, status, lane, in_lane) values ('t', 'blocked', %s, true)",
            name,
        )
        return name

    def queue(self) -> str:
        return f"queue-{next(self.numbers)}"


@pytest.fixture
def made_scene(queue: PgQueue) -> Iterator[Scene]:
    with shop(queue) as world:
        worker_row(queue)
        stored_alert(queue)
        queue.control.limits.set("queue:mail", Limit(5))
        queue.schedules.add("nightly", queue.tasks["shop.search.reindex"].call(what="all"), "0 4 * * *")
        flow = chain(*(queue.tasks["shop.search.reindex"].call(what=one) for one in "ab")).enqueue().id
        yield Scene(queue, world, flow, count(1))


def token(scene: Scene) -> str:
    (token,) = ask(scene.own, "select pgqueue.callback_token(%s, 'paid', null)", scene.world.ready)[0]
    return str(token)


def root(scene: Scene) -> int:
    (root,) = ask(
        scene.own, "select id from pgqueue.nodes where flow_id = %s and parent_id is null", scene.flow
    )[0]
    return int(root)


def interrupted(scene: Scene) -> int:
    """The number of an operation that was interrupted before its first job."""
    scene.own.control.jobs(ids=[scene.ready()]).reprioritise(2)
    (last, *_) = scene.own.insight.audit()
    ask(scene.own, "update pgqueue.audit set ended_at = null where id = %s", last.id)
    return last.id


def held_by_a_worker(scene: Scene) -> int:
    ask(scene.own, "update pgqueue.workers set minimum = 1")
    return scene.world.running
