"""What each role can do with a login and connections of its own: public methods, verbs of the shell, pages of the dashboard."""

import re
import shlex
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from operator import attrgetter
from pathlib import Path
from types import MethodType
from typing import Any, NamedTuple

import click
import pytest
from cli.commands import SHOP, pgqueue
from dashboard.people import Person
from dashboard.world import World, shop, stored_alert, worker_row
from looking import ask
from schema.logins import (
    CONNECTED,
    LOGINS,
    MONITORS,
    OPERATORS,
    PRODUCERS,
    READERS,
    SENDERS,
    WORKERS,
    login,
)

from pgqueue import Limit, PgQueue, Unique, chain
from pgqueue.cli.main import main
from pgqueue.dashboard import Dashboard, User
from pgqueue.dashboard.pages import PAGES
from pgqueue.errors import NotGranted

GIVES = "gives this right"


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
        self.own.cancel_flow(flow)
        return flow

    def worker(self) -> str:
        pid = 50_000 + next(self.numbers)
        worker_row(self.own, pid=pid)
        return f"web-2:{pid}"

    def schedule(self) -> str:
        name = f"schedule {next(self.numbers)}"
        self.own.schedules.add(name, self.own.tasks["shop.search.reindex"].call(what="x"), "0 4 * * *")
        return name

    def queue(self) -> str:
        return f"queue-{next(self.numbers)}"


