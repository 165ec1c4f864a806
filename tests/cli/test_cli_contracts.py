"""``pgqueue pipeline contracts``, and ``pipeline check --contracts``: what a release would break, and views in SQL."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
from cli.commands import cells, pgqueue, printed
from looking import ask

from pgqueue import PgQueue
from pgqueue.app.named import contracts_of
from pgqueue.cli.app import find
from pgqueue.spark.config import HiddenColumns
from pgqueue.spark.lake.export import ExportOptions, export
from pgqueue.store.pipeline import contracts as plans

OLD = """
from dataclasses import dataclass

from pgqueue import PgQueue

queue = PgQueue()

@dataclass
class Line:
    sku: str
    n: int = 1

@queue.task(name="shop.bill")
def bill(customer: int, lines: list[Line], note: str = "") -> float: ...

@queue.task(name="shop.mail", aliases=["shop.post"])
def mail(to: str, id: int = 3) -> str: ...

@queue.task(name="shop_mail")
def other() -> None: ...
"""


@pytest.fixture
def apps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of apps."""
    monkeypatch.syspath_prepend(tmp_path)
    before = {*sys.modules}
    yield tmp_path
    for name in {*sys.modules} - before:
        if name.startswith("release"):
            del sys.modules[name]


def release(apps: Path, number: int, *changes: tuple[str, str]) -> str:
    """A release of the app, with these changes of its first."""
    text = OLD
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (apps / f"release{number}.py").write_text(text)
    return f"release{number}:queue"


@pytest.fixture
def deployed(queue: PgQueue, apps: Path) -> PgQueue:
    """The queue of a database for which workers of the first release have started."""
    first = find(release(apps, 1))
    found = contracts_of(first.tasks)
    queue.database.run(plans.say([one for one in found.values() if one is not None]))
    first.close()
    return queue


def check(app: str, dsn: str, *words: str) -> Any:
    return pgqueue("--app", app, "pipeline", "check", "--contracts", *words, dsn=dsn)


@pytest.mark.usefixtures("deployed")
def test_a_release_that_only_widens_is_allowed(apps: Path, dsn: str) -> None:
    app = release(
        apps, 2, ("n: int = 1", "n: float = 1"), ('note: str = ""', 'note: str = "", late: bool = False')
    )
    found = check(app, dsn)
    assert found.exit_code == 0
    assert found.stderr == ""
    assert found.stdout.splitlines() == [
        "4 tasks compared: 0 break the contract",
        "allowed: shop.bill: argument late is new, with a default; is boolean",
    ]


def test_a_release_that_breaks_its_contract_is_named_with_the_jobs_it_concerns(
    deployed: PgQueue, apps: Path, dsn: str
) -> None:
    rows = [
        ("shop.bill", '{"customer": 1, "lines": []}'),
        ("shop.bill", '{"customer": 1, "lines": [], "note": "x"}'),
    ]
    # json takes a number that jsonb refuses, and null is a value of an argument
    ask(
        deployed,
        """insert into pgqueue.jobs (task, args) values ('shop.bill', '{"customer": 1e400000, "note": null}')""",
    )
    for task, args in [*rows, ("other", '{"customer": 1}')]:
        ask(deployed, "select pgqueue.enqueue(%s, %s::jsonb)", task, args)
    app = release(
        apps,
        3,
        ("customer: int", "customer: str"),
        ('note: str = ""', "subject: str, late: int = 1"),
        ("sku: str", "code: str"),
        ("-> str", "-> int"),
        ('"shop_mail"', '"shop.new"'),
    )
    found = check(app, dsn)
    assert found.exit_code == 1
    assert found.stdout.splitlines()[0] == "3 tasks compared: 3 break the contract"
    less, jobs = "does not take all that it took", "3 live jobs have the old form"
    assert found.stderr.splitlines() == [
        f"breaks: shop.bill: argument customer {less}; was integer; is string; {jobs}",
        f"breaks: shop.bill: argument lines[].sku {less}; was string; is removed; 2 live jobs have the old form",
        "breaks: shop.bill: argument note was removed; was string; 2 live jobs have the old form",
        f"breaks: shop.bill: argument subject is new, without a default; is string; {jobs}",
        "breaks: shop.mail: result does not take all that it took; was string; is integer",
        "breaks: shop.post: result does not take all that it took; was string; is integer",
    ]
    assert "new, with no contract yet: shop.new" in found.stdout
    assert "not in this app (removed, or another app's): shop_mail" in found.stdout
    told = json.loads(check(app, dsn, "--json", "--accept", "shop.bill").stdout)
    assert (told["compared"], told["accepted"], told["absent"]) == (3, ["shop.bill"], ["shop_mail"])
    assert told["changes"][0] == {
        "task": "shop.bill",
        "argument": "customer",
        "place": "customer",
        "what": "narrowed",
        "was": "integer",
        "now": "string",
        "breaks": True,
        "jobs": 3,
    }
    accepted = check(
        app, dsn, *(word for task in ("shop.bill", "shop.mail", "shop.post") for word in ("--accept", task))
    )
    assert accepted.exit_code == 0
    assert "accepted: shop.bill: argument note was removed" in accepted.stderr
    assert ask(deployed, "select count(*) from pgqueue.task_contracts") == [(4,)]  # nothing is stored


