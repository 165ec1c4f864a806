"""The recipe of docs/upgrading/migrations.md works inside an app's own Alembic history."""

from pathlib import Path

import psycopg
import pytest
from alembic import command
from alembic.config import Config
from docs.pages import DOCS, blocks

PAGE = DOCS / "upgrading" / "migrations.md"

ENVIRONMENT = """
import os
from alembic import context
from sqlalchemy import create_engine
from sqlalchemy.pool import NullPool

engine = create_engine(os.environ["DATABASE_URL"], poolclass=NullPool)
with engine.connect() as connection:
    context.configure(connection=connection)
    with context.begin_transaction():
        context.run_migrations()
"""

NEXT = """
from alembic import op

revision = "0000000000b2"
down_revision = "a1b2c3d4e5f6"


def upgrade():
    op.execute("create table after_pgqueue (id bigint)")


def downgrade():
    op.execute("drop table after_pgqueue")
"""


@pytest.fixture
def history(tmp_path: Path, empty_dsn: str, monkeypatch: pytest.MonkeyPatch) -> Config:
    """A user's Alembic history: the page's revision, and one of the user's own after it."""
    monkeypatch.setenv("DATABASE_URL", empty_dsn.replace("postgresql://", "postgresql+psycopg://"))
    versions = tmp_path / "alembic" / "versions"
    versions.mkdir(parents=True)
    (tmp_path / "alembic" / "env.py").write_text(ENVIRONMENT, encoding="utf-8")
    (recipe,) = [block for block in blocks(PAGE) if block.word == "file"]
    (versions / "add_pgqueue.py").write_text(recipe.code, encoding="utf-8")
    (versions / "next.py").write_text(NEXT, encoding="utf-8")
    config = Config()
    config.set_main_option("script_location", str(tmp_path / "alembic"))
    config.set_main_option("path_separator", "os")
    return config


def _tables(dsn: str) -> set[str | None]:
    with psycopg.connect(dsn) as connection:
        row = connection.execute(
            "select to_regclass('pgqueue.jobs')::text, to_regclass('after_pgqueue')::text"
        ).fetchone()
    assert row is not None
    return set(row)


def test_the_recipe_installs_pgqueue_and_the_next_revision_runs(history: Config, empty_dsn: str) -> None:
    command.upgrade(history, "head")
    assert _tables(empty_dsn) == {"pgqueue.jobs", "after_pgqueue"}


def test_the_recipe_takes_pgqueue_away_again(history: Config, empty_dsn: str) -> None:
    command.upgrade(history, "head")
    command.downgrade(history, "base")
    assert _tables(empty_dsn) == {None}
