"""A framework meets the queue in one place: the ``Database`` that its queue is given. It overrides no method of the queue."""

import types

import pytest

from pgqueue import PgQueue
from pgqueue.django import DjangoQueue
from pgqueue.flask import PgQueueFlask

OWN = {
    DjangoQueue: {"__init__", "_make_database", "_queues_setting"},
    PgQueueFlask: {"__init__", "_queues_setting", "close", "aclose"},
}
"""How a framework's queue is made, and the words of its settings; and a Flask queue closes the databases of all of its apps."""


@pytest.mark.parametrize("kind", OWN)
def test_a_frameworks_queue_overrides_no_method_of_the_queue(kind: type[PgQueue]) -> None:
    of_the_queue = {name for base in PgQueue.__mro__[:-1] for name in vars(base)}
    written = {
        name
        for name, value in vars(kind).items()
        if not name.startswith("__") or isinstance(value, types.FunctionType)
    }
    assert written & of_the_queue == OWN[kind]
