"""The health check, as a view."""

from django.conf import settings
from django.db import Error, transaction
from django.http import HttpRequest, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from pgqueue.django.health import Health, examine


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
