"""Metrics for Prometheus: of a worker (:func:`serving_worker`), and of the whole queue (:func:`queue_endpoint`)."""

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from pgqueue.app.pgqueue import PgQueue
from pgqueue.telemetry.queue_metrics import QueueMetrics
from pgqueue.telemetry.serving import Endpoint
from pgqueue.telemetry.worker_metrics import JobMetrics, of_vitals
from pgqueue.values.workers.health import Vitals, not_live, not_ready


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
