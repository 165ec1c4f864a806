"""The HTTP door for callbacks, as a WSGI and as an ASGI application: behind real servers, and fed by hand."""

import asyncio
import http.client
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from wsgiref.simple_server import WSGIRequestHandler, make_server

import httpx
import psycopg
import pytest
from looking import ask
from starlette.applications import Starlette
from starlette.routing import Mount

from pgqueue import PgQueue
from pgqueue.callbacks import asgi_app, wsgi_app

JSON = {"Content-Type": "application/json"}


class Reply(NamedTuple):
    status: int
    content: Any
    headers: dict[str, str]


Send = Callable[..., Reply]


class Quiet(WSGIRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Nothing."""


@contextmanager
def _by_wsgi(queue: PgQueue) -> Iterator[Send]:
    with make_server("127.0.0.1", 0, wsgi_app(queue), handler_class=Quiet) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()

        def send(
            method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
        ) -> Reply:
            connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=30)
            try:
                connection.request(method, path, body, headers or {})
                answer = connection.getresponse()
                read = answer.read()
                return Reply(answer.status, json.loads(read), {k.lower(): v for k, v in answer.getheaders()})
            finally:
                connection.close()

        try:
            yield send
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def _by_asgi(queue: PgQueue) -> Iterator[Send]:
    mounted = Starlette(routes=[Mount("/callbacks", asgi_app(queue)), Mount("/", asgi_app(queue))])

    async def call(method: str, path: str, body: bytes | None, headers: dict[str, str]) -> Reply:
        transport = httpx.ASGITransport(mounted)
        async with httpx.AsyncClient(transport=transport, base_url="http://callbacks") as client:
            answer = await client.request(method, path, content=body, headers=headers)
        await queue.aclose()
        return Reply(answer.status_code, answer.json(), dict(answer.headers))

    def send(
        method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> Reply:
        return asyncio.run(call(method, path, body, headers or {}))

    yield send


@pytest.fixture(params=["wsgi", "asgi"])
def send(request: pytest.FixtureRequest, queue: PgQueue) -> Iterator[Send]:
    with (_by_wsgi if request.param == "wsgi" else _by_asgi)(queue) as send:
        yield send


@pytest.fixture
def job(queue: PgQueue) -> int:
    @queue.task(name="wait")
    def wait() -> None: ...

    return wait.enqueue().id


def _token(queue: PgQueue, job: int, until: str = "null") -> str:
    ((token,),) = ask(queue, f"select pgqueue.callback_token({job}, 'paid', {until})")
    return str(token)


def _sent(queue: PgQueue) -> list[Any]:
    return [row[0] for row in ask(queue, "select payload from pgqueue.signals")]


def test_a_token_is_resolved_once_and_a_repeated_request_is_harmless(
    queue: PgQueue, job: int, send: Send
) -> None:
    path = f"/callbacks/{_token(queue, job)}"
    reply = send("POST", path, b'{"paid": 30, "by": null}', JSON)
    assert (reply.status, reply.content) == (200, {"resolved": True})
    assert reply.headers["content-type"] == "application/json"
    assert reply.headers["cache-control"] == "no-store"
    reply = send("POST", path, b'{"paid": 0}', {"Content-Type": "application/vnd.x+json; charset=utf-8"})
    assert (reply.status, reply.content) == (200, {"resolved": False})
    assert _sent(queue) == [{"paid": 30, "by": None}]


def test_a_request_without_a_body_resolves_with_nothing(queue: PgQueue, job: int, send: Send) -> None:
    assert send("POST", f"/{_token(queue, job)}").content == {"resolved": True}
    assert _sent(queue) == [None]


def test_each_refusal_has_its_status_and_changes_nothing(queue: PgQueue, job: int, send: Send) -> None:
    token = _token(queue, job)
    forged = token[:-1] + ("A" if token[-1] != "A" else "B")
    expired = _token(queue, job, "now() - interval '2 seconds'")
    gone = _token(queue, 10**9)
    deep = b"[" * 300 + b"]" * 300
    refusals: dict[int, list[tuple[str, str, bytes | None]]] = {
        404: [("POST", "/", b""), ("POST", f"/{forged}", b""), ("POST", "/a/b/%00%ff", b""), ("POST", f"/{token}/x", b"1")],
        405: [("GET", f"/{token}", None), ("PUT", f"/{token}", b"1"), ("DELETE", f"/{token}", None)],
        410: [("POST", f"/{expired}", b"1"), ("POST", f"/{gone}", b"")],
        400: [("POST", f"/{token}", bad) for bad in (b"{", b"\xff", b'"\\u0000"', b'"\\ud800"', deep, b"NaN", b"1e400000", b"{} {}")],
    }  # fmt: skip
    for status, given in refusals.items():
        for method, path, body in given:
            reply = send(method, path, body, JSON)
            assert (reply.status, list(reply.content)) == (status, ["error"]), (method, path, reply)
    for length in (queue.max_payload + 1, 10**50):  # it is not even read
        assert send("POST", f"/{token}", b"", JSON | {"Content-Length": str(length)}).status == 413
    assert send("GET", "/").headers["allow"] == "POST"
    for kind in ("text/plain", "application/x-www-form-urlencoded", "json", ""):
        assert send("POST", f"/{token}", b"{}", {"Content-Type": kind}).status == 415
    assert _sent(queue) == []


def test_a_database_that_is_away_asks_for_another_try(job: int, send: Send, queue: PgQueue) -> None:
    token = _token(queue, job)
    ask(queue, "alter table pgqueue.signals rename to away")
    reply = send("POST", f"/{token}", b"1", JSON)
    assert (reply.status, reply.headers["retry-after"], reply.content) == (
        503,
        "5",
        {"error": "try again later"},
    )
    ask(queue, "alter table pgqueue.away rename to signals")
    assert send("POST", f"/{token}", b"1", JSON).status == 200


def test_a_body_that_is_cut_off_is_not_taken_for_a_shorter_one(queue: PgQueue, job: int) -> None:
    with make_server("127.0.0.1", 0, wsgi_app(queue), handler_class=Quiet) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        with socket.create_connection(server.server_address) as client:  # type: ignore[arg-type]  # a pair, for IPv4
            head = f"POST /{_token(queue, job)} HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: 3\r\n\r\n"
            client.sendall(head.encode() + b"12")
            client.shutdown(socket.SHUT_WR)
            assert b" 400 " in client.recv(100)
        thread.join()
    assert _sent(queue) == []


async def test_asgi_by_hand_in_pieces_cut_off_and_other_protocols(queue: PgQueue, job: int) -> None:
    app = asgi_app(queue)

    async def call(scope: dict[str, Any], *messages: dict[str, Any]) -> list[Any]:
        left, sent = list(messages), list[Any]()

        async def receive() -> dict[str, Any]:
            return left.pop(0)

        async def send(message: Any) -> None:
            sent.append(message)

        await asyncio.wait_for(app(scope, receive, send), 30)
        return sent

    piece = {"type": "http.request", "more_body": True}
    http_scope = {
        "type": "http",
        "method": "POST",
        "path": f"/x/{_token(queue, job)}",
        "headers": [(b"Content-Type", b"application/json")],
    }
    for messages in (
        [piece | {"body": b"1"}, {"type": "http.disconnect"}],
        [piece | {"body": b" " * 600_000}] * 2,
    ):
        (start, _) = await call(http_scope, *messages)
        assert start["status"] in {400, 413}
    assert _sent(queue) == []
    for bad in (b"x", b"-1", b"1" * 5_000, "²".encode()):
        (start, _) = await call(http_scope | {"headers": [(b"content-length", bad)]})
        assert start["status"] in {400, 413}
    (start, body) = await call(
        http_scope, piece | {"body": b'{"a"'}, {"type": "http.request", "body": b": 1}"}
    )
    assert (start["status"], body["body"]) == (200, b'{"resolved": true}')
    assert _sent(queue) == [{"a": 1}]
    assert await call({"type": "websocket"}) == [{"type": "websocket.close"}]
    lifespan = [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]
    assert await call({"type": "lifespan"}, *lifespan) == [
        {"type": f"{one['type']}.complete"} for one in lifespan
    ]
    await queue.aclose()


def test_tokens_are_hmac_sha256_of_their_body(queue: PgQueue, job: int, dsn: str) -> None:
    import base64  # noqa: PLC0415 - for this alone
    import hashlib  # noqa: PLC0415 - for this alone
    import hmac  # noqa: PLC0415 - for this alone

    body, mac = _token(queue, job).split(".")
    with psycopg.connect(dsn) as connection:
        row = connection.execute("select inner_block from pgqueue.callback_key").fetchone()
    assert row is not None
    key = bytes(byte ^ 0x36 for byte in row[0])
    expected = base64.urlsafe_b64encode(hmac.digest(key, body.encode(), hashlib.sha256)).rstrip(b"=")
    assert mac.encode() == expected
    assert key[32:] == bytes(32)
    assert len(set(key[:32])) > 10
