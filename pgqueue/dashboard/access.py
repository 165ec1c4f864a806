"""Who may use the dashboard and what each request and answer is held to: logins, rights, hosts, forms, headers.

A login is a function of the WSGI environment of a request. It returns a :class:`User`, or None: then the request is refused.

A form is accepted if its page is ours, by two tests: the ``Origin`` of the request is the host that it names, and the form has
the value of a cookie that only our pages can read.
"""

import hashlib
import hmac
import ipaddress
import secrets
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import timedelta
from enum import StrEnum
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

import msgspec
from itsdangerous import BadSignature, TimestampSigner
from werkzeug.exceptions import BadRequest, Forbidden, MisdirectedRequest, NotFound
from werkzeug.routing import MapAdapter
from werkzeug.wrappers import Request, Response

from pgqueue.app.operator import me
from pgqueue.errors import InvalidOption

SESSION: Final = timedelta(hours=12)
"""After this time a user who came with a token gives it again."""
SHORTEST_TOKEN: Final = 16
"""Characters. A shorter token could be guessed."""
LOOPBACK_HOSTS: Final = ("localhost", "127.0.0.1", "::1")
"""The names under which a browser of this machine may ask. Another name was pointed here by a foreign page (DNS rebinding)."""
_FORWARDED = ("HTTP_FORWARDED", "HTTP_X_FORWARDED_FOR", "HTTP_X_FORWARDED_HOST", "HTTP_X_REAL_IP", "HTTP_VIA")

CSRF: Final = "pgqueue_csrf"
"""The cookie, and the field of each form."""
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",  # under "no-referrer" browsers send no Origin with forms
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
_PORTS = {"http": 80, "https": 443}


class Right(StrEnum):
    """What a user may do. ``LOOK`` is needed for every page; the others for actions."""

    LOOK = "look"
    ENQUEUE = "enqueue"
    RETRY = "retry"
    CANCEL = "cancel"
    MOVE = "move"
    PURGE = "purge"
    PAUSE = "pause"
    SET = "set"
    STEER = "steer"
    SCHEDULE = "schedule"
    SILENCE = "silence"


NO_LINKS: Mapping[str, str] = {}


class User(msgspec.Struct, frozen=True):
    """A person who uses the dashboard.

    Attributes:
        name: what the audit calls them.
        rights: what they may do; all rights where none are named.
        links: pages beside the dashboard that its bar leads to: their names and addresses.
    """

    name: str
    rights: frozenset[Right] = frozenset(Right)
    links: Mapping[str, str] = {}

    @classmethod
    def with_rights(
        cls, name: str, rights: Iterable[Right | str], *, links: Mapping[str, str] = NO_LINKS
    ) -> "User":
        """A user with these rights, and with ``LOOK``.

        Args:
            name: what the audit calls them.
            rights: as :class:`Right`, or their names.
            links: pages beside the dashboard, by name.

        Raises:
            InvalidOption: there is no such right.
        """
        try:
            return cls(name, frozenset({Right.LOOK, *map(Right, rights)}), links)
        except ValueError as error:
            raise InvalidOption(f"rights: {error}; there are {', '.join(Right)}") from error


Environ: TypeAlias = Mapping[str, Any]
Login: TypeAlias = Callable[[Environ], User | None]


def on_this_machine(environ: Environ) -> User | None:
    """A login for a developer's machine: each of its users may do everything.

    The request must come from the loopback address, name a loopback host, and not have passed through a proxy.
    """
    try:
        local = ipaddress.ip_address(str(environ.get("REMOTE_ADDR"))).is_loopback
    except ValueError:
        return None
    named = names(environ.get("HTTP_HOST"), LOOPBACK_HOSTS)
    forwarded = any(environ.get(name) for name in _FORWARDED)
    return User(me()) if local and named and not forwarded else None


class TokenLogin:
    """A login with one token, which users type once; a signed cookie stands for it during :data:`SESSION`."""

    cookie: Final = "pgqueue_session"

    def __init__(self, token: str) -> None:
        """Check the token.

        Raises:
            InvalidOption: it is too short.
        """
        if not isinstance(token, str) or len(token) < SHORTEST_TOKEN:
            raise InvalidOption(
                f"token: it has fewer than {SHORTEST_TOKEN} characters, so it could be guessed; "
                'make one with python -c "import secrets; print(secrets.token_urlsafe())"'
            )
        self._digest = _digest(token)
        self._signer = TimestampSigner(self._digest, salt="pgqueue.dashboard.session")

    def accepts(self, token: str) -> bool:
        """Whether this is the token; it takes equally long for every wrong one."""
        return hmac.compare_digest(_digest(token), self._digest)

    def session(self, name: str) -> str:
        """The value of the cookie of a user who gave the token.

        Args:
            name: what the audit is to call them.
        """
        return self._signer.sign(name.encode().hex()).decode()

    def user(self, cookie: str | None, authorization: str | None) -> User | None:
        """The user of a request: of a cookie, or of ``Authorization: Bearer TOKEN``."""
        scheme, _, token = (authorization or "").partition(" ")
        if scheme.lower() == "bearer" and self.accepts(token.strip()):
            return User("token")
        try:
            signed = self._signer.unsign(cookie or "", max_age=int(SESSION.total_seconds()))
        except BadSignature:
            return None
        return User(bytes.fromhex(signed.decode()).decode())


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode(errors="surrogatepass")).digest()


