"""What a report that is mailed shows of people and of the database: no secret of the queue's own rule, no address, and a name."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner
from looking import ask
from psycopg.conninfo import conninfo_to_dict
from spark.lake_history import DAY, ended, no_session

from pgqueue import SECRETS, PgQueue
from pgqueue.cli.main import main
from pgqueue.spark import pipeline_jobs
from pgqueue.spark.config import Config
from pgqueue.spark.lake.export import export
from pgqueue.spark.lake.lake import Lake
from pgqueue.spark.report.report import Answers, write
from pgqueue.spark.rollup.attempts import READS, failed_attempts
from pgqueue.spark.rollup.rollup import rollup
from pgqueue.store.pipeline import lake as plans
from pgqueue.values.redaction import Redaction

ADA = "ada.lovelace+orders@mail.example.org"
PIN = Redaction((*SECRETS, "pin"))
APP = 'from pgqueue import SECRETS, PgQueue\nqueue = PgQueue(redact=(*SECRETS, "pin"))\n'


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake")


def sampled(message: str) -> str:
    errors = json.dumps([{"attempt": 1, "type": "E", "message": message}])
    values = (DAY, None, "q", "t", "dead", 1, "{}", None, errors)
    row = pa.RecordBatch.from_pylist([dict(zip(READS, values, strict=True))])
    (batch,) = failed_attempts([row])
    return str(batch.to_pylist()[0]["sample"])


@pytest.mark.parametrize(
    ("message", "sample"),
    [
        ("550 customer6982869@example.org refused", "550 <email> refused"),
        (f"<{ADA}>, 'ada@localhost': unknown.", "<<email>>, '<email>': unknown."),
        ("GET /users?to=ada%40example.org&n=1", "GET /users?to=<email>&n=1"),
        ("größe@über.example, 2 @ 3, @property", "<email>, 2 @ 3, @property"),
    ],
)
def test_a_sample_has_no_address_of_a_person(message: str, sample: str) -> None:
    assert sampled(message) == sample


def test_an_address_at_the_end_of_a_long_message_leaves_no_part_of_it() -> None:
    for before in range(len(ADA)):
        message = "x" * before + f" {ADA}" * 60  # what is read of it ends within an address
        assert set(sampled(message).lstrip("x").split()) <= {
            "<email>",
            "<email",
            "<emai",
            "<ema",
            "<em",
            "<e",
            "<",
        }


def failing(dsn: str, day_count: int = 1) -> None:
    ended(dsn, DAY, day_count)
    ask(
        dsn,
        """update pgqueue.job_history set args = '{"pin": "4711-zq", "to": "ada"}',
                  errors = '[{"attempt": 1, "type": "E", "message": "pin 4711-zq of bob@example.org refused"}]'""",
    )


def samples(lake: Lake, dsn: str) -> set[str]:
    in_lake = lake.dataset("rollup/failures", pa.schema([("sample", pa.string())])).to_table()
    stored = {row[0] for row in ask(dsn, "select sample from pgqueue.rollup_failures")}
    assert {*in_lake["sample"].to_pylist()} == stored
    return stored


def test_the_rule_of_the_queue_hides_secrets_in_samples_and_another_rule_makes_them_again(
    queue: PgQueue, dsn: str, lake: Lake
) -> None:
    failing(dsn)
    export(no_session, queue.database, lake)
    rollup(no_session, queue.database, lake, Config())
    assert samples(lake, dsn) == {"pin 4711-zq of <email> refused"}
    assert rollup(no_session, queue.database, lake, Config(), redaction=PIN) == [DAY]
    assert samples(lake, dsn) == {"pin ••• of <email> refused"}
    assert rollup(no_session, queue.database, lake, Config(), redaction=PIN) == []


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "pin_app.py").write_text(APP)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(pipeline_jobs, "WORK", {"rollup": pipeline_jobs.WORK["rollup"]})
    return "pin_app:queue"


@pytest.mark.parametrize("words", [["rollup"], ["run"], ["erase", "--key", "key 3"]])
def test_each_command_that_makes_roll_ups_has_the_rule_of_its_app(
    queue: PgQueue, dsn: str, lake: Lake, app: str, words: list[str]
) -> None:
    failing(dsn, 6)
    export(no_session, queue.database, lake)
    if words[0] == "erase":
        rollup(no_session, queue.database, lake, Config())
    given = ["--app", app, "--dsn", dsn, "pipeline", *words, "--lake", lake.uri]
    told = CliRunner().invoke(main, given)
    assert told.exit_code == 0, told.output
    assert samples(lake, dsn) == {"pin ••• of <email> refused"}


def test_no_roll_up_is_made_of_secrets_that_are_shown_on_a_screen(dsn: str, lake: Lake, app: str) -> None:
    given = ["--app", app, "--dsn", dsn, "--reveal", "pipeline", "rollup", "--lake", lake.uri]
    told = CliRunner().invoke(main, given)
    assert told.exit_code == 2
    assert "--reveal" in str(told.output)


def test_the_page_names_the_database_and_no_number(queue: PgQueue, dsn: str, lake: Lake) -> None:
    name = conninfo_to_dict(dsn)["dbname"]
    lake.create(queue.database.run(plans.origin("pgqueue")))
    assert lake.owner == str(lake.marker().origin), "until an export says more"
    export(no_session, queue.database, lake)
    here = Lake(lake.uri)
    assert here.owner == name
    html = Path(write(Answers(period=None, sections=(), weeks=8), here).html).read_text(encoding="utf-8")
    assert f"History of {name}." in html
    assert here.marker().origin.system not in html
    here.create(here.marker().origin, database="shop on db-2.example")
    assert Lake(lake.uri).owner == "shop on db-2.example", "a database that has moved"
