"""The endpoints for Prometheus: of a worker (:func:`serving_worker`), and of the whole queue (:func:`queue_endpoint`).

Each answers ``/metrics``, ``/healthz`` and ``/readyz``, in threads, also while the event loop is blocked. What is wrong is
decided in :mod:`pgqueue.values.workers.health`. The server is that of Python, the format Prometheus' own.
"""

import logging
import socketserver
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import (
    CollectorRegistry,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
    make_wsgi_app,
)
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from pgqueue.app.pgqueue import PgQueue
from pgqueue.errors import ConfigurationError
from pgqueue.telemetry.queue_metrics import QueueMetrics
from pgqueue.telemetry.worker_metrics import JobMetrics, of_vitals
from pgqueue.values.workers.health import Vitals, not_live, not_ready

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

log = logging.getLogger("pgqueue.metrics")

TIMEOUT = 10.0
"""Seconds that a client has to send its request."""
Check = Callable[[], tuple[str, ...]]
"""What is wrong; empty: nothing."""


class Endpoint(AbstractContextManager["Endpoint"]):
    """Serves a registry, and two checks, for the length of a block.

    Attributes:
        port: where it listens.
    """

    def __init__(
        self, registry: CollectorRegistry, *, live: Check, ready: Check, host: str, port: int
    ) -> None:
        """Listen, and answer nothing yet.

        Args:
            registry: what ``/metrics`` answers.
            live: what ``/healthz`` answers: 200, or 503 with what is wrong.
            ready: what ``/readyz`` answers.
            host: the address to listen on.
            port: 0: a free one.

        Raises:
            ConfigurationError: another program has the port, or the address is none of this machine's.
        """
        handler: type[WSGIRequestHandler] = type("Handler", (_QuietHandler,), {"timeout": TIMEOUT})
        try:
            self._server = _MetricsServer((host, port), handler)
        except OSError as error:
            raise ConfigurationError(
                f"metrics: cannot listen on {host} port {port}: {error.strerror or error}; give another port, such as "
                "--metrics-port 9101"
            ) from error
        self._server.set_app(_app(make_wsgi_app(registry), live, ready))
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="pgqueue-metrics", daemon=True
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def serve(self) -> None:
        """Answer in the calling thread, until it is interrupted."""
        try:
            self._server.serve_forever()
        finally:
            self._server.server_close()


def serving_worker(queue: PgQueue, vitals: Callable[[], Vitals], *, host: str, port: int) -> Endpoint:
    """The endpoint of a worker: its metrics and those of its process, whether it lives, whether it serves.

    Args:
        queue: the worker's, which is observed from now on.
        vitals: the worker's; called in other threads.
        host: the address to listen on.
        port: the port to listen on; 0: a free one.

    Raises:
        ConfigurationError: it cannot listen there.
    """
    jobs, registry = JobMetrics(), CollectorRegistry()
    for collector in (jobs, _VitalsCollector(vitals)):
        registry.register(collector)
    for made in (ProcessCollector, PlatformCollector, GCCollector):
        made(registry=registry)
    endpoint = Endpoint(
        registry, live=lambda: not_live(vitals()), ready=lambda: not_ready(vitals()), host=host, port=port
    )
    queue.observe(jobs)
    return endpoint


def queue_endpoint(queue: PgQueue, *, host: str, port: int) -> Endpoint:
    """The endpoint of the whole queue. It lives as long as it answers, and is ready while the database answers.

    Args:
        queue: which queue to look at.
        host: the address to listen on.
        port: the port to listen on; 0: a free one.

    Raises:
        ConfigurationError: it cannot listen there.
    """
    metrics = QueueMetrics(queue)
    return Endpoint(_only(metrics), live=tuple, ready=metrics.problems, host=host, port=port)


def queue_text(queue: PgQueue) -> str:
    """The metrics of the whole queue, as text.

    Raises:
        PgQueueError: the database does not answer.
    """
    return generate_latest(_only(QueueMetrics(queue, patient=False))).decode()


def _only(collector: Collector) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(collector)
    return registry


class _VitalsCollector(Collector):
    def __init__(self, vitals: Callable[[], Vitals]) -> None:
        self._vitals = vitals

    def collect(self) -> Iterator[Metric]:
        return of_vitals(self._vitals())

    def describe(self) -> Iterator[Metric]:
        return iter(())


class _MetricsServer(socketserver.ThreadingMixIn, WSGIServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def server_bind(self) -> None:
        # Not as the base does it, which asks the name service for this machine's name.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = "localhost", self.server_address[1]
        self.setup_environ()

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401, ARG002 - the base's
        # A client that goes away is no fault of this process.
        log.debug("a request for metrics failed", exc_info=sys.exception())


class _QuietHandler(WSGIRequestHandler):
    def log_message(self, *_: object) -> None:
        """Requests are not logged."""


def _app(metrics: "WSGIApplication", live: Check, ready: Check) -> "WSGIApplication":
    def app(environ: "WSGIEnvironment", start: "StartResponse") -> Iterable[bytes]:
        match environ.get("PATH_INFO"):
            case "/metrics":
                return metrics(environ, start)
            case "/healthz":
                return _answer_check(live(), start)
            case "/readyz":
                return _answer_check(ready(), start)
        return _text("404 Not Found", "use /metrics, /healthz or /readyz", start)

    return app


def _answer_check(problems: tuple[str, ...], start: "StartResponse") -> Iterable[bytes]:
    return _text("503 Service Unavailable" if problems else "200 OK", "\n".join(problems) or "ok", start)


def _text(status: str, text: str, start: "StartResponse") -> Iterable[bytes]:
    body = f"{text}\n".encode("utf-8", "backslashreplace")
    start(
        status,
        [
            ("Content-Type", "text/plain; charset=utf-8"),
            ("Content-Length", str(len(body))),
            ("Cache-Control", "no-store"),
        ],
    )
    return [body]
