"""The protocol of claims as a small machine: two workers, a sweeper, a caller, an admission, and a job or two.

A step is one transaction of the database, or one thing that a worker does or that happens to it. What is compared is what the
statements of ``sql/`` compare. Beside it each claim has a *serial*, which no statement sees: by it, and not by the fence, it is
decided whether a verdict came from the attempt that held the job. Without the fence the two differ.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import NamedTuple

from pgqueue.values.jobs.job import TRANSITIONS

MOST = 2
"""Attempts of a job."""
BELIEFS = 2
"""Claims of which a worker knows; more add states, and nothing new."""

BLOCKED, SCHEDULED, READY, RUNNING = "blocked", "scheduled", "ready", "running"
SUCCEEDED, DEAD, CANCELLED = "succeeded", "dead", "cancelled"
VERDICTS = ("complete", "fail", "return", "snooze", "wait")
"""A claim that is returned, and an attempt that snoozes or waits, is not spent."""
SENT_AGAIN = frozenset({"complete", "return"})
"""The verdicts whose answer may be lost, so that they are sent twice; the others are as ``return`` in that."""


class Job(NamedTuple):
    """A row of the job, and what is true of it besides.

    Attributes:
        status: its status, or the state in which it ended.
        holder: the uuid in its row, as a number; 0: none.
        fence: the fence in its row.
        serial: of the claim that holds it; no statement sees this.
        attempts: as in its row.
        spent: how many attempts have failed, or were lost.
        cancel: whether it is asked to cancel.
        effects: how often what it wrote in its transaction was committed.
        ends: how many records it has.
    """

    status: str = READY
    holder: int = 0
    fence: int = 0
    serial: int = 0
    attempts: int = 0
    spent: int = 0
    cancel: bool = False
    effects: int = 0
    ends: int = 0


class Belief(NamedTuple):
    """A claim as a worker knows it.

    Attributes:
        job: which job.
        uuid: under which uuid it was claimed.
        fence: its fence.
        attempt: its attempt.
        serial: of the claim.
        sent: the verdict that was sent and whose answer was lost; it is sent again. Empty: none.
    """

    job: int
    uuid: int
    fence: int
    attempt: int
    serial: int
    sent: str = ""


class Worker(NamedTuple):
    """A worker, as its own process knows itself.

    Attributes:
        uuid: under which it has registered; 0: it has not, or has learnt that its lease is lost.
        stopping: whether it was told to stop.
        beliefs: the claims that it knows.
    """

    uuid: int = 0
    stopping: bool = False
    beliefs: tuple[Belief, ...] = ()


class State(NamedTuple):
    """Everything.

    Attributes:
        jobs: all jobs.
        workers: all workers.
        rows: the table of workers: the uuid of each row, and whether its lease has passed.
        said: what the last step did wrong; empty: nothing.
    """

    jobs: tuple[Job, ...]
    workers: tuple[Worker, ...]
    rows: tuple[tuple[int, bool], ...] = ()
    said: str = ""


@dataclass(frozen=True)
class Rules:
    """What the statements compare. Each of these can be taken out.

    Attributes:
        fence: ``number``: the worker and its number, as it is; ``attempt``: the worker and the number of the attempt; ``worker``:
            the worker; ``none``: only that the job runs.
        waits_for_lease: whether the sweeper waits until a lease has passed.
        spends: whether a claim spends its attempt at once; else its end does.
    """

    fence: str = "number"
    waits_for_lease: bool = True
    spends: bool = True


@dataclass(frozen=True)
class Scope:
    """What may happen. With all of it there are more states than a suite has time for, so it is explored in parts.

    Attributes:
        answers_lost: connections break after a commit and before its answer: claims are not known, verdicts are sent again.
        waits: jobs wait: for an admission, for their time, for a signal.
        cancels: callers cancel.
        stops: workers are told to stop.
    """

    answers_lost: bool = True
    waits: bool = True
    cancels: bool = True
    stops: bool = True


AS_IT_IS = Rules()
ALL = Scope()
FENCES = Scope(waits=False, cancels=False, stops=False)
LIVES = Scope(answers_lost=False)


class Protocol:
    """Its steps under some rules.

    Attributes:
        rules: what the statements compare.
        scope: what may happen.
        symmetric: whether it does not matter which worker is which: half the states, and traces that exchange their names.
        taken: which transitions of a job's status were made.
    """

    def __init__(self, rules: Rules = AS_IT_IS, scope: Scope = ALL, *, symmetric: bool = False) -> None:
        """Nothing has happened."""
        self.rules = rules
        self.scope = scope
        self.symmetric = symmetric
        self.taken: set[tuple[str, str]] = set()

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        """What can happen, and the state after it."""
        for what, after in self._all(state):
            if after == state:
                continue
            for former, job in zip(state.jobs, after.jobs, strict=True):
                if former.status != job.status:
                    self.taken.add((former.status, job.status))
            yield what, _renamed(after) if self.symmetric else _numbered(after)

    def _all(self, state: State) -> Iterator[tuple[str, State]]:
        for place, worker in enumerate(state.workers):
            for what, after in self._of_worker(state, place, worker):
                yield f"worker {'AB'[place]} {what}", after
        yield from self._of_time(state)
        for number, job in enumerate(state.jobs):
            for what, changed in _of_caller(job, self.scope):
                yield f"{what} job {number + 1}", _with_job(state, number, changed)

    def _of_worker(self, state: State, place: int, worker: Worker) -> Iterator[tuple[str, State]]:
        if worker.uuid:
            yield from self._claims(state, place, worker)
            yield from _lives(state, place, worker, self.scope)
        elif not worker.stopping:
            uuid = _fresh(state, "uuid")
            after = _with_worker(state, place, worker._replace(uuid=uuid))
            yield "registers", after._replace(rows=(*state.rows, (uuid, False)))
        for belief in worker.beliefs:
            yield from self._attempts(state, place, worker, belief)

    def _claims(self, state: State, place: int, worker: Worker) -> Iterator[tuple[str, State]]:
        if worker.stopping or len(worker.beliefs) >= BELIEFS or not _has_row(state, worker.uuid):
            return
        for number, job in enumerate(state.jobs):
            if job.status != READY:
                continue
            fence, serial = _fresh(state, "fence"), _fresh(state, "serial")
            claimed = job._replace(
                status=RUNNING,
                holder=worker.uuid,
                fence=fence,
                serial=serial,
                attempts=job.attempts + self.rules.spends,
            )
            belief = Belief(number, worker.uuid, fence, claimed.attempts, serial)
            after = _with_job(state, number, claimed)
            what = f"claims job {number + 1}, attempt {claimed.attempts}"
            yield what, _with_worker(after, place, worker._replace(beliefs=(*worker.beliefs, belief)))
            if self.scope.answers_lost:
                yield f"{what}, and the answer is lost", after

    def _attempts(
        self, state: State, place: int, worker: Worker, belief: Belief
    ) -> Iterator[tuple[str, State]]:
        named = f"attempt {belief.attempt} of job {belief.job + 1}"
        possible = VERDICTS if self.scope.waits else VERDICTS[:3]
        for verdict in (belief.sent,) if belief.sent else possible:
            recorded = self._recorded(state, belief, verdict)
            again = " again" if belief.sent else ""
            what = f"sends{again}: {verdict} {named}"
            yield what, _with_worker(recorded, place, _but(worker, belief, None))
            if self.scope.answers_lost and verdict in SENT_AGAIN and not belief.sent:
                kept = _but(worker, belief, belief._replace(sent=verdict))
                yield f"{what}, and the answer is lost", _with_worker(recorded, place, kept)

    def _recorded(self, state: State, belief: Belief, verdict: str) -> State:
        """After the transaction that records a verdict: it changes the job if the fence matches."""
        job = state.jobs[belief.job]
        if not self._matches(job, belief):
            return state
        after = _with_job(state, belief.job, self.ended(job, verdict))
        if job.serial == belief.serial:
            return after
        named = f"attempt {belief.attempt} of job {belief.job + 1}"
        return after._replace(said=f"a verdict on {named} was recorded, and another claim held the job")

    def _matches(self, job: Job, belief: Belief) -> bool:
        match self.rules.fence:
            case "number":
                same = (job.holder, job.fence) == (belief.uuid, belief.fence)
            case "attempt":
                same = (job.holder, job.attempts) == (belief.uuid, belief.attempt)
            case "worker":
                same = job.holder == belief.uuid
            case _:
                same = True
        return same and job.status == RUNNING

    def _of_time(self, state: State) -> Iterator[tuple[str, State]]:
        for uuid, passed in state.rows:
            others = tuple(row for row in state.rows if row[0] != uuid)
            name = _name(state, uuid)
            if not passed:
                yield f"the lease of {name} passes", state._replace(rows=(*others, (uuid, True)))
            if passed or not self.rules.waits_for_lease:
                said = "" if passed else f"the row of {name} was deleted before its lease had passed"
                yield f"the sweeper deletes the row of {name}", state._replace(rows=others, said=said)
        for number, job in enumerate(state.jobs):
            if job.status == RUNNING and not _has_row(state, job.holder):
                yield (
                    f"the sweeper reclaims job {number + 1}",
                    _with_job(state, number, self.ended(job, "lost")),
                )

    def ended(self, job: Job, verdict: str) -> Job:
        """The row after a verdict: what ``requeue``, ``complete`` and ``end`` make of it."""
        free = job._replace(holder=0, fence=0, serial=0)
        if verdict == "complete":
            return free._replace(status=SUCCEEDED, ends=free.ends + 1, effects=free.effects + 1)
        if job.cancel:  # an attempt that failed is spent, but of no account any more
            return free._replace(status=CANCELLED, ends=free.ends + 1)
        if verdict in BACK:
            return free._replace(status=BACK[verdict], attempts=free.attempts - self.rules.spends)
        spent = free._replace(
            attempts=free.attempts + (not self.rules.spends and verdict == "fail"), spent=free.spent + 1
        )
        if spent.attempts >= MOST:
            return spent._replace(status=DEAD, ends=spent.ends + 1)
        return spent._replace(status=SCHEDULED if self.scope.waits and verdict == "fail" else READY)


BACK = {"return": READY, "snooze": SCHEDULED, "wait": BLOCKED}


def start(scope: Scope = ALL, jobs: int = 1) -> State:
    """Jobs that wait for an admission, where jobs wait, and two workers that have not registered."""
    return State((Job(status=BLOCKED if scope.waits else READY),) * jobs, (Worker(), Worker()))


def wrong(state: State) -> Iterator[str]:
    """Which promise does not hold in a state, and how."""
    if state.said:
        yield f"promise 2: {state.said}"
    for number, job in enumerate(state.jobs, 1):
        if (job.status in ENDS) != (job.ends == 1) or job.ends > 1:
            yield f"promise 1: job {number} is {job.status}, and has {job.ends} records"
        if job.effects != (job.status == SUCCEEDED):
            yield f"promise 8: job {number} is {job.status}, and its effect was committed {job.effects} times"
        if job.status not in ENDS and job.attempts > job.spent + (job.status == RUNNING):
            yield f"promise 3: job {number} has spent {job.spent} attempts, and its row says {job.attempts}"
        if job.spent > MOST or (job.status == DEAD and job.spent < MOST):
            yield f"promise 3: job {number} has {MOST} attempts, and is {job.status} after {job.spent} that failed or were lost"
    for place, worker in enumerate(state.workers):
        if worker.stopping and not worker.uuid and worker.beliefs:
            yield f"promise 6: worker {'AB'[place]} has left, and knows claims"


def has_ended(state: State) -> bool:
    """Whether all jobs have."""
    return all(job.status in ENDS for job in state.jobs)


ENDS = frozenset({SUCCEEDED, DEAD, CANCELLED})


def known_transitions() -> set[tuple[str, str]]:
    """Those of the code's own table, without what the protocol leaves out: lanes, flows, expiry and rows that are refused."""
    table = {(str(before), str(after)) for before, all_after in TRANSITIONS.items() for after in all_after}
    left_out = {(before, after) for before, after in table if before != RUNNING and after in {BLOCKED, DEAD}}
    return table - left_out - {(BLOCKED, RUNNING)}


