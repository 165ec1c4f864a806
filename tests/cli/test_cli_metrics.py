"""``pgqueue worker --metrics-port`` and ``--log-format``, ``pgqueue metrics``: as programs of their own."""

import json
import socket
import urllib.request
from pathlib import Path

import pytest
from cli.commands import pgqueue, started

from pgqueue import PgQueue

LOOPBACK = "127.0.0.1"


def free_ports() -> int:
    """The first of two ports that no program listens on."""
    while True:
        with socket.create_server((LOOPBACK, 0)) as one:
            port = int(one.getsockname()[1])
            try:
                with socket.create_server((LOOPBACK, port + 1)):
                    return port
            except OSError:
                continue


def test_each_process_of_a_worker_has_a_port_of_its_own(dsn: str, shop: Path) -> None:
    port = free_ports()
    with started(
        "worker",
        "--processes",
        "2",
        "--metrics-port",
        str(port),
        "--log-format",
        "json",
        dsn=dsn,
        folder=shop,
    ) as worker:
        lines = [json.loads(worker.until("metrics are served")) for _ in range(2)]
        assert {line["port"] for line in lines} == {port, port + 1}
        for one in (port, port + 1):
            with urllib.request.urlopen(f"http://{LOOPBACK}:{one}/metrics", timeout=20) as answer:
                assert b"pgqueue_worker_slots 20.0" in answer.read()


def test_two_workers_on_one_port_are_refused_in_one_line(dsn: str, shop: Path) -> None:
    with socket.create_server((LOOPBACK, 0)) as taken:
        port = str(taken.getsockname()[1])
        with started("worker", "--metrics-port", port, dsn=dsn, folder=shop) as worker:
            assert f"cannot listen on 127.0.0.1 port {port}: Address already in use" in worker.until("error:")
            assert worker.ended() == 2


def test_ports_above_the_last_one_are_refused(dsn: str, shop: Path) -> None:
    assert shop.is_dir()
    found = pgqueue("--app", "shop:queue", "worker", "--processes", "3", "--metrics-port", "65534", dsn=dsn)
    assert (found.exit_code, "3 processes need the ports up to 65535" in found.stderr) == (2, True)


def test_metrics_of_the_queue_can_be_served(dsn: str, shop: Path) -> None:
    with started("metrics", "--port", "0", dsn=dsn, folder=shop) as serving:
        port = serving.until("metrics on").split(":")[2].partition("/")[0]
        with urllib.request.urlopen(f"http://{LOOPBACK}:{port}/metrics", timeout=20) as answer:
            assert b"pgqueue_up 1.0" in answer.read()


def test_metrics_of_a_database_that_is_away_are_an_error() -> None:
    found = pgqueue("metrics", "--dsn", f"postgresql://u@{LOOPBACK}:1/nowhere")
    assert found.exit_code == 2
    assert found.stdout == ""


@pytest.mark.parametrize(
    ("form", "shows"), [("json", '"job": 1, "task": "shop.send"'), ("logfmt", " job=1 task=shop.send ")]
)
def test_the_log_of_a_worker_is_for_programs_if_asked(
    form: str, shows: str, dsn: str, shop: Path, queue: PgQueue
) -> None:
    pgqueue("--app", "shop:queue", "enqueue", "shop.send", '{"order_id": 42}', dsn=dsn)
    with started("worker", "--log-format", form, dsn=dsn, folder=shop) as worker:
        assert queue.result(1, timeout=60) == "sent 42"
        assert shows in worker.until("job succeeded")
