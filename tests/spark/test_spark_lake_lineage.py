"""Lineage: what each step says of its tables, and that no receiver stops a step."""

import json
import logging
import os
import socket
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from looking import ask
from openlineage.client.event_v2 import RunEvent
from psycopg.conninfo import conninfo_to_dict
from spark.lake_history import DAY, NEXT, ended, no_session

from pgqueue import PgQueue
from pgqueue.errors import DaysNotExported
from pgqueue.spark.checks import check
from pgqueue.spark.config import Config
from pgqueue.spark.erasing import erase, of_key
from pgqueue.spark.lake import lineage
from pgqueue.spark.lake.compact import compact
from pgqueue.spark.lake.export import export
from pgqueue.spark.lake.lake import Lake
from pgqueue.spark.lake.lineage_events import RunFacts, TableFacts, event_of
from pgqueue.spark.lake.prune import prune
from pgqueue.spark.lake.steps import log_step, steps
from pgqueue.spark.lake.verify import verify
from pgqueue.spark.rollup.rollup import rollup

SECRET = "zq-hunter-22"  # noqa: S105 - looked for


@pytest.fixture(autouse=True)
def unconfigured(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No setting of the machine's, and a process that was never disappointed. The client writes settings into the environment: they go."""
    for name in list(os.environ):
        if name.startswith("OPENLINEAGE"):
            monkeypatch.delenv(name)
    monkeypatch.setattr(lineage, "patience", lineage.Patience())
    yield
    for name in [one for one in os.environ if one.startswith("OPENLINEAGE")]:
        del os.environ[name]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake")


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file to which events go."""
    path = tmp_path / "events.jsonl"
    for name, value in (("TYPE", "file"), ("LOG_FILE_PATH", str(path)), ("APPEND", "true")):
        monkeypatch.setenv(f"OPENLINEAGE__TRANSPORT__{name}", value)
    return path


def events(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def names(datasets: list[dict[str, Any]]) -> list[str]:
    return [one["name"] for one in datasets]


def test_each_step_tells_its_start_and_its_end_with_the_tables_that_it_reads_and_writes(
    queue: PgQueue, dsn: str, lake: Lake, told: Path
) -> None:
    for day in (DAY, NEXT):
        ended(dsn, day, 4)
    export(no_session, queue.database, lake)
    verify(no_session, queue.database, lake)
    rollup(no_session, queue.database, lake, Config())
    check(queue.database, lake)
    erase(queue.database, lake, of_key("key 3"), days=[DAY])
    compact(queue.database, lake)
    prune(queue.database, lake)
    with log_step(lake, "report") as size:
        size.days = 7
    found = events(told)
    done = ("export", "verify", "rollup", "check", "erase", "compact", "prune", "report")
    assert [(one["job"]["name"], one["eventType"]) for one in found] == [
        (f"pipeline.{step}", state) for step in done for state in ("START", "COMPLETE")
    ]
    runs = [one["run"]["runId"] for one in found]
    assert runs[::2] == runs[1::2]
    assert len({*runs}) == len(done)
    by_step = {one["job"]["name"].partition(".")[2]: one for one in found[1::2]}
    root, database = lake.uri.removeprefix("file://"), f"{conninfo_to_dict(dsn)['dbname']}.pgqueue"
    assert names(by_step["export"]["inputs"])[:2] == [f"{database}.job_history", f"{database}.dead_jobs"]
    assert names(by_step["export"]["outputs"])[0] == f"{root}/ended"
    assert f"{root}/rollup/hours" in names(by_step["rollup"]["outputs"])
    assert f"{database}.rollup_hours" in names(by_step["rollup"]["outputs"])
    assert names(by_step["erase"]["inputs"]) == [f"{root}/ended"]
    assert f"{database}.job_history" in names(by_step["erase"]["outputs"])
    assert f"{root}/rollup/failures" in names(by_step["report"]["inputs"])
    assert {one["namespace"] for one in by_step["rollup"]["inputs"]} == {"file"}
    assert by_step["export"]["inputs"][0]["namespace"].startswith("postgres://localhost:")


def test_an_export_says_its_rows_its_columns_and_from_which_columns_they_come(
    queue: PgQueue, dsn: str, lake: Lake, told: Path
) -> None:
    ended(dsn, DAY, 5)
    export(no_session, queue.database, lake)
    output = events(told)[-1]["outputs"][0]
    assert output["outputFacets"]["outputStatistics"]["rowCount"] == 5
    fields = {one["name"]: one for one in output["facets"]["schema"]["fields"]}
    assert fields["created_at"]["description"].startswith("When it was enqueued")
    came = output["facets"]["columnLineage"]["fields"]
    assert came.keys() == fields.keys()
    of = {name: [one["field"] for one in column["inputFields"]] for name, column in came.items()}
    assert (of["id"], of["ended_at"], of["reason"], of["result"]) == (
        ["id", "id"],
        ["finished_at", "died_at"],
        ["reason"],
        ["result"],
    )


def test_a_step_that_fails_tells_the_class_of_its_error_and_no_value_of_a_job(
    queue: PgQueue, dsn: str, lake: Lake, told: Path
) -> None:
    ended(dsn, DAY, 1)
    ask(
        dsn,
        "update pgqueue.job_history set run_at = 'infinity', unique_key = %(it)s, args = to_json(%(it)s::text)",
        it=SECRET,
    )
    with pytest.raises(DaysNotExported):
        export(no_session, queue.database, lake)
    with pytest.raises(KeyboardInterrupt), log_step(lake, "report"):
        raise KeyboardInterrupt(SECRET)
    assert [one["eventType"] for one in events(told)] == ["START", "FAIL", "START", "ABORT"]
    assert events(told)[1]["run"]["facets"]["errorMessage"]["message"] == "DaysNotExported"
    assert SECRET not in told.read_text()


def test_an_event_is_one_of_the_clients_own_class() -> None:
    facts = RunFacts(
        state="COMPLETE",
        run="01920000-0000-7000-8000-000000000000",
        step="export",
        at=datetime.now(UTC),
        reads=(),
        writes=(TableFacts(namespace="s3://bucket", name="lake/ended", rows=0),),
    )
    assert isinstance(event_of(facts), RunEvent)


class Receiver:
    """An HTTP server that keeps what it is sent."""

    def __init__(self) -> None:
        self.got: list[dict[str, Any]] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.got.append(json.loads(body))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Print nothing."""

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    served = Receiver()
    thread = threading.Thread(target=served.server.serve_forever)
    thread.start()
    yield served
    served.server.shutdown()
    thread.join()
    served.server.server_close()


def test_events_go_to_the_url_of_the_environment(
    queue: PgQueue, lake: Lake, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENLINEAGE_URL", receiver.url)
    monkeypatch.setenv("OPENLINEAGE_NAMESPACE", "shop")
    export(no_session, queue.database, lake)
    assert [(one["eventType"], one["job"]["namespace"]) for one in receiver.got] == [
        ("START", "shop"),
        ("COMPLETE", "shop"),
    ]


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a server that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def closed() -> str:
    """An address at which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"http://127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture(params=["silent", "closed"])
def unusable(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Configured is a receiver that gives no answer."""
    monkeypatch.setenv("OPENLINEAGE_URL", request.getfixturevalue(request.param))
    monkeypatch.setattr(lineage, "PATIENCE", 0.2)
    monkeypatch.setattr(lineage, "patience", lineage.Patience())


@pytest.mark.usefixtures("unusable")
def test_a_receiver_that_hangs_or_refuses_stops_no_step_and_is_waited_for_once(
    queue: PgQueue, dsn: str, lake: Lake, caplog: pytest.LogCaptureFixture
) -> None:
    ended(dsn, DAY, 3)
    with caplog.at_level(logging.WARNING):
        assert [one.day for one in export(no_session, queue.database, lake)] == [DAY]
        assert len(verify(no_session, queue.database, lake)) == 1
    assert [(one.step, one.error) for one in steps(lake)] == [("export", None), ("verify", None)]
    assert [one.getMessage() for one in caplog.records] == [
        "the lineage of export was not sent (TimeoutError: no answer within 0.2 s); the step is not affected"
    ]
    assert lineage.patience.remaining() == 0


def test_patience_comes_back_with_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1_000.0
    monkeypatch.setattr(lineage, "time", SimpleNamespace(monotonic=lambda: now))
    patience = lineage.Patience()
    assert patience.remaining() == lineage.PATIENCE
    patience.spend(99)
    now += lineage.RENEWED_AFTER
    assert patience.remaining() == 0
    now += 1
    assert patience.remaining() == lineage.PATIENCE


def test_without_a_setting_no_thread_is_started(
    queue: PgQueue, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lineage, "_Sender", lambda _: pytest.fail("a thread was started"))
    export(no_session, queue.database, lake)


def test_a_missing_client_is_named_in_a_line(
    queue: PgQueue, lake: Lake, told: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "openlineage.client", None)
    for _ in range(2):
        export(no_session, queue.database, lake)
    (line,) = [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]
    assert "pip install 'pgqueue-jobs[lineage]'" in line
    assert not told.exists()
