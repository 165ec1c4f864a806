"""How far the jobs of this process are: the newest report of each, until it is written.

A report waits for nothing and never fails because of the database. What runs the jobs writes all that came since the last
time, about once a second, in one statement: a worker's upkeep, or a take's heartbeat.
"""

import logging
import threading

import msgspec

from pgqueue.errors import PayloadNotEncodable
from pgqueue.store.notes import Noted
from pgqueue.values.codec import Codec, opened_value
from pgqueue.values.hiding import logged_error
from pgqueue.values.job import Claim
from pgqueue.values.note import Progress, Report, Reported, encoded_report
from pgqueue.values.readable import UNREADABLE

log = logging.getLogger("pgqueue.task")


class Board:
    """The reports of one worker or take that are not written yet. Safe to use from any thread."""

    def __init__(self, codec: Codec | None) -> None:
        """Begin with none.

        Args:
            codec: encodes messages.
        """
        self._codec = codec
        self._newest: dict[int, tuple[Claim, Report]] = {}
        self._lock = threading.Lock()

    def put(self, claim: Claim, report: Report) -> None:
        """Keep a report in place of the job's former one."""
        with self._lock:
            self._newest[claim.id] = claim, report

    def take(self) -> list[Reported]:
        """All reports, as they are to be written; none is left."""
        if not self._newest:
            return []
        with self._lock:
            newest, self._newest = self._newest, {}
        return [self._stored(claim, report) for claim, report in newest.values()]

    def _stored(self, claim: Claim, report: Report) -> Reported:
        try:
            return Reported(claim, encoded_report(self._codec, claim, report))
        except PayloadNotEncodable as error:
            words = logged_error(self._codec, error)
            log.warning("progress message not kept: %s", words, extra={"job": claim.id, "task": claim.task})
            return Reported(claim, encoded_report(None, claim, Report(report.done, report.total)))


def opened_progress(codec: Codec | None, noted: Noted | None) -> Progress | None:
    """The progress of a job, with its message decoded; what cannot be decoded is shown as unreadable, with the reason."""
    if noted is None:
        return None
    message = opened_value(codec, noted.progress.message, noted.part)
    if isinstance(message, dict):
        message = str(message.get(UNREADABLE, "(encoded)"))
    return msgspec.structs.replace(noted.progress, message=message)
