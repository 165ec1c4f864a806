"""Plans that threads run, and that the main thread can end: an interrupt reaches no other thread."""

from contextlib import closing, suppress
from typing import TYPE_CHECKING, TypeVar

import psycopg

from pgqueue.store.connections.database import Database
from pgqueue.store.connections.dsn import failure
from pgqueue.store.plan import Plan, run

if TYPE_CHECKING:
    from pgqueue.store.connections.connection import OwnConnection

T = TypeVar("T")


class ThreadedDatabase:
    """A database as several threads use it."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._asked: set[OwnConnection] = set()

    def run(self, plan: Plan[T]) -> T:
        """Run a plan on a connection of its own: those of the pool are the caller's, who may keep few.

        Raises:
            DatabaseError: as :meth:`Database.run`, or it was interrupted.
        """
        with closing(self._database.connect()) as connection:
            self._asked.add(connection)
            try:
                return run(plan, connection.steps(self._database.catalogue))
            except psycopg.OperationalError as error:
                raise failure(error) from error
            finally:
                self._asked.discard(connection)

    def interrupt(self) -> None:
        """Have the statements fail that threads wait for."""
        for connection in tuple(self._asked):
            with suppress(psycopg.Error):  # what waits on a lost connection fails by itself
                connection.cancel_safe()
