"""Middleware that comes with pgqueue: the job's fields on log records, warnings of slow jobs, errors to Sentry.

Each is given to the queue: ``PgQueue(middleware=[LoggingContext(), SlowJobs(after=60), Sentry()])``. What middleware is, and
how it is called, is decided in :mod:`pgqueue.app.middleware`. No file imports another, and Sentry's package is imported
when a :class:`Sentry` is made.
"""

from pgqueue.middleware.logging_context import LoggingContext
from pgqueue.middleware.sentry import Sentry
from pgqueue.middleware.slow_jobs import SlowJobs

__all__ = ["LoggingContext", "Sentry", "SlowJobs"]
