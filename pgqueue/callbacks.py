"""An HTTP door for callbacks: a WSGI and an ASGI application, which resolve the tokens of ``ctx.callback()``.

``POST .../TOKEN`` with a JSON body, or none, sends the signal that the token stands for. The token authorises the
request, so keep the path out of access logs. The answers are JSON:

=====  ==========================================================================================================
200    ``{"resolved": true}``; false: it was resolved before, and the first payload stays, so a repeated request is safe
400    the body is no JSON that can be stored, or it is cut off
404    this queue did not make the token
405    another method than POST
410    the token has expired, or its job has ended
413    the body is longer than ``PgQueue(max_payload=...)``
415    the body is not declared as JSON
503    the database cannot be reached; try again
=====  ==========================================================================================================
"""

import json
import logging
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import msgspec
import psycopg

from pgqueue.app.pgqueue import PgQueue
from pgqueue.errors import (
    DatabaseError,
    InvalidCallback,
    PayloadError,
    PayloadTooLarge,
    PgQueueError,
    SignalRefused,
)

if TYPE_CHECKING:
    from wsgiref.types import InputStream, StartResponse, WSGIApplication, WSGIEnvironment

log = logging.getLogger("pgqueue.callbacks")

Message: TypeAlias = MutableMapping[str, Any]
AsgiApplication: TypeAlias = Callable[
    [Message, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]
]


