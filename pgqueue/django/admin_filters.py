"""The filters and the search box of a list of jobs, and the names that the filters offer.

Django's own filter would read a whole table for its distinct values. These filters offer the names that the code
declares, and those of the newest jobs. Any other name works in the address, and a click on a name in a row puts it there.
"""

import json
from collections.abc import Callable, Iterable
from typing import Any, get_args

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest

from pgqueue.django.admin_show import as_reason
from pgqueue.django.djangoqueue import project_queue
from pgqueue.django.models import Job
from pgqueue.values.jobs.job import ENDED, JobState
from pgqueue.values.jobs.verdict import Reason
from pgqueue.values.payloads.codec import encoded_key

NEWEST = 300
LONGEST_ID = 19
"""Digits."""
HELP = "A job's id, its unique key, a part of its task's name, or some of its arguments: {\"order_id\": 42}"


class JobFilter(admin.SimpleListFilter):
    """Jobs of which one field has one value."""

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:  # noqa: ANN401, ARG002 - Django's call
        """The values to offer, and the chosen one."""
        chosen = self.value()
        known = dict.fromkeys([*self.offered(), *([chosen] if chosen else [])])
        return [(one, as_reason(one) if self.parameter_name == "reason" else one) for one in known]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:  # noqa: ARG002 - Django's call
        """The jobs with the chosen value."""
        chosen = self.value()
        if not chosen:
            return queryset
        found = queryset.filter(**{str(self.parameter_name): chosen})
        if self.parameter_name == "state":
            # Redundant, but with it the planner skips the live table, in which no job has ended.
            return found.filter(ended_at__isnull=chosen not in ENDED)
        return found

    def offered(self) -> Iterable[str]:
        """The values to offer."""
        raise NotImplementedError


def filter_by(field: str, values: Callable[[], Iterable[str]]) -> type[JobFilter]:
    """A filter by a field that offers these values."""
    offered = staticmethod(values)
    return type(f"{field}Filter", (JobFilter,), {"title": field, "parameter_name": field, "offered": offered})


def queue_names() -> set[str]:
    """The declared queues, the queues of tasks, and those of the newest jobs."""
    queue = project_queue()
    of_tasks = (task.options.queue for task in queue.tasks.values())
    return {*(queue.queues or ()), *of_tasks, *_on_newest("queue")}


def task_names() -> set[str]:
    """The tasks that are registered, and those of the newest jobs."""
    return {*project_queue().tasks, *_on_newest("task")}


def _on_newest(field: str) -> set[str]:
    return set(Job.objects.order_by("-id").values_list(field, flat=True)[:NEWEST])


BY_STATE = filter_by("state", lambda: map(str, JobState))
BY_REASON = filter_by("reason", lambda: get_args(Reason))
BY_QUEUE = filter_by("queue", lambda: sorted(queue_names()))
BY_TASK = filter_by("task", lambda: sorted(task_names()))


class UnsearchableText(Exception):
    """A term that cannot be searched for; the message says why."""


def search(rows: QuerySet[Any], term: str, *, keyed: Q) -> QuerySet[Any]:
    """The rows that match a term.

    Args:
        rows: the rows to search.
        term: the text of the search box.
        keyed: which of the rows to search for a unique key; those of the history are in no index.

    Raises:
        UnsearchableText: the term cannot be searched for.
    """
    term = term.strip()
    if not term:
        return rows
    if term.isascii() and term.isdigit():
        if len(term) > LONGEST_ID:
            raise UnsearchableText(f"No job has an id of {len(term)} digits.")
        return rows.filter(pk=int(term))
    arguments = _json_object(term)
    if arguments is not None:
        if hidden := project_queue().redaction.named_in(arguments):
            raise UnsearchableText(f"{hidden!r} is hidden here, so it cannot be searched for.")
        return rows.filter(args__contains=arguments)
    tasks = [name for name in task_names() if term.lower() in name.lower()]
    if tasks:
        return rows.filter(task__in=tasks)
    return rows.filter(keyed, unique_key=encoded_key(project_queue().codec, term))


def _json_object(term: str) -> dict[str, Any] | None:
    try:
        value = json.loads(term)
    except ValueError:
        return None
    except RecursionError:
        raise UnsearchableText("This JSON is nested too deeply to be searched for.") from None
    return value if isinstance(value, dict) else None
