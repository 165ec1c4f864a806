"""What both kinds of take share: their identity, what they hold, and what becomes of it. Nothing here waits.

A job whose arguments cannot be decoded, or that Python's json cannot read (thousands of levels, a number of thousands of
digits), goes to the dead table as ``undecodable``, one by one; the others are handed over. So does a job that has expired.
"""

import math
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from datetime import timedelta
from itertools import count
from random import expovariate, getrandbits
from typing import Any, TypeAlias

import psycopg

from pgqueue.app.forks import process
from pgqueue.app.hooks.observer import Observers
from pgqueue.app.judgement import judge_error, judge_lateness, judge_undecodable
from pgqueue.app.logger import bounded_logger
from pgqueue.app.notes import Board
from pgqueue.app.takes.heartbeat import TakeHeartbeat
from pgqueue.errors import InvalidOption, JobError, PayloadNotDecodable, Superseded
from pgqueue.store.connections.database import Database
from pgqueue.store.connections.listener import listen_statement
from pgqueue.store.connections.session import OWN, PLANNER
from pgqueue.store.flows import flow_progress
from pgqueue.store.jobs import claim, finish
from pgqueue.store.jobs.claim import Portions
from pgqueue.store.jobs.ending import States
from pgqueue.store.jobs.sweep import SweepResult, reclaim
from pgqueue.store.limits.limits import LaneClaims
from pgqueue.store.limits.served_lanes import ServedLanes
from pgqueue.store.plan import Plan, Steps, plan
from pgqueue.store.workers import leases, upkeep
from pgqueue.values.jobs.error_text import describe
from pgqueue.values.jobs.job import Claim
from pgqueue.values.jobs.retry import Retry
from pgqueue.values.jobs.verdict import (
    Again,
    Died,
    Returned,
    Succeeded,
    Verdict,
    as_recorded,
    failed_verdict,
)
from pgqueue.values.limits.limit import LimitNumbers
from pgqueue.values.limits.task_limits import TaskLimits
from pgqueue.values.payloads.codec import (
    Codec,
    args_of,
    with_encoded_errors,
)
from pgqueue.values.queues.served_queues import ServedQueues
from pgqueue.values.queues.shares import split_of
from pgqueue.values.workers.lease import POLL, renew_every

SHORTEST_ANSWER_LIMIT = 10.0
LONGEST_IDLE = 86_400.0
"""Seconds: the longest that the server lets a take's transaction wait for the program."""
POSTPONED = timedelta(minutes=1)
DELAY = 0.005
"""Seconds that a take leaves to each take that has waited for longer, before it asks again."""
_looks = count(getrandbits(1))
"""Counts the looks of all takes of this process: every other look claims from queues first, the others from lanes."""

log = bounded_logger("pgqueue.take")


TakeStep: TypeAlias = Plan[Any] | float
"""A plan to run, or for how many seconds to wait to be notified."""