@pytest.fixture
def scene(queue: PgQueue) -> Iterator[Scene]:
    with shop(queue) as world:
        worker_row(queue)
        stored_alert(queue)
        queue.control.limits.set("queue:mail", Limit(5))
        queue.schedules.add("nightly", queue.tasks["shop.search.reindex"].call(what="all"), "0 4 * * *")
        flow = chain(*(queue.tasks["shop.search.reindex"].call(what=one) for one in "ab")).enqueue().id
        yield Scene(queue, world, flow, count(1))


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
    "result": (READERS, lambda q, s: q.result(s.world.succeeded, timeout=9)),
    "cancel": (OPERATORS, lambda q, s: q.cancel(s.ready())),
    "retry": (OPERATORS, lambda q, s: q.retry(s.dead())),
    "flow": (MONITORS, lambda q, s: q.flow(s.flow)),
    "flow_nodes": (MONITORS, lambda q, s: q.flow_nodes(s.flow, parent=_root(s))),
    "flows": (MONITORS, lambda q, _: q.flows()),
    "cancel_flow": (OPERATORS, lambda q, s: q.cancel_flow(s.new_flow())),
    "retry_flow": (OPERATORS, lambda q, s: q.retry_flow(s.cancelled_flow())),
    "signal": (SENDERS, lambda q, _: q.signal("key:k", "approved")),
    "resolve": (SENDERS, lambda q, s: q.resolve(_token(s))),
    "take": (WORKERS, _take),
    "insight.audit": (MONITORS, lambda q, _: q.insight.audit()),
    "insight.compare": (MONITORS, lambda q, _: q.insight.compare(600, 600)),
    "insight.counts": (MONITORS, lambda q, _: q.insight.counts()),
    "insight.depths": (MONITORS, lambda q, _: q.insight.depths(600)),
    "insight.errors": (READERS, lambda q, _: q.insight.errors()),
    "insight.limit": (MONITORS, lambda q, _: q.insight.limit("queue:mail")),
    "insight.limits": (MONITORS, lambda q, _: q.insight.limits()),
    "insight.queues": (MONITORS, lambda q, _: q.insight.queues()),
    "insight.replica": (CONNECTED | {"producer by SQL", "nobody"}, lambda q, _: q.insight.replica()),
    "insight.running": (MONITORS, lambda q, _: q.insight.running()),
    "insight.schedules": (MONITORS, lambda q, _: q.insight.schedules()),
    "insight.search": (READERS, lambda q, _: q.insight.search()),
    "insight.series": (MONITORS, lambda q, _: q.insight.series(600)),
    "insight.store": (CONNECTED, lambda q, _: q.insight.store()),
    "insight.story": (READERS, lambda q, s: q.insight.story(s.world.dead)),
    "insight.totals": (MONITORS, lambda q, _: q.insight.totals(600, by="task")),
    "insight.weights": (MONITORS, lambda q, _: q.insight.weights()),
    "control.jobs, preview": (READERS, lambda q, _: q.control.jobs(queue="mail").preview()),
    "control.jobs, cancel": (OPERATORS, lambda q, s: q.control.jobs(ids=[s.ready()]).cancel()),
    "control.jobs, purge": (OPERATORS, lambda q, s: q.control.jobs(ids=[s.ready()]).purge()),
    "control.jobs, move": (OPERATORS, lambda q, s: q.control.jobs(ids=[s.ready()]).move("other")),
    "control.jobs, reprioritise": (OPERATORS, lambda q, s: q.control.jobs(ids=[s.ready()]).reprioritise(1)),
    "control.dead, preview": (READERS, lambda q, _: q.control.dead(queue="billing").preview()),
    "control.dead, retry": (OPERATORS, lambda q, s: q.control.dead(ids=[s.dead()]).retry()),
    "control.dead, purge": (OPERATORS, lambda q, s: q.control.dead(ids=[s.dead()]).purge()),
    "control.declare": (OPERATORS, lambda q, s: q.control.declare(s.queue(), priority=1)),
    "control.drain": (OPERATORS, lambda q, s: q.control.drain(s.queue())),
    "control.keep_series": (OPERATORS, lambda q, _: q.control.keep_series(hours=timedelta(days=30))),
    "control.pause": (OPERATORS, lambda q, s: q.control.pause(s.queue())),
    "control.resume": (
        OPERATORS,
        lambda q, s: (s.own.control.pause(name := s.queue()), q.control.resume(name)),
    ),
    "control.resume_operation": (OPERATORS, lambda q, s: q.control.resume_operation(_interrupted(s))),
    "control.run_now": (OPERATORS, lambda q, s: q.control.run_now(s.scheduled())),
    "control.set": (OPERATORS, lambda q, s: q.control.set(s.queue(), priority=3)),
    "control.stack": (OPERATORS, lambda q, s: q.control.stack(_held_by_a_worker(s), timeout=0.01)),
    "control.limits.set": (OPERATORS, lambda q, _: q.control.limits.set("queue:media", Limit(2))),
    "control.limits.unset": (OPERATORS, lambda q, _: q.control.limits.unset("queue:mail")),
    "control.limits.weigh": (OPERATORS, lambda q, _: q.control.limits.weigh({"tenant": "acme"}, 2)),
    "workers.list": (MONITORS, lambda q, _: q.workers.list()),
    "workers.get": (MONITORS, lambda q, s: q.workers.get(s.worker())),
    "workers.set": (OPERATORS, lambda q, s: q.workers.set(s.worker(), concurrency=2)),
    "workers.drain": (OPERATORS, lambda q, s: q.workers.drain(s.worker())),
    "workers.resume": (OPERATORS, lambda q, s: q.workers.resume(s.worker())),
    "workers.stop": (OPERATORS, lambda q, s: q.workers.stop(s.worker())),
    "workers.restart": (OPERATORS, lambda q, s: q.workers.restart(s.worker())),
    "schedules.add": (OPERATORS, _add),
    "schedules.put": (OPERATORS, _put),
    "schedules.get": (READERS, lambda q, _: q.schedules.get("nightly")),
    "schedules.find": (READERS, lambda q, _: q.schedules.find()),
    "schedules.next": (READERS, lambda q, _: q.schedules.next("nightly")),
    "schedules.runs": (MONITORS, lambda q, _: q.schedules.runs("nightly")),
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


def _token(scene: Scene) -> str:
    (token,) = ask(scene.own, "select pgqueue.callback_token(%s, 'paid', null)", scene.world.ready)[0]
    return str(token)


