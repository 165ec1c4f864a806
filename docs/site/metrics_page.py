"""The page of metrics: what a worker's endpoint and the queue's give to Prometheus, asked of the collectors themselves."""

from collections.abc import Iterable
from pathlib import Path
from unittest.mock import MagicMock

from prometheus_client.metrics_core import Metric

from pgqueue.telemetry.queue_metrics import QueueMetrics
from pgqueue.telemetry.worker_metrics import JobMetrics, of_vitals
from pgqueue.values.workers.health import Vitals

_NOTHING_YET = Vitals(
    stopping=False,
    beats=True,
    renewed=None,
    lease=0,
    looked=0,
    look_within=0,
    not_listening=None,
    blocked=None,
)


def metrics(root: Path) -> str:  # noqa: ARG001 - as the other generated page
    """The Markdown of both tables. A queue without jobs and workers has each metric, too, without values."""
    of_worker = [*JobMetrics().collect(), *of_vitals(_NOTHING_YET)]
    of_queue = QueueMetrics(MagicMock()).collect()
    return f"## Of a worker\n\n{_table(of_worker)}\n\n## Of the whole queue\n\n{_table(of_queue)}"


def _table(found: Iterable[Metric]) -> str:
    rows = (f"| `{_name(one)}` | {one.type} | {_labels(one)} | {one.documentation} |" for one in found)
    return "\n".join(["| Metric | Type | Labels | Meaning |", "|---|---|---|---|", *rows])


def _name(one: Metric) -> str:
    return one.name + ("_total" if one.type == "counter" else "")


def _labels(one: Metric) -> str:
    return ", ".join(f"`{name}`" for name in getattr(one, "_labelnames", ()))
