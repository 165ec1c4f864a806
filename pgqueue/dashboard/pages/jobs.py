"""Lists of jobs: live and ended ones that match a filter, and dead ones, which are grouped by error first.

What is done to jobs of these lists is in :mod:`pgqueue.dashboard.pages.many_jobs`, what a list is in :mod:`pgqueue.dashboard.job_lists`.
"""

from collections.abc import Sequence
from typing import Any, Final

from werkzeug.routing import RequestRedirect

from pgqueue.dashboard.filters import ChosenFilters, chosen_filter, typed_filter
from pgqueue.dashboard.job_lists import JobList, count_states, read_list
from pgqueue.dashboard.page import Content, Page, Visit
from pgqueue.errors import InvalidOption
from pgqueue.values.jobs.job import JobState
from pgqueue.values.jobs.options import is_pattern

SHOWN: Final = 50
"""Jobs on a page."""
DEAD_SHOWN: Final = 25
GROUPS: Final = 20
GROUPED: Final = frozenset({"queue", "task", "state"})
"""By these alone the dead are grouped."""


def _read_jobs(visit: Visit) -> Content:
    return _read(visit, (), SHOWN)


def _read_dead(visit: Visit) -> Content:
    return _read(visit, (JobState.DEAD,), DEAD_SHOWN)


def _read(visit: Visit, states: Sequence[JobState], limit: int) -> Content:
    """A list, or what was typed and what is wrong with it; programs get the error."""
    try:
        wanted = chosen_filter(visit)
        _check_states(wanted, states)
        if wanted.id is not None and not _is_data(visit):
            _go_to(visit, wanted.id)
        found = read_list(visit, wanted, states or wanted.states, limit)
    except InvalidOption as error:
        if _is_data(visit):
            raise
        found, wanted, wrong = JobList(jobs=(), kind="any"), typed_filter(visit), str(error)
        return {**_form(visit, wanted), "list": found, **_no_groups(), "state_counts": {}, "wrong": wrong}
    groups = _read_groups(visit, wanted) if states else _no_groups()
    shown = found.as_data() if _is_data(visit) else {"list": found}
    counts = {} if visit.is_live else count_states(visit, wanted)
    return {**_form(visit, wanted), **shown, **groups, "state_counts": counts, "wrong": None}


def _check_states(wanted: ChosenFilters, states: Sequence[JobState]) -> None:
    if states and (others := [one for one in wanted.states if one not in states]):
        raise InvalidOption(
            f"state={others[0].value}: dead jobs are listed here; the page of jobs has the others"
        )


def _is_data(visit: Visit) -> bool:
    return visit.endpoint.startswith("api:")


def _go_to(visit: Visit, job_id: int) -> None:
    """Lead to the page of a job, wherever it is.

    Raises:
        RequestRedirect: there is a job of this id.
        InvalidOption: there is none.
    """
    if not visit.queue.insight.search(ids=[job_id], limit=1).jobs:
        raise InvalidOption(
            f"there is no job {job_id}: it was not committed, or was deleted, or its history has been dropped"
        )
    found = RequestRedirect(visit.url("job", job_id=job_id))
    found.code = 302
    raise found


def _form(visit: Visit, wanted: ChosenFilters) -> dict[str, Any]:
    return {
        "filter": wanted,
        "others": {name: values for name, values in wanted.given.items() if name != "state"},
        "states": [*JobState],
        "tasks": sorted(visit.queue.tasks),
        "queues": sorted(visit.queue.queues or ()),
    }


def _no_groups() -> dict[str, Any]:
    return {"groups": [], "counted": 0, "complete": True}


def _read_groups(visit: Visit, wanted: ChosenFilters) -> dict[str, Any]:
    """The groups of a list of dead jobs that is filtered by a queue and a task at most: others would hold jobs that it does not show."""
    named = [one for one in (wanted.queue, wanted.task) if one is not None]
    if {*wanted.given} - GROUPED or any(map(is_pattern, named)):
        return _no_groups()
    errors = visit.queue.insight.errors(queue=wanted.queue, task=wanted.task, limit=GROUPS)
    return {"groups": errors.groups, "counted": errors.jobs, "complete": errors.complete}


PAGES = (
    Page(name="jobs", path="/jobs", title="Jobs", read=_read_jobs, place=30),
    Page(name="dead", path="/dead", title="Dead", read=_read_dead, place=40),
)
