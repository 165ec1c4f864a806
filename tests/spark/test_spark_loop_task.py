"""What a task says holds for the jobs of a run as for any job: limit, shares, priority, attempts, retries, encryption."""

import asyncio
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from looking import ask
from pyspark.errors import PySparkException
from running import Running
from spark.sinking import batch, written

from pgqueue.spark.apps import find_app
from pgqueue.spark.writing.log import refused_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pgqueue import PgQueue

APP = """
import asyncio
from ciphers import Secret
from tenacity import stop_after_attempt, wait_none
from pgqueue import Limit, PgQueue, Retry

queue = PgQueue(codec=Secret("k1"))
running, most, attempts = 0, 0, {{}}

@queue.task(name="{task}", queue="billing", priority=7, limit=Limit(2), fair_by="tenant",
            retry=Retry(wait=wait_none(), stop=stop_after_attempt(3)))
async def bill(order_id: int, tenant: str = "one") -> str:
    global running, most
    running += 1
    most = max(most, running)
    attempts[order_id] = attempts.get(order_id, 0) + 1
    await asyncio.sleep(0.01)
    running -= 1
    if order_id == 2 or (order_id == 3 and attempts[order_id] < 3):
        raise ValueError(f"order {{order_id}} is secret")
    return f"secret {{order_id}}"
"""


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dsn: str) -> Iterator[str]:
    name = f"loop_app_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(APP.format(task="bill"))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PGQUEUE_DSN", dsn)
    yield f"{name}:queue"
    find_app(f"{name}:queue").close()
    del sys.modules[name]


async def test_what_the_task_says_holds(dsn: str, app: str, running: Running) -> None:
    module: Any = importlib.import_module(app.partition(":")[0])
    written(dsn, batch(order_id=[*range(20)]), run="r1", key="order_id", app=app)

    found = ask(dsn, "select distinct queue, priority, max_attempts, lane is not null from pgqueue.jobs")
    assert found == [("billing", 7, 3, True)]
    stored = ask(dsn, "select args::text, meta::text from pgqueue.jobs")
    assert all("order_id" not in text for row in stored for text in row)
    module.queue.find_task("bill").enqueue(20)
    lanes = ask(dsn, "select distinct lane, cost, status, in_lane from pgqueue.jobs")
    assert len(lanes) == 1, "as of a job that Python enqueues"
    queue: PgQueue = module.queue
    async with running(queue, concurrency=10):
        while (await queue.insight.arun("r1")).live:
            await queue.insight.arun("r1")
    run = await queue.insight.arun("r1")
    assert (run.succeeded, run.dead) == (19, 1)
    assert module.most == 2
    assert (module.attempts[2], module.attempts[3]) == (3, 3)
    await queue.aclose()


def test_keys_results_and_messages_are_decoded_by_the_app_alone(
    spark: "SparkSession", dsn: str, app: str, running: Running
) -> None:
    written(dsn, batch(order_id=[1, 2]), run="r1", key="order_id", app=app)
    queue = find_app(app)
    for name in (app.partition(":")[0], "ciphers"):
        spark.sparkContext.addPyFile(str(sys.modules[name].__file__))

    async def work() -> None:
        async with running(queue, concurrency=2):
            while (await queue.insight.arun("r1")).live:
                await queue.insight.arun("r1")

    asyncio.run(work())
    asyncio.run(queue.aclose())

    plain = spark.read.format("pgqueue").options(dsn=dsn, results="r1")
    rows = {row.order_id: row for row in plain.option("app", app).load().collect()}
    assert rows[1].result == '"secret 1"'
    assert rows[2].error_message == "order 2 is secret"
    blind = spark.read.format("pgqueue").options(dsn=dsn, results="r1")
    assert "secret" not in str(blind.option("columns", "state,result,error_message").load().collect())
    with pytest.raises(PySparkException, match="the key columns of this run are encoded"):
        blind.option("columns", "order_id").load().collect()
    parsed = spark.read.format("pgqueue").options(dsn=dsn, results="r1").schema("result struct<paid: long>")
    with pytest.raises(PySparkException, match="the results of this run are encoded"):
        parsed.load().collect()


def test_rows_that_a_codec_would_encode_are_not_in_clear_among_the_refusals(dsn: str, app: str) -> None:
    write = written(
        dsn,
        batch(order_id=[4711_4711], priority=[1_000]),
        run="r1",
        key="order_id",
        app=app,
        onbadrow="divert",
    )

    assert write.refused == 1
    assert "47114711" not in str(refused_rows(write.id, dsn))
    assert "47114711" not in str(ask(dsn, "select key::text from pgqueue.sink_refused"))
