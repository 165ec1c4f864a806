"""The dashboard in other programs: WSGI and ASGI apps mount it in a line, and the command serves it."""

import signal
import subprocess
import sys
import urllib.request

import httpx
import pytest
from cli.commands import pgqueue
from flask import Flask
from starlette.applications import Starlette
from werkzeug.middleware.dispatcher import DispatcherMiddleware
from werkzeug.test import Client

from pgqueue import PgQueue
from pgqueue.dashboard import Dashboard, User


def _dashboard(queue: PgQueue) -> Dashboard:
    return Dashboard(queue, login=lambda _: User("ann"))


def test_a_wsgi_app_mounts_it(queue: PgQueue) -> None:
    app = Flask("shop")
    app.wsgi_app = DispatcherMiddleware(app.wsgi_app, {"/ops": _dashboard(queue)})  # type: ignore[method-assign]
    page = Client(app).get("/ops/jobs")
    assert page.status_code == 200
    assert 'href="/ops/dead"' in page.text


async def test_an_asgi_app_mounts_it(queue: PgQueue) -> None:
    app = Starlette()
    app.mount("/ops", _dashboard(queue).asgi)
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        page = await client.get("/ops/jobs")
    assert page.status_code == 200
    assert 'href="/ops/dead"' in page.text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--host", "0.0.0.0"], "give --token"),  # noqa: S104 - it is refused
        (["--host", "::"], "give --token"),
        (["--trust-proxy"], "give --token"),
        (["--token", "short"], "fewer than 16 characters"),
    ],
)
def test_the_command_listens_to_others_only_with_a_token(dsn: str, words: list[str], said: str) -> None:
    result = pgqueue("dashboard", *words, dsn=dsn)
    assert (result.exit_code, said in result.stderr) == (2, True), result.stderr


def test_the_command_serves_until_it_is_interrupted(dsn: str) -> None:
    command = [sys.executable, "-m", "pgqueue", "--dsn", dsn, "dashboard", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:  # noqa: S603 - our own words
        assert program.stdout is not None
        line = program.stdout.readline()
        address = line.split()[2].rstrip(";")
        try:
            with urllib.request.urlopen(f"{address}jobs", timeout=30) as page:  # noqa: S310 - on this machine
                assert (page.status, b"No job matches." in page.read()) == (200, True)
        finally:
            program.send_signal(signal.SIGINT)
        assert program.wait(timeout=30) == 0
    assert "read-only" in line
