"""Every action of the dashboard: the audit names the person, once, in the transaction of the action."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import pytest
from dashboard.people import Person, die, rows_of
from dashboard.world import stored_alert, worker_row
from looking import ask

from pgqueue import Limit, PgQueue, chain
from pgqueue.app.named import known_tasks_of
from pgqueue.dashboard.pages import ACTIONS
from pgqueue.store.bulk import bulk
from pgqueue.store.jobs import known_tasks
from pgqueue.values.bulk.filter import JobFilter
from pgqueue.values.bulk.operation import BulkAction, Operation

MakePerson = Callable[..., Person]
AGO = datetime(2026, 1, 1, tzinfo=UTC)


class Act(NamedTuple):
    """What a person does.

    Attributes:
        path: of the action.
        said: what the audit calls it.
        fields: what is typed.
    """

    path: str
    said: str
    fields: dict[str, str]


class Shop:
    """What actions are done to: each call makes something of its own."""

    def __init__(self, queue: PgQueue) -> None:
        self._queue = queue
        self._step = queue.task(name="step")(lambda: None)
        queue.task(name="call", limit=Limit(1, name="api"))(lambda: None).enqueue()

    def acts(self) -> dict[str, Callable[[], Act]]:
        """Each action, by its name."""
        return {
            "queue-pause": lambda: act(f"/queue/pause?{self.known()}", "pause"),
            "queue-close": lambda: act(f"/queue/close?{self.known()}", "close"),
            "queue-resume": lambda: act(f"/queue/resume?{self.paused()}", "resume"),
            "queue-set": lambda: act(f"/queue/set?{self.known()}", "set", priority="3"),
            "job-enqueue": lambda: act("/jobs/enqueue?task=step", "enqueue"),
            "jobs-cancel": lambda: act(f"/jobs/cancel?{self.filter()}", "cancel"),
            "jobs-move": lambda: act(f"/jobs/move?{self.filter()}", "move", to="slow"),
            "jobs-reprioritise": lambda: act(
                f"/jobs/reprioritise?{self.filter()}", "reprioritise", priority="9"
            ),
            "jobs-run": lambda: act(f"/jobs/run?id={self.job(delay=3600)}", "run now"),
            "job-run": lambda: act(f"/jobs/{self.job(delay=3600)}/run", "run now"),
            "job-stack": lambda: act(f"/jobs/{self.running()}/stack", "stack"),
            "job-cancel": lambda: act(f"/jobs/{self.job()}/cancel", "cancel"),
            "job-retry": lambda: act(f"/jobs/{self.dead()}/retry", "retry_dead"),
            "job-signal": lambda: act(
                f"/jobs/{self.waiting()}/signal", "signal", name="approved", payload="1"
            ),
            "job-change": lambda: act(
                f"/jobs/{self.job(delay=3600)}/change",
                "reschedule",
                priority="0",
                queue="default",
                run_at="2099-01-01T00:00Z",
            ),
            "job-copy": lambda: act(f"/jobs/{self.job()}/copy", "enqueue", queue="slow", priority="3"),
            "job-purge": lambda: act(f"/jobs/{self.dead()}/purge", "purge_dead"),
            "dead-retry": lambda: act(f"/dead/retry?{self.dead_filter()}", "retry_dead"),
            "dead-purge": lambda: act(f"/dead/purge?{self.dead_filter()}", "purge_dead"),
            "worker-quiet": lambda: act(f"/workers/{self.worker()}/quiet", "worker quiet"),
            "worker-resume": lambda: act(f"/workers/{self.worker()}/resume", "worker resume"),
            "worker-set": lambda: act(f"/workers/{self.worker()}/set", "worker set", slots="3"),
            "worker-stop": lambda: act(f"/workers/{self.worker()}/stop", "worker stop"),
            "worker-restart": lambda: act(f"/workers/{self.worker()}/restart", "worker restart"),
            "schedule-pause": lambda: act(f"/schedule/pause?{self.schedule()}", "schedule pause"),
            "schedule-resume": lambda: act(
                f"/schedule/resume?{self.schedule(paused=True)}", "schedule resume"
            ),
            "schedule-fire": lambda: act(f"/schedule/fire?{self.schedule()}", "schedule fire"),
            "schedule-backfill": lambda: act(
                f"/schedule/backfill?{self.schedule()}",
                "schedule backfill",
                start="2026-01-03",
                end="2026-01-05T12:00Z",
            ),
            "schedule-add": lambda: act(
                "/schedules/add",
                "schedule add",
                name=self.known_task(),
                task="step",
                rule="@daily",
                timezone="UTC",
            ),
            "schedule-edit": lambda: act(
                f"/schedule/edit?{self.schedule()}",
                "schedule put",
                task=self.known_task(),
                rule="2d",
                timezone="UTC",
            ),
            "schedule-remove": lambda: act(f"/schedule/remove?{self.schedule()}", "schedule remove"),
            "workflow-cancel": lambda: act(f"/workflows/{self.flow()}/cancel", "workflow cancel"),
            "workflow-retry": lambda: act(f"/workflows/{self.cancelled()}/retry", "workflow retry"),
            "run-cancel": lambda: act(f"/run/cancel?{self.run()}", "cancel"),
            "limit-set": lambda: act("/limit/set?name=name:api", "limit set", most="4"),
            "limit-unset": lambda: act(f"/limit/unset?{self.set_limit()}", "limit unset"),
            "alert-silence": lambda: act(f"/alert/silence?{self.alert()}", "alert silence", length="2h"),
            "alert-unsilence": lambda: act(
                f"/alert/unsilence?{self.alert(silenced=True)}", "alert unsilence"
            ),
            "operation-continue": lambda: act(f"/operations/{self.operation()}/continue", "continue"),
        }

    def run(self) -> str:
        job_id = self.job()
        ask(
            self._queue,
            "insert into pgqueue.sink_writes (id, run, task, rows, enqueued, rejected, changed, jobs) values "
            "(gen_random_uuid(), 'run ' || %(id)s, 'step', 1, 1, 0, 0, int8multirange(int8range(%(id)s, %(id)s, '[]')))",
            id=job_id,
        )
        return f"name=run+{job_id}"

    def known(self) -> str:
        self._queue.control.declare("mail")
        return "name=mail"

    def paused(self) -> str:
        self._queue.control.pause("mail")
        return "name=mail"

    def job(self, *, delay: float = 0) -> int:
        return self._step.using(delay=delay).enqueue().id

    def filter(self) -> str:
        return f"task=step&until={self.job() and '0s'}"

    def running(self) -> int:
        worker, job_id = self.worker(), self.job()
        ask(
            self._queue,
            "update pgqueue.jobs set status = 'running', worker_id = %s, claimed_at = now() where id = %s",
            worker,
            job_id,
        )
        return job_id

    def waiting(self) -> int:
        job_id = self.job()
        ask(self._queue, "update pgqueue.jobs set status = 'blocked' where id = %s", job_id)
        ask(
            self._queue,
            "insert into pgqueue.waits (job_id, waits_for) values (%s, %s)",
            job_id,
            f"signal:job:{job_id}:approved",
        )
        return job_id

    def dead(self) -> int:
        self._queue.control.jobs(everything=True).cancel()  # a take would take them, too
        return die(self._queue, "die", {"number": 1}, error=ValueError("no"))[0]

    def dead_filter(self) -> str:
        return f"task=die&died={self.dead() and '0s'}"

    def worker(self) -> str:
        worker_row(self._queue)
        return str(self._queue.workers.list()[-1].id)

    def known_task(self) -> str:
        """A worker has said that it runs the task."""
        self._queue.database.run(known_tasks.say(known_tasks_of({"step": self._step})))
        return "step"

    def schedule(self, *, paused: bool = False) -> str:
        schedules = self._queue.schedules
        schedules.put("nightly", self._step.call(), every=timedelta(days=1), start=AGO)
        if paused:
            schedules.pause("nightly")
        else:
            schedules.resume("nightly")
        return "name=nightly"

    def alert(self, *, silenced: bool = False) -> str:
        return f"name={stored_alert(self._queue, silenced=silenced)}"

    def flow(self) -> int:
        return chain(self._step.call(), self._step.call()).enqueue().id

    def cancelled(self) -> int:
        number = self.flow()
        self._queue.flows.cancel(number)
        return number

    def set_limit(self) -> str:
        self._queue.control.limits.set("name:api", Limit(7))
        return "name=name:api"

    def operation(self) -> int:
        self._step.using(queue="left").enqueue()
        begun = Operation(action=BulkAction.CANCEL, filter=JobFilter(queue="left"))
        return self._queue.database.run(bulk.begin(begun, by="bob")).id


def act(path: str, said: str, **fields: str) -> Act:
    return Act(path, said, fields)


def test_every_action_is_in_the_audit_once_with_the_persons_name(queue: PgQueue, person: MakePerson) -> None:
    ann, acts = person(), Shop(queue).acts()
    assert {*acts} == {one.name for one in ACTIONS}
    for name, prepare in acts.items():
        act = prepare()
        before = len(queue.insight.audit())
        done = ann.do(act.path, **act.fields)
        assert "note good" in done.text, (name, done.text)
        fresh = queue.insight.audit()[: len(queue.insight.audit()) - before]
        assert [(one.by, one.action) for one in fresh] == [("ann", act.said)], name


def test_an_action_that_the_audit_cannot_hold_is_not_done(queue: PgQueue, person: MakePerson) -> None:
    ann, acts = person(), Shop(queue).acts()
    for name, prepare in acts.items():
        act = prepare()
        ask(
            queue,
            "create function refuse() returns trigger language plpgsql as $$ begin raise 'no audit'; end $$;"
            "create trigger refuse before insert on pgqueue.audit for each row execute function refuse()",
        )
        before = rows_of(queue)
        assert ann.do(act.path, **act.fields).status_code == 400, name
        assert rows_of(queue) == before, name
        ask(queue, "drop function refuse cascade")


def test_an_action_that_changes_nothing_leaves_no_line(queue: PgQueue) -> None:
    step = queue.task(name="step")(lambda: None)
    queue.schedules.add("daily", step.using(unique_key="one").call(), every=timedelta(days=1))
    assert queue.schedules.fire("daily", by="ann")
    flow = chain(step.call()).enqueue()
    assert queue.flows.cancel(flow.id, by="ann")
    assert [one.action for one in queue.insight.audit()] == ["workflow cancel", "schedule fire"]

    assert queue.schedules.fire("daily", by="bob") is None
    assert not queue.schedules.resume("daily", by="bob")
    assert not queue.schedules.remove("none", by="bob")
    assert not queue.flows.cancel(flow.id, by="bob")
    assert not queue.control.run_now(flow.id, by="bob")
    with pytest.raises(LookupError):
        queue.schedules.pause("none", by="bob")

    assert [one.by for one in queue.insight.audit()] == ["ann", "ann"]
