"""A plan is a value: it knows its name, its arguments and whether it needs a transaction, and can be run again."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import psycopg
import pytest
from store.samples import LEASE, NOON, new_job, worker_info

from pgqueue import PgQueue
from pgqueue.store import signals
from pgqueue.store.flows import flows
from pgqueue.store.jobs import claim, enqueue
from pgqueue.store.plan import Plan, Row, Statement, Step, Steps, arun, plan, run
from pgqueue.store.workers import leases, upkeep
from pgqueue.values.flows.flow import NewFlow, NodeGroup, NodeKind

REFUSE_DEAD = """
create function pgqueue.refuse() returns trigger language plpgsql as $$begin raise 'no'; end$$;
create trigger refuse before insert on pgqueue.dead_jobs for each row execute function pgqueue.refuse();
"""
P = ParamSpec("P")
T = TypeVar("T")


class Connection:
    """A connection that notes what it was asked, and answers every step with one row."""

    def __init__(self) -> None:
        self.noted: list[str] = []

    def execute(self, step: Step, /) -> Sequence[Row]:
        self.noted.append(step.name)
        return [(len(self.noted),)]

    @contextmanager
    def transaction(self) -> Iterator[None]:
        self.noted.append("begin")
        yield
        self.noted.append("commit")


class Awaited(Connection):
    async def execute(self, step: Step, /) -> Sequence[Row]:  # type: ignore[override]  # awaited
        return super().execute(step)

    @asynccontextmanager
    async def transaction(self) -> Any:  # type: ignore[override]  # awaited
        with super().transaction():
            yield


@plan
def one(name: str = "one", *, now: object = None) -> Steps[int]:
    rows = yield Statement(name, {"now": now})
    return int(rows[0][0])


@plan(transaction=True)
def two() -> Steps[int]:
    return (yield from one("first")) + (yield from one("second"))


@plan
def careless() -> Steps[int]:
    yield from one("before")
    return (yield from two())


@plan(transaction=True)
def careful() -> Steps[int]:
    yield from one("before")
    return (yield from two())


@pytest.fixture(params=["blocking", "awaited"])
def asked(request: pytest.FixtureRequest) -> Callable[[Plan[Any]], tuple[Any, list[str]]]:
    """Run a plan; its result, and what the connection was asked."""

    def ask(plan: Plan[Any]) -> tuple[Any, list[str]]:
        if request.param == "blocking":
            connection = Connection()
            return run(plan, connection), connection.noted
        awaited = Awaited()
        return asyncio.run(arun(plan, awaited)), awaited.noted

    return ask


Asked = Callable[[Plan[Any]], tuple[Any, list[str]]]


def test_a_plan_can_be_run_again_and_with_other_arguments(asked: Asked) -> None:
    plan = one("look")

    assert asked(plan) == asked(plan) == (1, ["look"])
    assert plan.but(name="later", now=NOON).arguments == {"name": "later", "now": NOON}
    assert plan.arguments == {"name": "look", "now": None}
    assert asked(plan.but(name="later")) == (1, ["later"])


def test_a_plan_that_needs_a_transaction_is_run_in_one(asked: Asked) -> None:
    assert asked(two()) == (5, ["begin", "first", "second", "commit"])
    assert asked(careful())[1] == ["begin", "before", "first", "second", "commit"]
    assert asked(one("alone").in_transaction())[1] == ["begin", "alone", "commit"]


def test_a_plan_that_needs_a_transaction_is_refused_within_one_that_says_it_needs_none(asked: Asked) -> None:
    with pytest.raises(TypeError, match=r"careless runs test_plan_values\.two, which needs a transaction"):
        asked(careless())


def test_a_decorated_plan_keeps_its_name_and_its_arguments() -> None:
    def counted(make: Callable[P, T]) -> Callable[P, T]:
        @wraps(make)
        def counting(*args: P.args, **kwargs: P.kwargs) -> T:
            return make(*args, **kwargs)

        return counting

    for decorated in (counted(plan(_plain)), plan(counted(_plain))):
        made = decorated(4)
        assert (made.name, made.arguments) == ("test_plan_values._plain", {"job_id": 4})
        assert run(made, Connection()) == 4


def _plain(job_id: int) -> Steps[int]:
    yield Statement("plain", {})
    return job_id


def test_a_refused_reclaim_changes_nothing_whatever_runs_it(dsn: str) -> None:
    """It was run without a transaction where a caller forgot it: the worker had left the list, its jobs had stayed."""
    queue, worker = PgQueue(dsn), worker_info()
    database = queue.database
    database.run(leases.register(worker, LEASE, now=NOON))
    database.run(enqueue.enqueue(new_job("refused", max_attempts=1), now=NOON))
    database.run(claim.claim(worker.id, {"default": 1}, now=NOON))
    with psycopg.connect(dsn, autocommit=True) as own:
        own.execute(REFUSE_DEAD)
        with pytest.raises(psycopg.errors.RaiseException):
            database.run(upkeep.reclaim(now=NOON + 2 * LEASE))
        assert own.execute("select id from pgqueue.workers").fetchall() == [(worker.id,)]
    queue.close()


@pytest.mark.parametrize(
    "plan",
    [
        enqueue.enqueue(new_job()),
        enqueue.enqueue(new_job()).in_transaction(),
        enqueue.enqueue_many([new_job()]),
        flows.add(NewFlow("chain", "flow", NodeGroup(NodeKind.GROUP, ()))),
        signals.send("key", "paid"),
        signals.resolve("token"),
    ],
    ids=str,
)
def test_what_adds_jobs_or_a_signal_says_so(plan: Plan[Any]) -> None:
    """A framework's database runs it in the app's transaction, and an eager queue in memory runs jobs after it."""
    assert plan.kind.adds
    assert not enqueue.reserve(1).kind.adds
