"""The WSGI application: from a request to an answer. What a page shows is in ``pages/``, who may see it in ``access.py``."""

import hashlib
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, MutableMapping
from functools import cached_property
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from werkzeug.exceptions import (
    Forbidden,
    HTTPException,
    NotFound,
    Unauthorized,
)
from werkzeug.middleware.proxy_fix import ProxyFix
from werkzeug.routing import Map, MapAdapter, RequestRedirect, Rule
from werkzeug.utils import redirect
from werkzeug.wrappers import Request, Response

from pgqueue.app.pgqueue import PgQueue
from pgqueue.dashboard.access import (
    CSRF,
    NOWHERE,
    SESSION,
    Login,
    Right,
    TokenLogin,
    User,
    check_form,
    check_host,
    check_values,
    cookie_path,
    matched,
    set_cookie,
    with_headers,
)
from pgqueue.dashboard.answers import STAMP, error_answer, file_answer, static_answer
from pgqueue.dashboard.database_label import DatabaseLabels
from pgqueue.dashboard.messages import Messages
from pgqueue.dashboard.operations import Operations
from pgqueue.dashboard.page import Content, Download, Page, PageAction, Visit
from pgqueue.dashboard.pages import ACTIONS, PAGES
from pgqueue.dashboard.rendering import as_json, templates
from pgqueue.dashboard.shared_standings import SharedStandings
from pgqueue.errors import (
    InvalidOption,
)

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from pgqueue.store.audit import because
from pgqueue.store.connections.patience import Patience, waiting_at_most
from pgqueue.store.jobs import control

Message: TypeAlias = MutableMapping[str, Any]
AsgiApplication: TypeAlias = Callable[
    [Message, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]
]
LARGEST_FORM: Final = 64 * 1024
"""Bytes."""
PATIENCE: Final = Patience(connection=3.0, answer=5.0, altogether=5.0)
"""How long a page waits; then it says that the database is away. An app's own calls wait longer."""
ALIVE: Final = Patience(connection=2.0, answer=2.5, altogether=2.5)
"""How long the question waits whether the database answers: the page gives up after 3 s."""
LONGEST_NAME: Final = 80
SAID: Final = "pgqueue_said"
"""The cookie with what an action said, until the next page shows it."""
_PREFIX: Final = re.compile(r"(/[\w.~-]+)*/?", re.ASCII)
NAVIGATION: Final = sorted((one for one in PAGES if one.place is not None), key=lambda one: one.place or 0)


