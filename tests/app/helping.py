"""What the tests of the app's floor share."""

from collections.abc import Callable
from typing import Any, LiteralString

from tenacity import Retrying, retry_if_result, stop_after_delay, wait_fixed

from pgqueue import PgQueue


def ask(queue: PgQueue, statement: LiteralString, *params: object) -> list[tuple[Any, ...]]:
    """Run a statement, committed at once, and return its rows, if it has any."""
    with queue.database.pooled() as connection:
        cursor = connection.execute(statement, params)
        return cursor.fetchall() if cursor.description else []


def wait_until(holds: Callable[[], object]) -> None:
    """Wait until a condition holds; the limit only keeps a failing test from hanging."""
    Retrying(retry=retry_if_result(lambda held: not held), wait=wait_fixed(0.01), stop=stop_after_delay(20))(
        holds
    )
