"""Waiting to be told "look again". Notifications carry nothing; whoever hears one looks for itself."""

from collections.abc import Callable
from typing import Any

import psycopg

from pgqueue.store.catalogue import Catalogue


async def listen(
    connection: psycopg.AsyncConnection[Any], catalogue: Catalogue, heard: Callable[[], object]
) -> None:
    """Listen for as long as the connection lasts.

    Args:
        connection: in autocommit mode, to the server itself (no transaction pooler), used for nothing else.
        catalogue: of the schema whose jobs are waited for.
        heard: called once when listening has begun, for what was missed before, and at each notification.

    Raises:
        psycopg.OperationalError: the connection was lost.
    """
    await connection.execute(listen_statement(catalogue).encode())
    heard()
    async for _ in connection.notifies():
        heard()


def listen_statement(catalogue: Catalogue) -> str:
    """The statement after which a connection hears what is said to sleepers."""
    return f'listen "{catalogue.wake_channel}"'