def _root(scene: Scene) -> int:
    (root,) = ask(
        scene.own, "select id from pgqueue.nodes where flow_id = %s and parent_id is null", scene.flow
    )[0]
    return int(root)


def _interrupted(scene: Scene) -> int:
    """The number of an operation that was interrupted before its first job."""
    scene.own.control.jobs(ids=[scene.ready()]).reprioritise(2)
    (last, *_) = scene.own.insight.audit()
    ask(scene.own, "update pgqueue.audit set ended_at = null where id = %s", last.id)
    return last.id


def _held_by_a_worker(scene: Scene) -> int:
    ask(scene.own, "update pgqueue.workers set minimum = 1")
    return scene.world.running


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
        "call",
        "close",
        "find_task",
        "load_task",
        "observe",
        "on",
        "require_queue",
        "schedule",
        "task",
    ),
    *("shard", "shard_of", "shards"),  # which ask nothing where there are no shards
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
"""With which a worker stores what is declared: ``test_a_worker_of_its_own_login_runs_jobs``."""
PARTS = ("insight", "control", "control.limits", "workers", "schedules", "alerts")


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


NAMED = {"queue": "mail", "task": "shop.billing.charge", "limit": "queue:mail", "schedule": "nightly"}
OF_READERS = {"jobs", "dead", "job", "job-test", "task", "schedule"}


@pytest.mark.parametrize("role", LOGINS)
def test_each_page_answers_or_names_the_grant_that_is_missing(scene: Scene, dsn: str, role: str) -> None:
    queue, wrong = PgQueue(login(dsn, role)), {}
    ann = Person(Dashboard(queue, login=lambda _: User("ann")))
    for page in PAGES:
        path = page.path.replace("<int:job_id>", str(scene.world.dead)).replace(
            "<int:flow_id>", str(scene.flow)
        )
        path = path.replace("<int:number>", _operation(scene))
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