def _lives(state: State, place: int, worker: Worker, scope: Scope) -> Iterator[tuple[str, State]]:
    """What a registered worker does, and what happens to it, apart from its attempts."""
    uuid = worker.uuid
    others = tuple(row for row in state.rows if row[0] != uuid)
    if _has_row(state, uuid):
        yield "renews its lease", _unknown_back(state._replace(rows=(*others, (uuid, False))), worker)
    else:
        lost = worker._replace(uuid=0, beliefs=())
        yield "learns that its lease is lost, and drops its claims", _with_worker(state, place, lost)
    yield "is killed", _with_worker(state, place, Worker())
    if not worker.stopping and scope.stops:
        yield "is told to stop", _with_worker(state, place, worker._replace(stopping=True))
    elif worker.stopping and not worker.beliefs:
        after = _with_worker(_unknown_back(state, worker), place, worker._replace(uuid=0))
        yield "returns what it does not know, and leaves", after._replace(rows=others)


def _unknown_back(state: State, worker: Worker) -> State:
    """Return, unspent, the claims of a worker whose answer was lost; one that is to be cancelled ends so."""
    known = {(one.job, one.fence) for one in worker.beliefs if one.uuid == worker.uuid}
    for number, job in enumerate(state.jobs):
        if job.status == RUNNING and job.holder == worker.uuid and (number, job.fence) not in known:
            state = _with_job(state, number, Protocol().ended(job, "return"))
    return state


