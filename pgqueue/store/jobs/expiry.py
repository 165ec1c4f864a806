"""Ending expired jobs, so that one job which the database refuses to end does not stop the others.

It is a sweep (:mod:`pgqueue.store.jobs.sweep`): a refused portion is tried again with half of its jobs, which are the first to have
expired. If one job alone is refused, it is set aside for :data:`PAUSE`, and logged.
"""

import logging
import time
from collections.abc import Callable
from datetime import datetime

import psycopg

from pgqueue.store.jobs import finish
from pgqueue.store.jobs.ending import AT_ONCE, States
from pgqueue.store.jobs.sweep import PAUSE, Sweep, require_answer

log = logging.getLogger("pgqueue.upkeep")


class Expirer:
    """Ends jobs that were not started in time, and remembers those that cannot be ended."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._aside: dict[int, float] = {}

    def portion(self, *, now: datetime | None = None) -> Sweep[States]:
        """End some of them. If none were ended, there are no more."""
        limit = AT_ONCE
        while True:
            try:
                states: States = yield finish.expire(limit=limit, but=self._left_alone(), now=now)
            except psycopg.Error as refusal:
                require_answer(refusal)
                if limit == 1:
                    yield from self._set_aside(refusal, now)
                limit = max(1, limit // 2)
            else:
                return states

    def _left_alone(self) -> list[int]:
        moment = self._clock()
        self._aside = {job_id: until for job_id, until in self._aside.items() if until > moment}
        return [*self._aside]

    def _set_aside(self, refusal: psycopg.Error, now: datetime | None) -> Sweep[None]:
        for job_id in (yield finish.first_expired(but=self._left_alone(), now=now)):
            self._aside[job_id] = self._clock() + PAUSE.total_seconds()
            log.error(
                "an expired job cannot be ended, and is left as it is: %s", refusal, extra={"job": job_id}
            )
