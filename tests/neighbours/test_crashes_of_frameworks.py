"""Crash quarantine with the workers of frameworks: a suspect's own process finds the queue of the project or of the app."""

from contextlib import closing
from pathlib import Path
from typing import Any

from looking import ask
from neighbours.django_project import managed
from neighbours.project.shop.models import Order
from neighbours.serving import sqlalchemy_url, started, until
from promises.processes import do, listed

from pgqueue import Job, JobHandle, JobState, PgQueue
from pgqueue.store.jobs import claim
from pgqueue.store.workers import leases, upkeep

TASKS = "neighbours.project.shop.tasks"
WORKER = ("pgqueue", "worker", "--sweep", "0.2s")
APP = """
import os, signal, sys
from flask import Flask, current_app
from pgqueue.flask import PgQueueFlask

queue = PgQueueFlask()

@queue.task(name="kill_me", crashes=2)
def kill_me() -> None:
    os.kill(os.getpid(), signal.SIGKILL)

@queue.task(name="where", crashes=2)
def where(order_id: int) -> tuple[str, str]:
    return os.path.basename(sys.argv[0]), current_app.name

def create_app(name="made"):
    app = Flask(name)
    queue.init_app(app)
    return app
"""


def _killer() -> None: ...


def _suspect(order_id: int) -> None: ...


def quarantined(queue: PgQueue, kill_me: str, where: str, order_id: int = 1) -> list[JobHandle[Any]]:
    """A job that kills its process and one that does not; two workers have died with both."""
    killer = queue.task(name=kill_me)(_killer).enqueue()
    suspect = queue.task(name=where)(_suspect).enqueue(order_id)
    for _ in range(2):
        worker = listed(queue)
        for one in do(queue, claim.claim(worker, {"default": 2})):
            do(queue, leases.start(one))
        do(queue, leases.leave(worker))
        do(queue, upkeep.reclaim())
        ask(queue, "update pgqueue.jobs set status = 'ready' where status = 'scheduled' returning id")
    return [killer, suspect]


def ended(queue: PgQueue, handles: list[JobHandle[Any]]) -> tuple[Job, Job]:
    """Both, when they have ended."""
    until(lambda: all(one.status().ended for one in handles))
    killer, suspect = (queue.job(one.id) for one in handles)
    return killer, suspect


def check(killer: Job, suspect: Job, says: str) -> None:
    assert (killer.state, killer.reason) == (JobState.DEAD, "crashed")
    assert killer.errors[-1].message.startswith("killed 2 workers, and its own process: signal 9 (SIGKILL)")
    assert (suspect.state, suspect.errors[-1].type) == (JobState.SUCCEEDED, "WorkerLost")
    assert suspect.result == ["attempt_process.py", says]


def test_a_suspect_runs_alone_with_manage_py(django_dsn: str) -> None:
    order = Order.objects.create(note="of the ORM")
    with closing(PgQueue(django_dsn)) as queue:
        handles = quarantined(queue, f"{TASKS}.kill_me", f"{TASKS}.where", order.pk)
        with managed(*WORKER, dsn=django_dsn):
            check(*ended(queue, handles), "of the ORM")


def test_a_suspect_runs_alone_with_flasks_command(dsn: str, tmp_path: Path) -> None:
    """The app comes from a factory with an argument, which the suspect's process has to know, too."""
    (tmp_path / "made.py").write_text(APP)
    command = ("flask", "--app", "made:create_app('other')", *WORKER)
    with closing(PgQueue(dsn)) as queue:
        handles = quarantined(queue, "kill_me", "where")
        with started(*command, folder=tmp_path, log=tmp_path / "log", DATABASE_URL=sqlalchemy_url(dsn)):
            check(*ended(queue, handles), "other")
