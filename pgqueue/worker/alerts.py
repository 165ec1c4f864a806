"""The worker's looks at alerts: which are due, each in a transaction of its own, and what is logged of them.

Every worker does this, and any number may at one time: a look locks the alert's row, and who finds it locked goes on to the
next. What a look does is decided in :mod:`pgqueue.store.alerts.alerts`.
"""

import psycopg

from pgqueue.errors import ConnectionFailed
from pgqueue.store.alerts import alerts
from pgqueue.store.alerts.alert_readings import Answers
from pgqueue.worker.connection import Connections, WorkerConnection
from pgqueue.worker.joblog import worker_log
from pgqueue.worker.signals import Signals

log = worker_log()

READ_AGAIN_AFTER = 100
"""Looks that share what they read of all queues, workers and limits. 2,000 alerts read them 20 times, in place of 2,000."""


class AlertLooks:
    """Looks at the alerts that are due."""

    def __init__(self, connections: Connections, signals: Signals) -> None:
        self._connections = connections
        self._signals = signals

    async def run_once(self) -> float | None:
        """Look at each alert that is due; returns the seconds until the next one is, None: there is none.

        They have a connection of their own: no other service waits for a slow one.
        """
        due = await self._connections.upkeep.run(alerts.due())
        if due.names:
            async with self._connections.for_once("alerts") as own:
                answers: Answers = {}
                for number, name in enumerate(due.names):
                    if number % READ_AGAIN_AFTER == 0:
                        answers = {}
                    await self._look(own, name, answers)
        return due.next_in

    async def _look(self, own: WorkerConnection, name: str, answers: Answers) -> None:
        try:
            looked = await own.once(alerts.look(name, answers=answers))
        except Exception as error:  # noqa: BLE001 - whatever is wrong with this alert
            first, *_ = [*str(error).splitlines(), ""]  # what follows may name the row, another one each time
            await _note_failure(own, name, f"{type(error).__name__}: {first}")
            return
        if looked.alert is not None:
            told = looked.alert
            log.warning("alert told", extra={"alert": name, "state": told.state, "what": told.summary})
            self._signals.look.set()
        elif looked.error is not None:
            log.error("alert not told; tried again in 15 s", extra={"alert": name, "error": looked.error})


async def _note_failure(own: WorkerConnection, name: str, error: str) -> None:
    try:
        new = await own.once(alerts.fail(name, error))
    except (psycopg.Error, ConnectionFailed) as worse:
        log.warning("alert not looked at", extra={"alert": name, "error": f"{error}; then: {worse}"})
        return
    if new:
        log.error("alert not looked at; tried again in a minute", extra={"alert": name, "error": error})
