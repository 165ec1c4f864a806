"""A list of jobs: which jobs a page of it has, in which order, how many there are in all, and how it stays where it is.

A list is read in one of two ways. At first the jobs that match are searched for. After that the script sends back what
the list said of itself (:data:`LIST`): these jobs are shown again, in the same order and as they stand now, and jobs that have
come since are only counted.
"""

import re
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import msgspec

from pgqueue.dashboard.filters import ChosenFilters
from pgqueue.dashboard.page import Visit
from pgqueue.errors import InvalidOption, JobNotFound
from pgqueue.values.bulk.filter import LIVE
from pgqueue.values.insight.now import JobDetail, listed
from pgqueue.values.jobs.job import Job, JobState
from pgqueue.values.jobs.options import stands_for
from pgqueue.values.queues.standing import STATES, QueueStanding

LIST: Final = "X-Pgqueue-List"
"""The header with which the script sends back what a list said of itself."""
PLACES: Final = ("q", "below", "due", "seen", "on")
"""The parameters that say where a person is in a list, beside its filter."""
GOES_ON: Final = 3.0
"""Seconds for which a search goes on that a person has asked to go on."""
Kind: TypeAlias = Literal["any", "ended", "running", "scheduled", "ready", "blocked", "dead"]
_DUE: Final = re.compile(r"([0-9T:.-]{19,30}Z),([0-9]{1,18})", re.ASCII)
_LIST: Final = re.compile(r"([0-9,]{0,4000});([01]);(-|[0-9]{1,18}|[0-9T:.-]{19,30}Z,[0-9]{1,18})", re.ASCII)


class JobCount(msgspec.Struct, frozen=True):
    """How many jobs are in a state.

    Attributes:
        jobs: how many.
        estimated: whether some of them were estimated from a sample.
    """

    jobs: int
    estimated: bool


class JobList(msgspec.Struct, frozen=True, kw_only=True):
    """A page of a list.

    Attributes:
        jobs: the jobs, without secrets.
        kind: which columns it has.
        live: what is shown of live jobs beside their records, by their ids.
        older: where the next page begins: an id, or of jobs by the time when they are due that time and an id; None: there is none.
        looked_to: where the search stopped before the last job, as in ``older``.
        looked_at: when the job was enqueued, or is due, at which it stopped.
        seen: how many jobs were on the pages before.
        total: how many match in all; None: not known.
        fresh: how many jobs have come that are not shown, up to ``limit``.
        limit: how many jobs are on a page.
    """

    jobs: Sequence[Job]
    kind: Kind
    live: Mapping[int, JobDetail] = {}
    older: str | None = None
    looked_to: str | None = None
    looked_at: datetime | None = None
    seen: int = 0
    total: JobCount | None = None
    fresh: int = 0
    limit: int = 0

    @property
    def cursor(self) -> str:
        """The parameter of the address that says where a page begins."""
        return "due" if self.kind == "scheduled" else "below"

    @property
    def said(self) -> str:
        """What the script sends back."""
        ids = ",".join(str(job.id) for job in self.jobs)
        return f"{ids};{int(self.older is not None)};{self.looked_to or '-'}"

    def as_data(self) -> dict[str, Any]:
        """The list for programs."""
        numbers = {
            name: int(at) if at is not None and at.isdecimal() else at
            for name, at in (("older", self.older), ("looked_to", self.looked_to))
        }
        return {"jobs": listed(self.jobs), **numbers, "live": self.live, "total": self.total}


class _Asked(NamedTuple):
    """What a page of a list is asked for; the fields are the arguments of :func:`read_list`."""

    visit: Visit
    wanted: ChosenFilters
    states: Sequence[JobState]
    limit: int
    kind: Kind


class _Found(msgspec.Struct):
    jobs: list[Job]
    older: str | None
    looked_to: str | None


def read_list(visit: Visit, wanted: ChosenFilters, states: Sequence[JobState], limit: int) -> JobList:
    """A page of the jobs that match.

    Args:
        visit: whose request it is.
        wanted: which jobs.
        states: in one of these states; none: in any.
        limit: at most how many on a page.
    """
    asked = _Asked(visit, wanted, states, limit, _kind(wanted, states))
    said = _LIST.fullmatch(visit.request.headers.get(LIST, "")) if visit.is_live else None
    if said is None:
        place, fresh = visit.text("due" if asked.kind == "scheduled" else "below"), 0
        found = _search(asked, place, until=time.monotonic() + (GOES_ON if visit.text("on") else 0))
    else:
        found = _shown_again(asked, said)
        fresh = _count_fresh(asked, found)
    total = _total(visit, wanted, states)
    seen = max(0, min(visit.number("seen") or 0, 10**9))
    if total is not None and not total.estimated and seen + len(found.jobs) >= total.jobs:
        found.looked_to = None  # the search has stopped before the last job, but no other one matches
    live = [job for job in found.jobs if job.state in {JobState.BLOCKED, JobState.RUNNING}]
    return JobList(
        jobs=visit.without_secrets(found.jobs),
        kind=asked.kind,
        live=_details(visit, live),
        older=found.older,
        looked_to=found.looked_to,
        looked_at=_looked_at(visit, found.looked_to),
        seen=seen,
        total=total,
        fresh=min(fresh, limit),
        limit=limit,
    )


def count_states(visit: Visit, wanted: ChosenFilters) -> Mapping[str, JobCount]:
    """How many jobs are in each state that is counted; nothing where the filter has more than a queue: that is not counted."""
    if {*wanted.given} - {"queue", "state"} or wanted.id is not None:
        return {}
    chosen = [
        one for one in visit.recent_standings if wanted.queue is None or stands_for(wanted.queue, one.queue)
    ]
    return {state: _sum(chosen, state) for state in STATES}