def wsgi_app(queue: PgQueue) -> "WSGIApplication":
    """A WSGI application that resolves callbacks of a queue; it can be mounted under any path.

    Args:
        queue: whose callbacks.
    """

    def app(environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        try:
            request = CallbackRequest(
                environ["REQUEST_METHOD"],
                environ.get("PATH_INFO", ""),
                environ.get("CONTENT_TYPE", ""),
                environ.get("CONTENT_LENGTH", ""),
            )
            token = request.token(queue.max_payload)
            ended = bool(environ.get("wsgi.input_terminated"))
            body = _read(environ["wsgi.input"], request.length, queue.max_payload, ended=ended)
            resolved = queue.resolve(token, request.payload(body, queue.max_payload))
            answer = CallbackAnswer(HTTPStatus.OK, {"resolved": resolved})
        except (RequestRefused, PgQueueError, psycopg.Error) as error:
            answer = _refusal(error)
        start_response(f"{answer.status.value} {answer.status.phrase}", [*answer.headers])
        return [answer.body]

    return app


def asgi_app(queue: PgQueue) -> AsgiApplication:
    """An ASGI application that resolves callbacks of a queue; it can be mounted under any path.

    Args:
        queue: whose callbacks.
    """

    async def app(
        scope: Message,
        receive: Callable[[], Awaitable[Message]],
        send: Callable[[Message], Awaitable[None]],
    ) -> None:
        if scope["type"] == "lifespan":
            await _live(receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close"})
            return
        try:
            headers = {name.lower(): value.decode("latin-1") for name, value in scope["headers"]}
            request = CallbackRequest(
                scope["method"],
                scope["path"],
                headers.get(b"content-type", ""),
                headers.get(b"content-length", ""),
            )
            token = request.token(queue.max_payload)
            body = await _aread(receive, queue.max_payload)
            resolved = await queue.aresolve(token, request.payload(body, queue.max_payload))
            answer = CallbackAnswer(HTTPStatus.OK, {"resolved": resolved})
        except (RequestRefused, PgQueueError, psycopg.Error) as error:
            answer = _refusal(error)
        encoded = [(name.encode(), value.encode()) for name, value in answer.headers]
        await send({"type": "http.response.start", "status": answer.status.value, "headers": encoded})
        await send({"type": "http.response.body", "body": answer.body})

    return app


class RequestRefused(Exception):
    """A request that is answered with an error."""

    def __init__(self, status: HTTPStatus, error: str) -> None:
        """Refuse it with this status; the error is for the sender to read."""
        self.status = status
        super().__init__(error)


class CallbackAnswer(NamedTuple):
    """What is answered: a status, and JSON."""

    status: HTTPStatus
    content: dict[str, object]

    @property
    def body(self) -> bytes:
        """The content as it is sent."""
        return json.dumps(self.content).encode()

    @property
    def headers(self) -> Iterable[tuple[str, str]]:
        """The headers that belong to it."""
        yield "Content-Type", "application/json"
        yield "Content-Length", str(len(self.body))
        yield "Cache-Control", "no-store"
        if self.status is HTTPStatus.METHOD_NOT_ALLOWED:
            yield "Allow", "POST"
        if self.status is HTTPStatus.SERVICE_UNAVAILABLE:
            yield "Retry-After", "5"


class CallbackRequest(NamedTuple):
    """What both kinds of applications know of a request before its body."""

    method: str
    path: str
    content_type: str
    content_length: str

    @property
    def length(self) -> int | None:
        """How long the body is said to be; None: that is not said."""
        return int(self.content_length) if self.content_length else None

    def token(self, limit: int) -> str:
        """The token, which is the last part of the path, if the rest of the request is in order."""
        if self.method != "POST":
            raise RequestRefused(HTTPStatus.METHOD_NOT_ALLOWED, "use POST")
        if self.content_length and not (self.content_length.isascii() and self.content_length.isdigit()):
            raise RequestRefused(HTTPStatus.BAD_REQUEST, "Content-Length is no number")
        if self.content_length and (
            len(self.content_length) > len(str(limit)) or int(self.content_length) > limit
        ):
            raise _too_large(limit)
        return self.path.rpartition("/")[2]

    def payload(self, body: bytes, limit: int) -> object:
        """The body as the payload of a signal; it is checked where it is encoded."""
        if len(body) > limit:
            raise _too_large(limit)
        if self.length is not None and len(body) < self.length:
            raise RequestRefused(HTTPStatus.BAD_REQUEST, "the body is cut off")
        if not body:
            return None
        kind = self.content_type.partition(";")[0].strip().lower()
        if kind != "application/json" and not (kind.startswith("application/") and kind.endswith("+json")):
            raise RequestRefused(
                HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "send JSON, with Content-Type: application/json"
            )
        return msgspec.Raw(body)


def _refusal(error: Exception) -> CallbackAnswer:
    match error:
        case RequestRefused():
            status = error.status
        case InvalidCallback():
            status = HTTPStatus.NOT_FOUND
        case SignalRefused():
            status = HTTPStatus.GONE
        case PayloadTooLarge():
            status = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
        case PayloadError():
            status = HTTPStatus.BAD_REQUEST
        case DatabaseError() | psycopg.Error():
            log.error("callback not resolved: the database cannot be used", exc_info=error)
            return CallbackAnswer(HTTPStatus.SERVICE_UNAVAILABLE, {"error": "try again later"})
        case _:
            raise error
    return CallbackAnswer(status, {"error": str(error)})


def _too_large(limit: int) -> RequestRefused:
    return RequestRefused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body takes more than {limit:,} bytes")


def _read(stream: "InputStream", length: int | None, limit: int, *, ended: bool) -> bytes:
    """Read the body, or more than ``limit`` bytes of it. Without a length, read it only if the server marks its end."""
    if length is None and not ended:
        return b""
    return stream.read(limit + 1 if length is None else length)


async def _aread(receive: Callable[[], Awaitable[Message]], limit: int) -> bytes:
    """Return the body, or more than ``limit`` bytes of it."""
    body = bytearray()
    while len(body) <= limit:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise RequestRefused(HTTPStatus.BAD_REQUEST, "the body is cut off")
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    return bytes(body)


async def _live(
    receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]
) -> None:
    """Start and stop with the server; there is nothing to do for either."""
    while True:
        kind = (await receive())["type"]
        await send({"type": f"{kind}.complete"})
        if kind == "lifespan.shutdown":
            return
