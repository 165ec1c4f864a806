"""Who uses the dashboard, and what they may do: a host app's own login, a token, or the users of this machine.

A login is a function of the WSGI environment of a request. It returns a :class:`User`, or None: then the request is refused.
"""

import hashlib
import hmac
import ipaddress
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from enum import StrEnum
from typing import Any, Final, TypeAlias

import msgspec
from itsdangerous import BadSignature, TimestampSigner

from pgqueue.app.operator import me
from pgqueue.dashboard.guard import names
from pgqueue.errors import InvalidOption

SESSION: Final = timedelta(hours=12)
"""After this time a user who came with a token gives it again."""
SHORTEST_TOKEN: Final = 16
"""Characters. A shorter token could be guessed."""
LOOPBACK_HOSTS: Final = ("localhost", "127.0.0.1", "::1")
"""The names under which a browser of this machine may ask. Another name was pointed here by a foreign page (DNS rebinding)."""
_FORWARDED = ("HTTP_FORWARDED", "HTTP_X_FORWARDED_FOR", "HTTP_X_FORWARDED_HOST", "HTTP_X_REAL_IP", "HTTP_VIA")


class Right(StrEnum):
    """What a user may do. ``LOOK`` is needed for every page; the others for actions."""

    LOOK = "look"
    RETRY = "retry"
    CANCEL = "cancel"
    MOVE = "move"
    PURGE = "purge"
    PAUSE = "pause"
    SET = "set"
    STEER = "steer"
    SCHEDULE = "schedule"
    SILENCE = "silence"


class User(msgspec.Struct, frozen=True):
    """A person who uses the dashboard.

    Attributes:
        name: what the audit calls them.
        rights: what they may do; all rights where none are named.
    """

    name: str
    rights: frozenset[Right] = frozenset(Right)

    @classmethod
    def with_rights(cls, name: str, rights: Iterable[Right | str]) -> "User":
        """A user with these rights, and with ``LOOK``.

        Args:
            name: what the audit calls them.
            rights: as :class:`Right`, or their names.

        Raises:
            InvalidOption: there is no such right.
        """
        try:
            return cls(name, frozenset({Right.LOOK, *map(Right, rights)}))
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
