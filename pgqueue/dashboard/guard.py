"""What each request and each answer is held to: its host, where a form came from, and the headers that a browser obeys.

A form is accepted if its page is ours, by two tests: the ``Origin`` of the request is the host that it names, and the form has
the value of a cookie that only our pages can read.
"""

import hmac
import secrets
from collections.abc import Collection, Iterable
from typing import Final
from urllib.parse import urlsplit

from werkzeug.exceptions import BadRequest, Forbidden, MisdirectedRequest
from werkzeug.wrappers import Request, Response

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
