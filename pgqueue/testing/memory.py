"""A queue without a database: what its public methods ask is answered from a dict.

Every public method runs a plan. :class:`Memory` stands where the database does: it answers a plan by its name and its
arguments, and never runs it.
"""

import threading
from collections.abc import Mapping
from typing import NoReturn, TypeVar

from pgqueue.app.registry import Registry
from pgqueue.errors import NotInMemory
from pgqueue.store.audit import unaudited
from pgqueue.store.connections.database import Database
from pgqueue.store.plan import Plan
from pgqueue.testing.alerts import AlertBook
from pgqueue.testing.bulk import OperationBook
from pgqueue.testing.clock import Clock
from pgqueue.testing.flow_answers import FlowAnswers
from pgqueue.testing.flow_changes import FlowChanges
from pgqueue.testing.insight import InsightAnswers
from pgqueue.testing.limits import LimitBook
from pgqueue.testing.schedules import Calendar
from pgqueue.testing.table import JobTable, Notebook
from pgqueue.values.jobs.verdict import Verdict

T = TypeVar("T")

ANSWERED: Mapping[str, Mapping[str, str]] = {
    "table": {
        "control": "show newest counts clock cancel retry run_now",
        "job_end": "look",
        "queues": "queue_standings",
        "why": "why",
    },
    "adding": {"enqueue": "enqueue enqueue_many"},
    "claims": {
        "claims": "next_claim",
        "finish": "record",
        "leases": "start leave_without_jobs",
    },
    "notes": {"notes": "recall recall_long keep report progress"},
    "mailbox": {"signals": "send resolve callback look"},
    "flows": {"flows": "add"},
    "flow_looks": {"flow_queries": "flows flow nodes state results facts"},
    "flow_changes": {
        "flow_control": "begin_cancel ask cancel_portion end_root retry",
        "flow_growth": "complete",
    },
    "queues": {"queues": "pause drain resume known declare change"},
    "calendar": {
        "schedules": "put apply listed dated pause resume remove",
        "ticks": "fire_due fire backfill runs",
    },
    "limits": {"limit_control": "listed show change unset delete move named weigh weights"},
    "operations": {"bulk": "preview begin", "bulk_jobs": "find change note", "audit": "listed"},
    "insight": {"insight": "running errors schedules", "searching": "search"},
    "alerts": {"alerts": "apply remove listed silence due look fail"},
}
"""The plans that are answered, by what answers them and by their modules. The method with the plan's name takes its arguments."""
ELSEWHERE = {
    "stacks.ask": "queue.control.stack() asks the worker that runs a job, and no worker serves a queue in memory: a job runs within "
    "drain(), in the test's own process, where a debugger or traceback.print_stack() shows its stack",
    "story.story": "queue.insight.story() reads notes, flows and stacks that only PostgreSQL keeps together; in memory ask "
    "queue.job(id), queue.why(id), JobHandle.progress() and the flow's handle",
}
"""Plans that are refused, and what a test can do instead."""
TIMED = "control.clock"
"""The plan that asks for the time; it takes none."""


class Memory(Database):
    """Answers plans from a dict, at the instant of a :class:`Clock`.

    Attributes:
        clock: what time it is for jobs.
        flows: the chains, groups and workflows.
    """

    in_memory = True
    calls_hooks = True

    def __init__(self, queue: Registry, clock: Clock | None = None) -> None:
        """``clock``: None: a clock that stands still at the present."""
        super().__init__("", schema=queue.database.catalogue.schema)
        self.clock = Clock() if clock is None else clock
        self._limits = lambda: queue.limits
        self._limiting = lambda: queue.limiting
        self.clear()
        self._one_at_a_time = threading.RLock()

    def clear(self) -> None:
        """Forget every job, what it noted, every flow, signal, schedule and alert."""
        self._table = table = JobTable(self._limits, self._limiting)
        self._operations = OperationBook(table)
        self.flows = table.flows
        calendar, limits = Calendar(table.adding.enqueue, table.show), LimitBook(table)
        answering: dict[str, object] = {
            "table": table,
            "adding": table.adding,
            "claims": table.claims,
            "notes": Notebook(table),
            "mailbox": table.mailbox,
            "flows": table.flows,
            "flow_looks": FlowAnswers(table.flows),
            "flow_changes": FlowChanges(table),
            "queues": table.queues,
            "calendar": calendar,
            "limits": limits,
            "operations": self._operations,
            "insight": InsightAnswers(table, calendar),
            "alerts": AlertBook(table, calendar, limits),
        }
        self._answers = {
            f"{module}.{name}": answering[who]
            for who, modules in ANSWERED.items()
            for module, names in modules.items()
            for name in names.split()
        }

    def take_reclaimed(self) -> list[Verdict]:
        """What was recorded of lost workers' jobs since the last call."""
        return self._table.claims.take_reclaimed()

    def run(self, plan: Plan[T], connection: object = None) -> T:  # noqa: ARG002 - there is no transaction to join
        """Answer a plan; where an operator asks, write down what changed."""
        with self._one_at_a_time:
            answer = self._answer(unaudited(plan))
            if unaudited(plan) is not plan and plan.arguments["changed"](answer):
                self._operations.write(**plan.arguments, result=answer, now=self.clock.now)
            return answer

    def _answer(self, plan: Plan[T]) -> T:
        answers = self._answers.get(plan.name)
        if answers is None and plan.name in ELSEWHERE:
            raise NotInMemory(
                f"{ELSEWHERE[plan.name]}; or use the fixture pgqueue_queue, or pgqueue.testing.in_database(queue, dsn)"
            )
        if answers is None:
            self._refuse(f"{plan.name!r} was asked of it")
        given = plan.arguments
        if plan.name == TIMED or given.get("now", plan) is None:
            given["now"] = self.clock.now
        answer: T = getattr(answers, plan.name.rpartition(".")[2])(**given)
        return answer

    async def arun(self, plan: Plan[T], connection: object = None) -> T:
        """Answer a plan."""
        return self.run(plan, connection)

    @property
    def dsn(self) -> str:
        """There is none."""
        self._refuse("it has no DSN")

    def connect(self, dsn: str | None = None, **_: object) -> NoReturn:  # noqa: ARG002 - as of Database
        """There is none."""
        self._refuse("it has no connections")

    async def aconnect(self, dsn: str | None = None, **_: object) -> NoReturn:  # noqa: ARG002 - as of Database
        """There is none."""
        self._refuse("it has no connections")

    def _refuse(self, what: str) -> NoReturn:
        raise NotInMemory(
            "take, atake, workers and ctx.transaction() need PostgreSQL, and this queue is in memory, for tests: use "
            f"the fixture pgqueue_queue or pgqueue.testing.in_database(queue, dsn) in this test ({what})"
        )
