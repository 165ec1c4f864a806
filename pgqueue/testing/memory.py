"""A queue without a database: what its public methods ask is answered from a dict.

Every public method runs a plan. :class:`Memory` stands where the database does: it answers a plan by its name and its
arguments, and never runs it.
"""

import threading
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
from pgqueue.testing.flow_control import FlowControl
from pgqueue.testing.flow_facts import FlowFactsAnswers
from pgqueue.testing.flow_growth import FlowGrowth
from pgqueue.testing.insight import InsightAnswers
from pgqueue.testing.limits import LimitBook
from pgqueue.testing.notes import Notebook
from pgqueue.testing.schedules import Calendar
from pgqueue.testing.table import JobTable
from pgqueue.values.jobs.verdict import Verdict

T = TypeVar("T")

ANSWERED = frozenset(
    {
        "control.show",
        "job_end.look",
        "why.why",
        "control.newest",
        "control.counts",
        "standings.queue_standings",
        "control.clock",
        "control.cancel",
        "control.retry",
        "control.run_now",
    }
)
"""The plans that are answered, by name. The method of :class:`JobTable` with the last part of the name takes the arguments."""
ADDING = frozenset({"enqueue.enqueue", "enqueue.enqueue_many"})
"""Those that add jobs, which :class:`Adding` answers in the same way."""
CLAIMS = frozenset({"plans.next_claim", "finish.record", "leases.leave_without_jobs", "crashes.start"})
"""Those by which a worker claims jobs and records their ends, which :class:`Claims` answers in the same way."""
CALENDAR = frozenset(
    f"{module}.{name}"
    for module, names in {
        "schedules": ("put", "apply", "listed", "dated", "pause", "resume", "remove"),
        "ticks": ("fire_due", "fire", "backfill", "runs"),
    }.items()
    for name in names
)
"""Those about schedules, which :class:`Calendar` answers in the same way."""
QUEUES = frozenset(f"queues.{name}" for name in ("pause", "drain", "resume", "known", "declare", "change"))
"""Those about queues, which :class:`KnownQueues` answers in the same way."""
OPERATIONS = frozenset(
    {"bulk.preview", "bulk.begin", "bulk_jobs.find", "bulk_jobs.change", "bulk_jobs.note", "audit.listed"}
)
"""Those about operations on many jobs, which :class:`OperationBook` answers in the same way."""
SIGNALS = frozenset({"signals.send", "signals.resolve", "signals.callback", "signals.look"})
"""Those about signals, which :class:`Mailbox` answers in the same way."""
NOTES = frozenset({"notes.recall", "notes.recall_long", "notes.keep", "notes.report", "notes.progress"})
"""Those about what jobs note, which :class:`Notebook` answers in the same way."""
FLOWS = frozenset({"flows.add"})
"""Those that add chains, groups and workflows, which :class:`Flows` answers in the same way."""
FLOW_CONTROL = frozenset(
    f"flow_control.{name}" for name in ("begin_cancel", "ask", "cancel_portion", "end_root", "retry")
)
"""Those that cancel and retry them, which :class:`FlowControl` answers in the same way."""
FLOW_GROWTH = frozenset({"flow_growth.complete"})
"""The one by which jobs add to them, which :class:`FlowGrowth` answers in the same way."""
FLOW_FACTS = frozenset({"flow_facts.facts"})
"""The one by which jobs know what came before them, which :class:`FlowFactsAnswers` answers in the same way."""
FLOW_LOOKS = frozenset(f"flow_queries.{name}" for name in ("flows", "flow", "nodes", "state", "results"))
"""Those by which callers look at them, which :class:`FlowAnswers` answers in the same way."""
LIMITS = frozenset(
    f"limit_control.{name}" for name in ("listed", "show", "change", "unset", "weigh", "weights")
)
"""Those about limits, which :class:`LimitBook` answers in the same way."""
INSIGHT = frozenset({"insight.running", "insight.errors", "insight.schedules", "searching.search"})
"""Those by which callers look at the queue as a whole, which :class:`InsightAnswers` answers in the same way."""
ALERTS = frozenset(
    f"alerts.{name}" for name in ("apply", "remove", "listed", "silence", "due", "look", "fail")
)
"""Those about alerts, which :class:`AlertBook` answers in the same way."""
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
        self._answers: dict[str, object] = {
            **dict.fromkeys(ANSWERED, table),
            **dict.fromkeys(ADDING, table.adding),
            **dict.fromkeys(CLAIMS, table.claims),
            **dict.fromkeys(CALENDAR, calendar),
            **dict.fromkeys(NOTES, Notebook(table)),
            **dict.fromkeys(QUEUES, table.queues),
            **dict.fromkeys(OPERATIONS, self._operations),
            **dict.fromkeys(SIGNALS, table.mailbox),
            **dict.fromkeys(FLOWS, self.flows),
            **dict.fromkeys(FLOW_CONTROL, FlowControl(table)),
            **dict.fromkeys(FLOW_GROWTH, FlowGrowth(table)),
            **dict.fromkeys(FLOW_FACTS, FlowFactsAnswers(table.flows)),
            **dict.fromkeys(FLOW_LOOKS, FlowAnswers(table.flows)),
            **dict.fromkeys(LIMITS, limits),
            **dict.fromkeys(ALERTS, AlertBook(table, calendar, limits)),
            **dict.fromkeys(INSIGHT, InsightAnswers(table, calendar)),
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
