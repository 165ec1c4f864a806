"""The FastAPI example, driven over HTTP: a real server, a worker in it or beside it, a real database."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from neighbours.serving import EXAMPLES, Process, started, until

FOLDER = EXAMPLES / "fastapi"
SERVER = ("uvicorn", "shop.main:app", "--port", "0")
ORDER = {"reference": "A1", "pieces": 2, "pence": 500}
JOB = ("shop.jobs.send_receipt", {"order_id": 1})


both_drivers = pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])


def shop(dsn: str, driver: str = "psycopg") -> dict[str, str]:
    """The settings of a shop whose engine is on this driver."""
    return {"DATABASE_URL": dsn.replace("postgresql://", f"postgresql+{driver}://")}


@contextmanager
def served(tmp_path: Path, **settings: str) -> Iterator[tuple[Process, httpx.Client]]:
    """A server for the length of a block, and a client of it."""
    with (
        started(*SERVER, folder=FOLDER, log=tmp_path / "server.log", **settings) as server,
        httpx.Client(base_url=server.address(), trust_env=False) as client,
    ):
        yield server, client


def rows(dsn: str, query: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(dsn) as connection:
        return connection.execute(query.encode()).fetchall()


def jobs(dsn: str) -> list[tuple[Any, ...]]:
    return rows(dsn, "select task, args, state from pgqueue.all_jobs")


@both_drivers
def test_an_order_and_its_job_are_committed_together_and_a_worker_does_the_rest(
    dsn: str, tmp_path: Path, driver: str
) -> None:
    with served(tmp_path, **shop(dsn, driver)) as (_, client):
        answer = client.post("/orders", json=ORDER)

        assert (answer.status_code, answer.json()) == (201, {"id": 1, "each": 250})
        assert jobs(dsn) == [(*JOB, "ready")]

        command = ["pgqueue", "--app", "shop.jobs:queue", "worker"]
        log = tmp_path / "worker.log"
        with started(*command, folder=FOLDER, log=log, **shop(dsn, driver)) as worker:
            receipt = until(lambda: client.get("/orders/1").json()["receipt"])
            assert worker.stopped() == 0
    assert receipt == "2 pieces, 500 pence"
    assert jobs(dsn) == [(*JOB, "succeeded")]


def test_a_worker_in_the_server_starts_and_stops_with_it(dsn: str, tmp_path: Path) -> None:
    with served(tmp_path, SHOP_WORKER="1", **shop(dsn)) as (server, client):
        client.post("/orders", json=ORDER)
        assert until(lambda: client.get("/orders/1").json()["receipt"]) == "2 pieces, 500 pence"
        assert len(rows(dsn, "select from pgqueue.workers")) == 1

        server.stopped()

        assert "Application shutdown complete" in server.log()
        assert rows(dsn, "select from pgqueue.workers") == []


def test_a_worker_that_cannot_start_says_so_at_once(empty_dsn: str, tmp_path: Path) -> None:
    with served(tmp_path, SHOP_WORKER="1", **shop(empty_dsn)) as (server, _):
        assert "SchemaMissing" in server.said(r"(?s)the worker has ended.*SchemaMissing")[0]


@both_drivers
def test_what_is_raised_after_the_enqueue_leaves_neither_row_nor_job(
    dsn: str, tmp_path: Path, driver: str
) -> None:
    with served(tmp_path, **shop(dsn, driver)) as (_, client):
        refused = client.post("/orders", json={**ORDER, "pence": 100_001})
        failed = client.post("/orders", json={**ORDER, "pieces": 0})

    assert (refused.status_code, failed.status_code) == (422, 500)
    assert rows(dsn, "select from orders") == jobs(dsn) == []


def test_a_commit_that_fails_is_no_success_for_the_client(dsn: str, tmp_path: Path) -> None:
    """The second order's reference is taken, and the constraint is checked at the commit."""
    with served(tmp_path, **shop(dsn)) as (_, client):
        answers = [client.post("/orders", json=ORDER).status_code for _ in range(2)]

    assert answers == [201, 409]
    assert len(rows(dsn, "select from orders")) == len(jobs(dsn)) == 1