VERBS: dict[str, tuple[set[str], Callable[[Scene], str]]] = {
    "alerts list": (MONITORS, lambda _: ""),
    "alerts silence": (OPERATORS, lambda s: f"'{stored_alert(s.own)}' --for 1h"),
    "alerts unsilence": (OPERATORS, lambda s: f"'{stored_alert(s.own)}'"),
    "alerts remove": (OPERATORS, lambda s: f"'{stored_alert(s.own)}'"),
    "audit list": (MONITORS, lambda _: ""),
    "audit resume": (OPERATORS, lambda s: str(_interrupted(s))),
    "compare": (MONITORS, lambda _: "1h"),
    "dead list": (READERS, lambda _: ""),
    "dead retry": (OPERATORS, lambda s: str(s.dead())),
    "dead purge": (OPERATORS, lambda s: f"{s.dead()} --yes"),
    "enqueue": (PRODUCERS, lambda _: "app.send '{\"order_id\": 1}'"),
    "jobs list": (READERS, lambda _: ""),
    "jobs show": (READERS, lambda s: str(s.world.dead)),
    "jobs stack": (OPERATORS, lambda s: f"{_held_by_a_worker(s)} --timeout 0.01"),
    "jobs cancel": (OPERATORS, lambda s: str(s.ready())),
    "jobs run-now": (OPERATORS, lambda s: str(s.scheduled())),
    "jobs move": (OPERATORS, lambda _: "--queue default --to other --yes"),
    "jobs reprioritise": (OPERATORS, lambda _: "--queue default --priority 2 --yes"),
    "jobs purge": (OPERATORS, lambda _: "--queue other --yes"),
    "limits list": (MONITORS, lambda _: ""),
    "limits show": (MONITORS, lambda _: "queue:mail"),
    "limits recount": (MONITORS, lambda _: ""),
    "limits set": (OPERATORS, lambda _: "queue:media --most 2"),
    "limits weigh": (OPERATORS, lambda _: '\'{"tenant": "acme"}\' 2'),
    "metrics": (MONITORS, lambda _: ""),
    "queues list": (MONITORS, lambda _: ""),
    "queues show": (MONITORS, lambda _: "mail"),
    "queues pause": (OPERATORS, lambda s: s.queue()),
    "queues drain": (OPERATORS, lambda s: s.queue()),
    "queues resume": (OPERATORS, lambda _: "*"),
    "queues set": (OPERATORS, lambda s: f"{s.queue()} --backlog 9"),
    "schedules list": (READERS, lambda _: ""),
    "schedules show": (READERS, lambda _: "nightly"),
    "schedules next": (READERS, lambda _: "nightly"),
    "schedules add": (
        OPERATORS,
        lambda s: f"schedule{next(s.numbers)} app.send --cron '0 4 * * *' --args '{{\"order_id\": 1}}'",
    ),
    "schedules pause": (OPERATORS, lambda s: f"'{s.schedule()}'"),
    "schedules resume": (OPERATORS, lambda s: f"'{s.schedule()}'"),
    "schedules fire": (OPERATORS, lambda s: f"'{s.schedule()}'"),
    "schedules backfill": (OPERATORS, lambda s: f"'{s.schedule()}' 2026-01-01T00:00Z 2026-01-03T00:00Z"),
    "schedules remove": (OPERATORS, lambda s: f"'{s.schedule()}'"),
    "signal": (SENDERS, lambda _: "key:k approved"),
    "top": (MONITORS, lambda _: "--once"),
    "why": (READERS, lambda s: str(s.world.ready)),
    "workers list": (MONITORS, lambda _: ""),
    "workers show": (MONITORS, lambda s: s.worker()),
    "workers set": (OPERATORS, lambda s: f"{s.worker()} --concurrency 2"),
    "workers drain": (OPERATORS, lambda s: s.worker()),
    "workers resume": (OPERATORS, lambda s: s.worker()),
    "workers stop": (OPERATORS, lambda s: s.worker()),
    "workers restart": (OPERATORS, lambda s: s.worker()),
    "workflows list": (MONITORS, lambda _: ""),
    "workflows show": (MONITORS, lambda s: str(s.flow)),
    "workflows cancel": (OPERATORS, lambda s: str(s.new_flow())),
    "workflows retry": (OPERATORS, lambda s: str(s.cancelled_flow())),
}
"""Each verb that asks the database: the roles for which it works, and what else is typed."""
ENDS = (0, 1)
"""How a verb ends that works; 1: the worker of ``jobs stack`` does not answer."""
OTHERS = re.compile("adopt|bench|chaos|dashboard|demo|grants|keys|migrate|pipeline|shards|worker$")
"""Verbs of the owner and of the pipeline; those that start what is tested here in other ways; and those that ask nothing."""


def test_the_verbs_are_all_that_there_are() -> None:
    assert set(VERBS) == {one for one in _verbs(main, click.Context(main)) if not OTHERS.match(one)}


def _verbs(command: click.Command, context: click.Context, *path: str) -> Iterator[str]:
    if not isinstance(command, click.Group):
        yield " ".join(path)
        return
    for name in command.list_commands(context):
        inner = command.get_command(context, name)
        assert inner is not None
        yield from _verbs(inner, click.Context(inner, parent=context), *path, name)


@pytest.mark.parametrize("role", LOGINS)
def test_each_verb_works_or_names_the_grant_that_is_missing(
    scene: Scene, dsn: str, role: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "app.py").write_text(SHOP)
    monkeypatch.syspath_prepend(tmp_path)
    where, wrong = login(dsn, role), {}
    for verb, (able, typed) in VERBS.items():
        words = [*shlex.split(verb), *shlex.split(typed(scene))]
        result = pgqueue("--app", "app:queue", *words, dsn=where)
        sys.modules.pop("app", None)
        refused = result.exit_code == 2 and GIVES in result.stderr
        well = result.exit_code in ENDS if role in able else refused
        if not well:
            wrong[verb] = (result.exit_code, result.stderr[-300:])
    assert not wrong, wrong