NOWHERE: Final = ""


def matched(urls: MapAdapter) -> tuple[str, Mapping[str, Any]]:
    """The endpoint of a request, and its values; of an unknown path ``NOWHERE``, so that only users are told so."""
    try:
        return urls.match()
    except NotFound:
        return NOWHERE, {}


def check_host(request: Request, hosts: Collection[str] | None) -> None:
    """Refuse a request under a host name that is not ours.

    Args:
        request: which.
        hosts: the names, without ports; ``.example.com`` is every name under it. None: the host app checks it.

    Raises:
        MisdirectedRequest: it names another one.
    """
    if hosts is not None and not names(request.environ.get("HTTP_HOST"), hosts):
        raise MisdirectedRequest(
            "This dashboard does not answer under this host name. Use one of its own, or name it with --host or Dashboard(hosts=...)."
        )


def names(host: str | None, hosts: Collection[str]) -> bool:
    """Whether a ``Host`` header names one of these hosts, at any port."""
    try:
        name = urlsplit(f"//{host or ''}").hostname or ""
    except ValueError:
        return False
    return any(name == one or (one.startswith(".") and name.endswith(one)) for one in hosts)


def check_form(request: Request) -> None:
    """Refuse a form that was not sent by a page of ours.

    Raises:
        Forbidden: it was not, or this cannot be seen.
    """
    origin = request.headers.get("Origin")
    if origin is None and request.headers.get("Sec-Fetch-Site") != "same-origin":
        raise Forbidden("The browser did not say which page sent this form. Reload the page and try again.")
    if origin is not None and not _is_ours(origin, request):
        raise Forbidden(
            "Another site sent this form. Behind a proxy that changes the Host header, say so: --trust-proxy or "
            "Dashboard(trust_proxy=True)."
        )
    given, known = request.form.get(CSRF, ""), request.cookies.get(CSRF, "")
    if not known or not hmac.compare_digest(given.encode(), known.encode()):
        raise Forbidden("The form is too old. Reload the page and try again.")


def check_values(request: Request, path: Iterable[object]) -> None:
    """Refuse a request with a value that PostgreSQL cannot store, before a page asks for it.

    Raises:
        BadRequest: a parameter, a field of the form or a part of the path has NUL in it.
    """
    named = [
        *request.args.items(multi=True),
        *request.form.items(multi=True),
        *(("path", one) for one in path),
    ]
    for name, value in named:
        if "\0" in f"{name}{value}":
            raise BadRequest(f"{name!r:.40}: leave the character NUL out, which PostgreSQL cannot store.")


def form_key(request: Request) -> str:
    """The value that forms of this user carry; a new one if the browser has none."""
    known = request.cookies.get(CSRF, "")
    return known if len(known) == len(_new_key()) and known.isalnum() else _new_key()


def with_headers(response: Response, *, cached: bool = False) -> Response:
    """The answer with the headers that every answer has."""
    for name, value in HEADERS.items():
        response.headers[name] = value
    response.headers["Cache-Control"] = "public, max-age=31536000, immutable" if cached else "no-store"
    response.headers.add("Vary", "Cookie")
    return response


def set_cookie(
    request: Request, response: Response, name: str, value: str, *, seconds: float | None = None
) -> None:
    """Set a cookie that only this dashboard's requests carry, and that no script reads."""
    response.set_cookie(
        name,
        value,
        max_age=None if seconds is None else int(seconds),
        path=cookie_path(request),
        secure=request.is_secure,
        httponly=True,
        samesite="Strict",
    )


def cookie_path(request: Request) -> str:
    """Where cookies are valid: under our prefix."""
    return request.environ.get("SCRIPT_NAME", "") or "/"


def _new_key() -> str:
    return secrets.token_hex(16)


def _is_ours(origin: str, request: Request) -> bool:
    try:
        theirs = urlsplit(origin)
        ours = urlsplit(f"{request.scheme}://{request.host}")
        return (
            theirs.scheme in _PORTS
            and theirs.hostname is not None
            and theirs.hostname == ours.hostname
            and _port(theirs.port, theirs.scheme) == _port(ours.port, theirs.scheme)
        )
    except ValueError:
        return False


def _port(port: int | None, scheme: str) -> int:
    return port or _PORTS[scheme]
