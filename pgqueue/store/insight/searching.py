"""The plans that find jobs by a filter, for pages of jobs: however many there are, they look at a bounded number of them.

Running jobs are few, and may be the oldest of a long backlog: they are asked of those that hold them.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from pgqueue.store.insight import insight
from pgqueue.store.jobs.control import job_of
from pgqueue.store.jobs.notes import StoredProgress, noted_of
from pgqueue.store.plan import Statement, Steps, plan
from pgqueue.values.bulk.filter import JobFilter, like
from pgqueue.values.insight.now import DuePage, JobDetail, SearchPage
from pgqueue.values.insight.why_words import spoken_wait
from pgqueue.values.jobs.job import ENDED, Job, JobState

FIRST: Final = 2_000
"""Jobs that a search looks at first: most pages are full then."""
LOOKED_AT: Final = 100_000
"""Jobs that it looks at besides where they are not: 0.7 µs each."""
FLOOR: Final = ("live", "dead", "ended", "ids", "before")
READ: Final = 10_000
"""The same where it must read the arguments of each: 7 µs."""
TELLING: Final = 4
"""Characters from which on a word of the arguments is looked for in their text first."""
LARGEST_PLAIN: Final = 10**15
"""Numbers below this are written with all their digits by every encoder."""
NEWEST: Final = (1 << 63) - 1


class StoredDetail(NamedTuple):
    """What a list shows of a job beside its record, as it is stored.

    Attributes:
        detail: without its progress.
        progress: with the message as a codec encoded it; None: the job has not said.
    """

    detail: JobDetail
    progress: StoredProgress | None


@plan(reads=True)
def search(
    wanted: JobFilter,
    *,
    states: Collection[JobState] | None = None,
    unique_key: str | None = None,
    before: int | None = None,
    limit: int = 100,
) -> Steps[SearchPage]:
    """Jobs that match every filter given, newest first.

    Args:
        wanted: by queue, task, run, arguments, time of the enqueue, type of the last error.
        states: any of these.
        unique_key: with this key. The live job that has it is found however many jobs are newer.
        before: with a lower id than this one.
        limit: at most how many jobs.
    """
    ids = wanted.ids
    if ids is None and states is not None and {*states} == {JobState.RUNNING}:
        running = yield from insight.running(limit=READ)
        ids = tuple(one.job_id for one in running.jobs)
    chosen = {*JobState} if states is None else {*states}
    words = _longest_word(wanted.args)
    params = {
        "live": not chosen <= ENDED,
        "dead": JobState.DEAD in chosen,
        "ended": bool(chosen & {JobState.SUCCEEDED, JobState.CANCELLED}),
        "ids": None if ids is None else [*ids],
        "states": None if states is None else sorted(map(str, states)),
        "run": wanted.run,
        "queue": like(wanted.queue),
        "task": like(wanted.task),
        "unique_key": unique_key,
        "enqueued_after": wanted.enqueued_after,
        "enqueued_before": wanted.enqueued_before,
        "error": wanted.error,
        "error_group": wanted.error_group,
        "args": wanted.json("args"),
        "words": words,
        "before": NEWEST if before is None else max(0, min(before, NEWEST)),
    }
    if wanted.run is not None:  # else a search would look at all newer jobs first
        ((above,),) = yield Statement("insight/run_above", {"run": wanted.run})
        params["before"] = min(params["before"], above)
    holder: list[Job] = []
    if unique_key is not None and params["live"]:
        of_key = {**params, "dead": False, "ended": False, "down_to": 0, "limit": 1}
        holder = [job_of(row) for row in (yield Statement("insight/search", of_key))]
        params["live"] = False
    if wanted.ids is not None:
        return SearchPage(_newest([*(yield from _named(params, wanted.ids, limit)), *holder], limit))
    jobs: list[Job] = []
    for looked in (FIRST, READ if wanted.args and words is None else LOOKED_AT):
        floor = yield Statement("insight/search_floor", {**_of(params, FLOOR), "looked": looked})
        down_to = floor[0][0] or 0
        rows = yield Statement("insight/search", {**params, "down_to": down_to, "limit": limit - len(jobs)})
        jobs += map(job_of, rows)
        if len(jobs) == limit or not down_to:
            return SearchPage(_newest([*jobs, *holder], limit))
        params["before"] = down_to
    return SearchPage(_newest([*jobs, *holder], limit), down_to)


@plan(reads=True)
def due(wanted: JobFilter, *, after: tuple[datetime, int] | None = None, limit: int = 100) -> Steps[DuePage]:
    """Scheduled jobs that match every filter given, in the order in which they are due.

    Args:
        wanted: as for :func:`search`.
        after: behind the job that is due at this instant and has this id.
        limit: at most how many jobs.
    """
    run_at, job_id = (datetime.min.replace(tzinfo=UTC), 0) if after is None else after
    params = {
        "run_at": run_at,
        "id": job_id,
        "looked": READ if wanted.args else LOOKED_AT,
        "queue": like(wanted.queue),
        "task": like(wanted.task),
        "enqueued_after": wanted.enqueued_after,
        "enqueued_before": wanted.enqueued_before,
        "error": wanted.error,
        "args": wanted.json("args"),
        "limit": limit,
    }
    ((ids, looked_to, looked_id),) = yield Statement("insight/search_due", params)
    found = yield from search(JobFilter(ids=tuple(sorted(ids))), states=[JobState.SCHEDULED], limit=limit)
    jobs = tuple(sorted(found.jobs, key=lambda job: (job.run_at, job.id)))
    is_last = looked_to is None or len(ids) == limit
    return DuePage(jobs, None if is_last else (looked_to, looked_id))


@plan(reads=True)
def details(job_ids: Sequence[int]) -> Steps[dict[int, StoredDetail]]:
    """What a list shows of those of these jobs that are live, beside their records; by their ids."""
    rows = yield Statement("insight/details", {"ids": [*job_ids]})
    return {row[0]: _detail(*row) for row in rows}


def _detail(
    job_id: int,
    lane: str | None,
    waits_for: str | None,
    paused: bool,  # noqa: FBT001 - a column
    worker: str | None,
    *noted: Any,  # noqa: ANN401 - the columns of a note
) -> StoredDetail:
    return StoredDetail(
        JobDetail(spoken_wait(lane, waits_for, job_id), paused, worker),
        noted_of(*noted) if noted[0] else None,
    )


def _named(params: Mapping[str, Any], ids: Sequence[int], limit: int) -> Steps[list[Job]]:
    if not ids:
        return []
    bounds = {"before": min(params["before"], ids[-1] + 1), "down_to": ids[0], "limit": limit}
    return [job_of(row) for row in (yield Statement("insight/search", {**params, "ids": [*ids], **bounds}))]


def _newest(jobs: list[Job], limit: int) -> tuple[Job, ...]:
    return tuple(sorted(jobs, key=lambda job: -job.id)[:limit])


def _of(params: Mapping[str, object], names: Collection[str]) -> dict[str, object]:
    return {name: params[name] for name in names}


def _longest_word(args: Mapping[str, Any] | None) -> str | None:
    """Return the longest word that stands in the text of all arguments that contain these; None: none is sure to."""
    found = [word for word in _words(args or {}) if len(word) >= TELLING]
    return max(found, key=len, default=None)


def _words(value: object) -> Collection[str]:
    if isinstance(value, Mapping):
        return [word for inner in value.values() for word in _words(inner)]
    if isinstance(value, list):
        return [word for inner in value for word in _words(inner)]
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < LARGEST_PLAIN:
        return [str(value)]
    return [value] if isinstance(value, str) and value.isascii() and value.replace("_", "").isalnum() else []
