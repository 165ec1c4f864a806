"""Waiting for notifications: "look for jobs again", or "a running job is to be cancelled".

A notification does not say which job is meant: each worker that hears it asks the database about its own.
"""

from collections.abc import Callable
from typing import Any

import psycopg

from pgqueue.store.catalogue import Catalogue

CANCEL = "cancel"
"""What a notification says when a running job is to be cancelled (``sql/cancel.sql``)."""


async def listen(
    connection: psycopg.AsyncConnection[Any], catalogue: Catalogue, heard: Callable[[str], object]
) -> None:
    """Listen for as long as the connection lasts.

    Args:
        connection: in autocommit mode, to the server itself (no transaction pooler), used for nothing else.
        catalogue: of the schema whose jobs are waited for.
        heard: called at each notification with what it says, ``CANCEL`` or nothing; and with both when listening has
            begun, for what was missed before.

    Raises:
        psycopg.OperationalError: the connection was lost.
    """
    await connection.execute(listen_statement(catalogue).encode())
    heard("")
    heard(CANCEL)
    async for notification in connection.notifies():
        heard(notification.payload)


def listen_statement(catalogue: Catalogue) -> str:
    """The statement after which a connection hears what is said to sleepers."""
    return f'listen "{catalogue.wake_channel}"'
