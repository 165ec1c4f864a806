"""A queue without a database: what its public methods ask is answered from a dict.

Every public method ends in one of four ways to run a plan. :class:`Memory` stands where the database does,
reads from a plan what it asks, answers, and never starts it.
"""

import threading
from typing import NoReturn, TypeVar

from pgqueue.app.desk import Desk
from pgqueue.errors import NotInMemory
from pgqueue.store import claim, control, enqueue, finish, waiting
from pgqueue.store.database import Database
from pgqueue.store.plan import Plan
from pgqueue.testing.clock import Clock
from pgqueue.testing.plans import asked, next_claim
from pgqueue.testing.table import Table

T = TypeVar("T")

_ANSWERED = {
    plan.__code__: plan.__name__
    for plan in (
        enqueue.enqueue,
        enqueue.enqueue_many,
        control.show,
        waiting.look,
        waiting.why,
        control.jobs,
        control.counts,
        control.clock,
        control.cancel,
        control.retry,
        control.retry_dead,
        control.retry_dead_matching,
        control.purge_dead,
        control.pause,
        control.resume,
        next_claim,
        finish.finish,
        claim.retire,
    )
}
"""Plans, by their code, and the method of :class:`Table` that answers each."""
_TIMED = {control.clock.__code__}
"""Those that ask for the time without taking one."""


class Memory(Database):
    """Answers plans from a dict, at the instant of a :class:`Clock`.

    Attributes:
        clock: what time it is for jobs.
    """

    def __init__(self, queue: Desk, clock: Clock | None = None) -> None:
        """Begin with no job.

        Args:
            queue: whose database it stands in for.
            clock: what time it is; by default a clock that stands still at the present.
        """
        super().__init__("", schema=queue.database.catalogue.schema)
        self.clock = Clock() if clock is None else clock
        self._table = Table()
        self._one_at_a_time = threading.RLock()

    def clear(self) -> None:
        """Forget every job."""
        self._table = Table()

    def run(self, plan: Plan[T], connection: object = None) -> T:  # noqa: ARG002 - there is no transaction to join
        """Answer a plan."""
        code, given = asked(plan)
        plan.close()
        name = _ANSWERED.get(code)
        if name is None:
            self._refuse(f"{code.co_name!r} was asked of it")
        if code in _TIMED or given.get("now", self) is None:
            given["now"] = self.clock.now
        with self._one_at_a_time:
            answer: T = getattr(self._table, name)(**given)
            return answer

    async def arun(self, plan: Plan[T], connection: object = None) -> T:
        """Answer a plan."""
        return self.run(plan, connection)

    def run_whole(self, plan: Plan[T], connection: object = None) -> T:
        """Answer a plan."""
        return self.run(plan, connection)

    async def arun_whole(self, plan: Plan[T], connection: object = None) -> T:
        """Answer a plan."""
        return await self.arun(plan, connection)

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
