"""Errors of pgqueue travel between processes: pickle keeps what they say."""

import inspect
import pickle

import pytest

from pgqueue import errors

ARGUMENTS: dict[type[BaseException], tuple[tuple[object, ...], dict[str, object]]] = {
    errors.BacklogFull: (("full",), {"queue": "mail", "backlog": 3}),
    errors.LimitReached: (("taken",), {"limit": "api", "most": 2}),
    errors.Snooze: ((3.5,), {}),
    errors.RetryLater: ((3.5, "busy"), {}),
}
"""What the constructors of these take; all others take a text."""
RAISED = [one for _, one in inspect.getmembers(errors, inspect.isclass) if issubclass(one, BaseException)]


@pytest.mark.parametrize("kind", RAISED)
def test_an_error_is_the_same_after_pickle(kind: type[BaseException]) -> None:
    given, named = ARGUMENTS.get(kind, (("a text",), {}))
    error = kind(*given, **named)
    error.add_note("in the worker")

    found = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own

    assert (type(found), str(found), vars(found)) == (kind, str(error), vars(error))
