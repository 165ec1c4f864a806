from pathlib import Path

import pytest

from pgqueue import PgQueue
from pgqueue.cli import app as cli_app
from pgqueue.cli.app import CommandOptions

OWN = "postgresql://own/shop"


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> PgQueue:
    queue = PgQueue(OWN, schema="shop", behind_pooler=True, direct_dsn="postgresql://direct/shop")
    monkeypatch.setattr(cli_app, "find", lambda _: queue)
    return queue


def test_without_options_the_apps_database_is_left_alone(own: PgQueue) -> None:
    before = own.database
    assert CommandOptions(app="shop:queue").queue().database is before


def test_another_dsn_leaves_the_direct_way_of_the_old_one_behind(own: PgQueue) -> None:
    database = CommandOptions(app="shop:queue", dsn="postgresql://other/shop").queue().database
    assert own.database is database
    assert database.dsn == "postgresql://other/shop"
    assert database.catalogue.schema == "shop"
    assert database.behind_pooler
    assert database.listen_dsn is None


def test_another_schema_leaves_the_rest_as_the_app_has_it(own: PgQueue) -> None:
    database = CommandOptions(app="shop:queue", schema="other").queue().database
    assert own.database is database
    assert database.catalogue.schema == "other"
    assert (database.dsn, database.listen_dsn) == (OWN, "postgresql://direct/shop")


def test_the_options_for_a_pooler_reach_a_queue_made_from_a_dsn() -> None:
    settings = CommandOptions(dsn=OWN, behind_pooler=True, direct_dsn="postgresql://direct/shop")
    database = settings.queue().database
    assert database.behind_pooler
    assert database.listen_dsn == "postgresql://direct/shop"


def test_the_app_is_found_in_the_current_directory(shop: Path) -> None:
    assert "shop.send" in CommandOptions(app="shop:queue").app_queue().tasks
    assert (shop / "shop.py").exists()