@pytest.mark.usefixtures("deployed")
def test_a_lake_has_the_contracts_too(apps: Path, dsn: str, deployed: PgQueue, tmp_path: Path) -> None:
    lake = str(tmp_path / "lake")
    from pgqueue.spark.lake.lake import Lake  # noqa: PLC0415 - PyArrow

    export(_no_session, deployed.database, Lake(lake))
    ask(deployed, "delete from pgqueue.task_contracts returning 1")
    app = release(apps, 4, ("customer: int", "customer: str"))
    assert check(app, dsn).stdout.startswith("0 tasks compared")
    assert check(app, dsn, "--lake", lake).exit_code == 1
    assert [row[0] for row in cells(pgqueue("pipeline", "contracts", "list", "--lake", lake, dsn=dsn))] == [
        "shop.bill",
        "shop.mail",
        "shop.post",
        "shop_mail",
    ]
    Lake(str(tmp_path / "hidden"))
    export(
        _no_session,
        deployed.database,
        Lake(tmp_path / "hidden"),
        options=ExportOptions(hide=HiddenColumns(("args",), ())),
    )
    refused = pgqueue(
        "pipeline", "contracts", "sql", "--engine", "spark", "--lake", str(tmp_path / "hidden"), dsn=dsn
    )
    assert refused.exit_code == 2
    assert "no arguments to make columns of" in refused.stderr


def _no_session() -> Any:
    raise AssertionError("a session was started")


@pytest.mark.usefixtures("deployed")
def test_a_contract_is_shown_as_columns_and_as_schemas(dsn: str) -> None:
    shown = pgqueue("pipeline", "contracts", "show", "shop.mail", "--engine", "duckdb", dsn=dsn)
    assert [line.split() for line in shown.stdout.splitlines()[:4]] == [
        ["column", "argument", "type", "if", "absent"],
        ["to", "to", "varchar", "does", "not", "fit"],
        ["arg_id", "id", "bigint", "3"],
        ["result", "varchar", "null"],
    ]
    told = printed(pgqueue("pipeline", "contracts", "show", "shop.mail", "--json", dsn=dsn))
    assert [*told["arguments"]["properties"]] == ["to", "id"]
    assert told["result"] == {"type": "string"}
    wrong = pgqueue("pipeline", "contracts", "show", "shop.mial", dsn=dsn)
    assert (wrong.exit_code, "did you mean 'shop.mail'?" in wrong.stderr) == (2, True)


@pytest.mark.usefixtures("deployed")
def test_the_views_are_statements_that_duckdb_takes(dsn: str) -> None:
    text = pgqueue("pipeline", "contracts", "sql", "--engine", "duckdb", "--prefix", "v_", dsn=dsn).stdout
    with duckdb.connect() as engine:
        columns = "id, queue, outcome, reason, run_at, created_at, started_at, ended_at, attempts, day"
        names = [name.strip() for name in columns.split(",")]
        listed = ", ".join(f"null as {name}" for name in names)
        row = """'shop.bill' as task, '{"customer": 5, "lines": [{"sku": "a"}]}' as args, '1.5' as result"""
        engine.execute(f"create table ended as select {listed}, {row}")
        engine.execute(text)
        views = engine.execute(
            "select view_name from duckdb_views() where not internal order by 1"
        ).fetchall()
        found = engine.execute(
            "select customer, lines[1].sku, note, result, misfit from v_shop_bill"
        ).fetchall()
    assert found == [(5, "a", "", 1.5, None)]
    plain = [name for (name,) in views if not name.startswith("v_shop_mail_")]
    assert (plain, len(views)) == (["v_shop_bill", "v_shop_post"], 4)  # two tasks would have one name


@pytest.mark.usefixtures("deployed")
def test_options_that_go_together_are_asked_for(apps: Path, dsn: str) -> None:
    app = release(apps, 5)
    assert "--app names the app" in pgqueue("pipeline", "check", "--contracts", dsn=dsn).stderr
    assert "--accept goes with --contracts" in pgqueue("pipeline", "check", "--accept", "x", dsn=dsn).stderr
    assert "no such task; did you mean 'shop.mail'?" in check(app, dsn, "--accept", "shop.mial").stderr
    assert "do not go with --contracts" in check(app, dsn, "--days", "2026-01-01").stderr
    assert "no lake" in pgqueue("pipeline", "check", dsn=dsn).stderr
