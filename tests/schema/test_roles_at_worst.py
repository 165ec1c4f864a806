"""What each role can do at worst with a login of its own: each sentence of SECURITY.md, tried."""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import psycopg
import pytest
from docs.pages import DOCS
from psycopg.errors import InsufficientPrivilege, LockNotAvailable
from schema.logins import login
from store.crowd import ask
from store.samples import NOON, adding, new_job, shown, taking

from pgqueue.store import signals
from pgqueue.store.jobs import enqueue, finish
from pgqueue.store.plan import Row, Statement, Steps, plan
from pgqueue.store.queues import queues
from pgqueue.values.jobs.job import JobState, Outcome
from pgqueue.values.jobs.verdict import Succeeded
from pgqueue.values.limits.limit import keys_of

LOGIN = {"producer": "producer of queues", "each": "monitor"}
"""The login whose role a section is about, where it has another name."""


class Stage(NamedTuple):
    """The owner's connection, a login's own, and a job of another program, which waits with the key ``theirs``."""

    own: psycopg.Connection[Any]
    login: psycopg.Connection[Any]
    job: int

    def refuses(self, *statements: str) -> None:
        """Each of them is refused for want of a right."""
        for statement in statements:
            with pytest.raises(InsufficientPrivilege), self.login.transaction():
                self.login.execute(statement.format(job=self.job).encode())

    def does(self, *statements: str) -> None:
        """Each of them is done, and undone."""
        for statement in statements:
            with self.login.transaction(force_rollback=True):
                self.login.execute(statement.format(job=self.job).encode())


Deed = Callable[[Stage], None]


