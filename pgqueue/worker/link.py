"""A worker's own connection: one plan at a time, opened again whenever it is lost."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import nullcontext
from typing import TypeVar

import psycopg
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, wait_exponential, wait_random

from pgqueue.errors import ConnectionFailed
from pgqueue.store.connection import OwnAsyncConnection
from pgqueue.store.database import Database
from pgqueue.store.plan import Plan, arun

T = TypeVar("T")
log = logging.getLogger("pgqueue.worker")

LOST = (psycopg.OperationalError, psycopg.InterfaceError, ConnectionFailed)
LONGEST_PAUSE = 5.0

# The worker's statements are walks along indices. A plan cached while a table was small must not read it
# from end to end when it has grown, so the planner is left no other choice. And it makes one plan for all
# parameters: else it planned every claim anew, a fifth of a millisecond each, in the hope of a better one.
PLANNER = (
    "set enable_seqscan = off; set enable_bitmapscan = off; set enable_hashjoin = off; "
    "set enable_mergejoin = off; set jit = off; set plan_cache_mode = force_generic_plan"
)


def is_lost(error: BaseException) -> bool:
    """Whether trying again on a new connection may help."""
    return isinstance(error, LOST) and not isinstance(error, psycopg.errors.LockNotAvailable)


class Link:
    """Runs plans, with patience: while the database is away it tries again, with growing pauses.

    Attributes:
        losses: how many plans have been cut off. What each had asked for may have been done or not.
    """

    def __init__(self, name: str, database: Database, *, setup: str = "") -> None:
        """Connect when first used.

        Args:
            name: for the log.
            database: where to.
            setup: settings to make on each new connection besides the planner's; settings do not last
                behind a transaction pooler, and are not made there.
        """
        self.name = name
        self.losses = 0
        self._setup = f"{PLANNER}; {setup}"
        self._database = database
        self._connection: OwnAsyncConnection | None = None
        self._lock = asyncio.Lock()

    async def run(
        self,
        make: Callable[[], Plan[T]],
        then: Callable[[T], object] | None = None,
        *,
        whole: bool = False,
    ) -> T:
        """Run a plan until it has been run.

        The connection may be lost after the database did what it was asked, so a plan may run twice: every
        plan a worker sends can bear that.

        Args:
            make: makes the plan; a plan is used up by one try.
            then: told the result before another plan can run on this link.
            whole: in one transaction, for plans whose statements belong together.

        Returns:
            The plan's result.

        Raises:
            LockNotAvailable: where ``setup`` bounds the wait for locks.
            psycopg.Error: the database refused the statement itself.
        """
        try:
            return await self._once(make, then, whole=whole)
        except LOST as error:
            if not is_lost(error):
                raise
            self._log_loss(error)
        patient = AsyncRetrying(
            retry=retry_if_exception(is_lost),
            wait=wait_exponential(multiplier=0.1, max=LONGEST_PAUSE) + wait_random(0, 0.1),
            before_sleep=self._log_retry,
            reraise=True,
        )
        return await patient(self._once, make, then, whole=whole)

    async def close(self) -> None:
        """Close the connection, if there is one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def _once(
        self, make: Callable[[], Plan[T]], then: Callable[[T], object] | None, *, whole: bool
    ) -> T:
        async with self._lock:
            try:
                connection = self._connection or await self._connect()
                async with connection.transaction() if whole else nullcontext():
                    result = await arun(make(), connection.steps(self._database.catalogue))
            except BaseException as error:
                self.losses += 1
                if is_lost(error):
                    await self.close()
                raise
            if then is not None:
                then(result)
            return result

    async def _connect(self) -> OwnAsyncConnection:
        connection = await self._database.aconnect()
        if not self._database.behind_pooler:
            try:
                await connection.execute(self._setup.encode())
            except BaseException:
                await connection.close()
                raise
        self._connection = connection
        return connection

    def _log_retry(self, state: RetryCallState) -> None:
        if state.outcome is not None and (error := state.outcome.exception()) is not None:
            self._log_loss(error)

    def _log_loss(self, error: BaseException) -> None:
        log.warning("connection lost", extra={"link": self.name, "error": str(error).strip()})