class Dashboard:
    """A dashboard of one queue, or of several. It is a WSGI application; :attr:`asgi` is the same as an ASGI application."""

    def __init__(
        self,
        queue: PgQueue | None = None,
        *,
        login: Login | None = None,
        token: str | None = None,
        actions: bool = False,
        queues: Mapping[str, PgQueue] | None = None,
        hosts: Collection[str] | None = None,
        trust_proxy: bool = False,
    ) -> None:
        """Describe it. Nothing is asked before the first request.

        Args:
            queue: what it shows.
            login: a function of a request's WSGI environment that says who the user is; None: this person is refused.
            token: in place of ``login``: what people type to log in. One of the two must be given.
            actions: whether it may change anything; without, it only reads, whatever the rights of its users are.
            queues: in place of ``queue``: several, by the name under which they are shown.
            hosts: the host names under which it answers; ``.example.com`` is every name under it. None: any, since the host app
                checks it.
            trust_proxy: whether there is one proxy in front of it that sets ``X-Forwarded-For``, ``-Proto``, ``-Host`` and
                ``-Prefix``.

        Raises:
            InvalidOption: an argument is missing, or makes no sense.
        """
        if (queue is None) is not bool(queues):
            raise InvalidOption("Dashboard: give one queue, or several as queues={name: queue}")
        if (login is None) is (token is None):
            raise InvalidOption(
                "Dashboard: say who may see it: login=..., a function of the WSGI environment, or token=...; "
                "on a developer's machine login=pgqueue.dashboard.on_this_machine"
            )
        self.queues: Mapping[str, PgQueue] = queues or {"": queue}  # type: ignore[dict-item]  # one of the two is given
        self.actions = actions
        self._token = None if token is None else TokenLogin(token)
        self._login = login
        self._messages = Messages()
        self._hosts = hosts
        self._operations = Operations()
        self._standings = SharedStandings(self.queues)
        self._labels = DatabaseLabels(self.queues)
        self._pages: Mapping[str, Page] = {one.name: one for one in PAGES}
        self._actions: Mapping[str, PageAction] = {one.name: one for one in ACTIONS}
        self.urls = Map([*self._rules()], strict_slashes=False)
        self._app: WSGIApplication = self._respond
        if trust_proxy:
            self._app = ProxyFix(self._respond_under_prefix, x_for=1, x_proto=1, x_host=1, x_prefix=1)

    def __call__(self, environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        """Answer a request, as WSGI has it."""
        return self._app(environ, start_response)

    def _respond_under_prefix(
        self, environ: "WSGIEnvironment", start_response: "StartResponse"
    ) -> Iterable[bytes]:
        if not _PREFIX.fullmatch(environ.get("SCRIPT_NAME", "")):
            environ["SCRIPT_NAME"] = (
                ""  # a client's own, which the proxy has passed on: "//evil" would be another site
            )
        return self._respond(environ, start_response)

    @cached_property
    def asgi(self) -> AsgiApplication:
        """The dashboard as an ASGI application; its requests are answered in threads."""
        from a2wsgi import WSGIMiddleware  # noqa: PLC0415 - only where it is mounted so

        return cast("AsgiApplication", WSGIMiddleware(cast("Any", self)))  # its types are its own

    def _rules(self) -> Iterable[Rule]:
        yield Rule("/", endpoint="home", methods=["GET"])
        yield Rule("/static/<name>", endpoint="static", methods=["GET"])
        yield Rule("/alive", endpoint="alive", methods=["GET"])
        yield Rule("/login", endpoint="login", methods=["POST"])
        yield Rule("/logout", endpoint="logout", methods=["POST"])
        for page in self._pages.values():
            yield Rule(page.path, endpoint=page.name, methods=["GET"])
            yield Rule(f"/api{page.path}".rstrip("/"), endpoint=f"api:{page.name}", methods=["GET"])
        for action in self._actions.values():
            yield Rule(action.path, endpoint=action.name, methods=["GET", "POST"])

    def _respond(self, environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        request = Request(environ)
        request.max_content_length = request.max_form_memory_size = LARGEST_FORM
        with waiting_at_most(PATIENCE):
            response = self._answer(request)
        return response(environ, start_response)

    def _answer(self, request: Request) -> Response:
        urls = self.urls.bind_to_environ(request.environ)
        visit = self._visit(request, urls, NOWHERE, {}, None)
        try:
            endpoint, values = matched(urls)
            if endpoint == "static":  # also a page that refuses the host has its style sheet
                return static_answer(values["name"])
            check_host(request, self._hosts)
            visit = self._visit(request, urls, endpoint, values, self._user(request))
            return with_headers(self._dispatch(visit))
        except RequestRedirect as error:
            return with_headers(redirect(error.new_url, error.code))
        except HTTPException as error:
            return with_headers(self._refused(visit, error))
        except Exception as error:  # noqa: BLE001 - a person gets a page, whatever happened
            return with_headers(self._refused(visit, error_answer(error)))

    def _visit(
        self, request: Request, urls: MapAdapter, endpoint: str, values: Mapping[str, Any], user: User | None
    ) -> Visit:
        return Visit(
            request,
            urls,
            endpoint=endpoint,
            values=values,
            user=user,
            queues=self.queues,
            messages=self._messages,
            operations=self._operations,
            standings=self._standings,
            labels=self._labels,
            may_act=self.actions,
        )

    def _user(self, request: Request) -> User | None:
        if self._token is not None:
            return self._token.user(
                request.cookies.get(TokenLogin.cookie), request.headers.get("Authorization")
            )
        assert self._login is not None  # noqa: S101 - for the type checker
        return self._login(request.environ)

    def _dispatch(self, visit: Visit) -> Response:
        if visit.endpoint == "login":
            return self._log_in(visit)
        if visit.user is None:
            raise (
                Unauthorized if self._token else Forbidden("You are not logged in, or may not look at this.")
            )
        if not visit.can(Right.LOOK):
            raise Forbidden("You may not look at this.")
        if visit.endpoint == NOWHERE:
            raise NotFound
        if visit.endpoint == "home":
            return redirect(visit.url(NAVIGATION[0].name))
        if visit.endpoint == "logout":
            return self._log_out(visit)
        visit.check_queue()
        check_values(visit.request, visit.values.values())
        if visit.endpoint == "alive":
            return _alive(visit)
        if action := self._actions.get(visit.endpoint):
            try:
                return self._act(visit, action)
            finally:
                self._standings.forget()
        kind, _, name = visit.endpoint.rpartition(":")
        page = self._pages[name]
        return self._shown(visit, page, page.read(visit, **visit.values), as_data=kind == "api")

    def _shown(self, visit: Visit, page: Page, content: Content | Download, *, as_data: bool) -> Response:
        if isinstance(content, Download):
            return file_answer(content)
        content = visit.without_secrets(dict(content))
        if as_data:
            return Response(as_json(content), mimetype="application/json")
        response = self._render(
            visit, f"{page.name}.html", under=page.under or page.name, page=page, **content
        )
        if content.get("wrong"):
            response.status_code = HTTPStatus.BAD_REQUEST
        if visit.is_live:
            response.set_etag(hashlib.sha256(response.get_data()).hexdigest()[:32])
            return response.make_conditional(visit.request)
        if visit.request.cookies.get(SAID):
            response.delete_cookie(SAID, path=cookie_path(visit.request))
        return response

    def _act(self, visit: Visit, action: PageAction) -> Response:
        if not (self.actions and visit.can(action.right)):
            raise Forbidden(
                f"You do not have the right {action.right.value!r}."
                if self.actions
                else "This dashboard is read-only: start it with --allow-actions, or make it with actions=True."
            )
        if visit.request.method != "POST":
            return self._asked(visit, action)
        check_form(visit.request)
        try:
            with because(visit.why):
                done = action.do(visit, **visit.values)
        except InvalidOption as error:
            return self._asked(visit, action, wrong=str(error))
        response = redirect(done.to, HTTPStatus.SEE_OTHER)
        said = f"{'+' if done.well else '-'}{done.said}"[:1000]
        set_cookie(visit.request, response, SAID, said if done.said else "", seconds=60)
        return response

    def _asked(self, visit: Visit, action: PageAction, wrong: str | None = None) -> Response:
        question = visit.without_secrets(action.ask(visit, **visit.values))
        response = self._render(
            visit, "question.html", under=action.under, page=None, question=question, wrong=wrong
        )
        response.status_code = HTTPStatus.BAD_REQUEST if wrong else HTTPStatus.OK
        return response

    def _log_in(self, visit: Visit) -> Response:
        if self._token is None:
            raise NotFound
        check_form(visit.request)
        if not self._token.accepts(visit.field("token")):
            raise Unauthorized("This is not the token.")
        response = redirect(_local(visit, visit.field("to")), HTTPStatus.SEE_OTHER)
        name = visit.field("name")[:LONGEST_NAME] or "dashboard"
        value = self._token.session(name)
        set_cookie(visit.request, response, TokenLogin.cookie, value, seconds=SESSION.total_seconds())
        return response

    def _log_out(self, visit: Visit) -> Response:
        check_form(visit.request)
        response = redirect(visit.url("home"), HTTPStatus.SEE_OTHER)
        response.delete_cookie(TokenLogin.cookie, path=cookie_path(visit.request))
        return response

    def _refused(self, visit: Visit, error: HTTPException) -> Response:
        status = error.code or HTTPStatus.INTERNAL_SERVER_ERROR
        said = error.description or HTTPStatus(status).phrase
        if visit.request.path.startswith("/api/"):
            response = Response(as_json({"error": said}), mimetype="application/json")
        elif status == HTTPStatus.UNAUTHORIZED and self._token is not None:
            wrong = said if visit.endpoint == "login" else None
            to = visit.field("to") if wrong else visit.request.full_path.rstrip("?")
            response = self._render(visit, "login.html", under="", page=None, asks=False, wrong=wrong, to=to)
        else:
            response = self._render(
                visit,
                "error.html",
                under="",
                page=None,
                asks=False,
                status=status,
                phrase=HTTPStatus(status).phrase,
                words=said,
            )
        response.status_code = status
        for name, value in error.get_headers():
            if name in {"Allow", "Retry-After"}:
                response.headers[name] = value
        return response

    def _render(
        self,
        visit: Visit,
        template: str,
        *,
        under: str,
        page: Page | None,
        asks: bool = True,
        **content: Any,  # noqa: ANN401 - what a page shows
    ) -> Response:
        said = visit.request.cookies.get(SAID, "")
        text = (
            templates()
            .get_template(template)
            .render(
                layout="part.html" if visit.is_live else "layout.html",
                visit=visit,
                page=page,
                under=under,
                pages=NAVIGATION,
                counts=visit.counts if asks and not visit.is_live else {},
                label=visit.label(ask=asks) if visit.user else "",
                stamp=STAMP,
                csrf=CSRF,
                with_logout=self._token is not None,
                said={"text": said[1:], "well": said[0] == "+"} if said else None,
                **{"every": None, **content},
            )
        )
        response = Response(text.encode(errors="backslashreplace"), mimetype="text/html")
        if visit.request.cookies.get(CSRF) != visit.form_key and not visit.is_live:
            set_cookie(visit.request, response, CSRF, visit.form_key)
        return response


def _alive(visit: Visit) -> Response:
    """Say that the database answers, and what the navigation counts: pages ask for it every two seconds."""
    with waiting_at_most(ALIVE):
        at = visit.queue.database.run(control.clock())
    return Response(as_json({"at": at, "counts": visit.counts}), mimetype="application/json")


def _local(visit: Visit, address: str) -> str:
    """Return an address under our prefix, for after the login; never one of another site."""
    safe = address.startswith("/") and not address.startswith(("//", "/\\")) and address.isprintable()
    return f"{visit.request.script_root}{address}" if safe else visit.url("home")