def _sum(standings: Sequence[QueueStanding], state: str) -> JobCount:
    jobs = sum(getattr(one, state) for one in standings)
    return JobCount(jobs, any(state in one.estimated and getattr(one, state) for one in standings))


def _total(visit: Visit, wanted: ChosenFilters, states: Sequence[JobState]) -> JobCount | None:
    if not states or not {*states} <= {*LIVE, JobState.DEAD}:
        return None
    counts = count_states(visit, wanted)
    found = [counts[state] for state in {*states} if state in counts]
    return JobCount(sum(one.jobs for one in found), any(one.estimated for one in found)) if found else None


def _kind(wanted: ChosenFilters, states: Sequence[JobState]) -> Kind:
    chosen = {*states}
    if chosen and chosen <= {JobState.SUCCEEDED, JobState.CANCELLED}:
        return "ended"
    if len(chosen) != 1:
        return "any"
    (state,) = chosen
    is_plain = not {*wanted.given} - {"state", "queue", "task", "args"}
    if state is JobState.SCHEDULED and not is_plain:
        return "any"  # only these criteria are looked for in the order in which jobs are due
    return state.value  # type: ignore[return-value]  # the other states are kinds


def _search(asked: _Asked, place: str | None, *, until: float = 0) -> _Found:
    """Look for a page that begins at a place; while it is not full, go on until this second of the monotonic clock."""
    jobs: list[Job] = []
    look = _look_due if asked.kind == "scheduled" else _look
    while True:
        found = look(asked, place, asked.limit + 1 - len(jobs))
        jobs += found.jobs
        place = found.looked_to
        if place is None or len(jobs) > asked.limit or time.monotonic() > until:
            break
    is_full = len(jobs) > asked.limit
    del jobs[asked.limit :]
    return _Found(jobs, _place(jobs[-1], asked.kind) if is_full else None, None if is_full else place)


def _look(asked: _Asked, place: str | None, limit: int) -> _Found:
    if place is not None and not (re.fullmatch(r"-?[0-9]{1,19}", place) and abs(int(place)) < 2**63):
        raise InvalidOption(f"below={place!r:.40}: give a whole number of 64 bits")
    wanted = asked.wanted
    found = asked.visit.queue.insight.search(
        state=asked.states or None,
        unique_key=wanted.key,
        ids=None if wanted.id is None else [wanted.id],
        before=None if place is None else int(place),
        limit=limit,
        **wanted.criteria,
    )
    return _Found([*found.jobs], None, None if found.looked_to is None else str(found.looked_to))


def _look_due(asked: _Asked, place: str | None, limit: int) -> _Found:
    wanted = asked.wanted
    found = asked.visit.queue.insight.due(
        queue=wanted.queue, task=wanted.task, args=wanted.args, after=_due_place(place), limit=limit
    )
    return _Found([*found.jobs], None, None if found.looked_to is None else _due_text(*found.looked_to))


def _place(job: Job, kind: Kind) -> str:
    return _due_text(job.run_at, job.id) if kind == "scheduled" else str(job.id)


def _due_text(at: datetime, job_id: int) -> str:
    return f"{at.astimezone(UTC).replace(tzinfo=None).isoformat()}Z,{job_id}"


def _due_place(text: str | None) -> tuple[datetime, int] | None:
    if text is None:
        return None
    found = _DUE.fullmatch(text)
    try:
        if found is not None:
            return datetime.fromisoformat(found[1]), int(found[2])
    except ValueError:
        pass
    raise InvalidOption(f"due={text!r:.60}: give the time and the id of a scheduled job")


def _shown_again(asked: _Asked, said: re.Match[str]) -> _Found:
    ids = [int(one) for one in said[1].split(",") if one and len(one) < 19][: asked.limit]  # noqa: PLR2004 - digits
    jobs = asked.visit.queue.insight.search(ids=ids, limit=max(1, len(ids))).jobs
    found = {job.id: job for job in jobs}
    shown = [found[one] for one in ids if one in found]
    older = _place(shown[-1], asked.kind) if shown and said[2] == "1" else None
    return _Found(shown, older, None if said[3] == "-" else said[3])


def _count_fresh(asked: _Asked, shown: _Found) -> int:
    """How many jobs would stand among those that are shown. It is asked for the first page, and where no arguments are read."""
    visit = asked.visit
    if visit.text("below") or visit.text("due") or asked.wanted.args:
        return 0
    ids = {job.id for job in shown.jobs}
    new = [job for job in _search(asked, None).jobs if job.id not in ids]
    if shown.older is None or not shown.jobs:
        return len(new)
    last = shown.jobs[-1]
    if asked.kind == "scheduled":
        return sum((job.run_at, job.id) < (last.run_at, last.id) for job in new)
    return sum(job.id > last.id for job in new)


def _details(visit: Visit, jobs: Sequence[Job]) -> Mapping[int, JobDetail]:
    if not jobs:
        return {}
    hides = visit.redaction
    secrets = {job.id: hides.secrets_of(job) for job in jobs}  # a message of a job may quote its arguments
    return {
        job_id: hides.shown(
            msgspec.structs.replace(one, waits_for=hides.text(one.waits_for, secrets[job_id])),
            secrets=secrets[job_id],
        )
        for job_id, one in visit.queue.insight.details([*secrets]).items()
    }


def _looked_at(visit: Visit, place: str | None) -> datetime | None:
    if place is None:
        return None
    if "," in place:
        found = _due_place(place)
        return None if found is None else found[0]
    try:
        return visit.queue.job(int(place)).created_at
    except JobNotFound:
        return None  # it was deleted