class TakeBase:
    """What both kinds of take share.

    Attributes:
        held: the claims that are not settled, by the job's id.
        args: the arguments of what was taken, by the job's id.
        lost: whether the lease is lost, and every claim with it.
        cancelled: the jobs that a caller asked to cancel while they were held.
        board: what is reported of the progress of jobs.
        answer_within: after how many seconds without an answer a connection is cut off.
        settings: with which its connections start; see :mod:`pgqueue.store.connections.session`.
    """

    def __init__(
        self,
        database: Database,
        count: int,
        *,
        served: ServedQueues,
        timeout: timedelta | None,
        lease: timedelta,
        keep: bool,
        policy_of: Callable[[str], Retry],
        observers: Observers,
        codec: Codec | None,
        limits: Callable[[], Mapping[str, LimitNumbers]],
        limiting: Callable[[], Mapping[str, TaskLimits | None]],
    ) -> None:
        """``timeout``: how long to wait for the first job; None: for ever.

        ``lease``: how soon others may have the jobs if this process dies.

        ``limits`` returns the limits of the tasks that this program knows, by name; ``limiting`` returns which of them each task
        has.

        Raises:
            InvalidOption: a value is out of its range.
        """
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise InvalidOption(f"take({count!r}): take at least one job, and a whole number of them")
        self.database = database
        self.count = count
        self.served = served
        self.timeout = None if timeout is None else timeout.total_seconds()
        self.lease = lease
        self.answer_within = max(SHORTEST_ANSWER_LIMIT, lease.total_seconds())
        # A take does not run a plan again, so its transaction may wait for a blocked event loop as long as a lease.
        idle = f"{min(self.answer_within, LONGEST_IDLE):.0f}s"
        self.settings = {
            **OWN,
            **PLANNER,
            "idle_in_transaction_session_timeout": idle,
            "tcp_user_timeout": idle,
        }
        self.keep = keep
        self._policy_of = policy_of
        self.observers = observers
        self.codec = codec
        self.board = Board(codec)
        self._limits, self._limiting = limits, limiting
        self._portions = Portions()

    def begin(self) -> None:
        """Start afresh: a new worker that holds nothing."""
        self._forks = process.forks
        self.worker = leases.WorkerInfo.here(self.count, self.served.entries, idle=False)
        self._split = split_of(self.served, expovariate)
        self._lanes = ServedLanes(self._limits, self._limiting, self.served)
        self.held: dict[int, Claim] = {}
        self.cancelled: set[int] = set()
        self.heartbeat = TakeHeartbeat(
            self.database,
            self.worker.id,
            self.lease,
            self._lease_lost,
            held=lambda: [*self.held],
            on_cancel=self.cancelled.update,
            board=self.board,
        )
        self.args: dict[int, dict[str, Any]] = {}
        self.unsettled: set[int] = set()
        self.superseded = False
        self.looking = False
        self._waits = False
        self.lost = False
        self.taken_at = 0.0

    def wait_for_jobs(self) -> Generator[TakeStep, Any, None]:
        """Hold jobs, or none once the timeout has passed; yields plans, and for how many seconds to wait to be notified."""
        self._deadline = math.inf if self.timeout is None else time.monotonic() + self.timeout
        while True:
            pause = yield from self._look()
            unreadable = self._read_arguments()
            for verdict in unreadable:
                yield from self._record_dead(verdict)
            if self.held:
                yield from self._wait(on=False)
                return
            if unreadable:
                continue  # there may be others behind them
            pause = min(pause, self._deadline - time.monotonic())
            if time.monotonic() >= self._deadline:
                return
            if (yield from self._wait(on=True)):
                continue  # jobs that were committed before this have notified no one
            yield max(0.0, pause)

    def _wait(self, *, on: bool) -> Generator[TakeStep, Any, bool]:
        """Say whether this take waits to be notified; return whether that is new."""
        if new := self._waits is not on:
            self._waits = on
            yield leases.set_idle(self.worker.id, idle=on)
        return new

    def _let_earlier_takes(self) -> Generator[TakeStep, Any, None]:
        """Wait while takes of the same queues wait that came before. One that hangs, or was killed, costs a poll at most."""
        began = time.monotonic()
        last = min(self._deadline, began + min(POLL.total_seconds(), renew_every(self.lease)))
        while (now := time.monotonic()) < last and (earlier := (yield leases.earlier_takes(self.worker.id))):
            yield min(DELAY * earlier + (now - began) / 2, last - now)

    def _look(self) -> Generator[TakeStep, Any, float]:
        """Do what a poll finds to do, and claim; returns how many seconds to wait if there was nothing."""
        self.looking = True
        polled: upkeep.PollResult = yield upkeep.arrive(self.worker, self.lease, elsewhere=self._waits)
        if polled.lost:
            swept: SweepResult = yield from reclaim()
            if swept.verdicts:
                self.observers.reclaimed(swept.verdicts)
        while polled.flow_work and (yield flow_progress.work()):
            pass
        again_in, ready = None, polled.ready or polled.count > 0
        if self._waits and ready:  # jobs in lanes may wait for long, for their limits
            yield from self._let_earlier_takes()
        for make in self._looks(polled) if ready or polled.in_lanes or not self._waits else ():
            if (room := self.count - len(self.held)) > 0:
                taken: LaneClaims = yield make(room)
                self.held |= {one.id: one for one in taken.claims}
                again_in = taken.again_in or again_in
        if self.held:
            self.observers.claimed([*self.held.values()])
        self.taken_at = time.monotonic()
        self.looking = False
        longest = min(POLL.total_seconds(), renew_every(self.lease))
        return max(0.0, min(pause for pause in (longest, polled.next_in, again_in) if pause is not None))

    def _looks(self, polled: upkeep.PollResult) -> Sequence[Callable[[int], Plan[LaneClaims]]]:
        """What claims ready jobs, and limited jobs that may start now: these or those first, in turn."""
        plans = [self._look_at_queues]
        if polled.in_lanes or polled.limited:
            self._lanes.learn(limited=polled.limited, weighted=polled.weighted, seen=polled.in_lanes)
            plans.insert(next(_looks) % 2, self._look_at_lanes)
        return plans

    def _record_dead(self, verdict: Died) -> Generator[TakeStep, Any, None]:
        """Record that a job cannot be read. If the database refuses that, the job waits, so that other jobs are recorded."""
        try:
            yield self.recording([verdict])
        except psycopg.Error as refusal:
            waits = Again(verdict.claim, POSTPONED, describe(refusal, verdict.claim.attempt))
            yield self.recording([waits])
        self.unsettled.discard(verdict.claim.id)

    @plan
    def _look_at_queues(self, room: int) -> Steps[LaneClaims]:
        claims = yield from claim.look(
            self.worker.id, self.served, room, portions=self._portions, split=self._split
        )
        return LaneClaims(claims, {}, 0.0, None)

    @plan(transaction=True)
    def _look_at_lanes(self, room: int) -> Steps[LaneClaims]:
        claims: list[Claim] = []
        while (portion := min(room - len(claims), self._portions.most)) > 0:
            # Jobs of rates are claimed at their instant and not before it: what is handed over starts at once.
            taken = yield from self._lanes.claim(self.worker.id, portion, horizon=0)
            self._portions.learn(taken.claims)
            claims += taken.claims
            if len(taken.claims) < portion:
                break
        return LaneClaims(claims, {}, 0.0, taken.again_in)

    def _read_arguments(self) -> list[Died]:
        """Read the arguments of what is held; what cannot be read or has expired is held no more, and is to be recorded."""
        verdicts = []
        for held in list(self.held.values()):
            if (late := judge_lateness(log, held)) is not None:
                verdicts.append(late)
                continue
            try:
                self.args[held.id] = args_of(self.codec, held)
            except PayloadNotDecodable as error:
                verdicts.append(judge_undecodable(log, self.codec, held, error))
        self.let_go(verdicts)
        return verdicts

    def success(self, held: Claim) -> Succeeded:
        """What to record of a job that is done."""
        return Succeeded(held, time.monotonic() - self.taken_at)

    def failure(self, held: Claim, error: BaseException | str, delay: timedelta | None) -> Verdict:
        """What to record of a job that failed; without a delay, its task's retry policy decides."""
        raised = error if isinstance(error, BaseException) else JobError(error)
        if delay is None:
            policy = self._policy_of(held.task)
            return self._judge(held, raised, policy if raised is error else _unselective(policy))
        described = describe(raised, held.attempt)
        return failed_verdict(held, described, delay=delay, seconds=time.monotonic() - self.taken_at)

    def ending(self, error: BaseException | None) -> list[Verdict]:
        """What becomes of everything still held when the block is left.

        An error of the block says nothing about one job in particular, so a policy is asked for its delay and
        its limits, not whether it retries this error.
        """
        if error is None:
            return [self.success(held) for held in self.held.values()]
        if isinstance(error, Exception):
            return [
                self._judge(held, error, _unselective(self._policy_of(held.task)))
                for held in self.held.values()
            ]
        return [Returned(held) for held in self.held.values()]  # interrupted, not failed: attempts unspent

    def _judge(self, held: Claim, error: BaseException, policy: Retry) -> Verdict:
        seconds = time.monotonic() - self.taken_at
        return judge_error(log, self.codec, held, error, retry=policy, seconds=seconds)

    def recording(self, verdicts: Sequence[Verdict]) -> Plan[States]:
        """Record verdicts; returns the ids that were still held."""
        return finish.finish(self.worker.id, with_encoded_errors(self.codec, verdicts), keep=self.keep)

    @plan(transaction=True)
    def giving_up(self) -> Steps[None]:
        """Leave the list. What may be in this take's name all the same goes back: spent, if it was handed over.

        When the lease was lost, the note of the lost worker stays: a sweep finds by it what is still in this take's name.
        """
        if self.lost or self.superseded:
            yield from leases.leave(self.worker.id)
            return
        if self.looking or self.held or self.unsettled:
            yield from claim.return_unknown(self.worker.id, (), ran=self.unsettled)
        yield from leases.leave_without_jobs(self.worker.id)

    def let_go(self, verdicts: Sequence[Verdict]) -> None:
        """Forget the claims of these verdicts.

        Raises:
            JobError: one of them is forgotten already, or another process holds them.
            Superseded: the lease is lost, and the jobs with it.
        """
        if self.forked:
            raise JobError("the process that forked this one holds the jobs of the take: settle them there")
        if self.lost:
            ids = {verdict.claim.id for verdict in verdicts}
            for job_id in ids:
                self.held.pop(job_id, None)
            raise _superseded_error(ids)
        for verdict in verdicts:
            if self.held.pop(verdict.claim.id, None) is None:
                raise JobError(f"job {verdict.claim.id} is settled already")
            self.unsettled.add(verdict.claim.id)

    def require_all(self, verdicts: Sequence[Verdict], done: States) -> None:
        """Raise if some of these verdicts changed nothing; observers are told of all.

        Raises:
            Superseded: some were not.
        """
        self.unsettled -= {verdict.claim.id for verdict in verdicts}
        ended = [as_recorded(one, done[one.claim.id]) for one in verdicts if one.claim.id in done]
        if ended:
            self.observers.ended(ended)
        lost = [verdict.claim for verdict in verdicts if verdict.claim.id not in done]
        if lost:
            self.superseded = True
            self.observers.lost(lost)
            raise _superseded_error({one.id for one in lost})

    @property
    def forked(self) -> bool:
        """Whether this is a copy: the jobs, the connection and the heartbeat are those of the process that was forked."""
        return process.forks != self._forks

    @property
    def listening(self) -> str | None:
        """The statement with which to listen, where that is possible."""
        return None if self.database.listen_dsn is None else listen_statement(self.database.catalogue)

    def _lease_lost(self) -> None:
        """Called by the heartbeat, in its thread."""
        self.lost = True
        self.observers.lost(list(self.held.values()))
        log.warning(
            "the lease of a take is lost; its jobs may run elsewhere, and what they do here is not recorded",
            extra={"worker": str(self.worker.id), "jobs": sorted(self.held)},
        )


def _unselective(policy: Retry) -> Retry:
    """A policy that retries every error, after the same delays and within the same limits."""
    return Retry(wait=policy.wait, stop=policy.stop)


def _superseded_error(ids: set[int]) -> Superseded:
    named = ", ".join(map(str, sorted(ids)))
    return Superseded(f"the lease was lost, and with it job {named}: not recorded")
