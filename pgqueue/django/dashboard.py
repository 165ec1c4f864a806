"""``path("jobs/", include("pgqueue.django.dashboard"))``: the dashboard, with the users and permissions of the project.

To look, a user needs ``pgqueue.view_job``; :data:`PERMISSIONS` says what the actions need. The dashboard is another neighbour,
and is reached by its name, as the command is.
"""

import importlib
from collections.abc import Iterable, Mapping
from functools import cache
from io import BytesIO
from typing import Any, Final

from django.http import HttpRequest, HttpResponse
from django.urls import re_path
from django.views.decorators.csrf import csrf_exempt

from pgqueue.django.djangoqueue import project_queue
from pgqueue.errors import ConfigurationError
from pgqueue.values.hints import missing_extra

PERMISSIONS: Final[Mapping[str, str]] = {
    "look": "view_job",
    "retry": "retry_job",
    "cancel": "cancel_job",
    "move": "cancel_job",
    "purge": "delete_deadjob",
    "pause": "pause_queue",
    "set": "change_queue",
    "steer": "steer_worker",
    "schedule": "fire_schedule",
    "silence": "change_queue",
}
USER: Final = "pgqueue.django.user"
"""The key of the WSGI environment under which the view hands the user on."""


@csrf_exempt  # the dashboard checks its forms itself
def dashboard(request: HttpRequest, rest: str) -> HttpResponse:
    """Answer a request with the project's dashboard."""
    environ = {
        **request.META,
        USER: getattr(request, "user", None),
        "SCRIPT_NAME": request.path.removesuffix(rest).rstrip("/"),
        "PATH_INFO": f"/{rest}".encode().decode("latin-1"),
        "HTTP_HOST": request.get_host(),
        "wsgi.url_scheme": request.scheme,
        "wsgi.input": BytesIO(request.body),
        "CONTENT_LENGTH": str(len(request.body)),
    }
    answer: list[Any] = []

    def start_response(status: str, headers: Iterable[tuple[str, str]], _: object = None) -> None:
        answer[:] = [int(status.partition(" ")[0]), list(headers)]

    body = b"".join(_application()(environ, start_response))
    response = HttpResponse(body, status=answer[0])
    del response.headers["Content-Type"]
    for name, value in answer[1]:
        if name == "Set-Cookie":
            response.cookies.load(value)
        else:
            response.headers[name] = value
    return response


@cache
def _application() -> Any:  # noqa: ANN401 - a dashboard
    try:
        found = importlib.import_module("pgqueue.dashboard")
    except ImportError as error:
        raise ConfigurationError(missing_extra("dashboard", f"{error}; install it")) from error

    def login(environ: Mapping[str, Any]) -> Any:  # noqa: ANN401 - one of its users
        user = environ[USER]
        if user is None or not user.has_perm(f"pgqueue.{PERMISSIONS['look']}"):
            return None
        rights = [right for right, needed in PERMISSIONS.items() if user.has_perm(f"pgqueue.{needed}")]
        return found.User.with_rights(user.get_username(), rights)

    return found.Dashboard(project_queue(), login=login, actions=True)


urlpatterns = [re_path(r"^(?P<rest>.*)$", dashboard, name="dashboard")]