def _of_caller(job: Job, scope: Scope) -> Iterator[tuple[str, Job]]:
    """What a caller, a poll and an admission do with a row."""
    match job.status:
        case "blocked":
            yield "an admission lets in", job._replace(status=READY)
            yield "an admission lets in, for later,", job._replace(status=SCHEDULED)
        case "scheduled":
            yield "a poll promotes", job._replace(status=READY)
        case "ready" if scope.waits:
            yield "a caller reschedules", job._replace(status=SCHEDULED)
        case "running" if not job.cancel and scope.cancels:
            yield "a caller cancels", job._replace(cancel=True)
        case "dead":
            yield "a caller retries", Job()
    if scope.cancels and job.status in {BLOCKED, SCHEDULED, READY}:
        yield "a caller cancels", job._replace(status=CANCELLED, ends=job.ends + 1)


def _has_row(state: State, uuid: int) -> bool:
    return any(row[0] == uuid for row in state.rows)


def _name(state: State, uuid: int) -> str:
    for place, worker in enumerate(state.workers):
        if worker.uuid == uuid:
            return f"worker {'AB'[place]}"
    return "a worker that is gone"


def _with_job(state: State, number: int, job: Job) -> State:
    return state._replace(jobs=(*state.jobs[:number], job, *state.jobs[number + 1 :]))


