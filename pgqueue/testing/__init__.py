"""What tests of an app that enqueues need: no database, or a fresh one; a clock; and no worker."""

from pgqueue.testing.asserting import (
    aassert_enqueued,
    aassert_not_enqueued,
    assert_enqueued,
    assert_not_enqueued,
    assert_ticks,
)
from pgqueue.testing.attempts import Ran
from pgqueue.testing.clock import Clock
from pgqueue.testing.databases import Databases, databases
from pgqueue.testing.draining import adrain, drain, empty, replay
from pgqueue.testing.memory import Memory
from pgqueue.testing.modes import eager, every_queue, in_database, in_memory, in_transaction
from pgqueue.testing.trouble import Trouble, WorkerDied, dying, failing

__all__ = [
    "Clock",
    "Databases",
    "Memory",
    "Ran",
    "Trouble",
    "WorkerDied",
    "aassert_enqueued",
    "aassert_not_enqueued",
    "adrain",
    "assert_enqueued",
    "assert_not_enqueued",
    "assert_ticks",
    "databases",
    "drain",
    "dying",
    "eager",
    "empty",
    "every_queue",
    "failing",
    "in_database",
    "in_memory",
    "in_transaction",
    "replay",
]
