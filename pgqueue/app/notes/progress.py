"""How far the jobs of this process are: the newest report of each, until it is written.

A report waits for nothing and never fails because of the database. What runs the jobs writes all that came since the last
time, about once a second, in one statement: a worker's upkeep, or a take's heartbeat.
"""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import msgspec

from pgqueue.errors import PayloadNotEncodable
from pgqueue.store.jobs.notes import StoredProgress
from pgqueue.values.jobs.job import Claim
from pgqueue.values.jobs.note import Progress, ProgressReport, StoredReport, encoded_report
from pgqueue.values.payloads.codec import Codec, opened_value
from pgqueue.values.payloads.hidden_errors import logged_error
from pgqueue.values.payloads.readable import UNREADABLE

log = logging.getLogger("pgqueue.task")


TRIES = 10
"""How often a report is tried to be written."""


class _Kept(NamedTuple):
    claim: Claim
    report: ProgressReport
    tries: int = 1


class Board:
    """The reports of one worker or take that are not written yet. Safe to use from any thread."""

    def __init__(self, codec: Codec | None) -> None:
        self._codec = codec
        self._newest: dict[int, _Kept] = {}
        self._lock = threading.Lock()

    def put(self, claim: Claim, report: ProgressReport) -> None:
        """Keep a report in place of the job's former one."""
        with self._lock:
            self._newest[claim.id] = _Kept(claim, report)

    def take(self) -> list[StoredReport]:
        """All reports, as they are to be written; none is left."""
        with self.writing() as reports:
            return reports

    @contextmanager
    def writing(self) -> Iterator[list[StoredReport]]:
        """All reports, to be written within the block. After an error they are kept for another try, unless a newer one has come.

        Each is tried ``TRIES`` times at most: one that the database never takes must not hold back those of other jobs.
        """
        with self._lock:
            taken, self._newest = self._newest, {}
        try:
            yield [self._stored(one.claim, one.report) for one in taken.values()]
        except BaseException:
            with self._lock:
                again = {
                    job: one._replace(tries=one.tries + 1) for job, one in taken.items() if one.tries < TRIES
                }
                self._newest = again | self._newest
            raise

    def _stored(self, claim: Claim, report: ProgressReport) -> StoredReport:
        try:
            return StoredReport(claim, encoded_report(self._codec, claim, report))
        except PayloadNotEncodable as error:
            words = logged_error(self._codec, error)
            log.warning("progress message not kept: %s", words, extra={"job": claim.id, "task": claim.task})
            return StoredReport(claim, encoded_report(None, claim, ProgressReport(report.done, report.total)))


def opened_progress(codec: Codec | None, noted: StoredProgress | None) -> Progress | None:
    """The progress of a job, with its message decoded; what cannot be decoded is shown as unreadable, with the reason."""
    if noted is None:
        return None
    message = opened_value(codec, noted.progress.message, noted.part)
    if isinstance(message, dict):
        message = str(message.get(UNREADABLE, "(encoded)"))
    return msgspec.structs.replace(noted.progress, message=message)