def _with_worker(state: State, place: int, worker: Worker) -> State:
    return state._replace(workers=(*state.workers[:place], worker, *state.workers[place + 1 :]))


def _but(worker: Worker, belief: Belief, other: Belief | None) -> Worker:
    """A worker that knows another claim in place of one, or none."""
    kept = [one for one in worker.beliefs if one != belief]
    return worker._replace(beliefs=tuple(kept if other is None else [*kept, other]))


def _fresh(state: State, name: str) -> int:
    """A number that no row and no worker has."""
    used = {getattr(belief, name) for worker in state.workers for belief in worker.beliefs}
    if name == "uuid":
        used |= {worker.uuid for worker in state.workers} | {row[0] for row in state.rows}
        used |= {job.holder for job in state.jobs}
    else:
        used |= {getattr(job, name) for job in state.jobs}
    return next(number for number in count(1) if number not in used)


def _renamed(state: State) -> State:
    """The same state with the lowest numbers: which ones they are does not matter, only which are equal.

    Nor does it matter which of the two workers is which, as long as neither is named in the state.
    """
    one, other = state.workers
    return (
        min(_numbered(state), _numbered(state._replace(workers=(other, one))))
        if one != other
        else _numbered(state)
    )


def _numbered(state: State) -> State:
    uuids, fences, serials = _Names(), _Names(), _Names()
    jobs = tuple(
        job._replace(holder=uuids[job.holder], fence=fences[job.fence], serial=serials[job.serial])
        for job in state.jobs
    )
    workers = tuple(
        worker._replace(
            uuid=uuids[worker.uuid],
            beliefs=tuple(
                sorted(
                    one._replace(uuid=uuids[one.uuid], fence=fences[one.fence], serial=serials[one.serial])
                    for one in worker.beliefs
                )
            ),
        )
        for worker in state.workers
    )
    kept = [row for row in state.rows if row[0] in uuids]  # the others name nothing that is left
    return state._replace(
        jobs=jobs, workers=workers, rows=tuple(sorted((uuids[uuid], passed) for uuid, passed in kept))
    )


class _Names(dict[int, int]):
    """Numbers from 1 in the order in which they are first asked for; 0 stays."""

    def __missing__(self, number: int) -> int:
        self[number] = new = 0 if number == 0 else len(self) + (0 not in self)
        return new