@pytest.fixture
def own(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("set lock_timeout = '50ms'")
        yield connection


def _fills(stage: Stage) -> None:
    mine = new_job("any.task", queue="mail", priority=100)
    assert ask(stage.login, enqueue.enqueue(mine)).outcome is Outcome.ADDED


def _reads_ids(stage: Stage) -> None:
    stage.does("select id, priority, max_attempts from pgqueue.jobs")
    readable = {"id", "priority", "max_attempts"}
    stage.refuses(*(f"select {one} from pgqueue.jobs" for one in _columns(stage, "jobs") - readable))


def _takes_keys(stage: Stage) -> None:
    mine, other = (
        new_job(queue="mail", unique_key="of others"),
        new_job(queue="billing", unique_key="of others"),
    )
    assert ask(stage.login, enqueue.enqueue(mine)).outcome is Outcome.ADDED
    assert ask(stage.own, enqueue.enqueue(other)).outcome is Outcome.REJECTED


def _holds_up_a_key(stage: Stage) -> None:
    mine = new_job(queue="mail", unique_key="theirs")
    with stage.login.transaction():
        assert ask(stage.login, enqueue.enqueue(mine)).id == stage.job
        assert ask(stage.own, taking()) == []
    (taken,) = ask(stage.own, taking())
    with stage.login.transaction():
        ask(stage.login, enqueue.enqueue(mine))
        with pytest.raises(LockNotAvailable):
            ask(stage.own, finish.finish(taken.worker_id, [Succeeded(taken, 0.0)], keep=True))
    assert ask(stage.own, finish.finish(taken.worker_id, [Succeeded(taken, 0.0)], keep=True))


def _signals(stage: Stage) -> None:
    assert ask(stage.login, signals.send(f"job:{stage.job}", "approved")) == "first"


def _stays_in_its_queues(stage: Stage) -> None:
    other = new_job(queue="billing")
    for refused in (enqueue.enqueue(other), enqueue.enqueue_many([other])):
        with pytest.raises(InsufficientPrivilege, match="may not enqueue to queue 'billing'"):
            ask(stage.login, refused)
    stage.refuses(
        "select pgqueue.enqueue('t', queue => 'billing')",
        "insert into pgqueue.jobs (task, queue) values ('t', 'billing')",
        "update pgqueue.jobs set queue = 'billing'",
    )


def _chooses_no_id(stage: Stage) -> None:
    stage.refuses(
        "insert into pgqueue.jobs (id, task, queue) values (9223372036854775807, 't', 'mail')",
        "copy pgqueue.jobs (id, task, queue) from stdin",
        "update pgqueue.jobs set id = 9",
        "select nextval('pgqueue.jobs_id_seq')",
        "select setval('pgqueue.jobs_id_seq', 9223372036854775807)",
        "select pgqueue.free_id()",
        "insert into pgqueue.dead_jobs (id) values (1)",
    )


def _holds_up_no_job(stage: Stage) -> None:
    with stage.login.transaction():
        ask(stage.login, enqueue.enqueue(new_job(queue="mail")))
        stage.refuses(
            "update pgqueue.jobs set lane = 'none' where id = {job}",
            "insert into pgqueue.unknown_tasks values ('mail', 't', '-infinity', 'infinity')",
            "insert into pgqueue.jobs (task, queue, fence) values ('t', 'mail', 1)",
            "delete from pgqueue.jobs where id = {job}",
            "select id from pgqueue.jobs for key share",
            "lock table pgqueue.jobs in row share mode",
            "select pgqueue.put_in_lanes('{{1}}')",
        )
        (taken,) = ask(stage.own, taking())
        ended = ask(stage.own, finish.finish(taken.worker_id, [Succeeded(taken, 0.0)], keep=True))
        assert ended == {stage.job: JobState.SUCCEEDED}


def _takes_no_place(stage: Stage) -> None:
    stage.login.execute(
        "insert into pgqueue.jobs (task, queue, status, lane) values ('t', 'mail', 'running', 'name:warehouse')"
    )
    assert keys_of("queue:other\nname:warehouse") == keys_of(
        "name:warehouse"
    )  # a queue's own limit is in no lane
    stage.refuses(
        "insert into pgqueue.jobs (task, queue, worker_id) values ('t', 'mail', gen_random_uuid())",
        "insert into pgqueue.jobs (task, queue, place_at) values ('t', 'mail', now())",
        "insert into pgqueue.jobs (task, queue, claim_number) values ('t', 'mail', 1)",
    )
    assert ask(stage.own, _places()) == []


@plan
def _places() -> Steps[Sequence[Row]]:
    return (yield Statement("limits/running", {"keys": ["name:warehouse"], "since": 0}))


CONTENTS = (
    *(f"select {one} from pgqueue.jobs" for one in ("args", "errors", "meta", "unique_key")),
    *(f"select {one} from pgqueue.job_history" for one in ("args", "result", "errors", "meta", "unique_key")),
    *(f"select {one} from pgqueue.dead_jobs" for one in ("args", "errors", "meta", "unique_key")),
    *(f"select {one} from pgqueue.all_jobs" for one in ("args", "result", "errors", "meta", "unique_key")),
    "select value from pgqueue.notes",
    "select args from pgqueue.schedules",
)
SECRETS = (
    "select payload from pgqueue.signals",
    "select from pgqueue.callback_key",
    "select pgqueue.callback_mac('x')",
)
CHANGES = (
    "insert into pgqueue.jobs (task) values ('t')",
    "select pgqueue.enqueue('t')",
    "update pgqueue.jobs set priority = 1",
    "delete from pgqueue.dead_jobs",
    "select from pgqueue.jobs for key share",
    "lock table pgqueue.jobs in row share mode",
    "update pgqueue.queues set paused_at = now()",
    "select pgqueue.pause_queue('mail')",
    "select pgqueue.signal('key:k', 'x')",
    "select pgqueue.keep_for('0', '0', 0, 'them')",
    "select nextval('pgqueue.idle_workers')",
)


def _reads_names(stage: Stage) -> None:
    stage.does(
        "select task, queue, run_at, status, lane from pgqueue.jobs",
        "select task, outcome from pgqueue.job_history",
        "select name, error from pgqueue.schedules",
        "select key from pgqueue.flows",
        "select * from pgqueue.audit",
        "select error from pgqueue.alerts",
    )


def _reads_contents(stage: Stage) -> None:
    stage.does(*CONTENTS)
    stage.refuses(*SECRETS)


def _delays_upgrades(stage: Stage) -> None:
    with stage.login.transaction():
        stage.login.execute("select id from pgqueue.all_jobs")
        for upgrade in ("alter table pgqueue.jobs add column more text", "drop table pgqueue.job_history"):
            with pytest.raises(LockNotAvailable), stage.own.transaction():
                stage.own.execute(upgrade.encode())


EVERY_ROW = (
    "select * from pgqueue.jobs",
    "update pgqueue.jobs set args = '{{}}'",
    "delete from pgqueue.jobs",
    "delete from pgqueue.job_history",
    *(
        f"delete from pgqueue.{one}"
        for one in ("dead_jobs", "schedules", "limits", "queues", "flows", "workers")
    ),
)
TABLES = (
    "truncate pgqueue.jobs",
    "drop table pgqueue.jobs",
    "alter table pgqueue.jobs disable trigger all",
    "create table pgqueue.mine (n int)",
)
RELEASE = (
    "update pgqueue.alembic_version set version_num = '9'",
    "delete from pgqueue.alembic_version",
    "insert into pgqueue.compatibility values ('9')",
    "update pgqueue.compatibility set oldest_code = '9'",
)


def _acts_beside_the_audit(stage: Stage) -> None:
    before = stage.own.execute("select count(*) from pgqueue.audit").fetchone()
    stage.refuses("delete from pgqueue.audit", "update pgqueue.audit set said_by = 'another'")
    stage.does(
        "insert into pgqueue.audit (said_by, action, target, details) values ('another', 'pause', 'mail', '{{}}')"
    )
    stage.login.execute("insert into pgqueue.queues (name, paused_at) values ('mail', now())")
    assert stage.own.execute("select count(*) from pgqueue.audit").fetchone() == before
    ask(stage.login, queues.resume("mail", by="x"))
    assert stage.own.execute("select count(*) from pgqueue.audit").fetchone() != before


def _runs_nothing(stage: Stage) -> None:
    with pytest.raises(InsufficientPrivilege):
        ask(stage.login, taking(now=NOON))
    stage.refuses(*SECRETS[1:], *TABLES, *RELEASE)


def _columns(stage: Stage, table: str) -> set[str]:
    asked = "select attname from pg_attribute where attrelid = %s::regclass and attnum > 0"
    return {name for (name,) in stage.own.execute(asked, [f"pgqueue.{table}"])}


WORST: dict[str, tuple[Deed, ...]] = {
    "producer": (
        _fills, _reads_ids, _takes_keys, _holds_up_a_key, _signals, _stays_in_its_queues, _chooses_no_id, _holds_up_no_job, _takes_no_place,
    ),
    "monitor": (
        _reads_names,
        lambda stage: stage.refuses(*CONTENTS, *SECRETS),
        lambda stage: stage.refuses(*CHANGES),
        _delays_upgrades,
    ),
    "reader": (
        _reads_contents,
        lambda stage: stage.refuses(*CHANGES, "select pgqueue.callback_token({job}, 'paid', null)"),
    ),
    "operator": (lambda stage: stage.does(*EVERY_ROW), _acts_beside_the_audit, _runs_nothing),
    "worker": (
        lambda stage: stage.does(
            *EVERY_ROW, "delete from pgqueue.audit", "select pgqueue.callback_token({job}, 'paid', null)"
        ),
        lambda stage: stage.refuses(
            *TABLES, *RELEASE, *SECRETS[1:], "select setval('pgqueue.jobs_id_seq', 1)"
        ),
    ),
    "each": (
        lambda stage: stage.does(*(f"select pg_advisory_lock(hashtext('pgqueue.{key}'))" for key in ("signals", "flow"))),
        lambda stage: stage.does('notify "pgqueue.wake"'),
    ),
}  # fmt: skip
"""What is tried for each sentence of SECURITY.md, in the order in which they stand there."""


def sentences(role: str) -> list[str]:
    page = (DOCS.parent / "SECURITY.md").read_text()
    found = re.search(rf"<!-- worst: {role} -->\n.+\n\n((?:- .+\n)+)", page)
    assert found is not None
    return [line.removeprefix("- ") for line in found[1].splitlines()]


def test_each_sentence_of_the_page_is_tried() -> None:
    roles = re.findall("<!-- worst: (.+) -->", (DOCS.parent / "SECURITY.md").read_text())
    assert {role: len(sentences(role)) for role in roles} == {
        role: len(deeds) for role, deeds in WORST.items()
    }


@pytest.mark.parametrize(
    ("role", "number"), [(role, number) for role, deeds in WORST.items() for number in range(len(deeds))]
)
def test_a_role_does_at_worst_what_the_page_says(
    own: psycopg.Connection[Any], dsn: str, role: str, number: int
) -> None:
    (job,) = ask(own, adding(new_job(unique_key="theirs", meta=b'{"a": 1}')))
    with psycopg.connect(login(dsn, LOGIN.get(role, role)), autocommit=True) as connection:
        WORST[role][number](Stage(own, connection, job))
    assert ask(own, shown(job)).meta == {"a": 1}
