"""What each role can do with a login and connections of its own: public methods, and pages of the dashboard."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from types import MethodType
from typing import Any

import pytest
from dashboard.people import Person
from dashboard.world import stored_alert
from looking import ask, until
from running import Running
from schema.logins import (
    CONNECTED,
    GIVES,
    LOGINS,
    MONITORS,
    OPERATORS,
    PRODUCERS,
    READERS,
    SENDERS,
    WORKERS,
    login,
)
from schema.scene import Scene, held_by_a_worker, interrupted, made_scene, root, token

from pgqueue import Alert, DeadJobs, JobState, Limit, PgQueue, Unique, Worker, chain
from pgqueue.dashboard import Dashboard, User
from pgqueue.dashboard.pages import PAGES
from pgqueue.errors import NotGranted, SchemaError

scene = made_scene
Call = Callable[[PgQueue, Scene], object]
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def _task(queue: PgQueue, **options: Any) -> Any:
    return queue.tasks.get("send") or queue.task(name="send", queue="mail", **options)(_send)


def _send(number: int) -> None: ...


def _take(queue: PgQueue, _: Scene) -> None:
    with queue.take(1, queues=["default"], timeout=0):
        pass


def _add(queue: PgQueue, scene: Scene) -> None:
    call = scene.own.tasks["shop.search.reindex"].call(what="x")
    queue.schedules.add(f"schedule {next(scene.numbers)}", call, "0 4 * * *")


def _put(queue: PgQueue, scene: Scene) -> None:
    queue.schedules.put("nightly", scene.own.tasks["shop.search.reindex"].call(what="x"), "0 5 * * *")


CALLS: dict[str, tuple[set[str], Call]] = {
    "enqueue": (PRODUCERS, lambda q, _: q.enqueue(_task(q), 1)),
    "enqueue_named": (PRODUCERS, lambda q, _: q.enqueue_named("elsewhere", {"n": 1}, queue="mail")),
    "enqueue_copy": (OPERATORS, lambda q, s: q.enqueue_copy(s.world.succeeded)),
    "enqueue, known queue": (PRODUCERS, lambda q, _: [_task(q).enqueue(n) for n in range(2)]),
    "enqueue, scheduled": (PRODUCERS, lambda q, _: _task(q).using(delay=60, expires_in=90).enqueue(1)),
    "enqueue, unique": (
        PRODUCERS,
        lambda q, _: [_task(q).using(unique_key="k").enqueue(n) for n in range(2)],
    ),
    "enqueue, limited": (PRODUCERS, lambda q, _: _task(q, limit=Limit(1, by="number")).enqueue(1)),
    "enqueue, limited and unique": (
        PRODUCERS,
        lambda q, _: [_task(q, limit=Limit(1)).using(unique_key="l").enqueue(n) for n in range(2)],
    ),
    "enqueue, replacing": (
        OPERATORS,
        lambda q, s: [
            _task(q, unique=Unique(collision="replace")).using(unique_key=f"r{s.flow}").enqueue(n)
            for n in range(2)
        ],
    ),
    "enqueue, for a period": (
        OPERATORS,
        lambda q, _: _task(q, unique=Unique(period=timedelta(hours=1))).using(unique_key="p").enqueue(1),
    ),
    "enqueue, when full": (
        OPERATORS,
        lambda q, _: _task(q, limit=Limit(1, by="number", when_full="refuse")).enqueue(5),
    ),
    "enqueue, bounded": (
        PRODUCERS,
        lambda q, s: (s.own.control.set("mail", backlog=900), _task(q).enqueue(1)),
    ),
    "enqueue, flow": (OPERATORS, lambda q, _: chain(_task(q).call(1), _task(q).call(2)).enqueue()),
    "enqueue_many": (PRODUCERS, lambda q, _: q.enqueue_many(_task(q).call(n) for n in range(3))),
    "enqueue_many, all": (
        PRODUCERS,
        lambda q, _: q.enqueue_many(
            [
                _task(q).call(1),
                _task(q).using(unique_key="m").call(2),
                _task(q).using(unique_key="m").call(3),
                q.task(name="limited", queue="mail", limit=Limit(1))(_send).call(4),
            ]
        ),
    ),
    "job": (READERS, lambda q, s: q.job(s.world.ready)),
    "why": (READERS, lambda q, s: q.why(s.world.ready)),
    "progress": (READERS, lambda q, s: q.progress(s.world.running)),
    "logs": (READERS, lambda q, s: q.logs(s.world.running)),
    "result": (READERS, lambda q, s: q.result(s.world.succeeded, timeout=9)),
    "cancel": (OPERATORS, lambda q, s: q.cancel(s.ready())),
    "retry": (OPERATORS, lambda q, s: q.retry(s.dead())),
    "flows.get": (MONITORS, lambda q, s: q.flows.get(s.flow)),
    "flows.nodes": (MONITORS, lambda q, s: q.flows.nodes(s.flow, parent=root(s))),
    "flows.list": (MONITORS, lambda q, _: q.flows.list()),
    "flows.cancel": (OPERATORS, lambda q, s: q.flows.cancel(s.new_flow())),
    "flows.retry": (OPERATORS, lambda q, s: q.flows.retry(s.cancelled_flow())),
    "signal": (SENDERS, lambda q, _: q.signal("key:k", "approved")),
    "resolve": (SENDERS, lambda q, s: q.resolve(token(s))),
    "take": (WORKERS, _take),
    "insight.audit": (MONITORS, lambda q, _: q.insight.audit()),
    "insight.compare": (MONITORS, lambda q, _: q.insight.compare(600, 600)),
    "insight.counts": (MONITORS, lambda q, _: q.insight.counts()),
    "insight.details": (READERS, lambda q, _: q.insight.details([1])),
    "insight.due": (READERS, lambda q, _: q.insight.due()),
    "insight.depths": (MONITORS, lambda q, _: q.insight.depths(600)),
    "insight.ended": (MONITORS, lambda q, _: q.insight.ended()),
    "insight.errors": (READERS, lambda q, _: q.insight.errors()),
    "insight.health": (MONITORS, lambda q, _: q.insight.health()),
    "insight.known_tasks": (MONITORS, lambda q, _: q.insight.known_tasks()),
    "insight.limit": (MONITORS, lambda q, _: q.insight.limit("queue:mail")),
    "insight.limits": (MONITORS, lambda q, _: q.insight.limits()),
    "insight.queues": (MONITORS, lambda q, _: q.insight.queues()),
    "insight.replica": (CONNECTED | {"producer by SQL", "nobody"}, lambda q, _: q.insight.replica()),
    "insight.running": (MONITORS, lambda q, _: q.insight.running()),
    "insight.schedules": (MONITORS, lambda q, _: q.insight.schedules()),
    "insight.search": (READERS, lambda q, _: q.insight.search()),
    "insight.series": (MONITORS, lambda q, _: q.insight.series(600)),
    "insight.retention": (MONITORS, lambda q, _: q.insight.retention()),
    "insight.runs": (MONITORS, lambda q, _: q.insight.runs()),
    "insight.run": (MONITORS, lambda q, s: q.insight.run(s.run())),
    "insight.store": (CONNECTED, lambda q, _: q.insight.store()),
    "insight.story": (READERS, lambda q, s: q.insight.story(s.world.dead)),
    "insight.totals": (MONITORS, lambda q, _: q.insight.totals(600, by="task")),
    "insight.weights": (MONITORS, lambda q, _: q.insight.weights()),
    "control.jobs, preview": (READERS, lambda q, _: q.control.jobs(queue="mail").preview()),
    "control.jobs, cancel": (OPERATORS, lambda q, s: q.control.jobs(ids=[s.ready()]).cancel()),
    "control.jobs, move": (OPERATORS, lambda q, s: q.control.jobs(ids=[s.ready()]).move("other")),
    "control.jobs, reprioritise": (OPERATORS, lambda q, s: q.control.jobs(ids=[s.ready()]).reprioritise(1)),
    "control.dead, preview": (READERS, lambda q, _: q.control.dead(queue="billing").preview()),
    "control.dead, retry": (OPERATORS, lambda q, s: q.control.dead(ids=[s.dead()]).retry()),
    "control.dead, purge": (OPERATORS, lambda q, s: q.control.dead(ids=[s.dead()]).purge()),
    "control.declare": (OPERATORS, lambda q, s: q.control.declare(s.queue(), priority=1)),
    "control.close": (OPERATORS, lambda q, s: q.control.close(s.queue())),
    "control.keep": (OPERATORS, lambda q, _: q.control.keep(history=timedelta(days=30))),
    "control.keep_series": (OPERATORS, lambda q, _: q.control.keep_series(hours=timedelta(days=30))),
    "control.pause": (OPERATORS, lambda q, s: q.control.pause(s.queue())),
    "control.resume": (
        OPERATORS,
        lambda q, s: (s.own.control.pause(name := s.queue()), q.control.resume(name)),
    ),
    "control.resume_operation": (OPERATORS, lambda q, s: q.control.resume_operation(interrupted(s))),
    "control.reschedule": (OPERATORS, lambda q, s: q.control.reschedule(s.scheduled(), NOON)),
    "control.run_now": (OPERATORS, lambda q, s: q.control.run_now(s.scheduled())),
    "control.set": (OPERATORS, lambda q, s: q.control.set(s.queue(), priority=3)),
    "control.stack": (OPERATORS, lambda q, s: q.control.stack(held_by_a_worker(s), timeout=0.01)),
    "control.limits.set": (OPERATORS, lambda q, _: q.control.limits.set("queue:media", Limit(2))),
    "control.limits.unset": (OPERATORS, lambda q, _: q.control.limits.unset("queue:mail")),
    "control.limits.move": (
        OPERATORS,
        lambda q, s: q.control.limits.move(s.limit_that_code_has_forgotten(), None),
    ),
    "control.limits.delete": (
        OPERATORS,
        lambda q, s: q.control.limits.delete(s.limit_that_code_has_forgotten()),
    ),
    "control.limits.weigh": (OPERATORS, lambda q, _: q.control.limits.weigh({"tenant": "acme"}, 2)),
    "workers.list": (MONITORS, lambda q, _: q.workers.list()),
    "workers.get": (MONITORS, lambda q, s: q.workers.get(s.worker())),
    "workers.set": (OPERATORS, lambda q, s: q.workers.set(s.worker(), concurrency=2)),
    "workers.quiet": (OPERATORS, lambda q, s: q.workers.quiet(s.worker())),
    "workers.resume": (OPERATORS, lambda q, s: q.workers.resume(s.worker())),
    "workers.stop": (OPERATORS, lambda q, s: q.workers.stop(s.worker())),
    "workers.restart": (OPERATORS, lambda q, s: q.workers.restart(s.worker())),
    "schedules.add": (OPERATORS, _add),
    "schedules.put": (OPERATORS, _put),
    "schedules.get": (READERS, lambda q, _: q.schedules.get("nightly")),
    "schedules.find": (READERS, lambda q, _: q.schedules.find()),
    "schedules.next": (READERS, lambda q, _: q.schedules.next("nightly")),
    "schedules.runs": (MONITORS, lambda q, _: q.schedules.runs("nightly")),
    "insight.deploys": (MONITORS, lambda q, _: q.insight.deploys()),
    "schedules.last_runs": (MONITORS, lambda q, _: q.schedules.last_runs(["nightly"])),
    "schedules.pause": (OPERATORS, lambda q, s: q.schedules.pause(s.schedule())),
    "schedules.resume": (
        OPERATORS,
        lambda q, s: (s.own.schedules.pause(name := s.schedule()), q.schedules.resume(name)),
    ),
    "schedules.remove": (OPERATORS, lambda q, s: q.schedules.remove(s.schedule())),
    "schedules.fire": (OPERATORS, lambda q, s: q.schedules.fire(s.schedule())),
    "schedules.backfill": (
        OPERATORS,
        lambda q, s: q.schedules.backfill(s.schedule(), NOON, NOON + timedelta(days=2)),
    ),
    "alerts.list": (MONITORS, lambda q, _: q.alerts.list()),
    "alerts.silence": (OPERATORS, lambda q, s: q.alerts.silence(stored_alert(s.own), 60)),
    "alerts.unsilence": (OPERATORS, lambda q, s: q.alerts.unsilence(stored_alert(s.own))),
    "alerts.remove": (OPERATORS, lambda q, s: q.alerts.remove(stored_alert(s.own))),
}
"""Each public method that asks the database: the roles for which it works, and a call of it."""


@pytest.mark.parametrize("role", LOGINS)
def test_each_method_works_or_names_the_grant_that_is_missing(scene: Scene, dsn: str, role: str) -> None:
    where, wrong = login(dsn, role), {}
    for name, (able, call) in CALLS.items():
        queue = PgQueue(where)
        try:
            call(queue, scene)
        except NotGranted as error:
            if role in able or GIVES not in str(error):
                wrong[name] = str(error)
        except Exception as error:  # noqa: BLE001 - told with the others
            wrong[name] = repr(error)
        else:
            if role not in able:
                wrong[name] = "works"
        finally:
            queue.close()
    assert not wrong, wrong


LOCAL = {
    *(
        "alert",
        "batch_task",
        "close",
        "find_task",
        "load_task",
        "observe",
        "on",
        "remote",
        "require_queue",
        "schedule",
        "task",
    ),
    "shard",  # which asks nothing where there are no shards
    *(
        "schedules.application",
        "schedules.declared",
        "schedules.edition",
        "alerts.application",
        "alerts.declared",
    ),
}
"""Methods that ask no database."""
OF_A_WORKER = {"schedules.apply", "alerts.apply"}
"""With which a worker stores what is declared: ``test_a_worker_of_its_own_login_runs_what_a_producer_of_its_own_login_enqueues``."""
PARTS = ("insight", "control", "control.limits", "flows", "workers", "schedules", "alerts")


def test_the_calls_are_all_public_methods_that_ask_the_database() -> None:
    queue = PgQueue("postgresql:///none")
    parts = {"": queue} | {f"{name}.": attrgetter(name)(queue) for name in PARTS}
    public = {
        f"{prefix}{name}"
        for prefix, part in parts.items()
        for name in dir(part)
        if isinstance(getattr(part, name), MethodType)
        and not name.startswith("_")
        and not (name.startswith("a") and hasattr(part, name[1:]))
    }
    assert {name.partition(",")[0] for name in CALLS} == public - LOCAL - OF_A_WORKER


async def test_a_worker_of_its_own_login_runs_what_a_producer_of_its_own_login_enqueues(
    dsn: str, running: Running
) -> None:
    queue, producer = (
        PgQueue(login(dsn, "worker"), history=timedelta(days=2)),
        PgQueue(login(dsn, "producer")),
    )
    send = _task(queue, limit=Limit(1))
    queue.schedule("0 4 * * *", name="nightly", arguments={"number": 0})(send)
    queue.alert("dead jobs", DeadJobs(over=9))(queue.task(name="told")(_told))
    async with running(queue):
        told = _task(producer, limit=Limit(1))
        handles = [await told.aenqueue(1), *await producer.aenqueue_many(told.call(n) for n in (2, 3))]
        await until(lambda: all(queue.job(one.id).state is JobState.SUCCEEDED for one in handles))
        await until(queue.alerts.list)
    assert [one.name for one in queue.schedules.find()] == ["nightly"]
    queue.close()
    await producer.aclose()


@pytest.mark.parametrize("role", sorted(LOGINS.keys() - WORKERS))
async def test_a_worker_without_its_rights_does_not_start_and_names_the_grant(dsn: str, role: str) -> None:
    queue = PgQueue(login(dsn, role))
    _task(queue)
    with pytest.raises(NotGranted, match=GIVES):
        await asyncio.wait_for(Worker(queue).run(), 60)
    await queue.aclose()


def _told(alert: Alert) -> None: ...


NAMED = {
    "queue": "mail",
    "task": "shop.billing.charge",
    "limit": "queue:mail",
    "schedule": "nightly",
    "alert": "slow mail",
    "run": "run-1",
}
OF_READERS = {"jobs", "dead", "job", "job-test", "task", "schedule"}


@pytest.mark.parametrize("role", LOGINS)
def test_each_page_answers_or_names_the_grant_that_is_missing(scene: Scene, dsn: str, role: str) -> None:
    queue, wrong = PgQueue(login(dsn, role)), {}
    assert scene.run() == NAMED["run"]
    ann = Person(Dashboard(queue, login=lambda _: User("ann")))
    for page in PAGES:
        path = page.path.replace("<int:job_id>", str(scene.world.dead)).replace(
            "<int:flow_id>", str(scene.flow)
        )
        path = path.replace("<int:number>", _operation(scene)).replace("<which>", scene.worker())
        able = CONNECTED if page.name == "store" else READERS if page.name in OF_READERS else MONITORS
        for prefix in ("", "/api"):
            answer = ann.get(f"{prefix}{path}?name={NAMED.get(page.name, '')}")
            well = (
                answer.status_code == 200
                if role in able
                else answer.status_code == 403 and GIVES in answer.text
            )
            if not well:
                wrong[prefix, page.name] = (answer.status_code, answer.text[-300:])
    queue.close()
    assert not wrong, wrong


def _operation(scene: Scene) -> str:
    (last, *_) = scene.own.insight.audit()
    return str(last.id)


def test_a_right_that_a_role_lacks_does_not_count_as_a_replica_that_is_down(dsn: str) -> None:
    where = login(dsn, "producer")
    queue = PgQueue(where, replica=where)
    with pytest.raises(NotGranted, match="`pgqueue grants monitor` gives this right"):
        queue.insight.counts()
    status = queue.insight.replica()
    assert status is not None
    assert status.error is None
    queue.close()


async def test_row_level_security_without_a_policy_is_named_at_the_start_and_by_why(
    dsn: str, queue: PgQueue
) -> None:
    """As an adviser of a cloud's console may switch it on: a role that is not the owner would see no job, and no error."""
    job = _task(queue).enqueue(1)
    ask(dsn, "alter table pgqueue.jobs enable row level security")
    stranger = PgQueue(login(dsn, "worker"))
    with pytest.raises(SchemaError, match=r"hides each row of pgqueue\.jobs.*disable row level security"):
        await Worker(stranger).run()
    assert job.why().reason == "hidden"
    ask(dsn, "create policy everybody on pgqueue.jobs to public using (true)")
    await asyncio.to_thread(stranger.database.verify)
    assert job.why().reason == "no worker"
