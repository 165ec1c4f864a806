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
from pgqueue.testing.clock import Clock
from pgqueue.testing.flow_answers import FlowAnswers
from pgqueue.testing.schedules import Calendar
from pgqueue.testing.table import JobTable, Notebook
from pgqueue.values.jobs.verdict import Verdict

T = TypeVar("T")

ANSWERED: Mapping[str, Mapping[str, str]] = {
    "table": {
        "control": "show newest counts clock cancel retry run_now",
        "job_end": "look",
        "searching": "search",
    },
    "adding": {"enqueue": "enqueue enqueue_few enqueue_many", "known_tasks": "find enqueue_noted"},
    "claims": {
        "claims": "next_claim",
        "finish": "record",
        "leases": "start leave_without_jobs",
    },
    "notes": {"notes": "recall recall_long keep report progress keep_logs logs"},
    "mailbox": {"signals": "send resolve callback look"},
    "flows": {"flows": "add", "flow_control": "begin_cancel ask cancel_portion end_root"},
    "flow_looks": {"flow_queries": "flows flow nodes state results facts"},
    "queues": {"queues": "pause close resume known declare change"},
    "calendar": {
        "schedules": "put apply listed dated pause resume remove",
        "ticks": "fire_due fire backfill runs",
    },
}
"""The plans that are answered, by what answers them and by their modules. The method with the plan's name takes its arguments."""
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
        self.clear()
        self._one_at_a_time = threading.RLock()

    def clear(self) -> None:
        """Forget every job, what it noted, every flow, signal and schedule."""
        self._table = table = JobTable()
        self.flows = table.flows
        answering: dict[str, object] = {
            "table": table,
            "adding": table.adding,
            "claims": table.claims,
            "notes": Notebook(table),
            "mailbox": table.mailbox,
            "flows": table.flows,
            "flow_looks": FlowAnswers(table.flows),
            "queues": table.queues,
            "calendar": Calendar(table.adding.enqueue, table.show),
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
        """Answer a plan."""
        with self._one_at_a_time:
            plan = unaudited(plan)
            answers = self._answers.get(plan.name)
            if answers is None:
                self._refuse(f"it does not answer {plan.name}")
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
            f"this needs PostgreSQL, and the queue is in memory, for a test ({what}): use the fixture pgqueue_queue in this test, "
            "or pgqueue.testing.in_database(queue, dsn)"
        )
