"""The queue of :mod:`worker.in_processes`, in a module that does not lead to its tasks."""

from pgqueue import PgQueue

queue = PgQueue()
