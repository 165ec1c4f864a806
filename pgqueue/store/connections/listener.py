"""Notifications that arrive: look for jobs; a running job is to be cancelled; a worker is asked something; jobs have ended.

The first two do not name jobs: each worker that receives one asks the database about its own jobs. The last one is for
programs that wait for jobs (:mod:`pgqueue.store.results.ends`).
"""

import re
from collections.abc import Callable

from pgqueue.store.catalogue import Catalogue
from pgqueue.store.connections.answering import within
from pgqueue.store.connections.connection import OwnAsyncConnection

PROBE_EVERY = 20.0
"""Seconds. A connection that a router has dropped says nothing, as one without notifications: so the server is asked."""
ANSWER_WITHIN = 10.0
"""Seconds that the server has to answer before the connection is cut off."""
FLOW = "flow"
"""What a notification says when there is work left in flows."""
CANCEL = "cancel"
"""The payload of a notification that a running job is to be cancelled (``sql/jobs/cancel.sql``)."""

ASKED = "asked:"
"""The beginning of the payload of a notification that a worker is asked to do something; the worker's id follows."""


async def listen(
    connection: OwnAsyncConnection, catalogue: Catalogue, heard: Callable[[str], object]
) -> None:
    """Listen for as long as the connection lasts.

    Args:
        connection: in autocommit mode, directly to the server (no transaction pooler), used only for this.
        catalogue: the catalogue of the jobs' schema.
        heard: called at each notification with its payload, ``CANCEL`` or empty; and once with each when listening
            begins, for notifications that were missed before.

    Raises:
        psycopg.OperationalError: the connection was lost, or the server did not answer within :data:`ANSWER_WITHIN`.
    """
    await connection.execute(listen_statement(catalogue).encode())
    heard("")
    heard(CANCEL)
    while True:
        async for notification in connection.notifies(timeout=PROBE_EVERY):
            heard(notification.payload)
        with within(ANSWER_WITHIN, connection):
            await connection.execute(b"")


def listen_statement(catalogue: Catalogue) -> str:
    """The statement after which a connection receives the notifications for idle workers."""
    return f'listen "{catalogue.wake_channel}"'


def listen_ends_statement(catalogue: Catalogue) -> str:
    """The statement after which a connection receives the notifications of ends that programs wait for."""
    return f'listen "{catalogue.ended_channel}"'


def ids_of(payload: str) -> set[int]:
    """The ids in a notification of ends. Any role may notify, so what is no id is left out."""
    return set(map(int, _ID.findall(payload)))


_ID = re.compile(r"\b\d{1,19}\b", re.ASCII)
