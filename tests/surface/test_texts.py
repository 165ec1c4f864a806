"""A text that PostgreSQL cannot hold is refused by its name, whichever public method it is given to."""

import inspect
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from pgqueue import PgQueue
from pgqueue.errors import PgQueueError

FACES = ("control", "insight", "schedules", "workers", "alerts")
GIVEN: dict[str, Any] = {
    "job_id": 1,
    "queue": "default",
    "name": "x",
    "which": "all",
    "flow_id": 1,
    "parent": 0,
    "operation": 1,
    "to": "other",
    "at": 60,
    "concurrency": 5,
    "priority": 1,
    "every": timedelta(hours=1),
}
"""What is given for the other parameters that a method requires."""


def taking_texts(queue: PgQueue) -> Iterator[tuple[str, Callable[..., object], inspect.Signature, str]]:
    """Each public blocking method with each of its parameters that is a text."""
    for face in ("", *FACES):
        owner = getattr(queue, face) if face else queue
        for name, method in inspect.getmembers(owner, inspect.isroutine):
            if name.startswith("_") or inspect.iscoroutinefunction(method):
                continue
            signature = inspect.signature(method)
            for parameter in signature.parameters.values():
                if "str" in str(parameter.annotation):
                    yield f"{face}.{name}({parameter.name}=)", method, signature, parameter.name


@pytest.mark.parametrize("text", ["a\0b", "\ud800"])
def test_a_text_that_no_database_holds_is_refused_in_words(queue: PgQueue, text: str) -> None:
    raw, tried = {}, 0
    for label, method, signature, of in taking_texts(queue):
        required = [
            one
            for one in signature.parameters.values()
            if one.default is one.empty and one.kind not in {one.VAR_POSITIONAL, one.VAR_KEYWORD}
        ]
        if any(one.name not in GIVEN and one.name != of for one in required):
            continue
        chosen = {one.name: GIVEN.get(one.name) for one in required} | {of: text}
        first = [chosen.pop(one.name) for one in required if one.kind is one.POSITIONAL_ONLY]
        tried += 1
        try:
            method(*first, **chosen)
        except (PgQueueError, TypeError):
            pass
        except Exception as error:  # noqa: BLE001 - that is the subject
            raw[label] = error
    assert raw == {}
    assert tried > 40
