"""``path("jobs/", include("pgqueue.django.dashboard"))``: the dashboard, with the users and permissions of the project.

To look, a user needs ``pgqueue.view_job``; :data:`PERMISSIONS` says what the actions need. The dashboard is another neighbour,
and is reached by its name, as the command is.
"""

import importlib
from collections.abc import Iterable, Mapping
from functools import cache
from io import BytesIO
from typing import Any, Final

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.urls import NoReverseMatch, re_path, reverse
from django.views.decorators.csrf import csrf_exempt

from pgqueue.django.djangoqueue import project_queue

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
def dashboard(request: HttpRequest, rest: str) -> HttpResponseBase:
    """Answer a request with the project's dashboard; send a browser that is not logged in to the project's login."""
    user = getattr(request, "user", None)
    if user is not None and not user.is_authenticated and _is_page(request, rest):
        from django.contrib.auth.views import redirect_to_login  # noqa: PLC0415 - only a project with users has them

        return redirect_to_login(request.get_full_path())
    environ = {
        **request.META,
        USER: user,
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
    to = dict(answer[1]).get("Location")
    response = (
        HttpResponse(body) if to is None else HttpResponseRedirect(to)
    )  # which Django's test client can follow
    response.status_code = answer[0]
    del response.headers["Content-Type"]
    for name, value in answer[1]:
        if name == "Set-Cookie":
            response.cookies.load(value)
        else:
            response.headers[name] = value
    return response


def _is_page(request: HttpRequest, rest: str) -> bool:
    """Whether a person asks for a page: a program that asks for JSON, or a form, gets 403."""
    return request.method in {"GET", "HEAD"} and not rest.startswith(("api/", "static/"))


@cache
def _application() -> Any:  # noqa: ANN401 - a dashboard
    found = importlib.import_module("pgqueue.dashboard")

    def login(environ: Mapping[str, Any]) -> Any:  # noqa: ANN401 - one of its users
        user = environ[USER]
        if user is None or not user.has_perm(f"pgqueue.{PERMISSIONS['look']}"):
            return None
        rights = [right for right, needed in PERMISSIONS.items() if user.has_perm(f"pgqueue.{needed}")]
        return found.User.with_rights(user.get_username(), rights, links=_admin_of(user))

    return found.Dashboard(project_queue(), login=login, actions=True)


def _admin_of(user: Any) -> Mapping[str, str]:  # noqa: ANN401 - the project's own user
    """The admin's pages of the queue, for those who may use the admin, where the project has it."""
    try:
        return {"Admin": reverse("admin:app_list", args=["pgqueue"])} if user.is_staff else {}
    except NoReverseMatch:
        return {}


urlpatterns = [re_path(r"^(?P<rest>.*)$", dashboard, name="pgqueue_dashboard")]
