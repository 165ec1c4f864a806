"""What the queue says of the jobs of a worker, as lines of the log: claims, recorded verdicts, lost claims, takeovers."""

import os
import time
from collections.abc import Callable, Iterable, Sequence

import msgspec

from pgqueue.app.hooks.observer import Observer
from pgqueue.chaos.history.events import Claimed, Ended, EndState, LiveState, Reclaimed
from pgqueue.chaos.kinds import TICK, name_of
from pgqueue.chaos.log import FOLDER, HistoryLog
from pgqueue.values.jobs.job import Claim
from pgqueue.values.jobs.verdict import Again, Cancelled, Died, Succeeded, Verdict


class _JobName(msgspec.Struct):
    name: str | None = None


class HistoryWriter(Observer):
    """Writes what it is told of."""

    def __init__(self, log: Callable[[], HistoryLog]) -> None:
        """The log is made when the first line is written."""
        self._log = log
        self._decoder = msgspec.json.Decoder(_JobName)

    def claimed(self, claims: Sequence[Claim]) -> None:
        """Claims, after the database has answered."""
        at = time.monotonic()
        self._log().write(
            *(
                Claimed(
                    at=at,
                    job=name,
                    worker=str(claim.worker_id),
                    attempt=claim.attempt,
                    most=claim.max_attempts,
                    fence=claim.fence,
                )
                for claim, name in self._named(claims)
            )
        )

    def ended(self, verdicts: Sequence[Verdict]) -> None:
        """Verdicts, after the database has recorded them."""
        at = time.monotonic()
        states = {id(one.claim): _state(one) for one in verdicts}
        self._log().write(
            *(
                Ended(
                    at=at,
                    job=name,
                    worker=str(claim.worker_id),
                    attempt=claim.attempt,
                    state=states[id(claim)],
                    spent=states[id(claim)] != "ready",
                    fence=claim.fence,
                )
                for claim, name in self._named([one.claim for one in verdicts])
            )
        )

    def lost(self, claims: Sequence[Claim]) -> None:
        """Attempts whose verdicts are refused."""
        at = time.monotonic()
        self._log().write(
            *(
                Ended(
                    at=at,
                    job=name,
                    worker=str(claim.worker_id),
                    attempt=claim.attempt,
                    state=None,
                    fence=claim.fence,
                )
                for claim, name in self._named(claims)
            )
        )

    def reclaimed(self, verdicts: Sequence[Verdict]) -> None:
        """Jobs of lost workers that this one has taken over. Only their ids are known here."""
        at = time.monotonic()
        self._log().write(
            *(
                Reclaimed(
                    at=at,
                    job=one.claim.id,
                    worker=str(one.claim.worker_id),
                    attempt=one.claim.attempt,
                    state=_state(one),
                    fence=one.claim.fence,
                )
                for one in verdicts
            )
        )

    def _named(self, claims: Iterable[Claim]) -> Iterable[tuple[Claim, str]]:
        for claim in claims:
            if claim.task == TICK:
                yield claim, name_of(TICK, claim.id)
            elif (name := self._decoder.decode(claim.args or "{}").name) is not None:
                yield claim, name


def observer(log: Callable[[], HistoryLog]) -> HistoryWriter | None:
    """An observer, if this process is one that writes a log."""
    return HistoryWriter(log) if FOLDER in os.environ else None


def _state(verdict: Verdict) -> EndState | LiveState:
    match verdict:
        case Succeeded():
            return "succeeded"
        case Died():
            return "dead"
        case Cancelled():
            return "cancelled"
        case Again():
            return "scheduled"
        case _:
            return "ready"
