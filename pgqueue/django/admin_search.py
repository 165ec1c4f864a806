"""The search box above a list of jobs: which terms it takes, and which rows they match."""

import json
from typing import Any

from django.db.models import Q, QuerySet

from pgqueue.django.admin_filters import task_names
from pgqueue.django.djangoqueue import project_queue
from pgqueue.values.payloads.codec import encoded_key

LONGEST_ID = 19
"""Digits."""
HELP = "A job's id, its unique key, a part of its task's name, or some of its arguments: {\"order_id\": 42}"


class UnsearchableText(Exception):
    """A term that cannot be searched for; the message says why."""


def search(rows: QuerySet[Any], term: str, *, keyed: Q) -> QuerySet[Any]:
    """The rows that match a term.

    Args:
        rows: the rows to search.
        term: the text of the search box.
        keyed: which of the rows to search for a unique key; those of the history are in no index.

    Raises:
        Unsearchable: the term cannot be searched for.
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
