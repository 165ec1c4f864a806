"""The Flask example, driven over HTTP: a real server, a real worker, a real database."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psycopg
from neighbours.serving import EXAMPLES, Process, ran, sqlalchemy_url, started, until

FOLDER = EXAMPLES / "flask"
FLASK = ("flask", "--app", "shop")
JOB = ("shop.orders.send_receipt", {"order_id": 1})


@contextmanager
def served(dsn: str, tmp_path: Path) -> Iterator[tuple[Process, httpx.Client]]:
    """A server for the length of a block, and a client of it."""
    settings = shop(dsn)
    done = ran(*FLASK, "create-tables", folder=FOLDER, **settings)
    assert done.returncode == 0, done.stderr
    log = tmp_path / "server.log"
    with (
        started(*FLASK, "run", "--port", "0", folder=FOLDER, log=log, **settings) as server,
        httpx.Client(base_url=server.address(), trust_env=False) as client,
    ):
        yield server, client


def shop(dsn: str) -> dict[str, str]:
    return {"DATABASE_URL": sqlalchemy_url(dsn)}


def rows(dsn: str, query: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(dsn) as connection:
        return connection.execute(query.encode()).fetchall()


def jobs(dsn: str) -> list[tuple[Any, ...]]:
    return rows(dsn, "select task, args, state from pgqueue.all_jobs")


def test_an_order_and_its_job_are_committed_together_and_a_worker_does_the_rest(
    empty_dsn: str, tmp_path: Path
) -> None:
    migrated = ran(*FLASK, "pgqueue", "migrate", folder=FOLDER, **shop(empty_dsn))
    assert migrated.returncode == 0, migrated.stderr
    with served(empty_dsn, tmp_path) as (_, client):
        answer = client.post("/orders/", json={"pieces": 2, "pence": 500})

        assert (answer.status_code, answer.json()) == (201, {"id": 1, "each": 250})
        assert jobs(empty_dsn) == [(*JOB, "ready")]
        assert client.get("/orders/1").json()["receipt"] is None

        command = [*FLASK, "pgqueue", "worker", "--processes", "2", "--queues", "mail"]
        log = tmp_path / "worker.log"
        with started(*command, folder=FOLDER, log=log, **shop(empty_dsn)) as worker:
            receipt = until(lambda: client.get("/orders/1").json()["receipt"])
            assert until(lambda: len(rows(empty_dsn, "select from pgqueue.workers")) == 2)
            assert worker.stopped() == 0
    assert receipt == "2 pieces, 500 pence"
    assert jobs(empty_dsn) == [(*JOB, "succeeded")]
    assert rows(empty_dsn, "select from pgqueue.workers") == []


def test_a_view_that_rolls_back_or_raises_leaves_neither_row_nor_job(dsn: str, tmp_path: Path) -> None:
    with served(dsn, tmp_path) as (server, client):
        refused = client.post("/orders/", json={"pieces": 1, "pence": 100_001})
        failed = client.post("/orders/", json={"pieces": 0, "pence": 500})

        assert (refused.status_code, failed.status_code) == (422, 500)
        assert rows(dsn, 'select from "order"') == jobs(dsn) == []
        server.said("ZeroDivisionError")
