"""The health check, as a view: whether the database answers, has the schema and workers that serve, and whether jobs wait too long.

A worker whose event loop is blocked is a warning. After :data:`pgqueue.values.workers.health.BLOCKED_FOR_LONG` it no longer counts
as a worker that serves, nor does one that does not look for jobs.
"""

from dataclasses import dataclass
from datetime import timedelta

from django.conf import settings
from django.db import Error, transaction
from django.db import Error as DjangoError
from django.http import HttpRequest, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from pgqueue.django import conf
from pgqueue.django.djangoqueue import DjangoDatabase
from pgqueue.errors import DatabaseError
from pgqueue.store.jobs import control
from pgqueue.store.schema import schema
from pgqueue.values.queues.standing import UnknownTaskJobs
from pgqueue.values.workers.health import BLOCKED_FOR_LONG


@dataclass(frozen=True, kw_only=True)
class Health:
    """The result of a health check.

    Attributes:
        problems: what is wrong, as text; empty: nothing.
        warnings: what is wrong with single workers and fails nothing by itself, as text: a blocked event loop, functions
            that go on after their timeout.
        revision: the schema's revision; None: unknown.
        workers: how many workers are alive; None: unknown.
        oldest_ready: how many seconds the longest-waiting ready job has waited, without paused queues; None: no job
            waits, or it is unknown.
        unknown: tasks of waiting jobs that no live worker runs. This is no failure of the queue: a deploy may have them
            for a short time.
    """

    problems: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    revision: str | None = None
    workers: int | None = None
    oldest_ready: float | None = None
    unknown: tuple[UnknownTaskJobs, ...] = ()


@never_cache
@require_safe
@transaction.non_atomic_requests  # else Django would raise before the view can report a database that is away
def health(request: HttpRequest) -> JsonResponse:
    """Whether the queue works: 200 or 503, and ``{"status": "ok"}`` or ``{"status": "failing"}``.

    Staff users, and all users while DEBUG is on, also get the details.
    """
    found = examine()
    answer: dict[str, object] = {"status": "failing" if found.problems else "ok"}
    if _may_know(request):
        answer |= _details(found)
    return JsonResponse(answer, status=503 if found.problems else 200)


def examine() -> Health:
    """Check the project's queue, on Django's connection.

    Raises:
        ConfigurationError: ``settings.PGQUEUE`` cannot be read.
    """
    configured = conf.read()
    name = configured.options.get("schema", "pgqueue")
    database = DjangoDatabase(configured.alias, schema=name)
    try:
        revision = database.run(schema.verify(name))
        pulse = database.run(control.pulse())
    except (DatabaseError, DjangoError) as error:
        return Health(problems=(f"database: {str(error).strip()}",))
    problems = (
        *_too_few(pulse, configured.min_workers),
        *_too_long(pulse.oldest_ready, configured.max_wait),
    )
    return Health(
        problems=problems,
        warnings=tuple(map(str, pulse.worker_problems)),
        revision=revision,
        workers=pulse.workers,
        oldest_ready=pulse.oldest_ready,
        unknown=pulse.unknown,
    )


def _details(found: Health) -> dict[str, object]:
    return {
        "problems": list(found.problems),
        "warnings": list(found.warnings),
        "schema": found.revision,
        "workers": found.workers,
        "oldest_ready_seconds": found.oldest_ready,
        "unknown_tasks": [
            {"task": one.task, "queue": one.queue, "jobs": one.jobs, "since": one.since.isoformat()}
            for one in found.unknown
        ],
    }


def _may_know(request: HttpRequest) -> bool:
    if settings.DEBUG:
        return True
    try:
        user = getattr(request, "user", None)
        return bool(user is not None and user.is_active and user.is_staff)
    except Error:  # the database cannot be asked who the user is
        return False


def _too_few(pulse: control.QueueSummary, least: int) -> tuple[str, ...]:
    idle = [worker for worker in pulse.worker_problems if not worker.serves]
    if pulse.workers - len(idle) >= least:
        return ()
    blocked = sum(worker.blocked is not None for worker in idle)
    stuck = f", and {blocked} of these have had a blocked event loop for {BLOCKED_FOR_LONG:g} s or more"
    stalled = f", and {len(idle) - blocked} of these do not look for jobs"
    found = f"{stuck if blocked else ''}{stalled if len(idle) > blocked else ''}"
    return (f"workers: {pulse.workers} of at least {least} are alive{found}",)


def _too_long(oldest: float | None, longest: timedelta | None) -> tuple[str, ...]:
    if oldest is None or longest is None or oldest <= longest.total_seconds():
        return ()
    return (f"jobs: one has been ready for {oldest:.0f} s, longer than {longest}",)
